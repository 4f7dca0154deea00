from __future__ import annotations

import csv
import importlib.util
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from labelsieve.csv_files import write_csv
from labelsieve.data.labels import read_label_file
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.decisions import append_decision
from labelsieve.errors import InputError
from labelsieve.export import default_target, export
from labelsieve.report.facts import Facts
from labelsieve.review.review_session import Filter, ReviewSession

_spec = importlib.util.spec_from_file_location("export_runs", Path(__file__).parents[1] / "report" / "runs.py")
assert _spec is not None and _spec.loader is not None
runs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(runs)
rows_of, suspects_of = runs.rows_of, runs.suspects_of


def decide(run):
    """Keep the first, relabel the second and third, drop the fourth; the fifth is decided and taken back."""
    first = suspects_of(run)[:5]
    append_decision(run / "decisions.csv", first[0].id, "keep", first[0].label)
    append_decision(run / "decisions.csv", first[1].id, "relabel", first[1].suggested)
    append_decision(run / "decisions.csv", first[2].id, "relabel", first[2].label)
    append_decision(run / "decisions.csv", first[2].id, "relabel", first[2].suggested)
    append_decision(run / "decisions.csv", first[3].id, "drop")
    append_decision(run / "decisions.csv", first[4].id, "drop")
    append_decision(run / "decisions.csv", first[4].id, "undo")
    return first


def fingerprint(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_corrected_labels_keep_ids_columns_and_order(tmp_path):
    run = runs.table(tmp_path)
    first = decide(run)
    before = fingerprint(tmp_path)
    done = export(run, what="cleaned", to=tmp_path / "out" / "cleaned.csv")
    original, cleaned = rows_of(tmp_path / "homes.csv"), rows_of(tmp_path / "out" / "cleaned.csv")
    assert list(cleaned[0]) == [*original[0], "labelsieve_status"]
    undecided = {int(row.id) for row in suspects_of(run)[4:]}
    marks = {int(row.pop("code")) for row in cleaned if row.pop("labelsieve_status") == "suspect"}
    assert marks == undecided and all(original[i].pop("code") for i in undecided)
    changed = {int(first[1].id): first[1].suggested, int(first[2].id): first[2].suggested}
    expected = [
        {**row, "label": changed.get(i, row["label"])} for i, row in enumerate(original) if i != int(first[3].id)
    ]
    assert cleaned == expected
    assert (done.rows, done.changed, done.dropped) == (59, 2, 1)
    assert done.undecided == len(undecided)
    assert {path: content for path, content in fingerprint(tmp_path).items() if path in before} == before


def test_selected_suspects_and_decisions(tmp_path):
    run = runs.text(tmp_path)
    first = decide(run)
    labels = list(run.read_labels())
    export(run, what="selected", to=tmp_path / "s.csv")
    trusted = {row.id: row.label for row in labels if row.verdict == "selected"}
    trusted |= {first[0].id: first[0].label, first[1].id: first[1].suggested, first[2].id: first[2].suggested}
    selected = [(row["id"], row["label"]) for row in rows_of(tmp_path / "s.csv")]
    assert selected == [(row.id, trusted[row.id]) for row in labels if row.id in trusted]
    export(run, what="suspects", to=tmp_path / "u.csv")
    suspects = rows_of(tmp_path / "u.csv")
    assert [row["id"] for row in suspects] == [row.id for row in suspects_of(run)]
    assert [float(row["suspicion"]) for row in suspects] == [row.suspicion for row in suspects_of(run)]
    assert [row["decision"] for row in suspects[:5]] == ["keep", "relabel", "relabel", "drop", ""]
    export(run, what="decisions", to=tmp_path / "d.csv")
    decided = {row["id"]: (row["decision"], row["label"], row["given"]) for row in rows_of(tmp_path / "d.csv")}
    assert decided == {
        first[0].id: ("keep", first[0].label, first[0].label),
        first[1].id: ("relabel", first[1].suggested, first[1].label),
        first[2].id: ("relabel", first[2].suggested, first[2].label),
        first[3].id: ("drop", "", first[3].label),
    }


def test_equal_suspects_have_one_order(tmp_path):
    """The report, the review page and the exported table list equally suspicious labels in the same order."""
    run = runs.text(tmp_path)
    rows = rows_of(run / "labels.csv")
    write_csv(run / "labels.csv", rows[0], ([*(row | {"suspicion": "0.5"}).values()] for row in rows))
    listed = [row["id"] for row in rows_of(export(run, what="suspects", to=tmp_path / "u.csv").path)]
    facts = Facts.read(run)
    assert len(listed) > 5
    assert listed == [facts.columns.id(row) for row in facts.suspects]
    session = ReviewSession(run)
    assert listed == [facts.columns.id(row) for row in session.queues.rows(Filter())]


def test_parquet_keeps_numbers_numbers(tmp_path):
    run = runs.table(tmp_path)
    export(run, what="cleaned", to=tmp_path / "c.parquet")
    table = pq.read_table(tmp_path / "c.parquet")
    assert str(table.schema.field("rooms").type) == "int64" and str(table.schema.field("area m2").type) == "double"
    assert table.column_names == ["rooms", "area m2", "town", "label", "code", "true", "labelsieve_status"]
    for what in ("selected", "suspects", "decisions"):
        export(run, what=what, to=tmp_path / f"{what}.parquet")
        assert pq.read_table(tmp_path / f"{what}.parquet").num_columns > 1


def test_whole_number_labels_stay_whole_numbers_in_parquet(tmp_path):
    import pyarrow as pa

    run = runs.table(tmp_path, classes=("7", "8", "9"))
    rows = rows_of(tmp_path / "homes.csv")
    labels = pa.array([int(row["label"]) for row in rows])
    pq.write_table(pa.table({"area": [float(row["area m2"]) for row in rows], "label": labels}), tmp_path / "h.parquet")
    run.update(data={**run.record()["data"], "source": str(tmp_path / "h.parquet")})
    runs.as_read(run)
    export(run, what="cleaned", to=tmp_path / "c.parquet")
    assert str(pq.read_table(tmp_path / "c.parquet").schema.field("label").type) == "int64"


@pytest.mark.parametrize("link", [False, True])
def test_a_folder_of_class_folders(tmp_path, link):
    run = runs.pictures(tmp_path)
    first = decide(run)
    before = fingerprint(tmp_path / "shapes")
    export(run, what="cleaned", to=tmp_path / "clean", link=link)
    found = {path.name: (path.parent.name, path) for path in (tmp_path / "clean").glob("*/*")}
    labels = {row.id: row.label for row in run.read_labels()}
    labels |= {first[1].id: first[1].suggested, first[2].id: first[2].suggested}
    del labels[first[3].id]
    assert {name: folder for name, (folder, _) in found.items()} == {Path(id).name: lab for id, lab in labels.items()}
    for id in labels:
        path = found[Path(id).name][1]
        assert path.is_symlink() is link and path.read_bytes() == (tmp_path / "shapes" / id).read_bytes()
    assert fingerprint(tmp_path / "shapes") == before
    with pytest.raises(InputError, match="not empty"):
        export(run, what="cleaned", to=tmp_path / "clean")


def test_a_new_run_can_start_from_the_decisions(tmp_path):
    run = runs.pictures(tmp_path)
    first = decide(run)
    export(run, what="cleaned", to=tmp_path / "clean")
    data = load_source(str(tmp_path / "clean"))
    assert len(data) == 47 and f"{first[1].suggested}/{Path(first[1].id).name}" in data.ids.tolist()
    # ... or with the source as it is and the corrected labels beside it
    export(run, what="cleaned", to=tmp_path / "cleaned.csv")
    assert read_label_file(tmp_path / "cleaned.csv").labels[first[1].id] == first[1].suggested
    (tmp_path / "table").mkdir()
    export(runs.table(tmp_path / "table"), what="cleaned", to=tmp_path / "homes.csv")
    assert len(load_source(str(tmp_path / "homes.csv"))) == 60


def test_pictures_that_are_not_files_are_written(tmp_path):
    run = runs.table(tmp_path, n=6)
    x = np.random.default_rng(0).integers(0, 255, (6, 9, 9, 3), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=x, y=np.array([0, 1, 0, 1, 0, 1]))
    about = {"source": str(tmp_path / "a.npz"), "kind": "pictures", "fingerprint": None}
    run.update(data={**run.record()["data"], **about})
    export(run, what="cleaned", to=tmp_path / "out")
    written = {path.stem: path for path in (tmp_path / "out").glob("*/*.png")}
    with Image.open(written["4"]) as picture:
        assert np.array_equal(np.asarray(picture), x[4])


def test_names_that_would_escape_are_made_safe(tmp_path):
    classes = ("..", "../../evil", "/etc/passwd", "a\\b:c")
    run = runs.pictures(tmp_path, n=8, classes=("p", "q", "r", "s"), ratio=0.0)
    text = (run / "labels.csv").read_text()
    for plain, hostile in zip("pqrs", classes, strict=True):
        text = text.replace(f",{plain},", f",{hostile},")
    (run / "labels.csv").write_text(text)
    run.write_summary({**run.read_summary(), "classes": list(classes)})
    there = set(tmp_path.parent.glob("*"))
    export(run, what="selected", to=tmp_path / "out" / "inner")
    folders = sorted(path.name for path in (tmp_path / "out" / "inner").iterdir() if path.is_dir())
    assert folders == ["_", "_.._evil", "_etc_passwd", "a_b_c"] and set(tmp_path.parent.glob("*")) == there
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["inner", "inner-classes.csv"]
    assert {row["class"]: row["folder"] for row in rows_of(tmp_path / "out" / "inner-classes.csv")} == {
        "..": "_", "../../evil": "_.._evil", "/etc/passwd": "_etc_passwd", "a\\b:c": "a_b_c",
    }  # fmt: skip


def test_the_originals_and_the_run_are_out_of_reach(tmp_path):
    (tmp_path / "p").mkdir()
    run, pictures = runs.text(tmp_path), runs.pictures(tmp_path / "p", n=8)
    for target in (tmp_path / "mails.csv", tmp_path / "run" / ".." / "mails.csv"):
        with pytest.raises(InputError, match="belongs to the source"):
            export(run, what="cleaned", to=target)
    with pytest.raises(InputError, match="belongs to the source"):
        export(pictures, what="cleaned", to=tmp_path / "p" / "shapes" / "clean")
    with pytest.raises(InputError, match="belongs to the run"):
        export(run, what="suspects", to=run / "labels.csv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"what": "everything", "to": "x.csv"}, "choose one of cleaned"),
        ({"what": "cleaned", "to": "x.xlsx"}, "a .csv or .parquet file"),
        ({"what": "cleaned", "to": "folder"}, "only pictures"),
        ({"what": "decisions", "to": "folder"}, "decisions cannot be exported to a folder"),
        ({"what": "cleaned", "to": "x.csv", "apply": "guess"}, "choose one of decided"),
    ],
)
def test_what_cannot_be_exported_is_said_in_one_line(tmp_path, options, message):
    run = runs.text(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        export(run, **{**options, "to": tmp_path / options["to"]})
    assert "\n" not in str(caught.value)
    assert not (tmp_path / options["to"]).exists()


def test_a_source_that_changed_is_said(tmp_path):
    run = runs.text(tmp_path)
    lines = (tmp_path / "mails.csv").read_text().splitlines()
    (tmp_path / "mails.csv").write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(InputError, match="'mail-0059' is missing"):
        export(run, what="cleaned", to=tmp_path / "c.csv")
    (tmp_path / "mails.csv").unlink()
    with pytest.raises(InputError, match="does not exist any more"):
        export(run, what="cleaned", to=tmp_path / "c.csv")
    assert export(run, what="suspects", to=tmp_path / "s.csv").rows > 0


def test_a_folder_that_fails_half_way_leaves_nothing(tmp_path):
    run = runs.pictures(tmp_path, n=8)
    next((tmp_path / "shapes").rglob("*.png")).write_bytes(b"no picture any more")
    with pytest.raises(InputError, match="cannot be exported"):
        export(run, what="cleaned", to=tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "shapes"]


def test_what_is_there_is_written_over_only_by_force(tmp_path):
    run = runs.text(tmp_path)
    for name in ("s.csv", "s.parquet"):
        (tmp_path / name).write_bytes(b"mine")
        with pytest.raises(InputError, match=r"exists; .*--to, .*--force"):
            export(run, what="suspects", to=tmp_path / name)
        assert (tmp_path / name).read_bytes() == b"mine"
        export(run, what="suspects", to=tmp_path / name, force=True)
    assert len(rows_of(tmp_path / "s.csv")) == pq.read_table(tmp_path / "s.parquet").num_rows > 0
    with pytest.raises(InputError, match="belongs to the source"):
        export(run, what="cleaned", to=tmp_path / "mails.csv", force=True)
    (tmp_path / "nowhere.csv").symlink_to(tmp_path / "gone.csv")
    with pytest.raises(InputError, match="exists"):
        export(run, what="suspects", to=tmp_path / "nowhere.csv")


def test_an_older_folder_is_replaced_by_force_and_kept_when_that_fails(tmp_path):
    run = runs.pictures(tmp_path)
    done = export(run, what="cleaned", to=tmp_path / "clean")
    assert len(rows_of(tmp_path / "clean-status.csv")) == done.undecided
    before = fingerprint(tmp_path / "clean")
    with pytest.raises(InputError, match="not empty"):
        export(run, what="selected", to=tmp_path / "clean")
    picture = next((tmp_path / "shapes").rglob("*.png"))
    content = picture.read_bytes()
    picture.write_bytes(b"no picture any more")
    with pytest.raises(InputError, match="cannot be exported"):
        export(run, what="cleaned", to=tmp_path / "clean", force=True)
    assert fingerprint(tmp_path / "clean") == before
    picture.write_bytes(content)
    done = export(run, what="selected", to=tmp_path / "clean", force=True)
    assert len(fingerprint(tmp_path / "clean")) - 1 == done.rows < len(before)  # without the list of the files
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clean", "run", "shapes"]


@pytest.mark.parametrize("other", ["notes.txt", "a/notes.txt", "a/c.png", "a/b/c.png", "a/.hidden"])
@pytest.mark.parametrize("exported", [False, True])
def test_force_never_removes_files_that_export_did_not_write(tmp_path, other, exported):
    run = runs.pictures(tmp_path, n=8)
    if exported:
        export(run, what="cleaned", to=tmp_path / "mine")
    (tmp_path / "mine" / other).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "mine" / other).write_bytes(b"mine")
    before = fingerprint(tmp_path / "mine")
    with pytest.raises(InputError, match="not written by"):
        export(run, what="cleaned", to=tmp_path / "mine", force=True)
    assert fingerprint(tmp_path / "mine") == before


@pytest.mark.parametrize("link", [False, True])
def test_force_never_removes_an_edited_picture(tmp_path, link):
    run = runs.pictures(tmp_path, n=8)
    out = tmp_path / "clean"
    export(run, what="cleaned", to=out, link=link)
    edited = next(out.rglob("*.png"))
    content = edited.read_bytes()
    edited.unlink()
    edited.write_bytes(content[:-1] + b"x")  # as long as before
    os.utime(edited, (1, 1))
    with pytest.raises(InputError, match=f"{edited.name}, which was changed"):
        export(run, what="cleaned", to=out, force=True)
    assert edited.read_bytes() == content[:-1] + b"x"
    edited.unlink()  # a picture that was removed does not hinder
    export(run, what="cleaned", to=out, force=True)
    assert edited.read_bytes() == content


def test_force_replaces_no_file_and_no_link(tmp_path):
    run = runs.pictures(tmp_path, n=8)
    export(run, what="cleaned", to=tmp_path / "clean")
    (tmp_path / "thesis").write_text("mine")
    (tmp_path / "linked").symlink_to(tmp_path / "clean")
    (tmp_path / "nothing").mkdir()
    (tmp_path / "to-nothing").symlink_to(tmp_path / "nothing")
    for name in ("thesis", "linked", "to-nothing"):
        with pytest.raises(InputError, match="not written by"):
            export(run, what="cleaned", to=tmp_path / name, force=True)
    assert (tmp_path / "thesis").read_text() == "mine" and (tmp_path / "linked").is_symlink()
    (tmp_path / "q-status.csv").write_text("mine")
    with pytest.raises(InputError, match=r"q-status\.csv exists"):
        export(run, what="cleaned", to=tmp_path / "q", force=True)
    assert (tmp_path / "q-status.csv").read_text() == "mine" and not (tmp_path / "q").exists()


def test_hidden_and_system_files_do_not_hinder_force(tmp_path):
    run = runs.pictures(tmp_path, n=8)
    for _ in range(2):
        export(run, what="cleaned", to=tmp_path / "clean", force=True)
        (tmp_path / "clean" / ".gitkeep").write_text("mine")
        next(path for path in (tmp_path / "clean").iterdir() if path.is_dir()).joinpath("Thumbs.db").touch()
    assert (tmp_path / "clean" / ".gitkeep").read_text() == "mine"
    for path in (tmp_path / "clean").iterdir():
        if path.is_dir():
            shutil.rmtree(path)  # only hidden files are left
    (tmp_path / "clean-status.csv").unlink()
    export(run, what="cleaned", to=tmp_path / "clean")
    assert (tmp_path / "clean" / ".gitkeep").read_text() == "mine"
    export(run, what="cleaned", to=tmp_path / "clean", force=True)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        '{"files": 1}',
        '{"files": ["a"]}',
        '{"files": {"a": 1}}',
        '{"files": {"a": [1e999, 0]}}',
        "not JSON",
    ],
)
def test_force_does_not_replace_a_folder_whose_list_is_damaged(tmp_path, content):
    run = runs.pictures(tmp_path, n=8)
    export(run, what="cleaned", to=tmp_path / "clean")
    (tmp_path / "clean" / ".labelsieve-export").write_text(content)
    before = fingerprint(tmp_path / "clean")
    with pytest.raises(InputError, match="not written by"):
        export(run, what="cleaned", to=tmp_path / "clean", force=True)
    assert fingerprint(tmp_path / "clean") == before


def test_force_never_removes_the_originals(tmp_path):
    (tmp_path / "photos" / "all").mkdir(parents=True)
    for i in range(4):
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "all" / f"{i}.png")
    (tmp_path / "list.csv").write_text(
        "path,label\n" + "".join(f"photos/all/{i}.png,{'ab'[i % 2]}\n" for i in range(4))
    )
    run = runs.table(tmp_path, n=4)
    about = {"source": str(tmp_path / "list.csv"), "kind": "pictures", "fingerprint": None}
    run.update(data={**run.record()["data"], **about})
    text = (run / "labels.csv").read_text().splitlines()
    renamed = [text[0], *(f"photos/all/{i}.png," + line.split(",", 1)[1] for i, line in enumerate(text[1:]))]
    (run / "labels.csv").write_text("\n".join(renamed) + "\n")
    with pytest.raises(InputError, match="belongs to the source"):
        export(run, what="cleaned", to=tmp_path / "photos", force=True)
    assert len(list((tmp_path / "photos" / "all").iterdir())) == 4


def test_without_a_target_it_is_called_after_the_source(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "p").mkdir()
    text, pictures = runs.text(tmp_path), runs.pictures(tmp_path / "p", n=8)
    monkeypatch.chdir(tmp_path / "here")
    assert str(export(text).path) == "mails-cleaned.csv"
    assert str(export(text, what="suspects").path) == "mails-suspects.csv"
    assert str(export(pictures).path) == "shapes-cleaned" and len(list(Path("shapes-cleaned").glob("*/*"))) == 8
    assert str(export(pictures, what="suspects").path) == "shapes-suspects.csv"
    with pytest.raises(InputError, match=r"mails-cleaned\.csv exists"):
        export(text)
    assert default_target({"data": {"name": "../x y"}}, None, "cleaned") == Path("_x y-cleaned.csv")
    assert default_target({}, tmp_path / "t.parquet", "selected") == Path("t-selected.parquet")


def test_suspects_say_how_likely_their_suggestion_is_right(tmp_path):
    run = runs.text(tmp_path)
    export(run, what="suspects", to=tmp_path / "before.csv")
    assert {row["suggested_probability"] for row in rows_of(tmp_path / "before.csv")} == {""}
    first = suspects_of(run)[0]
    line = f"{first.id},{first.label},{first.suspicion},{first.suggested},0.875"
    (run / "suggestions.csv").write_text(f"id,label,suspicion,suggested,probability\n{line}\n")
    export(run, what="suspects", to=tmp_path / "s.csv")
    assert rows_of(tmp_path / "s.csv")[0]["suggested_probability"] == "0.875"


def test_a_folder_called_like_a_formula_can_be_looked_at_again(tmp_path):
    run = runs.pictures(tmp_path, n=8, classes=("+plus", "=same"))
    export(run, to=tmp_path / "cleaned.csv")
    assert {row["id"][:2] for row in rows_of(tmp_path / "cleaned.csv")} == {"'+", "'="}
    again = load_source(str(tmp_path / "shapes"), ReadOptions(labels=read_label_file(tmp_path / "cleaned.csv")))
    assert again.classes == ("+plus", "=same")
    assert [again.classes[code] for code in again.y] == [id.partition("/")[0] for id in again.ids.tolist()]


def test_a_table_with_ids_that_are_numbers_or_times_is_exported(tmp_path):
    import pyarrow as pa

    pq.write_table(pa.table({"id": [0.0, 1.0, 2.5], "a": [1, 2, 3], "label": ["x", "y", "x"]}), tmp_path / "t.parquet")
    data = load_source(str(tmp_path / "t.parquet"))
    run = runs.write_run(tmp_path / "run", data, data.y, str(tmp_path / "t.parquet"))
    export(run, to=tmp_path / "c.parquet")
    assert pq.read_table(tmp_path / "c.parquet").equals(pq.read_table(tmp_path / "t.parquet"))


def shuffled(path):
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([head, *sorted(lines)]) + "\n")


def test_a_source_in_another_order_is_not_written_under(tmp_path):
    run = runs.table(tmp_path)
    before = (tmp_path / "homes.csv").read_text()
    shuffled(tmp_path / "homes.csv")
    for what in ("cleaned", "selected", "suspects"):
        with pytest.raises(InputError, match=r"homes.csv has changed since .* another --out"):
            export(run, what=what, to=tmp_path / "c.csv")
    # Labels that fit by chance do not make it the same rows: the cells of two rows of one label are swapped.
    head, *lines = before.splitlines()
    labels = [line.split(",")[3] for line in lines]
    other = labels.index(labels[0], 1)
    lines[0], lines[other] = lines[other], lines[0]
    (tmp_path / "homes.csv").write_text("\n".join([head, *lines]) + "\n")
    with pytest.raises(InputError, match="their order"):
        export(run, to=tmp_path / "c.csv")
    assert not (tmp_path / "c.csv").exists()
    export(run, what="decisions", to=tmp_path / "d.csv")  # needs no source
    (tmp_path / "homes.csv").write_text(before)
    assert export(run, to=tmp_path / "c.csv").rows == 60


def test_a_class_that_was_renamed_in_the_source_is_not_renamed_back(tmp_path):
    run = runs.text(tmp_path)
    source = tmp_path / "mails.csv"
    source.write_text(source.read_text().replace(",payment,", ",billing,"))
    with pytest.raises(InputError, match="was 'payment' and is now 'billing'"):
        export(run, to=tmp_path / "c.csv")


def test_labels_from_a_file_that_is_gone_do_not_make_another_source(tmp_path):
    run = runs.text(tmp_path, n=30)
    source = tmp_path / "mails.csv"
    given = {row.id: row.label for row in run.read_labels()}
    (tmp_path / "given.csv").write_text("id,label\n" + "".join(f"{id},{label}\n" for id, label in given.items()))
    source.write_text(source.read_text().replace(",payment,", ",other,"))  # the source's own labels do not count
    record = run.record()
    about = load_source(str(source), ReadOptions(labels=read_label_file(tmp_path / "given.csv")))
    run.update(
        settings={**record["settings"], "labels": str(tmp_path / "given.csv")},
        data={**record["data"], "fingerprint": runs.fingerprint(about)},
    )
    (tmp_path / "given.csv").unlink()
    assert export(run, to=tmp_path / "c.csv").rows == 30
    assert {row["id"]: row["label"] for row in rows_of(tmp_path / "c.csv")} == given
    source.write_text(source.read_text().replace("parcel", "letter"))
    with pytest.raises(InputError, match="changed since"):
        export(run, to=tmp_path / "d.csv")


def test_labels_beside_their_source_say_how_many_were_dropped(tmp_path):
    run = runs.pictures(tmp_path)
    first = decide(run)
    done = export(run, to=tmp_path / "c.csv")
    assert (done.rows, done.dropped) == (47, 1)
    cleaned = {row["id"]: (row["label"], row["others_dropped"]) for row in rows_of(tmp_path / "c.csv")}
    assert len(cleaned) == 47 and first[3].id not in cleaned and cleaned[first[1].id] == (first[1].suggested, "1")
    data = load_source(str(tmp_path / "shapes"), ReadOptions(labels=read_label_file(tmp_path / "c.csv")))
    assert len(data) == 47 and (first[3].id, "dropped") in [tuple(one) for one in data.skipped]
    named = dict(zip(data.ids.tolist(), (data.classes[code] for code in data.y), strict=True))
    assert named[first[1].id] == first[1].suggested
    assert export(run, what="selected", to=tmp_path / "s.csv").dropped == 0  # it was never selected
    assert "others_dropped" not in rows_of(tmp_path / "s.csv")[0]


def test_a_person_adds_to_the_selected_and_takes_from_them(tmp_path):
    run = runs.text(tmp_path)
    first = decide(run)
    chosen = next(row for row in run.read_labels() if row.verdict == "selected")
    append_decision(run / "decisions.csv", chosen.id, "drop")
    done = export(run, what="selected", to=tmp_path / "s.csv")
    count = sum(row.verdict == "selected" for row in run.read_labels())
    assert (done.rows, done.changed, done.dropped) == (count - 1 + 3, 2, 1)
    assert done.note.startswith("3 of them")
    ids = [row["id"] for row in rows_of(tmp_path / "s.csv")]
    assert first[0].id in ids and chosen.id not in ids and first[3].id not in ids


def test_suspects_of_a_table_are_its_own_rows(tmp_path):
    run = runs.text(tmp_path)
    original = {row["id"]: row for row in rows_of(tmp_path / "mails.csv")}
    export(run, what="suspects", to=tmp_path / "s.csv")
    found, expected = rows_of(tmp_path / "s.csv"), suspects_of(run)
    assert list(found[0])[:4] == ["id", "label", "text", "lang"]
    assert list(found[0])[4:] == [
        "suspicion",
        "suggested",
        "suggested_probability",
        "no_class",
        "verdict",
        "decision",
        "decided",
    ]
    for row, known in zip(found, expected, strict=True):
        assert {name: row[name] for name in original[known.id]} == original[known.id]
        assert row["suggested"] == known.suggested
    (tmp_path / "t").mkdir()
    export(runs.table(tmp_path / "t"), what="suspects", to=tmp_path / "t.csv")
    assert list(rows_of(tmp_path / "t.csv")[0])[:3] == ["id", "rooms", "area m2"]  # the row's number names it


def test_rows_that_were_not_judged_stay_in_the_table(tmp_path):
    source = tmp_path / "t.csv"
    said = [f"the {'cat' if i % 2 else 'dog'} of house {i} is here" for i in range(20)]
    rows = [[said[i], "ab"[i % 2]] for i in range(20)]
    rows[3][1], rows[7][0], rows[0][1] = "", "  ", ""
    with source.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["text", "label"], *rows])
    data = load_source(str(source))
    run = runs.write_run(tmp_path / "run", data, data.y, str(source))
    done = export(run, to=tmp_path / "c.csv")
    assert (tmp_path / "c.csv").read_text() == source.read_text()
    assert done.rows == 17 and "3 rows that the run skipped" in done.note
    assert export(run, what="selected", to=tmp_path / "s.csv").note == ""
