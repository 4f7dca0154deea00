"""Notes about labels that say less than they seem to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from labelsieve import NCV
from labelsieve.data.duplicates import with_duplicates
from labelsieve.data.label_notes import label_notes
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.models.choose import ModelChoice, ModelKind
from labelsieve.progress import Note, NoteKind, Progress, RecordingProgress
from labelsieve.selection.settings import INCVSettings
from labelsieve.types import WhyUnknown


def of_arrays(x: np.ndarray, y: np.ndarray) -> list[NoteKind]:
    classes, codes = np.unique(y, return_inverse=True)
    data = replace(with_duplicates(x, codes, "table"), classes=tuple(classes.tolist()), kind="table")
    return [note.kind for note in label_notes(data)]


def of_table(path: Path, rows: list[str], **options: str) -> dict[NoteKind, Note]:
    path.write_text("\n".join(rows) + "\n")
    progress = RecordingProgress(Progress(silent=True))
    load_source(str(path), ReadOptions(**options), progress=progress)  # type: ignore[arg-type]
    return {note.kind: note for note in progress.notes if isinstance(note, Note)}


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_digits])
def test_real_measurements_are_no_leak(load) -> None:
    x, y = load(return_X_y=True)
    assert NoteKind.LEAK not in of_arrays(x, y)


def test_a_copy_of_wrong_labels_is_a_leak() -> None:
    x, y = load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    noisy = np.where(rng.random(len(y)) < 0.3, rng.integers(0, 3, len(y)), y)
    assert NoteKind.LEAK in of_arrays(np.column_stack([x, noisy]), noisy)
    assert NoteKind.LEAK not in of_arrays(np.column_stack([x, y]), noisy)  # the true class is no leak
    leaking = NCV("logistic", random_state=0).fit(np.column_stack([x, noisy]), noisy)
    assert any("column 14" in note for note in leaking.notes_)
    assert leaking.history_[0]["estimate"]["why_unknown"] == "leak"


def test_the_noise_of_outcomes_is_unknown(tmp_path: Path) -> None:
    """Equal cases that end differently contradict a good classifier without a wrong label."""
    rng = np.random.default_rng(0)
    path = tmp_path / "t.csv"
    for name, unknown in (("survived", WhyUnknown.OUTCOME), ("kind", None)):  # equal rows alone can be mistakes
        path.write_text(f"a,b,{name}\n" + "".join(f"{i % 3},{i % 5},{rng.integers(2)}\n" for i in range(200)))
        data = load_source(str(path), ReadOptions(label_column=name), progress=Progress(silent=True))
        assert data.why_unknown is unknown
        settings = INCVSettings().for_model(ModelChoice("logistic", ModelKind.CLASSIFIER), data.why_unknown)
        assert settings.why_unknown is unknown
    path.write_text("text,fraud\n" + "".join(f"a longer text number {i} of many,{i % 2}\n" for i in range(40)))
    assert load_source(str(path), ReadOptions(label_column="fraud"), progress=Progress(silent=True)).why_unknown is None


def test_kinds_of_tables(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [f"{rng.integers(3)},{rng.integers(2)},{rng.integers(2)}" for _ in range(200)]
    found = of_table(tmp_path / "t.csv", ["cabin,sex,survived", *rows], label_column="survived")
    assert {NoteKind.CONTRADICTIONS, NoteKind.OUTCOMES} <= found.keys() and NoteKind.LEAK not in found
    assert 25 < found[NoteKind.CONTRADICTIONS].values["wrong"] / 2 < 50  # percent of 200 labels
    alive = [f"{row},{'yes' if row.endswith('1') else 'no'}" for row in rows]
    found = of_table(tmp_path / "t.csv", ["cabin,sex,survived,alive", *alive], label_column="survived")
    assert found[NoteKind.LEAK].values["column"] == "alive"
    ages = [f"{rng.normal()},{18 + i % 40}" for i in range(200)]
    assert NoteKind.NUMERIC_LABELS in of_table(tmp_path / "t.csv", ["x,age", *ages], label_column="age")
    codes = [f"{rng.normal()},{i % 10}" for i in range(200)]
    assert not of_table(tmp_path / "t.csv", ["x,digit", *codes], label_column="digit")
