"""Labels and ids as users write them, samples that are left out, and the file given with `--labels`."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.cells import NUMBER
from labelsieve.data.columns import Origin, Place, by_row
from labelsieve.data.table_file import TableFile
from labelsieve.errors import InputError
from labelsieve.progress import counted
from labelsieve.types import IntArray, LabelledData, Skipped

EXAMPLES = 5  # rows that a message names
NO_LABEL, EMPTY_TEXT, DROPPED = "no label", "empty text", "dropped"
NO_CLASS = "in no class folder"


def too_many(missing: Sequence[int], samples: int) -> bool:
    """Return whether half of the labels or files are missing: then the wrong column or folder was given."""
    return 2 * len(missing) >= samples


def about_left_out(reason: str, places: Sequence[str]) -> str:
    """The note that samples are left out; `places` says where the user finds them."""
    return f"{counted(len(places), 'sample')} left out ({reason}): {_some(places)}"


def _some(places: Sequence[str]) -> str:
    return ", ".join(places[:EXAMPLES]) + ", ..." * (len(places) > EXAMPLES)


def leave_out_unusable(data: LabelledData, origin: Origin, *, labels: bool, texts: bool) -> LabelledData:
    """Leave out samples without a label (-1) if `labels` is true, and empty texts if `texts` is true.

    A note says which empty texts stay.
    """
    missing = np.flatnonzero(data.y < 0).tolist() if labels else []
    written = enumerate(data.x) if data.kind == "text" else ()
    empty = [row for row, text in written if not str(text).strip()]
    if empty and not texts:
        places = _some([origin.place(row) for row in empty])
        origin.note(f"{counted(len(empty), 'text is empty', 'texts are empty')}, so predictions mean little: {places}")
    reasons = dict.fromkeys(missing, NO_LABEL) | dict.fromkeys(empty if texts else (), EMPTY_TEXT)
    for reason in (EMPTY_TEXT, NO_LABEL):
        if rows := [row for row in sorted(reasons) if reasons[row] == reason]:
            origin.note(about_left_out(reason, [origin.place(row) for row in rows]))
    return leave_out(data, reasons)


def leave_out(data: LabelledData, reasons: Mapping[int, str]) -> LabelledData:
    """Leave out the rows in `reasons` and add them to `skipped`."""
    if not reasons:
        return data
    kept = np.setdiff1d(np.arange(len(data)), np.fromiter(reasons, np.int64, len(reasons)))
    if not len(kept):
        first = min(reasons)
        raise InputError(
            f"{data.name}: all {len(data):,} samples are skipped, for example {data.ids[first]} ({reasons[first]})"
        )
    skipped = tuple(Skipped(str(data.ids[row]), reasons[row]) for row in sorted(reasons))
    return replace(data.take(kept), skipped=(*data.skipped, *skipped))


OTHERS = "others_dropped"  # column of an exported file: how many samples were dropped and are not in it
STATUS_COLUMN = "labelsieve_status"  # column of an exported file: marks undecided suspects and applied suggestions
WHOLE = re.compile(r"(?P<number>-?(?:0|[1-9][0-9]{0,17}))(?P<point>\.0*)?")
NO_TRUE = -2  # code of a sample whose true label is not in the file

# ---------------------------------------------------------------- labels


def encode(labels: Sequence[Any] | NDArray[Any], *, where: str = "labels") -> tuple[IntArray, tuple[Any, ...]]:
    """Codes and sorted class names. Texts that are all integers become integers, so that 10 comes after 9."""
    refuse_final_nul(labels if isinstance(labels, list) else (), f"{where}: the label")
    values = np.asarray(labels)
    if values.ndim != 1:
        raise InputError(f"{where}: expected one label per sample, got shape {values.shape}")
    if values.dtype.kind == "f":
        raise InputError(f"{where}: the labels are decimal numbers; classes must be names or integers")
    if values.dtype.kind == "S":
        values = decoded(values, where=where)
    if values.dtype.kind == "O":
        values = np.array([str(value) for value in values.tolist()])
    if values.dtype.kind not in "Ubiu":
        raise InputError(f"{where}: labels must be names or integers, not {values.dtype}")
    names, codes = np.unique(values, return_inverse=True)
    classes = names.tolist()
    if values.dtype.kind == "U" and classes and all(re.fullmatch("0|-?[1-9][0-9]{0,17}", name) for name in classes):
        numbers, rank = np.unique([int(name) for name in classes], return_inverse=True)
        return rank[codes], tuple(numbers.tolist())
    return codes.astype(np.int64), tuple(classes)


def refuse_final_nul(texts: Iterable[Any], what: str) -> None:
    """Arrays of numpy lose a NUL at the end of a text, so that different texts would become one."""
    for text in texts:
        if isinstance(text, str) and text.endswith("\0"):
            raise InputError(f"{what} {text!r} ends with a NUL character: remove it")


def decoded(values: NDArray[Any], *, where: str) -> NDArray[np.str_]:
    """Texts that are stored as bytes."""
    try:
        return np.asarray(np.char.decode(values, "utf-8"), dtype=np.str_)
    except UnicodeDecodeError:
        raise InputError(f"{where} has bytes that are not UTF-8; convert them to UTF-8") from None


def unlabelled(n: int) -> tuple[IntArray, tuple[Any, ...]]:
    """Codes and classes of samples without labels."""
    return np.full(n, -1, dtype=np.int64), ()


@dataclass(frozen=True)
class Labels:
    codes: IntArray  # -1 if the label is missing
    classes: tuple[Any, ...]
    missing: list[int]


def read_labels(
    values: Sequence[Any], origin: Origin, *, required: bool = True, empty_rows: Sequence[int] = ()
) -> Labels:
    """Labels as a user wrote them: texts, integers, or integers that were written as 1.0 because some are missing.

    If labels are not `required`, they are used only if all samples but the `empty_rows` have one.
    """
    where, place = origin.where, origin.place
    bare = [value.strip() if isinstance(value, str) else value for value in values]
    missing = [row for row, value in enumerate(bare) if value is None or value == "" or value != value]
    try:
        if missing and (too_many(missing, len(bare)) or not (required or set(missing) <= set(empty_rows))):
            raise about_missing(where, [place(row) for row in missing])
        present = np.setdiff1d(np.arange(len(bare)), missing)
        known = [bare[row] for row in present.tolist()]
        if (at := _fraction_at(known)) is not None:
            raise InputError(
                f"{where}, {place(int(present[at]))}: the label {known[at]} is a decimal number; classes must be names "
                "or integers"
            )
        codes, _ = unlabelled(len(bare))
        codes[present], classes = encode(whole_numbers(known) or known, where=where)
    except InputError:
        if required:
            raise
        return Labels(*unlabelled(len(bare)), [])
    spaces = sum(before != after for before, after in zip(values, bare, strict=True) if isinstance(before, str))
    if spaces and required:
        origin.note(about_stripped(spaces))
    return Labels(codes, classes, missing)


def _fraction_at(labels: Sequence[Any]) -> int | None:
    """Index of the first label that is not an integer, if the labels are decimal numbers; else None."""
    texts = [str(label) for label in labels]
    decimals = [i for i, text in enumerate(texts) if set(text) & set(".eE")]
    if not decimals or all(map(WHOLE.fullmatch, texts)):
        return None  # integers, also with leading zeros or of any length, are names
    if not all(NUMBER.fullmatch(text) or text.lower() in ("nan", "inf", "-inf") for text in texts):
        return None
    return next((i for i in decimals if not WHOLE.fullmatch(texts[i])), decimals[0])


def whole_numbers(labels: Sequence[Any]) -> list[str] | None:
    """1.0 as 1, because pandas writes integers in this way if one is missing; None if the labels are anything else."""
    found = [WHOLE.fullmatch(str(label)) for label in labels]
    texts = all(isinstance(label, str) for label in labels)
    if not all(found) or (texts and not any(match and match["point"] for match in found)):
        return None
    return [str(int(match["number"])) for match in found if match]


def is_same_label(text: str, label: str) -> bool:
    """Whether a cell is this label: the same text, or 1.0 for 1."""
    whole = WHOLE.fullmatch(text)
    return text == label or (whole is not None and whole["number"] == label)


def about_stripped(count: int) -> str:
    return f"spaces at the start or end of {counted(count, 'label')} are ignored"


def about_missing(where: Path | str, places: Sequence[str]) -> InputError:
    """The error for missing labels; `places` says where the user finds them."""
    return InputError(
        f"{where}: {counted(len(places), 'label is', 'labels are')} missing ({_some(places)}); add the labels, remove "
        "these rows, or name another column with --label-column"
    )


# ---------------------------------------------------------------- ids


def is_empty(value: Any) -> bool:
    """Whether a cell is empty or has only spaces."""
    return value is None or (isinstance(value, str) and not value.strip())


def unique_ids(ids: Iterable[Any], *, where: str, place: Place = by_row) -> NDArray[np.str_]:
    """Ids as text. Raises InputError if an id occurs twice."""
    texts = list(map(str, ids))
    refuse_final_nul(texts, f"{where}: the id")
    if len(set(texts)) == len(texts):
        return np.array(texts, dtype=np.str_) if texts else np.array([], dtype="<U1")
    first: dict[str, int] = {}
    row = next(row for row, text in enumerate(texts) if first.setdefault(text, row) != row)
    raise InputError(
        f"{where}: the id {texts[row]!r} occurs twice ({place(first[texts[row]])} and {place(row)}), but ids must be "
        "unique; if they name groups and not samples, rename the column and consider --group-column"
    )


# ---------------------------------------------------------------- the file of labels


@dataclass(frozen=True)
class LabelFile:
    """A table with id, label and optionally true. Only `metrics` may see the true labels.

    A file with a column `decision` comes from `export --what decisions`: samples that it does not name keep their
    labels, and samples that it drops are left out. `export --what cleaned` writes the number of dropped samples to the
    column `others_dropped`. In all other cases a sample that is not in the file is an error, because half a file must
    not be used as a complete one.
    """

    path: Path
    labels: dict[str, str]
    true: dict[str, str] | None
    partial: bool = False
    stripped: int = 0  # labels that had spaces at the start or end
    dropped: frozenset[str] = frozenset()  # ids of samples to leave out
    others: int = 0  # number of samples to leave out that are not in the file
    note: str = ""  # about the encoding of the file


def read_label_file(path: Path | str) -> LabelFile:
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist")
    file = TableFile.read(path, as_text=True)
    for column in ("id", "label"):
        if column not in file.names:
            raise InputError(
                f"{path} has no column {column!r}: its columns are {', '.join(file.names)[:300]}; "
                "a file of labels needs the columns id and label"
            )
    if not file.table.num_rows:
        raise InputError(f"{path} has no rows below the header")

    def cells(name: str, otherwise: str = "") -> list[str]:
        values = file.values(name) or [otherwise] * file.table.num_rows
        return ["" if value is None else str(value) for value in values]

    ids, written = cells("id"), cells("label")
    unique_ids(ids, where=str(path), place=file.place)
    dropped = frozenset(id for id, decision in zip(ids, cells("decision"), strict=True) if decision == "drop")
    labels = {id: label.strip() for id, label in zip(ids, written, strict=True) if id not in dropped}
    missing = [file.place(row) for row, id in enumerate(ids) if labels.get(id) == ""]
    if missing:
        raise about_missing(path, missing)
    others = set(cells(OTHERS, "0"))
    if len(others) > 1 or not all(re.fullmatch("[0-9]{1,15}", cell) for cell in others):
        raise InputError(f"{path}: the column {OTHERS} must have the same number in every row; remove it if in doubt")
    true = {id: text.strip() for id, text in zip(ids, cells("true"), strict=True) if id in labels and text.strip()}
    return LabelFile(
        path, labels, true if "true" in file.names else None, partial="decision" in file.names,
        stripped=sum(label != label.strip() for label in written), dropped=dropped, others=int(others.pop()),
        note="; ".join(map(str, file.notes)),
    )  # fmt: skip


def with_labels(data: LabelledData, file: LabelFile) -> LabelledData:
    """The samples with the labels of the file, without the samples that it drops.

    New classes follow the classes of the source. A complete file keeps only the classes that it names.
    """
    missing = lacking(data, file)
    if file.others and len(missing) == file.others:
        file = replace(file, dropped=file.dropped | set(missing))
    gone = {row: DROPPED for row, id in enumerate(data.ids.tolist()) if id in file.dropped}
    data = leave_out(data, gone)
    ids = data.ids.tolist()
    labels = dict(file.labels)
    if file.partial:
        own = {id: str(data.classes[code]) for id, code in zip(ids, data.y.tolist(), strict=True)}
        labels = own | labels
    named = {*ids, *(skipped.id for skipped in data.skipped)}
    unknown = [id for id in (*file.labels, *file.dropped) if id not in named]
    if len(unknown) == len(file.labels) + len(file.dropped):
        raise InputError(
            f"{file.path} names none of the samples: its first id is {unknown[0]!r}, that of {data.name} is "
            f"{ids[0]!r}; check that the file belongs to this source and, for a table, that it was written with the "
            "same --id-column"
        )
    missing = lacking(data, file)
    if missing:
        more = f" and for {len(missing) - 1:,} more" if len(missing) > 1 else ""
        known = (
            f"; the file says that {counted(file.others, 'sample was', 'samples were')} dropped" if file.others else ""
        )
        raise InputError(f"{file.path} has no label for the sample {missing[0]!r}{more}{known}")
    if unknown:
        raise InputError(
            f"{file.path}: {data.name} has no sample {min(unknown)!r} ({len(unknown):,} unknown in total); remove "
            "unknown ids from the file"
        )
    classes_by_name = {str(name): name for name in data.classes}
    labels = {id: _class(labels[id], classes_by_name) for id in ids}
    if not classes_by_name and (whole := whole_numbers(list(labels.values()))) is not None:
        labels = dict(zip(ids, whole, strict=True))
    used = {*labels.values(), *(_class(name, classes_by_name) for name in (file.true or {}).values())}
    classes = [name for name in data.classes if file.partial or str(name) in used]
    classes += sorted(set(labels.values()) - classes_by_name.keys())
    code = {str(name): i for i, name in enumerate(classes)}
    y = np.array([code[labels[id]] for id in ids], dtype=np.int64)
    return replace(data, y=y, classes=tuple(classes))


def lacking(data: LabelledData, file: LabelFile) -> list[str]:
    """Samples that the file should name and does not."""
    if file.partial:
        return []
    return [id for id in data.ids.tolist() if id not in file.labels and id not in file.dropped]


def true_codes(data: LabelledData, file: LabelFile) -> IntArray | None:
    """True labels as codes of the data's classes; None if the file has none.

    -1 is a class that is not among the labels, `NO_TRUE` a sample without a true label.
    """
    ids, true = data.ids.tolist(), file.true or {}
    if not any(id in true for id in ids):
        return None
    code = {str(name): i for i, name in enumerate(data.classes)} | {"": NO_TRUE}
    return np.array([code.get(_class(true.get(id, ""), code), -1) for id in ids], dtype=np.int64)


def _class(label: str, known: Container[str]) -> str:
    if label in known:
        return label
    whole = WHOLE.fullmatch(label)
    return whole["number"] if whole and whole["number"] in known else label
