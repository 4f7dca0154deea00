"""What SOURCE means on the command line, and the one function that reads it.

ROOT/            a folder of class folders with pictures
FILE.csv         (also .tsv, .parquet) with a label column and either path, texts or feature columns
FILE.npz         with x and y
cifar10:DIR      cifar100:DIR      cifar10n:DIR?labels=worse      webvision:DIR      hf:NAME_OR_DIR
digits           embedded
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from labelsieve.data.conflicts import Same, about_conflicts
from labelsieve.data.labels import LabelFile, about_case, about_stripped, with_labels
from labelsieve.errors import InputError
from labelsieve.progress import Overheard, Progress
from labelsieve.types import LabelledData

if TYPE_CHECKING:
    from labelsieve.data.columns import Encoding
    from labelsieve.data.pictures import Size

TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
KNOWN = (
    "a folder of class folders, a .csv, .tsv, .parquet or .npz file, cifar10:DIR, cifar100:DIR, cifar10n:DIR, "
    "webvision:DIR, hf:NAME_OR_DIR or digits"
)


def load_source(
    source: str,
    *,
    labels: LabelFile | None = None,
    label_column: str = "label",
    text_column: str | None = None,
    id_column: str = "id",
    labelled: bool = True,
    root: Path | None = None,
    size: Size = None,
    staging: Path | None = None,
    encoding: Encoding | None = None,
    progress: Progress | None = None,
) -> LabelledData:
    """Samples in input order. `labels` replaces the given labels; `labelled=False` reads samples to predict.

    `staging` keeps decoded pictures for the next start; `encoding` reads a table as an earlier one was read. What is
    odd about the samples or their labels is told to `progress`, and in the data's `notes`.
    """
    progress = Overheard(progress or Progress(silent=True))
    same = Same() if labelled else None
    # Labels from a file make the source's own unnecessary, unless they are decisions on some of them.
    needs_labels = labelled and (labels is None or labels.partial)
    scheme = source.partition(":")[0]
    path = Path(source)
    if source == "digits":  # a folder of that name is ./digits
        from labelsieve.data import digits

        data = digits.load()
    elif scheme in ("cifar10", "cifar100", "cifar10n"):
        from labelsieve.data import cifar

        data = cifar.load(source)
    elif scheme == "webvision":
        from labelsieve.data import webvision

        data = webvision.load(source, size=size)
    elif scheme == "hf":
        from labelsieve.data import huggingface

        data = huggingface.load(
            source, labelled=needs_labels, text_column=text_column, id_column=id_column, size=size, staging=staging,
            encoding=encoding, progress=progress,
        )  # fmt: skip
    elif path.is_dir():
        from labelsieve.data import folder

        data = folder.load(path, labelled=needs_labels, size=size, staging=staging, progress=progress, same=same)
    elif path.is_file() and path.suffix.lower() == ".npz":
        from labelsieve.data import npz

        data = npz.load(path, labelled=needs_labels, progress=progress)
    elif path.is_file() and path.suffix.lower() in TABLES:
        from labelsieve.data import table

        data = table.load(
            path, label_column=label_column, text_column=text_column, id_column=id_column, labelled=needs_labels,
            root=root, size=size, staging=staging, encoding=encoding, progress=progress, same=same,
        )  # fmt: skip
    elif path.is_file():
        raise InputError(f"{source} is no kind of file that can be read: give {KNOWN}")
    else:
        raise InputError(f"{source} is not there: give {KNOWN}")
    if labels is not None:
        data = with_labels(data, labels)
        if labels.stripped:
            progress.note(f"{labels.path}: {about_stripped(labels.stripped)}")
    if labelled:
        check_classes(data)
    if same is not None:
        present = (data.classes[code] for code in np.unique(data.y).tolist())
        for note in (about_case(present), about_conflicts(data, same)):
            if note is not None:
                progress.note(note)
    return replace(data, notes=tuple(progress.said))


def check_classes(data: LabelledData) -> None:
    present = np.unique(data.y)
    if len(present) < 2:
        only = f" ({data.classes[int(present[0])]!r})" if len(present) and present[0] >= 0 else ""
        raise InputError(f"{data.name} has one class only{only}: there is nothing to tell apart")
