"""Suspects without a decision: they keep their label and are marked, unless the caller asks for more."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from labelsieve.cli.app import run as main
from labelsieve.decisions import append_decision
from labelsieve.errors import InputError
from labelsieve.export import export
from labelsieve.report.facts import MIN_CHECKED, Facts, Group, SpotCheck

_spec = importlib.util.spec_from_file_location(
    "export_undecided_runs", Path(__file__).parents[1] / "report" / "runs.py"
)
assert _spec is not None and _spec.loader is not None
runs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(runs)
rows_of, suspects_of = runs.rows_of, runs.suspects_of


@pytest.fixture
def run(tmp_path):
    """A table whose suspects have the probabilities 0.95, 0.4 and 0.9 of the rest."""
    run = runs.table(tmp_path)
    runs.write_suggestions(run, lambda place: {0: 0.95, 1: 0.4}.get(place, 0.9))
    return run


def test_the_default_changes_nothing_and_marks_the_suspects(run, tmp_path):
    done = export(run, to=tmp_path / "cleaned.csv")
    suspects = {int(row.id) for row in suspects_of(run)}
    assert (done.changed, done.dropped, done.suggested, done.undecided) == (0, 0, 0, len(suspects))
    cleaned, given = rows_of(done.path), rows_of(tmp_path / "homes.csv")
    assert [row["label"] for row in cleaned] == [row["label"] for row in given]
    assert {i for i, row in enumerate(cleaned) if row["labelsieve_status"] == "suspect"} == suspects
    parquet = export(run, to=tmp_path / "cleaned.parquet")
    assert parquet.changed == 0


def test_decided_labels_change_and_lose_their_mark(run, tmp_path):
    first, second, *rest = suspects_of(run)
    append_decision(run / "decisions.csv", first.id, "relabel", first.suggested)
    append_decision(run / "decisions.csv", second.id, "keep", second.label)
    done = export(run, to=tmp_path / "cleaned.csv")
    assert done.changed == 1 and done.undecided == len(rest)
    cleaned = rows_of(done.path)
    assert cleaned[int(first.id)]["label"] == first.suggested
    assert cleaned[int(first.id)]["labelsieve_status"] == cleaned[int(second.id)]["labelsieve_status"] == ""


def test_suggestions_are_applied_on_request_with_their_expectation(run, tmp_path):
    first, second, *rest = suspects_of(run)
    planned = export(run, to=tmp_path / "x.csv", apply="suggested", min_confidence=0.5, dry_run=True)
    assert not (tmp_path / "x.csv").exists() and planned.changed == 1 + len(rest)
    done = export(run, to=tmp_path / "x.csv", apply="suggested", min_confidence=0.5)
    assert done.changed == planned.changed == done.suggested and planned.summary == done.summary
    assert done.expected_right == pytest.approx(0.95 + 0.9 * len(rest))
    cleaned = rows_of(done.path)
    assert cleaned[int(second.id)]["label"] == second.label
    assert cleaned[int(first.id)]["labelsieve_status"] == "suggested"
    assert export(run, to=tmp_path / "y.csv", apply="suggested", min_confidence=0.92).changed == 1
    assert export(run, what="selected", to=tmp_path / "s.csv", apply="suggested", min_confidence=0).suggested > 0


def test_suspects_are_dropped_on_request(run, tmp_path):
    suspects = suspects_of(run)
    middle = suspects[len(suspects) // 2].suspicion
    expected = [row.suspicion for row in suspects if row.suspicion >= middle]
    done = export(run, to=tmp_path / "d.csv", drop_suspects=middle)
    assert done.dropped == len(expected) and done.rows == 60 - len(expected) and done.changed == 0
    assert done.expected_wrong == pytest.approx(sum(expected), abs=1e-3)
    both = export(run, to=tmp_path / "b.csv", apply="suggested", min_confidence=0.5, drop_suspects=0.0)
    assert both.dropped == 1 and both.changed == len(suspects) - 1  # applied suggestions stay


def test_a_decision_outweighs_both_requests(run, tmp_path):
    first, *_ = suspects_of(run)
    append_decision(run / "decisions.csv", first.id, "keep", first.label)
    done = export(run, to=tmp_path / "k.csv", apply="suggested", min_confidence=0, drop_suspects=0)
    assert rows_of(done.path)[int(first.id)]["label"] == first.label


def test_a_run_from_another_machine_uses_the_source_beside_it(run, tmp_path):
    record = run.record()
    (tmp_path / "elsewhere").mkdir()
    run.update(data={**record["data"], "source": "/home/other/data/homes.csv"})
    assert export(run, to=tmp_path / "x.csv").rows == 60
    (tmp_path / "homes.csv").rename(tmp_path / "elsewhere" / "homes.csv")
    with pytest.raises(InputError, match="does not exist"):
        export(run, to=tmp_path / "y.csv")
    lines = (tmp_path / "elsewhere" / "homes.csv").read_text().splitlines()
    (tmp_path / "homes.csv").write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")  # another file
    with pytest.raises(InputError, match="has changed"):
        export(run, to=tmp_path / "y.csv")


def set_estimate(run, **values):
    """Change the noise estimate of a run."""
    summary = run.read_summary()
    summary["iterations"][0]["estimate"] |= values
    run.write_summary(summary)


def test_suggestions_are_not_applied_if_the_noise_is_unknown(run, tmp_path):
    set_estimate(run, trust="unknown", why_unknown="random")
    options = {"apply": "suggested", "min_confidence": 0.5, "to": tmp_path / "c.csv"}
    planned = export(run, **options, dry_run=True)
    assert planned.changed > 0 and planned.expected_right is None and planned.least_right is None
    (tmp_path / "c.csv").write_text("an earlier export")
    with pytest.raises(InputError, match="labelsieve review"):  # --force would not help
        export(run, **options)
    assert (tmp_path / "c.csv").read_text() == "an earlier export"
    dropped = export(run, to=tmp_path / "d.csv", drop_suspects=0.5)
    assert dropped.dropped > 0 and dropped.expected_wrong is None


def test_a_wide_noise_estimate_demands_a_random_sample(run, tmp_path):
    """If perhaps no label is wrong, the probabilities alone do not change labels; decisions on a random sample do."""
    runs.write_suggestions(run, lambda place: 0.7)
    ratio = run.read_summary()["iterations"][0]["estimate"]["ratio"]
    options = {"apply": "suggested", "min_confidence": 0.5, "to": tmp_path / "c.csv"}
    sure = export(run, **options, dry_run=True)
    assert sure.least_right == pytest.approx(sure.expected_right * (ratio - 0.03) / ratio)
    set_estimate(run, low=0.0)
    planned = export(run, **options, dry_run=True)
    assert planned.least_right == 0 and planned.expected_right == sure.expected_right
    assert "key a" in planned.note and not sure.note  # a dry run says that the export is refused
    with pytest.raises(InputError, match="key a"):
        export(run, **options)
    assert not (tmp_path / "c.csv").exists()
    facts = Facts.read(run)
    rows = SpotCheck(facts.columns, facts.suggested_probability).rows(Group.SUGGESTED, 0.5)[:MIN_CHECKED].tolist()
    labels = {row.id: row for row in suspects_of(run)}
    for place, row in enumerate(rows):  # one of five suggestions is right
        sample = labels[facts.columns.id(row)]
        choice, label = ("keep", sample.label) if place % 5 else ("relabel", sample.suggested)
        append_decision(run / "decisions.csv", sample.id, choice, label)
    done = export(run, **options)
    assert done.suggested == planned.suggested - MIN_CHECKED
    assert done.expected_right == pytest.approx(done.suggested / 5) and 0 <= done.least_right < done.expected_right


def test_selected_samples_are_exported_without_the_undecided_suspects(run, tmp_path):
    done = export(run, what="selected", to=tmp_path / "s.csv")
    assert f"{done.undecided} undecided suspects are left out" in done.summary


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"apply": "suggested", "min_confidence": 1.5}, "--min-confidence"),
        ({"drop_suspects": -0.1}, "--drop-suspects"),
        ({"what": "suspects", "drop_suspects": 0.5}, "--what"),
    ],
)
def test_wrong_requests_are_refused(run, tmp_path, options, option):
    with pytest.raises(InputError, match=option):
        export(run, to=tmp_path / "c.csv", **options)


def test_a_run_without_probabilities_applies_no_suggestion(tmp_path):
    run = runs.table(tmp_path)
    with pytest.raises(InputError, match="--drop-suspects"):
        export(run, to=tmp_path / "c.csv", apply="suggested")


def test_an_exported_table_is_a_source_without_the_marks(run, tmp_path):
    from labelsieve.data.source import load_source

    done = export(run, to=tmp_path / "cleaned.csv")
    assert "labelsieve_status" not in [column.name for column in load_source(str(done.path)).x.encoding.columns]
    folder = tmp_path / "p"
    folder.mkdir()
    pictures = runs.pictures(folder)
    done = export(pictures, to=tmp_path / "shapes-cleaned")
    listed = rows_of(tmp_path / "shapes-cleaned-status.csv")
    assert {row["status"] for row in listed} == {"suspect"} and len(listed) == done.undecided
    assert all((done.path / row["file"]).is_file() for row in listed)


def test_the_command_prints_the_numbers_first(run, tmp_path, capsys):
    target = tmp_path / "c.csv"
    words = ["export", str(run.path), "--to", str(target), "--apply", "suggested", "--min-confidence", "0.5"]
    assert main([*words, "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert not planned["written"] and planned["suggested"] > 0 and not target.exists()
    assert main([*words, "--dry-run"]) == 0
    planned_lines = capsys.readouterr().out.splitlines()
    assert main(words) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert str(planned["changed"]) in first and second.startswith(str(target))
    numbers = second.partition(";")[0]
    assert planned_lines[0] == first and planned_lines[1].endswith(numbers) and " dropped" in numbers
