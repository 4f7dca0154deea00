"""n networks in turn are n networks: outputs, gradients, running statistics, padding, and a training on the engine."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from labelsieve.engine import Plan, Schedule, train
from labelsieve.engine.bundle import stackable
from labelsieve.engine.store import PictureStore
from labelsieve.methods.coteaching import CoTeaching
from labelsieve.models.layers import BatchNorm, Conv2d, Linear, SequentialStack, stack_states, unstack_state


class Small(SequentialStack):
    """Two layers, a parameter and a buffer of its own."""

    shift: Tensor

    def __init__(self, classes: int = 4, *, n: int = 1) -> None:
        super().__init__(n)
        self.gain = torch.nn.Parameter(torch.full((3,), 2.0))
        self.register_buffer("shift", torch.randn(3))
        self.conv1, self.norm1 = Conv2d(1, 3, 5, 3), BatchNorm(1, 5)
        self.conv2, self.norm2 = Conv2d(1, 5, 6, 1), BatchNorm(1, 6, relu=False)
        self.head = Linear(n, 6, classes)
        self.repeat_parameters()

    def features_of_one(self, x: Tensor) -> Tensor:
        x = x * self.gain[:, None, None] + self.shift[:, None, None]
        x = self.norm2(self.conv2(self.norm1(self.conv1(x))))
        return x.mean((2, 3)) if self.training else x.amax((2, 3))


def singles_and_stack(n: int = 3) -> tuple[list[Small], Small]:
    singles = []
    for seed in range(n):
        torch.manual_seed(seed)
        single = Small()
        with torch.no_grad():
            for p in (*single.parameters(), single.norm1.running_mean):
                p += 0.3 * torch.randn_like(p)
        singles.append(single)
    stack = Small(n=n)
    stack.load_state_dict(stack_states([single.state_dict() for single in singles]))
    return singles, stack


@pytest.mark.parametrize("training", [True, False])
def test_a_stack_is_its_single_networks(training: bool) -> None:
    singles, stack = singles_and_stack()
    stack.train(training)
    x, target = torch.randn(5, 3, 3, 6, 6), torch.tensor([0, 1, 2, 3, 0])
    found = stack(x.flatten(1, 2))
    F.cross_entropy(found.view(15, 4), target.repeat_interleave(3), reduction="sum").backward()
    for i, single in enumerate(singles):
        single.train(training)
        alone = single(x[:, i])
        torch.testing.assert_close(found.view(5, 3, 4)[:, i], alone)
        F.cross_entropy(alone, target, reduction="sum").backward()
    gradients = {name: p.grad for name, p in stack.named_parameters()}
    for name in gradients:
        alone = torch.cat([single.get_parameter(name).grad for single in singles])
        torch.testing.assert_close(gradients[name], alone, rtol=1e-4, atol=1e-5, msg=name)
    after = unstack_state(stack.state_dict(), 3)
    for single, mine in zip(singles, after, strict=True):
        for name, tensor in single.state_dict().items():
            torch.testing.assert_close(mine[name], tensor, msg=name)
    assert not torch.equal(singles[0].norm1.running_mean, singles[1].norm1.running_mean)


def test_padding_of_each_network_enters_no_statistic() -> None:
    singles, stack = singles_and_stack()
    x = torch.randn(5, 3, 3, 6, 6)
    valid = (5, 2, 4)
    for i, count in enumerate(valid):
        x[count:, i] = 100.0
    whole = torch.tensor(valid, dtype=torch.int32)
    for norm in (stack.norm1, stack.norm2):
        norm.valid = whole
    found = stack(x.flatten(1, 2)).view(5, 3, 4)
    for i, (count, single) in enumerate(zip(valid, singles, strict=True)):
        torch.testing.assert_close(found[:count, i], single(x[:count, i]), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(stack.norm2.running_var.chunk(3)[i], single.norm2.running_var)
    assert stack.norm1.valid is whole  # as the engine left it


def test_a_layer_that_is_not_asked_gets_no_gradient_but_zeros() -> None:
    _, stack = singles_and_stack()
    whole = stack.features(torch.randn(2, 9, 6, 6)).view(2, 3, 6)
    first, second = stack.conv1.weight, stack.norm2.bias
    gradients = torch.autograd.grad(whole[:, 1].square().sum(), (first, second))
    for gradient in gradients:
        mine = gradient.chunk(3)
        assert mine[1].any() and not mine[0].any() and not mine[2].any()


def test_the_engine_trains_them_weight_for_weight() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 4
    pictures = (rng.integers(0, 120, (90, 8, 8, 3)) + 30 * labels[:, None, None, None]).astype(np.uint8)
    store = PictureStore(pictures, torch.device("cpu"), shift=1)
    factory = partial(Small, 4)
    assert stackable(factory)
    plans = [
        Plan(name, labels, np.arange(start, 90), seed, noise_ratio=0.2)
        for seed, (name, start) in enumerate((("a", 0), ("b", 20)))
    ]
    options = {"schedule": Schedule(2, ((0, 0.05),), optimizer="sgd"), "batch_size": 32}
    # their last batches are unequal: padding and all
    stacked = train(store, factory, CoTeaching(), plans, together=True, **options)
    alone = train(store, factory, CoTeaching(), plans, together=False, **options)
    for a, b in zip(stacked, alone, strict=True):
        for left, right in zip(a.states, b.states, strict=True):
            for name, tensor in left.items():
                torch.testing.assert_close(tensor, right[name], rtol=1e-3, atol=1e-4, msg=name)
