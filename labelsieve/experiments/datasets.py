"""The data of the experiments: CIFAR-10 or synthetic pictures as arrays, WebVision as picture files.

`true` is used to corrupt labels and to measure, and for nothing else. Test and validation labels are read by
`evaluate` alone.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve import noise as corruption
from labelsieve.csv_files import read_records
from labelsieve.data.decode import ShorterSide
from labelsieve.engine import PictureStore, Store, stage_pictures
from labelsieve.errors import InputError
from labelsieve.experiments import records
from labelsieve.experiments.cells import Cell
from labelsieve.experiments.paper import Scale
from labelsieve.progress import SILENT, Progress
from labelsieve.selection.splits import halves
from labelsieve.types import IntArray, LabelledData

CORRUPTION, HALVES = 1, 2  # random streams of a seed


class ExperimentData(ABC):
    """Training pictures with labels, and the pictures that a trained network is evaluated on."""

    true: IntArray | None
    class_names: tuple[str, ...]

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @abstractmethod
    def digest(self) -> str:
        """Hash the pictures, for the record."""

    @abstractmethod
    def given(self, cell: Cell) -> IntArray:
        """Return the labels that a cell trains on: the same for all methods at the same noise and seed."""

    @abstractmethod
    def open_store(self, device: str, progress: Progress = SILENT) -> Store:
        """Return the training pictures as the engine reads them."""

    @abstractmethod
    def thumbnails(self, indices: NDArray[Any]) -> NDArray[np.uint8]:
        """Return small training pictures, for the record."""

    def test_store(self, training: Store) -> Store | None:
        """Return the pictures that are predicted after every epoch, if any."""
        return None

    def validation_stores(self, device: str, progress: Progress = SILENT) -> dict[str, Store]:
        """Return the sets that are predicted once, after the last epoch."""
        return {}

    def missing(self) -> str:
        """Say which listed pictures cannot be read; empty if all can."""
        return ""


# ---------------------------------------------------------------- CIFAR-10 and synthetic pictures


@dataclass(frozen=True)
class PictureArrays(ExperimentData):
    """Pictures in memory, with a test set."""

    pictures: NDArray[np.uint8]
    true: IntArray
    test_pictures: NDArray[np.uint8]
    _test_labels: IntArray = field(repr=False)
    class_names: tuple[str, ...]
    name: str
    people: Mapping[str, IntArray] = field(default_factory=dict)  # labels that people gave, by `Noise.pattern`

    def test_labels(self) -> IntArray:
        return self._test_labels

    def digest(self) -> str:
        return records.digest(self.pictures, self.test_pictures)

    def given(self, cell: Cell) -> IntArray:
        if cell.noise.by_people:
            if cell.noise.pattern not in self.people:
                raise InputError(f"{cell.id} needs people's labels, which {self.name} does not have")
            return self.people[cell.noise.pattern].copy()
        if cell.noise.pattern == "none" or cell.noise.ratio == 0:
            return self.true.copy()
        rng = np.random.default_rng([cell.seed, CORRUPTION])
        return np.asarray(corruption.corrupt(self.true, cell.noise.transition(self.classes), rng), dtype=np.int64)

    def halves(self, cell: Cell) -> tuple[IntArray, IntArray]:
        """Split the samples into D_1 and D_2 of section 5.1."""
        return halves(np.arange(len(self.true)), np.random.default_rng([cell.seed, HALVES]))

    def open_store(self, device: str, progress: Progress = SILENT) -> Store:
        return stage_pictures(self.pictures, device, augment=True)

    def test_store(self, training: Store) -> Store:
        assert isinstance(training, PictureStore)
        statistics = training.mean, training.std
        return stage_pictures(self.test_pictures, training.device, augment=False, statistics=statistics)

    def prediction_store(self, training: Store) -> Store:
        """Return the test pictures as `predict` reads them: in several views."""
        assert isinstance(training, PictureStore)
        store = stage_pictures(self.test_pictures, training.device, statistics=(training.mean, training.std))
        store.averages_views = True
        return store

    def thumbnails(self, indices: NDArray[Any]) -> NDArray[np.uint8]:
        return np.asarray(self.pictures[indices])


def open_cifar10(folder: Path | str | None, people: Iterable[str] = ()) -> PictureArrays:
    """Read CIFAR-10, and the labels of CIFAR-10N with these names."""
    from labelsieve.data.cifar import CIFAR10_CLASSES, arrays, human_labels

    if folder is None:
        raise InputError("give --data DIR, a folder with CIFAR-10; `labelsieve data fetch cifar10 --to DIR` creates it")
    x, y, x_test, y_test = arrays(folder)
    labels = {name: human_labels(folder, name) for name in people}
    return PictureArrays(x, y, x_test, y_test, CIFAR10_CLASSES, "cifar10", labels)


def synthetic(
    *, classes: int = 4, samples: int = 320, test_samples: int = 100, side: int = 8, mistakes: int = 5, seed: int = 0
) -> PictureArrays:
    """Generate small pictures that a small network can learn. The first `mistakes` labels are wrong."""
    rng = np.random.default_rng(seed)
    colours = np.array([[c >> 2 & 1, c >> 1 & 1, c & 1] for c in range(classes)]) * 60 + 90
    patterns = colours[:, None, None] + rng.uniform(-40, 40, (classes, side, side, 3))
    patterns = (patterns + patterns[:, :, ::-1]) / 2  # symmetric: a mirrored picture has the same class
    labels = rng.permutation(np.arange(samples + test_samples) % classes)
    pictures = np.clip(patterns[labels] + rng.normal(0, 25, (len(labels), side, side, 3)), 0, 255).astype(np.uint8)
    labels[:mistakes] = (labels[:mistakes] + 1) % classes
    return PictureArrays(
        pictures[:samples],
        labels[:samples],
        pictures[samples:],
        labels[samples:],
        tuple(f"class {i}" for i in range(classes)),
        "synthetic",
    )


# ---------------------------------------------------------------- WebVision

# Layout of DIR: WebVision 1.0 as `labelsieve.data.webvision` reads it, and ILSVRC12's validation set in DIR/ilsvrc12.
# `labelsieve data make-webvision` also writes planted_truth.csv. The paper's protocol refuses such a folder, because
# its pictures are generated. Real pictures have no known true labels, so nothing is measured that needs them.
ILSVRC, TRUTH = "ilsvrc12", "planted_truth.csv"
THUMBNAIL_SIDE = 96  # pixels, of the suspects in a record
GENERATED: dict[str, Any] = {"classes": 8, "train": 50, "validation": 10, "wrong": 0.2}  # the folder of a smoke run


@dataclass(frozen=True)
class WebVisionFiles(ExperimentData):
    """Picture files, with the validation sets `webvision` and `imagenet`."""

    training: LabelledData
    _validation: dict[str, LabelledData] = field(repr=False)
    true: IntArray | None
    crop: int
    class_names: tuple[str, ...]

    def validation_labels(self, name: str) -> IntArray:
        return self._validation[name].y

    def digest(self) -> str:
        """Hash the names and sizes of the files: reading all bytes would take as long as decoding."""
        arrays = []
        for data in self._sets():
            sizes = [Path(data.x.path(i)).stat().st_size for i in range(len(data))]
            arrays += [data.ids, np.array(sizes, dtype=np.int64)]
        return records.digest(*arrays)

    def given(self, cell: Cell) -> IntArray:
        return self.training.y.copy()

    def open_store(self, device: str, progress: Progress = SILENT) -> Store:
        return self._store(self.training, device, progress, augment=True)

    def validation_stores(self, device: str, progress: Progress = SILENT) -> dict[str, Store]:
        return {name: self._store(data, device, progress, augment=False) for name, data in self._validation.items()}

    def thumbnails(self, indices: NDArray[Any]) -> NDArray[np.uint8]:
        """Return the central squares, as supplement C shows them, in a smaller size."""
        small = self.training.x.resized(ShorterSide(min(THUMBNAIL_SIDE, self.training.x.side)))
        return np.asarray(small[indices])

    def counts(self) -> dict[str, int]:
        """Return the number of pictures of each set, and of listed pictures that cannot be read."""
        unread = sum(len(data.skipped) for data in self._sets())
        return {"training": len(self.training), "missing": unread} | {
            name: len(data) for name, data in self._validation.items()
        }

    def missing(self) -> str:
        if not (count := self.counts()["missing"]):
            return ""
        first = f"; the first is {self.training.skipped[0].id}" if self.training.skipped else ""
        return f"{count:,} listed pictures cannot be read and are skipped{first}"

    def _sets(self) -> tuple[LabelledData, ...]:
        return (self.training, *self._validation.values())

    def _store(self, data: LabelledData, device: str, progress: Progress, *, augment: bool) -> Store:
        from labelsieve.engine.picture_stores import picture_store

        return picture_store(data.x, device, crop=self.crop, augment=augment, progress=progress)


def open_webvision(scale: Scale, folder: Path | str | None, work: Path, progress: Progress = SILENT) -> WebVisionFiles:
    """Open the folder. A smoke run without a folder generates one under `work`."""
    if folder is None and scale.name == "smoke":
        folder = generate_webvision(work / "webvision-drawn", scale.side)
    elif folder is None:
        raise InputError(
            "give --data DIR, a folder with WebVision 1.0, and ILSVRC12's validation set in DIR/ilsvrc12; "
            "`--scale smoke` needs no data"
        )
    elif scale.name != "smoke" and (Path(folder) / TRUTH).exists():
        raise InputError(
            f"{folder} has generated pictures (it contains {TRUTH}); the paper's protocol needs the real ones: "
            "use --scale smoke"
        )
    return read_webvision(Path(folder), scale, progress)


def read_webvision(folder: Path, scale: Scale, progress: Progress = SILENT) -> WebVisionFiles:
    from labelsieve.data import webvision

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give --data DIR with WebVision 1.0 in it")
    # The small sets first, so that errors in them are reported before the long scan of the training pictures.
    ilsvrc = webvision.ilsvrc_validation(folder / ILSVRC, webvision=folder, side=scale.side, progress=progress)
    validation = {"webvision": webvision.validation(folder, side=scale.side, progress=progress), "imagenet": ilsvrc}
    training = webvision.training(folder, side=scale.side, progress=progress)
    true = read_truth(folder / TRUTH, training) if (folder / TRUTH).exists() else None
    return WebVisionFiles(training, validation, true, scale.crop, training.classes)


def read_truth(path: Path, data: LabelledData) -> IntArray:
    """Return the true class of each generated picture."""
    code = {name: i for i, name in enumerate(data.classes)}
    try:
        true = {row["id"]: code[row["true"]] for row in read_records(path)}
        return np.array([true[id] for id in data.ids.tolist()], dtype=np.int64)
    except KeyError as error:
        raise InputError(
            f"{path} does not match the pictures ({error.args[0]!r}): generate the folder again"
        ) from error


def generate_webvision(folder: Path, side: int) -> Path:
    """Generate the smoke run's folder unless it exists. An interrupted call leaves nothing behind."""
    if not folder.exists():
        from labelsieve.data.make_webvision import make

        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
            make(Path(partial) / "drawn", side=side, **GENERATED)
            (Path(partial) / "drawn").rename(folder)
    return folder


def open_data(
    scale: Scale, folder: Path | None, work: Path, cells: Sequence[Cell], progress: Progress = SILENT
) -> ExperimentData:
    """Open the data of a protocol that these cells need."""
    if scale.data.startswith("webvision"):
        return open_webvision(scale, folder, work, progress)
    if scale.data == "synthetic":
        return synthetic()
    return open_cifar10(folder, sorted({cell.noise.pattern for cell in cells if cell.noise.by_people}))
