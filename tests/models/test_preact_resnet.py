"""PreAct-ResNet-18: its size, and a stack computes what its single networks compute."""

from __future__ import annotations

from functools import partial

import torch

from labelsieve.models.layers import stack_states
from labelsieve.models.resnet_cifar import PreActResNet

small = partial(PreActResNet, 4, blocks=(1, 1, 1, 1))


def test_parameters():
    with torch.device("meta"):
        assert sum(p.numel() for p in PreActResNet(10).parameters()) == 11_172_170


def test_a_stack_computes_what_its_networks_compute():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    singles, x = [small().train() for _ in range(2)], torch.randn(3, 6, 8, 8)
    stack = small(n=2).train()
    stack.load_state_dict(stack_states([network.state_dict() for network in singles]))
    expected = torch.cat([network(part) for network, part in zip(singles, x.chunk(2, 1), strict=True)], 1)
    torch.testing.assert_close(stack(x), expected)
    after = stack_states([network.state_dict() for network in singles])
    for name, tensor in stack.state_dict().items():  # running statistics too
        torch.testing.assert_close(tensor, after[name])
