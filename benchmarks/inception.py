"""Inception-ResNet-v2 at 227 x 227 on the engine, against the eager fp32 loop, in one run; and what table 2 then takes.

    python benchmarks/inception.py [--all] [--seconds 3] [--budget 90] [--write benchmarks/inception.md]
    python benchmarks/inception.py --profile [--top 25]

The eager network is of torch's own layers, weight for weight the engine's; its data, like the engine's, are noise of
WebVision's sizes that lie on the device. Each row is a process of its own with a time limit, so that a failure costs
its row alone; what is measured is written after every row, as a page and beside it as JSON, which
`scripts/scaling_page.py` reads. Needs torch and numpy alone. Most of the time is starting processes and compiling
kernels once: about a minute and a half on one GPU, with `--all` some minutes. The goal is 4 times the eager fp32 loop.
`--compare` measures the network's own kernels against plain layers, compiled and not, in one run. `--profile` instead
names the kernels of one network's step.
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
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from labelsieve.data.decode import PictureSequence, Pixels
from labelsieve.data.device_pictures import DevicePictures
from labelsieve.engine import OutOfTime, Plan, Schedule, train
from labelsieve.engine.bundle import Bundle, initial_state
from labelsieve.engine.device import choose_device, fastest_convolutions
from labelsieve.engine.evaluate import probabilities
from labelsieve.engine.lockstep import Lockstep, Options
from labelsieve.methods import create
from labelsieve.models import kernels
from labelsieve.models.inception_resnet_v2 import Branches, Conv, InceptionResNetV2, Residuals, Unit, Units
from labelsieve.models.layers import BatchNorm

sys.path.insert(0, str(Path(__file__).resolve().parent))
from step_profile import profile, rate, wait

SAMPLES, CLASSES, GOAL = 65_944, 50, 4.0
METHODS = ("f-correction", "decoupling", "coteaching", "mentornet", "d2l", "incv-coteaching")
BASE, SCORING = "eager, fp32", "engine, scoring"
# The most telling first: what the time does not suffice for is left out. The engine lets cuDNN choose by trial.
FIRST: dict[str, dict[str, Any]] = {
    BASE: {"loop": "eager"},
    "engine, 1 network": {"loop": "engine", "networks": 1},
    "engine, 2 networks": {"loop": "engine", "networks": 2},
    SCORING: {"loop": "scoring"},
}
ROWS: dict[str, dict[str, Any]] = {
    **FIRST,
    "eager, bf16, channels last, cuDNN by trial": {"loop": "eager", "half": True, "trial": True},
    "engine, 1 network, cuDNN deterministic": {"loop": "engine", "networks": 1, "exact": True},
    "engine, 2 networks, one after the other": {"loop": "engine", "networks": 2, "together": False},
    "eager, fp32, cuDNN by trial": {"loop": "eager", "trial": True},
    "eager, fp32 without tf32": {"loop": "eager", "tf32": False},
    "eager, bf16, channels last, torch.compile": {"loop": "eager", "half": True, "trial": True, "compile": True},
}
# The network's own kernels against plain layers in the same captured step: `--compare`.
COMPARED: dict[str, dict[str, Any]] = {
    "engine, 1 network": {"loop": "engine", "networks": 1},
    "engine, plain layers, captured": {"loop": "engine", "networks": 1, "layers": "plain"},
    "engine, torch layers without any kernel of ours, captured": {"loop": "engine", "networks": 1, "layers": "torch"},
    "engine, torch layers, compiled and captured": {"loop": "engine", "networks": 1, "layers": "compiled"},
}
ROWS |= COMPARED
GPU_ALONE = (
    "half",
    "tf32",
    "trial",
    "compile",
    "exact",
    "layers",
)  # rows with these say nothing on a CPU


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


def use_layers(kind: str) -> None:
    """Replace the network's kernels: `plain` keeps the batch-norm kernel, `torch` and `compiled` keep none."""
    os.environ["LABELSIEVE_FUSED"] = "0"
    kernels.max_pool3 = lambda x: nn.functional.max_pool2d(x, 3, 2)
    if kind in ("torch", "compiled"):
        kernels.usable = lambda x: False
    if kind == "compiled":
        InceptionResNetV2.one = torch.compile(InceptionResNetV2.one)  # type: ignore[method-assign]


def plain(module: nn.Module) -> nn.Module:
    """The same network as it is usually written, in place: torch's own layers, every branch by itself."""
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
    if isinstance(layer, Residuals | Units):
        return nn.Sequential(*(plain(block) for block in layer))
    return Apart(layer) if isinstance(layer, Branches) else plain(layer)


class Apart(nn.Module):
    """Branches, each with a first layer of its own."""

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


def eager(
    store: DevicePictures, labels: np.ndarray, batch: int, seconds: float, *, half: bool, compiled: bool
) -> float:
    """The usual loop, its data for free: one network, torch's SGD, fp32, or autocast to bf16 in channels last."""
    device = store.device
    network: nn.Module = plain(InceptionResNetV2(CLASSES)).to(device)
    if half:
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4)
    answer: Callable[..., torch.Tensor] = torch.compile(network) if compiled else network
    given = torch.as_tensor(labels, device=device)
    index = torch.arange(batch, device=device)[None] % len(store)
    code = torch.full_like(index, store.plain)

    def step() -> None:
        x = store.batch(index, code)
        x = x if half else x.float().contiguous()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=half):
            loss = nn.functional.cross_entropy(answer(x), given[index[0]])
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()

    return timed(step, batch, seconds, device)


def engine(
    store: DevicePictures, labels: np.ndarray, batch: int, seconds: float, *, networks: int, together: bool | None
) -> float:
    """Samples a second over all networks, the first epoch (in which a step is captured) left out."""
    marks: list[tuple[int, float]] = []
    plans = [Plan(f"network {i}", labels, np.arange(len(store)), seed=i) for i in range(networks)]
    with suppress(OutOfTime):
        train(
            store,
            partial(InceptionResNetV2, CLASSES),
            create("standard"),
            plans,
            schedule=training_schedule(),
            batch_size=batch,
            together=together,
            progress=lambda at: marks.append((at["epoch"], time.perf_counter())),
            stop=lambda: len(marks) >= 3 and marks[-1][1] - marks[0][1] >= seconds,
        )
    return networks * len(store) * (marks[-1][0] - marks[0][0]) / (marks[-1][1] - marks[0][1])


def scoring(store: DevicePictures, seconds: float) -> float:
    """Samples a second through one network, forward alone."""
    factory = partial(InceptionResNetV2, CLASSES)
    bundle = Bundle(factory, [initial_state(factory, 0)], Schedule.webvision_120(), store.device)
    every = np.arange(len(store))
    return timed(lambda: probabilities(bundle, store, every, 0).cpu(), len(store), seconds, store.device, warm=1)


def timed(step: Callable[[], object], samples: int, seconds: float, device: torch.device, *, warm: int = 3) -> float:
    """Samples a second of repeated steps, after some to warm up."""
    for _ in range(warm):
        step()
    wait(device)
    began, steps = time.perf_counter(), 0
    while steps == 0 or time.perf_counter() - began < seconds:
        step()
        wait(device)
        steps += 1
    return steps * samples / (time.perf_counter() - began)


def noise_store(options: argparse.Namespace, device: torch.device) -> tuple[DevicePictures, np.ndarray]:
    pictures = Noise(options.samples, round(options.crop * 256 / 227))
    return DevicePictures(pictures, device, crop=options.crop, workers=0), np.arange(options.samples) % CLASSES


def profiled(options: argparse.Namespace) -> list[str]:
    """One network's step on the engine: its wall time, and on a GPU its kernels."""
    device = choose_device(options.device)
    store, labels = noise_store(options, device)
    work = [(create("standard"), Plan("network", labels, np.arange(len(store)), seed=0))]
    factory = partial(InceptionResNetV2, CLASSES)
    made = Lockstep(store, factory, work, training_schedule(), Options(batch_size=options.batch))
    made._begin_epoch(0)
    with fastest_convolutions(device):
        found = rate(made, 1, options.batch, options.seconds)
        lines = [f"{found:,.0f} img/s, {1000 * options.batch / found:.3f} ms a step"]
        if device.type == "cuda":
            lines += profile(made, options.batch, options.top)
            lines += choices()
    return lines


def choices() -> list[str]:
    """Which way each 1 x 1 convolution took: of those to y, dx and dw the last is cuDNN's."""
    from labelsieve.models.kernels import pointwise

    return [f"way {way} of {key}" for key, way in pointwise.chosen.items()]


def training_schedule() -> Schedule:
    """The rate of learning changes no speed; the paper's 0.1 might let noise pictures diverge."""
    return Schedule(100_000, ((0, 1e-4),), optimizer="sgd", weight_decay=1e-4)


def measure(row: dict[str, Any], options: argparse.Namespace) -> dict[str, float]:
    """One row, in a process of its own."""
    began = time.perf_counter()
    device = choose_device(options.device)
    torch.backends.cudnn.benchmark = row.get("trial", False)
    torch.backends.cudnn.deterministic = row.get("exact", False)
    if "layers" in row:
        use_layers(row["layers"])
    if row["loop"] == "eager":
        os.environ["LABELSIEVE_KERNELS"] = "0"  # torch's own layers, pooling and all
    torch.backends.cudnn.allow_tf32 = row.get("tf32", True)  # True is torch's default for convolutions
    store, labels = noise_store(options, device)
    if row["loop"] == "eager":
        half, compiled = row.get("half", False), row.get("compile", False)
        rate = eager(store, labels, options.batch, options.seconds, half=half, compiled=compiled)
    elif row["loop"] == "scoring":
        rate = scoring(store, options.seconds)
    else:
        together = row.get("together")
        rate = engine(store, labels, options.batch, options.seconds, networks=row["networks"], together=together)
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
    return {"images_per_second": rate, "peak_gib": peak, "seconds": time.perf_counter() - began}


def measured(name: str, arguments: list[str], timeout: float) -> dict[str, Any]:
    """The row's numbers, or why there are none."""
    command = [sys.executable, str(Path(__file__).resolve()), *arguments, "--row", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=dict(os.environ))
    except subprocess.TimeoutExpired:
        return {"failed": f"not done in {timeout:.0f} s"}
    try:
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found
    except (ValueError, IndexError):
        said = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        return {"failed": said[:200]}


def table_2_hours(rows: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Hours of each method of the paper's table 2 on one such device, at most; by the engine's best rates."""
    trained = [row["images_per_second"] for name, row in rows.items() if is_training(name) and "failed" not in row]
    if not trained:
        return {}
    best = max(trained)
    hours = {name: passes / best / 3600 for name, passes in table_2_passes().items()}
    score = rows.get(SCORING, {}).get("images_per_second")
    if score:  # the best epoch selects, so that every one scores
        hours["incv-coteaching"] += 2 * 50 * SAMPLES / score / 3600
    return hours


def is_training(name: str) -> bool:
    return name.startswith("engine") and name != SCORING


def table_2_passes() -> dict[str, int]:
    """Samples trained by each method of the paper's table 2, times the networks that see them; at most."""
    found = {}
    for name in METHODS:
        method = create(name)
        found[name] = method.networks * method.epochs(120) * SAMPLES
    found["incv-coteaching"] += 2 * 50 * SAMPLES  # INCV: two iterations of 50 epochs, the halves together
    return found


def page(rows: dict[str, dict[str, Any]], device: str, command: str, options: argparse.Namespace) -> str:
    base = rows.get(BASE, {}).get("images_per_second")
    lines = [
        f"# Inception-ResNet-v2 at {options.crop} x {options.crop}",
        "",
        f"`{command}`, {date.today().isoformat()}:",
        f"{device}, torch {torch.__version__}; batch {options.batch} a network (supplement A.2: 128).",
        "*eager* is a network of torch's own layers in a plain loop; its convolutions may use TF32, which is torch's",
        "default. Every row is a process of its own and has its data on the device.",
        "",
        "| loop | img/s | of eager fp32 | peak GiB | seconds with start |",
        "|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        if "failed" in row:
            lines.append(f"| {name} | failed: {row['failed'].replace('|', '/')} | | | |")
            continue
        rate = row["images_per_second"]
        share = f"{rate / base:.2f}" if base and name != SCORING else ""
        lines.append(f"| {name} | {rate:,.0f} | {share} | {row['peak_gib']:.1f} | {row['seconds']:.0f} |")
    kernel_rate = rows.get("engine, 1 network", {}).get("images_per_second")
    compared = [name for name in COMPARED if kernel_rate and "images_per_second" in rows.get(name, {})]
    lines += [f"\n{name}: kernels / this = {kernel_rate / rows[name]['images_per_second']:.2f}" for name in compared]
    best = max((r["images_per_second"] for n, r in rows.items() if is_training(n) and "failed" not in r), default=0.0)
    if base and best:
        said = "reached" if best >= GOAL * base else "missed"
        lines += ["", f"Goal {GOAL:g} x the eager fp32 loop: {said}, {best / base:.2f} x."]
    hours = table_2_hours(rows)
    if hours:
        lines += [
            "",
            f"Table 2 with {SAMPLES:,} pictures at the engine's best rate, one seed, on one such device, at most:",
            "",
            "| method | hours |",
            "|---|---|",
            *(f"| {name} | {value:.1f} |" for name, value in hours.items()),
            f"| all | {sum(hours.values()):.1f} |",
        ]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="the rows that explain the others, too")
    parser.add_argument("--compare", action="store_true", help="only the network's kernels against plain layers")
    parser.add_argument("--seconds", type=float, default=3.0, help="of measuring, a row")
    parser.add_argument("--timeout", type=float, default=80.0, help="seconds a row may take with its start")
    parser.add_argument("--budget", type=float, default=90.0, help="seconds after which no further row begins")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--crop", type=int, default=227)
    parser.add_argument("--samples", type=int, default=2048, help="pictures held; an epoch of the measurement")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--write", type=Path, help="the page; the JSON is written beside it")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--row", choices=list(ROWS), help="measure this row alone, here")
    parser.add_argument("--profile", action="store_true", help="the kernels of one network's step, and nothing else")
    parser.add_argument("--top", type=int, default=25, help="kernels to name")
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
    for name, row in (COMPARED if options.compare else ROWS if options.all else FIRST).items():
        if device.type != "cuda" and any(key in row for key in GPU_ALONE):
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
