"""The stacked networks' kernels on a GPU: right, then fast. Needs torch, triton and numpy; about two minutes.

    python3 benchmarks/kernels.py [--parts check,ops,sweep,step,profile,fused] [--networks 2,8,16,32] [--batch 128]

check    relative error of every op against float64
ops      microseconds and GB/s (bytes that must move over time) by op and stage, beside cuDNN
sweep    block sizes: the best of each stage, as lines for labelsieve/models/kernels/blocks.py
step     ResNet-32, forward and backward in a CUDA graph, images a second
profile  where the step's time goes for 8 networks
fused    the kernels LABELSIEVE_FUSED switches on against these: benchmarks/fused.py, which takes more options
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from labelsieve.models import kernels
from labelsieve.models.kernels import blocks, reference

DEVICE = "cuda"
STAGES = {1: (16, 32), 2: (32, 16), 3: (64, 8)}
LAST = torch.channels_last
LINES: list[str] = []


def say(line: str = "") -> None:
    print(line, flush=True)
    LINES.append(line)


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator(DEVICE).manual_seed(seed)
    made = torch.randn(shape, device=DEVICE, generator=generator).bfloat16()
    return made.contiguous(memory_format=LAST) if len(shape) == 4 else made


def captured(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """The work as a graph, after two runs that compile and allocate."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def median_us(graph: torch.cuda.CUDAGraph, calls: int, repeats: int = 7) -> float:
    graph.replay()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / calls)
    return statistics.median(times)


def timed(op: Callable[..., object], inputs: Sequence[tuple[Tensor, ...]], calls: int = 12) -> float:
    """Microseconds a call, the inputs taken in turn so that the cache does not hold them."""

    def work() -> None:
        for i in range(calls):
            op(*inputs[i % len(inputs)])

    return median_us(captured(work), calls)


def error(got: Tensor, want: Tensor) -> float:
    return float((got.double() - want.double()).norm() / want.double().norm())


# ---------------------------------------------------------------- check


def check(batch: int) -> None:
    from labelsieve.models.kernels import conv, norm

    say("check: relative error against float64 (bf16 itself: about 2e-3)")
    cases = [(c, c, s, 1) for c, s in STAGES.values()] + [(3, 16, 32, 1), (16, 32, 32, 2), (32, 64, 16, 2)]
    worst = 0.0
    for n, (cin, cout, size, stride) in itertools.product((3, 8), cases):
        x, w = random(batch + 3, n * cin, size, size), random(n * cout, cin, 3, 3, seed=1).float() * 0.2
        x.requires_grad_(), w.requires_grad_()
        valid = torch.randint(1, batch, (n,), device=DEVICE, dtype=torch.int32)
        y, sums = conv.grouped_conv3x3_sums(x, w, n, stride=stride, valid=valid)
        g = random(*y.shape, seed=2)
        y.backward(g)
        xd, wd = x.detach().double().requires_grad_(), w.detach().bfloat16().double().requires_grad_()
        want = reference.grouped_conv3x3(xd, wd, n, stride=stride)
        want.backward(g.double())
        masked = y.double() * reference.valid_mask(valid, len(x), n * cout)
        errors = [error(y, want), error(x.grad, xd.grad), error(w.grad, wd.grad)]
        errors += [error(sums[0].sum(0), masked.sum((0, 2, 3))), error(sums[1].sum(0), (masked**2).sum((0, 2, 3)))]
        again = conv.weight_gradient(x.detach(), g, n, stride=stride)
        same = torch.equal(again, conv.weight_gradient(x.detach(), g, n, stride=stride))
        worst = max(worst, *errors[:3])
        shown = " ".join(f"{e:.1e}" for e in errors)
        say(f"  conv n={n} {cin:2d}->{cout} {size:2d} /{stride}  y dx dw sum sq: {shown} repeats {same}")
    for n, (c, size), residual, masked_case in itertools.product((3, 8), STAGES.values(), (True, False), (True, False)):
        x, r, g = (random(batch + 3, n * c, size, size, seed=s) for s in range(3))
        x = (x * 2 + 1).contiguous(memory_format=LAST)
        gamma, beta = random(n * c, seed=4).float(), random(n * c, seed=5).float()
        limit = torch.randint(1, batch, (n,), device=DEVICE, dtype=torch.int32) if masked_case else None
        results = []
        for run, dtype in ((norm.batch_norm_act, None), (reference.batch_norm_act, torch.float64)):
            cast = [t.detach().to(dtype or t.dtype).requires_grad_() for t in (x, r, gamma, beta)]
            mean, var = torch.zeros_like(cast[2]), torch.ones_like(cast[2])
            mean, var = mean.detach(), var.detach()
            y = run(cast[0], cast[2], cast[3], mean, var, n, residual=cast[1] if residual else None, valid=limit)
            y.backward(g.to(y.dtype))
            inside = 1 if limit is None else reference.valid_mask(limit, len(x), n * c)
            results.append([y.detach() * inside, cast[0].grad, cast[2].grad, cast[3].grad, mean, var])
        errors = [error(a, b) for a, b in zip(*results, strict=True)]
        worst = max(worst, *errors)
        if n == 3:
            label = f"norm n={n} c={c} residual={int(residual)} valid={int(masked_case)}"
            say(f"  {label}  y dx dgamma dbeta mean var: {' '.join(f'{e:.1e}' for e in errors)}")
    say(f"  worst {worst:.1e}: {'good' if worst < 1e-2 else 'BAD'}")


# ---------------------------------------------------------------- ops


def ops(networks: Sequence[int], batch: int) -> None:
    from labelsieve.models.kernels import conv

    say()
    say("ops: us (GB/s), ours | cuDNN or eager torch; bytes: the least that must move")
    say("stage   n  op            ours            torch")
    for stage, (c, size) in STAGES.items():
        for n in networks:
            tensor = batch * n * c * size * size * 2
            sets = max(2, min(8, int(3e8 // tensor)))
            xs = [random(batch, n * c, size, size, seed=i) for i in range(sets)]
            gs = [random(batch, n * c, size, size, seed=50 + i) for i in range(sets)]
            w = random(n * c, c, 3, 3, seed=99)
            packed = conv.pack(w, torch.bfloat16)
            gamma, beta, mean, var = (torch.rand(n * c, device=DEVICE) for _ in range(4))
            pairs, single = list(zip(xs, gs, strict=True)), [(x,) for x in xs]

            params = (gamma, beta, mean, var)
            rows = op_rows(n, w, packed, params, single, pairs)
            for name, passes, ours, theirs, inputs in rows:
                times = [timed(ours, inputs), 0.0 if name == "conv+sums" else timed(theirs, inputs)]
                show = [f"{t:8.1f} ({passes * tensor / t / 1e3:5.0f})" if t else "" for t in times]
                say(f"  {stage}   {n:3d}  {name:10s} {show[0]}  {show[1]}")
            both = [norm_backward(norm_of(module, n, params), pairs, 5 * tensor) for module in (kernels, reference)]
            say(f"  {stage}   {n:3d}  norm bwd   {both[0]}  {both[1]}")


Row = tuple[str, int, Callable[..., object], Callable[..., object], list[tuple[Tensor, ...]]]


def norm_of(module: Any, n: int, params: tuple[Tensor, ...]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, r: module.batch_norm_act(x, *params, n, residual=r)


def op_rows(n: int, w: Tensor, packed: Tensor, params: tuple[Tensor, ...], single: Any, pairs: Any) -> list[Row]:
    """Name, tensors that must move, our op, torch's op, inputs."""
    from labelsieve.models.kernels import conv

    last = w.contiguous(memory_format=LAST)

    def backward(*mask: bool) -> Callable[[Tensor, Tensor], object]:
        one, none = (1, 1), (0, 0)
        return lambda x, g: torch.ops.aten.convolution_backward(g, x, last, None, one, one, one, False, none, n, mask)

    def dgrad(x: Tensor, g: Tensor) -> object:
        return conv.convolve(g, packed, n, transposed=True)

    def wgrad(x: Tensor, g: Tensor) -> object:
        return conv.weight_gradient(x, g, n)

    return [
        ("conv", 2, lambda x: conv.convolve(x, packed, n), lambda x: F.conv2d(x, last, padding=1, groups=n), single),
        ("conv+sums", 2, lambda x: conv.convolve(x, packed, n, stats=True), lambda x: None, single),
        ("dgrad", 2, dgrad, backward(True, False, False), pairs),
        ("wgrad", 2, wgrad, backward(False, True, False), pairs),
        ("norm", 3, norm_of(kernels, n, params), norm_of(reference, n, params), pairs),
    ]


def norm_backward(run: Callable[[Tensor, Tensor], Tensor], pairs: list[tuple[Tensor, ...]], size: int) -> str:
    """Forward + backward less forward, with a gradient for x and the residual."""
    leaves = [(x.detach().requires_grad_(), g.detach().requires_grad_(), torch.randn_like(x)) for x, g in pairs]

    def both(x: Tensor, r: Tensor, g: Tensor) -> None:
        torch.autograd.grad(run(x, r), (x, r), g)

    took = max(timed(both, leaves) - timed(lambda x, r, g: run(x, r), leaves), 1e-3)
    return f"{took:8.1f} ({size / took / 1e3:5.0f})"


# ---------------------------------------------------------------- sweep


def conv_choices(c: int, size: int) -> list[blocks.ConvBlock]:
    """Rows: (rows + 2) is best a multiple of three, or all rows at once."""
    shapes = {16: (16, (1, 2)), 32: (32, (1, 2)), 64: (32, (1,))}
    columns, groups = shapes[c]
    rows = {16: (7, 8, 16, 32), 32: (4, 8, 16), 64: (4, 8)}[c]
    made = [blocks.ConvBlock(p, r, g, columns * g, 4, 1) for p, r, g in itertools.product((64, 128), rows, groups)]
    made += [blocks.ConvBlock(p, r, 1, columns, 2, 1) for p, r in itertools.product((32, 64), rows)]
    if c == 64:
        made += [
            blocks.ConvBlock(64, r, 1, n, w, 1) for r, (n, w) in itertools.product(rows, ((64, 4), (64, 8), (16, 4)))
        ]
    return made


def weight_choices(c: int) -> list[blocks.WeightBlock]:
    tiles = {16: ((64, 64),), 32: ((128, 128), (128, 32), (32, 128)), 64: ((256, 64), (64, 64), (64, 256))}[c]
    made = []
    for pixels, (a, b), warps, stages in itertools.product((64, 128, 256), tiles, (4, 8), (2, 3)):
        if a * b // warps <= 4096 and stages * pixels * (a + b) * 2 < 200_000:
            made += [blocks.WeightBlock(pixels, a, b, programs, warps, stages) for programs in (264, 528, 1056)]
    return made


def norm_choices() -> list[blocks.NormBlock]:
    choices = itertools.product((2048, 4096, 8192), (64, 128, 256), (264, 528, 1056), (4, 8))
    return [blocks.NormBlock(*choice) for choice in choices if choice[0] // choice[3] == 1024 or choice[2] == 528]


def attempt(job: tuple[str, int, int, tuple[int, ...], int, int], measure: bool) -> float:
    """Time (or only compile) one choice; infinity where it does not fit the chip."""
    from labelsieve.models.kernels import conv

    kind, c, size, choice, n, batch = job
    key = (c, size)
    sets = 4 if measure else 1
    try:
        xs = [random(batch, n * c, size, size, seed=i) for i in range(sets)]
        packed = conv.pack(random(n * c, c, 3, 3, seed=9), torch.bfloat16)
        if kind == "weight":
            blocks.WEIGHT[key] = blocks.WeightBlock(*choice)

            def op(x: Tensor) -> None:
                conv.weight_gradient(x, x, n)

        elif kind == "norm":
            blocks.NORM[n * c, size] = blocks.NormBlock(*choice)
            rest = [torch.rand(n * c, device=DEVICE) for _ in range(4)]

            def op(x: Tensor) -> None:
                leaf = x.detach().requires_grad_()
                y = kernels.batch_norm_act(leaf, *rest, n, residual=x)
                torch.autograd.grad(y, leaf, x)

        else:
            blocks.CONV[key] = blocks.ConvBlock(*choice)

            def op(x: Tensor) -> None:
                conv.convolve(x, packed, n, stats=True)
                conv.convolve(x, packed, n, transposed=True)

        if not measure:
            op(xs[0])
            torch.cuda.synchronize()
            return 0.0
        return timed(op, [(x,) for x in xs], calls=8)
    except Exception as problem:  # a choice that does not fit is simply out
        if "out of resource" not in str(problem) and "OutOfResources" not in type(problem).__name__:
            print("  ", kind, choice, type(problem).__name__, str(problem)[:120], flush=True)
        return float("inf")


def compile_only(jobs: list[tuple[str, int, int, tuple[int, ...], int, int]]) -> None:
    for job in jobs:
        attempt(job, measure=False)


def sweep(networks: Sequence[int], batch: int, seconds: float) -> None:
    say()
    say("sweep: best blocks by op and stage, us (conv: with sums, and its dgrad; norm: forward and backward)")
    tables = (dict(blocks.CONV), dict(blocks.WEIGHT), dict(blocks.NORM))
    jobs = []
    for c, size in STAGES.values():
        for n in networks:
            jobs += [("conv", c, size, tuple(b), n, batch) for b in conv_choices(c, size)]
            jobs += [("weight", c, size, tuple(b), n, batch) for b in weight_choices(c)]
            jobs += [("norm", c, size, tuple(b), n, batch) for b in norm_choices()]
    begun = time.perf_counter()
    once = [job for job in jobs if job[4] == networks[0] and job[0] != "norm"]
    with ProcessPoolExecutor(14, mp_context=get_context("spawn")) as pool:
        list(pool.map(compile_only, [once[i::28] for i in range(28)]))
    say(f"  {len(once)} compiled in {time.perf_counter() - begun:.0f} s")
    results: dict[tuple[str, int, int, int], dict[tuple[int, ...], float]] = {}
    begun = time.perf_counter()
    for job in jobs:
        if time.perf_counter() - begun > seconds:
            say("  out of time: the sweep is not whole")
            break
        results.setdefault((job[0], job[1], job[2], job[4]), {})[job[3]] = attempt(job, measure=True)
    for table, kept in zip((blocks.CONV, blocks.WEIGHT, blocks.NORM), tables, strict=True):
        table.clear()  # type: ignore[attr-defined]
        table.update(kept)  # type: ignore[attr-defined]
    for (kind, c, _, n), found in results.items():
        best = sorted(found, key=lambda choice: found[choice])[:4]
        say(f"  {kind:6s} c={c} n={n:2d}: " + "   ".join(f"{list(b)} {found[b]:.1f}" for b in best))


# ---------------------------------------------------------------- step


class Stack:
    """ResNet-32 of n networks: parameters, and a forward pass over either set of ops."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.weights: list[Tensor] = []
        self.norms: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        plan = [(3, 16)] + [(16, 16)] * 10 + [(16, 32)] + [(32, 32)] * 9 + [(32, 64)] + [(64, 64)] * 9
        for cin, cout in plan:
            w = torch.randn(n * cout, cin, 3, 3, device=DEVICE) * (2 / (9 * cin)) ** 0.5
            self.weights.append(w.requires_grad_())
            affine = torch.ones(n * cout, device=DEVICE), torch.zeros(n * cout, device=DEVICE)
            running = torch.zeros(n * cout, device=DEVICE), torch.ones(n * cout, device=DEVICE)
            self.norms.append((affine[0].requires_grad_(), affine[1].requires_grad_(), *running))
        self.short = [torch.randn(n * c * 2, c, 1, 1, device=DEVICE).mul_(0.1).requires_grad_() for c in (16, 32)]
        self.head = torch.randn(n, 64, 10, device=DEVICE).mul_(0.1).requires_grad_()
        self.parameters = [*self.weights, *(t for pair in self.norms for t in pair[:2]), *self.short, self.head]

    def layer(self, i: int, x: Tensor, fast: bool, stride: int = 1, residual: Tensor | None = None) -> Tensor:
        if fast:
            y, sums = kernels.grouped_conv3x3_sums(x, self.weights[i], self.n, stride=stride)
            return kernels.batch_norm_act(y, *self.norms[i], self.n, residual=residual, sums=sums)
        y = F.conv2d(x, self.weights[i].to(x.dtype, memory_format=LAST), stride=stride, padding=1, groups=self.n)
        gamma, beta, mean, var = self.norms[i]
        y = F.batch_norm(y, mean, var, gamma, beta, True, 0.1)
        return F.relu_(y if residual is None else y + residual)

    def loss(self, x: Tensor, labels: Tensor, fast: bool) -> Tensor:
        x, i = self.layer(0, x, fast), 1
        for stage in range(3):
            for block in range(5):
                stride = 2 if stage and not block else 1
                short = x
                if stride == 2:
                    w = self.short[stage - 1].to(x.dtype)
                    short = F.conv2d(x[:, :, ::2, ::2].contiguous(memory_format=LAST), w, groups=self.n)
                h = self.layer(i, x, fast, stride)
                x, i = self.layer(i + 1, h, fast, residual=short), i + 2
        features = x.float().mean((2, 3)).view(len(x), self.n, 64)
        logits = torch.einsum("bnf,nfc->nbc", features, self.head)
        return F.cross_entropy(logits.reshape(-1, 10), labels.reshape(-1), reduction="sum") / len(x)


def step_graph(n: int, batch: int, fast: bool) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    torch.manual_seed(0)
    stack = Stack(n)
    x, labels = random(batch, n * 3, 32, 32), torch.randint(10, (n, batch), device=DEVICE)
    kept: list[Tensor] = []

    def work() -> None:
        loss = stack.loss(x, labels, fast)
        kept[:] = [loss.detach(), *torch.autograd.grad(loss, stack.parameters)]

    graph = captured(work)
    graph.replay()
    return graph, kept[0]


def step(networks: Sequence[int], batch: int) -> None:
    say()
    say(f"step: ResNet-32 forward + backward, batch {batch} a network, in a CUDA graph: images a second")
    say("    n      ours     cuDNN   ratio    ms ours  loss ours, cuDNN")
    for n in networks:
        took, losses = [], []
        for fast in (True, False):
            graph, loss = step_graph(n, batch, fast)
            took.append(median_us(graph, 1, 15))
            losses.append(float(loss) / n)
            del graph
            torch.cuda.empty_cache()
        rate = [n * batch / t * 1e6 for t in took]
        ratio = f"{rate[0] / rate[1]:5.2f}   {took[0] / 1e3:8.2f}"
        say(f"  {n:3d}  {rate[0]:8.0f}  {rate[1]:8.0f}   {ratio}  {losses[0]:.4f} {losses[1]:.4f}")


def profile(batch: int) -> None:
    graph, _ = step_graph(8, batch, True)
    activity = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activity) as record:
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
    total = sum(e.self_device_time_total for e in record.key_averages())
    say()
    say(f"profile: 8 networks, three steps, {total / 3e3:.2f} ms of kernels a step")
    for e in sorted(record.key_averages(), key=lambda e: -e.self_device_time_total)[:15]:
        share, calls = e.self_device_time_total / total, e.count // 3
        say(f"  {100 * share:5.1f} %  {e.self_device_time_total / e.count:7.1f} us x {calls:3d}  {e.key[:80]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="check,ops,sweep,step,profile")
    parser.add_argument("--networks", default="2,8,16,32")
    parser.add_argument("--sweep-networks", default="8")
    parser.add_argument("--sweep-seconds", type=float, default=45.0)
    parser.add_argument("--batch", type=int, default=128)
    args = parser.parse_args()
    if not kernels.available():
        sys.exit("no CUDA device with triton and compute capability 8 or more here")
    torch.backends.cudnn.benchmark = True
    networks = [int(n) for n in args.networks.split(",")]
    parts = args.parts.split(",")
    say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, batch {args.batch}")
    for part in parts:
        begun = time.perf_counter()
        if part == "check":
            check(29)
        elif part == "ops":
            ops(networks, args.batch)
        elif part == "sweep":
            sweep([int(n) for n in args.sweep_networks.split(",")], args.batch, args.sweep_seconds)
        elif part == "step":
            step(networks, args.batch)
        elif part == "profile":
            profile(args.batch)
        elif part == "fused":
            subprocess.run([sys.executable, str(Path(__file__).with_name("fused.py")), "--networks", args.networks])
        else:
            sys.exit(f"unknown part {part!r}")
        say(f"  ({part}: {time.perf_counter() - begun:.0f} s)")


if __name__ == "__main__":
    main()
