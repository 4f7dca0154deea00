"""model.safetensors: the networks of a run and all that is needed to predict with them.

Nothing in it can run. A network made by a function of the user's own is named in it, and only named: it is imported
when the user names it as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labelsieve.errors import InputError
from labelsieve.files import atomic_path
from labelsieve.types import FloatArray, LabelledData
from labelsieve.workflow.sample_reader import Reading

if TYPE_CHECKING:
    import torch

FORMAT = "labelsieve-model-1"


@dataclass(frozen=True)
class Model:
    name: str  # what --model called it
    classes: tuple[Any, ...]
    reading: Reading
    states: Sequence[dict[str, torch.Tensor]]  # one a network
    method: str = ""

    def probabilities(self, data: LabelledData, *, device: str = "auto") -> FloatArray:
        """[n, classes]: the mean over the networks."""
        import torch

        from labelsieve.engine.bundle import Bundle
        from labelsieve.engine.device import choose_device
        from labelsieve.engine.evaluate import probabilities
        from labelsieve.engine.schedule import Schedule
        from labelsieve.workflow.choose_model import factory_of

        chosen = choose_device(device)
        _check_pictures(self.reading, data)
        factory = factory_of(self.name, self.reading.shape, len(self.classes))
        for state in self.states:
            _check_fits(factory, state)
        try:
            store = self.reading.store(data, chosen, augment=False)
        except (KeyError, IndexError, TypeError) as problem:
            raise InputError(f"the model's file is damaged ({problem!r}): train again") from None
        found = np.zeros((len(data), len(self.classes)))
        for state in self.states:
            bundle = Bundle(factory, [state], Schedule.incv_50(1), chosen)
            found += probabilities(bundle, store, np.arange(len(data)), 0).double().cpu().numpy()
            if chosen.type == "cuda":
                torch.cuda.empty_cache()
        return found / len(self.states)


def _check_pictures(reading: Reading, data: LabelledData) -> None:
    """Pictures that lie in memory keep their size and their channels; files are brought to the model's."""
    if reading.kind != "pictures" or data.kind != "pictures" or not isinstance(data.x, np.ndarray):
        return
    channels, height, width = reading.shape
    if (there := data.x.shape[1:]) != (height, width, channels):
        raise InputError(
            f"{data.name} has pictures of {there[0]} x {there[1]} pixels and {there[2]} channels, the model was "
            f"trained on {height} x {width} and {channels}"
        )


def _check_fits(factory: Callable[..., Any], state: dict[str, torch.Tensor]) -> None:
    """Are these the weights of that network? It is laid out without memory, so that no size in the file costs any."""
    import torch

    with torch.device("meta"):
        expected = {name: tensor.shape for name, tensor in factory().state_dict().items()}
    found = {name: tensor.shape for name, tensor in state.items()}
    if found != expected:
        wrong = min(name for name in {*expected, *found} if expected.get(name) != found.get(name))
        raise InputError(f"the model's file is damaged ({wrong[:60]} does not fit the network): train again")


def in_order(content: bytes) -> bytes:
    """A safetensors file with its metadata sorted: the library writes them in another order every time, and the same
    training should give the same file."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def save(path: Path, model: Model) -> None:
    from safetensors.torch import save as to_bytes
    from torch import as_tensor

    tensors = {
        f"network{i}.{name}": tensor.contiguous()
        for i, state in enumerate(model.states)
        for name, tensor in state.items()
    }
    tensors |= {f"reading.{name}": as_tensor(np.ascontiguousarray(a)) for name, a in model.reading.arrays.items()}
    about = {
        "model": model.name,
        "method": model.method,
        "classes": [name.item() if isinstance(name, np.generic) else name for name in model.classes],
        "kind": model.reading.kind,
        "shape": list(model.reading.shape),
        "networks": len(model.states),
        "encoding": model.reading.encoding.to_json() if model.reading.encoding is not None else None,
    }
    with atomic_path(path) as partial:
        # Not `save_file`: that makes files that nobody else may read.
        described = {"format": FORMAT, "about": json.dumps(about, default=str)}
        partial.write_bytes(in_order(to_bytes(tensors, metadata=described)))


def load(path: Path, *, network: str | None = None) -> Model:
    """The model at `path`. `network` is the package.module:Name that may be imported for it."""
    from safetensors import SafetensorError, safe_open

    from labelsieve.data.columns import Encoding

    if not path.is_file():
        raise InputError(f"{path} is not there: train first, with `labelsieve train` or `labelsieve run`")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise InputError(f"{path} is not a model of labelsieve")
            about = json.loads(metadata["about"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        _check(about)
        if ":" in about["model"] and about["model"] != network:
            raise InputError(
                f"{path} was made with code, {about['model']!r}: if you trust it, give --network {about['model']}"
            )
        states: list[dict[str, Any]] = [{} for _ in range(about["networks"])]
        arrays = {}
        for name, tensor in tensors.items():
            where, _, rest = name.partition(".")
            if where == "reading":
                arrays[rest] = tensor.numpy()
            else:
                states[int(where.removeprefix("network"))][rest] = tensor
        encoding = Encoding.from_json(about["encoding"]) if about["encoding"] is not None else None
        reading = Reading(about["kind"], tuple(about["shape"]), arrays, encoding)
        return Model(about["model"], tuple(about["classes"]), reading, states, about["method"])
    except (SafetensorError, OSError, KeyError, ValueError, IndexError, TypeError, RecursionError) as problem:
        if isinstance(problem, InputError):
            raise
        raise InputError(f"{path} is damaged ({' '.join(str(problem).split())[:200]}): train again") from None


def _check(about: Any) -> None:
    """ValueError where the description is not one that `save` writes."""
    kinds = {"pictures": 3, "table": 1, "text": 1}
    whole = isinstance(about["networks"], int) and 1 <= about["networks"] <= 100
    shape = about["shape"]
    sides = isinstance(shape, list) and len(shape) == kinds[about["kind"]]
    names = isinstance(about["model"], str) and isinstance(about["method"], str)
    classes = isinstance(about["classes"], list) and all(isinstance(name, str | int) for name in about["classes"])
    if not (whole and sides and names and classes and about["classes"] and len(about["model"]) <= 200):
        raise ValueError("its description is not one of a model")
    if not all(type(side) is int and 1 <= side <= 10_000_000 for side in shape):
        raise ValueError(f"shape {shape}")
    for column in about["encoding"] or ():
        known = column["kind"] in ("number", "category") and isinstance(column["levels"], list)
        if not (known and all(type(column[name]) is bool for name in ("gaps", "others"))):
            raise ValueError("a column that is not one of a table")
