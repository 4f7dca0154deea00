"""Splits as first-level folders and as a column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelsieve.data.read_options import OTHER_SPLIT
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.errors import InputError
from labelsieve.export import export
from labelsieve.progress import NoteKind, Progress, RecordingProgress
from labelsieve.report.source_state import SourceStatus, check_source
from labelsieve.runfolder import RunFolder
from labelsieve.workflow.run import select_source
from labelsieve.workflow.settings import SelectSettings


def pictures(root: Path, *splits: str, classes: tuple[str, ...] = ("bus", "cat"), each: int = 3) -> Path:
    rng = np.random.default_rng(0)
    for split in splits:
        for name in classes:
            (root / split / name).mkdir(parents=True)
            for i in range(each):
                pixels = rng.integers(0, 128, (16, 16, 3), dtype=np.uint8) + 127 * (name == "cat")
                Image.fromarray(pixels.astype(np.uint8)).save(root / split / name / f"{i}.png")
    return root


def test_first_level_folders_are_splits(tmp_path: Path) -> None:
    root = pictures(tmp_path, "train", "validation", "test")
    progress = RecordingProgress(Progress(silent=True))
    data = load_source(str(root), progress=progress)
    assert data.classes == ("bus", "cat") and len(data) == 12
    assert {id.split("/")[0] for id in data.ids.tolist()} == {"train", "validation"}
    assert [data.classes[code] for code in data.y] == [id.split("/")[1] for id in data.ids.tolist()]
    assert {skipped.reason for skipped in data.skipped} == {OTHER_SPLIT} and len(data.skipped) == 6
    note = next(note for note in progress.notes if not isinstance(note, str) and note.kind is NoteKind.SPLITS)
    assert note.values == {"used": "train, validation", "unused": "test"}


@pytest.mark.parametrize(
    ("options", "splits"),
    [
        (ReadOptions(split="test"), {"test"}),
        (ReadOptions(split="dev, test"), {"dev", "test"}),
        (ReadOptions(split="all"), {"dev", "test", "train"}),
        (ReadOptions(labelled=False), {"dev", "test", "train"}),  # predict
        (ReadOptions(allow_one_class=True), {"test"}),  # predict --score
    ],
)
def test_choice_of_splits(tmp_path: Path, options: ReadOptions, splits: set[str]) -> None:
    root = pictures(tmp_path, "train", "dev", "test")
    data = load_source(str(root), options)
    assert {id.split("/")[0] for id in data.ids.tolist()} == splits
    assert bool(data.notes) == (len(splits) < 3)  # nothing to say if all splits are read


def test_folders_that_are_not_splits(tmp_path: Path) -> None:
    # Classes may be called train and test: then they have no folders in them. One other name makes all of them classes.
    assert load_source(str(pictures(tmp_path / "flat", "", classes=("test", "train")))).classes == ("test", "train")
    assert load_source(str(pictures(tmp_path / "other", "train", "bicycle"))).classes == ("bicycle", "train")
    with pytest.raises(InputError, match="--split"):
        load_source(str(tmp_path / "other"), ReadOptions(split="train"))
    with pytest.raises(InputError, match="--split dev"):
        load_source(str(pictures(tmp_path / "both", "train", "test")), ReadOptions(split="dev"))


def write_table(path: Path, names: Callable[[int], str], column: str = "split") -> Path:
    rows = "".join(f"{i % 5},{i % 7},{'ab'[i % 2]},{names(i)}\n" for i in range(60))
    path.write_text(f"x,y,label,{column}\n" + rows)
    return path


def test_a_column_of_splits(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", lambda i: ("train", "Test", "valid")[i % 3], "Split")
    data = load_source(str(path))
    assert len(data) == 40 and [column.name for column in data.x.encoding.columns] == ["x", "y"]
    assert {skipped.reason for skipped in data.skipped} == {OTHER_SPLIT}
    assert len(load_source(str(path), ReadOptions(split="Test"))) == 20
    assert len(load_source(str(path), ReadOptions(allow_one_class=True))) == 20
    other = write_table(tmp_path / "o.csv", lambda i: ("banana", "train")[i % 2])
    assert len(load_source(str(other)).x.encoding.columns) == 3  # an ordinary feature


def test_export_keeps_splits(tmp_path: Path) -> None:
    settings = SelectSettings(model="edges", iterations=1)
    root = pictures(tmp_path / "pictures", "train", "test", each=12)
    select_source(str(root), tmp_path / "run", settings, Progress(silent=True))
    run = RunFolder.existing(tmp_path / "run")
    assert check_source(run, run.columns()).status is SourceStatus.UNCHANGED
    export(run, to=tmp_path / "cleaned")
    assert sorted(path.name for path in (tmp_path / "cleaned").iterdir() if path.is_dir()) == ["train"]
    assert {path.name for path in (tmp_path / "cleaned" / "train").iterdir()} == {"bus", "cat"}

    path = write_table(tmp_path / "t.csv", lambda i: ("train", "test")[i % 2 if i % 3 else 0])
    select_source(str(path), tmp_path / "table", SelectSettings(iterations=1), Progress(silent=True))
    export(tmp_path / "table", to=tmp_path / "t-cleaned.csv")
    pairs = zip((tmp_path / "t-cleaned.csv").read_text().splitlines(), path.read_text().splitlines(), strict=True)
    assert all(cleaned.startswith(given) for cleaned, given in pairs)  # with a column that marks suspects
