"""Keep the classes balanced when only a part of the labels is trained on.

With strong noise, classes that a classifier has hardly learnt are seldom predicted. Their labels then look wrong, few
of them are trained on, and the next classifier predicts the classes even less. On CIFAR-10 with 80 % wrong labels, 47
labels of birds were selected where 980 are right, and a network that started from these never predicted a bird
(docs/reproduction.md). The noise model knows better: it says how many labels of each class are right.
"""

from __future__ import annotations

import numpy as np

from labelsieve.types import BoolArray, FloatArray, IntArray

# Steps of expectation-maximisation, from the shares of the given labels. With 100, a matrix that is not exact can leave
# a class nearly without samples: in a trial 2 right labels of a rare class were expected where 248 were right.
PRIOR_STEPS = 5
# The number of labels of a class is at least the number of right ones divided by this, and at most times this: the
# noise model is not exact. In a trial with 1, digits with 50 % wrong labels were predicted less well (94.7 instead of
# 96.2 % right).
TOLERANCE = 1.25


def class_prior(labels: IntArray, transition: FloatArray) -> FloatArray:
    """The shares of the true classes, moved from the shares of the given labels towards those that explain them."""
    shares = np.bincount(labels, minlength=len(transition)) / len(labels)
    prior = np.maximum(shares, 1e-6)
    for _ in range(PRIOR_STEPS):
        prior = prior * (transition @ (shares / np.maximum(prior @ transition, 1e-12)))
    prior = np.maximum(prior, 1e-6)
    return np.asarray(prior / prior.sum())


def balanced(chosen: BoolArray, labels: IntArray, suspicion: FloatArray, transition: FloatArray) -> BoolArray:
    """The chosen labels, with about as many of each class as are right by the transition matrix.

    The most suspicious labels of a class with too many are left out; a class with too few gets its least suspicious
    other labels.
    """
    right = len(labels) * class_prior(labels, transition) * np.diagonal(transition)
    number = np.bincount(labels[chosen], minlength=len(transition))
    wanted = np.clip(number, right / TOLERANCE, right * TOLERANCE).round().astype(np.int64)
    order = np.lexsort((suspicion, ~chosen, labels))  # by class; the chosen labels first, the least suspicious first
    first = np.searchsorted(labels[order], np.arange(len(transition)))
    found = np.zeros(len(labels), dtype=np.bool_)
    found[order] = np.arange(len(labels)) - first[labels[order]] < wanted[labels[order]]
    return found
