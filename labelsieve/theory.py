"""Closed-form theory of networks that are trained on noisy labels.

``T`` is the noise transition matrix: ``T[i, j] = P(given label j | true class i)``. Its rows sum to 1. The network is
trained on one half of the data and predicts the other half. A sample is selected if its predicted label equals its
given label. ``prior`` contains the proportion of each true class; the default is uniform::

    Claim 1         P(predicted j | true i) = T_ij
    Proposition 1   P(predicted = given | true i) = sum_j T_ij^2          (test accuracy)
    Proposition 2   LP_i = T_ii^2 / sum_j T_ij^2,   LR_i = T_ii           (label precision and recall)
    All classes     LP = sum_i p_i T_ii^2 / sum_i p_i sum_j T_ij^2
                    LR = sum_i p_i T_ii^2 / sum_i p_i T_ii

The formulas are from Chen, Liao, Chen and Zhang, "Understanding and Utilizing Deep Neural Networks Trained with Noisy
Labels" (ICML 2019). This module depends on numpy only.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelsieve.checks import check_integer, check_range
from labelsieve.errors import InputError

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Pattern = Literal["symmetric", "symmetric-inclusive", "pair", "cifar10-map"]

PATTERNS: tuple[Pattern, ...] = ("symmetric", "symmetric-inclusive", "pair", "cifar10-map")
# truck -> automobile, bird -> airplane, deer -> horse, cat <-> dog: many later papers call this noise "asymmetric".
CIFAR10_FLIPS = {9: 1, 2: 0, 4: 7, 3: 5, 5: 3}
# Allows matrices in float32 or written with six digits.
ROW_SUM_TOLERANCE = 1e-5


class OutOfReachWarning(UserWarning):
    """No noise ratio of the pattern gives this accuracy. The nearest ratio is returned."""


# ---------------------------------------------------------------- transition matrices


def symmetric(c: int, eps: float) -> Matrix:
    """Return the transition matrix of symmetric noise.

    A label is wrong with probability `eps`. All other classes are equally likely.

    Parameters
    ----------
    c : int
        Number of classes, at least 2.
    eps : float
        Noise ratio: probability of a wrong label, between 0 and 1.

    Returns
    -------
    T : ndarray of shape (c, c)
        Transition matrix.

    Examples
    --------
    >>> from labelsieve import theory
    >>> theory.symmetric(3, 0.4)
    array([[0.6, 0.2, 0.2],
           [0.2, 0.6, 0.2],
           [0.2, 0.2, 0.6]])
    """
    check_integer("classes", c, least=2)
    check_range("eps", eps, 0, 1)
    return np.full((c, c), eps / (c - 1)) + np.eye(c) * (1 - eps - eps / (c - 1))


def symmetric_inclusive(c: int, eps: float) -> Matrix:
    """Return the transition matrix of symmetric noise that can redraw the true class.

    With probability `eps` the label is drawn again from all classes. The noise ratio is ``eps * (c - 1) / c``.

    Parameters
    ----------
    c : int
        Number of classes, at least 2.
    eps : float
        Probability that a label is redrawn, between 0 and 1.

    Returns
    -------
    T : ndarray of shape (c, c)
        Transition matrix.

    Examples
    --------
    >>> from labelsieve import theory
    >>> theory.symmetric_inclusive(2, 0.4)
    array([[0.8, 0.2],
           [0.2, 0.8]])
    """
    check_integer("classes", c, least=2)
    check_range("eps", eps, 0, 1)
    return np.full((c, c), eps / c) + np.eye(c) * (1 - eps)


def pair(c: int, eps: float) -> Matrix:
    """Return the transition matrix of pair noise, the "asymmetric" noise of the paper.

    Class ``i`` becomes class ``(i + 1) mod c`` with probability `eps`.

    Parameters
    ----------
    c : int
        Number of classes, at least 2.
    eps : float
        Noise ratio: probability of a wrong label, between 0 and 1.

    Returns
    -------
    T : ndarray of shape (c, c)
        Transition matrix.

    Examples
    --------
    >>> from labelsieve import theory
    >>> theory.pair(3, 0.4)
    array([[0.6, 0.4, 0. ],
           [0. , 0.6, 0.4],
           [0.4, 0. , 0.6]])
    """
    check_integer("classes", c, least=2)
    check_range("eps", eps, 0, 1)
    return np.eye(c) * (1 - eps) + np.roll(np.eye(c), 1, axis=1) * eps


def cifar10_map(eps: float) -> Matrix:
    """Return the transition matrix of the five common CIFAR-10 flips.

    Parameters
    ----------
    eps : float
        Probability of the flip in each of the five classes, between 0 and 1.

    Returns
    -------
    T : ndarray of shape (10, 10)
        Transition matrix. The other five classes have no noise.

    Examples
    --------
    >>> from labelsieve import theory
    >>> theory.cifar10_map(0.4)[9, [1, 9]]  # truck becomes automobile
    array([0.4, 0.6])
    """
    check_range("eps", eps, 0, 1)
    t = np.eye(10)
    for source, target in CIFAR10_FLIPS.items():
        t[source, source], t[source, target] = 1 - eps, eps
    return t


def matrix(pattern: str, c: int, eps: float) -> Matrix:
    """Return the transition matrix of a noise pattern.

    Parameters
    ----------
    pattern : {"symmetric", "symmetric-inclusive", "pair", "cifar10-map"}
        Noise pattern.
    c : int
        Number of classes, at least 2.
    eps : float
        Noise level, between 0 and 1.

    Returns
    -------
    T : ndarray of shape (c, c)
        Transition matrix.

    Examples
    --------
    >>> from labelsieve import theory
    >>> theory.matrix("pair", 2, 0.1)
    array([[0.9, 0.1],
           [0.1, 0.9]])
    """
    if pattern not in PATTERNS:
        raise InputError(f"pattern: {pattern!r} is not a noise pattern; choose one of {', '.join(PATTERNS)}")
    if pattern == "cifar10-map":
        if c != 10:
            raise InputError(f"pattern: cifar10-map is for 10 classes, not {c}; use symmetric, pair or a matrix file")
        return cifar10_map(eps)
    return {"symmetric": symmetric, "symmetric-inclusive": symmetric_inclusive, "pair": pair}[pattern](c, eps)


def check_transition_matrix(T: ArrayLike) -> Matrix:
    """Validate a transition matrix.

    Parameters
    ----------
    T : array-like of shape (c, c)
        Matrix to check.

    Returns
    -------
    T : ndarray of shape (c, c)
        Copy of the matrix as float64.

    Raises
    ------
    InputError
        The matrix is not square, has negative or non-finite values, or a row does not sum to 1.

    Examples
    --------
    >>> from labelsieve import theory
    >>> theory.check_transition_matrix([[0.9, 0.2], [0.1, 0.9]])
    Traceback (most recent call last):
        ...
    labelsieve.errors.InputError: T: row 0 sums to 1.1, not 1
    """
    try:
        t = np.asarray(T).astype(np.float64, casting="same_kind")  # the text "1" is not a number
    except (TypeError, ValueError):
        raise InputError("T: expected a square matrix of numbers, got ragged rows or text") from None
    if t.ndim != 2 or t.shape[0] != t.shape[1]:
        raise InputError(f"T: expected a square matrix, got shape {t.shape}")
    if len(t) < 2:
        raise InputError("T: needs at least 2 classes")
    if not np.isfinite(t).all():
        row = int(np.flatnonzero(~np.isfinite(t).all(axis=1))[0])
        raise InputError(f"T: row {row} holds a value that is NaN or infinite")
    if (t < 0).any():
        row, column = (int(k) for k in np.argwhere(t < 0)[0])
        raise InputError(f"T: entry [{row}, {column}] is {t[row, column]:g}; probabilities cannot be negative")
    sums = t.sum(axis=1)
    wrong = np.flatnonzero(np.abs(sums - 1) > ROW_SUM_TOLERANCE)
    if len(wrong):
        raise InputError(f"T: row {wrong[0]} sums to {sums[wrong[0]]:.6g}, not 1")
    return t


# ---------------------------------------------------------------- Propositions 1 and 2


def class_test_accuracy(T: ArrayLike) -> Vector:
    """Return the test accuracy of each class (Proposition 1).

    Parameters
    ----------
    T : array-like of shape (c, c)
        Transition matrix. Each row sums to 1.

    Returns
    -------
    test_accuracy : ndarray of shape (c,)
        ``sum_j T_ij^2`` for each class.

    Examples
    --------
    >>> from labelsieve import theory
    >>> theory.class_test_accuracy(theory.symmetric(3, 0.4))
    array([0.44, 0.44, 0.44])
    """
    t = check_transition_matrix(T)
    return np.asarray((t**2).sum(axis=1))


def class_label_precision(T: ArrayLike) -> Vector:
    """Return the label precision of each true class (Proposition 2).

    Parameters
    ----------
    T : array-like of shape (c, c)
        Transition matrix. Each row sums to 1.

    Returns
    -------
    label_precision : ndarray of shape (c,)
        ``T_ii^2 / sum_j T_ij^2`` for each class.

    Examples
    --------
    >>> from labelsieve import theory
    >>> theory.class_label_precision(theory.symmetric(3, 0.4))
    array([0.81818182, 0.81818182, 0.81818182])
    """
    return np.asarray(class_label_recall(T) ** 2 / class_test_accuracy(T))


def class_label_recall(T: ArrayLike) -> Vector:
    """Return the label recall of each true class (Proposition 2).

    Parameters
    ----------
    T : array-like of shape (c, c)
        Transition matrix. Each row sums to 1.

    Returns
    -------
    label_recall : ndarray of shape (c,)
        ``T_ii`` for each class.

    Examples
    --------
    >>> from labelsieve import theory
    >>> theory.class_label_recall(theory.symmetric(3, 0.4))
    array([0.6, 0.6, 0.6])
    """
    return np.diagonal(check_transition_matrix(T)).copy()


def test_accuracy(T: ArrayLike, prior: ArrayLike | None = None) -> float:
    """Return the test accuracy on noisy labels: the proportion of samples that is selected.

    Parameters
    ----------
    T : array-like of shape (c, c)
        Transition matrix. Each row sums to 1.
    prior : array-like of shape (c,), default=None
        Proportion of each true class. The default is uniform.

    Returns
    -------
    accuracy : float
        ``sum_i p_i sum_j T_ij^2``.

    Examples
    --------
    >>> from labelsieve import theory
    >>> round(theory.test_accuracy(theory.symmetric(10, 0.4)), 3)
    0.378
    """
    accuracy = class_test_accuracy(T)
    return min(1.0, float(_check_prior(prior, len(accuracy)) @ accuracy))  # a rounding error can exceed 1


# Prevents pytest from collecting the function as a test.
setattr(test_accuracy, "__test__", False)  # noqa: B010


def label_precision(T: ArrayLike, prior: ArrayLike | None = None) -> float:
    """Return the label precision: the proportion of right labels among the selected samples.

    Parameters
    ----------
    T : array-like of shape (c, c)
        Transition matrix. Each row sums to 1.
    prior : array-like of shape (c,), default=None
        Proportion of each true class. The default is uniform.

    Returns
    -------
    precision : float
        ``sum_i p_i T_ii^2 / sum_i p_i sum_j T_ij^2``.

    Examples
    --------
    >>> from labelsieve import theory
    >>> round(theory.label_precision(theory.symmetric(10, 0.4)), 3)
    0.953
    """
    kept = class_label_recall(T)
    p = _check_prior(prior, len(kept))
    return float(p @ kept**2 / (p @ class_test_accuracy(T)))


def label_recall(T: ArrayLike, prior: ArrayLike | None = None) -> float:
    """Return the label recall: the proportion of the right labels that is selected.

    Parameters
    ----------
    T : array-like of shape (c, c)
        Transition matrix. Each row sums to 1.
    prior : array-like of shape (c,), default=None
        Proportion of each true class. The default is uniform.

    Returns
    -------
    recall : float
        ``sum_i p_i T_ii^2 / sum_i p_i T_ii``, or 0 if no label is right.

    Examples
    --------
    >>> from labelsieve import theory
    >>> round(theory.label_recall(theory.symmetric(10, 0.4)), 3)
    0.6
    """
    kept = class_label_recall(T)
    p = _check_prior(prior, len(kept))
    clean = float(p @ kept)
    return float(p @ kept**2) / clean if clean > 0 else 0.0


# ---------------------------------------------------------------- bounds and gain of selection


def label_precision_bounds(t_ii: float, c: int) -> tuple[float, float]:
    """Return the lowest and highest label precision of a class (Corollary 2.1).

    Parameters
    ----------
    t_ii : float
        Probability that a label of the class is right.
    c : int
        Number of classes, at least 2.

    Returns
    -------
    low, high : float
        Pair noise attains `low`, because all wrong labels agree. Symmetric noise attains `high`.

    Examples
    --------
    >>> from labelsieve import theory
    >>> [round(bound, 3) for bound in theory.label_precision_bounds(0.6, 10)]
    [0.692, 0.953]
    """
    check_integer("classes", c, least=2)
    check_range("t_ii", t_ii, 0, 1)
    if t_ii == 0:
        return 0.0, 0.0
    right, wrong = t_ii**2, (1 - t_ii) ** 2
    return right / (right + wrong), right / (right + wrong / (c - 1))


class Gain(NamedTuple):
    """Noise ratio before and after selection.

    Attributes
    ----------
    cleaner : bool
        Whether the selected samples have a lower noise ratio than all samples.
    source : float
        Noise ratio of all samples.
    selected : float
        Noise ratio of the selected samples.
    by : float
        The difference ``source - selected``.
    guaranteed : bool
        Whether ``T_ii`` is the largest value of its row in every class.
    """

    cleaner: bool
    source: float
    selected: float
    by: float
    guaranteed: bool


def selection_gain(T: ArrayLike, prior: ArrayLike | None = None) -> Gain:
    """Return whether selection lowers the noise ratio, and by how much (Supplement D).

    If ``T_ii`` is the largest value of row ``i`` for every class, then ``sum_j T_ij^2 <= T_ii`` and
    ``LP >= E[T_ii^2] / E[T_ii] >= E[T_ii] = 1 - eps``: selection never raises the noise ratio.

    Parameters
    ----------
    T : array-like of shape (c, c)
        Transition matrix. Each row sums to 1.
    prior : array-like of shape (c,), default=None
        Proportion of each true class. The default is uniform.

    Returns
    -------
    gain : Gain
        Noise ratio before and after selection.

    Examples
    --------
    >>> from labelsieve import theory
    >>> gain = theory.selection_gain(theory.symmetric(10, 0.4))
    >>> gain.cleaner, gain.guaranteed, round(gain.selected, 3)
    (True, True, 0.047)
    """
    t = check_transition_matrix(T)
    p, right, accuracy = _check_prior(prior, len(t)), np.diagonal(t), class_test_accuracy(t)
    source = float(p @ (1 - right))
    selected = float(np.clip(p @ (accuracy - right**2) / (p @ accuracy), 0.0, 1.0))
    guaranteed = bool((right >= t.max(axis=1)).all())
    # Equal ratios can differ by a rounding error.
    cleaner = source - selected > 1e-12
    return Gain(cleaner, source, selected, source - selected, guaranteed)


# ---------------------------------------------------------------- the inverse of Corollary 1


class RatioEstimate(NamedTuple):
    """Noise ratio that corresponds to a test accuracy.

    Attributes
    ----------
    ratio : float
        Noise ratio, or the nearest possible ratio if `in_reach` is false.
    in_reach : bool
        Whether a noise ratio of the pattern gives the accuracy.
    reach : tuple of float
        Lowest and highest accuracy that the pattern can give.
    """

    ratio: float
    in_reach: bool
    reach: tuple[float, float]


def ratio_from_accuracy(test_accuracy: float, c: int, pattern: str = "symmetric") -> RatioEstimate:
    """Return the noise ratio that gives a test accuracy, without a warning.

    This is the exact inverse of Eq. 4 and Eq. 5 on the branch where the true class is the most likely label. The noise
    ratio ``e`` gives the accuracy ``A = 1 - 2e + e^2 / v`` with ``v = (c - 1) / c`` for symmetric noise and ``v = 1/2``
    for pair noise. Therefore ``e = v (1 - sqrt(1 - (1 - A) / v))``.

    Parameters
    ----------
    test_accuracy : float
        Accuracy on held-out noisy labels.
    c : int
        Number of classes, at least 2.
    pattern : {"symmetric", "pair"}, default="symmetric"
        Noise pattern.

    Returns
    -------
    estimate : RatioEstimate
        Noise ratio, and whether the accuracy is possible.

    Examples
    --------
    >>> from labelsieve import theory
    >>> theory.ratio_from_accuracy(0.05, 10).in_reach
    False
    """
    check_integer("classes", c, least=2)
    check_range("test_accuracy", test_accuracy, 0, 1)
    if pattern not in ("symmetric", "pair"):
        raise InputError(f"pattern: {pattern!r} has no inverse; choose symmetric or pair")
    vertex = (c - 1) / c if pattern == "symmetric" else 0.5
    missing = 1 - test_accuracy
    in_reach = missing <= vertex + 1e-12
    ratio = missing / (1 + math.sqrt(max(0.0, 1 - missing / vertex))) if missing < vertex else vertex
    return RatioEstimate(ratio, in_reach, (1 - vertex, 1.0))


def noise_ratio(test_accuracy: float, c: int, pattern: str = "symmetric") -> float:
    """Return the noise ratio that gives a test accuracy.

    If no ratio gives the accuracy, the nearest ratio is returned with an `OutOfReachWarning`.

    Parameters
    ----------
    test_accuracy : float
        Accuracy on held-out noisy labels.
    c : int
        Number of classes, at least 2.
    pattern : {"symmetric", "pair"}, default="symmetric"
        Noise pattern.

    Returns
    -------
    eps : float
        Noise ratio.

    Examples
    --------
    >>> from labelsieve import theory
    >>> accuracy = theory.test_accuracy(theory.symmetric(10, 0.4))
    >>> round(theory.noise_ratio(accuracy, 10), 3)
    0.4
    """
    estimate = ratio_from_accuracy(test_accuracy, c, pattern)
    if not estimate.in_reach:
        warnings.warn(
            f"test accuracy {test_accuracy:.4g} is below {estimate.reach[0]:.4g}, the lowest value for {pattern} noise"
            f" with {c} classes; the noise ratio was set to {estimate.ratio:.4g}",
            OutOfReachWarning,
            stacklevel=2,
        )
    return estimate.ratio


def summary(T: ArrayLike) -> dict[str, Any]:
    """Return all quantities of this module for a transition matrix and equally large classes.

    Parameters
    ----------
    T : array-like of shape (c, c)
        Transition matrix. Each row sums to 1.

    Returns
    -------
    summary : dict
        Numbers and lists that can be written as JSON.

    Examples
    --------
    >>> from labelsieve import theory
    >>> summary = theory.summary(theory.symmetric(10, 0.4))
    >>> round(summary["label_precision"], 3), summary["cleaner"]
    (0.953, True)
    """
    t = check_transition_matrix(T)
    gain = selection_gain(t)
    return {
        "classes": len(t),
        "noise_ratio": gain.source,
        "test_accuracy": test_accuracy(t),
        "label_precision": label_precision(t),
        "label_recall": label_recall(t),
        "selected_noise_ratio": gain.selected,
        "cleaner": gain.cleaner,
        "cleaner_guaranteed": gain.guaranteed,
        "class_test_accuracy": class_test_accuracy(t).tolist(),
        "class_label_precision": class_label_precision(t).tolist(),
        "class_label_recall": class_label_recall(t).tolist(),
        "class_bounds": [list(label_precision_bounds(float(min(k, 1.0)), len(t))) for k in np.diagonal(t)],
        "transition_matrix": t.tolist(),
    }


# ---------------------------------------------------------------- checks


def _check_prior(prior: ArrayLike | None, c: int) -> Vector:
    if prior is None:
        return np.full(c, 1 / c)
    try:
        p = np.asarray(prior, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("prior: expected one number per class") from None
    if p.shape != (c,):
        raise InputError(f"prior: expected {c} numbers, one per class, got shape {p.shape}")
    if not np.isfinite(p).all() or (p < 0).any():
        raise InputError("prior: values must be finite and not negative")
    if abs(p.sum() - 1) > ROW_SUM_TOLERANCE:
        raise InputError(f"prior: sums to {p.sum():.6g}, not 1")
    return p
