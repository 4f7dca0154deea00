"""labels.csv as columns: a million rows in under a second, class names as codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.errors import InputError
from labelsieve.types import VERDICTS, BoolArray, FloatArray, IntArray

NAMES = ("id", "label", "predicted", "probability", "loss", "verdict", "iteration", "suspicion", "suggested")


@dataclass(frozen=True)
class Columns:
    """One entry a sample, in input order. Codes index `classes`; -1 where the file says nothing."""

    ids: Any  # a pyarrow string array: a million Python strings would cost a second and 80 MB
    classes: tuple[str, ...]
    label: NDArray[np.int32]
    predicted: NDArray[np.int32]
    suggested: NDArray[np.int32]
    verdict: NDArray[np.int8]
    iteration: NDArray[np.int16]
    probability: FloatArray
    loss: FloatArray
    suspicion: FloatArray

    def __len__(self) -> int:
        return len(self.label)

    def id(self, row: int) -> str:
        return str(self.ids[row].as_py())

    def name(self, code: int) -> str | None:
        return self.classes[code] if code >= 0 else None

    def suspect(self) -> BoolArray:
        """Not selected, and another label is suggested: what a person should look at."""
        doubted = (self.suggested >= 0) & (self.suggested != self.label)
        return np.asarray(doubted & (self.verdict != VERDICTS.index("selected")))

    def ranked(self, rows: IntArray) -> IntArray:
        """`rows` with the most suspicious first; ties stay in input order, unknown suspicion goes last."""
        order = np.argsort(-np.nan_to_num(self.suspicion[rows], nan=-1.0), kind="stable")
        return rows[order]


def read_columns(path: Path, classes: Sequence[object] = ()) -> Columns:
    """Read labels.csv. `classes` gives the order of the classes; names it lacks follow, sorted."""
    import pyarrow as pa
    import pyarrow.csv as pc

    if not path.is_file():
        raise InputError(f"{path} is not there: run `labelsieve select` first")
    coded = pa.dictionary(pa.int32(), pa.string())
    types = {"id": pa.string(), "iteration": pa.int16()}
    types |= dict.fromkeys(("label", "predicted", "suggested", "verdict"), coded)
    types |= dict.fromkeys(("probability", "loss", "suspicion"), pa.float32())
    try:
        table = pc.read_csv(
            path,
            parse_options=pc.ParseOptions(newlines_in_values=True),
            convert_options=pc.ConvertOptions(column_types=types, include_columns=list(NAMES)),
        )
    except (pa.ArrowInvalid, KeyError) as error:
        raise InputError(f"{path} cannot be read as a run's labels: {_first_line(error)}") from None
    table = table.unify_dictionaries().combine_chunks()

    found: set[str] = set()
    for column in ("label", "predicted", "suggested"):
        found.update(_dictionary(table, column))
    found.discard("")
    names = [str(name) for name in classes]
    names += sorted(found - set(names))
    code_of = {name: code for code, name in enumerate(names)}

    def codes(column: str, lookup: dict[str, int]) -> NDArray[np.int32]:
        dictionary = _dictionary(table, column)
        translate = np.array([lookup.get(name, -1) for name in dictionary] + [-1], dtype=np.int32)
        if not table.num_rows:
            return np.zeros(0, dtype=np.int32)
        indices = table[column].chunk(0).indices.fill_null(len(dictionary)).to_numpy(zero_copy_only=False)
        return np.asarray(translate[indices])

    def numbers(column: str) -> FloatArray:
        values: FloatArray = table[column].to_numpy().astype(np.float32)
        return values

    verdict = codes("verdict", {name: code for code, name in enumerate(VERDICTS)}).astype(np.int8)
    if (verdict < 0).any():
        line = int(np.argmax(verdict < 0)) + 2
        raise InputError(f"{path}, line {line}: verdict is none of {', '.join(VERDICTS)}")
    ids = table["id"].chunk(0) if table.num_rows else pa.array([], pa.string())
    return Columns(
        ids=ids,
        classes=tuple(names),
        label=codes("label", code_of),
        predicted=codes("predicted", code_of),
        suggested=codes("suggested", code_of),
        verdict=verdict,
        iteration=np.asarray(table["iteration"].fill_null(0).to_numpy(), dtype=np.int16),
        probability=numbers("probability"),
        loss=numbers("loss"),
        suspicion=numbers("suspicion"),
    )


def pair_counts(columns: Columns, rows: IntArray) -> dict[tuple[int, int], int]:
    """How many of `rows` are labelled i and suggested j: {(i, j): count}, never a c x c array."""
    c = len(columns.classes)
    label, suggested = columns.label[rows].astype(np.int64), columns.suggested[rows].astype(np.int64)
    known = (label >= 0) & (suggested >= 0)
    keys, counts = np.unique(label[known] * c + suggested[known], return_counts=True)
    return {(int(key) // c, int(key) % c): int(count) for key, count in zip(keys, counts, strict=True)}


def most_confused(pairs: dict[tuple[int, int], int], limit: int) -> list[int]:
    """The classes in most wrong pairs, at most `limit`, in class order."""
    weight: dict[int, int] = {}
    for (given, suggested), count in pairs.items():
        if given != suggested:
            weight[given] = weight.get(given, 0) + count
            weight[suggested] = weight.get(suggested, 0) + count
    heaviest = sorted(weight, key=lambda code: (-weight[code], code))[:limit]
    return sorted(heaviest)


def _dictionary(table: Any, column: str) -> list[str]:
    if not table.num_rows:
        return []
    return [str(name) for name in table[column].chunk(0).dictionary.to_pylist()]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["unreadable"])[0]
