"""Networks that draw random numbers: the same seed gives the same answer."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from labelsieve.engine import Method, OutOfTime, Plan, Schedule, VectorStore, train
from labelsieve.engine.bundle import initial_state
from labelsieve.engine.method import mean_over, sample_losses
from labelsieve.methods.coteaching import CoTeaching
from labelsieve.methods.standard import Standard
from labelsieve.models.layers import Linear, Stackable

SCHEDULE = Schedule(3, ((0, 1e-2),))


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 10))


class Deep(nn.Module):
    """Stochastic depth by a coin thrown on the host, and noise that does not stop in inference mode."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(64, 32), nn.Linear(32, 32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        if not self.training or torch.rand(()) < 0.5:
            x = x + self.second(x).relu()
        return self.head(x + 0.1 * torch.randn_like(x))


class Stacked(Stackable):
    def __init__(self, n: int = 1) -> None:
        super().__init__()
        self.n, self.first, self.head = n, Linear(n, 64, 32), Linear(n, 32, 10)

    def features(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.first(x).relu(), 0.5, self.training)


class Noisy(Method):
    """A loss that draws, and a look before each epoch that does."""

    def state(self, plan, *, samples, classes, epochs):
        return {"weight": torch.zeros(samples)}

    def before_epoch(self, view):
        view.state["weight"].copy_(torch.rand(len(view.state["weight"])))

    def loss(self, logits, batch):
        weight = batch.state["weight"].gather(1, batch.index.clamp_min(0)) * torch.rand(batch.index.shape)
        return mean_over(sample_losses(logits, batch), (weight * batch.valid)[:, None])


@pytest.fixture
def rows(digits) -> VectorStore:
    return VectorStore(digits[0][..., 0].reshape(400, -1).astype(np.float32) / 255, torch.device("cpu"))


def weights(results):
    return [state[name] for result in results for state in result.states for name in sorted(state)]


def same(left, right):
    return all(torch.equal(a, b) for a, b in zip(weights(left), weights(right), strict=True)) and all(
        np.array_equal(a.watched, b.watched) and np.array_equal(a.scores.loss, b.scores.loss)
        for a, b in zip(left, right, strict=True)
    )


KINDS = [(with_dropout, Standard()), (with_dropout, CoTeaching()), (Deep, Standard()), (Stacked, Standard()),
         (partial(nn.Linear, 64, 10), Noisy())]  # fmt: skip


@pytest.mark.parametrize(("factory", "method"), KINDS)
def test_the_same_seed_gives_the_same_networks_whatever_was_drawn_before(rows, plans, factory, method, tmp_path):
    options = {"schedule": SCHEDULE, "batch_size": 64, "watch": rows, "together": True}
    torch.manual_seed(5)
    first = train(rows, factory, method, plans, **options)
    drawn = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(3))  # the user's generator was not touched
    assert same(first, train(rows, factory, method, plans, **options))
    for attempt in itertools.count():
        torch.manual_seed(attempt)
        try:
            resumed = train(rows, factory, method, plans, checkpoint=tmp_path, stop=lambda: True, **options)
            break
        except OutOfTime:
            assert attempt < 20
    assert attempt >= 3 and same(first, resumed)


@pytest.mark.parametrize(("factory", "method"), [(with_dropout, CoTeaching()), (Deep, Standard())])
def test_in_company_a_network_draws_what_it_draws_alone(rows, plans, factory, method):
    options = {"schedule": SCHEDULE, "batch_size": 64, "watch": rows}
    alone = [train(rows, factory, method, [plan], **options)[0] for plan in plans]
    assert same(train(rows, factory, method, plans, **options), alone)


def test_every_seed_epoch_step_and_network_draws_its_own(rows, digits):
    seen: list[Tensor] = []

    class Spied(nn.Linear):
        def forward(self, x):
            if self.training:
                seen.append(torch.rand(8))
            return super().forward(x)

    plans = [Plan(f"{seed}", digits[1], np.arange(100), seed=seed) for seed in (1, 2)]
    train(rows, partial(Spied, 64, 10), CoTeaching(0.2), plans, schedule=SCHEDULE, batch_size=50)
    assert len(seen) == 2 * 2 * 3 * 2  # trainings, networks, epochs, steps
    assert len({tuple(draw.tolist()) for draw in seen}) == len(seen)


def test_a_failed_training_gives_the_generator_back_too(rows, plans):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with pytest.raises(OutOfTime):
        train(rows, with_dropout, Standard(), plans, schedule=SCHEDULE, stop=lambda: True)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_still_drops(rows, plans):
    """Were the same units dropped in every step, the others would never learn."""
    schedule = Schedule(1, ((0, 1e-2),), optimizer="sgd", weight_decay=0.0)
    (found,) = train(rows, with_dropout, Standard(), plans[:1], schedule=schedule, batch_size=20)
    moved = found.states[0]["3.weight"] != initial_state(with_dropout, 1000)["3.weight"]
    assert moved.all(0).float().mean() > 0.8
