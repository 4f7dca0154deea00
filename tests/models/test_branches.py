"""Residual blocks as one function against the blocks themselves; in Triton's interpreter where there is no GPU."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from labelsieve.models import kernels
from labelsieve.models.inception_resnet_v2 import Residual, Residuals, block_c
from labelsieve.models.layers import BatchNorm, Linear
from labelsieve.models.sequential import InTurn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


CHAINS = ([(4, 1)], [(3, 1), (5, (1, 3)), (6, (3, 1))], [(2, 1), (4, 3)])


def blocks(valid: int | None = None) -> Residuals:
    torch.manual_seed(0)
    made = Residuals(*(Residual(18, *CHAINS, scale=scale, relu=scale < 1) for scale in (0.2, 0.3, 1.0)))
    for layer in made.modules():
        if isinstance(layer, BatchNorm):
            torch.nn.init.uniform_(layer.weight, 0.5, 1.5)
            torch.nn.init.normal_(layer.bias)
            torch.nn.init.normal_(layer.running_mean)
            layer.valid = None if valid is None else torch.tensor([valid], dtype=torch.int32, device=DEVICE)
    for block in made:
        torch.nn.init.normal_(block.project.bias)
    return made.to(DEVICE)


def test_on_a_cpu_they_are_a_sequence() -> None:
    made, x = blocks(), torch.randn(2, 18, 4, 5, device=DEVICE)
    want = x
    for block in made:
        want = block(want)
    torch.testing.assert_close(made(x), want)


if find_spec("triton") is not None:

    def run(made: Residuals, x: torch.Tensor, g: torch.Tensor, fused: bool) -> dict[str, torch.Tensor]:
        from labelsieve.models.kernels import branches

        leaf = x.clone().requires_grad_()
        y = branches.residual_blocks(made, leaf) if fused else made(leaf)
        names, parameters = zip(*made.named_parameters(), strict=True)
        dx, *gradients = torch.autograd.grad(y, (leaf, *parameters), g)
        return dict(zip(names, gradients, strict=True)) | dict(made.named_buffers()) | {"y": y.detach(), "dx": dx}

    @pytest.mark.parametrize("valid", [None, 3])
    @pytest.mark.parametrize("shape", [(5, 18, 4, 5), (5, 18, 1, 1)], ids=str)
    @pytest.mark.usefixtures("parts")
    def test_the_function_is_the_blocks(shape: tuple[int, ...], valid: int | None) -> None:
        rng = torch.Generator().manual_seed(1)
        x, g = (torch.randn(shape, generator=rng).to(DEVICE, memory_format=torch.channels_last) for _ in range(2))
        real = len(x) if valid is None else valid
        g[real:] = 0
        got, want = (run(blocks(valid), x, g, fused) for fused in (True, False))
        assert got.keys() == want.keys() and got["y"].isfinite().all()
        for name, value in want.items():
            mine = got[name]
            if name == "y":  # the output of padding is free
                mine, value = mine[:real], value[:real]
            error = (mine.double() - value.double()).norm() / value.double().norm().clamp_min(1e-2)
            assert error < 2e-4, (name, float(error))

    def test_in_half_precision_it_is_no_farther_off_than_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
        """No more than half as far again from single precision; all gradients of parameters as one, and many pictures:
        a relu that opens in one way alone weighs more than all roundings."""
        monkeypatch.setattr(kernels, "usable", lambda x: False)  # the blocks by torch
        half = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # as test_kernels.py has it
        rng = torch.Generator().manual_seed(0)
        shape = (32, 18, 7, 8)
        x, g = (torch.randn(shape, generator=rng).to(DEVICE, memory_format=torch.channels_last) for _ in range(2))
        results = []
        for dtype, fused in ((torch.float32, False), (half, True), (half, False)):
            found = run(blocks(), x.to(dtype), g.to(dtype), fused)
            assert found["y"].dtype == found["dx"].dtype == dtype
            weights = torch.cat([found[name].flatten() for name, _ in blocks().named_parameters()])
            assert weights.dtype == torch.float32
            results.append([found["y"], found["dx"], weights])
        for exact, got, plain in zip(*results, strict=True):
            far, usual = (float((other.double() - exact.double()).norm() / exact.norm()) for other in (got, plain))
            assert far < 1.5 * usual + 0.01, (far, usual)

    def test_several_parts_and_wide_blocks() -> None:
        """More tiles than one in both directions, and more blocks than partial sums."""
        from labelsieve.models.kernels import single_network_norm as one

        torch.manual_seed(2)
        made = Residuals(Residual(70, [(66, 1)], [(40, 1), (30, 3)], scale=0.5)).to(DEVICE)
        x, g = (torch.randn(3, 70, 8, 9, device=DEVICE).to(memory_format=torch.channels_last) for _ in range(2))
        state = {name: tensor.clone() for name, tensor in made.state_dict().items()}
        one.PROGRAMS, before = 4, one.PROGRAMS
        try:
            got = run(made, x, g, True)
        finally:
            one.PROGRAMS = before
        got = {name: tensor.clone() for name, tensor in got.items()}
        made.load_state_dict(state)
        for name, value in run(made, x, g, False).items():
            error = (got[name].double() - value.double()).norm() / value.double().norm().clamp_min(1e-2)
            assert error < 2e-4, (name, float(error))

    def test_in_inference_the_running_statistics_count_and_stay() -> None:
        from labelsieve.models.kernels import branches

        made = blocks().eval()
        x = torch.randn(2, 18, 3, 3, device=DEVICE).to(memory_format=torch.channels_last)
        before = {name: tensor.clone() for name, tensor in made.named_buffers()}
        assert not branches.supported(made, x)  # gradients of running statistics are torch's
        with torch.no_grad():
            assert branches.supported(made, x)
            torch.testing.assert_close(branches.residual_blocks(made, x), made(x), rtol=1e-4, atol=1e-4)
        assert all(torch.equal(before[name], tensor) for name, tensor in made.named_buffers())

    class Two(InTurn):
        """Networks of nothing but residual blocks."""

        def __init__(self, *, n: int = 1) -> None:
            super().__init__(n)
            self.blocks = blocks(3)
            self.head = Linear(n, 18, 2)
            self.multiply()

        def one(self, x: torch.Tensor) -> torch.Tensor:
            return self.blocks(x).mean((2, 3))

    def test_networks_in_turn_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
        x = torch.randn(4, 36, 3, 3, device=DEVICE).to(memory_format=torch.channels_last)
        results = []
        for used in (True, False):
            monkeypatch.setattr(kernels, "usable", lambda x, used=used: used)
            stack = Two(n=2).to(DEVICE)
            with torch.no_grad():
                for p in stack.parameters():
                    p.copy_(torch.cos(torch.arange(p.numel(), device=DEVICE)).view_as(p))
            for layer in stack.modules():
                if isinstance(layer, BatchNorm):
                    layer.valid = torch.tensor([4, 2], dtype=torch.int32, device=DEVICE)
            y = stack(x).view(4, 2, 2)
            names, parameters = zip(*stack.named_parameters(), strict=True)
            gradients = torch.autograd.grad(y[:, 0].sum() + y[:2, 1].square().sum(), parameters)
            found = dict(zip(names, gradients, strict=True)) | dict(stack.named_buffers())
            results.append(found | {"first": y[:, 0].detach(), "second": y[:2, 1].detach()})
        for name, value in results[1].items():
            error = (results[0][name] - value).norm() / value.norm().clamp_min(1e-2)
            assert error < 1e-3, (name, float(error))

    def test_what_several_processes_share_is_left_alone() -> None:
        from labelsieve.models.kernels import branches

        made, x = blocks(), torch.randn(2, 18, 3, 3, device=DEVICE)
        assert branches.supported(made, x)
        made[1].branches.first.norm.across = lambda own: own[None]
        assert not branches.supported(made, x)

    def test_the_order_of_the_gradients_is_that_of_the_parameters() -> None:
        from labelsieve.models.kernels import branches

        block = block_c()
        assert {id(p) for p in branches.parameters_of(block)} == {id(p) for p in block.parameters()}
