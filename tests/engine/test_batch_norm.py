"""Batch norm and batches of one sample: refused where nothing could be learnt, left out where one is left over."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from labelsieve.engine import Method, Plan, Schedule, VectorStore, train
from labelsieve.engine.method import mean_over, sample_losses
from labelsieve.errors import InputError
from labelsieve.methods.coteaching import CoTeaching
from labelsieve.methods.standard import GeneralisedCE, Standard
from labelsieve.models.small import MLP, SmallCNN

SCHEDULE = Schedule(2, ((0, 1e-2),))


def torch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))


class FrozenNorm(nn.BatchNorm1d):
    """As fine-tuning has it: the statistics stay."""

    def train(self, mode: bool = True) -> FrozenNorm:
        return super().train(False)


def frozen_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 8), FrozenNorm(8), nn.ReLU(), nn.Linear(8, 10))


@pytest.fixture
def rows(digits) -> VectorStore:
    return VectorStore(digits[0][..., 0].reshape(400, -1).astype(np.float32) / 255, torch.device("cpu"))


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("factory", [partial(MLP, 10, inputs=64), torch_norm])
@pytest.mark.parametrize("method", [Standard(), CoTeaching()])
def test_batches_of_one_are_refused(rows, plans, factory, method, together):
    with pytest.raises(InputError, match=r"batch size 1.*batch norm"):
        train(rows, factory, method, plans, schedule=SCHEDULE, batch_size=1, together=together)


def test_several_batches_of_one_sample_are_not_the_batch_size(rows, digits):
    class OneByOne(Standard):
        def batches(self, plan, epoch, batch_size, rng):
            return plan.train[:, None]

    plan = Plan("few", digits[1], np.arange(4), seed=1)
    with pytest.raises(InputError, match="few: every batch"):
        train(rows, torch_norm, OneByOne(), [plan], schedule=SCHEDULE, batch_size=16)


def test_pictures_too(store, plans):
    with pytest.raises(InputError, match="batch size 1"):
        train(store, partial(SmallCNN, 10, widths=(4,)), Standard(), plans, schedule=SCHEDULE, batch_size=1)


@pytest.mark.parametrize("factory", [partial(nn.Linear, 64, 10), frozen_norm])
def test_networks_without_or_with_norms_that_stand_still_take_them(rows, digits, factory):
    plan = Plan("p", digits[1], np.arange(40), seed=1)
    (found,) = train(rows, factory, Standard(), [plan], schedule=SCHEDULE, batch_size=1)
    assert found.history[-1]["loss"][0] < found.history[0]["loss"][0]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("factory", [partial(MLP, 10, inputs=64), torch_norm])
@pytest.mark.parametrize("method", [Standard(), GeneralisedCE()])
def test_one_sample_left_over_does_no_harm(rows, digits, factory, method, together):
    plans = [Plan(name, digits[1], np.arange(count), seed=1) for name, count in (("even", 64), ("odd", 65))]
    for found in train(rows, factory, method, plans, schedule=SCHEDULE, batch_size=16, together=together):
        assert all(torch.isfinite(tensor.float()).all() for tensor in found.states[0].values())
        assert found.history[-1]["loss"][0] < found.history[0]["loss"][0]


class Uneven(Method):
    """Makes its own batches, the last of one sample."""

    def batches(self, plan, epoch, batch_size, rng):
        return np.array([[0, 1, 2], [3, -1, -1]])

    def loss(self, logits, batch):
        return mean_over(sample_losses(logits, batch), batch.valid[:, None])


def test_a_methods_own_batch_of_one_is_told_in_our_words(rows, plans):
    with pytest.raises(InputError, match=r"one sample.*batch norm") as problem:
        train(rows, torch_norm, Uneven(), plans, schedule=SCHEDULE)
    assert "\n" not in str(problem.value)
