"""Norm, activation and pooling of one network against torch in float64; in the interpreter where there is no GPU."""

from __future__ import annotations

import itertools
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from labelsieve.models import kernels
from labelsieve.models.kernels import Activation, Norm, bias_gelu, reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

ACTIVATIONS = {0: lambda z: z, 1: F.relu, 2: F.gelu}


def inputs(channels: int = 12, size: tuple[int, int] = (6, 4), seed: int = 0) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(5, channels, *size, generator=rng) * 2 + 1
    x[:, :, :, 1] = x[:, :, :, 0]  # ties, where pooling must choose as torch does
    made = {"x": x, "gamma": torch.rand(channels, generator=rng) + 0.5, "beta": torch.randn(channels, generator=rng)}
    made |= {"mean": torch.randn(channels, generator=rng), "var": torch.rand(channels, generator=rng) + 0.5}
    made["g"] = torch.randn(5, channels, *size, generator=rng)
    return {name: value.to(DEVICE) for name, value in made.items()}


def by_torch(t: dict[str, Tensor], act: int, *, pool: bool, training: bool, valid: Tensor | None) -> dict[str, Tensor]:
    leaf = {name: t[name].double().requires_grad_() for name in ("x", "gamma", "beta")}
    mean, var = t["mean"].double(), t["var"].double()
    x = F.max_pool2d(leaf["x"], 2) if pool else leaf["x"]
    y = ACTIVATIONS[act](
        reference.batch_norm_act(
            x, Norm(leaf["gamma"], leaf["beta"], mean, var, act=Activation.NONE, training=training, valid=valid)
        )
    )
    y.backward(t["g"][:, :, : y.shape[2], : y.shape[3]].double())
    return {"y": y.detach(), "mean": mean, "var": var} | {f"d{name}": value.grad for name, value in leaf.items()}


if find_spec("triton") is not None:
    CASES = list(itertools.product((0, 1, 2), (False, True), (False, True), (None, 3)))

    def by_kernels(t: dict[str, Tensor], act: int, **options: object) -> dict[str, Tensor]:
        from labelsieve.models.kernels import norm

        leaf = {name: t[name].clone().requires_grad_() for name in ("x", "gamma", "beta")}
        mean, var = t["mean"].clone(), t["var"].clone()
        y = norm.batch_norm_act(leaf["x"], Norm(leaf["gamma"], leaf["beta"], mean, var, act=Activation(act), **options))
        y.backward(t["g"][:, :, : y.shape[2], : y.shape[3]].clone())
        return {"y": y.detach(), "mean": mean, "var": var} | {f"d{name}": value.grad for name, value in leaf.items()}

    def compare(got: dict[str, Tensor], want: dict[str, Tensor], real: int) -> None:
        for name, value in want.items():
            mine = got[name]
            if name == "y":  # the output of padding is free
                assert mine.isfinite().all()
                mine, value = mine[:real], value[:real]
            error = (mine.double() - value).norm() / value.norm().clamp_min(1e-3)
            assert error < 1e-5, (name, float(error))

    @pytest.mark.parametrize(("act", "pool", "training", "valid"), CASES)
    def test_norm_activation_and_pooling(act: int, pool: bool, training: bool, valid: int | None) -> None:
        t = inputs()
        real = 5 if valid is None or not training else valid
        t["g"][real:] = 0
        limit = torch.tensor([real], dtype=torch.int32, device=DEVICE) if valid is not None and training else None
        options = {"pool": pool, "training": training, "valid": limit}
        compare(by_kernels(t, act, **options), by_torch(t, act, **options), real)

    @pytest.mark.parametrize("pool", [False, True])
    def test_several_tiles_in_both_directions(pool: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        from labelsieve.models.kernels import norm

        monkeypatch.setattr(norm, "PROGRAMS", 4)
        t = inputs(70, (12, 10))
        options = {"pool": pool, "training": True, "valid": None}
        compare(by_kernels(t, 2, **options), by_torch(t, 2, **options), 5)

    def test_a_network_without_samples_keeps_its_statistics() -> None:
        t = inputs()
        got = by_kernels(t, 1, valid=torch.zeros(1, dtype=torch.int32, device=DEVICE))
        assert torch.equal(got["mean"], t["mean"]) and torch.equal(got["var"], t["var"])
        assert not got["dx"].any() and got["y"].isfinite().all()

    def test_what_is_not_wanted_is_not_made() -> None:
        from labelsieve.models.kernels import norm

        t = inputs()
        bias = t["beta"].clone().requires_grad_()
        zeros, ones = torch.zeros_like(t["beta"]), torch.ones_like(t["beta"])
        y = norm.batch_norm_act(t["x"], Norm(ones, bias, zeros, ones, act=Activation.GELU, training=False, eps=0.0))
        y.backward(t["g"])
        again = t["beta"].clone().requires_grad_()
        want = bias_gelu(t["x"], again)
        want.backward(t["g"])
        torch.testing.assert_close(y, want, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(bias.grad, again.grad, rtol=1e-4, atol=1e-4)

    def test_gelu_is_torchs_far_out_too() -> None:
        from labelsieve.models.kernels import norm

        x = torch.linspace(-12, 12, 400, device=DEVICE).view(1, 1, 20, 20)
        zeros, ones = torch.zeros(1, device=DEVICE), torch.ones(1, device=DEVICE)
        spec = Norm(ones, zeros, zeros.clone(), ones.clone(), act=Activation.GELU, training=False, eps=0.0)
        y = norm.batch_norm_act(x, spec)
        torch.testing.assert_close(y, F.gelu(x), rtol=1e-5, atol=2e-6)

    def test_pooling_needs_even_sides() -> None:
        from labelsieve.models.kernels import norm

        plain, pooled = (Norm(*[torch.ones(1)] * 4, pool=pool) for pool in (False, True))
        assert norm.supported(torch.zeros(1, 1, 3, 4), plain) and norm.supported(torch.zeros(1, 1, 2, 4), pooled)
        assert not norm.supported(torch.zeros(1, 1, 3, 4), pooled)

    @pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA card: the interpreter takes minutes and has no limit")
    def test_more_tiles_than_the_second_axis_of_a_grid_holds() -> None:
        from labelsieve.models.kernels import norm

        x = torch.randn(4100, 8, 32, 64, device=DEVICE, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
        ones, zeros = torch.ones(8, device=DEVICE), torch.zeros(8, device=DEVICE)
        x.requires_grad_()
        y = norm.batch_norm_act(x, Norm(ones, zeros, zeros.clone(), ones.clone(), training=False, eps=0.0))
        assert torch.equal(y, F.relu(x))
        assert torch.equal(torch.autograd.grad(y.sum(), x)[0], (x > 0).to(x.dtype))


@pytest.mark.parametrize("pool", [False, True])
def test_on_a_cpu_it_is_the_layers_one_after_the_other(pool: bool) -> None:
    t = {name: value.cpu() for name, value in inputs(size=(5, 4)).items()}
    mean, var = t["mean"].clone(), t["var"].clone()
    norm = Norm(t["gamma"], t["beta"], mean, var, act=Activation.GELU, pool=pool)
    got = kernels.batch_norm_act(t["x"], norm)
    x = F.max_pool2d(t["x"], 2) if pool else t["x"]
    torch.testing.assert_close(got, F.gelu(F.batch_norm(x, t["mean"], t["var"], t["gamma"], t["beta"], True)))
    torch.testing.assert_close(mean, t["mean"])


def test_channels_added_to_inputs_and_weights_change_no_convolution() -> None:
    x, weight = torch.randn(2, 3, 7, 7).to(memory_format=torch.channels_last), torch.randn(5, 3, 3, 3)
    wide, more = kernels.aligned(x), kernels.aligned(weight)
    assert wide.shape[1] == more.shape[1] == 8 and wide.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(F.conv2d(wide, more, stride=2), F.conv2d(x, weight, stride=2), rtol=1e-4, atol=1e-5)
    assert kernels.aligned(wide) is wide
