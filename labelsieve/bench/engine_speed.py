"""`labelsieve bench engine`: the engine and the usual training loop, measured in one run on one device.

The usual loop is that of published repositories: a DataLoader with workers and transforms per picture, one network,
eager, float32, torch.optim.Adam. The engine trains 1 to n networks in lockstep.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labelsieve.engine import Plan, Schedule, stage_pictures
from labelsieve.engine.lockstep import Lockstep, Options
from labelsieve.errors import FailedError
from labelsieve.methods.incv_posterior import INCVPosterior
from labelsieve.methods.standard import Standard
from labelsieve.models.resnet_cifar import PreActResNet, ResNetCifar
from labelsieve.progress import Progress, Stage
from labelsieve.theory import symmetric

BATCH = 128  # samples per network, as in the paper
WORKERS = 8  # processes of the usual loop that read pictures
FINISH_BATCH = 256  # samples, as incv-posterior trains pictures
ROUNDS, TURN = 25, 1.0  # on a CPU: rounds, and seconds per loop and round (at least one step)


def made_pictures(count: int = 50_000) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Random pictures of the shape of CIFAR-10."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, count)


class _Pictures(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Single pictures, cropped and flipped on the CPU."""

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


def usual_loop(device: torch.device, *, seconds: float, depth: int = 32) -> float:
    """Training pictures per second."""
    x, y = made_pictures(20_000)
    loader = torch.utils.data.DataLoader(
        _Pictures(x, y), BATCH, shuffle=True, num_workers=WORKERS, drop_last=True, pin_memory=device.type == "cuda"
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


Take = Callable[[int], None]  # takes that many training steps


def plain_loop(device: torch.device, *, depth: int = 32) -> Take:
    """A plain loop with the data on the device, eager, float32."""
    x, y = made_pictures(4096)
    store = stage_pictures(x, device)
    network = ResNetCifar(depth=depth).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-4)
    labels = torch.as_tensor(y, device=device)

    def take(steps: int) -> None:
        for _ in range(steps):
            index = torch.randint(len(x), (1, BATCH), device=device)
            code = torch.randint(store.codes, (1, BATCH), device=device)
            optimizer.zero_grad()
            logits = network(store.batch(index, code).float())
            torch.autograd.backward(nn.functional.cross_entropy(logits, labels[index[0]]))
            optimizer.step()

    return take


def engine_loop(device: torch.device, networks: int, *, depth: int = 32) -> Take:
    """`networks` networks in lockstep."""
    x, y = made_pictures(50_000 if device.type == "cuda" else 4096)
    standard = Standard()
    work = [(standard, Plan(f"network {i}", y, np.arange(len(x)), seed=i)) for i in range(networks)]
    lockstep = Lockstep(
        stage_pictures(x, device), partial(ResNetCifar, depth=depth), work, Schedule.paper_200(),
        Options(batch_size=BATCH, together=device.type == "cuda"),
    )  # fmt: skip
    for row in range(networks):
        lockstep._begin_epoch(row)
    return lambda steps: lockstep.stepper.run(steps, BATCH)


def finish_loop(device: torch.device, *, capture: bool) -> Take:
    """PreAct-ResNet-18 with incv-posterior: teacher, strong views, mixup and memory; captured or eager."""
    x, y = made_pictures(50_000 if device.type == "cuda" else 512)
    half = len(x) // 2
    plan = Plan("finish", y, np.arange(half), seed=0, candidates=np.arange(half, len(x)), transition=symmetric(10, 0.4))
    method = INCVPosterior(warmup=0.0, **INCVPosterior.recipe.settings)
    lockstep = Lockstep(
        stage_pictures(x, device), PreActResNet, [(method, plan)], Schedule.cosine(100, 0.06),
        Options(batch_size=FINISH_BATCH, together=device.type == "cuda", capture=capture),
    )  # fmt: skip
    lockstep._begin_epoch(0)
    return lambda steps: lockstep.stepper.run(steps, FINISH_BATCH)


def finish_rates(device: torch.device, *, seconds: float) -> tuple[float, float]:
    """Training pictures per second of the eager and of the captured step of `finish_loop`."""
    rates = []
    for capture in (False, True):
        take = finish_loop(device, capture=capture)
        take(3)
        _wait(device)
        rates.append(steps_per_second(take, device, seconds) * FINISH_BATCH)
    return rates[0], rates[1]


def engine(device: torch.device, networks: int, *, seconds: float, depth: int = 32) -> dict[str, Any]:
    """Training pictures per second of `networks` networks, start-up time and peak memory."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    take = engine_loop(device, networks, depth=depth)
    take(3)
    _wait(device)
    start = time.perf_counter() - began
    rate = steps_per_second(take, device, seconds) * networks * BATCH
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else float("nan")
    return {"images_per_second": rate, "start_seconds": start, "peak_gib": peak}


def steps_per_second(take: Take, device: torch.device, seconds: float) -> float:
    """Steps per second, measured over at least this many seconds; a GPU is synchronised every few steps."""
    at_a_time = 5 if device.type == "cuda" else 1
    began, count, spent = time.perf_counter(), 0, 0.0
    while spent < seconds:
        take(at_a_time)
        _wait(device)
        count, spent = count + at_a_time, time.perf_counter() - began
    return count / spent


# On a CPU other processes, and the state of the heap, change a rate by more than the loops differ. So every loop has
# its own process, the loops take turns, and processor time is measured as well.


def in_turns(
    device: torch.device, networks: Sequence[int], *, seconds: float, rounds: int, depth: int = 32,
    stage: Stage | None = None,
) -> NDArray[np.float64]:  # fmt: skip
    """Pictures per second of time and of processor time, [loops, rounds, 2]; 0 networks mean the plain loop.

    `stage` advances with every turn, including the one in which a loop warms up.
    """
    stage = stage or Stage()
    rates = np.empty((len(networks), rounds, 2))
    path = os.pathsep.join(filter(None, sys.path))  # the package may be in a checkout that is not installed
    with ExitStack() as processes:
        loops = []
        for n in networks:
            command = [sys.executable, "-P", "-m", __name__, str(device), str(n), str(depth)]
            # In its own session: this process handles Ctrl-C.
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True,
                env=os.environ | {"PYTHONPATH": path},
            )  # fmt: skip
            processes.enter_context(process)
            processes.callback(process.kill)
            loops.append(process)
            _line_from(process)  # warm; no two loops run at the same time
            stage.advance()
        for turn in range(rounds):
            for loop, process in enumerate(loops):
                assert process.stdin is not None
                with suppress(OSError):  # it ended: the next line says why
                    process.stdin.write(f"{seconds}\n".encode())
                rates[loop, turn] = json.loads(_line_from(process))
                stage.advance()
    return rates


def _line_from(loop: subprocess.Popen[bytes]) -> bytes:
    assert loop.stdout is not None
    line: bytes = loop.stdout.readline()
    if not line:
        raise FailedError(f"a loop of the measurement ended with exit code {loop.wait()}: its error is shown above")
    return line


def take_turns(device: torch.device, networks: int, depth: int) -> None:
    """Read seconds from stdin, and write the two rates of a turn to stdout, until the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process; on Windows both get Ctrl-C
    take = engine_loop(device, networks, depth=depth) if networks else plain_loop(device, depth=depth)
    take(3)
    with suppress(BrokenPipeError):  # the parent was killed
        os.write(1, b"warm\n")
        for line in sys.stdin:
            began, worked = time.perf_counter(), time.process_time()
            rate = steps_per_second(take, device, float(line)) * max(networks, 1) * BATCH
            share = (time.process_time() - worked) / (time.perf_counter() - began)
            os.write(1, f"{json.dumps((rate, rate / share))}\n".encode())


def run(
    *, device: str = "auto", seconds: float = 4.0, networks: Sequence[int] | None = None, as_json: bool = False
) -> dict[str, Any]:
    """Measure, print, and return the numbers; progress goes to stderr unless `as_json`."""
    from labelsieve.engine.device import choose_device

    chosen = choose_device(device)
    cuda = chosen.type == "cuda"
    card = torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine()
    rows: list[dict[str, Any]] = []

    def add(name: str, rate: float, ratio: float, **more: Any) -> None:
        rows.append({"loop": name, "images_per_second": round(rate), "ratio": round(ratio, 2), **more})
        if not as_json:
            extra = "".join(f"  {key} {value:.2f}" for key, value in more.items())
            print(f"{name:58s} {rate:10,.0f} img/s  {ratio:6.2f} x{extra}", flush=True)

    if cuda:
        base = usual_loop(chosen, seconds=seconds)
        add(f"usual loop: DataLoader ({WORKERS} workers), eager, fp32", base, 1)
        take = plain_loop(chosen)
        take(3)
        plain = steps_per_second(take, chosen, seconds) * BATCH
        add("data on the device, eager, fp32", plain, plain / base)
        for n in networks or (1, 2, 8, 16, 32):
            found = engine(chosen, n, seconds=seconds)
            rate = found.pop("images_per_second")
            add(f"engine, {n} x ResNet-32", rate, rate / base, **found)
            torch.cuda.empty_cache()
        if networks is None:
            deep = usual_loop(chosen, seconds=seconds, depth=110)
            add("usual loop, ResNet-110", deep, 1)
            found = engine(chosen, 4, seconds=seconds, depth=110)
            rate = found.pop("images_per_second")
            add("engine, 4 x ResNet-110 (ratio to the usual loop's)", rate, rate / deep, **found)
            eager, captured = finish_rates(chosen, seconds=seconds)
            add("incv-posterior, PreAct-ResNet-18, eager step", eager, 1)
            add("incv-posterior, PreAct-ResNet-18, captured step (ratio to eager)", captured, captured / eager)
    else:
        counts = (0, *(networks or (1, 2)))
        progress = Progress(silent=as_json)
        progress.note(f"measuring {len(counts)} loops in {ROUNDS} rounds; the results are printed at the end")
        with progress.stage("bench engine", len(counts) * (1 + ROUNDS), unit="turns") as stage:
            rates = in_turns(chosen, counts, seconds=TURN, rounds=ROUNDS, stage=stage)
        for n, own in zip(counts, rates, strict=True):
            name = f"engine, {n} x ResNet-32" if n else "plain eager loop, 1 x ResNet-32"
            low, ratio, high = np.quantile(own[:, 0] / rates[0, :, 0], (0.25, 0.5, 0.75))  # round by round
            processor = np.median(own[:, 1] / rates[0, :, 1])
            spread = {"quarter_below": float(low), "quarter_above": float(high), "by_processor_time": float(processor)}
            add(name, float(np.median(own[:, 0])), float(ratio), **(spread if n else {}))
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
    take_turns(torch.device(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
