"""Pictures that were deleted, moved or added since a run: noticed by names alone, by whoever shows or writes them."""

from __future__ import annotations

import os

import pytest
from PIL import Image

from labelsieve.data.folder import list_pictures
from labelsieve.data.pictures import EXTENSIONS
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.errors import InputError
from labelsieve.export import export
from labelsieve.labels_csv import read_labels
from labelsieve.report import write_report
from labelsieve.report.samples import FolderSamples, Missing, open_samples
from labelsieve.report.source_state import SourceStatus, check_source
from labelsieve.review.review_session import ReviewSession

UNCHANGED = SourceStatus.UNCHANGED
GROWN = SourceStatus.GROWN
MISSING = SourceStatus.MISSING


def found(run):
    return check_source(run, columns_of(run))


def columns_of(run):
    return read_labels(run / "labels.csv", run.read_summary()["classes"])


def a_picture(path, red=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (red, 0, 0)).save(path)


def a_list(runs, folder, header="path,label", **settings):
    """A table of six pictures, and its run."""
    for i in range(6):
        a_picture(folder / "photos" / f"{i}.png", 40 * i)
    names = [f"photos/{i}.png,{'ab'[i % 2]}" for i in range(6)]
    named = names if header == "path,label" else [f"{i},{name}" for i, name in enumerate(names)]
    (folder / "list.csv").write_text("\n".join([header, *named]) + "\n")
    data = load_source(str(folder / "list.csv"))
    return runs.write_run(folder / "run", data, data.y, str(folder / "list.csv"), **settings)


def test_a_deleted_picture_is_reported_by_all_commands(runs, tmp_path):
    run = runs.pictures(tmp_path, n=8)
    lost = columns_of(run).id(3)
    (tmp_path / "shapes" / lost).unlink()
    message = found(run).explanation
    assert str(tmp_path / "shapes") in message and repr(lost) in message and found(run).status is SourceStatus.CHANGED
    assert found(run).readable and not found(run).positional
    for what in ("cleaned", "selected", "suspects"):
        for target in (tmp_path / "c.csv", tmp_path / "c.parquet", tmp_path / "out"):
            with pytest.raises(InputError, match=r"is missing.* nothing is written"):
                export(run, what=what, to=target)
            assert not target.exists()
    export(run, what="decisions", to=tmp_path / "d.csv")  # needs no source
    page = write_report(run).read_text()
    assert "is missing" in page.partition("</header>")[0]
    session = ReviewSession(run)
    assert session.warnings()[0] == f"{message}."
    samples = open_samples(run, columns_of(run))  # the others are what they were
    assert [type(samples.show(row)).__name__ for row in (2, 3)] == ["Picture", "Missing"]


def test_a_picture_moved_to_another_class_is_detected(runs, tmp_path):
    run = runs.pictures(tmp_path, n=8)
    was = columns_of(run).id(0)
    folder, _, name = was.partition("/")
    other = next(shape for shape in runs.SHAPES if shape != folder)
    (tmp_path / "shapes" / was).rename(tmp_path / "shapes" / other / name)
    message = found(run).explanation
    assert repr(was) in message and repr(f"{other}/{name}") in message and found(run).status is SourceStatus.CHANGED
    with pytest.raises(InputError, match="labels could go to the wrong samples"):
        export(run, to=tmp_path / "c.csv")


def test_a_renamed_class_is_detected(runs, tmp_path):
    run = runs.pictures(tmp_path, n=8)
    (tmp_path / "shapes" / "star").rename(tmp_path / "shapes" / "comet")
    assert "'star/" in found(run).explanation and "'comet/" in found(run).explanation


def test_new_pictures_are_reported_without_an_error(runs, tmp_path):
    run = runs.pictures(tmp_path, n=8)
    before = set(columns_of(run).ids.to_pylist())
    a_picture(tmp_path / "shapes" / "star" / "new.png")
    message = "1 new picture ('star/new.png')"
    assert message in found(run).explanation and found(run).status is GROWN
    assert message in export(run, to=tmp_path / "c.csv", dry_run=True).note
    done = export(run, to=tmp_path / "c.csv")
    assert done.rows == 8 and message in done.note
    assert message in export(run, to=tmp_path / "out").note
    assert {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").glob("*/*")} == before
    assert message in ReviewSession(run).warnings()[0]
    assert "1 new picture" in write_report(run).read_text().partition("</header>")[0]
    a_picture(tmp_path / "shapes" / "moon" / "deep" / "er.png")
    assert "2 new pictures (e.g. 'moon/deep/er.png')" in found(run).explanation


def test_skipped_files_are_not_new(runs, tmp_path):
    root = tmp_path / "set"
    for i in range(6):
        a_picture(root / "ab"[i % 2] / "deep" / f"{i}.png")
    a_picture(tmp_path / "outside.png")
    (root / "a" / "broken.png").write_bytes(b"no picture")
    (root / "a" / "notes.txt").write_text("none either")
    (root / "a" / "link.png").symlink_to(tmp_path / "outside.png")
    (root / "a" / "own.png").symlink_to(root / "b" / "deep" / "1.png")
    (root / "b" / "again").symlink_to(root / "a", target_is_directory=True)
    (root / "c").symlink_to(root / "a", target_is_directory=True)
    (root / "d").symlink_to(tmp_path, target_is_directory=True)
    a_picture(root / ".hidden" / "x.png")
    a_picture(root / "a" / ".y.png")
    a_picture(root / "loose.png")
    data = load_source(str(root))
    run = runs.write_run(tmp_path / "run", data, data.y, str(root))
    run.write_skipped(data)
    assert found(run).status is UNCHANGED
    assert list_pictures(root) - {"a/broken.png"} == set(data.ids.tolist())
    (root / "b" / "deep" / "1.png").unlink()
    assert "'b/deep/1.png' is missing" in found(run).explanation


def test_pictures_outside_class_folders_count_if_the_run_used_some(runs, tmp_path):
    root = tmp_path / "set"
    for name in ("1.png", "2.png", "a/3.png", "a/4.png"):
        a_picture(root / name)
    data = load_source(str(root), ReadOptions(labelled=False))
    data = type(data)(data.x, [0, 1, 0, 1], ("x", "y"), data.ids, "pictures", name="set")
    run = runs.write_run(tmp_path / "run", data, data.y, str(root), labels="labels.csv")
    assert found(run).status is UNCHANGED
    a_picture(root / "5.png")
    assert "1 new picture ('5.png')" in found(run).explanation
    (root / "1.png").unlink()
    assert "'1.png' is missing" in found(run).explanation


def test_a_folder_that_cannot_be_listed_counts_as_changed(runs, tmp_path, monkeypatch):
    run = runs.pictures(tmp_path, n=8)

    def refuse(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr("labelsieve.data.folder.os.scandir", refuse)
    assert "Permission denied" in found(run).explanation and found(run).status is SourceStatus.CHANGED


def test_no_picture_is_opened(runs, tmp_path, monkeypatch):
    run = runs.pictures(tmp_path, n=8)
    for path in (tmp_path / "shapes").rglob("*.png"):
        path.write_bytes(b"")
        assert path.suffix in EXTENSIONS
    monkeypatch.setattr("PIL.Image.open", None)
    assert found(run).status is UNCHANGED


@pytest.mark.parametrize("header", ["path,label", "id,path,label"])
def test_missing_files_of_a_table_of_pictures_are_detected(runs, tmp_path, header):
    run = a_list(runs, tmp_path, header)
    assert found(run).status is UNCHANGED
    lost = tmp_path / "photos" / "4.png"
    lost.rename(tmp_path / "photos" / "other.png")
    message = "list.csv .*'photos/4.png' is missing"
    with pytest.raises(InputError, match=message):
        export(run, to=tmp_path / "c.csv")
    assert "'photos/4.png' is missing" in ReviewSession(run).warnings()[0]
    assert "is missing" in write_report(run).read_text().partition("</header>")[0]
    (tmp_path / "photos" / "other.png").rename(lost)
    assert export(run, to=tmp_path / "c.csv").rows == 6


def test_missing_files_are_detected_if_the_table_is_unchanged(runs, tmp_path):
    run = a_list(runs, tmp_path)
    stages = run.record()["stages"]
    run.update(stages={"select": {**stages["select"], "started": "2999-01-01T00:00:00+00:00"}})
    assert found(run).status is UNCHANGED
    (tmp_path / "photos" / "0.png").unlink()
    assert found(run).explanation.endswith("'photos/0.png' is missing")


def test_labels_of_a_table_are_read_if_the_folder_of_its_pictures_is_missing(runs, tmp_path):
    run = a_list(runs, tmp_path, root=str(tmp_path / "elsewhere"))
    assert found(run).status is MISSING and "elsewhere" in found(run).explanation
    assert export(run, to=tmp_path / "c.csv").rows == 6


def test_paths_outside_the_folder_are_not_checked(runs, tmp_path):
    run = a_list(runs, tmp_path)
    a_picture(tmp_path.parent / f"{tmp_path.name}-outside.png")
    name = f"../{tmp_path.name}-outside.png"
    for file in (tmp_path / "list.csv", run / "labels.csv"):
        file.write_text(file.read_text().replace("photos/0.png", name))
    assert "is missing" in found(run).explanation


@pytest.mark.parametrize("name", ["a/loop.png", "a/loop", "loop", "loop.png"])
def test_a_loop_of_links_does_not_count_as_a_change(runs, tmp_path, name):
    root = tmp_path / "set"
    for i in range(6):
        a_picture(root / "ab"[i % 2] / f"{i}.png")
    (root / name).symlink_to(root / name)
    data = load_source(str(root))
    run = runs.write_run(tmp_path / "run", data, data.y, str(root))
    run.write_skipped(data)
    assert found(run).status is UNCHANGED
    assert export(run, to=tmp_path / "out").rows == 6


def test_pipes_are_skipped_with_a_reason_and_never_opened(runs, tmp_path):
    root = tmp_path / "set"
    for i in range(6):
        a_picture(root / "ab"[i % 2] / f"{i}.png")
    os.mkfifo(root / "a" / "pipe.png")
    os.mkfifo(root / "a" / "pipe")
    data = load_source(str(root))
    assert len(data) == 6 and {skipped.id for skipped in data.skipped} == {"a/pipe.png", "a/pipe"}
    run = runs.write_run(tmp_path / "run", data, data.y, str(root))
    run.write_skipped(data)
    assert export(run, to=tmp_path / "out").rows == 6
    victim = root / columns_of(run).id(0)
    victim.unlink()
    os.mkfifo(victim)
    assert "is missing" in found(run).explanation
    assert isinstance(FolderSamples(root, columns_of(run)).show(0), Missing)


def test_a_pipe_in_a_list_of_pictures_is_skipped(tmp_path):
    for i in range(6):
        a_picture(tmp_path / f"{i}.png", 40 * i)
    os.mkfifo(tmp_path / "pipe.png")
    rows = [f"{i}.png,{'ab'[i % 2]}" for i in range(6)]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *rows, "pipe.png,a"]) + "\n")
    data = load_source(str(tmp_path / "list.csv"))
    assert len(data) == 6 and [skipped.id for skipped in data.skipped] == ["pipe.png"]
