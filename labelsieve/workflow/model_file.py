"""model.safetensors: the networks or the classifier of a run, and how they read samples.

The file contains no code. A network of the user's own is stored by its name only, and it is imported only if the user
names it again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.columns import Encoding, encoding_of
from labelsieve.data.pictures import PictureSequence
from labelsieve.data.read_pictures import picture_shape
from labelsieve.data.text import TextFeatures
from labelsieve.errors import InputError
from labelsieve.files import atomic_file, regular_file
from labelsieve.models.choose import ModelChoice, SampleInfo, choose_network
from labelsieve.models.stored_classifier import check_arrays, predict_arrays
from labelsieve.types import AUGMENT, FloatArray, Kind, LabelledData

if TYPE_CHECKING:
    import torch

    from labelsieve.engine import Store

FORMAT = "labelsieve-model-1"
KINDS: dict[Kind, str] = {"pictures": "pictures", "table": "rows of numbers", "text": "texts"}


@dataclass(frozen=True)
class EmbeddedSamples:
    """The pretrained model that turns samples into the rows that a network reads."""

    name: str
    revision: str
    kind: Kind  # of the samples
    side: int | None = None  # shorter side of the pictures

    @classmethod
    def of(cls, data: LabelledData) -> EmbeddedSamples | None:
        """Describe the embedding of the samples; None if they have none."""
        if data.embedding is None:
            return None
        side = data.x.side if isinstance(data.x, PictureSequence) else None
        return cls(data.embedding.model.name, data.embedding.model.revision, data.kind, side)


@dataclass(frozen=True)
class SampleReader:
    """How a network reads samples: learned from the training samples, used for new ones.

    Pictures are normalised per channel and rows per column; texts become rows first.
    """

    kind: Kind
    shape: tuple[int, ...]  # of one sample as the network reads it, channels first
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    encoding: Encoding | None = None  # of the columns of a table
    embedded: EmbeddedSamples | None = None  # if the network reads embeddings

    @classmethod
    def learn(cls, data: LabelledData) -> SampleReader:
        """Learn the statistics of the training samples."""
        if (embedded := EmbeddedSamples.of(data)) is not None:
            return replace(cls.learn(data.features()), encoding=encoding_of(data.x), embedded=embedded)
        if data.kind == "pictures":
            shape = SampleInfo.of(data).shape
            if picture_shape(data.x) is None:
                return cls("pictures", shape)
            from labelsieve.engine.store import channel_statistics

            mean, std = channel_statistics(data.x)
            return cls("pictures", shape, {"mean": mean, "std": std})
        from labelsieve.engine.store import row_statistics

        arrays: dict[str, NDArray[Any]] = {}
        encoding = encoding_of(data.x)
        features = encoding.features if encoding is not None else None
        if data.kind == "text":
            features = TextFeatures.learn(data.x)
            rows = features.rows(data.x)
        else:
            rows = np.asarray(data.x, dtype=np.float32)
        if features is not None:
            arrays |= {"idf": features.idf, "components": features.components}
        if features is not None and encoding is not None and data.kind == "table":  # numbers, then texts
            at = encoding.number_width
            parts = row_statistics(rows[:, :at]), row_statistics(rows[:, at:], texts=True)
            arrays["centre"], arrays["spread"] = map(np.concatenate, zip(*parts, strict=True))
        else:
            arrays["centre"], arrays["spread"] = row_statistics(rows, texts=data.kind == "text")
        return cls(data.kind, tuple(rows.shape[1:]), arrays, encoding)

    @property
    def info(self) -> SampleInfo:
        """What decides which network reads the samples."""
        if self.kind == "pictures":
            return SampleInfo("pictures", 0, self.shape)
        return SampleInfo("table" if len(self.shape) == 1 else "arrays", 0, self.shape)

    def check_samples(self, data: LabelledData) -> None:
        """Raise InputError unless these are samples of the same kind and, for rows, of the same length."""
        if data.kind != self.kind:
            raise InputError(f"{data.name} holds {KINDS[data.kind]}, the model was trained on {KINDS[self.kind]}")
        if self.kind == "table" and (found := np.shape(data.x)[1:]) != self.shape:
            shapes = f"{list(found)}, the model was trained on shape {list(self.shape)}"
            raise InputError(f"{data.name} has samples of shape {shapes}")
        size = picture_shape(data.x) if self.kind == "pictures" else None
        if size is not None and size != (*self.shape[1:], self.shape[0]):
            channels, height, width = self.shape
            raise InputError(
                f"{data.name} has pictures of {size[0]} x {size[1]} pixels and {size[2]} channels, the model was "
                f"trained on {height} x {width} pixels and {channels} channels"
            )

    def store(self, data: LabelledData, device: torch.device, *, augment: str = "none") -> Store:
        """Return the samples as the engine reads them; `augment` is "mirror", "shift" or "none"."""
        self.check_samples(data)
        if self.kind == "pictures":
            store = self._picture_store(data, device, augment=augment != "none")
            if augment == "shift":
                store.disable_mirroring()
            return store
        from labelsieve.engine import VectorStore

        if self.kind == "text":
            rows = TextFeatures(self.arrays["idf"], self.arrays["components"]).rows(data.x)
        else:
            rows = np.asarray(data.x, dtype=np.float32)
        return VectorStore((rows - self.arrays["centre"]) / self.arrays["spread"], device)

    def _picture_store(self, data: LabelledData, device: torch.device, *, augment: bool) -> Store:
        from labelsieve.engine import stage_pictures
        from labelsieve.engine.picture_stores import picture_store

        if picture_shape(data.x) is None:
            return picture_store(data.x, device, crop=self.shape[1], augment=augment)
        statistics = self.arrays["mean"], self.arrays["std"]
        if isinstance(data.x, PictureSequence):
            return picture_store(data.x, device, augment=augment, statistics=statistics)
        return stage_pictures(data.x, device, augment=augment, statistics=statistics)


@dataclass(frozen=True)
class Model:
    """Trained networks, whose predictions are averaged; or a classifier, whose arrays the reader has."""

    name: str  # of the network, as --network takes it, or of the classifier
    classes: tuple[Any, ...]
    reader: SampleReader
    states: Sequence[dict[str, torch.Tensor]]  # one per network; none for a classifier
    method: str = ""
    augment: str = "none"  # of the training; pictures that it mirrors are predicted in two views

    def probabilities(self, data: LabelledData, *, device: str = "auto") -> FloatArray:
        """Return the probability of each class for each sample, [n, classes]."""
        if not self.states:
            self.reader.check_samples(data)
            x = data.x if self.reader.kind == "pictures" else np.asarray(data.x)
            return predict_arrays(self.reader.arrays, x, len(self.classes))
        from labelsieve.engine.device import choose_device
        from labelsieve.engine.evaluate import mean_probabilities

        chosen = choose_device(device)
        _, factory = network_for(self.name, self.reader, len(self.classes), chosen.type)
        for state in self.states:
            _check_fits(factory, state)
        try:
            store = self.reader.store(data, chosen, augment=self.augment)
        except (KeyError, IndexError, TypeError) as problem:
            raise InputError(f"the model file is damaged ({problem!r}); train again") from None
        store.averages_views = True
        chunks = mean_probabilities(store, factory, self.states, np.arange(len(data)))
        return np.concatenate([p for _, p in chunks])


def network_for(
    network: Any, reader: SampleReader, classes: int, device_type: str, *, option: str = "--network"
) -> Any:
    """Return the chosen network and its factory for samples that `reader` reads."""
    from labelsieve.execute.build_trainer import build_network

    choice: ModelChoice = choose_network(network, reader.info, classes, device_type=device_type, option=option)
    return choice, build_network(choice, reader.shape, classes)


def _check_fits(factory: Any, state: dict[str, torch.Tensor]) -> None:
    """Raise InputError unless these are weights of that network, which is built without memory for its weights."""
    import torch

    with torch.device("meta"):
        expected = {name: tensor.shape for name, tensor in factory().state_dict().items()}
    found = {name: tensor.shape for name, tensor in state.items()}
    if found != expected:
        wrong = min(name for name in {*expected, *found} if expected.get(name) != found.get(name))
        raise InputError(f"the model file is damaged ({wrong[:60]} does not fit the network); train again")


def sort_metadata(content: bytes) -> bytes:
    """Sort the metadata of a safetensors file, so that the same training gives the same file."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def save(path: Path, model: Model) -> None:
    """Write a model atomically."""
    from safetensors.torch import save as to_bytes
    from torch import as_tensor

    tensors = {
        f"network{i}.{name}": tensor.contiguous()
        for i, state in enumerate(model.states)
        for name, tensor in state.items()
    }
    reader = model.reader
    tensors |= {f"reading.{name}": as_tensor(np.ascontiguousarray(array)) for name, array in reader.arrays.items()}
    about = {
        "model": model.name,
        "method": model.method,
        "augment": model.augment,
        "classes": [name.item() if isinstance(name, np.generic) else name for name in model.classes],
        "kind": reader.kind,
        "shape": list(reader.shape),
        "networks": len(model.states),
        "encoding": reader.encoding.to_json() if reader.encoding is not None else None,
        "embedded": asdict(reader.embedded) if reader.embedded is not None else None,
    }
    with atomic_file(path) as file:
        # Not `save_file`, whose files other users cannot read.
        described = {"format": FORMAT, "about": json.dumps(about, default=str)}
        file.write(sort_metadata(to_bytes(tensors, metadata=described)))


def load(path: Path, *, network: str | None = None) -> Model:
    """Read a model. `network` is the package.module:Name that may be imported for it."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise InputError(f"{path} does not exist; train first, with `labelsieve train` or `labelsieve run`")
    try:
        with safe_open(regular_file(path), framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise InputError(f"{path} is not a model of labelsieve")
            about = json.loads(metadata["about"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        _check(about)
        if ":" in about["model"] and about["model"] != network:
            raise InputError(
                f"{path} needs the code of {about['model']!r}; if you trust it, give --network {about['model']}"
            )
        states: list[dict[str, Any]] = [{} for _ in range(about["networks"])]
        arrays = {}
        for name, tensor in tensors.items():
            owner, _, rest = name.partition(".")
            if owner == "reading":
                arrays[rest] = tensor.numpy()
            else:
                states[int(owner.removeprefix("network"))][rest] = tensor
        encoding = Encoding.from_json(about["encoding"]) if about["encoding"] is not None else None
        if encoding is not None and about["kind"] == "table" and "idf" in arrays:
            encoding = replace(encoding, features=TextFeatures(arrays["idf"], arrays["components"]))
        embedded = EmbeddedSamples(**about["embedded"]) if about.get("embedded") else None
        reader = SampleReader(about["kind"], tuple(about["shape"]), arrays, encoding, embedded)
        if not states:
            check_arrays(arrays, reader.shape, len(about["classes"]))
        return Model(
            about["model"], tuple(about["classes"]), reader, states, about["method"], about.get("augment", "none")
        )
    except InputError:
        raise
    except (SafetensorError, OSError, KeyError, ValueError, IndexError, TypeError, RecursionError) as problem:
        raise InputError(f"{path} is damaged ({' '.join(str(problem).split())[:200]}); train again") from None


def _check(about: Any) -> None:
    """Raise ValueError unless the description is one that `save` writes."""
    axes = {"pictures": 3, "table": 1, "text": 1}
    whole = isinstance(about["networks"], int) and 0 <= about["networks"] <= 100
    shape = about["shape"]
    sides = isinstance(shape, list) and len(shape) == axes[about["kind"]]
    names = isinstance(about["model"], str) and isinstance(about["method"], str)
    classes = isinstance(about["classes"], list) and all(isinstance(name, str | int) for name in about["classes"])
    names = names and about.get("augment", "none") in AUGMENT[1:]
    if not (whole and sides and names and classes and about["classes"] and len(about["model"]) <= 200):
        raise ValueError("its description is not that of a model")
    embedded = about.get("embedded") or {"name": "", "revision": "", "kind": "text", "side": None}
    texts = (embedded["name"], embedded["revision"], embedded["kind"])
    if not all(isinstance(text, str) for text in texts) or not isinstance(embedded["side"], int | None):
        raise ValueError("its embedding is not described")
    if not all(type(side) is int and 1 <= side <= 10_000_000 for side in shape):
        raise ValueError(f"shape {shape}")
    for column in about["encoding"] or ():
        known = column["kind"] in ("number", "category") and isinstance(column["levels"], list)
        if not (known and all(type(column[name]) is bool for name in ("gaps", "others"))):
            raise ValueError("a column that is not one of a table")
