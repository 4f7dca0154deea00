"""Networks of which a part is frozen: the rest learns, in any company, and a checkpoint holds all of it."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from labelsieve.engine import OutOfTime, Schedule, VectorStore, train
from labelsieve.engine.bundle import check_factory, initial_state
from labelsieve.errors import InputError
from labelsieve.methods.coteaching import CoTeaching
from labelsieve.methods.standard import Standard
from labelsieve.models.fast_cnn import FastCNN
from labelsieve.models.resnet_cifar import ResNetCifar

SCHEDULE = Schedule(3, ((0, 1e-2), (2, 1e-3)), weight_decay=0.1, fresh_state=True)
HEAD = ("3.weight", "3.bias")


@pytest.fixture
def rows(digits) -> VectorStore:
    return VectorStore(digits[0][..., 0].reshape(400, -1).astype(np.float32) / 255, torch.device("cpu"))


def head_alone() -> nn.Module:
    network = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name in HEAD)
    return network


@pytest.mark.parametrize("schedule", [SCHEDULE, Schedule(2, ((0, 0.1),), optimizer="sgd", weight_decay=0.1)])
@pytest.mark.parametrize("method", [Standard(), CoTeaching()])
def test_the_frozen_part_stays_as_it_was_and_the_rest_learns(rows, plans, method, schedule):
    for result in train(rows, head_alone, method, plans, schedule=schedule, batch_size=64):
        for k, state in enumerate(result.states):
            first = initial_state(head_alone, result.plan.seed * 1000 + k)
            assert set(state) == set(first)
            for name, tensor in state.items():
                learns = name in HEAD or "running" in name or "tracked" in name  # statistics are no parameters
                assert torch.equal(tensor, first[name]) != learns, name
        assert result.history[-1]["loss"][0] < result.history[0]["loss"][0]


def test_a_resumed_one_ends_the_same(rows, plans, tmp_path):
    options = {"schedule": SCHEDULE, "batch_size": 64}
    undisturbed = train(rows, head_alone, Standard(), plans, **options)
    for attempt in itertools.count():
        try:
            resumed = train(rows, head_alone, Standard(), plans, checkpoint=tmp_path, stop=lambda: True, **options)
            break
        except OutOfTime:
            assert attempt < 20
    for a, b in zip(undisturbed, resumed, strict=True):
        assert all(torch.equal(tensor, b.states[0][name]) for name, tensor in a.states[0].items())


def _frozen_but_head(make, **options):
    network = make(**options)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name.startswith("head."))
    return network


@pytest.mark.parametrize(
    "make",
    [partial(ResNetCifar, 10, depth=8), partial(FastCNN, 10, filters=torch.ones(24, 3, 2, 2) / 9, widths=(24, 24))],
)
def test_stacks_have_frozen_parts_too(store, plans, make):
    factory = partial(_frozen_but_head, make)
    options = {"schedule": Schedule(1, ((0, 0.05),), optimizer="sgd"), "batch_size": 64}
    stacked = train(store, factory, Standard(), plans, together=True, **options)
    for a, plan in zip(stacked, plans, strict=True):
        first = initial_state(factory, plan.seed * 1000)
        (b,) = train(store, factory, Standard(), [plan], together=False, **options)
        for name, tensor in a.states[0].items():
            torch.testing.assert_close(tensor, b.states[0][name], rtol=1e-3, atol=1e-4)
        frozen = [name for name, _ in factory().named_parameters() if not name.startswith("head.")]
        assert frozen and all(torch.equal(a.states[0][name], first[name]) for name in frozen)
        assert not torch.equal(a.states[0]["head.weight"], first["head.weight"])


class Unused(nn.Module):
    """What could learn takes no part in the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(64, 10).requires_grad_(False), nn.Linear(64, 10)

    def forward(self, x):
        return self.used(x)


def all_frozen() -> nn.Module:
    return nn.Linear(64, 10).requires_grad_(False)


@pytest.mark.parametrize("factory", [all_frozen, Unused])
def test_where_nothing_can_learn_the_network_is_named_and_not_the_method(rows, plans, factory):
    with pytest.raises(InputError, match="requires_grad") as problem:
        train(rows, factory, Standard(), plans, schedule=SCHEDULE)
    assert "loss()" not in str(problem.value) and "\n" not in str(problem.value)
    with pytest.raises(InputError, match=r"own:net .*requires_grad"):
        check_factory(all_frozen, (64,), 10, name="own:net")


def test_a_network_given_in_inference_mode_trains_like_any_other(rows, plans):
    """Else it would train so until something is scored, and again after each resume."""
    options = {"schedule": SCHEDULE, "batch_size": 64}
    usual = train(rows, head_alone, Standard(), plans[:1], **options)[0]
    found = train(rows, lambda: head_alone().eval(), Standard(), plans[:1], **options)[0]
    assert all(torch.equal(tensor, found.states[0][name]) for name, tensor in usual.states[0].items())
