import csv
import math
import warnings
from functools import partial

import numpy as np
import pytest
import torch

from labelsieve.cli.app import run
from labelsieve.engine import Schedule, VectorStore, train
from labelsieve.engine.method import MethodWarning
from labelsieve.errors import InputError
from labelsieve.methods.d2l import D2L, is_turning_point, local_dimension, mixed_losses
from labelsieve.models.small import MLP
from labelsieve.workflow.robust_classifier import RobustClassifier


def test_lid_by_hand():
    # From 0: distances 1, 2, 4; with k = 3, -3 / (ln 1/4 + ln 1/2 + 0) = 3 / ln 8
    points = torch.tensor([[0.0], [1.0], [-2.0], [4.0]])
    assert local_dimension(points, 3)[0].item() == pytest.approx(3 / math.log(8), rel=1e-6)


def test_lid_against_loops():
    x = np.random.default_rng(0).normal(size=(50, 6))
    found = local_dimension(torch.tensor(x), 20)
    for i in range(50):
        distances = sorted(np.linalg.norm(x - x[i], axis=1)[np.arange(50) != i])[:20]
        expected = -20 / sum(math.log(d / distances[-1] + 1e-8) for d in distances)
        assert found[i].item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("dimension", [1, 3, 8])
def test_lid_grows_with_the_dimension(dimension):
    x = torch.zeros(2000, 20)
    x[:, :dimension] = torch.rand(2000, dimension, generator=torch.Generator().manual_seed(0))
    assert local_dimension(x, 100).median().item() == pytest.approx(dimension, rel=0.35)


def test_lid_of_equal_points_is_not_a_number():
    assert local_dimension(torch.ones(30, 4)).isnan().all()


@pytest.mark.parametrize(
    ("lids", "turned"),
    [
        ([5, 4, 3, 2, 1, 2, 2.2, 1.8, 2, 2, 2.3], True),  # 0.3 above the mean 2, deviation 0.126
        ([5, 4, 3, 2, 1, 2, 2.2, 1.8, 2, 2, 2.2], False),
        ([5, 4, 3, 2, 1, 2, 2.2, 1.8, 2, 9], False),  # the tenth: too early
        ([1] * 20, False),
    ],
)
def test_turning_point(lids, turned):
    assert is_turning_point(lids, init_epochs=5, window=5) == turned


def test_loss_by_hand_and_loops(make_batch):
    rng = np.random.default_rng(4)
    logits, labels, alpha = rng.normal(size=(2, 1, 5, 3)), rng.integers(3, size=(2, 5)), [1.0, 0.4]
    found = mixed_losses(torch.tensor(logits), torch.tensor(labels), torch.tensor(alpha))
    for t in range(2):
        for b in range(5):
            p = np.exp(logits[t, 0, b]) / np.exp(logits[t, 0, b]).sum()
            target = np.zeros(3)
            target[labels[t, b]] += alpha[t]
            target[p.argmax()] += 1 - alpha[t]
            assert found[t, 0, b].item() == pytest.approx(-(target * np.log(p)).sum(), rel=1e-5)


def features_of_dimension(d, seed):
    x = np.zeros((40, 12))
    x[:, :d] = np.random.default_rng(seed).random((40, d))
    return torch.tensor(x)


def test_alpha_falls_after_the_turning_point(make_plan, fake_view, make_batch):
    method, plan = D2L(neighbours=10), make_plan()
    view = fake_view(plan, method.state(plan, samples=40, classes=4, epochs=20), epochs=20)
    for view.epoch in range(20):
        view.hidden = features_of_dimension(2 if view.epoch < 14 else 10, seed=0)
        method.before_epoch(view)
        alpha, lids = view.state["alpha"].item(), view.state["lids"]
        if view.epoch < 14:
            assert alpha == 1
            assert view.state["turning_epoch"] == -1
        else:
            assert view.state["turning_epoch"] == 14
            expected = math.exp(-view.epoch / 20 * lids[view.epoch] / min(lids[: view.epoch + 1]))
            assert alpha == pytest.approx(expected, rel=1e-4)
    assert (lids > 0).all()


def test_the_measurement_depends_only_on_seed_and_epoch(make_plan, fake_view):
    method = D2L(lid_samples=20)
    measured = []
    for seed, epoch in [(3, 0), (3, 0), (3, 1), (4, 0)]:
        plan = make_plan(seed=seed)
        view = fake_view(plan, {}, epochs=20, epoch=epoch, hidden=features_of_dimension(5, 1))
        measured.append(method.measure(view))
    assert measured[0] == measured[1]
    assert len(set(measured)) == 3


def test_an_epoch_that_cannot_be_measured_repeats_the_last(make_plan, fake_view):
    method, plan = D2L(), make_plan()
    view = fake_view(plan, method.state(plan, samples=40, classes=4, epochs=3), epochs=3)
    for view.epoch, hidden in enumerate([torch.ones(40, 3), features_of_dimension(3, 0), torch.ones(40, 3)]):
        view.hidden = hidden
        method.before_epoch(view)
    first, second, third = view.state["lids"].tolist()
    assert first == 1
    assert third == second > 1


def test_bad_settings(make_plan):
    for settings in ({"window": 0}, {"neighbours": 1}, {"init_epochs": -1}, {"lid_batch": 2}, {"lid_samples": 0}):
        with pytest.raises(InputError, match=next(iter(settings))):
            D2L(**settings)
    with pytest.raises(InputError, match="too few"):
        D2L().check(make_plan(train=np.arange(2)), 10)


TOO_SHORT = "d2l has no effect before epoch 11, so with {} epochs"


def clouds(n=60):
    y = np.arange(n) % 3
    return np.random.default_rng(0).normal(size=(n, 2)) + 4 * y[:, None], y


def test_too_few_epochs_give_a_warning(make_plan):
    for epochs in (1, 8, 10):
        with pytest.warns(MethodWarning, match=TOO_SHORT.format(epochs)) as warned:
            D2L().check(make_plan(), epochs)
        assert len(warned) == 1 and "\n" not in str(warned[0].message)
    with pytest.warns(MethodWarning, match="before epoch 3, so with 2 epochs"):
        D2L(init_epochs=1, window=1).check(make_plan(), 2)


def test_it_can_turn_in_the_first_epoch_without_a_warning(make_plan, fake_view):
    """Warnings are errors here: eleven epochs are enough, and in the eleventh it turns."""
    method, plan = D2L(neighbours=10), make_plan()
    method.check(plan, 11)
    view = fake_view(plan, method.state(plan, samples=40, classes=4, epochs=11), epochs=11)
    for view.epoch in range(11):
        assert view.state["turning_epoch"] == -1
        view.hidden = features_of_dimension(2 if view.epoch < 10 else 10, seed=0)
        method.before_epoch(view)
    assert view.state["turning_epoch"] == 10 and view.state["alpha"] < 1


def test_the_classifier_warns():
    x, y = clouds()
    with pytest.warns(MethodWarning, match=TOO_SHORT.format(8)):
        short = RobustClassifier(method="d2l", epochs=8, random_state=0).fit(x, y)
    plain = RobustClassifier(method="standard", epochs=8, random_state=0).fit(x, y)
    assert np.array_equal(short.predict_proba(x), plain.predict_proba(x))  # the warning is true


def test_the_engine_does_not_warn(make_plan):
    """A sweep trains few epochs on purpose; whoever asked for one training has checked it before."""
    store = VectorStore(np.zeros((40, 2), dtype=np.float32), torch.device("cpu"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(store, partial(MLP, 4, inputs=2, widths=(8,)), D2L(), [make_plan()], schedule=Schedule(1, ((0, 1e-3),)))
    with pytest.warns(MethodWarning):
        D2L().check(make_plan(), 1)  # and it is heard again


@pytest.mark.filterwarnings("default")
def test_the_command_line_warns_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with open("t.csv", "w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "label"], *([*row, "xyz"[c]] for row, c in zip(*clouds(), strict=True))])
    assert run("select t.csv --out run --iterations 1 --model logistic".split()) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert run("train run --method d2l --train-epochs 8".split()) == 0
    assert capsys.readouterr().err.count("note: " + TOO_SHORT.format(8)) == 1
    assert run("train run --method d2l --train-epochs 11 --out longer".split()) == 0
    assert "has no effect" not in capsys.readouterr().err
