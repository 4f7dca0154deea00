"""The kernels on whole ResNets: errors, repeatability, speed and block sizes. Needs a GPU.

    python3 benchmarks/fused.py [--parts check,ops,sweep,step,profile] [--modes layers,fused] [--networks 1,2,8,16,32]
    python3 benchmarks/fused.py --preactivation --parts check,step --modes fused [--networks 4,16,24]

Modes: fused (the default), layers (LABELSIEVE_FUSED=0: one kernel per layer), plain (LABELSIEVE_KERNELS=0).
About ten minutes for all parts, most of it compiling: one for check, one for ops, six for sweep, one for each mode.

check    errors of features, gradients and running statistics against float64, fused and by layers
ops      microseconds of each op by stage, fused and by layers
sweep    block sizes; the best as JSON for LABELSIEVE_BLOCKS, which the parts after it (and only this script) use
step     images a second of the whole training step (augmentation, network, Adam) by mode; ResNet-110 with 4 networks
         (--preactivation: ResNet-110 of the pre-activation form alone)
profile  where the time of a step goes, 8 and 2 networks

Every part, mode and slice of the sweep runs in a process of its own: one that fails costs its own numbers alone.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
STAGES = {2: (16, 32), 4: (32, 16), 6: (64, 8)}  # layer of a ResNet-8, its channels and height
BATCH = 128
FOUND = "FOUND "
MODES: dict[str, dict[str, str]] = {
    "fused": {},
    "layers": {"LABELSIEVE_FUSED": "0"},
    "plain": {"LABELSIEVE_KERNELS": "0"},
}


def found(**row: Any) -> None:
    print(FOUND + json.dumps(row), flush=True)


# ---------------------------------------------------------------- what a child process measures


def override_blocks(entries: dict[str, dict[str, Any]]) -> None:
    """Replace entries of the tables of blocks: {"conv" (weight, fused_conv): {"channels,height": [...]}}."""
    from labelsieve.models.kernels import blocks

    tables: dict[str, tuple[dict[Any, Any], Any]] = {
        "conv": (blocks.CONV, blocks.ConvBlock),
        "weight": (blocks.WEIGHT, blocks.WeightBlock),
        "fused_conv": (blocks.FUSED_CONV, blocks.FusedConvBlock),
    }
    for kind, sizes in entries.items():
        table, block = tables[kind]
        for key, values in sizes.items():
            channels, height = map(int, key.split(","))
            table[channels, height] = block(*values)


def check(n: int, limits: list[int] | None, preactivation: bool) -> None:
    import torch

    from labelsieve.models.kernels import resnet
    from labelsieve.models.layers import BatchNorm
    from labelsieve.models.resnet_cifar import ResNetCifar

    torch.manual_seed(n)
    first = ResNetCifar(depth=14, n=n, preactivation=preactivation).cuda().train()
    for part in first.modules():
        if isinstance(part, BatchNorm):
            torch.nn.init.uniform_(part.weight, 0.5, 1.5)
            torch.nn.init.normal_(part.bias, std=0.3)
            part.valid = None if limits is None else torch.tensor(limits, dtype=torch.int32, device="cuda")
    x = torch.randn(29, 3 * n, 32, 32, device="cuda").bfloat16().contiguous(memory_format=torch.channels_last)
    g = torch.randn(29, n * 64, device="cuda")
    results = []
    os.environ["LABELSIEVE_FUSED"] = "0"  # of ResNetCifar.features
    for kind in ("fused", "again", "layers", "exact"):
        module = copy.deepcopy(first)
        if kind == "exact":
            module = module.double()
        assert resnet.supported(module, x)
        parameters = [p for name, p in module.named_parameters() if "head" not in name]
        run = resnet.features if kind in ("fused", "again") else ResNetCifar.features
        y = run(module, x.double() if kind == "exact" else x)
        gradients = torch.autograd.grad(y, parameters, g.to(y.dtype))
        buffers = torch.cat([b.reshape(-1) for b in module.buffers()])
        results.append([torch.cat([t.reshape(-1) for t in gradients]), y.detach()[:1], buffers])
    fused, again, layers, exact = results
    errors = {
        f"{kind}_{name}": float((a.double() - b).norm() / b.norm())
        for kind, one in (("fused", fused), ("layers", layers))
        for name, a, b in zip(("gradient", "features", "statistics"), one, exact, strict=True)
    }
    same = all(torch.equal(a, b) for a, b in zip(fused, again, strict=True))
    found(n=n, valid=limits is not None, preactivation=preactivation, repeats=same, **errors)


def layer_of(n: int) -> Any:
    """A ResNet-8's plan on pictures of 32 pixels, ready to launch single ops."""
    import torch

    from labelsieve.models.kernels import resnet
    from labelsieve.models.resnet_cifar import ResNetCifar

    module = ResNetCifar(depth=8, n=n).cuda().train()
    resnet.TOGETHER = 1
    plan = resnet.Plan(module, 32, 32)
    run = resnet._Pass(plan, torch.empty(BATCH, 3, 1, 1, device="cuda", dtype=torch.bfloat16))
    run.packed.normal_()
    return module, plan, run


def ops(n: int) -> None:
    _module, plan, run = layer_of(n)
    for i, (c, size) in STAGES.items():
        stage_ops(n, plan, run, i, c, size)


def stage_ops(n: int, plan: Any, run: Any, i: int, c: int, size: int) -> None:
    import torch
    from kernels import random, timed

    from labelsieve.models.kernels import Norm, batch_norm_act, conv

    shape = (BATCH, n * c, size, size)
    sets = range(max(2, min(6, int(3e8 // (BATCH * n * c * size * size * 2)))))
    wide = [(random(*shape, seed=s), random(*shape, seed=s + 9)) for s in sets]
    long = [tuple(t.permute(0, 2, 3, 1).reshape(n, BATCH, size, size, c) for t in pair) for pair in wide]
    w = conv.pack(random(n * c, c, 3, 3, seed=99), torch.bfloat16)
    affine = [torch.rand(n * c, device="cuda") + 0.5 for _ in range(4)]
    _, part = run.convolve(i, long[0][0], 1)
    coefficients = run.normalise(i, long[0][0], part, torch.empty_like(long[0][0]))
    grads = [torch.empty_like(p) for p in plan.parameters]
    where = plan.table(tuple(plan.parameters), BATCH)[1]
    sums = torch.empty(where[-1][0], device="cuda")
    rows: list[tuple[str, Callable[..., object], Callable[..., object]]] = [
        ("conv+sums", lambda x, r: run.convolve(i, x, 1), lambda x, r: conv.convolve(x, w, n, stats=True)),
        (
            "dgrad (fused: +relu+sums)",
            lambda x, r: run.convolve(i, x, 2, before=r, coefficients=coefficients),
            lambda x, r: conv.convolve(x, w, n, transposed=True),
        ),
        (
            "dgrad+skip (fused: +relu+sums)",
            lambda x, r: run.convolve(i, x, 3, before=r, gate=r, skip=r, coefficients=coefficients),
            lambda x, r: conv.convolve(x, w, n, transposed=True)[0] + r,
        ),
        (
            "wgrad (layer: +its sum)",
            lambda x, r: run.weight_gradient(i, x, r, sums, where),
            lambda x, r: conv.weight_gradient(x, r, n),
        ),
        (
            "norm+skip forward",
            lambda x, r: run.normalise(i, x, part, torch.empty_like(x), r),
            lambda x, r: batch_norm_act(x, Norm(*affine, n=n), residual=r, sums=part),
        ),
    ]
    for name, new, old in rows:
        found(n=n, c=c, op=name, new=timed(new, long), old=timed(old, wide))
    leaves = [(x.detach().requires_grad_(), r.detach().requires_grad_()) for x, r in wide]

    def both(x: Any, r: Any) -> None:
        y = batch_norm_act(x, Norm(*affine, n=n), residual=r, sums=part)
        torch.autograd.grad(y, (x, r), r.detach())

    old_time = timed(both, leaves) - timed(rows[-1][2], wide)
    new_time = timed(lambda x, r: run.norm_gradient(i, r, x, coefficients, part, grads, torch.empty_like(x)), long)
    found(n=n, c=c, op="norm backward (layer: +sums)", new=new_time, old=old_time)


def choices(kind: str, c: int) -> list[tuple[int, ...]]:
    """Blocks that may fit: ConvBlock, FusedConvBlock or WeightBlock."""
    made: list[tuple[int, ...]] = []
    height = {16: 32, 32: 16, 64: 8}[c]
    if kind == "fused_conv":
        columns = {16: (16,), 32: (32, 16), 64: (64, 32)}[c]
        shapes = {16: ((32, 1), (64, 2), (64, 4), (128, 4)), 32: ((32, 2), (64, 4), (64, 2), (32, 1))}.get(
            c, ((32, 4), (64, 4), (32, 2), (64, 8))
        )
        for (pixels, warps), n, rows in itertools.product(shapes, columns, (32, 16) if c == 16 else (height,)):
            several = (2, 3, 4) if c < 64 and rows == height else (2, 3)
            made += [(pixels, rows, n, warps, stages, 0) for stages in several]
    elif kind == "conv":  # rows + 2 is best a multiple of three, or all rows at once
        for rows in (height, height // 2, 7 if c == 16 else 4):
            made += [(pixels, rows, min(c, 32), warps, 1) for pixels, warps in ((32, 2), (64, 2), (64, 4), (128, 4))]
            made += [(pixels, rows, 64, warps, 1) for pixels, warps in ((32, 4), (64, 4), (64, 8)) if c == 64]
    else:
        tiles = {16: ((64, 64),), 32: ((128, 128), (64, 64)), 64: ((64, 64), (128, 128))}[c]
        for pixels, tile, warps, stages in itertools.product((64, 128), tiles, (4, 8), (1, 3)):
            if tile[0] * tile[1] // warps <= 4096 and stages * pixels * sum(tile) * 2 < 200_000:
                made += [
                    (pixels, *tile, programs, warps, stages)
                    for programs in ((264, 528, 1056) if warps == 4 else (264,))
                ]
    return made


def sweep(kind: str, c: int, n: int, some: list[int], compile_only: bool) -> None:
    import torch
    from kernels import random, timed

    from labelsieve.models.kernels import conv

    _module, plan, run = layer_of(n)
    i = next(i for i, stage in STAGES.items() if stage[0] == c)
    size = STAGES[i][1]
    wide = [random(BATCH, n * c, size, size, seed=s) for s in range(1 if compile_only else 4)]
    tensors = wide if kind == "conv" else [x.permute(0, 2, 3, 1).reshape(n, BATCH, size, size, c) for x in wide]
    packed = conv.pack(random(n * c, c, 3, 3, seed=9), torch.bfloat16)
    coefficients = random(4, n * c).float()

    def layer(x: Any) -> None:
        conv.convolve(x, packed, n, stats=True)
        conv.convolve(x, packed, n, transposed=True)

    def fused(x: Any) -> None:
        run.convolve(i, x, 1)
        run.convolve(i, x, 2, before=x, coefficients=coefficients)

    def weight(x: Any) -> None:
        where = plan.table(tuple(plan.parameters), BATCH)[1]
        run.weight_gradient(i, x, x, torch.empty(where[-1][0], device="cuda"), where)

    op = {"conv": layer, "fused_conv": fused, "weight": weight}[kind]
    for k in some:
        choice = choices(kind, c)[k]
        print(f"TRY {k}", flush=True)
        try:
            override_blocks({kind: {f"{c},{size}": choice}})
            plan._tables.clear()
            plan.table(tuple(plan.parameters), BATCH)  # a copy to the device, which a graph may not hold
            if compile_only:
                op(tensors[0])
            else:
                found(k=k, us=timed(op, [(x,) for x in tensors], calls=8))
        except Exception as problem:  # a choice that does not fit the chip is out
            if "out of resource" not in str(problem):
                print("  ", choice, type(problem).__name__, str(problem)[:150], flush=True)


def training(n: int, depth: int, preactivation: bool, pictures: int) -> Any:
    """n networks in lockstep, ready to step."""
    from functools import partial

    import numpy as np
    import torch

    from labelsieve.bench.engine_speed import made_pictures
    from labelsieve.engine import Plan, Schedule, stage_pictures
    from labelsieve.engine.lockstep import Lockstep, Options
    from labelsieve.methods.standard import Standard
    from labelsieve.models.resnet_cifar import ResNetCifar

    x, y = made_pictures(pictures)
    standard = Standard()
    work = [(standard, Plan(f"network {i}", y, np.arange(len(x)), seed=i)) for i in range(n)]
    network = partial(ResNetCifar, depth=depth, preactivation=preactivation)
    options = Options(batch_size=BATCH, together=True)
    lockstep = Lockstep(stage_pictures(x, torch.device("cuda")), network, work, Schedule.paper_200(), options)
    for row in range(n):
        lockstep._begin_epoch(row)
    return lockstep


def step(n: int, depth: int, preactivation: bool, seconds: float) -> None:
    import torch

    began = time.perf_counter()
    lockstep = training(n, depth, preactivation, 50_000)
    lockstep.stepper.run(3, BATCH)
    torch.cuda.synchronize()
    ready, steps = time.perf_counter(), 0
    while seconds and time.perf_counter() - ready < seconds:
        lockstep.stepper.run(5, BATCH)
        torch.cuda.synchronize()
        steps += 5
    rate = steps * n * BATCH / (time.perf_counter() - ready)
    found(n=n, depth=depth, rate=rate, start=ready - began, gib=torch.cuda.max_memory_allocated() / 2**30)


def profile(n: int, depth: int, preactivation: bool) -> None:
    import torch

    lockstep = training(n, depth, preactivation, 20_000)
    lockstep.stepper.run(3, BATCH)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as record:
        lockstep.stepper.run(3, BATCH)
        torch.cuda.synchronize()
    events = sorted(record.key_averages(), key=lambda e: -e.self_device_time_total)
    total, calls = sum(e.self_device_time_total for e in events), sum(e.count for e in events)
    found(n=n, total_ms=total / 3e3, kernels=calls // 3)
    for e in events[:14]:
        found(n=n, share=100 * e.self_device_time_total / total, us=e.self_device_time_total / e.count,
              calls=e.count / 3, name=e.key[:60])  # fmt: skip


# ---------------------------------------------------------------- the parent: starts children, prints tables


def child(
    job: dict[str, Any], mode: str, timeout: float, quiet: bool = False
) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows a child found (also where it failed later), and its other lines."""
    environment = os.environ | MODES[mode]
    command = [sys.executable, str(Path(__file__).resolve()), "--job", json.dumps(job)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
        text, problem = done.stdout, "" if done.returncode == 0 else done.stderr.strip()[-600:]
    except subprocess.TimeoutExpired as late:
        text = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        problem = f"out of time after {timeout:.0f} s"
    if problem and not quiet:
        print(f"  {job} {mode}: {problem}", flush=True)
    lines = text.splitlines()
    return [json.loads(line[len(FOUND) :]) for line in lines if line.startswith(FOUND)], [
        line for line in lines if not line.startswith(FOUND)
    ]


def sweep_all(n: int, seconds: float) -> Iterator[str]:
    """Compile in many processes at once, then time in one; a choice that breaks the device is left out."""
    best: dict[str, dict[str, list[int]]] = {}
    for kind, c in itertools.product(("fused_conv", "weight", "conv"), (16, 32, 64)):
        begun, all_of_them = time.perf_counter(), choices(kind, c)
        job = {"part": "sweep", "kind": kind, "c": c, "n": n}
        script = [sys.executable, str(Path(__file__).resolve()), "--job"]
        slices = [list(range(k, len(all_of_them), 12)) for k in range(12)]
        jobs = [json.dumps(job | {"some": some, "compile_only": True}) for some in slices if some]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        started = [subprocess.Popen([*script, one], **silent) for one in jobs]
        for process in started:
            try:
                process.wait(max(1.0, seconds - (time.perf_counter() - begun)))
            except subprocess.TimeoutExpired:
                process.kill()
        left, times = list(range(len(all_of_them))), {}
        while left and time.perf_counter() - begun < 2 * seconds:
            rows, lines = child(job | {"some": left, "compile_only": False}, "fused", seconds, quiet=True)
            times |= {row["k"]: row["us"] for row in rows}
            tried = [int(line.split()[1]) for line in lines if line.startswith("TRY")]
            left = [k for k in left if k > tried[-1]] if tried else []
        order = sorted(times, key=lambda k: times[k])[:4]
        if order:
            key = f"{c},{STAGES[next(i for i, s in STAGES.items() if s[0] == c)][1]}"
            block = list(all_of_them[order[0]])
            if kind == "fused_conv":
                block[-1] = 1056 // block[3]  # programs to aim at: eight warps a multiprocessor
            best.setdefault(kind, {})[key] = block
        shown = "   ".join(f"{list(all_of_them[k])} {times[k]:.1f}" for k in order)
        yield f"  {kind:12s} c={c} ({len(times)} of {len(all_of_them)}, {time.perf_counter() - begun:.0f} s): {shown}"
    os.environ["LABELSIEVE_BLOCKS"] = json.dumps(best)
    yield f"  LABELSIEVE_BLOCKS='{json.dumps(best)}'"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="check,ops,step,profile")
    parser.add_argument("--modes", default="layers,fused")
    parser.add_argument("--networks", help="1,2,8,16,32; of the pre-activation form 4,16,24")
    parser.add_argument("--preactivation", action="store_true", help="check, step, profile: ResNet-110 of that form")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement of a step")
    parser.add_argument("--sweep-seconds", type=float, default=50.0, help="at most, for each kind and stage")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        override_blocks(json.loads(os.environ.get("LABELSIEVE_BLOCKS", "{}")))
        job = json.loads(args.job)
        part = job.pop("part")
        {"check": check, "ops": ops, "sweep": sweep, "step": step, "profile": profile}[part](**job)
        return
    networks = args.networks or ("4,16,24" if args.preactivation else "1,2,8,16,32")
    sizes = [(int(n), 110 if args.preactivation else 32) for n in networks.split(",")]
    sizes += [] if args.preactivation else [(4, 110)]
    form = {"preactivation": args.preactivation}
    modes = args.modes.split(",")
    if not set(modes) <= set(MODES):
        parser.error(f"modes are {', '.join(MODES)}")
    table: list[str] = []

    def say(line: str = "") -> None:
        print(line, flush=True)

    for part in args.parts.split(","):
        begun = time.perf_counter()
        if part == "check":
            say("check: relative error against float64, bf16; repeats: two runs give the same bits")
            cases = [(1, None), (3, (29, 7, 1)), (8, None)]
            jobs = [{"part": "check", "n": n, "limits": limits, **form} for n, limits in cases]
            with ThreadPoolExecutor() as pool:  # most of it is compiling
                results = list(pool.map(lambda job: child(job, "fused", 400)[0], jobs))
            for row in itertools.chain(*results):
                say("  " + "  ".join(f"{k} {v:.1e}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()))
        elif part == "ops":
            say("ops: microseconds, fused | by layers")
            for n in (2, 8, 32):
                for row in child({"part": "ops", "n": n}, "fused", 240)[0]:
                    say(f"  n={row['n']:2d} c={row['c']:2d}  {row['op']:30s} {row['new']:7.1f} | {row['old']:7.1f}")
        elif part == "sweep":
            say("sweep: 8 networks, microseconds (conv: forward and gradient)")
            for line in sweep_all(8, args.sweep_seconds):
                say(line)
        elif part == "profile":
            depth = 110 if args.preactivation else 32
            for n, mode in itertools.product((8, 2), modes):
                say(f"profile: {mode}")
                for row in child({"part": "profile", "n": n, "depth": depth, **form}, mode, 180)[0]:
                    say(
                        "  " + "  ".join(f"{k} {v:.1f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
                    )
        elif part == "step":
            rates: dict[tuple[int, int], dict[str, float]] = {}
            memory: dict[tuple[int, int], float] = {}
            jobs = [{"part": "step", "n": n, "depth": depth, **form} for n, depth in sizes]
            each = [(job, mode) for mode in modes for job in jobs]
            with ThreadPoolExecutor(4) as pool:  # compile
                list(pool.map(lambda one: child(one[0] | {"seconds": 0}, one[1], 300, quiet=True), each))
            for job, mode in each:
                for row in child(job | {"seconds": args.seconds}, mode, 120)[0]:
                    rates.setdefault((row["n"], row["depth"]), {})[mode] = row["rate"]
                    memory[row["n"], row["depth"]] = row["gib"]
            table = [
                "step: thousand images a second, whole training step",
                "   n depth " + "".join(f"{m:>18s}" for m in modes) + "   GiB",
            ]
            for (n, depth), row in rates.items():
                numbers = "".join(f"{row.get(m, 0) / 1e3:18.1f}" for m in modes)
                table.append(f"  {n:2d}  {depth:3d}  {numbers}{memory[n, depth]:6.1f}")
        else:
            sys.exit(f"unknown part {part!r}")
        say(f"  ({part}: {time.perf_counter() - begun:.0f} s)")
    for line in table:
        say(line)


if __name__ == "__main__":
    main()
