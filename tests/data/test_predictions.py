"""Files of predictions: every kind, any order of rows and columns, and what is refused."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelsieve.data.predictions import read_predictions
from labelsieve.errors import InputError
from labelsieve.progress import SILENT, RecordingProgress
from labelsieve.types import LabelledData, Skipped

PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5], [0.3, 0.3, 0.4]])
CLASSES = ("ant", "bee", "cow")


def samples(*, classes: tuple = CLASSES, skipped: tuple[Skipped, ...] = ()) -> LabelledData:
    ids = np.array(["r1", "r2", "r3", "r4"])
    return LabelledData(np.zeros((4, 1)), np.array([0, 1, 2, 0]), classes, ids, "table", "some", skipped=skipped)


def written_csv(path: Path, header: list[str], rows: list[list[object]], delimiter: str = ",") -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    return path


def test_rows_of_unknown_samples_are_noted(tmp_path: Path) -> None:
    """They may be predictions for another source whose ids are row numbers, too."""
    rows = [[f"r{i + 1}", *values] for i, values in enumerate([*PROBS.tolist(), [0.2, 0.2, 0.6], [0.1, 0.1, 0.8]])]
    path = written_csv(tmp_path / "p.csv", ["id", *CLASSES], rows)
    noted = RecordingProgress(SILENT)
    np.testing.assert_array_equal(read_predictions(path, samples(), noted), PROBS)
    assert len(noted.notes) == 1 and "2 rows" in str(noted.notes[0])
    noted = RecordingProgress(SILENT)
    read_predictions(path, samples(skipped=(Skipped("r5", "no label"), Skipped("r6", "no label"))), noted)
    assert noted.notes == []


def test_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "p.npy", PROBS)
    plain = read_predictions(tmp_path / "p.npy", samples())
    np.testing.assert_array_equal(plain, PROBS)
    assert isinstance(plain, np.memmap)  # a large file stays where it is
    np.savez(tmp_path / "p.npz", pred_probs=PROBS)
    np.testing.assert_array_equal(read_predictions(tmp_path / "p.npz", samples()), PROBS)
    ids, names = np.array(["r4", "r1", "r3", "r2"]), np.array(["cow", "ant", "bee"])
    mixed = PROBS[[3, 0, 2, 1]][:, [2, 0, 1]]
    np.savez(tmp_path / "named.npz", pred_probs=mixed, ids=ids, classes=names)
    np.testing.assert_array_equal(read_predictions(tmp_path / "named.npz", samples()), PROBS)


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_tables_in_any_order_and_with_more_rows_and_columns(tmp_path: Path, delimiter: str) -> None:
    rows = [["r9", 0, 0, 1, "x"], *[[f"r{1 + i}", *PROBS[i, [1, 2, 0]], "x"] for i in (2, 0, 3, 1)]]
    path = written_csv(tmp_path / "p.csv", ["id", "bee", "cow", "ant", "note"], rows, delimiter)
    np.testing.assert_allclose(read_predictions(path, samples()), PROBS)
    columns = {"id": ["r1", "r2", "r3", "r4"], "0": PROBS[:, 0], "2": PROBS[:, 2], "1": PROBS[:, 1]}
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    np.testing.assert_allclose(read_predictions(tmp_path / "p.parquet", samples(classes=(0, 1, 2))), PROBS)


def test_decimal_commas(tmp_path: Path) -> None:
    rows = [[str(p).replace(".", ",") for p in row] for row in PROBS.tolist()]
    for delimiter in (",", ";"):  # between commas the writer quotes them
        path = written_csv(tmp_path / "p.csv", list(CLASSES), rows, delimiter)
        np.testing.assert_allclose(read_predictions(path, samples()), PROBS)


def test_rows_without_ids_are_taken_in_order(tmp_path: Path) -> None:
    path = written_csv(tmp_path / "p.csv", list(CLASSES), PROBS.tolist())
    np.testing.assert_allclose(read_predictions(path, samples()), PROBS)


def test_what_is_refused(tmp_path: Path) -> None:
    def refused(path: Path, said: str, data: LabelledData | None = None) -> None:
        with pytest.raises(InputError, match=said):
            read_predictions(path, data or samples())

    refused(tmp_path / "no.npy", "does not exist")
    (tmp_path / "p.txt").write_text("1")
    refused(tmp_path / "p.txt", "use an .npy, .npz, .csv or .parquet")
    np.save(tmp_path / "short.npy", PROBS[:3])
    refused(tmp_path / "short.npy", r"3 rows.*4 samples.*column id")
    gone = samples(skipped=(Skipped("r0", "no label"),))
    np.save(tmp_path / "long.npy", np.vstack([PROBS, PROBS[:1]]))
    refused(tmp_path / "long.npy", r"5 rows.*4 samples.*1 others", gone)
    np.save(tmp_path / "narrow.npy", PROBS[:, :2])
    refused(tmp_path / "narrow.npy", "2 columns for 3 classes")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    refused(tmp_path / "objects.npy", "not a readable file of arrays")
    np.savez(tmp_path / "other.npz", x=PROBS)
    refused(tmp_path / "other.npz", "named pred_probs; it has x")
    np.savez(tmp_path / "ids.npz", pred_probs=PROBS, ids=np.array(["r1", "r1", "r3", "r4"]))
    refused(tmp_path / "ids.npz", "'r1' occurs twice")
    path = written_csv(tmp_path / "few.csv", ["id", *CLASSES], [["r1", 1, 0, 0], ["r3", 1, 0, 0]])
    refused(path, "sample 'r2'")
    path = written_csv(tmp_path / "lack.csv", ["id", "ant", "bee"], [["r1", 1, 0]])
    refused(path, "no column for the class 'cow': its columns are id, ant, bee")
    path = written_csv(tmp_path / "slip.csv", list(CLASSES), [["0,5", 0.5, 0]] * 3 + [["half", 0.5, 0]])
    refused(path, "the column 'ant'")
    path = written_csv(tmp_path / "words.csv", list(CLASSES), [["a", "b", "c"]] * 4)
    refused(path, "the column 'ant'")
