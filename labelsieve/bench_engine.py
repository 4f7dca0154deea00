"""`labelsieve bench engine`: the engine beside the field's usual loop, in one run on one device.

The usual loop is what the published repositories do: a DataLoader with workers and per-picture transforms, one network,
eager, float32, torch.optim.Adam. Everything else here is the engine, with 1..n networks in lockstep.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labelsieve.engine import Plan, Schedule, stage_pictures
from labelsieve.engine.lockstep import Lockstep, Options
from labelsieve.methods.standard import Standard
from labelsieve.models.resnet_cifar import ResNetCifar

BATCH = 128


def made_pictures(count: int = 50_000) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pictures of CIFAR-10's shape; speed does not depend on what they show."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, count)


class _Pictures(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """One picture at a time, cropped and flipped on the CPU."""

    def __init__(self, x: NDArray[np.uint8], y: NDArray[np.int64]) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        picture = torch.from_numpy(self.x[i]).permute(2, 0, 1).float().div_(255)
        picture = nn.functional.pad(picture, (4, 4, 4, 4))
        top, left, flip = torch.randint(0, 9, (3,)).tolist()
        picture = picture[:, top : top + 32, left : left + 32]
        if flip % 2:
            picture = picture.flip(2)
        return (picture - 0.47) / 0.25, int(self.y[i])


def usual_loop(device: torch.device, *, workers: int, seconds: float, depth: int = 32) -> float:
    """Training pictures a second."""
    x, y = made_pictures(20_000)
    loader = torch.utils.data.DataLoader(
        _Pictures(x, y), BATCH, shuffle=True, num_workers=workers, drop_last=True, pin_memory=device.type == "cuda"
    )
    network = ResNetCifar(depth=depth).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-4)
    steps, began = 0, 0.0
    while True:
        for pictures, labels in loader:
            optimizer.zero_grad()
            logits = network(pictures.to(device, non_blocking=True))
            torch.autograd.backward(nn.functional.cross_entropy(logits, labels.to(device)))
            optimizer.step()
            steps += 1
            if steps == 10:  # the first steps start the workers and choose algorithms
                _wait(device)
                began = time.perf_counter()
            if steps > 10 and (steps % 10 == 0 or device.type == "cpu") and time.perf_counter() - began > seconds:
                _wait(device)
                return (steps - 10) * BATCH / (time.perf_counter() - began)


def plain_loop(device: torch.device, *, seconds: float, depth: int = 32) -> float:
    """Data on the device, eager, float32: the engine's work without the engine."""
    x, y = made_pictures(4096)
    store = stage_pictures(x, device)
    network = ResNetCifar(depth=depth).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-4)
    labels = torch.as_tensor(y, device=device)
    steps, began = 0, 0.0
    while True:
        index = torch.randint(len(x), (1, BATCH), device=device)
        code = torch.randint(store.codes, (1, BATCH), device=device)
        optimizer.zero_grad()
        logits = network(store.batch(index, code).float())
        torch.autograd.backward(nn.functional.cross_entropy(logits, labels[index[0]]))
        optimizer.step()
        steps += 1
        if steps == 3:
            _wait(device)
            began = time.perf_counter()
        if steps > 3 and time.perf_counter() - began > seconds:
            _wait(device)
            return (steps - 3) * BATCH / (time.perf_counter() - began)


def engine(
    device: torch.device, networks: int, *, seconds: float, depth: int = 32, together: bool | None = None
) -> dict[str, Any]:
    """Training pictures a second of `networks` networks, start-up time and peak memory."""
    x, y = made_pictures(50_000 if device.type == "cuda" else 4096)
    store = stage_pictures(x, device)
    plans = [Plan(f"network {i}", y, np.arange(len(x)), seed=i) for i in range(networks)]
    standard = Standard()
    together = device.type == "cuda" if together is None else together
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    lockstep = Lockstep(
        store, partial(ResNetCifar, depth=depth), [(standard, plan) for plan in plans], Schedule.paper_200(),
        Options(batch_size=BATCH, together=together),
    )  # fmt: skip
    for row in range(networks):
        lockstep._begin_epoch(row)
    lockstep.stepper.run(3, BATCH)
    _wait(device)
    ready = time.perf_counter()
    steps = 0
    while time.perf_counter() - ready < seconds:
        lockstep.stepper.run(5 if device.type == "cuda" else 1, BATCH)
        _wait(device)
        steps += 5 if device.type == "cuda" else 1
    spent = time.perf_counter() - ready
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else float("nan")
    return {"images_per_second": steps * networks * BATCH / spent, "start_seconds": ready - began, "peak_gib": peak}


def run(
    *, device: str = "auto", seconds: float = 4.0, networks: Sequence[int] | None = None, as_json: bool = False
) -> dict[str, Any]:
    """Measure and print; the same numbers as a dict."""
    from labelsieve.engine.device import choose_device

    chosen = choose_device(device)
    cuda = chosen.type == "cuda"
    card = torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine()
    rows: list[dict[str, Any]] = []

    def add(name: str, rate: float, base: float, **more: Any) -> None:
        rows.append({"loop": name, "images_per_second": round(rate), "ratio": round(rate / base, 2), **more})
        if not as_json:
            extra = "".join(f"  {key} {value:.1f}" for key, value in more.items())
            print(f"{name:58s} {rate:10,.0f} img/s  {rate / base:6.2f} x{extra}", flush=True)

    if cuda:
        base = usual_loop(chosen, workers=8, seconds=seconds)
        add("usual loop: DataLoader (8 workers), eager, fp32", base, base)
        add("data on the device, eager, fp32", plain_loop(chosen, seconds=seconds), base)
        for n in networks or (1, 2, 8, 16, 32):
            found = engine(chosen, n, seconds=seconds)
            add(f"engine, {n} x ResNet-32", found.pop("images_per_second"), base, **found)
            torch.cuda.empty_cache()
        if networks is None:
            deep = usual_loop(chosen, workers=8, seconds=seconds, depth=110)
            add("usual loop, ResNet-110", deep, deep)
            found = engine(chosen, 4, seconds=seconds, depth=110)
            add("engine, 4 x ResNet-110 (ratio to the usual loop's)", found.pop("images_per_second"), deep, **found)
    else:
        base = plain_loop(chosen, seconds=seconds)
        add("plain eager loop, 1 x ResNet-32", base, base)
        for n in networks or (1, 2):
            found = engine(chosen, n, seconds=seconds)
            add(f"engine, {n} x ResNet-32", found["images_per_second"], base)
    result = {
        "card": card, "torch": torch.__version__, "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"), "batch": BATCH, "rows": rows,
    }  # fmt: skip
    if as_json:
        print(json.dumps(result))
    return result


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    run()
