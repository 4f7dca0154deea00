"""What a run would take: time, memory and disk, from a short measurement and arithmetic.

    selection    iterations x epochs x samples trained (the two halves together see every sample once an epoch), and as
                 many scored at most (where the best epoch does the scoring, every epoch scores)
    training     networks x epochs x samples

Samples leave selection as it goes on, so this is what it takes at most. Several GPUs are taken to share the work
evenly, which data parallel training comes close to for large networks only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from labelsieve.data import skipped as leftout
from labelsieve.data.decode import Pictures
from labelsieve.data.device_pictures import SHARE, DevicePictures, free_memory, picture_store, pixel_bytes
from labelsieve.data.stage import Staged
from labelsieve.data.workers import usable_cores
from labelsieve.engine import OutOfTime, Plan, Schedule, Store, train
from labelsieve.engine.bundle import Bundle, Factory, initial_state
from labelsieve.engine.evaluate import probabilities
from labelsieve.errors import InputError
from labelsieve.models.catalog import best_model, create
from labelsieve.types import LabelledData

# Of a sample on the host, without its id: selection's peak in benchmarks/growth.md, 399 to 419 from 10^5 samples on.
HOST_BYTES = 420
SELECTION_BATCH = 128  # what the networks that select are trained with


@dataclass(frozen=True)
class Wanted:
    """The run."""

    samples: int
    iterations: int = 4  # in which networks select, the noise estimate's among them; 0 where a classifier does
    selection_epochs: int = 50
    training_epochs: int = 200
    networks: int = 2  # of the robust method
    gpus: int = 1
    selecting: int = 2  # networks of the selection at once: both halves of every split

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            least = 0 if name == "iterations" else 1
            if value < least:
                raise InputError(f"{name.replace('_', ' ')} {value}: at least {least}")


@dataclass(frozen=True)
class Measured:
    """One device's speed and appetite, measured on some of the samples."""

    trained: float  # samples a second, over the networks that train at once
    scored: float  # samples a second
    read: float | None  # pictures decoded a second by all cores; None where nothing is decoded
    sample_bytes: float  # of a sample on the device
    parameters: int  # of one network
    working_bytes: int  # peak of a training step beyond the data; 0: not known (CPU)
    host_bytes: float = HOST_BYTES  # of a sample on the host, beside its pixels
    samples: int = 0  # that the measurement trained on
    staged: bool = False  # the pixels lie on disk, decoded

    @property
    def from_disk(self) -> bool:
        """Whether the host need not hold the pixels: what the device cannot hold either streams."""
        return self.staged or self.read is not None


def estimate(wanted: Wanted, measured: Measured, *, free: int, selecting: Measured | None = None) -> dict[str, Any]:
    """Seconds by stage, bytes by place, and what takes longest. `free`: bytes the device can still give.

    `selecting` was measured with the network that selects, where that is another one or has other batches.
    """
    n, gpus = wanted.samples, wanted.gpus
    selecting = selecting or measured
    passes = wanted.iterations * wanted.selection_epochs * n
    seconds = {
        "decode once": n / measured.read if measured.read else 0.0,
        "selection, training": passes / selecting.trained / gpus,
        "selection, scoring": passes / selecting.scored / gpus,
        "robust training": wanted.networks * wanted.training_epochs * n / measured.trained / gpus,
    }
    pixels = round(n * measured.sample_bytes)
    networks = max(2, wanted.networks)
    # weights, their gradient and two moments of each network are the least, where a step's peak was not measured
    parameters = max(measured.parameters, selecting.parameters)
    working = max(measured.working_bytes, selecting.working_bytes) or 4 * 4 * parameters * networks
    # as `picture_store` decides, and a step needs room beside them
    streams = measured.from_disk and (pixels > SHARE * free or pixels + working > free)
    if measured.read and streams:
        # every pass reads every picture from disk again, decoded or, after staging, as it is
        epochs = wanted.iterations * wanted.selection_epochs + wanted.training_epochs
        seconds["decode again in every epoch, if not staged"] = n * epochs / measured.read
    # weights and two moments of each network, newest checkpoint and the one before; those of the networks that select
    # are gone after each round, before the next ones come
    at_once = max(measured.parameters * networks, selecting.parameters * wanted.selecting * (wanted.iterations > 0))
    state = 2 * 4 * 3 * at_once
    return {
        "seconds": seconds,
        **in_all(seconds),
        "device_bytes": working + (0 if streams else pixels),
        "data": "streams" if streams else "on the device",
        "host_bytes": round(n * measured.host_bytes) + (0 if measured.from_disk else pixels),
        "disk_bytes": {"staged pictures": pixels if measured.from_disk else 0, "checkpoints": state},
    }


def in_all(seconds: dict[str, float]) -> dict[str, Any]:
    """The sum of what is needed in any case, and what takes longest."""
    needed = {name: value for name, value in seconds.items() if "if not" not in name}
    return {"total_seconds": sum(needed.values()), "bottleneck": max(needed, key=lambda name: needed[name])}


def measure(
    data: LabelledData, factory: Factory, store: Store, *, batch_size: int = 128, seconds: float = 10.0
) -> Measured:
    """Trains two networks at once, as selection does, and scores, for about `seconds`."""
    device = store.device
    # an epoch of the measurement: as many samples as take a quarter of the time
    count = int(np.clip(seconds / 4 / _seconds_a_sample(factory, store), min(4, len(store)), len(store)))
    chosen = np.arange(count)
    plans = [Plan(f"half {i}", data.y, chosen[i::2], seed=i) for i in range(2)]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    marks: list[tuple[int, float]] = []

    def mark(at: dict[str, Any]) -> None:
        marks.append((at["epoch"], time.perf_counter()))

    def enough() -> bool:
        return len(marks) >= 3 and marks[-1][1] - marks[0][1] >= seconds

    from labelsieve.methods.standard import Standard

    schedule = Schedule(100_000, ((0, 1e-4),))
    batch = max(1, min(batch_size, count // 2))
    capture = not store.streams
    with suppress(OutOfTime):
        train(
            store, factory, Standard(), plans, schedule=schedule, batch_size=batch, progress=mark, stop=enough,
            capture=capture,
        )  # fmt: skip
    epochs = marks[-1][0] - marks[0][0]  # the first epoch warms up
    trained = count * epochs / (marks[-1][1] - marks[0][1])
    peak = torch.cuda.max_memory_allocated(device) - before if device.type == "cuda" else 0

    bundle = Bundle(factory, [initial_state(factory, 0)], schedule, device)
    rounds = []
    for _ in range(2):
        began = time.perf_counter()
        probabilities(bundle, store, chosen, 0).cpu()
        rounds.append(time.perf_counter() - began)
    parameters = sum(p.numel() for p in bundle.module.parameters())
    return Measured(trained, count / min(rounds), None, _sample_bytes(store), parameters, peak, samples=count)


def _seconds_a_sample(factory: Factory, store: Store) -> float:
    """A rough first look: two samples forward and backward."""
    network = factory().to(store.device)
    index = torch.arange(2, device=store.device)[None] % len(store)
    taken = []
    for _ in range(2):
        began = time.perf_counter()
        x = store.batch(index, torch.full_like(index, store.plain)).float()
        torch.autograd.backward(network(x).square().mean())
        if store.device.type == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return min(taken) / 2


def _sample_bytes(store: Store) -> float:
    return store.nbytes / max(1, len(store)) if store.nbytes else float(np.prod(store.shape))


def _name_bytes(data: LabelledData) -> float:
    """Ids are fixed-width unicode, and picture files have their names as Python strings beside them."""
    names = [len(name) + 57 for name in data.x.names[:1000]] if isinstance(data.x, Pictures) else [0]
    return float(data.ids.dtype.itemsize + np.mean(names))


def some_of(data: LabelledData, count: int) -> LabelledData:
    """Up to `count` samples, spread evenly."""
    chosen = np.unique(np.linspace(0, len(data) - 1, min(count, len(data))).astype(np.int64))
    return replace(data, x=leftout.some_of(data.x, chosen), y=data.y[chosen], ids=data.ids[chosen], groups=None)


def small_store(data: LabelledData, device: torch.device, *, crop: int) -> tuple[Store, float | None, float]:
    """A store of these samples, pictures decoded a second by all cores (None: nothing is), bytes a sample."""
    if isinstance(data.x, Pictures):
        began = time.perf_counter()
        for i in range(min(32, len(data.x))):
            data.x.picture(i)
        alone = min(32, len(data.x)) / (time.perf_counter() - began)
        side = data.x.side
        store = DevicePictures(data.x, device, crop=min(crop, side), workers=0)
        return store, alone * usable_cores(), _sample_bytes(store)
    if isinstance(data.x, Staged):
        some = picture_store(data.x, device, crop=min(crop, data.x.side), workers=0)
        return some, None, pixel_bytes(data.x) / max(1, len(data.x))
    from labelsieve.execute.lockstep import stage

    held = stage(data.x, device)
    return held, None, _sample_bytes(held)


def plan(
    data: LabelledData,
    wanted: Wanted,
    *,
    model: str = "auto",
    selector: str | None = None,
    make: Callable[[str, tuple[int, ...], int], Factory] = create,
    device: torch.device | str = "cpu",
    batch_size: int = 128,
    crop: int = 227,
    seconds: float = 10.0,
) -> dict[str, Any]:
    """Measure on some of the samples, then work it out for `wanted`.

    `model` is the network that the robust method trains, in batches of `batch_size`; `selector` the one that selects,
    where that is another one. `make` knows their names.
    """
    device = torch.device(device)
    if data.kind == "text":
        raise InputError(f"{data.name}: a network reads rows of numbers or pictures; make rows of the texts first")
    most = max(batch_size, SELECTION_BATCH)
    some = some_of(data, 4 * most if device.type == "cpu" else 16 * most)
    store, read, sample_bytes = small_store(some, device, crop=crop)
    name = best_model(store.shape) if model == "auto" else model
    selector = selector or name

    def measured(network: str, batch: int, seconds: float) -> Measured:
        return measure(some, make(network, store.shape, len(data.classes)), store, batch_size=batch, seconds=seconds)

    alike = wanted.iterations == 0 or (selector, SELECTION_BATCH) == (name, batch_size)
    found = measured(name, batch_size, seconds if alike else seconds / 2)
    selecting = found if alike else measured(selector, SELECTION_BATCH, seconds / 2)
    found = replace(
        found, read=read, sample_bytes=sample_bytes, host_bytes=HOST_BYTES + _name_bytes(data),
        staged=isinstance(data.x, Staged),
    )  # fmt: skip
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type}, {usable_cores()} cores"
    return {
        "source": data.name,
        "model": name,
        "selector": selector if wanted.iterations else None,
        "shape": list(store.shape),
        "device": card,
        "wanted": asdict(wanted),
        "measured": asdict(found),
        "measured_selecting": asdict(selecting) if wanted.iterations else None,
    } | estimate(wanted, found, selecting=selecting, free=free_memory(device))
