"""Inception-ResNet-v2 against the released model's numbers, and against itself stacked."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from labelsieve.models.inception_resnet_v2 import Branches, InceptionResNetV2, Residual, Unit, block_b
from labelsieve.models.layers import BatchNorm, stack_states


@pytest.fixture(scope="module")
def network() -> InceptionResNetV2:
    torch.manual_seed(0)
    return InceptionResNetV2(50)


def test_has_the_released_models_parameters() -> None:
    with torch.device("meta"):
        model = InceptionResNetV2(1000)
    count = sum(p.numel() for p in model.parameters())
    scales = sum(m.weight.numel() for m in model.modules() if isinstance(m, BatchNorm))
    assert count == 55_843_464  # with batch norm's scale, as the common ports count it
    assert count - scales == 55_813_192  # without, as Keras counts the trainable ones
    with torch.device("meta"):
        fifty = sum(p.numel() for p in InceptionResNetV2(50).parameters())
    assert fifty == count - 950 * (1536 + 1)


@pytest.mark.parametrize(
    ("side", "grids"), [(299, (35, 17, 8)), (227, (26, 12, 5))], ids=["as published", "the paper's crop"]
)
def test_shapes(network: InceptionResNetV2, side: int, grids: tuple[int, int, int]) -> None:
    seen: list[torch.Size] = []
    stages = (network.blocks_a, network.blocks_b, network.blocks_c)
    hooks = [stage.register_forward_hook(lambda _m, _x, out: seen.append(out.shape)) for stage in stages]
    network.eval()
    with torch.no_grad():
        x = torch.randn(1, 3, side, side)
        features = network.features(x)
        assert network(x).shape == (1, 50)
        torch.testing.assert_close(network(x), network.head(features))
    for hook in hooks:
        hook.remove()
    assert features.shape == (1, 1536)
    assert [tuple(shape[1:]) for shape in seen[:3]] == [
        (channels, grid, grid) for channels, grid in zip((320, 1088, 2080), grids, strict=True)
    ]


def test_every_parameter_learns_and_the_gradient_points_downhill(network: InceptionResNetV2) -> None:
    network.train()
    x, y = torch.randn(4, 3, 107, 107), torch.tensor([0, 7, 7, 49])

    def loss() -> torch.Tensor:
        return nn.functional.cross_entropy(network(x), y)

    before = loss()
    before.backward()
    parameters = list(network.parameters())
    squared = 0.0
    for name, p in network.named_parameters():
        assert p.grad is not None and bool(torch.isfinite(p.grad).all()), name
        squared += float(p.grad.double().square().sum())
        # A unit's convolution is followed by batch norm over at least 4 values: its gradient cannot vanish whole.
        assert bool((p.grad != 0).any()), name
    step = 1e-3 / squared**0.5
    with torch.no_grad():
        for p in parameters:
            assert p.grad is not None
            p -= step * p.grad
        fallen = float(before - loss())
        for p in parameters:
            assert p.grad is not None
            p += step * p.grad
    # first-order: the loss falls by step * |gradient|^2
    assert fallen == pytest.approx(step * squared, rel=0.2)
    network.zero_grad()


def test_a_residual_blocks_gradient_is_the_numerical_one() -> None:
    torch.manual_seed(1)
    block = Residual(6, [(2, 1)], [(2, 1), (3, (1, 3))], scale=0.2, relu=False).double()
    x = torch.randn(2, 6, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: block(t).square().sum(), (x,), eps=1e-6, atol=1e-4)


def test_a_residual_block_adds_its_scaled_projection() -> None:
    torch.manual_seed(2)
    block = block_b().eval()
    x = torch.randn(1, 1088, 7, 7)
    with torch.no_grad():
        branches = torch.cat(block.branches(x), 1)
        added = nn.functional.conv2d(branches, block.project.weight, block.project.bias)
        torch.testing.assert_close(block(x), torch.relu(x + 0.10 * added))


def test_branches_that_share_a_first_layer_are_branches_with_their_own() -> None:
    torch.manual_seed(3)
    joined = Branches(6, [(4, 1)], [(3, 1), (5, 3)])
    first = [Unit(6, 4, 1), Unit(6, 3, 1)]
    for unit, piece in zip(first, (slice(0, 4), slice(4, 7)), strict=True):
        unit.load_state_dict({name: tensor[piece] for name, tensor in joined.first.state_dict().items()})
    x = torch.randn(3, 6, 5, 5)
    found = joined(x)
    torch.testing.assert_close(found[0], first[0](x))
    torch.testing.assert_close(found[1], joined.rest[1](first[1](x)), rtol=1e-4, atol=1e-5)
    assert [f.shape[1] for f in found] == [4, 5]


def test_two_stacked_networks_are_two_networks() -> None:
    singles = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        singles.append(InceptionResNetV2(3).eval())
    with torch.device("meta"):
        stack = InceptionResNetV2(3, n=2).eval()
    stack.load_state_dict(stack_states([single.state_dict() for single in singles]), assign=True)
    x = torch.randn(2, 2, 3, 75, 75)
    with torch.no_grad():
        alone = [single(x[:, i]) for i, single in enumerate(singles)]
        together = stack(x.flatten(1, 2))
    torch.testing.assert_close(together, torch.cat(alone, 1), rtol=1e-3, atol=1e-4)
