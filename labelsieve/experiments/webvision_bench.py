"""WebVision's pictures as an experiment sees them: files until a device holds them, and two validation sets.

    DIR             WebVision 1.0 as `labelsieve.data.webvision` reads it
    DIR/ilsvrc12    ILSVRC12's validation set, in any of the forms read there

A folder that `labelsieve data make-webvision` wrote is told by its planted_truth.csv. Its numbers are trials of the
code, so the paper's protocol refuses it; real pictures have no truth, and nothing is measured that would need one.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.errors import InputError
from labelsieve.experiments.cells import Cell
from labelsieve.experiments.records import digest
from labelsieve.experiments.settings import Scale
from labelsieve.progress import Progress
from labelsieve.types import IntArray, LabelledData

if TYPE_CHECKING:
    from labelsieve.data.device_pictures import DevicePictures
    from labelsieve.data.stream import PictureStream

ILSVRC, TRUTH = "ilsvrc12", "planted_truth.csv"
LAYOUT = ("info/synsets.txt", "info/train_filelist_google.txt", "info/val_filelist.txt", "val_images_256", ILSVRC)
THUMBNAIL = 96  # pixels a side: what a record keeps of a suspect
FEW = 4096  # pictures that are decoded before processes would have started
DRAWN = {"classes": 8, "train": 50, "validation": 10, "wrong": 0.2}  # the smoke scale's folder


@dataclass(frozen=True)
class WebVisionBench:
    """`true` (drawn pictures only) measures, nothing else; validation labels are asked for by `evaluate` alone."""

    training: LabelledData
    _validation: dict[str, LabelledData] = field(repr=False)
    true: IntArray | None
    crop: int
    name: str

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.training.classes

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @property
    def sets(self) -> tuple[str, ...]:
        return tuple(self._validation)

    def validation_labels(self, which: str) -> IntArray:
        return self._validation[which].y

    @cached_property
    def digest(self) -> str:
        """Of the files' names and sizes: reading every byte of them would take as long as decoding."""
        found = []
        for data in (self.training, *self._validation.values()):
            sizes = [Path(data.x.path(i)).stat().st_size for i in range(len(data))]
            found += [data.ids, np.array(sizes, dtype=np.int64)]
        return digest(*found)

    def given(self, cell: Cell) -> IntArray:
        return self.training.y.copy()

    def open_store(self, device: str, progress: Progress | None = None) -> DevicePictures | PictureStream:
        return self._store(self.training, device, progress, augment=True)

    def open_validation(
        self, which: str, device: str, progress: Progress | None = None
    ) -> DevicePictures | PictureStream:
        return self._store(self._validation[which], device, progress, augment=False)

    def _store(
        self, data: LabelledData, device: str, progress: Progress | None, *, augment: bool
    ) -> DevicePictures | PictureStream:
        from labelsieve.data.device_pictures import picture_store

        workers = 0 if len(data) <= FEW else None
        return picture_store(data.x, device, crop=self.crop, augment=augment, workers=workers, progress=progress)

    def thumbnails(self, indices: NDArray[Any]) -> NDArray[np.uint8]:
        """The middle squares, as supplement C shows them, but small."""
        small = replace(self.training.x, side=min(THUMBNAIL, self.training.x.side), unreadable={})
        return np.asarray(small[indices])

    def counts(self) -> dict[str, int]:
        """How many pictures there are, and how many listed ones are not there."""
        every = (self.training, *self._validation.values())
        found = {"training": len(self.training), "missing": sum(len(data.skipped) for data in every)}
        return found | {name: len(data) for name, data in self._validation.items()}


def open_webvision(
    scale: Scale, folder: Path | str | None, work: Path, progress: Progress | None = None
) -> WebVisionBench:
    """From the folder; a smoke run without one draws its own under `work`."""
    if folder is None and scale.name == "smoke":
        return read(drawn(work / "webvision-drawn", scale.side), scale, progress)
    if folder is None:
        raise InputError(
            "give --data DIR, a folder with WebVision 1.0 and, in DIR/ilsvrc12, ILSVRC12's validation set; "
            "`--scale smoke` needs neither"
        )
    if scale.name != "smoke" and (Path(folder) / TRUTH).exists():
        raise InputError(
            f"{folder}: its pictures are drawn ({TRUTH} is there), and results come from real ones; "
            "try it with --scale smoke"
        )
    return read(Path(folder), scale, progress)


def read(folder: Path, scale: Scale, progress: Progress | None = None) -> WebVisionBench:
    from labelsieve.data import webvision

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give --data DIR with WebVision 1.0 in it")
    missing = [name for name in LAYOUT if not (folder / name).exists() and not _elsewhere(folder, name)]
    if missing:
        raise InputError(
            f"{folder} is not WebVision 1.0 with ILSVRC12's validation set in {ILSVRC}: {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing"
        )
    # The few first: what is wrong with them is told before many pictures have been looked at.
    ilsvrc = webvision.ilsvrc_validation(folder / ILSVRC, webvision=folder, side=scale.side, progress=progress)
    validation = {"webvision": webvision.validation(folder, side=scale.side, progress=progress), "imagenet": ilsvrc}
    training = webvision.training(folder, side=scale.side, progress=progress)
    truth = folder / TRUTH
    true = planted(truth, training) if truth.exists() else None
    return WebVisionBench(training, validation, true, scale.crop, scale.data)


def _elsewhere(folder: Path, name: str) -> bool:
    from labelsieve.data.webvision import VALIDATION_FOLDERS

    return name in VALIDATION_FOLDERS and any((folder / other).is_dir() for other in VALIDATION_FOLDERS)


def planted(path: Path, data: LabelledData) -> IntArray:
    """What each picture shows, by its id."""
    code = {name: i for i, name in enumerate(data.classes)}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            shown = {row["id"]: code[row["true"]] for row in csv.DictReader(file)}
        return np.array([shown[id] for id in data.ids.tolist()], dtype=np.int64)
    except KeyError as error:
        raise InputError(f"{path}: does not go with the pictures ({error.args[0]!r}); draw the folder again") from error


def drawn(folder: Path, side: int) -> Path:
    """The smoke scale's folder, drawn where it is not there yet; a stopped drawing leaves nothing."""
    if not folder.exists():
        import tempfile

        from labelsieve.data.make_webvision import make

        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as aside:
            make(Path(aside) / "drawn", side=side, **DRAWN)  # type: ignore[arg-type]
            (Path(aside) / "drawn").rename(folder)
    return folder
