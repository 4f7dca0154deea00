from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest

from labelsieve.decisions import append_decision
from labelsieve.errors import InputError
from labelsieve.export import export
from labelsieve.export.outcome import ExportSettings, resolve_labels
from labelsieve.report import render_report, write_report
from labelsieve.report.facts import Facts, Group, SpotCheck, hits_in_rest, sampling_errors
from labelsieve.report.html import percent
from labelsieve.report.samples import Samples
from labelsieve.report.sections import headline
from labelsieve.report.source_state import RunSource
from labelsieve.review.review_session import ReviewSession
from labelsieve.runfolder import RunFolder
from labelsieve.types import NoiseEstimate, Trust, WhyUnknown

SECTIONS = ("next", "mistakes", "verdicts", "suspects", "curves", "theory", "settings")


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    run = runs.pictures(folder, n=48)
    return run, write_report(run).read_text(encoding="utf-8")


def test_every_section_exists_and_is_linked(page):
    _, html = page
    for ident in SECTIONS:
        assert f'<section id="{ident}"' in html and f'href="#{ident}"' in html
    assert len(re.findall(r"<h1>", html)) == 1
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))


def test_the_page_has_no_requests_and_no_scripts(page):
    _, html = page
    assert not re.search(r"<script|<link|<iframe|javascript:|\son\w+=|@import|url\(", html)
    assert not re.search(r'(src|href)="(?!data:image/(webp|png);base64,|#)', html)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html).group(1)
    style = re.search(r"<style>(.*?)</style>", html, re.S).group(1)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert "default-src &#x27;none&#x27;" in policy and f"sha256-{digest}" in policy
    assert "unsafe" not in policy and "style=" not in re.sub(r"<style>.*?</style>", "", html, flags=re.S)


def test_a_rough_estimate_is_shown_as_an_interval(runs, tmp_path):
    def html(**estimate):
        summary = run.read_summary()
        summary["iterations"][0]["estimate"] |= estimate
        run.write_summary(summary)
        return write_report(run).read_text(encoding="utf-8")

    run = runs.pictures(tmp_path, n=48)
    runs.write_suggestions(run, lambda place: 0.95)
    right = 0.95 * len(Facts.read(run).suspects)
    assert re.search(rf'<td class="n">about {right:.0f}[,<]', html(ratio=0.25))
    rough = html(trust="rough", low=0.05, high=0.4)
    assert "<h1>Between 5\u202f% and 40\u202f% of the labels may be wrong.</h1>" in rough
    assert f'<td class="n">about {right:.0f}, at least {right / 5:.0f}</td>' in rough
    from_none = html(low=0.0)
    assert "<h1>Up to 40\u202f% of the labels may be wrong.</h1>" in from_none
    assert f'<td class="n">about {right:.0f}, perhaps none</td>' in from_none
    assert "<h1>About" in html(low=None, high=None)  # an earlier version had no interval


def test_the_numbers_are_those_of_the_run(page):
    run, html = page
    facts = Facts.read(run)
    summary = run.read_summary()
    assert f"About {100 * summary['noise_ratio']:.0f}\u202f% of the labels may be wrong." in html
    suspects = [row for row in run.read_labels() if row.verdict != "selected" and row.suggested not in ("", row.label)]
    assert len(facts.suspects) == len(suspects)
    assert html.count('<li class="suspect">') == len(suspects)
    ranked = sorted(suspects, key=lambda row: -row.suspicion)
    shown = re.findall(r'<p class="id">id ([^<]+)</p>', html)
    assert [row.suspicion for row in ranked] == [row.suspicion for id in shown for row in suspects if row.id == id]
    assert "measured 95.8\u202f%" in html and "96.4\u202f%" in html
    assert "How far to trust this" in html
    assert html.count("<polyline") >= 12


def test_pictures_are_embedded(page):
    _, html = page
    images = re.findall(r'<img src="data:image/webp;base64,([^"]+)" alt="([^"]*)"', html)
    assert images and all(alt.startswith("Sample labelled") for _, alt in images)
    assert base64.b64decode(images[0][0])[:4] == b"RIFF"


@pytest.mark.parametrize("kind", ["text", "table"])
def test_texts_and_rows_are_shown(runs, tmp_path, kind):
    html = write_report(getattr(runs, kind)(tmp_path)).read_text(encoding="utf-8")
    if kind == "text":
        assert "<blockquote>" in html
    else:
        assert "<dt>area m2</dt>" in html and "<dt>true</dt>" not in html


def test_next_steps_depend_on_decisions(runs, tmp_path):
    run = runs.text(tmp_path)
    facts = Facts.read(run)
    for row in facts.suspects[:3].tolist():
        append_decision(run / "decisions.csv", facts.columns.id(row), "drop")
    append_decision(run / "decisions.csv", facts.columns.id(int(facts.suspects[0])), "undo")
    html = write_report(run).read_text(encoding="utf-8")
    assert f"{len(facts.suspects) - 2} suspects left, 2 decided." in html


def test_decisions_on_other_samples_do_not_count_for_suspects(runs, tmp_path):
    run = runs.text(tmp_path)
    suspects = len(Facts.read(run).suspects)
    others = [row.id for row in run.read_labels() if row.verdict == "selected"]
    assert len(others) > suspects
    for id in others:
        append_decision(run / "decisions.csv", id, "drop")
    facts = Facts.read(run)
    html = write_report(run).read_text(encoding="utf-8")
    assert facts.decided_suspects == 0 and facts.log.decided.any()
    assert f"{suspects} suspects left." in html and "All suspects are decided" not in html


def test_zero_requested_suspects_are_not_reported_as_zero_suspects(runs, tmp_path):
    run = runs.text(tmp_path)
    html = write_report(run, most=0).read_text(encoding="utf-8")
    assert "There are no suspects" not in html and '<li class="suspect">' not in html
    assert f"all {len(Facts.read(run).suspects)} suspects" in html


def test_true_labels_of_only_some_samples_are_mentioned(runs, tmp_path):
    run = runs.text(tmp_path)
    assert "the true labels of this run" in write_report(run).read_text(encoding="utf-8")
    run.write_summary(run.read_summary() | {"measured_samples": 30.0})
    assert "the true labels of 30 samples of this run" in write_report(run).read_text(encoding="utf-8")


def test_the_commands_of_next_steps_can_be_copied(runs, tmp_path):
    """Each command is of this run: nothing has to be filled in but the new samples."""
    for make in (runs.text, runs.pictures):
        (tmp_path / make.__name__).mkdir()
        run = make(tmp_path / make.__name__)
        html = write_report(run).read_text(encoding="utf-8")
        codes = re.findall(r"<code>(labelsieve [^<]+)</code>", html)
        again = f"select {tmp_path}/pictures/shapes --labels" if make is runs.pictures else "select"
        assert [code for code in codes if f"{again} cleaned.csv --out {run.path}-again" in code]
        assert f"labelsieve train {run.path}" in codes and "labelsieve predict" not in html
        assert ("into class folders" in html) == (make is runs.pictures)
    run.start("train", settings={})
    run.finish("train")
    html = write_report(run).read_text(encoding="utf-8")
    assert f"labelsieve predict {run.path} NEW --to predictions.csv" in html and "labelsieve train" not in html


def test_the_step_that_applies_suggestions_says_if_the_export_would_stop(runs, tmp_path):
    run = runs.table(tmp_path)
    runs.write_suggestions(run, lambda place: 0.95)
    check, suspects = SpotCheck(Facts.read(run).columns, Facts.read(run).suggested_probability), runs.suspects_of(run)

    def commands():
        html = write_report(run).read_text(encoding="utf-8")
        (step,) = re.findall(r"<li>(?:(?!</li>).)*--apply suggested.*?</li>", html, re.S)
        return re.findall(r"<code>labelsieve (\w+)", step), "stops with an error" in step

    def stops():
        return bool(export(run, apply="suggested", to=tmp_path / "c.csv", dry_run=True).note)

    assert not stops() and commands() == (["export"], False)
    summary = run.read_summary()
    summary["iterations"][0]["estimate"]["low"] = 0.0
    run.write_summary(summary)
    assert stops() and commands() == (["review", "export"], True)
    for row in check.rows(Group.SUGGESTED, 0.9)[:10].tolist():
        sample = next(sample for sample in suspects if sample.id == check.columns.id(row))
        append_decision(run / "decisions.csv", sample.id, "relabel", sample.suggested)
    assert not stops() and commands() == (["export"], False)


def test_a_group_of_duplicates_shows_its_different_labels(runs, tmp_path):
    run = runs.text(tmp_path)
    labels = [row.label for row in run.read_labels()]
    rows = [i for i, label in enumerate(labels) if label == "payment"][:9]
    rows.append(max(i for i, label in enumerate(labels) if label == "praise"))
    runs.mark(run, "duplicates", dict.fromkeys(rows, "1"))
    html = write_report(run).read_text(encoding="utf-8")
    shown = re.findall(r"<p><strong>(\w+)</strong></p>", html[html.index('id="similar-title"') :])
    assert len(shown) == 4 and set(shown) == {"payment", "praise"}


def test_near_duplicates_and_outliers_need_embeddings(runs, tmp_path):
    run = runs.text(tmp_path)
    runs.mark(run, "duplicates", dict.fromkeys((3, 6), "1"))

    def similar():
        html = write_report(run).read_text(encoding="utf-8")
        return html[html.index('id="similar-title"') : html.index('id="curves"')]

    assert "nearly identical" not in similar() and "no embeddings" in similar()
    run.update(settings={**run.record()["settings"], "embed": "model"})
    assert "nearly identical" in similar() and "no embeddings" not in similar()


def second_look(source: str, kind: str, settings: dict[str, object], *, table: bool = True) -> list[str]:
    return RunSource(source, None, {"kind": kind}, settings).words("cleaned.csv", table=table)


def test_the_commands_of_a_second_run_name_the_columns_of_a_table_of_pictures() -> None:
    settings = {"label_column": "what it is", "root": None}
    words = ["cleaned.csv", "--label-column", "what it is", "--root", "/data"]
    assert second_look("/data/list.csv", "pictures", settings) == words
    assert second_look("t.parquet", "table", {}) == ["cleaned.csv"]


def test_a_second_run_reads_the_source_with_the_same_options() -> None:
    columns = {"label_column": "category", "text_column": "body", "id_column": "ticket", "size": None, "root": None}
    words = "cleaned.csv --label-column category --text-column body --id-column ticket"
    assert second_look("/data/m2.csv", "text", columns) == words.split()
    settings = {"label_column": "label", "size": 32, "root": None}
    words = ["/my pets", "--labels", "cleaned.csv", "--size", "32"]
    assert second_look("/my pets", "pictures", settings, table=False) == words
    words = "cleaned.csv --root /data/pets --size 32"
    assert second_look("l.csv", "pictures", {**settings, "root": "/data/pets"}) == words.split()


def test_the_commands_of_a_second_run_work_after_a_dropped_sample(runs, tmp_path):
    """What the report says is done word by word, with a picture folder, whose labels lie beside it."""
    import shlex

    from labelsieve.data.labels import read_label_file
    from labelsieve.data.source import ReadOptions, load_source
    from labelsieve.export import export

    run = runs.pictures(tmp_path)
    append_decision(run / "decisions.csv", next(row.id for row in run.read_labels() if row.suggested), "drop")
    html = write_report(run).read_text(encoding="utf-8")
    command = next(c for c in re.findall(r"<code>(labelsieve [^<]+)</code>", html) if "--labels" in c)
    words = shlex.split(command)
    export(run, what="cleaned", to=tmp_path / "cleaned.csv")
    data = load_source(words[2], ReadOptions(labels=read_label_file(tmp_path / words[words.index("--labels") + 1])))
    assert len(data) == 47 and len(data.skipped) == 1


def test_a_changed_source_is_reported_once_and_no_wrong_row_is_shown(runs, tmp_path):
    run = runs.table(tmp_path)
    said = []
    assert "changed since" not in write_report(run, note=said.append).read_text(encoding="utf-8") and not said
    head, *lines = (tmp_path / "homes.csv").read_text().splitlines()
    (tmp_path / "homes.csv").write_text("\n".join([head, *lines[::-1]]) + "\n")
    html = write_report(run, note=said.append).read_text(encoding="utf-8")
    assert html.count("changed since") == 1 and len(said) == 1 and "homes.csv" in said[0]
    assert "<dt>rooms</dt>" not in html and 'class="suspect"' in html


def test_a_missing_source_is_reported_once(runs, tmp_path):
    run = runs.text(tmp_path)
    (tmp_path / "mails.csv").rename(tmp_path / "elsewhere.csv")
    said = []
    html = write_report(run, note=said.append).read_text(encoding="utf-8")
    assert html.count("does not exist") == 1 and len(said) == 1 and "mails.csv" in said[0]


def test_rows_with_ids_are_shown_with_the_notice(runs, tmp_path):
    run = runs.text(tmp_path)
    source = tmp_path / "mails.csv"
    source.write_text(source.read_text().replace(",payment,", ",billing,"))
    html = write_report(run).read_text(encoding="utf-8")
    assert html.count("changed since") == 1 and "<blockquote>" in html


def test_a_run_without_a_selection_is_reported(tmp_path):
    with pytest.raises(InputError, match="not a run folder"):
        write_report(tmp_path)
    run = RunFolder(tmp_path)
    run.update(settings={})
    with pytest.raises(InputError, match="labelsieve select"):
        write_report(run)


def test_clean_labels_and_a_minimal_summary(tmp_path):
    run = RunFolder(tmp_path)
    run.update(settings={})
    run.write_summary({"samples": 2, "classes": ["a", "b"], "noise_ratio": 0.0})
    head = "id,label,predicted,probability,loss,verdict,iteration,suspicion,suggested,duplicates,outlier,confidence\n"
    (tmp_path / "labels.csv").write_text(
        head + "1,a,a,0.9,0.1,selected,1,0.1,,,,0.9\n2,b,b,0.9,0.1,selected,1,0.1,,,,0.9\n"
    )
    html = write_report(run).read_text(encoding="utf-8")
    assert "No wrong label was found." in html
    assert "There are no suspects" in html


def test_random_labels_are_reported(tmp_path, runs):
    run = runs.text(tmp_path)
    summary = run.read_summary()
    summary["iterations"][0]["estimate"] |= {"trust": "unknown", "why_unknown": "random"}
    run.write_summary(summary)
    assert "cannot be distinguished from random ones" in write_report(run).read_text(encoding="utf-8")
    summary["iterations"][0]["estimate"]["why_unknown"] = "leak"
    run.write_summary(summary)
    html = write_report(run).read_text(encoding="utf-8")
    assert "one column predicts the labels" in html and "are expected to be right" not in html
    assert '<dd class="small">expected' not in html.split("<nav")[0]


@pytest.mark.parametrize(("why", "pairs"), [("random", False), ("leak", True), ("outcome", True)])
def test_no_matrix_is_drawn_without_a_noise_estimate(tmp_path, runs, why, pairs):
    run = runs.text(tmp_path)
    assert "Estimated transition matrix" in write_report(run).read_text(encoding="utf-8")
    summary = run.read_summary()
    summary["iterations"][0] |= {"selected": 9, "expected_precision": 0.987}
    run.write_summary(summary)
    html = write_report(run).read_text(encoding="utf-8")
    assert "98.7\u202f%" in html and "96.4\u202f%" in html
    summary["iterations"][0]["estimate"] |= {"trust": "unknown", "why_unknown": why}
    run.write_summary(summary)
    html = write_report(run).read_text(encoding="utf-8")
    assert "98.7\u202f%" not in html and "96.4\u202f%" not in html
    assert "Estimated transition matrix" not in html and 'id="mistakes"' in html
    assert "There is no matrix, because " in html and ("Most frequent suggestions" in html) == pairs


def test_many_more_suspects_than_wrong_labels_are_explained(tmp_path, runs):
    run = runs.text(tmp_path)
    assert "A suspect is a sample" not in write_report(run).read_text(encoding="utf-8")
    run.write_summary(run.read_summary() | {"noise_ratio": 0.1})
    html = write_report(run).read_text(encoding="utf-8")
    assert "many suspects have a right label" in html
    (run / "suggestions.csv").write_text("id,label,suspicion,suggested,probability\n")  # suspicion is a probability
    html = write_report(run).read_text(encoding="utf-8")
    facts = Facts.read(run)
    wrong = round(sum(row.suspicion for row in run.read_labels() if row.suggested))
    assert f"about {wrong} of {len(facts.suspects)} suspects" in html
    assert html.index("About 10\u202f%") < html.index("A suspect is a sample") < html.index("How far to trust this")
    summary = run.read_summary()
    summary["iterations"][0]["estimate"] |= {"trust": "unknown", "why_unknown": "random"}
    run.write_summary(summary)
    assert "A suspect is a sample" not in write_report(run).read_text(encoding="utf-8")


def test_many_classes_show_the_most_confused_ones(tmp_path):
    run = RunFolder(tmp_path)
    run.update(settings={})
    c = 300
    matrix = np.eye(c)
    matrix[250, 250], matrix[250, 7] = 0.4, 0.6
    names = [f"class {i}" for i in range(c)]
    run.write_summary({"classes": names, "noise_ratio": 0.1, "transition_matrix": matrix.tolist()})
    head = "id,label,predicted,probability,loss,verdict,iteration,suspicion,suggested,duplicates,outlier,confidence\n"
    rows = [f"{i},class {i % c},class {i % c},0.9,0.1,selected,1,0.1,,,,0.9\n" for i in range(3 * c)]
    rows += [f"n{i},class 7,class 250,0.1,2.0,candidate,0,0.9,class 250,,,0.9\n" for i in range(50)]
    (tmp_path / "labels.csv").write_text(head + "".join(rows))
    path = write_report(run)
    html = path.read_text(encoding="utf-8")
    assert "The 25 most confused of 300 classes" in html
    assert "class 250 labelled class 7: 60.0" in html
    assert path.stat().st_size < 300_000


def test_a_million_samples_stay_small_and_quick(tmp_path, million_run, time_limit):
    """<= 10 MB whatever the pictures weigh."""
    from labelsieve.report.samples import Picture

    facts = Facts.read(million_run)
    assert len(facts.columns) == 1_000_000
    noise = np.random.default_rng(0).bytes(400_000)

    class Heavy(Samples):
        kind = "pictures"

        def show(self, row, *, side=1000):
            return Picture(noise, "image/webp", 220, 220)

    with time_limit(5):
        html = render_report(facts, Heavy())
    assert 5_000_000 < len(html.encode()) < 10_000_000
    assert "picture omitted" in html


def test_probabilities_are_shown_if_the_run_has_them(runs, tmp_path):
    run = runs.table(tmp_path)
    suspects = Facts.read(run).suspects
    before = write_report(run).read_text(encoding="utf-8")
    assert "not a probability" in before and "--min-confidence" not in before
    columns = Facts.read(run).columns
    lines = [f"{columns.id(int(row))},x,0.5,y,0.875" for row in suspects]
    (run / "suggestions.csv").write_text("id,label,suspicion,suggested,probability\n" + "\n".join(lines) + "\n")
    after = write_report(run).read_text(encoding="utf-8")
    assert after.count("88\u202f% likely right") == after.count('<li class="suspect">') > 0
    assert f"{percent(float(columns.suspicion[suspects[0]]))} likely wrong" in after
    assert "--min-confidence" in after
    assert re.search(rf'<td class="n">about {0.875 * len(suspects):.0f}[,<]', after)


def test_random_decisions_give_their_own_noise_ratio(runs, tmp_path):
    run = runs.table(tmp_path)
    runs.write_suggestions(run, lambda place: 0.95)
    facts = Facts.read(run)
    assert facts.checked_noise is None
    check = SpotCheck(facts.columns, facts.suggested_probability)
    for row in check.rows(Group.SUGGESTED, 0.9).tolist():
        append_decision(run / "decisions.csv", facts.columns.id(row), "drop")
    for row in check.rows(Group.REST, 0.9)[:10].tolist():
        append_decision(run / "decisions.csv", facts.columns.id(row), "keep")
    found = Facts.read(run).checked_noise
    assert found.ratio == pytest.approx(len(facts.suspects) / 60) and found.unchecked == 0
    assert found.low <= found.ratio < found.high and found.decided == len(facts.suspects) + 10
    assert "random decisions" in write_report(run).read_text(encoding="utf-8")


def test_groups_without_a_random_sample_are_as_uncertain_as_the_model(runs, tmp_path):
    run = runs.table(tmp_path)
    runs.write_suggestions(run, lambda place: 0.95)
    facts = Facts.read(run)
    check = SpotCheck(facts.columns, facts.suggested_probability)
    for row in check.rows(Group.SUGGESTED, 0.9).tolist():
        append_decision(run / "decisions.csv", facts.columns.id(row), "drop")
    log, share = Facts.read(run).log, len(facts.suspects) / 60
    rest = float(facts.columns.suspicion[~facts.columns.suspect()].sum()) / 60
    model = NoiseEstimate(0.2, 0.1, 0.4, Trust.ROUGH)
    found = check.noise(log, model)
    assert found.ratio == pytest.approx(share + rest) and found.unchecked == pytest.approx(1 - share)
    assert (found.low, found.high) == (pytest.approx(share + rest / 2), pytest.approx(share + rest * 2))
    unknown = check.noise(log, replace(model, trust=Trust.UNKNOWN, why_unknown=WhyUnknown.RANDOM))
    assert (unknown.low, unknown.high) == (pytest.approx(share), pytest.approx(1.0))


@pytest.mark.parametrize(
    ("right", "checked", "least"), [(20, 20, 0.883), (10, 10, 0.783), (0, 20, 0.0), (10, 20, 0.293)]
)
def test_the_least_share_of_a_sample_is_the_low_end_of_its_interval(right, checked, least):
    assert right / checked - sampling_errors(right, checked, 10**9)[0] == pytest.approx(least, abs=0.002)
    assert sampling_errors(right, checked, checked) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("size", "hits", "left"), [(25, 12, 5), (30, 15, 10), (40, 20, 20), (400, 300, 380), (400, 300, 30), (400, 300, 8)]
)
def test_the_least_number_of_hits_in_the_rest_is_rarely_too_high(size, hits, left):
    """`left` of the samples that were not checked have no decision."""
    rng = np.random.default_rng(0)
    too_high = 0
    for number in rng.hypergeometric(hits, size - hits, 20, 2_000).tolist():
        rest, error = hits_in_rest(number, 20, left)
        in_rest = rng.hypergeometric(hits - number, size - hits - (20 - number), left)
        too_high += rest - error > in_rest
    assert too_high < 0.04 * 2_000  # an end of a 95 % interval: 2.5 %
    rest, error = hits_in_rest(15, 20, left)
    assert rest - error > 0.2 * left  # not so low that it says nothing


def test_report_review_and_export_expect_the_same_number_of_right_suggestions(runs, tmp_path):
    """Before decisions by the noise model, after a random sample by the decisions, for suggestions and for drops."""
    run = runs.text(tmp_path, n=200)
    runs.write_suggestions(run, lambda place: 0.95)
    before = Facts.read(run)
    suspect = before.columns.suspect()
    by_model = before.expected_right(suspect, 0.9)
    assert by_model.number == pytest.approx(0.95 * suspect.sum()) and by_model.decisions == 0
    assert before.expected_wrong(suspect).number == pytest.approx(before.columns.suspicion[suspect].sum())
    sample = SpotCheck(before.columns, before.suggested_probability).rows(Group.SUGGESTED, 0.9)[:20].tolist()
    for place, row in enumerate(sample):
        suggestion = before.columns.name(int(before.columns.suggested[row]))
        decision = ("keep", "") if place % 2 else ("relabel", suggestion)
        append_decision(run / "decisions.csv", before.columns.id(row), *decision)
    after = Facts.read(run)
    left = int(suspect.sum()) - 20
    for found in (after.expected_right(suspect, 0.9), after.expected_wrong(suspect)):
        assert found.number == pytest.approx(left / 2) and found.decisions == 20 and 0 < found.least < found.number
    settings = ExportSettings(apply="suggested")
    assert resolve_labels(after, settings).right == after.expected_right(suspect, settings.min_confidence)
    assert ReviewSession(run).check(0.9)["expected"] == str(after.expected_right(suspect, 0.9))
    assert f"about {left / 2:,.0f}" in write_report(run).read_text(encoding="utf-8")


def test_the_headline_is_the_ratio_by_random_decisions_if_all_groups_were_sampled(runs, tmp_path):
    run = runs.table(tmp_path)
    runs.write_suggestions(run, lambda place: 0.95)
    facts = Facts.read(run)
    check = SpotCheck(facts.columns, facts.suggested_probability)
    for row in check.rows(Group.SUGGESTED, 0.9).tolist():
        append_decision(run / "decisions.csv", facts.columns.id(row), "drop")
    assert "random decisions" not in headline(Facts.read(run))
    for row in check.rows(Group.REST, 0.9)[:20].tolist():
        append_decision(run / "decisions.csv", facts.columns.id(row), "keep")
    assert "random decisions" in headline(Facts.read(run))


def test_a_suspect_shows_how_likely_its_label_is_wrong_and_the_decision(runs, tmp_path):
    run = runs.table(tmp_path)
    runs.write_suggestions(run, lambda place: 0.95)
    facts = Facts.read(run)
    likely = int(np.sum(facts.columns.suspicion[facts.suspects] > 0.5))
    html = write_report(run).read_text(encoding="utf-8")
    assert html.count('<del class="was">') == likely and "your decision:" not in html
    append_decision(run / "decisions.csv", facts.columns.id(int(facts.suspects[0])), "drop")
    assert write_report(run).read_text(encoding="utf-8").count("your decision: drop") == 1
