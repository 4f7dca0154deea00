"""Inception-ResNet-v2 at 227 x 227: the engine against the usual eager loop, and the time that table 2 takes.

    python benchmarks/inception.py [--all] [--seconds 3] [--budget 90] [--write benchmarks/inception.md]
    python benchmarks/inception.py --profile [--top 25]

The eager network consists of torch's own layers with the same weights. Both read random pictures that are on the
device. Every row runs in its own process with a time limit, so that a failure costs one row. The page, and a JSON file
next to it that `scripts/scaling_page.py` reads, are written after every row. Needs only torch and numpy. One GPU takes
about 90 seconds, with `--all` some minutes. The goal is 4 times the eager fp32 loop. `--profile` lists the kernels of
one step instead.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from labelsieve.engine import OutOfTime, PictureStore, Plan, Schedule, train
from labelsieve.engine.bundle import Bundle, initial_state
from labelsieve.engine.device import choose_device, fastest_convolutions
from labelsieve.engine.evaluate import probabilities
from labelsieve.engine.lockstep import Lockstep, Options
from labelsieve.methods import create
from labelsieve.models import kernels
from labelsieve.models.inception_resnet_v2 import Branches, Conv, InceptionResNetV2, Unit
from labelsieve.models.layers import BatchNorm
from labelsieve.selection.settings import INCVSettings, selection_passes

sys.path.insert(0, str(Path(__file__).resolve().parent))
from step_profile import profile, rate, wait

SAMPLES, CLASSES, GOAL = 65_944, 50, 4.0
INCV_EPOCHS, INCV_PASSES = 50, selection_passes(INCVSettings(n_iterations=2, protocol="paper"))  # on WebVision
METHODS = ("f-correction", "decoupling", "coteaching", "mentornet", "d2l", "incv-coteaching")
BASE, SCORING = "eager, fp32", "engine, scoring"
# The most important rows come first: the rows that the budget does not cover are left out.
FIRST: dict[str, dict[str, Any]] = {
    BASE: {"loop": "eager"},
    "engine, 1 network": {"loop": "engine", "networks": 1},
    "engine, 2 networks": {"loop": "engine", "networks": 2},
    SCORING: {"loop": "scoring"},
}
ROWS: dict[str, dict[str, Any]] = {
    **FIRST,
    "eager, bf16, channels last, cuDNN by trial": {"loop": "eager", "half": True, "trial": True},
    "engine, 1 network, compiled": {"loop": "engine", "networks": 1, "compile": True},
    "engine, 1 network, cuDNN deterministic": {"loop": "engine", "networks": 1, "exact": True},
    "engine, 2 networks, one after the other": {"loop": "engine", "networks": 2, "together": False},
    "eager, fp32, cuDNN by trial": {"loop": "eager", "trial": True},
    "eager, fp32 without tf32": {"loop": "eager", "tf32": False},
    "eager, bf16, channels last, torch.compile": {"loop": "eager", "half": True, "trial": True, "compile": True},
}
GPU_ONLY = ("half", "tf32", "trial", "compile", "exact")  # rows with these settings need a GPU


@dataclass(frozen=True)
class Pictures:
    """Random pictures on the device, the labels that training reads, and how long to measure."""

    store: PictureStore
    labels: np.ndarray
    batch: int
    seconds: float


def random_pictures(options: argparse.Namespace) -> Pictures:
    device = choose_device(options.device)
    pixels = np.random.default_rng(0).integers(0, 256, (options.samples, options.crop, options.crop, 3), dtype=np.uint8)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    labels = np.arange(options.samples) % CLASSES
    return Pictures(PictureStore(pixels, device, dtype=dtype), labels, options.batch, options.seconds)


# -- the usual network and loop


def plain(module: nn.Module) -> nn.Module:
    """Replace our layers by torch's, in place, and give every branch a first layer of its own."""
    for name, child in module.named_children():
        setattr(module, name, usual(child))
    return module


def usual(layer: nn.Module) -> nn.Module:
    if isinstance(layer, Conv):
        outputs, inputs, *window = layer.weight.shape
        bias = layer.bias is not None
        conv = nn.Conv2d(inputs, outputs, (window[0], window[1]), layer.stride, layer.padding, bias=bias)
        conv.load_state_dict(layer.state_dict())
        return conv
    if isinstance(layer, BatchNorm):
        norm = nn.BatchNorm2d(len(layer.weight), eps=layer.eps, momentum=layer.momentum)
        norm.load_state_dict(layer.state_dict(), strict=False)
        return nn.Sequential(norm, nn.ReLU(inplace=True))
    return Apart(layer) if isinstance(layer, Branches) else plain(layer)


class Apart(nn.Module):
    """Branches, each with its own first layer."""

    def __init__(self, joined: Branches) -> None:
        super().__init__()
        pieces = {name: tensor.split(joined.widths) for name, tensor in joined.first.state_dict().items()}
        self.branches = nn.ModuleList()
        for i, (width, rest) in enumerate(zip(joined.widths, joined.rest, strict=True)):
            first = Unit(joined.first.conv.weight.shape[1], width, 1)
            first.load_state_dict({name: tensors[i] for name, tensors in pieces.items()})
            self.branches.append(nn.Sequential(plain(first), plain(rest)))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [branch(x) for branch in self.branches]


def eager(pictures: Pictures, *, half: bool, compiled: bool) -> float:
    """Training pictures per second of one network with torch's SGD, in fp32 or in bf16 and channels last."""
    store, batch = pictures.store, pictures.batch
    network: nn.Module = plain(InceptionResNetV2(CLASSES)).to(store.device)
    if half:
        network = network.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4)
    answer: Callable[..., torch.Tensor] = torch.compile(network) if compiled else network
    given = torch.as_tensor(pictures.labels, device=store.device)
    index = torch.arange(batch, device=store.device)[None] % len(store)
    code = torch.full_like(index, store.plain)

    def step() -> None:
        x = store.batch(index, code)
        x = x if half else x.float().contiguous()
        with torch.autocast(store.device.type, dtype=torch.bfloat16, enabled=half):
            loss = nn.functional.cross_entropy(answer(x), given[index[0]])
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()

    return timed(step, batch, pictures.seconds, store.device)


# -- the engine


def engine(pictures: Pictures, *, networks: int, together: bool | None) -> float:
    """Training pictures per second of all networks; the first epoch, which captures a step, does not count."""
    store, marks = pictures.store, list[tuple[int, float]]()
    plans = [Plan(f"network {i}", pictures.labels, np.arange(len(store)), seed=i) for i in range(networks)]
    with suppress(OutOfTime):
        train(
            store, partial(InceptionResNetV2, CLASSES), create("standard"), plans, schedule=training_schedule(),
            batch_size=pictures.batch, together=together,
            progress=lambda at: marks.append((at["epoch"], time.perf_counter())),
            stop=lambda: len(marks) >= 2 and marks[-1][1] - marks[0][1] >= pictures.seconds,
        )  # fmt: skip
    return networks * len(store) * (marks[-1][0] - marks[0][0]) / (marks[-1][1] - marks[0][1])


def scoring(pictures: Pictures) -> float:
    """Pictures per second through one network, forward only."""
    store, factory = pictures.store, partial(InceptionResNetV2, CLASSES)
    bundle = Bundle(factory, [initial_state(factory, 0)], training_schedule(), store.device)
    everything = np.arange(len(store))
    return timed(lambda: probabilities(bundle, store, everything, 0), len(store), pictures.seconds, store.device)


def timed(step: Callable[[], Any], samples: int, seconds: float, device: torch.device) -> float:
    """Samples per second of repeated steps, after three to warm up."""
    for _ in range(3):
        step()
    wait(device)
    began, steps = time.perf_counter(), 0
    while steps == 0 or time.perf_counter() - began < seconds:
        step()
        wait(device)
        steps += 1
    return steps * samples / (time.perf_counter() - began)


def training_schedule() -> Schedule:
    """A small rate, so that random pictures do not diverge; it does not change the speed."""
    return Schedule(100_000, ((0, 1e-4),), optimizer="sgd", weight_decay=1e-4)


def compile_network() -> None:
    """Compile the network's forward pass; torch can only fuse batch norm if it does not see our kernel."""
    kernels.usable = lambda x: False
    InceptionResNetV2.features_of_one = torch.compile(InceptionResNetV2.features_of_one)


def profiled(options: argparse.Namespace) -> list[str]:
    """The time of one network's step on the engine, and on a GPU its kernels."""
    pictures = random_pictures(options)
    store = pictures.store
    work = [(create("standard"), Plan("network", pictures.labels, np.arange(len(store)), seed=0))]
    lockstep = Lockstep(
        store, partial(InceptionResNetV2, CLASSES), work, training_schedule(), Options(batch_size=options.batch)
    )
    lockstep._begin_epoch(0)
    with fastest_convolutions(store.device):
        found = rate(lockstep, 1, options.batch, options.seconds)
        lines = [f"{found:,.0f} img/s, {1000 * options.batch / found:.3f} ms a step"]
        if store.device.type == "cuda":
            lines += profile(lockstep, options.batch, options.top)
    return lines


# -- rows and pages


def measure(row: dict[str, Any], options: argparse.Namespace) -> dict[str, float]:
    """Measure one row in this process."""
    began = time.perf_counter()
    torch.backends.cudnn.benchmark = row.get("trial", False)
    torch.backends.cudnn.deterministic = row.get("exact", False)
    torch.backends.cudnn.allow_tf32 = row.get("tf32", True)  # torch's default for convolutions is True
    if row["loop"] == "eager":
        os.environ["LABELSIEVE_KERNELS"] = "0"
    pictures = random_pictures(options)
    if row["loop"] == "eager":
        found = eager(pictures, half=row.get("half", False), compiled=row.get("compile", False))
    elif row["loop"] == "scoring":
        found = scoring(pictures)
    else:
        if row.get("compile"):
            compile_network()
        found = engine(pictures, networks=row["networks"], together=row.get("together"))
    peak = torch.cuda.max_memory_allocated() / 2**30 if pictures.store.device.type == "cuda" else 0.0
    return {"images_per_second": found, "peak_gib": peak, "seconds": time.perf_counter() - began}


def measured(name: str, arguments: list[str], timeout: float) -> dict[str, Any]:
    """Measure a row in a process of its own; return the numbers, or the reason for the failure."""
    command = [sys.executable, str(Path(__file__).resolve()), *arguments, "--row", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=dict(os.environ))
    except subprocess.TimeoutExpired:
        return {"failed": f"not done in {timeout:.0f} s"}
    try:
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found
    except (ValueError, IndexError):
        reason = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        return {"failed": reason[:200]}


def is_training(name: str) -> bool:
    return name.startswith("engine") and name != SCORING


def best_rate(rows: dict[str, dict[str, Any]]) -> float:
    """The engine's best training rate, or 0."""
    return max((r["images_per_second"] for n, r in rows.items() if is_training(n) and "failed" not in r), default=0.0)


def table_2_passes() -> dict[str, int]:
    """Samples that each method of the paper's table 2 trains on, summed over its networks; at most."""
    found = {}
    plan = Plan("table 2", np.zeros(1, dtype=np.int64), np.arange(1), seed=0)
    for name in METHODS:
        method = create(name)
        found[name] = method.networks * method.epochs(plan, 120) * SAMPLES
    found["incv-coteaching"] += INCV_PASSES * INCV_EPOCHS * SAMPLES
    return found


def table_2_hours(rows: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Hours of each method of the paper's table 2 on one such device, at most, at the engine's best rates."""
    best = best_rate(rows)
    if not best:
        return {}
    hours = {name: passes / best / 3600 for name, passes in table_2_passes().items()}
    score = rows.get(SCORING, {}).get("images_per_second")
    if score:  # the best epoch selects, so every epoch scores
        hours["incv-coteaching"] += INCV_PASSES * INCV_EPOCHS * SAMPLES / score / 3600
    return hours


def page(rows: dict[str, dict[str, Any]], device: str, command: str, options: argparse.Namespace) -> str:
    base = rows.get(BASE, {}).get("images_per_second")
    lines = [
        f"# Inception-ResNet-v2 at {options.crop} x {options.crop}",
        "",
        f"`{command}`, {date.today().isoformat()}:",
        f"{device}, torch {torch.__version__}; batch {options.batch} per network (supplement A.2: 128).",
        "*eager* is a network of torch layers in a plain training loop; its convolutions may use TF32, the default.",
        "Every row is measured in its own process, with the data on the GPU.",
        "",
        "| loop | img/s | relative to eager fp32 | peak GiB | seconds including start |",
        "|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        if "failed" in row:
            lines.append(f"| {name} | failed: {row['failed'].replace('|', '/')} | | | |")
            continue
        share = f"{row['images_per_second'] / base:.2f}" if base and name != SCORING else ""
        numbers = f"{row['images_per_second']:,.0f} | {share} | {row['peak_gib']:.1f} | {row['seconds']:.0f}"
        lines.append(f"| {name} | {numbers} |")
    best = best_rate(rows)
    if base and best:
        result = "reached" if best >= GOAL * base else "missed"
        lines += ["", f"Goal {GOAL:g} x the eager fp32 loop: {result}, {best / base:.2f} x."]
    if hours := table_2_hours(rows):
        lines += [
            "",
            f"Upper limits of the time for table 2 of the paper with {SAMPLES:,} pictures at the best speed above, one",
            "seed, on one such device. For `incv-coteaching`, they include two iterations of INCV with 50 epochs each:",
            "",
            "| method | hours |",
            "|---|---|",
            *(f"| {name} | {value:.1f} |" for name, value in hours.items()),
            f"| all | {sum(hours.values()):.1f} |",
        ]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="measure the explanatory rows too")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of measurement per row")
    parser.add_argument("--timeout", type=float, default=80.0, help="seconds that a row may take, with its start")
    parser.add_argument("--budget", type=float, default=90.0, help="seconds after which no further row starts")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--crop", type=int, default=227)
    parser.add_argument("--samples", type=int, default=2048, help="pictures on the device")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--write", type=Path, help="write the page here, and the JSON file next to it")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--row", choices=list(ROWS), help="measure only this row, in this process")
    parser.add_argument("--profile", action="store_true", help="list the kernels of one network's step")
    parser.add_argument("--top", type=int, default=25, help="number of kernels to list")
    options = parser.parse_args()
    if options.profile:
        print(*profiled(options), sep="\n")
        return
    if options.row:
        print(json.dumps(measure(ROWS[options.row], options)))
        return
    device = choose_device(options.device)
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {platform.machine()}"
    settings = ("seconds", "batch", "crop", "samples", "device")
    arguments = [f"--{name}={getattr(options, name)}" for name in settings]
    changed = [
        f" --{name} {value:g}" for name in settings[:4] if (value := getattr(options, name)) != parser.get_default(name)
    ]
    command = "python benchmarks/inception.py" + " --all" * options.all + "".join(changed)
    rows: dict[str, dict[str, Any]] = {}
    began = time.monotonic()
    for name, row in (ROWS if options.all else FIRST).items():
        if device.type != "cuda" and any(key in row for key in GPU_ONLY):
            continue
        if time.monotonic() - began >= options.budget:
            break
        rows[name] = measured(name, arguments, options.timeout)
        print(f"{name}: {json.dumps(rows[name])}", file=sys.stderr, flush=True)
        found = {"device": card, "torch": str(torch.__version__), "rows": rows, "table_2_hours": table_2_hours(rows)}
        if options.write:
            options.write.write_text(page(rows, card, command, options), encoding="utf-8")
            options.write.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found) if options.json else page(rows, card, command, options))


if __name__ == "__main__":
    main()
