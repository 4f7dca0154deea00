"""PreAct-ResNet-18."""

from __future__ import annotations

import torch

from labelsieve.models.layers import stack_states
from labelsieve.models.preact_resnet import Block, PreActResNet


def test_parameters_and_shapes() -> None:
    model = PreActResNet(10)
    # 11,171,146 of the common port, and the last batch norm of the paper
    assert sum(p.numel() for p in model.parameters()) == 11_171_146 + 2 * 512
    x = torch.randn(2, 3, 32, 32)
    assert model.features(x).shape == (2, 512)
    assert model(x).shape == (2, 10)
    assert PreActResNet(7, channels=1, blocks=(1, 1, 1, 1))(torch.randn(2, 1, 28, 28)).shape == (2, 7)


def test_a_block_is_the_papers_formula() -> None:
    torch.manual_seed(0)
    for inputs, outputs, stride in ((4, 4, 1), (4, 6, 2)):
        block = Block(1, inputs, outputs, stride).eval()
        x = torch.randn(2, inputs, 6, 6)
        shape = torch.nn.functional
        active = torch.relu(x / (1 + 1e-5) ** 0.5)
        y = shape.conv2d(active, block.conv1.weight, stride=stride, padding=1)
        y = shape.conv2d(torch.relu(y / (1 + 1e-5) ** 0.5), block.conv2.weight, padding=1)
        shortcut = x if block.shortcut is None else shape.conv2d(active, block.shortcut.weight, stride=stride)
        torch.testing.assert_close(block(x), y + shortcut)


def test_stacked_networks_learn_as_single_ones() -> None:
    blocks = (1, 1, 1, 1)
    singles = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        singles.append(PreActResNet(3, blocks=blocks))
    stack = PreActResNet(3, blocks=blocks, n=2)
    stack.load_state_dict(stack_states([single.state_dict() for single in singles]))
    x = torch.randn(4, 2, 3, 16, 16)
    alone = torch.cat([single(x[:, i]) for i, single in enumerate(singles)], 1)
    together = stack(x.flatten(1, 2))
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)
    alone.square().sum().backward()
    together.square().sum().backward()
    expected = torch.cat([single.stem.weight.grad for single in singles if single.stem.weight.grad is not None])
    assert stack.stem.weight.grad is not None
    torch.testing.assert_close(stack.stem.weight.grad, expected, rtol=1e-3, atol=1e-3)
