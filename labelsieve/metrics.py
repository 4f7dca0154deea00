"""How well a selection did, measured with the true labels, which no selection and no training ever sees.

LP = clean and selected / selected,  LR = clean and selected / clean; per class both condition on the *true* class.
"""

from __future__ import annotations

from datetime import date, timedelta
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelsieve.errors import InputError
from labelsieve.missing import as_labels, refuse_missing
from labelsieve.types import BoolArray, FloatArray, IntArray


def label_precision(selected: ArrayLike, given: ArrayLike, true: ArrayLike) -> float:
    """The share of selected samples whose given label is the true one; nan where nothing is selected."""
    chosen, clean, _ = _selection(selected, given, true)
    return _share(int((chosen & clean).sum()), int(chosen.sum()))


def label_recall(selected: ArrayLike, given: ArrayLike, true: ArrayLike) -> float:
    """The share of correctly labelled samples that are selected; nan where no label is right."""
    chosen, clean, _ = _selection(selected, given, true)
    return _share(int((chosen & clean).sum()), int(clean.sum()))


def class_label_precision(
    selected: ArrayLike, given: ArrayLike, true: ArrayLike, c: int | None = None, *, classes: ArrayLike | None = None
) -> FloatArray:
    """LP_i: of the selected samples whose true class is i, the share labelled i. One a class, nan where there is none.

    Classes are codes 0..c-1, or the `classes` given.
    """
    chosen, clean, truth = _selection(selected, given, true)
    codes, c = _codes(truth, c, classes, "true")
    return _shares(np.bincount(codes[chosen & clean], minlength=c), np.bincount(codes[chosen], minlength=c))


def class_label_recall(
    selected: ArrayLike, given: ArrayLike, true: ArrayLike, c: int | None = None, *, classes: ArrayLike | None = None
) -> FloatArray:
    """LR_i: of the samples whose true class is i and that are labelled so, the share selected."""
    chosen, clean, truth = _selection(selected, given, true)
    codes, c = _codes(truth, c, classes, "true")
    return _shares(np.bincount(codes[chosen & clean], minlength=c), np.bincount(codes[clean], minlength=c))


def noise_ratio(given: ArrayLike, true: ArrayLike) -> float:
    """The share of wrong labels."""
    left, right = _labels(("given", given), ("true", true))
    return 1.0 - _share(int((left == right).sum()), len(left))


def accuracy(labels: ArrayLike, predicted: ArrayLike) -> float:
    """The share of samples where both agree: test accuracy, on given or on true labels."""
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
    """The paper's M, M[i, j] = P(predicted j | true i); counts with `normalize=False`.

    Classes are codes 0..c-1 where `c` is given, or the `classes` given, or else the values that occur, sorted. A row
    without samples is nan in M.
    """
    left, right = _labels(("true", true), ("predicted", predicted))
    if c is None and classes is None:
        classes = np.unique(np.concatenate([left, right]))
    rows, c = _codes(left, c, classes, "true")
    columns, _ = _codes(right, c, classes, "predicted")
    counts = np.bincount(rows * c + columns, minlength=c * c).reshape(c, c)
    return _shares(counts, counts.sum(axis=1, keepdims=True)) if normalize else counts.astype(np.float64)


class Detection(NamedTuple):
    """How well wrong labels were found. Positive means wrong."""

    precision: float
    recall: float
    f1: float
    auroc: float


def detection(wrong: ArrayLike, flagged: ArrayLike, suspicion: ArrayLike | None = None) -> Detection:
    """Precision, recall and F1 of the flagged samples; AUROC of `suspicion` where given, else of the flags."""
    bad, found = _flags("wrong", wrong), _flags("flagged", flagged)
    _same_length(("wrong", bad), ("flagged", found))
    hits = int((bad & found).sum())
    # Nothing flagged is no discovery: 0, so that F1 exists; nothing to find leaves the recall undefined.
    precision = hits / int(found.sum()) if found.any() else 0.0
    recall = _share(hits, int(bad.sum()))
    f1 = 2 * hits / total if (total := int(bad.sum()) + int(found.sum())) else float("nan")
    return Detection(precision, recall, f1, auroc(bad, found if suspicion is None else suspicion))


def auroc(wrong: ArrayLike, suspicion: ArrayLike) -> float:
    """The chance that a wrong label is ranked above a right one, ties half; nan where there is only one kind."""
    bad = _flags("wrong", wrong)
    try:
        score = np.asarray(suspicion, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("suspicion: expected one number a sample") from None
    _same_length(("wrong", bad), ("suspicion", score))
    if np.isnan(score).any():
        raise InputError("suspicion: holds NaN")
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
    labels, truth = _labels(("given", given), ("true", true), beside=("selected", chosen))
    return chosen, np.asarray(labels == truth), truth


def _flags(name: str, values: ArrayLike) -> BoolArray:
    flags = np.asarray(values)
    if flags.dtype != np.bool_:
        if not (flags.dtype.kind in "iuf" and np.isin(flags, (0, 1)).all()):
            raise InputError(f"{name}: expected one True or False a sample")
        flags = flags.astype(np.bool_)
    return flags


def _same_length(*named: tuple[str, NDArray[Any]]) -> None:
    first, length = named[0][0], len(named[0][1]) if named[0][1].ndim else 0
    for name, array in named:
        if array.ndim != 1:
            raise InputError(f"{name}: expected one dimension, got shape {array.shape}")
        if len(array) != length:
            raise InputError(f"{name}: has {len(array)} entries but {first} has {length}")


def _labels(*named: tuple[str, ArrayLike], beside: tuple[str, NDArray[Any]] | None = None) -> list[NDArray[Any]]:
    """Labels that can be compared: as many, all of them there, and of one kind, for the text 3 is never the number."""
    arrays = [as_labels(values, name) for name, values in named]
    names = [name for name, _ in named]
    _same_length(*([beside] if beside else []), *zip(names, arrays, strict=True))
    kinds = []
    for name, array in zip(names, arrays, strict=True):
        refuse_missing(array, name)
        kinds.append(_kinds(array))
        if len(kinds[-1]) > 1:
            raise InputError(f"{name}: holds {' and '.join(sorted(kinds[-1]))} at once; use one kind")
    if len(set.union(*kinds)) > 1:
        held = [kind for (kind,) in kinds]
        raise InputError(f"{' and '.join(names)}: one holds {held[0]}, the other {held[1]}")
    numbers = set.union(*kinds) == {"numbers"}  # also in a column of objects
    return [np.asarray(array.tolist()) if numbers and array.dtype.kind == "O" else array for array in arrays]


def _kinds(array: NDArray[Any]) -> set[str]:
    """What an array holds, by the type of its values where numpy knows no better than that they are objects."""
    if array.dtype.kind == "O":
        return {_kind_of(kind) for kind in set(map(type, array.tolist()))}
    if not len(array):  # an empty list is one of numbers to numpy
        return set()
    return {{"U": "text", "T": "text", "S": "bytes", "M": "dates", "m": "durations"}.get(array.dtype.kind, "numbers")}


def _kind_of(kind: type) -> str:
    for base, told in ((str, "text"), (bytes, "bytes"), (Number, "numbers"), (date, "dates"), (timedelta, "durations")):
        if issubclass(kind, base):
            return told
    return "numbers" if issubclass(kind, np.bool_) else kind.__name__


def _codes(values: NDArray[Any], c: int | None, classes: ArrayLike | None, name: str) -> tuple[IntArray, int]:
    if classes is not None:
        names = np.asarray(classes).tolist()
        if c is not None and len(names) != c:
            raise InputError(f"classes: {len(names)} names for {c} classes")
        position = {value: k for k, value in enumerate(names)}
        try:
            return np.array([position[value] for value in values.tolist()], dtype=np.int64), len(names)
        except KeyError as error:
            raise InputError(f"{name}: {error.args[0]!r} is not one of the classes") from None
    if values.dtype.kind not in "iub":
        raise InputError(f"{name}: expected codes 0..c-1; pass classes= for other labels")
    codes = values.astype(np.int64)
    if c is None:
        c = int(codes.max()) + 1 if len(codes) else 0
    if len(codes) and (int(codes.min()) < 0 or int(codes.max()) >= c):
        raise InputError(f"{name}: codes must lie in 0..{c - 1}, found {int(codes.min())}..{int(codes.max())}")
    return codes, c


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _shares(part: NDArray[Any], whole: NDArray[Any]) -> FloatArray:
    out = np.full(part.shape, np.nan)
    return np.asarray(np.divide(part, whole, out=out, where=np.broadcast_to(whole > 0, part.shape)))
