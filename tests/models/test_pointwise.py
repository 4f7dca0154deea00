"""1 x 1 convolutions as matrix products against torch's convolutions; the choice among ways."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from labelsieve.models.kernels import pointwise

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LAST = torch.channels_last


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pointwise, "chosen", {})
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def case(
    shape: tuple[int, ...], outputs: int, window: tuple[int, int], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, tuple[int, int]]:
    rng = torch.Generator().manual_seed(0)
    x, w = (torch.randn(s, generator=rng, dtype=torch.float64) for s in (shape, (outputs, shape[1], *window)))
    x, w = (t.to(DEVICE, dtype, memory_format=LAST) for t in (x, w))
    return x, w, (window[0] // 2, window[1] // 2)


@pytest.mark.parametrize("products", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [(1, 1), (1, 3)])
@pytest.mark.parametrize("shape", [(6, 8, 4, 5), (4, 16, 1, 1), (64, 8, 6, 6)], ids=str)
def test_all_three_are_the_convolution_s(
    shape: tuple[int, ...], window: tuple[int, int], dtype: torch.dtype, products: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not products:
        monkeypatch.setenv("LABELSIEVE_PRODUCTS", "0")
    x, w, padding = case(shape, 24, window, dtype)
    leaves = [t.double().requires_grad_() for t in (x, w)]
    want = F.conv2d(*leaves, None, 1, padding)
    dy = torch.randn(want.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE, dtype, memory_format=LAST)
    dx, dw = torch.autograd.grad(want, leaves, dy.double())
    y = pointwise.convolve(x, w, padding)
    found = [y, pointwise.input_gradient(dy, x, w, padding), pointwise.weight_gradient(dy, x, w, padding)]
    assert y.is_contiguous(memory_format=LAST) and found[1].is_contiguous(memory_format=LAST)
    assert found[2].dtype == (torch.float32 if window == (1, 1) and products else dtype)
    plain = [t.detach().requires_grad_() for t in (x, w)]
    usual = F.conv2d(*plain, None, 1, padding)
    usuals = (usual.detach(), *torch.autograd.grad(usual, plain, dy))
    for got, expected, torchs in zip(found, (want.detach(), dx, dw), usuals, strict=True):
        assert got.shape == expected.shape
        error, own = ((one.double() - expected).norm() / expected.norm() for one in (got, torchs))
        exact = dtype == torch.float32 or got.dtype == torch.float32
        # Some processors add up in bfloat16, in torch's own convolution as well.
        assert error < (1e-5 if exact else max(6e-3, 1.01 * float(own))), float(error)


@pytest.mark.parametrize("parts", [1, 2, 8])
def test_sums_in_parts_are_the_sum(parts: int) -> None:
    rng = torch.Generator().manual_seed(2)
    dy, x = (torch.randn(64, n, generator=rng).to(DEVICE) for n in (3, 5))
    expected = torch.einsum("po,pi->oi", dy.double(), x.double())
    torch.testing.assert_close(pointwise.summed(dy, x, parts).double(), expected, rtol=1e-5, atol=1e-5)


def test_parts_fill_a_card_and_divide_the_pixels() -> None:
    assert pointwise.parts_of(128 * 26 * 26, 96, 320) == 64  # 3 tiles
    assert pointwise.parts_of(128 * 12 * 12, 1088, 384) == 8  # 27 tiles
    assert pointwise.parts_of(128 * 5 * 5, 2080, 448) == 2  # 68 tiles
    assert pointwise.parts_of(7 * 999, 96, 320) == 1  # odd
    assert pointwise.parts_of(512, 8, 8) == 2  # at least 256 pixels each


def test_the_fastest_way_is_tried_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"slow": 2.0, "fast": 1.0}
    asked: list[str] = []

    def way(name: str) -> pointwise.Way:
        def run() -> torch.Tensor:
            return torch.tensor([times[name]])

        run.__name__ = name
        return run

    def stopwatch(run: pointwise.Way) -> float:
        asked.append(run.__name__)
        return float(run())

    monkeypatch.setattr(pointwise, "milliseconds", stopwatch)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    card, ways = torch.device("cuda"), [way("slow"), way("fast")]
    capturing = True  # nothing can be timed then
    assert float(pointwise.fastest("key", ways, on=card)) == 2.0 and asked == []
    capturing = False
    assert float(pointwise.fastest("key", ways, on=torch.device("cpu"))) == 2.0 and asked == []
    for _ in range(2):
        assert float(pointwise.fastest("key", ways, on=card)) == 1.0
    assert asked == ["slow", "fast"]
    capturing = True
    assert float(pointwise.fastest("key", ways, on=card)) == 1.0
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)  # as where torch was told to be deterministic
    assert float(pointwise.fastest("other", ways, on=card)) == 2.0 and len(asked) == 2
