"""The small CNN and the MLP."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from labelsieve.errors import InputError
from labelsieve.models.layers import Stackable, stack_states
from labelsieve.models.small import MLP, SmallCNN


@pytest.mark.parametrize("side", [8, 28, 33, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_cnn_takes_small_pictures(side: int, channels: int) -> None:
    model = SmallCNN(5, channels=channels)
    x = torch.randn(2, channels, side, side)
    assert model.features(x).shape == (2, 128)
    assert model(x).shape == (2, 5)


def learns(model: nn.Module, x: Tensor, y: Tensor) -> float:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(40):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    return float((model(x).argmax(1) == y).float().mean())


def test_both_learn() -> None:
    torch.manual_seed(0)
    y = torch.arange(60) % 3
    pictures = 0.3 * torch.randn(60, 1, 8, 8)
    pictures[y == 1, :, :, 3:5] += 1
    pictures[y == 2, :, 3:5] += 1
    assert learns(SmallCNN(3, channels=1, widths=(8, 16)), pictures, y) > 0.95
    vectors = torch.randn(60, 4)
    vectors[:, 0] += 4 * (y - 1)
    assert learns(MLP(3, inputs=4, widths=(16,)), vectors, y) > 0.9


@pytest.mark.parametrize("kind", ["cnn", "mlp"])
def test_stacked_networks_are_single_ones(kind: str) -> None:
    def make(n: int) -> Stackable:
        return SmallCNN(4, widths=(6, 5), n=n) if kind == "cnn" else MLP(4, inputs=7, widths=(6, 5), n=n)

    singles = []
    for seed in (1, 2, 3):
        torch.manual_seed(seed)
        singles.append(make(1))
    stack = make(3)
    stack.load_state_dict(stack_states([single.state_dict() for single in singles]))
    x = torch.randn(5, 3, 3, 12, 12) if kind == "cnn" else torch.randn(5, 3, 7)
    alone = torch.cat([single(x[:, i]) for i, single in enumerate(singles)], 1)
    torch.testing.assert_close(stack(x.flatten(1, 2)), alone, rtol=1e-4, atol=1e-5)


def test_an_mlp_without_hidden_layers_is_linear() -> None:
    model = MLP(2, inputs=3, widths=())
    x = torch.randn(4, 3)
    torch.testing.assert_close(model(x), x @ model.head.weight.T + model.head.bias)


def test_nonsense_is_named() -> None:
    with pytest.raises(InputError, match="at least one feature"):
        MLP(2, inputs=0)
