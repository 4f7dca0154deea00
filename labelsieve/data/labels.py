"""Labels as users write them, in; codes and class names, out. Also the file that `--labels` names."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.errors import InputError
from labelsieve.types import IntArray, LabelledData

FEW = 5  # examples in one line


def encode(labels: Sequence[Any] | NDArray[Any], *, where: str = "labels") -> tuple[IntArray, tuple[Any, ...]]:
    """Codes and sorted class names. Texts that are all whole numbers become numbers, so that 10 follows 9."""
    values = np.asarray(labels)
    if values.ndim != 1:
        raise InputError(f"{where}: expected one label a sample, got shape {values.shape}")
    if values.dtype.kind == "f":
        raise InputError(f"{where}: the labels are decimal numbers; classes must be names or whole numbers")
    if values.dtype.kind == "O":
        values = np.array([str(value) for value in values.tolist()])
    if values.dtype.kind not in "USbiu":
        raise InputError(f"{where}: labels must be names or whole numbers, not {values.dtype}")
    names, codes = np.unique(values, return_inverse=True)
    classes = names.tolist()
    if values.dtype.kind == "U" and classes and all(_is_integer(name) for name in classes):
        order = np.argsort([int(name) for name in classes], kind="stable")
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        return rank[codes], tuple(int(classes[i]) for i in order)
    return codes.astype(np.int64), tuple(classes)


def _is_integer(text: str) -> bool:
    return re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) is not None


def first_decimal(labels: Iterable[str]) -> int | None:
    """Where a column of numbers stops being whole: the index of its first decimal; None where it is fine."""
    found: int | None = None
    for i, label in enumerate(labels):
        try:
            float(label)
        except ValueError:
            return None
        if found is None and not _is_integer(label.strip()):
            found = i
    return found


def stripped(labels: Sequence[Any]) -> tuple[list[Any], int]:
    """Labels without blanks at their ends, which nobody sees and nobody means; and how many had some."""
    bare = [label.strip() if isinstance(label, str) else label for label in labels]
    return bare, sum(before != after for before, after in zip(labels, bare, strict=True))


def about_stripped(count: int) -> str:
    return f"{count:,} label{'s' * (count > 1)} had blanks at the ends, which do not count"


def about_missing(path: Path | str, missing: Sequence[int], place: Callable[[int], str]) -> InputError:
    """What is raised for missing labels: how many, where the first few are (`place` names one), and what to do."""
    if len(missing) == 1:
        return InputError(f"{path}, {place(missing[0])}: the label is missing; fill it in or leave the sample out")
    what, _, _ = place(missing[0]).partition(" ")
    few = ", ".join(place(row).rpartition(" ")[2] for row in missing[:FEW]) + ", ..." * (len(missing) > FEW)
    return InputError(
        f"{path}: {len(missing):,} labels are missing ({what}s {few}); fill them in or leave these samples out"
    )


def about_case(classes: Iterable[Any]) -> str | None:
    """A word on classes that only capitals tell apart; they stay apart."""
    alike: dict[str, list[str]] = {}
    for name in classes:
        alike.setdefault(str(name).casefold(), []).append(str(name))
    found = [" and ".join(map(repr, names)) for names in alike.values() if len(names) > 1]
    more = f", so do {len(found) - FEW:,} more" if len(found) > FEW else ""
    return f"classes {'; '.join(found[:FEW])} differ only in case{more}" if found else None


def unique_ids(ids: Iterable[Any], *, where: str, line: int | None = None) -> NDArray[np.str_]:
    """Ids as text; a second one of the same name is refused. `line` is the first one's, where they come from lines."""
    texts = [str(id) for id in ids]
    if len(set(texts)) != len(texts):
        seen: dict[str, int] = {}
        for i, text in enumerate(texts):
            if text in seen:
                places = f"lines {line + seen[text]} and {line + i}" if line is not None else f"{seen[text]} and {i}"
                raise InputError(f"{where}: the id {text!r} is there twice ({places}); ids must differ")
            seen[text] = i
    return np.array(texts, dtype=np.str_) if texts else np.array([], dtype="<U1")


@dataclass(frozen=True)
class LabelFile:
    """A CSV of id, label and optionally true. Only `metrics` may be shown `true`.

    With a column `decision` it is what `export --what decisions` writes: samples it does not name keep their labels.
    """

    path: Path
    labels: dict[str, str]
    true: dict[str, str] | None
    partial: bool = False
    stripped: int = 0  # labels that had blanks at their ends


def read_label_file(path: Path | str) -> LabelFile:
    path = Path(path)
    labels: dict[str, str] = {}
    true: dict[str, str] = {}
    missing: list[int] = []
    blanks = 0
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            header = next(rows, None)
            if header is None:
                raise InputError(f"{path} is empty: it needs a first line with id,label")
            for column in ("id", "label"):
                if column not in header:
                    raise InputError(f"{path} has no column {column!r}: its columns are {', '.join(header)[:300]}")
            id_at, label_at = header.index("id"), header.index("label")
            true_at = header.index("true") if "true" in header else None
            decision_at = header.index("decision") if "decision" in header else None
            for row in rows:
                if not row:
                    continue
                if len(row) != len(header):
                    raise InputError(f"{path}, line {rows.line_num}: {len(row)} cells where {len(header)} are expected")
                id, label = row[id_at], row[label_at].strip()
                blanks += label != row[label_at]
                if id in labels:
                    raise InputError(f"{path}, line {rows.line_num}: the id {id!r} was there before; ids must differ")
                if decision_at is not None and row[decision_at] == "drop":
                    raise InputError(
                        f"{path}, line {rows.line_num}: {id!r} was dropped, and labels cannot leave samples out; "
                        "`export --what cleaned` writes a source without them"
                    )
                if label == "":
                    missing.append(rows.line_num)
                labels[id] = label
                if true_at is not None:
                    true[id] = row[true_at].strip()
    except FileNotFoundError:
        raise InputError(f"{path} is not there") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a CSV file in UTF-8 ({error})") from None
    if not labels:
        raise InputError(f"{path} holds no labels below its first line")
    if missing:
        raise about_missing(path, missing, lambda line: f"line {line}")
    partial = decision_at is not None
    return LabelFile(path, labels, true if true_at is not None else None, partial=partial, stripped=blanks)


def with_labels(data: LabelledData, file: LabelFile) -> LabelledData:
    """The same samples with the file's labels. Classes that the source lacks follow the source's own."""
    ids = data.ids.tolist()
    if file.partial:
        own = {id: str(data.classes[code]) for id, code in zip(ids, data.y.tolist(), strict=True)}
        file = replace(file, labels=own | file.labels)
    missing = [id for id in ids if id not in file.labels]
    if missing:
        more = f" and of {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise InputError(f"{file.path} has no label of the sample {missing[0]!r}{more}")
    unknown = file.labels.keys() - set(ids) - {skipped.id for skipped in data.skipped}
    if unknown:
        raise InputError(f"{file.path} names {len(unknown):,} ids that {data.name} lacks, such as {min(unknown)!r}")
    code = {str(name): i for i, name in enumerate(data.classes)}
    classes = list(data.classes)
    for name in sorted({file.labels[id] for id in ids} - code.keys()):
        code[name] = len(classes)
        classes.append(name)
    y = np.array([code[file.labels[id]] for id in ids], dtype=np.int64)
    return replace(data, y=y, classes=tuple(classes))


def true_codes(data: LabelledData, file: LabelFile) -> IntArray | None:
    """True labels as codes of the data's classes (-1: a class nobody labels with); None where the file has none."""
    if file.true is None:
        return None
    code = {str(name): i for i, name in enumerate(data.classes)}
    return np.array([code.get(file.true[id], -1) for id in data.ids.tolist()], dtype=np.int64)
