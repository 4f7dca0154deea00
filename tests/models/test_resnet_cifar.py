from __future__ import annotations

import pytest
import torch
from torch import nn

from labelsieve.errors import InputError
from labelsieve.models.layers import BatchNorm, Conv2d, Linear, stack_states, unstack_state, widen
from labelsieve.models.resnet_cifar import ResNetCifar


@pytest.mark.parametrize(("depth", "millions"), [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85), (110, 1.7)])
def test_as_many_parameters_as_the_resnet_paper_says(depth, millions):
    with torch.device("meta"):
        network = ResNetCifar(depth=depth)
    assert round(sum(p.numel() for p in network.parameters()) / 1e6, 2 if depth < 110 else 1) == millions


@pytest.mark.parametrize("preactivation", [False, True])
def test_a_stack_gives_what_its_networks_give(preactivation):
    torch.manual_seed(0)
    single = [ResNetCifar(7, depth=8, preactivation=preactivation) for _ in range(3)]
    stack = ResNetCifar(7, depth=8, preactivation=preactivation, n=3)
    stack.load_state_dict(stack_states([network.state_dict() for network in single]))
    x = torch.randn(4, 9, 16, 16)
    for train in (True, False):
        stack.train(train)
        together = stack(x).view(4, 3, 7)
        for i, network in enumerate(single):
            alone = network.train(train)(x[:, 3 * i : 3 * i + 3])
            torch.testing.assert_close(together[:, i], alone, rtol=1e-4, atol=1e-5)
    for state, network in zip(unstack_state(stack.state_dict(), 3), single, strict=True):  # running statistics too
        for name, tensor in network.state_dict().items():
            torch.testing.assert_close(state[name], tensor, rtol=1e-4, atol=1e-6)


def test_the_block_of_the_paper_written_out():
    torch.manual_seed(1)
    block = ResNetCifar(depth=8).blocks[1]  # the first of stage 2: stride 2, twice the channels
    x = torch.randn(3, 16, 8, 8)
    y = nn.functional.conv2d(x, block.conv1.weight, stride=2, padding=1)
    y = nn.functional.relu(nn.functional.batch_norm(y, None, None, training=True))
    y = nn.functional.conv2d(y, block.conv2.weight, padding=1)
    y = nn.functional.batch_norm(y, None, None, training=True)
    y[:, 8:24] += x[:, :, ::2, ::2]
    torch.testing.assert_close(block(x), nn.functional.relu(y), rtol=1e-4, atol=1e-5)


def test_padding_in_a_batch_changes_neither_outputs_nor_statistics_nor_gradients():
    torch.manual_seed(2)
    layers = nn.ModuleList([Conv2d(2, 3, 4, 3), BatchNorm(2, 4)])
    again = nn.ModuleList([Conv2d(2, 3, 4, 3), BatchNorm(2, 4)])
    again.load_state_dict(layers.state_dict())
    x = torch.randn(5, 6, 8, 8)
    layers[1].valid = torch.tensor([3, 3], dtype=torch.int32)
    padded = layers[0].then(layers[1], x)[:3]
    real = again[0].then(again[1], x[:3])
    torch.testing.assert_close(padded, real)
    padded.square().sum().backward()
    real.square().sum().backward()
    torch.testing.assert_close(layers[0].weight.grad, again[0].weight.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(layers[1].running_var, again[1].running_var)


def test_linear_layers_side_by_side():
    layer = Linear(2, 3, 4)
    x = torch.randn(5, 6)
    y = layer(x)
    for i in range(2):
        expected = x[:, 3 * i : 3 * i + 3] @ layer.weight[4 * i : 4 * i + 4].T + layer.bias[4 * i : 4 * i + 4]
        torch.testing.assert_close(y[:, 4 * i : 4 * i + 4], expected)


def test_widen_adds_zeros_to_each_network():
    x = torch.arange(1.0, 5).view(1, 4, 1, 1)  # two networks of two channels
    assert widen(x, 2, 4).flatten().tolist() == [0, 1, 2, 0, 0, 3, 4, 0]


def test_a_depth_that_is_none():
    with pytest.raises(InputError, match="6k\\+2"):
        ResNetCifar(depth=30)
