"""Evaluation of a selection with true labels.

Selection and training never use true labels. Label precision (LP) is the proportion of right labels among the selected
samples. Label recall (LR) is the proportion of the right labels that is selected. The values per class condition on the
true class.
"""

from __future__ import annotations

from numbers import Number
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelsieve.checks import as_labels, codes_among, refuse_missing
from labelsieve.errors import InputError
from labelsieve.types import BoolArray, FloatArray, IntArray


def label_precision(selected: ArrayLike, given: ArrayLike, true: ArrayLike) -> float:
    """Return the proportion of right labels among the selected samples.

    Parameters
    ----------
    selected : array-like of bool of shape (n,)
        Whether each sample is selected.
    given : array-like of shape (n,)
        Given labels.
    true : array-like of shape (n,)
        True labels.

    Returns
    -------
    precision : float
        Label precision, or NaN if no sample is selected.

    Examples
    --------
    >>> from labelsieve import metrics
    >>> selected = [True, True, False, True]
    >>> given, true = [0, 1, 1, 0], [0, 1, 1, 1]
    >>> round(metrics.label_precision(selected, given, true), 3)
    0.667
    """
    chosen, clean, _ = _selection(selected, given, true)
    return _share(int((chosen & clean).sum()), int(chosen.sum()))


def label_recall(selected: ArrayLike, given: ArrayLike, true: ArrayLike) -> float:
    """Return the proportion of the right labels that is selected.

    Parameters
    ----------
    selected : array-like of bool of shape (n,)
        Whether each sample is selected.
    given : array-like of shape (n,)
        Given labels.
    true : array-like of shape (n,)
        True labels.

    Returns
    -------
    recall : float
        Label recall, or NaN if no label is right.

    Examples
    --------
    >>> from labelsieve import metrics
    >>> selected = [True, True, False, True]
    >>> given, true = [0, 1, 1, 0], [0, 1, 1, 1]
    >>> round(metrics.label_recall(selected, given, true), 3)
    0.667
    """
    chosen, clean, _ = _selection(selected, given, true)
    return _share(int((chosen & clean).sum()), int(clean.sum()))


def class_label_precision(
    selected: ArrayLike, given: ArrayLike, true: ArrayLike, c: int | None = None, *, classes: ArrayLike | None = None
) -> FloatArray:
    """Return the label precision of each true class.

    Parameters
    ----------
    selected : array-like of bool of shape (n,)
        Whether each sample is selected.
    given : array-like of shape (n,)
        Given labels.
    true : array-like of shape (n,)
        True labels.
    c : int, default=None
        Number of classes if the labels are the integers 0 to c - 1.
    classes : array-like, default=None
        Classes, if the labels are not integers from 0.

    Returns
    -------
    precision : ndarray of shape (c,)
        Proportion of right labels among the selected samples of each true class, or NaN without such samples.

    Examples
    --------
    >>> from labelsieve import metrics
    >>> selected = [True, True, False, True]
    >>> given, true = [0, 1, 1, 0], [0, 1, 1, 1]
    >>> metrics.class_label_precision(selected, given, true)
    array([1. , 0.5])
    """
    chosen, clean, truth = _selection(selected, given, true)
    codes, c = _codes(truth, c, classes, "true")
    return _shares(np.bincount(codes[chosen & clean], minlength=c), np.bincount(codes[chosen], minlength=c))


def class_label_recall(
    selected: ArrayLike, given: ArrayLike, true: ArrayLike, c: int | None = None, *, classes: ArrayLike | None = None
) -> FloatArray:
    """Return the label recall of each true class.

    Parameters
    ----------
    selected : array-like of bool of shape (n,)
        Whether each sample is selected.
    given : array-like of shape (n,)
        Given labels.
    true : array-like of shape (n,)
        True labels.
    c : int, default=None
        Number of classes if the labels are the integers 0 to c - 1.
    classes : array-like, default=None
        Classes, if the labels are not integers from 0.

    Returns
    -------
    recall : ndarray of shape (c,)
        Proportion of the right labels of each class that is selected, or NaN without such labels.

    Examples
    --------
    >>> from labelsieve import metrics
    >>> selected = [True, True, False, True]
    >>> given, true = [0, 1, 1, 0], [0, 1, 1, 1]
    >>> metrics.class_label_recall(selected, given, true)
    array([1. , 0.5])
    """
    chosen, clean, truth = _selection(selected, given, true)
    codes, c = _codes(truth, c, classes, "true")
    return _shares(np.bincount(codes[chosen & clean], minlength=c), np.bincount(codes[clean], minlength=c))


def noise_ratio(given: ArrayLike, true: ArrayLike) -> float:
    """Return the proportion of wrong labels.

    Parameters
    ----------
    given : array-like of shape (n,)
        Given labels.
    true : array-like of shape (n,)
        True labels.

    Returns
    -------
    ratio : float
        Noise ratio.

    Examples
    --------
    >>> from labelsieve import metrics
    >>> metrics.noise_ratio(["cat", "dog", "dog", "cat"], ["cat", "dog", "cat", "cat"])
    0.25
    """
    left, right = _labels(("given", given), ("true", true))
    return 1.0 - _share(int((left == right).sum()), len(left))


def accuracy(labels: ArrayLike, predicted: ArrayLike) -> float:
    """Return the proportion of samples whose label equals the prediction.

    Parameters
    ----------
    labels : array-like of shape (n,)
        Given or true labels.
    predicted : array-like of shape (n,)
        Predicted labels.

    Returns
    -------
    accuracy : float
        Accuracy.

    Examples
    --------
    >>> from labelsieve import metrics
    >>> metrics.accuracy([0, 1, 1, 0], [0, 1, 0, 0])
    0.75
    """
    left, right = _labels(("labels", labels), ("predicted", predicted))
    return _share(int((left == right).sum()), len(left))


def confusion(
    true: ArrayLike,
    predicted: ArrayLike,
    c: int | None = None,
    *,
    normalize: bool = True,
    classes: ArrayLike | None = None,
) -> FloatArray:
    """Return the confusion matrix.

    Parameters
    ----------
    true : array-like of shape (n,)
        True labels.
    predicted : array-like of shape (n,)
        Predicted labels.
    c : int, default=None
        Number of classes if the labels are the integers 0 to c - 1.
    normalize : bool, default=True
        Return proportions per true class. Otherwise return counts.
    classes : array-like, default=None
        Classes in the order of the rows. The default is the sorted distinct labels if `c` is None.

    Returns
    -------
    M : ndarray of shape (c, c)
        ``M[i, j] = P(predicted j | true i)``. A row without samples is NaN.

    Examples
    --------
    >>> from labelsieve import metrics
    >>> metrics.confusion(["a", "a", "b", "b"], ["a", "b", "b", "b"])
    array([[0.5, 0.5],
           [0. , 1. ]])
    """
    left, right = _labels(("true", true), ("predicted", predicted))
    if c is None and classes is None:
        classes = np.unique(np.concatenate([left, right]))
    rows, c = _codes(left, c, classes, "true")
    columns, _ = _codes(right, c, classes, "predicted")
    counts = np.bincount(rows * c + columns, minlength=c * c).reshape(c, c)
    return _shares(counts, counts.sum(axis=1, keepdims=True)) if normalize else counts.astype(np.float64)


class Detection(NamedTuple):
    """Scores of flagged labels. Wrong labels are the positive class.

    Attributes
    ----------
    precision : float
        Proportion of wrong labels among the flagged labels.
    recall : float
        Proportion of the wrong labels that is flagged.
    f1 : float
        Harmonic mean of precision and recall.
    auroc : float
        Area under the ROC curve of the ranking.
    """

    precision: float
    recall: float
    f1: float
    auroc: float


def detection(wrong: ArrayLike, flagged: ArrayLike, suspicion: ArrayLike | None = None) -> Detection:
    """Return precision, recall, F1 and AUROC of flagged labels.

    Parameters
    ----------
    wrong : array-like of bool of shape (n,)
        Whether each label is wrong.
    flagged : array-like of bool of shape (n,)
        Whether each label is flagged as wrong.
    suspicion : array-like of float of shape (n,), default=None
        Score for the AUROC. By default the flags are used.

    Returns
    -------
    scores : Detection
        Precision is 0 if nothing is flagged. Recall is NaN if no label is wrong.

    Examples
    --------
    >>> from labelsieve import metrics
    >>> metrics.detection([True, False, True], [True, False, False], [0.9, 0.2, 0.4])
    Detection(precision=1.0, recall=0.5, f1=0.6666666666666666, auroc=1.0)
    """
    bad, found = _flags("wrong", wrong), _flags("flagged", flagged)
    _same_length(("wrong", bad), ("flagged", found))
    hits = int((bad & found).sum())
    # Precision is 0 without flags, so that F1 is defined.
    precision = hits / int(found.sum()) if found.any() else 0.0
    recall = _share(hits, int(bad.sum()))
    f1 = 2 * hits / total if (total := int(bad.sum()) + int(found.sum())) else float("nan")
    return Detection(precision, recall, f1, auroc(bad, found if suspicion is None else suspicion))


def auroc(wrong: ArrayLike, suspicion: ArrayLike) -> float:
    """Return the probability that a wrong label has a higher suspicion than a right label.

    Parameters
    ----------
    wrong : array-like of bool of shape (n,)
        Whether each label is wrong.
    suspicion : array-like of float of shape (n,)
        Score, higher for labels that are more likely wrong. Ties count half.

    Returns
    -------
    auroc : float
        Area under the ROC curve, or NaN if all labels are right or all are wrong.

    Examples
    --------
    >>> from labelsieve import metrics
    >>> metrics.auroc([True, False, False, True], [0.9, 0.1, 0.5, 0.4])
    0.75
    """
    bad = _flags("wrong", wrong)
    try:
        score = np.asarray(suspicion, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("suspicion: expected one number per sample") from None
    _same_length(("wrong", bad), ("suspicion", score))
    if np.isnan(score).any():
        raise InputError("suspicion: contains NaN")
    positives = int(bad.sum())
    negatives = len(bad) - positives
    if not positives or not negatives:
        return float("nan")
    _, where, counts = np.unique(score, return_inverse=True, return_counts=True)
    middle_rank = np.cumsum(counts) - (counts - 1) / 2
    rank_sum = float(middle_rank[where][bad].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


# ---------------------------------------------------------------- checks


def _selection(selected: ArrayLike, given: ArrayLike, true: ArrayLike) -> tuple[BoolArray, BoolArray, NDArray[Any]]:
    chosen = _flags("selected", selected)
    labels, truth = _labels(("given", given), ("true", true), also=("selected", chosen))
    return chosen, np.asarray(labels == truth), truth


def _flags(name: str, values: ArrayLike) -> BoolArray:
    flags = np.asarray(values)
    if flags.dtype != np.bool_:
        if not (flags.dtype.kind in "iuf" and np.isin(flags, (0, 1)).all()):
            raise InputError(f"{name}: expected one bool per sample")
        flags = flags.astype(np.bool_)
    return flags


def _same_length(*named: tuple[str, NDArray[Any]]) -> None:
    first, length = named[0][0], len(named[0][1]) if named[0][1].ndim else 0
    for name, array in named:
        if array.ndim != 1:
            raise InputError(f"{name}: expected one dimension, got shape {array.shape}")
        if len(array) != length:
            raise InputError(f"{name}: has {len(array)} entries but {first} has {length}")


def _labels(*named: tuple[str, ArrayLike], also: tuple[str, NDArray[Any]] | None = None) -> list[NDArray[Any]]:
    """Return labels that can be compared: equal lengths, no missing values and one common type."""
    arrays = [as_labels(values, name) for name, values in named]
    names = [name for name, _ in named]
    _same_length(*([also] if also else []), *zip(names, arrays, strict=True))
    kinds = []
    for name, array in zip(names, arrays, strict=True):
        refuse_missing(array, name)
        kinds.append(_kinds(array))
        if len(kinds[-1]) > 1:
            raise InputError(f"{name}: contains {' and '.join(sorted(kinds[-1]))}; use one type")
    if len(set.union(*kinds)) > 1:
        held = [kind for (kind,) in kinds]
        raise InputError(f"{' and '.join(names)}: the types differ: {held[0]} and {held[1]}")
    numbers = set.union(*kinds) == {"numbers"}  # may be an object array
    return [np.asarray(array.tolist()) if numbers and array.dtype.kind == "O" else array for array in arrays]


def _kinds(array: NDArray[Any]) -> set[str]:
    """Return the types in an array, looking at each value of an object array."""
    if array.dtype.kind not in "OUT":
        kind = "numbers" if array.dtype.kind in "biuf" else str(array.dtype)
        return {kind} if len(array) else set()  # numpy gives an empty list a numeric type
    types = {str} if array.dtype.kind != "O" else set(map(type, array.tolist()))
    names = {str: "text"} | {kind: "numbers" for kind in types if issubclass(kind, Number | np.bool_)}
    return {names.get(kind, kind.__name__) for kind in types}


def _codes(values: NDArray[Any], c: int | None, classes: ArrayLike | None, name: str) -> tuple[IntArray, int]:
    if classes is not None:
        names = np.asarray(classes).tolist()
        if c is not None and len(names) != c:
            raise InputError(f"classes: {len(names)} names for {c} classes")
        return codes_among(values, names, name), len(names)
    if values.dtype.kind not in "iub":
        raise InputError(f"{name}: expected codes 0..c-1; pass classes= for other labels")
    codes = values.astype(np.int64)
    if c is None:
        c = int(codes.max()) + 1 if len(codes) else 0
    if len(codes) and (int(codes.min()) < 0 or int(codes.max()) >= c):
        raise InputError(f"{name}: codes must be in 0..{c - 1}, found {int(codes.min())}..{int(codes.max())}")
    return codes, c


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _shares(part: NDArray[Any], whole: NDArray[Any]) -> FloatArray:
    out = np.full(part.shape, np.nan)
    return np.asarray(np.divide(part, whole, out=out, where=np.broadcast_to(whole > 0, part.shape)))
