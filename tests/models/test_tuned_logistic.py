"""The regularisation of logistic regression on embeddings follows the noise of the labels."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from labelsieve import metrics
from labelsieve.models.choose import named_classifier
from labelsieve.models.tuned_logistic import STRENGTHS, TYPICAL_STRENGTH, TunedLogistic

COLUMNS = 40


def blobs(noise: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return samples of four classes, their true labels, and labels of which a share is wrong."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 4, 600)
    x = rng.normal(size=(4, COLUMNS))[true] + 1.2 * rng.normal(size=(600, COLUMNS))
    return x, true, np.where(rng.random(600) < noise, (true + rng.integers(1, 4, 600)) % 4, true)


def test_wrong_labels_make_the_regularisation_stronger():
    clean, noisy = (TunedLogistic(random_state=0).fit(x, given).C for x, _, given in (blobs(0), blobs(0.5)))
    assert noisy < clean
    assert {round(c * COLUMNS, 6) for c in (clean, noisy)} <= set(STRENGTHS)


def test_it_ranks_wrong_labels_better_than_a_weak_regularisation():
    x, true, given = blobs(0.4)
    suspicion = {}
    for name, model in (("tuned", TunedLogistic(random_state=0)), ("weak", named_classifier("logistic"))):
        model.fit(x[:300], given[:300])
        suspicion[name] = 1 - model.predict_proba(x[300:])[np.arange(300), given[300:]]
    wrong = given[300:] != true[300:]
    assert metrics.auroc(wrong, suspicion["tuned"]) > metrics.auroc(wrong, suspicion["weak"])


def test_the_same_seed_gives_the_same_model_and_a_clone_is_tuned_again():
    x, _, given = blobs(0.5)
    first = TunedLogistic(random_state=3).fit(x, given)
    assert np.array_equal(first.coef_, TunedLogistic(random_state=3).fit(x, given).coef_)
    assert clone(first).fit(*blobs(0)[:2]).C > first.C


@pytest.mark.parametrize("labels", [[0, 1], [0, 1, 2], [0, 0, 0, 1]])
def test_very_few_samples_are_fitted(labels):
    model = TunedLogistic(random_state=0).fit(np.eye(len(labels), 5), labels)
    assert model.predict_proba(np.eye(1, 5)).shape == (1, len(set(labels)))
    assert round(model.C * 5, 6) in (TYPICAL_STRENGTH, *STRENGTHS)
