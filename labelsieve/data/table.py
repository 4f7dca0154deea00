"""CSV and Parquet files with a label column and either `path`, texts or feature columns."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labelsieve.data.columns import Encoding, Note, silence, told
from labelsieve.data.decode import FILE_NOT_FOUND
from labelsieve.data.features import read_features
from labelsieve.data.labels import (
    about_missing,
    about_no_id,
    about_stripped,
    encode,
    first_decimal,
    id_texts,
    is_empty,
    is_fraction,
    stripped,
    unique_ids,
    unlabelled,
    whole_numbers,
)
from labelsieve.data.skipped import NO_LABEL, about_left_out, about_lost, too_many, without_blank
from labelsieve.data.textfile import Code, about_titles, code_of, csv_rows, delimiter_of, top_of
from labelsieve.errors import InputError
from labelsieve.progress import Progress
from labelsieve.types import LabelledData, Skipped

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from labelsieve.data.duplicates import DuplicateFiles
    from labelsieve.data.read_options import ReadOptions
    from labelsieve.types import IntArray

# Never features: `true` would let a model see the answers.
NOT_FEATURES = ("id", "true")
LONGEST_CELL = 2**31 - 1  # a C long on every system


def load(
    path: Path, options: ReadOptions, *, progress: Progress | None = None, same: DuplicateFiles | None = None
) -> LabelledData:  # fmt: skip
    """Read a table. Rows without a label and empty texts are skipped, unless the table is read for prediction."""
    progress = progress or Progress(silent=True)
    is_csv = _is_csv(path)
    labelled, root = options.needs_labels, options.root
    label_column, id_column = options.label_column.strip(), options.id_column.strip()  # as the names in the table are
    text_column = options.text_column.strip() if options.text_column is not None else None
    encoding = options.encoding
    if encoding is not None:
        encoding = Encoding(tuple(replace(column, name=column.name.strip()) for column in encoding.columns))
        text_column = encoding.text or text_column
    words = (label_column, id_column, text_column, *(encoding.words if encoding else ()))
    code = code_of(path) if is_csv else None
    if code is not None and code.note:
        progress.note(code.note)
    if is_csv and (titles := about_titles(top_of(path))):
        progress.note(f"{path}: {titles}")
    table = _read_csv(path, words, code) if code is not None else _read_parquet(path)
    if table.num_rows == 0:
        raise InputError(f"{path} holds no samples below its first line" if is_csv else f"{path} holds no samples")
    names = table.column_names
    if (label := in_any_case(label_column, names)) != label_column:
        progress.note(f"the labels are in column {told(label)}; --label-column names another")
        label_column = label
    _check_named(
        path,
        names,
        label=label_column if labelled else None,
        id=id_column if id_column != "id" else None,
        text=text_column if encoding is None else None,
    )
    lines = _Lines(path, code)
    try:
        y, classes, missing = _labels(table, label_column, path, lines, progress.note if labelled else silence)
    except InputError:
        if labelled:
            raise
        y, classes, missing = *unlabelled(table.num_rows), []
    everything = table.num_rows
    named = table.column(id_column).to_pylist() if id_column in names else None
    if not labelled:
        empty = _empty_rows(table, named) if named is not None else []
        y, classes = unlabelled(everything) if set(missing).difference(empty) else (y, classes)
        missing = empty
    kept = np.setdiff1d(np.arange(everything), missing)
    rest = table.drop_columns([name for name in {label_column, id_column, *NOT_FEATURES} if name in names])
    if not len(kept):
        raise InputError(f"{path} holds no samples: its rows are empty")
    if missing:
        progress.note(about_left_out("a label" if labelled else "anything in them", missing, lines.name))
        y, rest = y[kept], rest.take(kept)

    def all_ids(default: Any) -> NDArray[np.str_]:
        return _ids(default if named is None else named, kept, path, lines)

    def skipped(ids: NDArray[np.str_]) -> tuple[Skipped, ...]:
        return tuple(Skipped(str(ids[row]), NO_LABEL) for row in missing)

    if "path" in names and text_column is None:
        from labelsieve.data.pictures import PictureFiles
        from labelsieve.data.read_pictures import read_pictures

        written = [str(value or "") for value in table.column("path").to_pylist()]
        files, lost = _picture_files(path, written, kept, lines, root=root)
        if lost:
            progress.note(about_lost(len(kept), lost, lambda row: f"{lines.name(row)}: {written[row][:200]!r}"))
        there = np.setdiff1d(kept, lost)
        y = y[np.isin(kept, there)]
        ids = _ids(written if named is None else named, there, path, lines)
        pictures = PictureFiles(path.parent, files)
        data = LabelledData(pictures, y, classes, ids[there], "pictures", name=path.stem)
        data = read_pictures(data, size=options.size, staging=options.cache_dir, progress=progress, same=same)
        gone = (Skipped(str(ids[row]), FILE_NOT_FOUND) for row in lost)
        return replace(data, skipped=(*skipped(ids), *gone, *data.skipped))
    if not rest.column_names:
        raise InputError(f"{path} has only the label: it needs a column path or text, or columns of features")

    def place(row: int) -> str:
        return lines.name(int(kept[row]))

    x, kind = read_features(
        rest,
        replace(options, text_column=text_column, encoding=encoding),
        where=str(path),
        commas=is_csv and delimiter_of(path) == ";",  # chosen where the comma is taken
        note=progress.note,
        place=place,
    )
    ids = all_ids(range(everything))
    data = LabelledData(x, y, classes, ids[kept], kind, name=path.stem, skipped=skipped(ids))
    return without_blank(data, place, progress.note) if options.labelled else data


def _picture_files(
    path: Path, written: Sequence[str], kept: IntArray, lines: _Lines, *, root: Path | None
) -> tuple[list[str], list[int]]:
    """The pictures of the rows that are kept, none outside the folder they begin in, and the rows without one."""
    from labelsieve.data.pictures import safe_path

    base = path.parent if root is None else root
    files, lost = [], []
    for row in kept.tolist():
        name, file = written[row], safe_path(base, written[row])
        if file is None:
            raise InputError(f"{path}, {lines.name(row)}: {name[:200]!r} leads outside {base}; give --root")
        if os.path.isfile(file):  # noqa: PTH113 - unlike Path's, it never raises
            files.append(str(file))
        else:
            lost.append(row)
    if not too_many(lost, len(kept)):
        return files, lost
    first = written[lost[0]]
    slashed = safe_path(base, first.replace("\\", "/"))
    hint = f"give {'--root' if root is None else 'another --root'}, the folder in which such paths begin"
    if slashed is not None and os.path.isfile(slashed):  # noqa: PTH113
        hint = "with slashes in the place of its backslashes it would be: replace them in the table"
    told = f"{path}, {lines.name(lost[0])}: the file {first[:200]!r} is not there"
    if len(lost) > 1:
        told += f", nor are others, {len(lost):,} of {len(kept):,} in all"
    raise InputError(f"{told}; {hint}")


def _empty_rows(table: Any, ids: Sequence[Any]) -> list[int]:
    """Rows without an id and with nothing in any other cell, as spreadsheets write between and below others."""
    nameless = [row for row, id in enumerate(ids) if is_empty(id)]
    cells = table.take(nameless).to_pylist() if nameless else []
    return [row for row, found in zip(nameless, cells, strict=True) if all(map(is_empty, found.values()))]


def _ids(values: Iterable[Any], kept: IntArray, path: Path, lines: _Lines) -> NDArray[np.str_]:
    """Every row's id as text. Of a row that is left out it may be anything but the id of one that is kept: an export
    finds rows by their ids."""
    values = list(values)
    texts = id_texts(values)
    nameless = [row for row in kept.tolist() if is_empty(values[row])]
    if len(nameless) > 1:  # one leads to its row as any other does
        raise about_no_id(path, nameless, lines.name)
    own = {texts[row] for row in kept.tolist()}
    checked = [row for row, text in enumerate(texts) if text in own]
    unique_ids([texts[row] for row in checked], where=str(path), place=lambda at: lines.name(checked[at]))
    return np.array(texts, dtype=np.str_)


def _check_named(path: Path, names: Sequence[str], *, label: str | None, id: str | None, text: str | None) -> None:
    """All columns that were named and are not there, in one line; None: none has to be."""
    asked = {"": label, " for --id-column": id, " for --text-column": text}
    lacking = [f"column {name!r}{option}" for option, name in asked.items() if name is not None and name not in names]
    if lacking:
        hint = "; name it with --label-column" if label is not None and label not in names else ""
        if len(lacking) > 1 and hint:
            hint = "; name that of the labels with --label-column"
        others = ", ".join(map(told, names))[:300]
        raise InputError(f"{path} has no {' and no '.join(lacking)}: its columns are {others}{hint}")


def _labels(
    table: Any, name: str, path: Path, lines: _Lines, note: Note
) -> tuple[IntArray, tuple[Any, ...], list[int]]:
    """Codes, classes, and the rows whose label is missing: their code is -1."""
    import pyarrow as pa

    if name not in table.column_names:
        return *unlabelled(table.num_rows), []
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    values, count = stripped(column.to_pylist())
    missing = [row for row, value in enumerate(values) if value is None or value == "" or value != value]
    if missing and too_many(missing, len(values)):
        raise about_missing(path, missing, lines.name, hint=", or name another column with --label-column")
    if count:
        note(about_stripped(count))
    there = np.setdiff1d(np.arange(len(values)), missing).tolist()
    known = [values[row] for row in there]
    decimal = first_decimal(known) if pa.types.is_string(column.type) else None
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        decimal = 0
    if decimal is not None and (whole := whole_numbers(known)) is not None:
        known = whole
    elif decimal is not None:
        decimal = next((at for at, label in enumerate(known) if is_fraction(label)), decimal)
        raise InputError(
            f"{path}, {lines.name(there[decimal])}: the label {known[decimal]} is a decimal number; "
            "classes must be names or whole numbers"
        )
    codes, classes = encode(known, where=f"{path}: {name}")
    y, _ = unlabelled(len(values))
    y[there] = codes
    return y, classes, missing


def in_any_case(wanted: str, names: Sequence[str]) -> str:
    """The column that is called so, or the only one that is but for case."""
    fitting = [name for name in names if name.casefold() == wanted.casefold()]
    return fitting[0] if wanted not in names and len(fitting) == 1 else wanted


class _Lines:
    """Rows to lines of the file: read again only when there is something to say. Parquet, without a code, has rows."""

    def __init__(self, path: Path, code: Code | None) -> None:
        self.path, self.code = path, code

    def name(self, row: int) -> str:
        if self.code is None:
            return f"row {row + 1}"
        return f"line {self._starts[row]}"

    @cached_property
    def _starts(self) -> list[int]:
        assert self.code is not None
        starts: list[int] = []
        with _long_cells(), self.code.open(self.path) as file:
            rows = csv_rows(self.path, file)
            before = rows.line_num
            for row in rows:
                if row:
                    starts.append(before + 1)
                before = rows.line_num
        return starts[1:]


@contextmanager
def _long_cells() -> Iterator[None]:
    """Arrow reads a cell of any length; the csv module has to be told."""
    before = csv.field_size_limit(LONGEST_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _is_csv(path: Path) -> bool:
    return path.suffix.lower() not in (".parquet", ".pq")


def read_table(path: Path, words: Sequence[str] = ()) -> Any:
    """A CSV or Parquet file as an Arrow table; of a CSV the columns `words` as they are written."""
    return _read_csv(path, words, code_of(path)) if _is_csv(path) else _read_parquet(path)


def _read_csv(path: Path, words: Sequence[str | None], code: Code) -> Any:
    """A table whose columns `words` are read as they are written, whatever they look like."""
    import pyarrow as pa
    import pyarrow.csv as pc

    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty")
    try:
        top = top_of(path)
        with _long_cells(), code.open(path) as file:
            rows = csv_rows(path, file)
            header: list[str] = next(rows, [])
        names = [name.strip() for name in header]
        repeated = {name for name in names if names.count(name) > 1}
        if repeated:
            raise InputError(f"{path}, line {top.lines + 1}: the column {min(repeated)!r} is there twice")
        texts = {*words, "id", "path", "text", "true"}
        texts |= {in_any_case(word, names) for word in words[:1] if word is not None}  # that of the labels
        as_text = {name: pa.string() for name, bare in zip(header, names, strict=True) if bare in texts}
        table = pc.read_csv(
            path,
            read_options=pc.ReadOptions(encoding=code.arrow, skip_rows=top.lines),
            parse_options=pc.ParseOptions(delimiter=top.delimiter, newlines_in_values=True),
            convert_options=pc.ConvertOptions(column_types=as_text, strings_can_be_null=False),
        )
        return table.rename_columns(names) if names != header else table
    except (pa.ArrowInvalid, csv.Error) as error:
        raise InputError(_what_is_wrong(path, code, error)) from None


def _what_is_wrong(path: Path, code: Code, error: Exception) -> str:
    """Arrow counts rows of its own; a person counts lines."""
    with _long_cells(), code.open(path) as file:
        try:
            rows = csv_rows(path, file)
            width, before = None, rows.line_num
            for row in rows:
                if width is None:
                    width = len(row)
                elif row and len(row) != width:
                    return f"{path}, line {before + 1}: {len(row)} cells where the first line has {width}"
                before = rows.line_num
        except csv.Error as problem:
            return f"{path}, line {rows.line_num}: {problem}"
    return f"{path} is not a readable CSV file ({str(error).splitlines()[0]})"


def _read_parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        table.validate(full=True)  # a file may say that something is text which is none
        assert all(isinstance(name, str) for name in table.column_names)
        names = [name.strip() for name in table.column_names]
        return table.rename_columns(names) if len(set(names)) == len(names) else table
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a readable Parquet file ({str(error).splitlines()[0][:300]})") from None
