"""model.safetensors: the networks of a run and all that is needed to predict with them. Nothing in it can run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labelsieve.commands.reading import Reading
from labelsieve.errors import InputError
from labelsieve.files import atomic_path
from labelsieve.types import FloatArray, LabelledData

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

        from labelsieve.commands.models import factory_of
        from labelsieve.engine.bundle import Bundle
        from labelsieve.engine.device import choose_device
        from labelsieve.engine.evaluate import probabilities
        from labelsieve.engine.schedule import Schedule

        chosen = choose_device(device)
        store = self.reading.store(data, chosen, augment=False)
        factory = factory_of(self.name, self.reading.shape, len(self.classes))
        found = np.zeros((len(data), len(self.classes)))
        for state in self.states:
            bundle = Bundle(factory, [state], Schedule.incv_50(1), chosen)
            found += probabilities(bundle, store, np.arange(len(data)), 0).double().cpu().numpy()
            if chosen.type == "cuda":
                torch.cuda.empty_cache()
        return found / len(self.states)


def save(path: Path, model: Model) -> None:
    from safetensors.torch import save_file
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
        save_file(tensors, partial, metadata={"format": FORMAT, "about": json.dumps(about, default=str)})


def load(path: Path) -> Model:
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
    except (SafetensorError, OSError, KeyError, ValueError, IndexError, TypeError) as problem:
        if isinstance(problem, InputError):
            raise
        raise InputError(f"{path} is damaged ({str(problem).splitlines()[0]}): train again") from None
