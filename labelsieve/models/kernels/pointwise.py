"""Convolutions and their gradients; those of a 1 x 1 window are matrix products of [pixels, channels], no copy needed.

    y = x w^T        dx = dy w        dw = dy^T x, its many pixels in parts if that is faster, in single precision

Which way is fastest depends on shape and card. Where cuDNN may choose by trial (engine/device.py), so do we, once a
shape, before a step is captured; elsewhere it is the product, whose order of summing is fixed: torch gives every stream
its own cuBLAS workspace. Switched off (switches.py), all is left to cuDNN.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from labelsieve.models.kernels.switches import switched_on

LAST = torch.channels_last
TILE = 128  # outputs and inputs a program of a matrix product makes
PROGRAMS = 264  # to aim at: two a multiprocessor of an H200
FEWEST = 256  # pixels a part
QUEUED, ROUNDS = 8, 3  # of a trial
SLEEP = 4_000_000  # cycles, some two milliseconds: long enough to queue a round

Way = Callable[[], Tensor]
chosen: dict[Hashable, int] = {}


def is_product(weight: Tensor, stride: int) -> bool:
    return weight.shape[2:] == (1, 1) and stride == 1 and switched_on("PRODUCTS")


# -- the choice


def milliseconds(way: Way) -> float:
    """Of the device alone: the host queues while the device sleeps, as a captured step has no host to wait for."""
    way()  # what libraries choose, they choose now
    found: list[float] = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda._sleep(SLEEP)  # type: ignore[no-untyped-call]
        begin.record()
        for _ in range(QUEUED):
            way()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end))
    return min(found) / QUEUED


def fastest(key: Hashable, ways: Sequence[Way], *, on: torch.device) -> Tensor:
    """The result by the fastest way, found on the first call; without a trial by the first."""
    if key not in chosen:
        if on.type != "cuda" or not torch.backends.cudnn.benchmark or torch.cuda.is_current_stream_capturing():
            return ways[0]()
        torch.cuda.synchronize(on)  # nothing else runs meanwhile
        times = [milliseconds(way) for way in ways]
        chosen[key] = times.index(min(times))
    return ways[chosen[key]]()


# -- the ways


def rows(x: Tensor) -> Tensor:
    """[pixels, channels] of a channels-last tensor: a view."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def pictures(y: Tensor, like: Tensor) -> Tensor:
    """The inverse of `rows`."""
    return y.view(len(like), *like.shape[2:], y.shape[1]).permute(0, 3, 1, 2)


def parts_of(pixels: int, outputs: int, inputs: int) -> int:
    """In how many parts to sum so that the programs fill a card: a power of two that divides the pixels."""
    tiles = -(-outputs // TILE) * -(-inputs // TILE)
    parts = 1
    while pixels % (2 * parts) == 0 and 2 * parts * tiles <= PROGRAMS and pixels // (2 * parts) >= FEWEST:
        parts *= 2
    return parts


def summed(dy: Tensor, x: Tensor, parts: int) -> Tensor:
    """dy^T x of [pixels, .] in single precision, in that many parts, which are then added."""
    if not x.is_cuda:  # a GPU sums in single precision whatever it multiplies
        dy, x = dy.float(), x.float()
    exact = x.dtype == torch.float32
    if parts == 1:
        return torch.mm(dy.t(), x) if exact else torch.mm(dy.t(), x, out_dtype=torch.float32)
    dy, x = dy.view(parts, -1, dy.shape[1]).transpose(1, 2), x.view(parts, -1, x.shape[1])
    return (torch.bmm(dy, x) if exact else torch.bmm(dy, x, out_dtype=torch.float32)).sum(0)


def library_gradient(
    dy: Tensor, x: Tensor, weight: Tensor, padding: tuple[int, int], stride: int, *, of_input: bool
) -> Tensor:
    found = torch.ops.aten.convolution_backward(
        dy, x, weight, None, [stride] * 2, list(padding), [1, 1], False, [0, 0], 1, [of_input, not of_input, False]
    )
    result: Tensor = found[0 if of_input else 1]
    return result.contiguous(memory_format=LAST) if of_input else result


# -- what layers call: x, dy and weight are channels last


def convolve(x: Tensor, weight: Tensor, padding: tuple[int, int] = (0, 0), stride: int = 1) -> Tensor:
    def library() -> Tensor:
        return F.conv2d(x, weight, None, stride, padding).contiguous(memory_format=LAST)

    if not is_product(weight, stride):
        return library()

    def product() -> Tensor:
        return pictures(torch.mm(rows(x), weight.flatten(1).t()), x)

    return fastest(("y", x.shape, weight.shape, x.dtype, x.device), [product, library], on=x.device)


def input_gradient(dy: Tensor, x: Tensor, weight: Tensor, padding: tuple[int, int] = (0, 0), stride: int = 1) -> Tensor:
    def library() -> Tensor:
        return library_gradient(dy, x, weight, padding, stride, of_input=True)

    if not is_product(weight, stride):
        return library()

    def product() -> Tensor:
        return pictures(torch.mm(rows(dy), weight.flatten(1)), x)

    return fastest(("dx", x.shape, weight.shape, x.dtype, x.device), [product, library], on=x.device)


def weight_gradient(
    dy: Tensor, x: Tensor, weight: Tensor, padding: tuple[int, int] = (0, 0), stride: int = 1
) -> Tensor:
    """In single precision, or as the library gives it (see groups.as_parameters)."""

    def library() -> Tensor:
        return library_gradient(dy, x, weight, padding, stride, of_input=False)

    if not is_product(weight, stride):
        return library()
    a, b = rows(dy), rows(x)

    def in_parts(parts: int) -> Way:
        return lambda: summed(a, b, parts).view(weight.shape)

    parts = parts_of(len(a), *weight.shape[:2])
    ways = [in_parts(number) for number in dict.fromkeys((parts, max(1, parts // 4), 1))]
    return fastest(("dw", x.shape, weight.shape, x.dtype, x.device), [*ways, library], on=x.device)
