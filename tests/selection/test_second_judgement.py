"""The judgement after a robust training: it uses the selection's predictions and those of the new networks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from labelsieve import metrics, theory
from labelsieve.noise import corrupt
from labelsieve.selection.finalize import FirstJudgement, combine_scores, judge_again
from labelsieve.selection.noise_model import fit_noise_model
from labelsieve.selection.posterior import calibrate, posterior_of
from labelsieve.types import CANDIDATE, REMOVED, SELECTED, NoiseEstimate, Scores, Trust, WhyUnknown

CLASSES, SAMPLES = 4, 1200
RNG = np.random.default_rng(0)
TRUE = RNG.integers(0, CLASSES, SAMPLES)
GIVEN = np.asarray(corrupt(TRUE, theory.symmetric(CLASSES, 0.3), np.random.default_rng(1)), dtype=np.int64)
WRONG = GIVEN != TRUE


def predictions(strength: float, seed: int) -> Scores:
    """Scores of a classifier whose log-probability of the true class is `strength` plus chance."""
    logits = np.random.default_rng(seed).normal(size=(SAMPLES, CLASSES))
    logits[np.arange(SAMPLES), TRUE] += strength
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    top = np.argsort(-p, axis=1)
    of_given, probs = p[np.arange(SAMPLES), GIVEN], np.take_along_axis(p, top, axis=1)
    return Scores(top[:, 0], of_given, probs[:, 0], -np.log(of_given), top.astype(np.int32), probs)


def suspicion_of(scores: Scores):
    posterior = posterior_of(scores, GIVEN, fit_noise_model(scores, GIVEN, CLASSES))
    return calibrate(posterior.order, posterior.wrong)


def first_judgement(scores: Scores) -> FirstJudgement:
    """The judgement as labels.csv stores it: without the top classes."""
    verdict = np.where(scores.predicted == GIVEN, SELECTED, CANDIDATE).astype(np.int8)
    stored = replace(scores, top_classes=None, top_probs=None)
    return FirstJudgement(verdict, np.ones(SAMPLES, dtype=np.int16), suspicion_of(scores), stored)


def test_two_judges_find_more_wrong_labels_than_each_of_them():
    one, two = predictions(2.0, 2), predictions(2.0, 3)
    judged = judge_again(two, GIVEN, CLASSES, first_judgement(one))
    found = metrics.auroc(WRONG, judged.suspicion)
    assert found > max(metrics.auroc(WRONG, suspicion_of(each)) for each in (one, two)) + 0.02
    assert (judged.predicted == TRUE).mean() > max((each.predicted == TRUE).mean() for each in (one, two)) + 0.02
    assert ((judged.predicted == GIVEN) == (judged.verdict == SELECTED)).all()


@pytest.mark.parametrize(("first", "second"), [(1.0, 3.5), (3.5, 1.0)])
def test_a_weak_judge_does_little_harm(first, second):
    one, two = predictions(first, 4), predictions(second, 5)
    judged = judge_again(two, GIVEN, CLASSES, first_judgement(one))
    best = max(metrics.auroc(WRONG, suspicion_of(each)) for each in (one, two))
    assert metrics.auroc(WRONG, judged.suspicion) > best - 0.01


def test_only_the_networks_judge_samples_without_a_stored_prediction():
    one, two = predictions(2.0, 2), predictions(2.0, 3)
    before = first_judgement(one)
    unknown = replace(before.scores, confidence=np.full(SAMPLES, np.nan))  # labels.csv of an earlier version
    judged = judge_again(two, GIVEN, CLASSES, replace(before, scores=unknown))
    np.testing.assert_array_equal(judged.suspicion, suspicion_of(two))
    confidence = np.where(np.arange(SAMPLES) % 2, np.nan, one.confidence)
    mixed = combine_scores(replace(before.scores, confidence=confidence), two, GIVEN, CLASSES)
    np.testing.assert_array_equal(mixed.predicted[1::2], two.predicted[1::2])
    assert (mixed.predicted[::2] != two.predicted[::2]).any()


def test_the_interval_of_the_selection_limits_the_noise_ratio():
    scores, before = predictions(2.0, 3), first_judgement(predictions(2.0, 2))
    free = judge_again(scores, GIVEN, CLASSES, before)
    low, high = free.noise_ratio + 0.01, free.noise_ratio + 0.015  # these predictions can explain as much
    earlier = NoiseEstimate(low, low, high, Trust.FAIR)
    limited = judge_again(scores, GIVEN, CLASSES, replace(before, history=({"estimate": earlier.record()},)))
    assert low - 1e-6 <= limited.noise_ratio <= high + 1e-6
    assert limited.suspicion.mean() > free.suspicion.mean()


def test_noise_that_cannot_be_estimated_stays_unknown_and_removed_labels_stay_removed():
    scores, before = predictions(2.0, 3), first_judgement(predictions(2.0, 2))
    verdict = np.where(before.verdict == CANDIDATE, REMOVED, before.verdict).astype(np.int8)
    judged = judge_again(
        scores, GIVEN, CLASSES, replace(before, verdict=verdict, why_unknown=WhyUnknown.OUTCOME, history=({},))
    )
    assert judged.noise is not None and judged.noise.why_unknown is WhyUnknown.OUTCOME and not judged.noise_known
    assert (judged.verdict[(verdict == REMOVED) & (judged.predicted != GIVEN)] == REMOVED).all()


def test_networks_that_have_learnt_the_labels_do_not_change_how_many_are_wrong():
    one, two = predictions(2.0, 2), predictions(2.0, 3)
    before = replace(first_judgement(one), history=({"estimate": NoiseEstimate(0.3, 0.2, 0.4, Trust.FAIR).record()},))
    memorised = np.where(WRONG & (np.arange(SAMPLES) % 2 == 0), 0.99, two.probability)  # half of the wrong labels
    learnt = replace(two, probability=memorised, loss=-np.log(memorised))
    judged = judge_again(learnt, GIVEN, CLASSES, replace(before, transition=np.eye(CLASSES)))
    assert judged.noise is not None and judged.noise_ratio == judged.noise.ratio == 0.3
    assert judged.suspicion.mean() == pytest.approx(before.suspicion.mean())
    assert (judged.transition_matrix == np.eye(CLASSES)).all()
    # No memorised label leaves the suspects.
    assert (judged.verdict == before.verdict).all() and (judged.predicted == one.predicted).all()
    unknown = replace(before.scores, confidence=np.full(SAMPLES, np.nan))  # labels.csv of an earlier version
    older = judge_again(learnt, GIVEN, CLASSES, replace(before, scores=unknown, transition=np.eye(CLASSES)))
    np.testing.assert_array_equal(older.suspicion, judged.suspicion)
    assert (older.predicted == one.predicted).all()
    some = np.where(np.arange(SAMPLES) < 5, np.nan, before.suspicion)  # without a first suspicion: from the networks
    partly = judge_again(two, GIVEN, CLASSES, replace(before, suspicion=some, transition=np.eye(CLASSES)))
    assert np.isfinite(partly.suspicion).all() and partly.suspicion[5:].mean() == pytest.approx(some[5:].mean())
    better = judge_again(two, GIVEN, CLASSES, replace(before, transition=np.eye(CLASSES)))
    assert metrics.auroc(WRONG, better.suspicion) > metrics.auroc(WRONG, before.suspicion) + 0.02
