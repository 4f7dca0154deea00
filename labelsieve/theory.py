"""What a network trained on noisy labels does, in closed form: exact, numpy only.

T is the noise transition matrix, T[i, j] = P(given label j | true class i), rows sum to 1. The network is trained on
one half of the data and asked about the other; `prior` is the share of each true class, uniform unless given.

    claim 1         P(predicted j | true i) = T_ij
    proposition 1   P(predicted = given | true i) = sum_j T_ij^2                       test accuracy
    proposition 2   LP_i = T_ii^2 / sum_j T_ij^2,  LR_i = T_ii                         of {predicted = given}
    over all        LP = sum_i p_i T_ii^2 / sum_i p_i sum_j T_ij^2,  LR = sum_i p_i T_ii^2 / sum_i p_i T_ii
"""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelsieve.errors import InputError

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Pattern = Literal["symmetric", "symmetric-inclusive", "pair", "cifar10-map"]

PATTERNS: tuple[Pattern, ...] = ("symmetric", "symmetric-inclusive", "pair", "cifar10-map")
# truck -> automobile, bird -> airplane, deer -> horse, cat <-> dog: the five flips much later work calls "asymmetric".
CIFAR10_FLIPS = {9: 1, 2: 0, 4: 7, 3: 5, 5: 3}
# Rows of a matrix kept in float32 or written with six digits still count as summing to 1.
ROW_SUM_TOLERANCE = 1e-5


class OutOfReachWarning(UserWarning):
    """An accuracy that no noise ratio of the pattern explains; the nearest ratio was returned."""


# ---------------------------------------------------------------- transition matrices


def symmetric(c: int, eps: float) -> Matrix:
    """A wrong label with probability eps, every other class equally likely, never the true class."""
    _check_classes(c)
    _check_share(eps, "eps")
    return np.full((c, c), eps / (c - 1)) + np.eye(c) * (1 - eps - eps / (c - 1))


def symmetric_inclusive(c: int, eps: float) -> Matrix:
    """With probability eps the label is redrawn from all classes, the true one too: eps (c - 1) / c real noise."""
    _check_classes(c)
    _check_share(eps, "eps")
    return np.full((c, c), eps / c) + np.eye(c) * (1 - eps)


def pair(c: int, eps: float) -> Matrix:
    """Class i becomes (i + 1) mod c with probability eps: the paper's asymmetric noise."""
    _check_classes(c)
    _check_share(eps, "eps")
    return np.eye(c) * (1 - eps) + np.roll(np.eye(c), 1, axis=1) * eps


def cifar10_map(eps: float) -> Matrix:
    """Five hand-picked CIFAR-10 flips with probability eps each; the other five classes stay clean."""
    _check_share(eps, "eps")
    t = np.eye(10)
    for source, target in CIFAR10_FLIPS.items():
        t[source, source], t[source, target] = 1 - eps, eps
    return t


def matrix(pattern: str, c: int, eps: float) -> Matrix:
    """The transition matrix of a named convention."""
    if pattern == "symmetric":
        return symmetric(c, eps)
    if pattern == "symmetric-inclusive":
        return symmetric_inclusive(c, eps)
    if pattern == "pair":
        return pair(c, eps)
    if pattern == "cifar10-map":
        if c != 10:
            raise InputError(f"pattern: cifar10-map is for 10 classes, not {c}; use symmetric, pair or a matrix file")
        return cifar10_map(eps)
    raise _unknown_pattern(pattern)


def check_transition_matrix(T: ArrayLike, c: int | None = None) -> Matrix:
    """T as float64, or an InputError that names what is wrong and where."""
    try:
        t = np.array(T, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("T: expected a square matrix of numbers, got ragged rows or text") from None
    if t.ndim != 2 or t.shape[0] != t.shape[1]:
        raise InputError(f"T: expected a square matrix, got shape {t.shape}")
    if len(t) < 2:
        raise InputError("T: needs at least 2 classes")
    if c is not None and len(t) != c:
        raise InputError(f"T: is {len(t)} x {len(t)} but the data have {c} classes")
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


# ---------------------------------------------------------------- claim 1 and the two propositions


def prediction_distribution(T: ArrayLike) -> Matrix:
    """Claim 1: P(predicted j | true i), the confusion matrix M of the trained network. It is T itself."""
    return check_transition_matrix(T)


def joint_distribution(T: ArrayLike) -> NDArray[np.float64]:
    """P(predicted j, given k | true i) = T_ij T_ik, indexed [i, j, k]: what both propositions follow from."""
    t = check_transition_matrix(T)
    return np.asarray(t[:, :, None] * t[:, None, :])


def class_test_accuracy(T: ArrayLike) -> Vector:
    """Proposition 1, one a class: sum_j T_ij^2."""
    t = check_transition_matrix(T)
    return np.asarray((t**2).sum(axis=1))


def class_label_precision(T: ArrayLike) -> Vector:
    """Proposition 2, one a true class: LP_i = T_ii^2 / sum_j T_ij^2."""
    return np.asarray(class_label_recall(T) ** 2 / class_test_accuracy(T))


def class_label_recall(T: ArrayLike) -> Vector:
    """Proposition 2, one a true class: LR_i = T_ii."""
    return np.diagonal(check_transition_matrix(T)).copy()


def test_accuracy(T: ArrayLike, prior: ArrayLike | None = None) -> float:
    """P(predicted = given) = sum_i p_i sum_j T_ij^2, the share of the data that gets selected."""
    accuracy = class_test_accuracy(T)
    return float(_check_prior(prior, len(accuracy)) @ accuracy)


# pytest would collect the function above as a test wherever it is imported by name.
setattr(test_accuracy, "__test__", False)  # noqa: B010


def label_precision(T: ArrayLike, prior: ArrayLike | None = None) -> float:
    """LP = sum_i p_i T_ii^2 / sum_i p_i sum_j T_ij^2: the clean share of the selected set."""
    kept = class_label_recall(T)
    p = _check_prior(prior, len(kept))
    return float(p @ kept**2 / (p @ class_test_accuracy(T)))


def label_recall(T: ArrayLike, prior: ArrayLike | None = None) -> float:
    """LR = sum_i p_i T_ii^2 / sum_i p_i T_ii: the selected share of the clean samples; 0 where none is clean."""
    kept = class_label_recall(T)
    p = _check_prior(prior, len(kept))
    clean = float(p @ kept)
    return float(p @ kept**2) / clean if clean > 0 else 0.0


def source_noise_ratio(T: ArrayLike, prior: ArrayLike | None = None) -> float:
    """The share of wrong labels before selection: 1 - sum_i p_i T_ii."""
    kept = class_label_recall(T)
    return float(_check_prior(prior, len(kept)) @ (1 - kept))


def selected_noise_ratio(T: ArrayLike, prior: ArrayLike | None = None) -> float:
    """The share of wrong labels after selection: eps_S = 1 - LP."""
    t = check_transition_matrix(T)
    p = _check_prior(prior, len(t))
    wrong = (t**2).sum(axis=1) - np.diagonal(t) ** 2
    return float(np.clip(p @ wrong / (p @ (t**2).sum(axis=1)), 0.0, 1.0))


# ---------------------------------------------------------------- bounds, and when selecting helps


def label_precision_bounds(t_ii: float, c: int) -> tuple[float, float]:
    """Corollary 2.1: lowest and highest LP_i of a class that keeps its label with probability t_ii.

    Pair noise attains the low bound (all wrong labels agree), symmetric noise the high one (they disagree most).
    """
    _check_classes(c)
    _check_share(t_ii, "t_ii")
    if t_ii == 0:
        return 0.0, 0.0
    right, wrong = t_ii**2, (1 - t_ii) ** 2
    return right / (right + wrong), right / (right + wrong / (c - 1))


def bounds_attained(T: ArrayLike, *, tolerance: float = 1e-9) -> tuple[Literal["low", "high", "both", "neither"], ...]:
    """Which bound of corollary 2.1 each class attains: "low" as pair noise, "high" as symmetric noise.

    "both" where the two coincide: two classes, or a class without noise (or with nothing but noise).
    """
    t = check_transition_matrix(T)
    found: list[Literal["low", "high", "both", "neither"]] = []
    for i, precision in enumerate(class_label_precision(t)):
        low, high = label_precision_bounds(float(min(t[i, i], 1.0)), len(t))
        at_low, at_high = precision - low <= tolerance, high - precision <= tolerance
        found.append("both" if at_low and at_high else "low" if at_low else "high" if at_high else "neither")
    return tuple(found)


class Gain(NamedTuple):
    """Noise before and after selection; `guaranteed` where T_ii is the largest of its row in every class."""

    cleaner: bool
    source: float
    selected: float
    by: float
    guaranteed: bool


def selection_gain(T: ArrayLike, prior: ArrayLike | None = None) -> Gain:
    """Supplement D for any T: is the selected set cleaner than its source, and by how much?

    With T_ii the largest of row i, sum_j T_ij^2 <= T_ii, so LP >= E[T_ii^2] / E[T_ii] >= E[T_ii] = 1 - eps: never
    worse. Without it the answer may be either, and this function still tells.
    """
    t = check_transition_matrix(T)
    source, selected = source_noise_ratio(t, prior), selected_noise_ratio(t, prior)
    guaranteed = bool((np.diagonal(t) >= t.max(axis=1)).all())
    # Rounding alone must not call a set cleaner where both ratios are the same number.
    cleaner = source - selected > 1e-12
    return Gain(cleaner, source, selected, source - selected, guaranteed)


# ---------------------------------------------------------------- the two patterns: corollaries 1 and 2.2


def pattern_test_accuracy(eps: float, c: int, pattern: str = "symmetric") -> float:
    """Corollary 1: (1-eps)^2 + eps^2 / (c-1), Eq. 4, or (1-eps)^2 + eps^2, Eq. 5."""
    _check_classes(c)
    _check_share(eps, "eps")
    if pattern not in ("symmetric", "pair"):
        return test_accuracy(matrix(pattern, c, eps))
    return (1 - eps) ** 2 + eps**2 / (c - 1 if pattern == "symmetric" else 1)


def pattern_label_precision(eps: float, c: int, pattern: str = "symmetric") -> float:
    """Corollary 2.2: (1-eps)^2 over the accuracy of corollary 1."""
    if pattern not in ("symmetric", "pair"):
        return label_precision(matrix(pattern, c, eps))
    return (1 - eps) ** 2 / pattern_test_accuracy(eps, c, pattern)


def pattern_label_recall(eps: float, c: int, pattern: str = "symmetric") -> float:
    """Corollary 2.2: 1 - eps."""
    return label_recall(matrix(pattern, c, eps))


class RatioEstimate(NamedTuple):
    """`ratio` explains the accuracy; where none does (`in_reach` false) it is the nearest. `reach`: what can be."""

    ratio: float
    in_reach: bool
    reach: tuple[float, float]


def ratio_from_accuracy(test_accuracy: float, c: int, pattern: str = "symmetric") -> RatioEstimate:
    """The exact inverse of Eq. 4 and Eq. 5, on the branch where the true class is the most likely label.

    For every pattern the real noise e has accuracy 1 - 2e + e^2/v with vertex v = (c-1)/c (symmetric) or 1/2 (pair), so
    e = v (1 - sqrt(1 - (1-A)/v)), written below without the cancellation near A = 1. Never warns.
    """
    _check_classes(c)
    _check_share(test_accuracy, "test_accuracy")
    share, scale = 1.0, 1.0
    if pattern in ("symmetric", "symmetric-inclusive"):
        vertex = (c - 1) / c
        scale = c / (c - 1) if pattern == "symmetric-inclusive" else 1.0
    elif pattern == "pair":
        vertex = 0.5
    elif pattern == "cifar10-map":
        if c != 10:
            raise InputError(f"pattern: cifar10-map is for 10 classes, not {c}")
        vertex, share = 0.5, len(CIFAR10_FLIPS) / 10
    else:
        raise _unknown_pattern(pattern)
    lowest = 1 - share * vertex
    missing = (1 - test_accuracy) / share
    in_reach = test_accuracy >= lowest - 1e-12
    real = missing / (1 + math.sqrt(max(0.0, 1 - missing / vertex))) if missing < vertex else vertex
    return RatioEstimate(min(1.0, real * scale), in_reach, (lowest, 1.0))


def noise_ratio(test_accuracy: float, c: int, pattern: str = "symmetric") -> float:
    """eps from a measured test accuracy; clamped, with an OutOfReachWarning, where no eps gives that accuracy."""
    estimate = ratio_from_accuracy(test_accuracy, c, pattern)
    if not estimate.in_reach:
        warnings.warn(
            f"test accuracy {test_accuracy:.4g} is below {estimate.reach[0]:.4g}, the lowest that {pattern} noise"
            f" over {c} classes explains; the noise ratio was clamped to {estimate.ratio:.4g}",
            OutOfReachWarning,
            stacklevel=2,
        )
    return estimate.ratio


def summary(T: ArrayLike, prior: ArrayLike | None = None) -> dict[str, Any]:
    """Everything the theory says of T, as plain numbers and lists."""
    t = check_transition_matrix(T)
    gain = selection_gain(t, prior)
    return {
        "classes": len(t),
        "noise_ratio": gain.source,
        "test_accuracy": test_accuracy(t, prior),
        "label_precision": label_precision(t, prior),
        "label_recall": label_recall(t, prior),
        "selected_noise_ratio": gain.selected,
        "cleaner": gain.cleaner,
        "cleaner_guaranteed": gain.guaranteed,
        "class_test_accuracy": class_test_accuracy(t).tolist(),
        "class_label_precision": class_label_precision(t).tolist(),
        "class_label_recall": class_label_recall(t).tolist(),
        "class_bounds": [list(label_precision_bounds(float(min(k, 1.0)), len(t))) for k in np.diagonal(t)],
        "class_bounds_attained": list(bounds_attained(t)),
        "transition_matrix": t.tolist(),
    }


# ---------------------------------------------------------------- checks


def _check_classes(c: int) -> None:
    if isinstance(c, bool) or not isinstance(c, int | np.integer) or c < 2:
        raise InputError(f"classes: expected a whole number of at least 2, got {c!r}")


def _check_share(value: float, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InputError(f"{name}: expected a number from 0 to 1, got {value!r}")
    if not 0 <= value <= 1:
        raise InputError(f"{name}: {value:g} is outside [0, 1]")


def _check_prior(prior: ArrayLike | None, c: int) -> Vector:
    if prior is None:
        return np.full(c, 1 / c)
    try:
        p = np.asarray(prior, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("prior: expected one number a class") from None
    if p.shape != (c,):
        raise InputError(f"prior: expected {c} numbers, one a class, got shape {p.shape}")
    if not np.isfinite(p).all() or (p < 0).any():
        raise InputError("prior: shares must be finite and not negative")
    if abs(p.sum() - 1) > ROW_SUM_TOLERANCE:
        raise InputError(f"prior: sums to {p.sum():.6g}, not 1")
    return p


def _unknown_pattern(pattern: str) -> InputError:
    return InputError(f"pattern: {pattern!r} is not known; choose one of {', '.join(PATTERNS)}")
