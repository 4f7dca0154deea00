"""Degenerate data: few samples, many classes, one class, nothing to learn. The promises hold, and doubts are said."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import trust_chaos as chaos
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from trust_models import OneAnswer

from labelsieve import INCV, NCV, metrics, noise, theory
from labelsieve.cli.app import run
from labelsieve.report.facts import Facts
from labelsieve.runfolder import RunFolder
from labelsieve.selection.incv import drive, incv_steps
from labelsieve.selection.settings import INCVSettings
from labelsieve.types import REMOVED, SELECTED, NoiseEstimate, Scores, WhyUnknown


def looks_random(found) -> bool:
    """Whether a selection says that the labels cannot be distinguished from random ones."""
    return NoiseEstimate.from_record(found.history_[0]["estimate"]).why_unknown is WhyUnknown.RANDOM


def promises(found) -> None:
    """What every selection keeps, whatever the data."""
    masks = np.stack([found.selected_, found.candidate_, found.removed_])
    assert (masks.sum(axis=0) == 1).all(), "disjoint, together everything"
    c = len(found.classes_)
    assert found.transition_matrix_.shape == (c, c)
    np.testing.assert_allclose(found.transition_matrix_.sum(axis=1), 1, atol=1e-9)
    assert (found.transition_matrix_ >= 0).all()
    assert np.isnan(found.noise_ratio_) or 0 <= found.noise_ratio_ <= 1
    assert ((found.suspicion_ >= 0) & (found.suspicion_ <= 1)).all()
    assert ((found.probability_ >= 0) & (found.probability_ <= 1) | np.isnan(found.probability_)).all()
    assert set(np.unique(found.iteration_)) <= set(
        range(found.n_iterations + 1 if hasattr(found, "n_iterations") else 2)
    )
    assert ((found.iteration_ == 0) == found.candidate_).all()


def fit(kind, x, y, estimator=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes of one sample are warned of; that has its own tests
        found = kind(estimator or KNeighborsClassifier(1), random_state=0, **options).fit(x, y)
    promises(found)
    return found


@pytest.mark.parametrize("kind", [INCV, NCV])
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_very_few_samples(kind, n: int) -> None:
    fit(kind, np.arange(2.0 * n).reshape(n, 2), np.arange(n) % 2)


@pytest.mark.parametrize("kind", [INCV, NCV])
def test_every_sample_a_class_of_its_own(kind) -> None:
    fit(kind, np.arange(20.0)[:, None], np.arange(20))


@pytest.mark.filterwarnings("ignore:The number of unique classes")
@pytest.mark.parametrize("c", [2_500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_thousands_of_classes(c: int, tmp_path: Path, monkeypatch, capsys) -> None:
    y = np.repeat(np.arange(c), 2)
    rng = np.random.default_rng(0)
    x = np.stack([y + rng.normal(0, 0.01, len(y)), np.zeros(len(y))], axis=1)
    y[rng.choice(len(y), c // 50, replace=False)] = rng.integers(0, c, c // 50)
    codes = np.searchsorted(np.unique(y), y)
    found = fit(NCV, x, codes)
    assert found.selected_.mean() > 0.4
    monkeypatch.chdir(tmp_path)
    np.savez("many.npz", x=x, y=y)
    assert run("select many.npz --method ncv --out run --model nearest --json".split()) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["transition_matrix"] is None and len(summary["transition_entries"]) >= len(summary["classes"])
    assert Path("run/summary.json").stat().st_size < 1000 * c  # entries that say something, not c x c of them
    assert run(["report", "run"]) == 0


def test_one_class_holds_nearly_everything() -> None:
    rng = np.random.default_rng(0)
    y = np.zeros(4000, dtype=int)
    y[:4] = 1
    x = rng.normal(size=(4000, 3)) + 9 * y[:, None]
    found = fit(INCV, x, y)
    assert found.selected_[y == 0].mean() > 0.9 and found.noise_ratio_ < 0.05


def test_all_labels_wrong() -> None:
    """Every 0 is called 1 and every 1 is called 0: no method can see that, and the result does not claim to."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 2, 300)
    found = fit(INCV, rng.normal(size=(300, 2)) + 5 * true[:, None], 1 - true, LogisticRegression())
    assert found.selected_.mean() > 0.9


@pytest.mark.parametrize("estimator", [KNeighborsClassifier(1), LogisticRegression(), None])
def test_features_that_are_constant(estimator) -> None:
    y = np.random.default_rng(0).integers(0, 3, 120)
    found = fit(INCV, np.zeros((120, 2)), y, estimator)
    assert looks_random(found)


def test_a_classifier_that_knows_one_answer() -> None:
    y = np.random.default_rng(0).integers(0, 3, 150)
    found = fit(INCV, np.random.default_rng(1).normal(size=(150, 2)), y, OneAnswer())
    assert looks_random(found)
    assert not found.selected_[y != 0].any()  # what it never says is never confirmed


@pytest.mark.parametrize("c", [2, 5])
def test_labels_that_do_not_depend_on_the_samples(c: int, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("random.npz", x=rng.normal(size=(400, 4)), y=rng.integers(0, c, 400))
    assert run("select random.npz --out run --model logistic --json".split()) == 0
    assert Facts.read(RunFolder("run")).why_unknown is WhyUnknown.RANDOM
    assert run("report run".split()) == 0
    assert "random" in Path("run/report.html").read_text().partition("</h1>")[0]


def test_a_network_that_memorises_random_labels_is_not_believed() -> None:
    """What was selected by a network that knows a half's labels repeats them: only the first look is held out."""
    missed = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(600, 4)), rng.integers(0, 5, 600)
        found = fit(INCV, x, y, KNeighborsClassifier(1), n_iterations=1)
        missed += not looks_random(found)
    assert missed <= 1


def test_a_loss_that_becomes_nan_is_said_and_the_checkpoint_before_it_kept(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    chaos.table(Path("t.csv"))
    line = "run t.csv --out run --model nearest --iterations 1 --train-epochs 8 --network trust_models:diverging"
    child = chaos.fork(f"{line} --method standard --batch-size 32 --device cpu")
    code = child.wait()
    assert code == 1 and "Traceback" not in child.stderr, child.stderr
    assert "the loss became nan" in child.stderr.splitlines()[-1]
    record = json.loads(Path("run/run.json").read_text())
    assert record["stages"]["train"]["state"] == "failed" and "nan" in record["stages"]["train"]["reason"]
    assert not Path("run/model.safetensors").exists()
    assert list(Path("run/checkpoints/train").glob("*.safetensors"))
    chaos.check(Path("run"))


class AnyAnswer:
    """A trainer that may say anything at all, within the form of an answer."""

    def __init__(self, classes: int, seed: int, sure: bool) -> None:
        self.classes, self.rng, self.sure = classes, np.random.default_rng(seed), sure

    def train_and_score(self, jobs):
        answers = []
        for job in jobs:
            n = len(job.score)
            probability = self.rng.random(n).round(1) if not self.sure else np.zeros(n)
            predicted = self.rng.integers(0, self.classes, n)
            loss = -np.log(np.clip(probability, 1e-12, 1))
            answers.append(Scores(predicted, probability, np.maximum(probability, self.rng.random(n)), loss))
        return answers


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_whatever_the_trainings_say_the_selection_keeps_its_promises(data) -> None:
    c = data.draw(st.integers(2, 6))
    y = np.array(data.draw(st.lists(st.integers(0, c - 1), min_size=2, max_size=60)))
    if len(np.unique(y)) < 2:
        y[0] = (y[0] + 1) % c
    protocol = data.draw(st.sampled_from(["auto", "paper"]))
    chosen = INCVSettings(
        n_iterations=data.draw(st.integers(1, 4)),
        remove_ratio=data.draw(st.sampled_from(["auto", 0.0, 0.5, 2.0])),
        protocol=protocol,
        pattern=data.draw(st.sampled_from(["symmetric", "pair"])) if protocol == "paper" else "auto",
    )
    trainer = AnyAnswer(c, data.draw(st.integers(0, 2**20)), data.draw(st.booleans()))
    found = drive(incv_steps(y, c, settings=chosen, seed=0), trainer)
    assert len(found.verdict) == len(y)
    assert ((found.suspicion >= 0) & (found.suspicion <= 1)).all()
    assert np.isnan(found.noise_ratio) or 0 <= found.noise_ratio <= 1
    np.testing.assert_allclose(found.transition_matrix.sum(axis=1), 1, atol=1e-9)
    assert ((found.iteration > 0) == np.isin(found.verdict, (SELECTED, REMOVED))).all()
    assert (found.predicted[found.selected] == y[found.selected]).all()
    for value in (found.expected_precision, found.expected_recall):
        assert np.isnan(value) or 0 <= value <= 1 + 1e-9


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 8), st.floats(0, 1), st.integers(0, 2**30), st.sampled_from(["symmetric", "pair"]))
def test_theory_noise_and_metrics_agree_in_shape_and_bounds(c: int, eps: float, seed: int, pattern: str) -> None:
    matrix = getattr(theory, pattern)(c, eps)
    prior = np.random.default_rng(seed).dirichlet(np.ones(c))
    for value in (theory.test_accuracy(matrix, prior), theory.label_precision(matrix, prior)):
        assert 0 <= value <= 1 + 1e-12
    labels = np.random.default_rng(seed).integers(0, c, 50)
    noisy = noise.corrupt(labels, matrix, np.random.default_rng(seed), classes=range(c))
    assert noisy.shape == labels.shape and set(noisy) <= set(range(c))
    assert 0 <= metrics.noise_ratio(noisy, labels) <= 1
