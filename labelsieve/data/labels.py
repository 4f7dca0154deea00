"""Labels as users write them, in; codes and class names, out. Also the file that `--labels` names."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.cells import NUMBER
from labelsieve.data.columns import Place, by_row
from labelsieve.data.skipped import DROPPED, leave_out
from labelsieve.data.spreadsheet import neutral, plain
from labelsieve.data.textfile import about_titles, check_no_spreadsheet, code_of, csv_rows, top_of
from labelsieve.errors import InputError
from labelsieve.types import IntArray, LabelledData

if TYPE_CHECKING:
    from labelsieve.data.duplicates import DuplicateFiles

FEW = 5  # examples in one line
OTHERS = "others_dropped"
WHOLE = re.compile(r"(?P<number>-?(?:0|[1-9][0-9]{0,17}))(?P<point>\.0*)?")
NO_TRUE = -2  # where a file does not say what a sample truly is


def encode(labels: Sequence[Any] | NDArray[Any], *, where: str = "labels") -> tuple[IntArray, tuple[Any, ...]]:
    """Codes and sorted class names. Texts that are all whole numbers become numbers, so that 10 follows 9."""
    values = np.asarray(labels)
    if values.ndim != 1:
        raise InputError(f"{where}: expected one label a sample, got shape {values.shape}")
    if values.dtype.kind == "f":
        raise InputError(f"{where}: the labels are decimal numbers; classes must be names or whole numbers")
    if values.dtype.kind == "S":
        values = decoded(values, where=where)
    if values.dtype.kind == "O":
        values = np.array([str(value) for value in values.tolist()])
    if values.dtype.kind not in "Ubiu":
        raise InputError(f"{where}: labels must be names or whole numbers, not {values.dtype}")
    names, codes = np.unique(values, return_inverse=True)
    classes = names.tolist()
    if values.dtype.kind == "U" and classes and all(_is_integer(name) for name in classes):
        order = np.argsort([int(name) for name in classes], kind="stable")
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        return rank[codes], tuple(int(classes[i]) for i in order)
    return codes.astype(np.int64), tuple(classes)


def decoded(values: NDArray[Any], *, where: str) -> NDArray[np.str_]:
    """Texts that were stored as bytes."""
    try:
        return np.asarray(np.char.decode(values, "utf-8"), dtype=np.str_)
    except UnicodeDecodeError:
        raise InputError(f"{where} holds bytes that are not UTF-8") from None


def unlabelled(n: int) -> tuple[IntArray, tuple[Any, ...]]:
    """Codes and classes of samples whose labels are not there, or are not needed and no labels."""
    return np.full(n, -1, dtype=np.int64), ()


def _is_integer(text: str) -> bool:
    return re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) is not None


def first_decimal(labels: Iterable[str]) -> int | None:
    """Where a column of numbers stops being whole: the index of its first decimal; None where it is fine."""
    found: int | None = None
    for i, label in enumerate(labels):
        if label.lower() in ("nan", "inf", "-inf"):  # written among decimals as well as a name of its own
            continue
        if not NUMBER.fullmatch(label):
            return None
        # Zero-padded codes and numbers of any length are names: a dot or an exponent makes a decimal.
        if found is None and any(mark in label for mark in ".eE"):
            found = i
    return found


def whole_numbers(labels: Sequence[Any]) -> list[str] | None:
    """1.0 as 1, which is how pandas writes whole numbers as soon as one is missing; None where any is something else,
    or they are no decimals at all."""
    found = [WHOLE.fullmatch(str(label)) for label in labels]
    texts = all(isinstance(label, str) for label in labels)
    if not all(found) or (texts and not any(match and match["point"] for match in found)):
        return None
    return [str(int(match["number"])) for match in found if match]


def is_fraction(label: Any) -> bool:
    """Is this a decimal, and no whole number?"""
    decimal = not isinstance(label, str) or any(mark in label for mark in ".eE")
    return decimal and WHOLE.fullmatch(str(label)) is None


def means(text: str, label: str) -> bool:
    """Is this cell that label: as it is written, or 1.0 for 1?"""
    whole = WHOLE.fullmatch(text)
    return text == label or (whole is not None and whole["number"] == label)


def stripped(labels: Sequence[Any]) -> tuple[list[Any], int]:
    """Labels without blanks at their ends, which nobody sees and nobody means; and how many had some."""
    bare = [label.strip() if isinstance(label, str) else label for label in labels]
    return bare, sum(before != after for before, after in zip(labels, bare, strict=True))


def about_stripped(count: int) -> str:
    return f"{count:,} label{'s' * (count > 1)} had blanks at the ends, which do not count"


def about_missing(
    path: Path | str, missing: Sequence[int], place: Callable[[int], str], *, hint: str = ""
) -> InputError:
    """What is raised for missing labels: how many, where the first few are (`place` names one), and what to do."""
    if len(missing) == 1:
        return InputError(
            f"{path}, {place(missing[0])}: the label is missing; fill it in or leave the sample out{hint}"
        )
    what, _, _ = place(missing[0]).partition(" ")
    few = ", ".join(place(row).rpartition(" ")[2] for row in missing[:FEW]) + ", ..." * (len(missing) > FEW)
    return InputError(
        f"{path}: {len(missing):,} labels are missing ({what}s {few}); fill them in or leave these samples out{hint}"
    )


def about_no_id(path: Path | str, rows: Sequence[int], place: Callable[[int], str]) -> InputError:
    """What is raised for samples whose ids are empty (`place` names a row)."""
    what = place(rows[0]).partition(" ")[0]
    few = ", ".join(place(row).rpartition(" ")[2] for row in rows[:FEW]) + ", ..." * (len(rows) > FEW)
    return InputError(f"{path}: {len(rows):,} ids are empty ({what}s {few}); fill them in or delete these rows")


def id_texts(ids: Iterable[Any]) -> list[str]:
    """Ids of any type as they are written down; whoever looks for one has to write it the same way."""
    return [str(id) for id in ids]


def is_empty(value: Any) -> bool:
    """Is nothing written in this cell, or blanks alone?"""
    return value is None or (isinstance(value, str) and not value.strip())


def unique_ids(ids: Iterable[Any], *, where: str, place: Place = by_row) -> NDArray[np.str_]:
    """Ids as text; a second one of the same name is refused, and `place` names the rows of both."""
    texts = id_texts(ids)
    if len(set(texts)) != len(texts):
        raise _about_twice(texts, where, place)
    return np.array(texts, dtype=np.str_) if texts else np.array([], dtype="<U1")


def _about_twice(texts: Sequence[str], where: str, place: Place) -> InputError:
    rows: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        rows.setdefault(text, []).append(row)
    twice = {text: found for text, found in rows.items() if len(found) > 1}
    text, (first, second, *_) = min(twice.items(), key=lambda entry: entry[1][1])  # whose second comes first
    what, _, number = place(first).partition(" ")
    others = f"; {len(twice):,} ids in all are there more than once" if len(twice) > 1 else ""
    return InputError(
        f"{where}: the id {text!r} is there twice ({what}s {number} and {place(second).partition(' ')[2]}){others}; "
        "ids must differ"
    )


@dataclass(frozen=True)
class LabelFile:
    """A CSV of id, label and optionally true, cell by cell. Only `metrics` may be shown `true`, where it is given.

    With a column `decision` it is what `export --what decisions` writes: samples it does not name keep their labels,
    and those it drops are left out. `export --what cleaned` leaves out the dropped ones and says in each row how many
    they are (`OTHERS`). Any other sample that a file lacks is a mistake: half a file must not pass for all of it.
    """

    path: Path
    labels: dict[str, str]
    true: dict[str, str] | None
    partial: bool = False
    stripped: int = 0  # labels that had blanks at their ends
    dropped: frozenset[str] = frozenset()  # ids of samples to leave out
    others: int = 0  # samples to leave out that it does not name
    note: str = ""  # on the code of its letters


def read_label_file(path: Path | str) -> LabelFile:
    path = Path(path)
    labels: dict[str, str] = {}
    true: dict[str, str] = {}
    missing: list[int] = []
    dropped: set[str] = set()
    others: set[str] = set()
    blanks = 0
    check_no_spreadsheet(path)
    try:
        code = code_of(path)
        titles = about_titles(top_of(path))
        with code.open(path) as file:
            rows = csv_rows(path, file)
            header = next(rows, None)
            if header is None:
                raise InputError(f"{path} is empty: it needs a first line with id,label")
            header = [name.strip() for name in header]
            for column in ("id", "label"):
                if column not in header:
                    raise InputError(f"{path} has no column {column!r}: its columns are {', '.join(header)[:300]}")
            id_at, label_at = header.index("id"), header.index("label")
            true_at = header.index("true") if "true" in header else None
            others_at = header.index(OTHERS) if OTHERS in header else None
            decision_at = header.index("decision") if "decision" in header else None
            for row in rows:
                if not row:
                    continue
                if len(row) != len(header):
                    raise InputError(f"{path}, line {rows.line_num}: {len(row)} cells where {len(header)} are expected")
                id, label = row[id_at], row[label_at].strip()
                others.add("0" if others_at is None else row[others_at])
                blanks += label != row[label_at]
                if id in labels or id in dropped:
                    raise InputError(f"{path}, line {rows.line_num}: the id {id!r} was there before; ids must differ")
                if decision_at is not None and row[decision_at] == "drop":
                    dropped.add(id)
                    continue
                if label == "":
                    missing.append(rows.line_num)
                labels[id] = label
                if true_at is not None and row[true_at].strip():
                    true[id] = row[true_at].strip()
    except FileNotFoundError:
        raise InputError(f"{path} is not there") from None
    except csv.Error as error:
        raise InputError(f"{path} is not a CSV file ({error})") from None
    if not labels and not dropped:
        raise InputError(f"{path} holds no labels below its first line")
    if missing:
        raise about_missing(path, missing, lambda line: f"line {line}")
    if len(others) > 1 or not all(re.fullmatch("[0-9]{1,15}", cell) for cell in others):
        raise InputError(
            f"{path}: the column {OTHERS} must hold one number, the same in every row; leave it out if unsure"
        )
    partial = decision_at is not None
    given = true if true_at is not None else None
    count = int(others.pop())
    note = "; ".join(filter(None, (code.note, titles and f"{path}: {titles}")))
    return LabelFile(
        path, labels, given, partial=partial, stripped=blanks, dropped=frozenset(dropped), others=count, note=note
    )


def with_labels(data: LabelledData, file: LabelFile, same: DuplicateFiles | None = None) -> LabelledData:
    """The same samples with the file's labels, less those it drops. Classes that the source lacks follow its own; of
    these a whole file keeps those that it names, so that two which it calls alike are one."""
    missing = lacking(data, file)
    if file.others and len(missing) == file.others:
        file = replace(file, dropped=file.dropped | set(missing))
    gone = {row: DROPPED for row, id in enumerate(data.ids.tolist()) if _is_named(id, file.dropped)}
    data = leave_out(data, gone, same)
    ids = data.ids.tolist()
    labels = _by_id(file.labels, ids)
    if file.partial:
        own = {id: str(data.classes[code]) for id, code in zip(ids, data.y.tolist(), strict=True)}
        labels = own | labels
    missing = lacking(data, file)
    if missing:
        more = f" and of {len(missing) - 1:,} more" if len(missing) > 1 else ""
        said = f"; it says that {file.others:,} were dropped" if file.others else ""
        raise InputError(f"{file.path} has no label of the sample {missing[0]!r}{more}{said}")
    named = {*ids, *(skipped.id for skipped in data.skipped)}
    unknown = [id for id in (*file.labels, *file.dropped) if id not in named and plain(id) not in named]
    if unknown:
        ids_told = "1 id" if len(unknown) == 1 else f"{len(unknown):,} ids"
        raise InputError(f"{file.path} names {ids_told} that {data.name} lacks, such as {min(unknown)!r}")
    known = {str(name): name for name in data.classes}
    labels = {id: _class(labels[id], known) for id in ids}
    if not known and (whole := whole_numbers(list(labels.values()))) is not None:  # 1.0 may be the name of a class
        labels = dict(zip(ids, whole, strict=True))
    used = {*labels.values(), *(_class(name, known) for name in (file.true or {}).values())}
    classes = [name for name in data.classes if file.partial or str(name) in used]
    classes += sorted(set(labels.values()) - known.keys())
    code = {str(name): i for i, name in enumerate(classes)}
    y = np.array([code[labels[id]] for id in ids], dtype=np.int64)
    return replace(data, y=y, classes=tuple(classes))


def lacking(data: LabelledData, file: LabelFile) -> list[str]:
    """Samples that a file should name and does not."""
    if file.partial:
        return []
    ids = [str(id) for id in data.ids.tolist()]
    return [id for id in ids if not _is_named(id, file.labels) and not _is_named(id, file.dropped)]


def _is_named(id: str, names: Container[str]) -> bool:
    return id in names or neutral(id) in names


def true_codes(data: LabelledData, file: LabelFile) -> IntArray | None:
    """True labels as codes of the data's classes (-1: a class nobody labels with; `NO_TRUE`: the file does not say);
    None where the file has none."""
    ids = data.ids.tolist()
    true = _by_id(file.true or {}, ids)
    if not true:
        return None
    code = {str(name): i for i, name in enumerate(data.classes)} | {"": NO_TRUE}
    return np.array([code.get(_class(true.get(id, ""), code), -1) for id in ids], dtype=np.int64)


def _by_id(cells: Mapping[str, str], ids: Iterable[str]) -> dict[str, str]:
    """What a file says of the samples; our own exports keep ids from being taken for formulas."""
    keys = ((id, id if id in cells else neutral(id)) for id in ids)
    return {id: cells[key] for id, key in keys if key in cells}


def _class(label: str, known: Container[str]) -> str:
    if label in known:
        return label
    whole = WHOLE.fullmatch(plain(label))
    return whole["number"] if whole and whole["number"] in known else plain(label)
