"""Every method, trained by the engine: it learns, it resumes to the same weights, and true labels cannot reach it."""

from __future__ import annotations

import inspect
from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest
import torch

from labelsieve import noise, theory
from labelsieve.engine import Batch, OutOfTime, PictureStore, Plan, Schedule, TrainingView, VectorStore, train
from labelsieve.methods import METHODS, create
from labelsieve.models.small import MLP
from labelsieve.types import Job, LabelledData, Scores, Selection

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
EPOCHS, CLASSES, SAMPLES = 6, 4, 300
SETTINGS = {  # short enough that every method's own machinery runs within six epochs
    "incv-coteaching": {"warmup": 2},
    "d2l": {"init_epochs": 0, "window": 1, "lid_samples": 128, "lid_batch": 64, "neighbours": 10},
    "f-correction": {"estimate_epochs": 3, "percentile": 90.0},
}


@pytest.fixture(scope="module")
def data():
    """Four clouds; the first SAMPLES are for training."""
    rng = np.random.default_rng(0)
    true = rng.integers(CLASSES, size=SAMPLES + 200)
    x = rng.normal(size=(CLASSES, 10))[true] * 2 + rng.normal(size=(len(true), 10))
    return x.astype(np.float32), true


def plan_of(true, seed, **changes):
    """The input of a training: noisy labels, a selected set and the rest, without a reference to `true`."""
    given = noise.corrupt(true[:SAMPLES], theory.symmetric(CLASSES, 0.3), np.random.default_rng(seed))
    order = np.random.default_rng(seed + 1).permutation(SAMPLES)
    settings = {"train": order[:220], "candidates": order[220:], "noise_ratio": 0.3} | changes
    return Plan(name=f"seed {seed}", labels=np.asarray(given, dtype=np.int64), seed=seed, **settings)


ADAM = Schedule(EPOCHS, ((0, 1e-2), (4, 1e-3)))


def trained(name, x, plans, device, schedule=ADAM, **options):
    method = create(name, **SETTINGS.get(name, {}))
    if method.needs() == "transition":
        plans = [replace(plan, transition=theory.symmetric(CLASSES, 0.3)) for plan in plans]
    return train(
        VectorStore(x[:SAMPLES], torch.device(device)),
        partial(MLP, CLASSES, inputs=10, widths=(32, 24)),
        method,
        plans,
        schedule=schedule,
        batch_size=64,
        **options,
    )


def same(a, b, device):
    """Bit for bit on a CPU; on a GPU sums may be taken in another order."""
    tolerance = {"rtol": 0, "atol": 0} if device == "cpu" else {"rtol": 1e-3, "atol": 1e-4}
    for one, other in zip(a.states, b.states, strict=True):
        assert one.keys() == other.keys()
        for key in one:
            torch.testing.assert_close(one[key], other[key], **tolerance)


@pytest.mark.parametrize("name", METHODS)
def test_the_last_class_may_have_no_sample(name, data):
    """A folder whose pictures cannot be read: the networks know the class, the labels do not."""
    x, true = data
    plan = plan_of(np.minimum(true, CLASSES - 2), 0)
    plan.labels[plan.labels == CLASSES - 1] = 0
    (result,) = trained(name, x, [plan], "cpu", classes=CLASSES)
    assert len(result.history) >= EPOCHS


class After:
    """Asks to stop when it has been asked `times` times."""

    def __init__(self, times):
        self.left = times

    def __call__(self):
        self.left -= 1
        return self.left <= 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", METHODS)
def test_stopped_and_resumed_is_the_same_training(name, device, data, tmp_path):
    x, true = data
    plans = [plan_of(true, 1), plan_of(true, 2)]
    whole = trained(name, x, plans, device)
    for times in (2, 3):  # f-correction: before and after it begins anew; algorithm 3: before and after E_0
        folder = tmp_path / str(times)
        with pytest.raises(OutOfTime):
            trained(name, x, plans, device, checkpoint=folder, stop=After(times))
        again = trained(name, x, plans, device, checkpoint=folder)
        for a, b in zip(whole, again, strict=True):
            same(a, b, device)
            assert [line["epoch"] for line in b.history] == list(range(1, len(a.history) + 1))


@pytest.mark.parametrize("name", METHODS)
def test_stacked_and_single_networks_learn_the_same(name, data):
    x, true = data
    plans = [plan_of(true, 1), plan_of(true, 2)]
    # Not with Adam: a bias before batch norm has no gradient but rounding, which Adam magnifies.
    plain = Schedule(EPOCHS, ((0, 3e-2),), optimizer="sgd")
    single, stacked = (trained(name, x, plans, "cpu", schedule=plain, together=it) for it in (False, True))
    for a, b in zip(single, stacked, strict=True):
        for key in a.states[0]:
            torch.testing.assert_close(a.states[0][key], b.states[0][key], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns(name, data):
    """30 % of the labels are wrong; the clouds are easy."""
    x, true = data
    network = MLP(CLASSES, inputs=10, widths=(32, 24)).eval()
    for result in trained(name, x, [plan_of(true, 1)], "cpu"):
        assert len(result.states) == METHODS[name].networks
        for state in result.states:
            network.load_state_dict(state)
            with torch.no_grad():
                predicted = network(torch.tensor(x[SAMPLES:])).argmax(1).numpy()
            assert (predicted == true[SAMPLES:]).mean() > 0.8


def names_in(function):
    return set(inspect.signature(function).parameters)


@pytest.mark.parametrize("name", METHODS)
def test_methods_do_not_receive_true_labels(name):
    """Labels come by one name, in Plan and Batch, and those are the given ones; tests/commands/test_training.py
    trains beside a file that has the true ones."""
    rooms = {field.name for kind in (LabelledData, Job, Scores, Selection, Plan, Batch) for field in fields(kind)}
    rooms |= set(TrainingView.__annotations__) | names_in(train) | names_in(VectorStore) | names_in(PictureStore)
    functions = inspect.getmembers(METHODS[name], inspect.isfunction)
    rooms |= set().union(*(names_in(function) for _, function in functions))
    assert not {room for room in rooms if any(word in room for word in ("true", "truth", "clean", "right"))}
    assert {room for room in rooms if room.endswith(("label", "labels"))} == {"labels"}


def test_two_networks_differ(data):
    x, true = data
    one, other = trained("coteaching", x, [plan_of(true, 1)], "cpu")[0].states
    assert not torch.equal(one["head.weight"], other["head.weight"])
