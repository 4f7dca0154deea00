"""Checkpoints: one safetensors file each, written atomically; the two newest are kept.

The header contains a JSON description and a checksum of the tensors. Nothing is unpickled. If the newest file is
damaged, a warning is given and the one before it is used.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labelsieve.files import atomic_file, regular_file

KEEP = 2  # if the newest checkpoint is damaged, the one before it is used


class CheckpointWarning(UserWarning):
    """A checkpoint is damaged; an older one is used."""


def fingerprint(*parts: Any) -> str:
    """A short hash of settings and arrays."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(str((part.dtype.str, part.shape)).encode() + np.ascontiguousarray(part).tobytes())
        else:
            digest.update(json.dumps(part, sort_keys=True, default=str).encode())
    return digest.hexdigest()[:16]


def save(folder: Path, number: int, tensors: dict[str, Tensor], meta: dict[str, Any]) -> Path:
    """Write checkpoint `number`, which must increase, and remove all but the newest ones."""
    from safetensors.torch import save as to_bytes

    folder.mkdir(parents=True, exist_ok=True)
    on_cpu = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    described = {"meta": json.dumps(meta), "checksum": _checksum(on_cpu, meta)}
    path = folder / f"{number:09d}.safetensors"
    with atomic_file(path) as file:
        file.write(to_bytes(on_cpu, metadata=described))
    for old in _files(folder)[:-KEEP]:
        old.unlink(missing_ok=True)
    return path


def load_newest(folder: Path) -> tuple[int, dict[str, Tensor], dict[str, Any]] | None:
    """Return number, tensors and description of the newest readable checkpoint, or None."""
    for path in reversed(_files(folder)):
        try:
            tensors, meta = load(path)
        except (OSError, ValueError) as problem:
            warnings.warn(f"{path.name} is damaged ({problem}); using the one before it", CheckpointWarning, 2)
            continue
        return int(path.stem), tensors, meta
    return None


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a checkpoint. Raise ValueError if it is damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(regular_file(path), framework="pt") as file:
            described = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, RuntimeError) as problem:
        raise ValueError(str(problem).splitlines()[0][:300]) from None
    try:
        meta = json.loads(described["meta"])
        expected = described["checksum"]
    except (KeyError, json.JSONDecodeError, RecursionError):
        raise ValueError("its description is missing") from None
    if _checksum(tensors, meta) != expected:
        raise ValueError("its checksum does not match")
    return tensors, meta


def _checksum(tensors: dict[str, Tensor], meta: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(meta).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if re.fullmatch(r"\d{9}\.safetensors", path.name))
