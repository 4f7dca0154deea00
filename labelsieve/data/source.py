"""What SOURCE means on the command line, and the one function that reads it.

ROOT/            a folder of class folders with images
FILE.csv         (also .tsv, .parquet, .jsonl, .xlsx) with a label column and either path, text or feature columns
FILE.npz         with x and y
cifar10:DIR      cifar100:DIR      cifar10n:DIR?labels=worse      webvision:DIR      hf:NAME_OR_DIR
digits           embedded
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from labelsieve.data import cifar, folder, huggingface, npz, table, webvision
from labelsieve.data.duplicates import about_copies, group_codes, kept_together, repeated
from labelsieve.data.label_notes import about_spelling, class_counts, label_notes, why_unknown
from labelsieve.data.labels import NO_CLASS, NO_LABEL, about_left_out, about_stripped, lacking, leave_out, with_labels
from labelsieve.data.read_options import DEFAULTS, check_no_split
from labelsieve.data.read_options import ReadOptions as ReadOptions
from labelsieve.data.table_file import TABLES as TABLES
from labelsieve.errors import InputError
from labelsieve.progress import SILENT, Progress, RecordingProgress
from labelsieve.types import IntArray, LabelledData

BUILT_IN = ("digits",)
CIFAR = ("cifar10", "cifar100", "cifar10n")
SCHEMES = (*CIFAR, "webvision", "hf")
SMALL_SAMPLE = 20  # a smaller source is probably a trial, in which every sample may have a class of its own
KNOWN = (
    "a folder with one subfolder per class, a .csv, .tsv, .parquet, .jsonl, .xlsx or .npz file, "
    "cifar10:DIR, cifar100:DIR, cifar10n:DIR, webvision:DIR, hf:NAME_OR_DIR or digits"
)


def source_text(source: str | Path) -> str:
    """Return a source as text. Raise InputError for samples in memory."""
    if not isinstance(source, str | Path):
        raise InputError(
            f"the source must be a path or a name, not a {type(source).__name__}: write the samples to a file, or use "
            "INCV or CleanClassifier for samples in memory"
        )
    return str(source)


def is_path(source: str) -> bool:
    """Whether a source is a file or folder. A folder with the name of a built-in source is written as ./digits."""
    return source not in BUILT_IN and source.partition(":")[0] not in SCHEMES


def files_of(source: str) -> list[Path]:
    """The files that are read from the folder of `cifar10:DIR` and similar; empty if the source has no folder."""
    readers = {"hf": huggingface.files, "webvision": webvision.files}
    return readers.get(source.partition(":")[0], cifar.files)(source)


def load_source(source: str, options: ReadOptions = DEFAULTS, *, progress: Progress = SILENT) -> LabelledData:
    """Read the samples of a source in input order. Notes go to `progress` and to the `notes` of the result."""
    recorder, wanted = RecordingProgress(progress), options
    ignored = _ignored(options)
    if options.group_column is not None and options.labelled:
        if not Path(source).is_file() or Path(source).suffix.lower() not in TABLES:
            raise InputError(f"--group-column needs a table, such as a CSV file, not {source}: remove the option")
        ignored = tuple(dict.fromkeys((*ignored, options.group_column)))
    else:
        options = replace(options, group_column=None)
    options = replace(options, ignore_columns=ignored)
    data = _read(source, options, recorder)
    if options.labels is not None:
        data = _relabel(source, data, options, recorder)
    if options.labelled and not options.allow_one_class:
        check_classes(data, source)
    if options.labelled:
        data = replace(data, duplicates=group_codes(repeated(data), len(data)))
        if data.groups is None:
            data = replace(data, groups=kept_together(data))
            together = about_copies(data.groups)
        else:
            together = _about_groups(data.groups, options.group_column)
        spelling = about_spelling(class_counts(data), source, wanted) if options.note_spelling else None
        kinds = label_notes(data, options.label_column)
        for note in (spelling, *kinds, together):
            if note is not None:
                recorder.note(note)
        data = replace(data, why_unknown=why_unknown(kinds))
    return replace(data, notes=tuple(map(str, recorder.notes)))


def _about_groups(groups: IntArray, column: str | None) -> str:
    count = len(np.unique(groups))
    if count < 2:
        raise InputError(f"--group-column {column}: all samples are in one group; at least two are needed")
    return f"{count:,} groups by {column}: each group stays in the same half of the data"


def _ignored(options: ReadOptions) -> tuple[str, ...]:
    """The columns to leave out, without those that are never features."""
    needed = [
        name
        for name in (options.label_column, options.text_column)
        if name is not None and name in options.ignore_columns
    ]
    if needed:
        raise InputError(f"--ignore-columns {','.join(needed)}: this column is needed for the labels or texts")
    never = (options.id_column, *table.NOT_FEATURES)
    return tuple(name for name in dict.fromkeys(options.ignore_columns) if name not in never)


def _relabel(
    source: str, data: LabelledData, options: ReadOptions, progress: Progress
) -> LabelledData:  # fmt: skip
    """Apply the file of labels."""
    labels = options.labels
    assert labels is not None
    if labels.note:
        progress.note(labels.note)
    missing = lacking(data, labels)
    if missing and options.labelled and not options.needs_labels:
        data = _without_any_label(source, data, missing, options, progress)
    before = len(data)
    data = with_labels(data, labels)
    if labels.stripped:
        progress.note(f"{labels.path}: {about_stripped(labels.stripped)}")
    if len(data) < before:
        progress.note(f"left out because {labels.path} marks them as dropped: {before - len(data):,}")
    return data


def _without_any_label(
    source: str, data: LabelledData, missing: list[str], options: ReadOptions, progress: Progress
) -> LabelledData:
    """Leave out the samples that have no label in the file of labels and none in the source."""
    if data.kind == "pictures":  # reading the source again would decode all images again
        ids, without = data.ids.tolist(), set(missing)
        loose = {row: NO_CLASS for row, id in enumerate(ids) if "/" not in id and id in without}
        if not (Path(source).is_dir() and loose and any("/" in id for id in ids)):
            return data
        progress.note(about_left_out(NO_CLASS, [ids[row] for row in loose]))
        return leave_out(data, loose)
    try:
        own = _read(source, replace(options, labels=None), SILENT)
    except InputError:
        return data
    none = {skipped.id for skipped in own.skipped if skipped.reason == NO_LABEL} & set(missing)
    if not none:
        return data
    rows = {row: NO_LABEL for row, id in enumerate(data.ids.tolist()) if id in none}
    progress.note(about_left_out(NO_LABEL, [f"id {data.ids[row]}" for row in rows]))
    return leave_out(data, rows)


def _read(source: str, options: ReadOptions, progress: Progress) -> LabelledData:
    """Call the reader for this kind of source."""
    scheme = source.partition(":")[0]
    path = Path(source)
    if not path.is_dir() and path.suffix.lower() not in TABLES and scheme not in (*CIFAR, "hf"):
        check_no_split(options, source)
    if source in BUILT_IN:
        return load_digits()
    if scheme in CIFAR:
        return cifar.load(source, options, progress)
    if scheme == "webvision":
        return webvision.load(source, options, progress=progress)
    if scheme == "hf":
        return huggingface.load(source, options, progress)
    if path.is_dir():
        return folder.load(path, options, progress)
    if path.is_file() and path.suffix.lower() == ".npz":
        return npz.load(path, options, progress)
    if path.is_file() and path.suffix.lower() in TABLES:
        return table.load(path, options, progress)
    if path.is_file():
        raise InputError(f"{source}: this kind of file is not supported; use {KNOWN}")
    raise InputError(f"{source} does not exist; use {KNOWN}")


def load_digits() -> LabelledData:
    """Return scikit-learn's 1,797 handwritten digits, rows of 64 grey values in 0..1; the classes are the digits."""
    from sklearn import datasets

    digits = datasets.load_digits()
    x = np.asarray(digits.data, dtype=np.float32) / 16
    ids = np.array([f"digit-{i:04d}" for i in range(len(x))])
    return LabelledData(
        x=x, y=np.asarray(digits.target, dtype=np.int64), classes=tuple(range(10)), ids=ids, kind="table", name="digits"
    )


def check_classes(data: LabelledData, source: str) -> None:
    """Raise an error if there is one class only, or if the labels look like ids."""
    present = np.unique(data.y)
    if len(present) < 2:
        only = f" ({data.classes[int(present[0])]!r})" if len(present) and present[0] >= 0 else ""
        raise InputError(f"{source} has only one class{only}; at least two classes are required")
    if len(data) >= SMALL_SAMPLE and 2 * len(present) > len(data):
        raise InputError(
            f"{source} has {len(present)} classes for {len(data)} samples, too few per class; if the labels "
            "are ids or texts, set the label column with --label-column"
        )
