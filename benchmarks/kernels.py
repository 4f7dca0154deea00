"""Errors and speed of the layers' kernels on a GPU, one by one. Needs torch, triton and numpy; about a minute.

    python3 benchmarks/kernels.py [--parts check,ops] [--networks 2,8,16,32] [--batch 128]

check    relative error of every op against float64
ops      microseconds and GB/s (bytes that must move over time) by op and stage, compared with cuDNN

benchmarks/fused.py measures the whole network and finds the best block sizes.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from labelsieve.models import kernels
from labelsieve.models.kernels import Norm, reference

DEVICE = "cuda"
STAGES = {1: (16, 32), 2: (32, 16), 3: (64, 8)}
LAST = torch.channels_last


def say(line: str = "") -> None:
    print(line, flush=True)


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
    """Return the microseconds per call; the inputs alternate, so that the cache does not hold them."""

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
            spec = Norm(cast[2], cast[3], mean, var, n, valid=limit)
            y = run(cast[0], spec, residual=cast[1] if residual else None)
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
    return lambda x, r: module.batch_norm_act(x, Norm(*params, n=n), residual=r)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="check,ops")
    parser.add_argument("--networks", default="2,8,16,32")
    parser.add_argument("--batch", type=int, default=128)
    args = parser.parse_args()
    if not kernels.available():
        sys.exit("no CUDA device with triton and compute capability 8 or more here")
    torch.backends.cudnn.benchmark = True
    say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, batch {args.batch}")
    for part in args.parts.split(","):
        begun = time.perf_counter()
        if part == "check":
            check(29)
        elif part == "ops":
            ops([int(n) for n in args.networks.split(",")], args.batch)
        else:
            sys.exit(f"unknown part {part!r}")
        say(f"  ({part}: {time.perf_counter() - begun:.0f} s)")


if __name__ == "__main__":
    main()
