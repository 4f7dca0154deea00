"""labels.csv of a run, read as columns: a million rows take less than a second, class names become codes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelsieve.csv_files import read_arrow
from labelsieve.errors import InputError
from labelsieve.types import VERDICTS, BoolArray, FloatArray, IntArray


class LabelRow(NamedTuple):
    """One row of labels.csv. A value that was not computed is an empty cell.

    The file also has a last column `no_class`, which is not read back: it follows from suggestions.csv.
    """

    id: str  # unique: the path of a file, the id of a row or its number
    label: str  # given label
    predicted: str  # out-of-sample prediction
    probability: float  # out-of-sample probability of the given label
    loss: float  # cross-entropy of the given label
    verdict: str  # selected, candidate or removed
    iteration: int  # of the verdict; 0 for a candidate
    suspicion: float  # 0..1, higher is more likely mislabelled
    suggested: str  # another label to consider; empty for samples that are not suspects
    duplicates: int = 0  # number of its group of equal or nearly equal samples; an empty cell is 0: no duplicates
    outlier: bool = False  # an empty cell if the run has no embeddings
    confidence: float = math.nan  # out-of-sample probability of the predicted label


@dataclass(frozen=True)
class LabelColumns:
    """labels.csv in input order. Codes index `classes`; -1 stands for an empty cell."""

    ids: Any  # pyarrow string array: a million Python strings would take a second and 80 MB
    classes: tuple[str, ...]
    label: NDArray[np.int32]
    predicted: NDArray[np.int32]
    suggested: NDArray[np.int32]
    verdict: NDArray[np.int8]
    iteration: NDArray[np.int16]
    probability: FloatArray
    loss: FloatArray
    suspicion: FloatArray
    duplicates: NDArray[np.int32]  # group of equal or nearly equal samples, from 1; 0 if there is no other
    outlier: BoolArray
    confidence: FloatArray  # of the predicted label

    def __len__(self) -> int:
        return len(self.label)

    def id(self, row: int) -> str:
        return str(self.ids[row].as_py())

    def name(self, code: int) -> str | None:
        return self.classes[code] if code >= 0 else None

    def names(self, codes: Any) -> list[str]:
        """Class names of codes, "" for -1."""
        return [self.classes[code] if code >= 0 else "" for code in codes.tolist()]

    def with_suggestion(self, rows: IntArray) -> BoolArray:
        """Whether another label than the given one is suggested for each of `rows`."""
        return np.asarray((self.suggested[rows] >= 0) & (self.suggested[rows] != self.label[rows]))

    def suspect(self) -> BoolArray:
        """Samples to review: another label is suggested."""
        return self.with_suggestion(np.arange(len(self)))

    def ranked(self, rows: IntArray) -> IntArray:
        """`rows` by descending suspicion. Ties keep the input order; unknown suspicion comes last."""
        order = np.argsort(-np.nan_to_num(self.suspicion[rows], nan=-1.0), kind="stable")
        return rows[order]

    def rows(self) -> Iterator[LabelRow]:
        """One `LabelRow` per sample."""
        cells = (
            self.ids.to_pylist(), self.names(self.label), self.names(self.predicted), self.probability.tolist(),
            self.loss.tolist(), [VERDICTS[code] for code in self.verdict.tolist()], self.iteration.tolist(),
            self.suspicion.tolist(), self.names(self.suggested), self.duplicates.tolist(), self.outlier.tolist(),
            self.confidence.tolist(),
        )  # fmt: skip
        return map(LabelRow._make, zip(*cells, strict=True))

    def find(self, ids: Sequence[str]) -> IntArray:
        """Row of each id, -1 if there is none."""
        import pyarrow as pa

        return index_in(pa.array(ids, pa.string()), self.ids) if len(ids) else np.zeros(0, dtype=np.int64)


class Duplicates:
    """Equal and nearly equal samples, as labels.csv lists them."""

    def __init__(self, columns: LabelColumns) -> None:
        self.columns = columns
        members = np.flatnonzero(columns.duplicates)
        self._order = members[np.argsort(columns.duplicates[members], kind="stable")]
        self._groups = columns.duplicates[self._order]

    def of(self, row: int) -> list[int]:
        """The rows of the group of `row`, including itself."""
        group = int(self.columns.duplicates[row])
        if not group:
            return [row]
        begin, end = np.searchsorted(self._groups, (group, group + 1)).tolist()
        return [int(other) for other in self._order[begin:end]]

    def unique(self, rows: IntArray) -> IntArray:
        """The first row of each group, and all rows without a group."""
        group = self.columns.duplicates[rows].astype(np.int64)
        _, first = np.unique(np.where(group > 0, group, -1 - rows), return_index=True)
        return rows[np.sort(first)]

    def conflicting(self) -> BoolArray:
        """Whether each sample is in a group with different labels."""
        mask = np.zeros(len(self.columns), dtype=bool)
        if len(self._order):
            begins = np.flatnonzero(np.diff(self._groups, prepend=0))
            label = self.columns.label[self._order]
            differ = np.minimum.reduceat(label, begins) < np.maximum.reduceat(label, begins)
            mask[self._order] = np.repeat(differ, np.diff(np.append(begins, len(self._order))))
        return mask

    def labels(self, rows: list[int]) -> list[list[int]]:
        """Class codes and their number in `rows`, the most frequent first."""
        codes, counts = np.unique(self.columns.label[rows], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return [[int(codes[i]), int(counts[i])] for i in order]


def index_in(ids: Any, among: Any) -> IntArray:
    """Position of each id in `among`, -1 if it is not there."""
    import pyarrow.compute as pc

    found = pc.index_in(ids, value_set=among).fill_null(-1)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)


def read_labels(path: Path, classes: object = ()) -> LabelColumns:
    """Read labels.csv. `classes` sets the order of the classes; other names follow, sorted."""
    import pyarrow as pa

    if not path.exists():
        raise InputError(f"{path} does not exist: run `labelsieve select` first")
    coded = dict.fromkeys(("label", "predicted", "suggested", "verdict"), pa.dictionary(pa.int32(), pa.string()))
    numbers = dict.fromkeys(("probability", "loss", "suspicion", "confidence"), pa.float64())
    others = {"iteration": pa.int16(), "duplicates": pa.int32(), "outlier": pa.bool_()}
    types = {"id": pa.string()} | coded | numbers | others
    try:
        table = read_arrow(path, types=types, columns=LabelRow._fields)
    except InputError as error:
        advice = "another version or program wrote this labels.csv: select again with another --out"
        raise InputError(f"{error}; {advice}") from None
    table = table.unify_dictionaries().combine_chunks()
    names = {column: _dictionary(table, column) for column in coded}

    ordered = [str(name) for name in classes] if isinstance(classes, list | tuple) else []
    ordered += sorted({*names["label"], *names["predicted"], *names["suggested"]} - {"", *ordered})
    code_of = {name: code for code, name in enumerate(ordered)}
    verdicts = {name: code for code, name in enumerate(VERDICTS)}

    def codes(column: str) -> NDArray[np.int32]:
        lookup = verdicts if column == "verdict" else code_of
        translate = np.array([*(lookup.get(name, -1) for name in names[column]), -1], dtype=np.int32)
        if not table.num_rows:
            return np.zeros(0, dtype=np.int32)
        indices = table[column].chunk(0).indices.fill_null(len(names[column]))
        return np.asarray(translate[indices.to_numpy(zero_copy_only=False)])

    columns: dict[str, Any] = {name: codes(name) for name in coded}
    if (columns["verdict"] < 0).any():
        line = int(np.argmax(columns["verdict"] < 0)) + 2
        raise InputError(f"{path}, line {line}: the verdict must be one of {', '.join(VERDICTS)}")
    columns["verdict"] = columns["verdict"].astype(np.int8)
    columns |= {name: np.asarray(table[name].to_numpy(), dtype=np.float64) for name in numbers}
    for name, kind in others.items():
        columns[name] = np.asarray(table[name].fill_null(pa.scalar(0).cast(kind)), kind.to_pandas_dtype())
    ids = table["id"].chunk(0) if table.num_rows else pa.array([], pa.string())
    return LabelColumns(ids, tuple(ordered), **columns)


def _dictionary(table: Any, column: str) -> list[str]:
    return [str(name) for name in table[column].chunk(0).dictionary.to_pylist()] if table.num_rows else []


def number_cell(value: Any) -> str:
    """A number as labels.csv has it: six digits, empty if unknown."""
    return "" if math.isnan(value) else f"{float(value):.6g}"


def pair_counts(columns: LabelColumns, rows: IntArray) -> dict[tuple[int, int], int]:
    """Number of `rows` per pair of given and suggested label, without an array of classes x classes."""
    c = len(columns.classes)
    label, suggested = columns.label[rows].astype(np.int64), columns.suggested[rows].astype(np.int64)
    known = (label >= 0) & (suggested >= 0)
    keys, counts = np.unique(label[known] * c + suggested[known], return_counts=True)
    return {(int(key) // c, int(key) % c): int(count) for key, count in zip(keys, counts, strict=True)}


def most_confused(pairs: dict[tuple[int, int], int], limit: int) -> list[int]:
    """The classes of the most frequent pairs of different labels, at most `limit`, in class order."""
    different = sorted((pair for pair in pairs if pair[0] != pair[1]), key=lambda pair: (-pairs[pair], pair))
    return sorted(list(dict.fromkeys(code for pair in different for code in pair))[:limit])
