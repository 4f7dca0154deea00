"""Inception-ResNet-v2 at 227 x 227 on the engine, against the eager fp32 loop, in one run; and what table 2 then takes.

    python benchmarks/inception.py [--seconds 20] [--batch 128] [--write benchmarks/inception.md]

Pictures are noise of WebVision's sizes, held on the device as the engine holds them; needs torch and numpy alone.
Expected on one H200: two to three minutes; the goal is 4 times the eager fp32 loop.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from labelsieve.data.decode import PictureSequence, Pixels
from labelsieve.data.device_pictures import DevicePictures
from labelsieve.engine import OutOfTime, Plan, Schedule, train
from labelsieve.engine.device import choose_device
from labelsieve.methods import create
from labelsieve.models.inception_resnet_v2 import InceptionResNetV2

SAMPLES, CLASSES = 65_944, 50
METHODS = ("f-correction", "decoupling", "coteaching", "mentornet", "d2l", "incv-coteaching")


class Noise(PictureSequence):
    """Pictures with a shorter side of `side`, up to 1.6 times as wide."""

    def __init__(self, count: int, side: int) -> None:
        self.count, self.side = count, side
        self.unreadable: dict[int, str] = {}

    def __len__(self) -> int:
        return self.count

    def picture(self, i: int) -> Pixels:
        rng = np.random.default_rng(i)
        return rng.integers(0, 256, (self.side, round(self.side * rng.uniform(1, 1.6)), 3), dtype=np.uint8)


def timed(step: Callable[[], None], samples: int, seconds: float, device: torch.device) -> float:
    """Samples a second of repeated steps, after three to warm up."""
    for _ in range(3):
        step()
    _wait(device)
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        step()
        _wait(device)
        steps += 1
    return steps * samples / (time.perf_counter() - began)


def eager(store: DevicePictures, labels: torch.Tensor, batch: int, seconds: float, *, half: bool) -> float:
    """The usual loop, its data for free: one network, torch's SGD, fp32, or autocast to bf16 in channels last."""
    device = store.device
    network = InceptionResNetV2(CLASSES).to(device)
    if half:
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    index = torch.arange(batch, device=device)[None] % len(store)
    code = torch.full_like(index, store.plain)

    def step() -> None:
        x = store.batch(index, code)
        x = x if half else x.float().contiguous()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=half):
            loss = nn.functional.cross_entropy(network(x), labels[index[0]])
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()

    return timed(step, batch, seconds, device)


def engine(store: DevicePictures, labels: np.ndarray, networks: int, batch: int, seconds: float) -> float:
    """Samples a second over all networks, the first epoch left out."""
    marks: list[tuple[int, float]] = []
    plans = [Plan(f"network {i}", labels, np.arange(len(store)), seed=i) for i in range(networks)]
    with suppress(OutOfTime):
        train(
            store,
            partial(InceptionResNetV2, CLASSES),
            create("standard"),
            plans,
            schedule=Schedule.webvision_120(100_000),
            batch_size=batch,
            progress=lambda at: marks.append((at["epoch"], time.perf_counter())),
            stop=lambda: len(marks) >= 3 and marks[-1][1] - marks[0][1] >= seconds,
        )
    return networks * len(store) * (marks[-1][0] - marks[0][0]) / (marks[-1][1] - marks[0][1])


def table_2_passes() -> dict[str, int]:
    """Samples trained by each method of the paper's table 2, times the networks that see them; at most."""
    found = {}
    for name in METHODS:
        method = create(name)
        found[name] = method.networks * method.epochs(120) * SAMPLES
    found["incv-coteaching"] += 2 * 50 * SAMPLES  # INCV: two iterations of 50 epochs, the halves together
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--crop", type=int, default=227)
    parser.add_argument("--samples", type=int, default=1024, help="pictures held; an epoch of the measurement")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--networks", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--write", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    device = choose_device(options.device)
    pictures = Noise(options.samples, round(options.crop * 256 / 227))
    store = DevicePictures(pictures, device, crop=options.crop, workers=0)
    labels = np.arange(options.samples) % CLASSES
    on_device = torch.as_tensor(labels, device=device)
    rates: dict[str, float] = {}

    def add(name: str, work: Callable[[], float]) -> None:
        if device.type == "cuda":
            torch.cuda.empty_cache()
        rates[name] = work()
        if not options.json:
            print(f"{name}: {rates[name]:,.1f} img/s", flush=True)

    add("eager, fp32", lambda: eager(store, on_device, options.batch, options.seconds, half=False))
    if device.type == "cuda":
        add("eager, bf16, channels last", lambda: eager(store, on_device, options.batch, options.seconds, half=True))
    for networks in options.networks:
        name = f"engine, {networks} network" + ("s" if networks > 1 else "")
        add(name, lambda n=networks: engine(store, labels, n, options.batch, options.seconds))  # type: ignore[misc]
    base, best = rates["eager, fp32"], max(rates.values())
    hours = {name: passes / best / 3600 for name, passes in table_2_passes().items()}
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    text = "\n".join(
        [
            f"# Inception-ResNet-v2 at {options.crop} x {options.crop}",
            "",
            f"`python benchmarks/inception.py --seconds {options.seconds:g} --batch {options.batch}`,",
            f"{date.today().isoformat()}: {card}, torch {torch.__version__}.",
            "",
            "| loop | img/s | of eager fp32 |",
            "|---|---|---|",
            *(f"| {name} | {value:,.0f} | {value / base:.2f} |" for name, value in rates.items()),
            "",
            f"Table 2 with {SAMPLES:,} pictures at the best of these, one seed, on one such device, at most:",
            "",
            "| method | hours |",
            "|---|---|",
            *(f"| {name} | {value:.1f} |" for name, value in hours.items()),
            f"| all | {sum(hours.values()):.1f} |",
            "",
        ]
    )
    if options.write:
        options.write.write_text(text)
    print(json.dumps({"device": card, "images_per_second": rates, "table_2_hours": hours}) if options.json else text)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
