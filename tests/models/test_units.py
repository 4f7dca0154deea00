"""Units as one function against the units themselves; in Triton's interpreter where there is no GPU."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from labelsieve.models import kernels
from labelsieve.models.inception_resnet_v2 import Unit, Units
from labelsieve.models.layers import BatchNorm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def units(valid: int | None = None) -> Units:
    """Every kind: few inputs, stride, no border, 1 x 1, twice the same shape."""
    torch.manual_seed(0)
    made = Units(
        Unit(3, 12, 3, stride=2, same=False),
        Unit(12, 12, (1, 3)),
        Unit(12, 12, (1, 3)),
        Unit(12, 18, 1),
        Unit(18, 9, 3),
    )
    for layer in made.modules():
        if isinstance(layer, BatchNorm):
            torch.nn.init.uniform_(layer.weight, 0.5, 1.5)
            torch.nn.init.normal_(layer.bias)
            layer.valid = None if valid is None else torch.tensor([valid], dtype=torch.int32, device=DEVICE)
    return made.to(DEVICE)


def test_on_a_cpu_they_are_a_sequence() -> None:
    made, x = units(), torch.randn(2, 3, 9, 11, device=DEVICE)
    want = x
    for unit in made:
        want = unit.norm(unit.conv(want))
    torch.testing.assert_close(made(x), want)
    assert next(iter(made.state_dict())) == "0.conv.weight"
    assert torch.equal(Units()(x), x)


if find_spec("triton") is not None:

    def run(made: Units, x: torch.Tensor, g: torch.Tensor, wanted: bool) -> dict[str, torch.Tensor]:
        leaf = x.clone().requires_grad_(wanted)
        y = made(leaf)
        names, parameters = zip(*made.named_parameters(), strict=True)
        found = torch.autograd.grad(y, (*parameters, *([leaf] if wanted else [])), g)
        return dict(zip((*names, "dx"), found, strict=False)) | dict(made.named_buffers()) | {"y": y.detach()}

    @pytest.mark.parametrize("wanted", [True, False])
    @pytest.mark.parametrize("valid", [None, 3])
    def test_the_function_is_the_units(valid: int | None, wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        torch.manual_seed(1)
        x = torch.randn(5, 3, 9, 11).to(DEVICE)
        g = torch.randn(5, 9, 4, 5).to(DEVICE, memory_format=torch.channels_last)
        real = len(x) if valid is None else valid
        g[real:] = 0
        results = []
        for used in (True, False):
            monkeypatch.setattr(kernels, "usable", lambda x, used=used: used)
            results.append(run(units(valid), x, g, wanted))
        got, want = results
        assert got.keys() == want.keys() and ("dx" in got) == wanted
        for name, value in want.items():
            mine = got[name]
            if name == "y":  # the output of padding is free
                mine, value = mine[:real], value[:real]
            assert mine.shape == value.shape
            error = (mine.double() - value.double()).norm() / value.double().norm().clamp_min(1e-2)
            assert error < 2e-4, (name, float(error))

    def test_where_it_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
        from labelsieve.models.kernels import units as fused

        made = units()
        assert fused.supported(tuple(made)) and not fused.supported(())
        with torch.no_grad():
            assert not fused.supported(tuple(made))
        for name in ("LABELSIEVE_FUSED", "LABELSIEVE_ASIDE"):
            with monkeypatch.context() as patched:
                patched.setenv(name, "0")
                assert not fused.supported(tuple(made))
        made[1].norm.across = lambda own: own[None]
        assert not fused.supported(tuple(made))
        made[1].norm.across = None
        assert not fused.supported(tuple(made.eval()))
