"""Data-parallel training: every process has all networks and reads a part of each batch.

    torchrun --nproc-per-node 4 --max-restarts 3 -m labelsieve run ...

The engine uses a `World`; a world of one process changes nothing. In a larger one process r reads samples r, r + size,
r + 2 size, ... of a batch. The following is computed for the whole batch:

    batch norm   counts, means and squared deviations are gathered, and their gradients summed
    losses       outputs are gathered, so that every process has the loss of the whole batch (co-teaching ranks it);
                 the gradient of that loss goes to the process' own outputs only
    gradients    summed over the processes before the optimizer's step
    scoring      each process scores a part of the samples, then the outputs are gathered

So the networks of all processes stay equal, and equal to those of one process with the same batches.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.distributed_c10d import Store as Connections
from torch.distributed.rendezvous import rendezvous
from torch.nn import functional as F

from labelsieve.engine.device import choose_device
from labelsieve.errors import InputError
from labelsieve.files import OWN_LINKS, atomic_file, read_bytes
from labelsieve.models.kernels import reference
from labelsieve.models.layers import BatchNorm
from labelsieve.types import Store

TIMEOUT = timedelta(hours=2)  # torchrun notices a process that died; this is for one that hangs
PROBED = 32  # samples that the processes compare
# Files that other stages of a run read. Staged pictures are linked; checkpoints and models come from the first process.
SMALL_FILES = ("*.json", "*.jsonl", "*.csv", "checkpoints/select/*")


@dataclass(frozen=True)
class World:
    """The processes that train together, seen from one of them."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # among the processes of this machine

    # -- a step: the batch's columns ---------------------------------------------------------------------------------

    def local_columns(self, columns: Tensor) -> Tensor:
        """The part of [n, B] that this process reads; all parts are equally long, padded with 0 (False)."""
        if self.size == 1:
            return columns
        missing = -columns.shape[1] % self.size
        return F.pad(columns, (0, missing))[:, self.rank :: self.size]

    def gather_columns(self, outputs: Tensor, width: int) -> Tensor:
        """The inverse of `local_columns` for outputs, [n, b, ...] -> [n, width, ...].

        The gradient goes to the part of this process.
        """
        if self.size == 1:
            return outputs
        gathered: Tensor = _Whole.apply(outputs, self)  # type: ignore[no-untyped-call]
        return gathered[:, :width]

    def statistics(self, own: Tensor) -> Tensor:
        """The tensors of all processes, [size, ...]; gradients are summed over the processes."""
        gathered: Tensor = _Statistics.apply(own, self)  # type: ignore[no-untyped-call]
        return gathered

    def add_up(self, gradient: Tensor) -> Tensor:
        """Sum a tensor over the processes, in place."""
        if self.size > 1:
            dist.all_reduce(gradient)
        return gradient

    # -- agreement ---------------------------------------------------------------------------------------------------

    def any(self, flag: bool) -> bool:
        """Whether the flag is true in any process."""
        return flag if self.size == 1 else any(self.gather_values(flag))

    def gather_values(self, value: Any) -> list[Any]:
        """The values of all processes, by rank."""
        values: list[Any] = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value)
        return values

    def broadcast(self, value: Any) -> Any:
        """The value of the first process."""
        if self.size == 1:
            return value
        held = [value if self.rank == 0 else None]
        dist.broadcast_object_list(held, src=0, device=torch.device("cpu"))
        return held[0]

    def check_agreement(self, store: Store, settings: str) -> None:
        """Raise InputError if the processes do not have the same data, labels and settings."""
        if self.size == 1:
            return
        found = self.gather_values((len(store), settings, _probe(store)))
        for rank, (samples, fingerprint, probe) in enumerate(found[1:], 1):
            if samples != found[0][0]:
                what = f"data: process 0 has {found[0][0]:,} samples, process {rank} has {samples:,}"
            elif fingerprint != found[0][1]:
                what = f"settings or labels: process {rank} has others than process 0"
            elif probe.shape != found[0][2].shape or not np.allclose(probe, found[0][2], rtol=1e-3, atol=1e-4):
                what = f"data: process {rank} reads other samples than process 0"
            else:
                continue
            raise InputError(f"the processes disagree about the {what}; give every machine the same source and command")

    # -- files -------------------------------------------------------------------------------------------------------

    @contextmanager
    def one_first(self) -> Iterator[None]:
        """Let the first process of each machine run first, so that it stages the data for the others."""
        if self.size > 1 and self.local_rank:
            dist.barrier()
        try:
            yield
        finally:
            if self.size > 1 and not self.local_rank:
                dist.barrier()

    def folder(self, run: Path) -> Path:
        """The run folder for the first process; for the others a temporary copy of its small files.

        So all processes take the same decisions, and only the files of the first one are kept.
        """
        if self.size == 1:
            return run
        if self.rank == 0:
            small = [path for pattern in SMALL_FILES for path in run.glob(pattern) if path.is_file()]
            self.broadcast({str(path.relative_to(run)): read_bytes(path) for path in small})
            return run
        files: dict[str, bytes] = self.broadcast(None)
        own = Path(tempfile.mkdtemp(prefix="labelsieve-"))
        atexit.register(shutil.rmtree, own, ignore_errors=True)
        for name, content in files.items():
            with atomic_file(own / name) as file:
                file.write(content)
        if self.local_rank == 0:  # this machine may not share the disk of the first one
            (run / "staged").mkdir(parents=True, exist_ok=True)
        OWN_LINKS.add(own / "staged")
        (own / "staged").symlink_to((run / "staged").absolute(), target_is_directory=True)
        return own


ALONE = World()


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, world: World) -> Tensor:
        ctx.world = world
        gathered = torch.stack(_gathered(own, world), 2)  # [n, b, size, ...]: column b * size + rank
        return gathered.flatten(1, 2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0][:, ctx.world.rank :: ctx.world.size], None


class _Statistics(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, world: World) -> Tensor:
        ctx.world = world
        return torch.stack(_gathered(own, world))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.world.add_up(gradients[0].contiguous().clone())[ctx.world.rank], None


def _gathered(own: Tensor, world: World) -> list[Tensor]:
    own = own.detach().contiguous()
    pieces = [torch.empty_like(own) for _ in range(world.size)]
    dist.all_gather(pieces, own)
    return pieces


def _probe(store: Store) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Mean and spread of a few samples: enough to distinguish data sets, and equal on any hardware."""
    index = torch.linspace(0, len(store) - 1, min(PROBED, len(store)), device=store.device).long()[None]
    x = store.batch(index, torch.full_like(index, store.plain)).float().flatten(1)
    return torch.stack([x.mean(1), x.std(1, correction=0)]).cpu().numpy().astype(np.float32)


# -- batch norm ------------------------------------------------------------------------------------------------------


def share_statistics(module: nn.Module, world: World) -> list[_TorchNorm]:
    """Let all batch norms use the whole batch. Return those of torch, which need the number of real samples."""
    if world.size == 1:
        return []
    norms: list[_TorchNorm] = []
    for layer in module.modules():
        if isinstance(layer, BatchNorm):
            layer.across = world.statistics
        elif isinstance(layer, nn.modules.batchnorm._BatchNorm):
            shared = _TorchNorm(layer, world)
            layer.forward = shared  # type: ignore[method-assign, assignment]
            norms.append(shared)
    return norms


class _TorchNorm:
    """torch's batch norm over the batch of all processes (SyncBatchNorm supports neither CPUs nor padding)."""

    def __init__(self, layer: nn.modules.batchnorm._BatchNorm, world: World) -> None:
        self.layer, self.world, self.alone = layer, world, layer.forward
        self.valid: Tensor | None = None  # number of real samples, set by the engine

    def __call__(self, x: Tensor) -> Tensor:
        layer = self.layer
        if not layer.training:
            return self.alone(x)
        mean, var, gamma, beta = layer.running_mean, layer.running_var, layer.weight, layer.bias
        ones, zeros = x.new_ones(x.shape[1], dtype=torch.float32), x.new_zeros(x.shape[1], dtype=torch.float32)
        momentum = layer.momentum
        if layer.num_batches_tracked is not None:
            layer.num_batches_tracked.add_(1)
            if momentum is None:  # torch: the plain average of all batches
                momentum = 1 / float(layer.num_batches_tracked)
        norm = reference.Norm(
            ones if gamma is None else gamma, zeros if beta is None else beta,
            zeros.clone() if mean is None else mean, ones.clone() if var is None else var,
            act=reference.Activation.NONE, momentum=momentum or 0.0, eps=layer.eps,
            valid=self.valid, across=self.world.statistics,
        )  # fmt: skip
        y = reference.batch_norm_act(x.reshape(x.shape[0], x.shape[1], -1, 1), norm)
        return y.reshape(x.shape)


# -- beginning -------------------------------------------------------------------------------------------------------

_world = ALONE


def current() -> World:
    """The world of this process."""
    return _world


def launched() -> bool:
    """Whether torchrun, or a launcher that sets the same variables, started several processes."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


def start(device: str = "auto") -> World:
    """Connect to the other processes, with nccl and one GPU each or with gloo on the CPU."""
    global _world
    if not launched() or _world.size > 1:
        return _world
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    backend = "gloo"
    chosen = choose_device(device)
    if chosen.type == "cuda":
        if chosen.index is not None:
            raise InputError(
                f"--device {device} would use one GPU for all {size} processes of torchrun: use --device cuda, so that "
                "each process uses its own; CUDA_VISIBLE_DEVICES selects them"
            )
        cards = torch.cuda.device_count()
        if local_rank >= cards:
            raise InputError(
                f"process {local_rank + 1} of this machine has no GPU, as there are {cards}: "
                f"start torchrun with --nproc-per-node {cards}, or choose --device cpu"
            )
        torch.cuda.set_device(local_rank)
        backend = "cpu:gloo,cuda:nccl"
    store, _, _ = next(rendezvous("env://", rank, size, timeout=TIMEOUT))
    dist.init_process_group(backend, store=_meet(store, rank, size), rank=rank, world_size=size, timeout=TIMEOUT)
    atexit.register(leave)
    _world = World(rank, size, local_rank)
    return _world


def _meet(store: Connections, rank: int, size: int) -> Connections:
    """A part of the store for the current processes.

    torchrun keeps its store, with the addresses of dead processes, when it restarts them. So each process registers
    under a new name, and the first one answers all names until every process has arrived.
    """
    name = uuid.uuid4().hex
    if rank:
        store.set(f"hello/{rank}", name)
        store.wait([f"answer/{name}"], TIMEOUT)
        meeting = store.get(f"answer/{name}").decode()
        store.set(f"{meeting}/{rank}", "here")
        return PrefixStore(meeting, store)
    missing = set(range(1, size))
    while missing:
        for other in sorted(missing):
            if store.check([f"hello/{other}"]):
                store.set(f"answer/{store.get(f'hello/{other}').decode()}", name)
            if store.check([f"{name}/{other}"]):
                missing.remove(other)
        time.sleep(0.02)
    return PrefixStore(name, store)


def leave() -> None:
    """Disconnect; this process continues alone."""
    global _world
    if dist.is_initialized():
        dist.destroy_process_group()
    _world = ALONE
