"""On a GPU, with kernels, bf16 and captured steps: the same training twice, and stopped in between, bit for bit."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from labelsieve import theory
from labelsieve.engine import OutOfTime, Plan, Schedule, stage_pictures, train
from labelsieve.methods.coteaching import CoTeaching
from labelsieve.methods.incv_posterior import INCVPosterior
from labelsieve.methods.standard import Standard
from labelsieve.models import kernels
from labelsieve.models.resnet_cifar import PreActResNet, ResNetCifar

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card")
SCHEDULES = {
    "adam": Schedule(3, ((0, 1e-3), (2, 1e-4)), fresh_state=True),
    "sgd": Schedule(3, ((0, 0.05), (2, 0.01)), optimizer="sgd"),
}


def resnet(n: int = 1) -> ResNetCifar:
    return ResNetCifar(10, depth=14, n=n)


def everything(results):
    """All that a training gives back, as tensors by name."""
    found = {}
    for i, result in enumerate(results):
        for k, state in enumerate(result.states):
            found |= {f"{i}.{k}.{name}": tensor for name, tensor in state.items()}
        found[f"{i}.watched"] = torch.as_tensor(result.watched.astype(np.int64))
        found[f"{i}.losses"] = torch.tensor([line["loss"] for line in result.history])
        found[f"{i}.scores"] = torch.as_tensor(result.scores.loss)
    return found


def different(left, right):
    """Names of what is not the same to the last bit."""
    return [name for name in left if not torch.equal(left[name], right[name])]


def stopped_again_and_again(training, folder):
    """What a training gives that is stopped after every epoch and taken up again."""
    for attempt in itertools.count():
        try:
            found = training(checkpoint=folder, stop=lambda: True)
            break
        except OutOfTime:
            assert attempt < 20
    assert attempt >= 2  # three epochs in one lockstep end two times before the last one
    return found


@pytest.mark.parametrize("capture", [True, False], ids=["captured", "eager"])
@pytest.mark.parametrize(
    "method",
    [Standard(), CoTeaching(), INCVPosterior(strong=True), INCVPosterior(strong=True, rounds=2)],
    ids=["standard", "coteaching", "incv-posterior", "two rounds"],
)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_training_repeats_and_resumes_bit_for_bit(digits, plans, schedule, method, capture, tmp_path):
    assert kernels.available()
    pictures = digits[0].repeat(4, axis=1).repeat(4, axis=2)  # 32 x 32, as the kernels like them
    store = stage_pictures(pictures, "cuda")
    if isinstance(method, INCVPosterior):  # a teacher, strong views, mixup and a memory
        plans = [replace(plan, candidates=np.arange(310, 400), transition=theory.symmetric(10, 0.2)) for plan in plans]

    def training(**options):
        return train(
            store, resnet, method, plans, schedule=SCHEDULES[schedule], batch_size=64, watch=store, capture=capture,
            **options,
        )  # fmt: skip

    first = everything(training())
    assert different(first, everything(training())) == []
    assert different(first, everything(stopped_again_and_again(training, tmp_path))) == []
    untrained = train(store, resnet, method, plans, schedule=Schedule(1, ((0, 0.0),)), watch=store)
    assert different(first, everything(untrained))  # the comparisons above can fail


class Dropping(ResNetCifar):
    def features(self, x):
        return torch.nn.functional.dropout(super().features(x), 0.5, self.training)


def dropping(n: int = 1) -> ResNetCifar:
    return Dropping(10, depth=8, n=n)


def by_itself() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(3 * 32 * 32, 10))


@pytest.mark.parametrize("capture", [True, False], ids=["captured", "eager"])
@pytest.mark.parametrize("factory", [dropping, by_itself])
def test_dropout_repeats_and_resumes_and_leaves_the_users_generators_alone(digits, plans, factory, capture, tmp_path):
    store = stage_pictures(digits[0].repeat(4, axis=1).repeat(4, axis=2), "cuda")

    def training(**options):
        torch.rand(5, device="cuda")
        before = torch.get_rng_state(), torch.cuda.get_rng_state()
        try:
            return train(
                store, factory, Standard(), plans, schedule=SCHEDULES["sgd"], batch_size=64, watch=store,
                capture=capture, **options,
            )  # fmt: skip
        finally:
            assert torch.equal(before[0], torch.get_rng_state()) and torch.equal(before[1], torch.cuda.get_rng_state())

    first = everything(training())
    assert different(first, everything(training())) == []
    assert different(first, everything(stopped_again_and_again(training, tmp_path))) == []


def test_a_captured_step_computes_what_an_eager_one_does(digits):
    """PreAct-ResNet-18 with a teacher, strong views, mixup and a memory: the same weights up to rounding."""
    pictures, labels = digits[0].repeat(4, axis=1).repeat(4, axis=2), digits[1]
    store = stage_pictures(pictures, "cuda")
    plan = Plan(
        "captured", labels, np.arange(200), seed=1, candidates=np.arange(200, 400), noise_ratio=0.1,
        transition=theory.symmetric(10, 0.2),
    )  # fmt: skip
    captured, eager = (
        train(
            store, PreActResNet, INCVPosterior(networks=1, strong=True), [plan],
            schedule=Schedule.cosine(2, 0.01), batch_size=64, capture=capture,
        )[0]
        for capture in (True, False)
    )  # fmt: skip
    losses = [[line["loss"][0] for line in result.history] for result in (captured, eager)]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    for name, weight in captured.states[0].items():
        torch.testing.assert_close(weight, eager.states[0][name], rtol=0.1, atol=0.05)
