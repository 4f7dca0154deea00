"""The judgement after a robust training: it uses the suspicion of the selection and the new networks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from labelsieve import metrics, theory
from labelsieve.noise import corrupt
from labelsieve.selection.finalize import judge_again, weight_of_networks, with_learnt_labels
from labelsieve.selection.noise_model import fit_noise_model
from labelsieve.selection.posterior import calibrate, posterior_of
from labelsieve.types import CANDIDATE, SELECTED, NoiseEstimate, Scores, Selection, Trust

CLASSES, SAMPLES = 4, 1200
RNG = np.random.default_rng(0)
TRUE = RNG.integers(0, CLASSES, SAMPLES)
GIVEN = np.asarray(corrupt(TRUE, theory.symmetric(CLASSES, 0.3), np.random.default_rng(1)), dtype=np.int64)
WRONG = GIVEN != TRUE


def predictions(strength: float, seed: int, sharpness: float = 1.0) -> Scores:
    """Scores of a classifier whose log-probability of the true class is `strength` plus chance, times `sharpness`."""
    logits = np.random.default_rng(seed).normal(size=(SAMPLES, CLASSES))
    logits[np.arange(SAMPLES), TRUE] += strength
    p = np.exp(sharpness * logits)
    p /= p.sum(axis=1, keepdims=True)
    top = np.argsort(-p, axis=1)
    of_given, probs = p[np.arange(SAMPLES), GIVEN], np.take_along_axis(p, top, axis=1)
    return Scores(top[:, 0], of_given, probs[:, 0], -np.log(of_given), top.astype(np.int32), probs)


def suspicion_of(scores: Scores):
    posterior = posterior_of(scores, GIVEN, fit_noise_model(scores, GIVEN, CLASSES))
    return calibrate(posterior.order, posterior.wrong)


def first_judgement(scores: Scores) -> Selection:
    """The judgement as labels.csv stores it: without the top classes."""
    verdict = np.where(scores.predicted == GIVEN, SELECTED, CANDIDATE).astype(np.int8)
    iteration, suspicion = np.ones(SAMPLES, dtype=np.int16), suspicion_of(scores)
    return Selection(
        verdict, iteration, **scores.numbers(), suspicion=suspicion, noise_ratio=0.3,
        transition_matrix=np.eye(CLASSES), expected_precision=1.0, expected_recall=1.0,
    )  # fmt: skip


@pytest.mark.parametrize(("first", "second"), [(2.0, 2.0), (1.0, 3.5)])
def test_networks_that_are_as_good_as_the_selection_rank_the_labels_better(first, second):
    one, two = predictions(first, 2), predictions(second, 3)
    judged = judge_again(two, GIVEN, CLASSES, first_judgement(one))
    assert metrics.auroc(WRONG, judged.suspicion) > metrics.auroc(WRONG, suspicion_of(one)) + 0.02
    assert ((judged.predicted == GIVEN) == (judged.verdict == SELECTED)).all()


def test_networks_that_are_too_sure_do_not_outweigh_a_better_selection():
    one, two = predictions(3.0, 2), predictions(2.0, 3, sharpness=2.0)
    judged, before = judge_again(two, GIVEN, CLASSES, first_judgement(one)), suspicion_of(one)
    assert metrics.auroc(WRONG, 1 - two.probability) < metrics.auroc(WRONG, before) - 0.02
    assert metrics.auroc(WRONG, judged.suspicion) >= metrics.auroc(WRONG, before)


def test_the_less_a_selection_knows_the_more_the_networks_count():
    rng, networks = np.random.default_rng(0), 1 - predictions(2.5, 3).probability
    unsure = np.clip(0.3 + rng.normal(0, 0.05, SAMPLES), 0.1, 0.5)
    sure = np.where(rng.random(SAMPLES) < 0.3, 0.99, 0.01)  # both are chance, and the networks know most labels
    by_unsure, by_sure = (metrics.auroc(WRONG, with_learnt_labels(first, networks)) for first in (unsure, sure))
    assert by_unsure > metrics.auroc(WRONG, networks) - 0.01 and by_sure < by_unsure - 0.02


def test_networks_that_have_memorised_wrong_labels_count_less():
    suspicion, memorised = suspicion_of(predictions(2.5, 2)), 1 - predictions(4.0, 3).probability
    shares, weights, aurocs = (0.0, 0.2, 0.5), [], []
    before = metrics.auroc(WRONG, suspicion)
    for share in shares:
        networks = np.where(WRONG & (np.random.default_rng(4).random(SAMPLES) < share), 0.001, memorised)
        weights.append(weight_of_networks(suspicion, networks))
        aurocs.append(metrics.auroc(WRONG, with_learnt_labels(suspicion, networks)))
    assert all(more > less for more, less in pairwise(weights)) and weights[-1] < 0.1
    assert aurocs[0] > before and aurocs[-1] > before - 0.01
    assert weight_of_networks(np.zeros(3), np.array([0.1, 0.2, 0.9])) < 1  # nothing is expected to be wrong


def test_networks_that_have_learnt_the_labels_do_not_change_how_many_are_wrong():
    one, two = predictions(2.0, 2), predictions(2.0, 3)
    before = replace(first_judgement(one), history=({"estimate": NoiseEstimate(0.3, 0.2, 0.4, Trust.FAIR).record()},))
    memorised = np.where(WRONG & (np.arange(SAMPLES) % 2 == 0), 0.99, two.probability)  # half of the wrong labels
    learnt = replace(two, probability=memorised, loss=-np.log(memorised))
    judged = judge_again(learnt, GIVEN, CLASSES, before)
    assert judged.noise is not None and judged.noise_ratio == judged.noise.ratio == 0.3
    assert judged.suspicion.mean() == pytest.approx(before.suspicion.mean())
    assert (judged.transition_matrix == np.eye(CLASSES)).all()
    # No memorised label leaves the suspects.
    assert (judged.verdict == before.verdict).all() and (judged.predicted == one.predicted).all()
    some = np.where(np.arange(SAMPLES) < 5, np.nan, before.suspicion)  # without a first suspicion: from the networks
    partly = judge_again(two, GIVEN, CLASSES, replace(before, suspicion=some))
    assert np.isfinite(partly.suspicion).all() and partly.suspicion[5:].mean() == pytest.approx(some[5:].mean())
