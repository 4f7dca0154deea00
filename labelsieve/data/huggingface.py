"""Hugging Face datasets, by name or from a folder: `hf:NAME_OR_DIR?split=train&label=label&config=NAME`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from labelsieve.data.columns import Note, by_row, silence
from labelsieve.data.decode_cache import stamp
from labelsieve.data.features import read_features
from labelsieve.data.labels import about_missing, about_stripped, encode, stripped, unique_ids, unlabelled
from labelsieve.data.read_options import ReadOptions, parse_query
from labelsieve.data.skipped import too_many, without_blank, without_label
from labelsieve.data.table import NOT_FEATURES
from labelsieve.errors import InputError
from labelsieve.progress import Progress
from labelsieve.types import IntArray, LabelledData

OPTIONS = ("split", "label", "config")


def load(spec: str, reading: ReadOptions, *, progress: Progress | None = None) -> LabelledData:
    """The column `label` (or the one ClassLabel column), and an Image, texts or feature columns."""
    progress = progress or Progress(silent=True)
    labelled, id_column = reading.needs_labels, reading.id_column
    where, _, query = spec.removeprefix("hf:").partition("?")
    options = parse_query(query)
    unknown = [name for name in options if name not in OPTIONS]
    if unknown or not where:
        raise InputError(f"cannot read {spec!r}: write hf:NAME_OR_DIR, with {', '.join(OPTIONS)} after a ? if needed")
    rows = _open(where, options)
    if len(rows) == 0:
        raise InputError(f"{spec} holds no samples")
    y, classes, label = _labels(rows, options.get("label"), spec, labelled, progress.note)
    if id_column != "id" and id_column not in rows.column_names:
        raise InputError(f"{spec} has no column {id_column!r}: its columns are {', '.join(rows.column_names)}")
    features = [name for name in rows.column_names if name not in (label, id_column, *NOT_FEATURES)]
    kinds = {name: type(rows.features[name]).__name__ for name in features}
    ids = unique_ids(rows[id_column] if id_column in rows.column_names else range(len(rows)), where=spec)
    name = Path(where).name
    pictures = [feature for feature, kind in kinds.items() if kind == "Image"]
    if pictures and reading.text_column is None:
        data = _pictures(
            rows,
            pictures[0],
            y,
            classes,
            ids,
            where=where,
            name=name,
            size=reading.size,
            staging=reading.cache_dir,
            progress=progress,
        )
        return without_label(data, progress.note) if labelled else data
    plain = [feature for feature, kind in kinds.items() if kind == "Value"]
    if not plain:
        raise InputError(f"{spec} has no picture, no column text and no columns of features beside {label!r}")
    table = rows.with_format("arrow").select_columns(plain)[:]
    x, kind = read_features(table, reading, where=spec, note=progress.note)
    data = LabelledData(x=x, y=y, classes=classes, ids=ids, kind=kind, name=name)
    if reading.labelled:
        data = without_blank(data, by_row, progress.note)
    return without_label(data, progress.note) if labelled else data


def _open(where: str, options: dict[str, str]) -> Any:
    # What is loaded is nobody else's business.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        import datasets
    except ImportError:
        raise InputError("hf: sources need the extra: pip install 'labelsieve[hf]'") from None

    folder = Path(where)
    saved = folder.is_dir() and any((folder / name).exists() for name in ("state.json", "dataset_dict.json"))
    try:
        if saved:
            loaded = datasets.load_from_disk(where)
        else:
            loaded = datasets.load_dataset(where, options.get("config"))
    except InputError:
        raise
    except Exception as error:
        # Whatever goes wrong in there (no network, no such name, a broken file), the user gets one line.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"cannot load hf:{where}: {reason[:300]}") from None
    if not hasattr(loaded, "keys"):
        return loaded
    split = options.get("split", "train" if "train" in loaded else next(iter(loaded)))
    if split not in loaded:
        raise InputError(f"hf:{where} has no split {split!r}: it has {', '.join(loaded)}")
    return loaded[split]


def _labels(
    rows: Any, wanted: str | None, spec: str, labelled: bool, note: Note
) -> tuple[IntArray, tuple[Any, ...], str | None]:
    names = rows.column_names
    typed = [name for name in names if type(rows.features[name]).__name__ == "ClassLabel"]
    label = wanted or ("label" if "label" in names else typed[0] if len(typed) == 1 else "label")
    if label not in names:
        if labelled or wanted:
            raise InputError(f"{spec} has no column {label!r}: its columns are {', '.join(names)}; add ?label=NAME")
        return *unlabelled(len(rows)), None
    try:
        return *_codes(rows, label, label in typed, spec, labelled, note if labelled else silence), label
    except InputError:
        if labelled:
            raise
        return *unlabelled(len(rows)), label


def _codes(
    rows: Any, label: str, typed: bool, spec: str, labelled: bool, note: Note
) -> tuple[IntArray, tuple[Any, ...]]:
    """Codes, -1 where a label is missing, and classes."""
    values, count = stripped(rows.with_format(None)[label][:])
    missing = [i for i, value in enumerate(values) if value in (None, "") or (typed and value < 0)]
    if missing and (not labelled or too_many(missing, len(values))):
        raise about_missing(spec, missing, by_row)
    if count:
        note(about_stripped(count))
    if typed:
        codes = [-1 if value is None else value for value in values]
        return np.asarray(codes, dtype=np.int64), tuple(rows.features[label].names)
    y, _ = unlabelled(len(values))
    there = np.setdiff1d(np.arange(len(values)), missing)
    y[there], classes = encode([values[row] for row in there.tolist()], where=f"{spec}: {label}")
    return y, classes


def _pictures(
    rows: Any, column: str, y: IntArray, classes: tuple[Any, ...], ids: Any, *, where: str, **options: Any
) -> LabelledData:
    import io

    import datasets

    from labelsieve.data.pictures import open_checked, read_pictures, safe_path

    encoded = rows.cast_column(column, datasets.Image(decode=False))

    def opener(i: int) -> Any:
        cell = encoded[i][column]
        if cell is None:
            raise InputError("there is no picture in this row")
        if cell.get("bytes"):
            return open_checked(io.BytesIO(cell["bytes"]))
        # A row may name any file: only the data set's own are opened.
        for home in (Path(where), Path(datasets.config.HF_CACHE_HOME)):
            inside = safe_path(home, str(Path(str(cell["path"])).absolute()))
            if inside is not None:
                return open_checked(inside)
        raise InputError("leads outside the data set's folder")

    # A staged copy is known by the rows' own fingerprint, these pictures need not be files; a folder that was saved
    # keeps its fingerprint whatever somebody does to what lies in it.
    version = f"{rows._fingerprint} {[stamp(file) for file in _files(Path(where))]}"
    return read_pictures(list(range(len(rows))), y, classes, ids, opener=opener, version=version, **options)


def files(spec: str) -> list[Path]:
    """What is read; nothing where a data set is known by its name alone."""
    return _files(Path(spec.removeprefix("hf:").partition("?")[0]))


def _files(folder: Path) -> list[Path]:
    """Whoever works with a data set leaves cached results beside its rows: they are no part of it."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "cache-")))
