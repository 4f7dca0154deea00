"""The kernels against plain torch (in Triton's interpreter where there is no GPU), and plain torch against loops."""

from __future__ import annotations

import os
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from labelsieve.models import kernels
from labelsieve.models.kernels import blocks, reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # before the first import of triton


def _norm_inputs(n: int, c: int, b: int, size: int, *, device: str = "cpu", seed: int = 0) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    shape = (b, n * c, size, size)
    made = {
        "x": torch.randn(shape, generator=rng) * 2 + 1,
        "residual": torch.randn(shape, generator=rng),
        "g": torch.randn(shape, generator=rng),
        "gamma": torch.rand(n * c, generator=rng) + 0.5,
        "beta": torch.randn(n * c, generator=rng),
        "mean": torch.randn(n * c, generator=rng),
        "var": torch.rand(n * c, generator=rng) + 0.5,
    }
    return {name: value.to(device) for name, value in made.items()}


def _norm(run: object, t: dict[str, Tensor], n: int, **options: object) -> dict[str, Tensor]:
    """Output, updated statistics and every gradient of one call."""
    leaf = {name: t[name].clone().requires_grad_() for name in ("x", "gamma", "beta", "residual")}
    mean, var = t["mean"].clone(), t["var"].clone()
    residual = leaf["residual"] if options.pop("residual", True) else None
    y = run(leaf["x"], leaf["gamma"], leaf["beta"], mean, var, n, residual=residual, **options)  # type: ignore[operator]
    y.backward(t["g"].to(y.dtype))
    result = {"y": y.detach(), "mean": mean, "var": var}
    result |= {"d" + name: value.grad for name, value in leaf.items() if value.grad is not None}
    return result


def _same(got: dict[str, Tensor], want: dict[str, Tensor], tolerance: float = 2e-5) -> None:
    assert got.keys() == want.keys()
    for name, value in want.items():
        error = (got[name].double() - value.double()).norm() / value.double().norm().clamp_min(1e-3)
        assert error < tolerance, (name, float(error))


def test_reference_convolution_is_one_convolution_a_network() -> None:
    x, w = torch.randn(2, 3 * 4, 8, 8), torch.randn(3 * 5, 4, 3, 3)
    y = reference.grouped_conv3x3(x, w, 3, stride=2)
    for i in range(3):
        one = F.conv2d(x[:, 4 * i : 4 * i + 4], w[5 * i : 5 * i + 5], stride=2, padding=1)
        torch.testing.assert_close(y[:, 5 * i : 5 * i + 5], one)


@pytest.mark.parametrize("residual", [True, False])
def test_reference_norm_with_valid_is_torch_on_the_valid_samples(residual: bool) -> None:
    n, c, valid = 3, 4, (5, 2, 3)
    t = _norm_inputs(n, c, 5, 4)
    got = _norm(reference.batch_norm_act, t, n, residual=residual, valid=torch.tensor(valid, dtype=torch.int32))
    for i, k in enumerate(valid):
        own = slice(c * i, c * i + c)
        part = {name: (v[:k, own] if v.dim() == 4 else v[own]).clone() for name, v in t.items()}
        x, gamma, beta = (part[name].requires_grad_() for name in ("x", "gamma", "beta"))
        y = F.batch_norm(x, part["mean"], part["var"], gamma, beta, True, 0.1, 1e-5)
        y = F.relu(y + part["residual"] if residual else y)
        y.backward(part["g"])
        torch.testing.assert_close(got["y"][:k, own], y.detach())
        torch.testing.assert_close(got["dx"][:k, own], x.grad, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(got["dgamma"][own], gamma.grad, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(got["dbeta"][own], beta.grad, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(got["mean"][own], part["mean"])
        torch.testing.assert_close(got["var"][own], part["var"])
        assert got["y"].isfinite().all()
        assert not got["dx"][k:, own].any()
        assert not residual or not got["dresidual"][k:, own].any()


def test_reference_norm_full_batch_as_valid_changes_nothing() -> None:
    t = _norm_inputs(2, 4, 3, 4)
    valid = torch.full((2,), 3, dtype=torch.int32)
    _same(_norm(reference.batch_norm_act, t, 2, valid=valid), _norm(reference.batch_norm_act, t, 2))


def test_reference_norm_of_a_network_without_samples_is_finite_and_keeps_its_statistics() -> None:
    t = _norm_inputs(2, 4, 3, 4)
    got = _norm(reference.batch_norm_act, t, 2, valid=torch.tensor([0, 3], dtype=torch.int32))
    assert all(value.isfinite().all() for value in got.values())
    assert torch.equal(got["mean"][:4], t["mean"][:4]) and torch.equal(got["var"][:4], t["var"][:4])
    assert not got["dx"][:, :4].any() and got["dx"][:, 4:].any()


def test_the_public_ops_on_the_cpu_are_the_reference() -> None:
    t = _norm_inputs(2, 4, 3, 4)
    w = torch.randn(8, 4, 3, 3)
    y, sums = kernels.grouped_conv3x3_sums(t["x"], w, 2)
    assert sums is None and torch.equal(y, kernels.grouped_conv3x3(t["x"], w, 2))
    _same(_norm(kernels.batch_norm_act, t, 2), _norm(reference.batch_norm_act, t, 2))


def test_blocks_fit_shapes_outside_the_table_and_are_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "CONV", dict(blocks.CONV))
    found = blocks.conv_block(3, 16, 64, 64)
    assert found.pixels % 64 == 0 and found.columns >= 16 and 64 % found.rows == 0
    blocks.read_overrides('{"conv": {"16,32": [256, 4, 2, 16, 8, 2]}}')
    assert blocks.conv_block(16, 16, 32, 32) == (256, 4, 2, 32, 8, 2)


if find_spec("triton") is not None:
    HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the interpreter cannot multiply bf16
    SHAPES = [  # networks, channels in and out, batch, size, stride; networks a program
        (3, 16, 16, 3, 8, 1, 1),
        (3, 16, 16, 3, 4, 1, 2),
        (2, 32, 32, 5, 4, 1, 1),
        (1, 64, 64, 3, 4, 1, 1),
        (2, 3, 16, 2, 8, 1, 1),
        (2, 16, 32, 3, 4, 2, 1),
    ]

    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_convolution_and_gradients(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
        from labelsieve.models.kernels import conv

        n, cin, cout, b, size, stride, group = shape
        block = blocks.ConvBlock(32, 4, group, 16, 4, 1)
        monkeypatch.setattr(blocks, "CONV", {(cin, size): block, (cout, size): block})
        monkeypatch.setattr(blocks, "WEIGHT", {(cin, size): blocks.WeightBlock(32, 64, 32, 4 * n, 4, 2)})
        rng = torch.Generator().manual_seed(1)
        x = torch.randn(b, n * cin, size, size, generator=rng).to(DEVICE, memory_format=torch.channels_last)
        w = torch.randn(n * cout, cin, 3, 3, generator=rng).to(DEVICE)
        assert conv.supported(x, w, n, stride)
        results = []
        for run in (conv.grouped_conv3x3, reference.grouped_conv3x3):
            x_leaf, w_leaf = x.clone().requires_grad_(), w.clone().requires_grad_()
            y = run(x_leaf, w_leaf, n, stride=stride)
            y.backward(torch.cos(torch.arange(y.numel(), device=DEVICE)).view(y.shape))
            results.append({"y": y.detach(), "dx": x_leaf.grad, "dw": w_leaf.grad})
        _same(*results)

    def test_convolution_in_half_precision() -> None:
        from labelsieve.models.kernels import conv

        rng = torch.Generator().manual_seed(2)
        x = torch.randn(2, 32, 4, 8, generator=rng).to(DEVICE, HALF)
        w = torch.randn(32, 16, 3, 3, generator=rng).to(DEVICE)
        y = conv.grouped_conv3x3(x, w, 2)
        want = reference.grouped_conv3x3(x.double(), w.to(HALF).double(), 2)
        assert (y.double() - want).norm() / want.norm() < 3e-3

    @pytest.mark.parametrize("valid", [None, (3, 1, 0)])
    def test_convolution_hands_its_sums_to_the_norm(valid: tuple[int, ...] | None) -> None:
        from labelsieve.models.kernels import conv, norm

        n, c, b, size = 3, 16, 3, 4
        limit = None if valid is None else torch.tensor(valid, dtype=torch.int32, device=DEVICE)
        t = _norm_inputs(n, c, b, size, device=DEVICE)
        w = torch.randn(n * c, c, 3, 3, device=DEVICE)
        y, sums = conv.grouped_conv3x3_sums(t["x"], w, n, valid=limit)
        got = _norm(norm.batch_norm_act, t | {"x": y}, n, valid=limit, sums=sums)
        _same(got, _norm(norm.batch_norm_act, t | {"x": y}, n, valid=limit))
        masked = y.double() if limit is None else y.double() * reference.valid_mask(limit, b, n * c)
        np.testing.assert_allclose(sums[0].sum(0).cpu(), masked.sum((0, 2, 3)).cpu(), rtol=1e-4, atol=1e-2)
        np.testing.assert_allclose(sums[1].sum(0).cpu(), (masked**2).sum((0, 2, 3)).cpu(), rtol=1e-4, atol=1e-2)

    @pytest.mark.parametrize("valid", [None, (5, 2, 0)])
    @pytest.mark.parametrize("residual", [True, False])
    @pytest.mark.parametrize("relu", [True, False])
    @pytest.mark.parametrize("training", [True, False])
    def test_norm_and_gradients(valid: tuple[int, ...] | None, residual: bool, relu: bool, training: bool) -> None:
        from labelsieve.models.kernels import norm

        n, c, b, size = 3, 16, 5, 6
        limit = None if valid is None else torch.tensor(valid, dtype=torch.int32, device=DEVICE)
        t = _norm_inputs(n, c, b, size, device=DEVICE)
        options = {"residual": residual, "relu": relu, "training": training, "valid": limit}
        got = _norm(norm.batch_norm_act, t, n, **options)
        want = _norm(reference.batch_norm_act, t, n, **options)
        if limit is not None:  # the output of padding is free, as long as it is finite
            assert got["y"].isfinite().all()
            inside = reference.valid_mask(limit, b, n * c)
            got["y"], want["y"] = got["y"] * inside, want["y"] * inside
        _same(got, want, 1e-4)
