"""Both ends of a residual block, in one kernel and in two, against their formulas; without a GPU by an interpreter."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from importlib.util import find_spec
from typing import Any

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the interpreter multiplies no bfloat16
TYPES = [HALF] if DEVICE == "cuda" else [torch.float32, HALF]  # single precision is no use of these kernels
TOLERANCE = {torch.float32: 1e-5, HALF: 6e-3}


def maps(rng: torch.Generator, channels: int, dtype: torch.dtype) -> torch.Tensor:
    made = torch.randn((3, channels, 7, 8), generator=rng)
    return made.to(DEVICE, dtype, memory_format=torch.channels_last)


def off(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want).norm() / want.norm())


if find_spec("triton") is not None:

    @pytest.fixture(autouse=True)
    def whole_precision(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)

    @pytest.fixture(params=[0, 1, 2], ids=["two kernels", "narrow tiles", "wide tiles"])
    def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
        """Takes that way; 168 pixels and 144 channels are more than one tile of each kind, with a rest."""
        from labelsieve.models.kernels import pointwise

        monkeypatch.setattr(pointwise, "chosen", {})
        number: int = request.param

        def take(key: tuple[Hashable, ...], ways: Sequence[Callable[[], Any]], *, on: torch.device) -> Any:
            return ways[number if key[0] in ("last", "between") else 0]()

        monkeypatch.setattr(pointwise, "fastest", take)
        return number

    @pytest.mark.parametrize("relu", [True, False])
    @pytest.mark.parametrize("dtype", TYPES)
    def test_the_last_end(dtype: torch.dtype, relu: bool, way: int) -> None:
        from labelsieve.models.kernels import ends

        rng = torch.Generator().manual_seed(0)
        x, joined = maps(rng, 144, dtype), maps(rng, 80, dtype)
        weight = torch.randn(144, 80, 1, 1, generator=rng).to(DEVICE, dtype, memory_format=torch.channels_last)
        bias = torch.randn(144, generator=rng).to(DEVICE)
        got = ends.last(x, joined, weight, bias, 0.3, relu)
        want = x.double() + torch.einsum("bihw,oi->bohw", joined.double(), weight[:, :, 0, 0].double())
        want += 0.3 * bias.double()[:, None, None]
        assert off(got, want.relu() if relu else want) < TOLERANCE[dtype]
        assert got.is_contiguous(memory_format=torch.channels_last) and got.dtype == dtype

    @pytest.mark.parametrize("relu", [True, False])
    @pytest.mark.parametrize("dtype", TYPES)
    def test_the_end_between_two_blocks(dtype: torch.dtype, relu: bool, way: int) -> None:
        from labelsieve.models.kernels import ends

        rng = torch.Generator().manual_seed(1)
        g, y, dy = maps(rng, 144, dtype), maps(rng, 144, dtype), maps(rng, 80, dtype)
        weight = torch.randn(80, 144, 1, 1, generator=rng).to(DEVICE, dtype, memory_format=torch.channels_last)
        through, part = ends.between(g, dy, weight, y, relu)
        want = g.double() + torch.einsum("bohw,oi->bihw", dy.double(), weight[:, :, 0, 0].double())
        want = want * (y > 0) if relu else want
        assert off(through, want) < TOLERANCE[dtype] and through.dtype == dtype
        assert off(part.sum(0), want.sum((0, 2, 3))) < TOLERANCE[dtype]

    def test_a_chain_takes_either_way(way: int) -> None:
        from labelsieve.models.inception_resnet_v2 import Residual, Residuals
        from labelsieve.models.kernels import branches

        torch.manual_seed(2)
        chains = ([(16, 1)], [(8, 1), (16, (1, 3)), (24, (3, 1))])
        made = Residuals(*(Residual(72, *chains, scale=s, relu=s < 1) for s in (0.3, 1.0, 0.5))).to(DEVICE)
        x, g = (torch.randn(3, 72, 6, 7).to(DEVICE, memory_format=torch.channels_last) for _ in range(2))
        found = []
        for run, dtype in ((branches.residual_blocks, TYPES[0]), (Residuals.forward, torch.float32)):
            leaf = x.to(dtype).requires_grad_()
            y = run(made, leaf)
            found.append([y.detach(), *torch.autograd.grad(y, [leaf, *made.parameters()], g.to(dtype))])
        for got, want in zip(*found, strict=True):
            error = float((got.float() - want).norm() / want.norm().clamp_min(1e-2))
            assert error < (2e-4 if TYPES[0] == torch.float32 else 0.1)

    def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
        from labelsieve.models.kernels import ends, pointwise

        counts: list[int] = []
        monkeypatch.setattr(pointwise, "fastest", lambda key, ways, on: counts.append(len(ways)))
        given = torch.zeros(1, 2, 1, 1), torch.zeros(1, 3, 1, 1), torch.zeros(2, 3, 1, 1)
        ends.last(*given, torch.zeros(2), 1.0, True)
        monkeypatch.setenv("LABELSIEVE_ENDS", "0")
        ends.last(*given, torch.zeros(2), 1.0, True)
        assert counts == [3, 1]
