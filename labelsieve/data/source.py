"""What SOURCE means on the command line, and the one function that reads it.

ROOT/            a folder of class folders with pictures
FILE.csv         (also .tsv, .parquet) with a label column and either path, texts or feature columns
FILE.npz         with x and y
cifar10:DIR      cifar100:DIR      cifar10n:DIR?labels=worse      webvision:DIR      hf:NAME_OR_DIR
digits           embedded
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labelsieve.data.duplicates import Same, about_conflicts, about_copies, copied
from labelsieve.data.groups import GroupColumn
from labelsieve.data.labels import LabelFile, about_stripped, lacking, with_labels
from labelsieve.data.skipped import NO_CLASS, NO_LABEL, about_left_out, about_loose, leave_out
from labelsieve.data.spelling import about_spelling, class_counts
from labelsieve.data.textfile import check_no_spreadsheet
from labelsieve.errors import InputError
from labelsieve.progress import Overheard, Progress
from labelsieve.types import LabelledData

if TYPE_CHECKING:
    from labelsieve.data.columns import Encoding
    from labelsieve.data.pictures import Size

BUILT_IN = ("digits",)
SCHEMES = ("cifar10", "cifar100", "cifar10n", "webvision", "hf")
TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
FEW = 20  # samples of which each may well have a class of its own, to try something out
KNOWN = (
    "a folder of class folders, a .csv, .tsv, .parquet or .npz file, cifar10:DIR, cifar100:DIR, cifar10n:DIR, "
    "webvision:DIR, hf:NAME_OR_DIR or digits"
)


def is_path(source: str) -> bool:
    """Does it name a file or folder? A folder that is called as a built-in source is ./digits."""
    return source not in BUILT_IN and source.partition(":")[0] not in SCHEMES


def files_of(source: str) -> list[Path]:
    """The files that are read in the folder behind cifar10: and the like; none where no folder is named."""
    scheme = source.partition(":")[0]
    if scheme == "hf":
        from labelsieve.data import huggingface

        return huggingface.files(source)
    if scheme == "webvision":
        from labelsieve.data import webvision

        return webvision.files(source)
    from labelsieve.data import cifar

    return cifar.files(source)


def load_source(
    source: str,
    *,
    labels: LabelFile | None = None,
    label_column: str = "label",
    text_column: str | None = None,
    id_column: str = "id",
    ignore_columns: Sequence[str] = (),
    group_column: str | None = None,
    labelled: bool = True,
    scored: bool = False,
    root: Path | None = None,
    size: Size = None,
    staging: Path | None = None,
    encoding: Encoding | None = None,
    ask: bool = True,
    progress: Progress | None = None,
) -> LabelledData:
    """Samples in input order. `labels` replaces the given labels; `labelled=False` reads samples to predict, and with
    `scored` labels are only compared with others, not learnt from: they may be of one class.

    `staging` keeps decoded pictures for the next start; `encoding` reads a table as an earlier one was read, and of
    `ignore_columns` none is a feature, nor is `group_column`, whose values are the samples' groups. What is odd about
    the samples or their labels is told to `progress`, and in the data's `notes`. With `ask`, a table that may be judged
    by its texts or by its numbers is refused until somebody says by which.
    """
    ignored = _ignored(ignore_columns, label_column, text_column, id_column)
    groups = None
    if group_column is not None and labelled:
        groups = GroupColumn.read(source, group_column, id_column=id_column)
        ignored = tuple(dict.fromkeys((*ignored, group_column)))
    progress = Overheard(progress or Progress(silent=True))
    same = Same() if labelled else None
    # Labels from a file make the source's own unnecessary, unless they are decisions on some of them.
    needs_labels, judged = labelled and (labels is None or labels.partial), labelled

    def read(*, labelled: bool, progress: Progress, same: Same | None) -> LabelledData:
        return _read(
            source, labelled=labelled, judged=judged, label_column=label_column, text_column=text_column,
            id_column=id_column, ignored=ignored, root=root, size=size, staging=staging, encoding=encoding,
            ask=ask, progress=progress, same=same,
        )  # fmt: skip

    data = read(labelled=needs_labels, progress=progress, same=same)
    if labels is not None:
        if labels.note:
            progress.note(labels.note)
        missing = lacking(data, labels)
        if missing and not needs_labels:
            data = _without_any_label(data, missing, read, same, progress, folder=Path(source).is_dir())
        before = len(data)
        data = with_labels(data, labels, same)
        if labels.stripped:
            progress.note(f"{labels.path}: {about_stripped(labels.stripped)}")
        if len(data) < before:
            gone = before - len(data)
            they, samples = ("it was", "1 sample") if gone == 1 else ("they were", f"{gone:,} samples")
            progress.note(f"left out because {labels.path} says that {they} dropped: {samples}")
    if labelled and not scored:
        check_classes(data)
    if same is not None:
        data = replace(data, groups=copied(data, same) if groups is None else groups.codes(data))
        spelling = about_spelling(
            class_counts(data), source, root=root, label_column=label_column, text_column=text_column,
            id_column=id_column,
        )  # fmt: skip
        together = about_copies(data.groups) if groups is None else groups.about(data)
        for note in filter(None, (spelling, about_conflicts(data, same), together)):
            progress.note(note)
    return replace(data, notes=tuple(progress.said))


def _ignored(names: Sequence[str], label_column: str, text_column: str | None, id_column: str) -> tuple[str, ...]:
    """The columns to leave out, less those that are no features in any case."""
    from labelsieve.data.table import NOT_FEATURES

    needed = [name for name in (label_column, text_column) if name is not None and name in names]
    if needed:
        raise InputError(f"--ignore-columns {','.join(needed)}: labels and texts are read from there, name others")
    return tuple(name for name in dict.fromkeys(names) if name not in (id_column, *NOT_FEATURES))


def _without_any_label(
    data: LabelledData,
    missing: Sequence[str],
    read: Callable[..., LabelledData],
    same: Same | None,
    progress: Progress,
    *,
    folder: bool,
) -> LabelledData:
    """Less the samples that a file of labels lacks because the source has no label of theirs either."""
    if data.kind == "pictures":  # to ask again is to decode again
        lacks, ids = set(missing), data.ids.tolist()
        loose = {row: NO_CLASS for row, id in enumerate(ids) if "/" not in id and id in lacks}
        if not (folder and loose and any("/" in id for id in ids)):
            return data
        progress.note(about_loose([ids[row] for row in loose]))
        return leave_out(data, loose, same)
    try:
        own = read(labelled=True, progress=Progress(silent=True), same=None)
    except InputError:
        return data
    none = {skipped.id for skipped in own.skipped if skipped.reason == NO_LABEL} & set(missing)
    if not none:
        return data
    rows = {row: NO_LABEL for row, id in enumerate(data.ids.tolist()) if id in none}
    progress.note(about_left_out("a label", list(rows), lambda row: f"id {data.ids[row]}"))
    return leave_out(data, rows, same)


def _read(
    source: str,
    *,
    labelled: bool,
    judged: bool,
    label_column: str,
    text_column: str | None,
    id_column: str,
    ignored: Sequence[str],
    root: Path | None,
    size: Size,
    staging: Path | None,
    encoding: Encoding | None,
    ask: bool,
    progress: Progress,
    same: Same | None,
) -> LabelledData:
    """A source by its kind."""
    scheme = source.partition(":")[0]
    path = Path(source)
    if source in BUILT_IN:
        from labelsieve.data import digits

        return digits.load()
    if scheme in ("cifar10", "cifar100", "cifar10n"):
        from labelsieve.data import cifar

        return cifar.load(source)
    if scheme == "webvision":
        from labelsieve.data import webvision

        return webvision.load(source, size=size, progress=progress)
    if scheme == "hf":
        from labelsieve.data import huggingface

        return huggingface.load(
            source, labelled=labelled, judged=judged, text_column=text_column, id_column=id_column,
            ignored=ignored, size=size, staging=staging, encoding=encoding, ask=ask, progress=progress,
        )  # fmt: skip
    if path.is_dir():
        from labelsieve.data import folder

        return folder.load(path, labelled=labelled, size=size, staging=staging, progress=progress, same=same)
    if path.is_file() and path.suffix.lower() == ".npz":
        from labelsieve.data import npz

        return npz.load(path, labelled=labelled, judged=judged, progress=progress)
    if path.is_file() and path.suffix.lower() in TABLES:
        from labelsieve.data import table

        return table.load(
            path, label_column=label_column, text_column=text_column, id_column=id_column, ignored=ignored,
            labelled=labelled, judged=judged, root=root, size=size, staging=staging, encoding=encoding, ask=ask,
            progress=progress, same=same,
        )  # fmt: skip
    if path.is_file():
        check_no_spreadsheet(path)
        raise InputError(f"{source} is no kind of file that can be read: give {KNOWN}")
    raise InputError(f"{source} is not there: give {KNOWN}")


def as_read(settings: Mapping[str, Any]) -> dict[str, Any]:
    """How a run's settings have `load_source` read its source; runs of earlier versions did not ask."""
    root, ignored = settings.get("root"), settings.get("ignore_columns")
    return {
        "label_column": str(settings.get("label_column") or "label"), "text_column": settings.get("text_column"),
        "id_column": str(settings.get("id_column") or "id"), "root": Path(root) if root else None,
        "size": settings.get("size"),
        "ignore_columns": tuple(map(str, ignored)) if isinstance(ignored, list) else (),
        "group_column": settings.get("group_column"),
        "ask": False,
    }  # fmt: skip


def check_classes(data: LabelledData) -> None:
    present = np.unique(data.y)
    if len(present) < 2:
        only = f" ({data.classes[int(present[0])]!r})" if len(present) and present[0] >= 0 else ""
        raise InputError(f"{data.name} has one class only{only}: there is nothing to tell apart")
    if len(data) >= FEW and 2 * len(present) > len(data):
        raise InputError(
            f"{data.name} has {len(present)} classes for {len(data)} samples, too few of each to learn from; if these "
            "are ids or texts, name the column with the labels: --label-column"
        )
