"""Tables with a label column and `path`, text or feature columns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labelsieve.data.columns import Origin, did_you_mean, list_names, quote_name
from labelsieve.data.decode import FILE_NOT_FOUND
from labelsieve.data.features import read_features
from labelsieve.data.labels import (
    NO_LABEL,
    STATUS_COLUMN,
    Labels,
    about_left_out,
    is_empty,
    leave_out_unusable,
    read_labels,
    too_many,
    unique_ids,
)
from labelsieve.data.pictures import PictureFiles
from labelsieve.data.read_options import OTHER_SPLIT, SPLIT_COLUMN, are_splits, check_no_split, choose_splits
from labelsieve.data.read_pictures import read_with_options
from labelsieve.data.table_file import TableFile, in_any_case
from labelsieve.errors import InputError, MissingColumnError
from labelsieve.files import safe_path
from labelsieve.progress import SILENT, Progress
from labelsieve.types import IntArray, Kind, LabelledData, Skipped

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from labelsieve.data.read_options import ReadOptions

EMPTY_ROW = "empty row"
NOT_FEATURES = ("id", "true", STATUS_COLUMN)  # the last two would show the answers to a model


def load(path: Path, options: ReadOptions, progress: Progress = SILENT) -> LabelledData:
    """Read a table. Rows without a label and empty texts are skipped, unless the table is read for prediction."""
    options = _without_spaces(options)
    file = _open(path, options, progress)
    labels, rows = _labels_and_rows(file, options, progress)
    rows, split_column = _rows_of_splits(file, rows, options, progress)
    origin = Origin(str(path), progress.note, lambda row: file.place(int(rows.used[row])))
    x: Any
    kind: Kind
    if "path" in file.names and options.text_column is None:
        paths = [str(value or "") for value in file.values("path") or ()]
        files, rows = _image_files(file, paths, rows, options.root, progress)
        x, kind, default_ids = PictureFiles(path.parent, files), "pictures", paths
    else:
        not_features = {in_any_case(options.label_column, file.names), options.id_column, split_column, *NOT_FEATURES}
        features = file.table.drop_columns([name for name in file.names if name in not_features]).take(rows.used)
        if not features.column_names:
            and_ids = (
                f" and the ids (column {quote_name(options.id_column)})" if options.id_column in file.names else ""
            )
            raise InputError(f"{path} has only the label{and_ids}: it needs a column path or text, or feature columns")
        # With semicolons between the cells, the comma is most likely a decimal comma.
        commas = file.style is not None and file.style.delimiter == ";"
        x, kind = read_features(features, options, origin, commas=commas)
        default_ids = [str(row) for row in range(file.table.num_rows)]
    ids = _ids(file.values(options.id_column) or default_ids, rows.used, file)
    data = LabelledData(
        x, labels.codes[rows.used], labels.classes, ids[rows.used], kind, name=path.stem,
        groups=_groups(file, rows.used, options),
    )  # fmt: skip
    if kind == "pictures":
        data = read_with_options(data, options, progress)
    skipped = (Skipped(str(ids[row]), reason) for row, reason in rows.skipped.items())
    data = replace(data, skipped=(*skipped, *data.skipped))
    return leave_out_unusable(data, origin, labels=options.needs_labels, texts=options.labelled)


def _without_spaces(options: ReadOptions) -> ReadOptions:
    """Options with the names of columns as they are in a `TableFile`."""
    encoding = options.encoding
    if encoding is not None:
        encoding = replace(encoding, columns=tuple(replace(item, name=item.name.strip()) for item in encoding.columns))
    text = (encoding.text if encoding is not None else None) or options.text_column
    return replace(
        options, label_column=options.label_column.strip(), id_column=options.id_column.strip(),
        text_column=text.strip() if text is not None else None, encoding=encoding,
    )  # fmt: skip


def _open(path: Path, options: ReadOptions, progress: Progress) -> TableFile:
    """Read the file and check that it has rows and the columns that were named."""
    encoding = options.encoding
    commas = encoding.commas if encoding else ()
    text_columns = (options.label_column, options.id_column, options.text_column, options.group_column, *commas)
    file = TableFile.read(path, text_columns, header=options.header)
    for note in file.notes:
        progress.note(note)
    if not file.table.num_rows:
        raise InputError(
            f"{path} has no rows below the header; if its first row is data, set the column names with --header"
        )
    label = in_any_case(options.label_column, file.names)
    if options.needs_labels and options.text_column == label:
        raise InputError(f"--text-column: column {quote_name(label)} has the labels; choose another column")
    if label != options.label_column:
        progress.note(f"the labels are in column {quote_name(label)}; use --label-column for another one")
    needed = {
        "--label-column": label if options.needs_labels else None,
        "--id-column": options.id_column if options.id_column != "id" else None,
        "--text-column": options.text_column if encoding is None else None,
        "--group-column": options.group_column,
    }
    missing = {option: name for option, name in needed.items() if name is not None and name not in file.names}
    if missing:
        columns = ", ".join(
            f"{name!r} for {option}{did_you_mean(name, file.names)}" for option, name in missing.items()
        )
        title = "; if there is a title above the header, delete it" if len(file.names) == 1 else ""
        raise MissingColumnError(
            f"{path} has no column {columns}; its columns are {list_names(file.names)}. Choose one of them{title}"
            + ("" if options.header else ", or set the column names with --header if the file has no header row"),
            tuple(missing.values()),
        )
    return file


@dataclass(frozen=True)
class _Rows:
    used: IntArray
    skipped: dict[int, str]  # the reason of each


def _labels_and_rows(file: TableFile, options: ReadOptions, progress: Progress) -> tuple[Labels, _Rows]:
    """The labels, and the rows that are samples.

    For training and selection these are the rows with a label; for prediction all rows that are not empty.
    """
    count = file.table.num_rows
    column = in_any_case(options.label_column, file.names)
    empty = [] if options.needs_labels else _empty_rows(file, options.id_column)
    values = file.values(column) or [None] * count
    origin = Origin(f"{file.path}: {column}", progress.note, file.place)
    labels = read_labels(values, origin, required=options.needs_labels, empty_rows=empty)
    skipped, reason = (labels.missing, NO_LABEL) if options.needs_labels else (empty, EMPTY_ROW)
    used = np.setdiff1d(np.arange(count), skipped)
    if not len(used):
        raise InputError(f"{file.path} has no samples: all rows are empty")
    if skipped:
        progress.note(about_left_out(reason, [file.place(row) for row in skipped]))
    return labels, _Rows(used, dict.fromkeys(skipped, reason))


def _rows_of_splits(
    file: TableFile, rows: _Rows, options: ReadOptions, progress: Progress
) -> tuple[_Rows, str | None]:  # fmt: skip
    """Leave out the rows of splits that are not read; also return the name of the column of splits, if there is one."""
    name = in_any_case(SPLIT_COLUMN, file.names)
    cells = [str(cell or "").strip() for cell in file.values(name) or ()] if name != options.label_column else []
    present = sorted({cells[row] for row in rows.used.tolist()} if cells else ())
    if len(present) < 2 or not are_splits(present):
        check_no_split(options, str(file.path))
        return rows, None
    chosen = choose_splits(present, options, str(file.path), progress)
    read = np.array([cells[row] in chosen for row in rows.used.tolist()], dtype=np.bool_)
    return _Rows(rows.used[read], rows.skipped | dict.fromkeys(rows.used[~read].tolist(), OTHER_SPLIT)), name


def _empty_rows(file: TableFile, id_column: str) -> list[int]:
    """Rows without an id and without any other value, which spreadsheets write after the last row."""
    ids = file.values(id_column)
    nameless = [row for row, id in enumerate(ids or ()) if is_empty(id)]
    cells = file.table.take(nameless).to_pylist() if nameless else []
    return [row for row, found in zip(nameless, cells, strict=True) if all(map(is_empty, found.values()))]


def _ids(values: Iterable[Any], used: IntArray, file: TableFile) -> NDArray[np.str_]:
    """The id of every row as text. Ids of used rows must be unique, because an export finds rows by id."""
    values = list(values)
    texts = list(map(str, values))
    nameless = [row for row in used.tolist() if is_empty(values[row])]
    if len(nameless) > 1:
        first = file.place(nameless[0])
        raise InputError(f"{file.path}: {len(nameless):,} ids are empty, first in {first}; add the ids")
    own = {texts[row] for row in used.tolist()}
    checked = [row for row, text in enumerate(texts) if text in own]
    unique_ids([texts[row] for row in checked], where=str(file.path), place=lambda at: file.place(checked[at]))
    return np.array(texts, dtype=np.str_)


def _image_files(
    file: TableFile, paths: Sequence[str], rows: _Rows, root: Path | None, progress: Progress
) -> tuple[list[str], _Rows]:
    """The files of the column `path`, and the rows that have one. No file may be outside the root folder.

    Files that do not exist are skipped if they are few.
    """
    base = file.path.parent if root is None else root
    files, lost = [], []
    for row in rows.used.tolist():
        found = safe_path(base, paths[row])
        if found is None:
            raise InputError(
                f"{file.path}, {file.place(row)}: {paths[row][:200]!r} is outside {base}, or a link; give the folder "
                "with --root"
            )
        if os.path.isfile(found):  # noqa: PTH113 - Path.is_file can raise
            files.append(str(found))
        else:
            lost.append(row)
    if too_many(lost, len(rows.used)):
        first = paths[lost[0]]
        hint = f"give {'--root' if root is None else 'another --root'}, the folder that the paths start from"
        slashed = safe_path(base, first.replace("\\", "/"))
        if slashed is not None and os.path.isfile(slashed):  # noqa: PTH113
            hint = "replace the backslashes in the table by slashes"
        raise InputError(
            f"{file.path}, {file.place(lost[0])}: the file {first[:200]!r} does not exist ({len(lost):,} of "
            f"{len(rows.used):,} are missing); {hint}"
        )
    if lost:
        places = [f"{file.place(row)}: {paths[row][:200]!r}" for row in lost]
        progress.note(about_left_out(FILE_NOT_FOUND, places))
    return files, _Rows(np.setdiff1d(rows.used, lost), rows.skipped | dict.fromkeys(lost, FILE_NOT_FOUND))


def _groups(file: TableFile, used: IntArray, options: ReadOptions) -> IntArray | None:
    """A code per sample, equal for equal values in the group column. A sample with an empty cell is its own group."""
    if options.group_column is None:
        return None
    cells = file.values(options.group_column) or []
    number: dict[Any, int] = {}
    keys = (("empty", row) if is_empty(cells[row]) else str(cells[row]).strip() for row in used.tolist())
    return np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)
