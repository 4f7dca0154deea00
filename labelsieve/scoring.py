"""Scores of stored out-of-sample predictions, without training, in one pass over chunks with O(n) memory.

    selected     the predicted label is the given label (algorithm 1, lines 4 and 7)
    suspicion    q / (p + q) if they differ, at least 1/2; p, q: probabilities of the given and the predicted label
                 (1 - p) / 2 if they are equal, below 1/2

`pred_probs` can be an array, a data frame whose columns have the names of the labels, or a memory-mapped file that is
larger than the memory. benchmarks/suspicion.md compares this suspicion with others.
"""

from __future__ import annotations

import mmap
import sys
import warnings
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelsieve.checks import as_labels, codes_among, distinct, refuse_missing, without_mask
from labelsieve.errors import InputError
from labelsieve.progress import counted
from labelsieve.types import TOP_CLASSES, BoolArray, FloatArray, IntArray, Scores

# A chunk stays in the processor's cache while it is checked, searched and read; larger ones are slower, not faster.
CHUNK_BYTES = 512 * 1024
# The pages of a mapped file are released in larger steps, because the call takes longer than a chunk.
RELEASE_BYTES = 16 * 1024 * 1024
# Rows whose sum is off by more than rounding explains are renormalised with a warning, up to `SUM_TOLERANCE`.
ROUNDING = {2: 1e-2, 4: 1e-3, 8: 1e-3}  # by bytes per number
SUM_TOLERANCE = 0.02  # a larger difference from 1 means that a row is not a distribution
FEW_CLASSES = 32  # up to which sorting a whole row is faster than finding its largest values first
STORED_TOP_CLASSES = 10  # classes kept of each row: all of a small problem, O(n) of a large one


def select_clean(labels: ArrayLike, pred_probs: ArrayLike, *, classes: ArrayLike | None = None) -> BoolArray:
    """Select the samples whose predicted label equals the given label.

    This is the selection rule of the paper (Algorithm 1). Nothing is trained.

    Parameters
    ----------
    labels : array-like of shape (n,)
        Given labels: integers, strings or bools.
    pred_probs : array-like or data frame of shape (n, c)
        Out-of-sample probabilities. A memory-mapped array may be larger than the memory.
    classes : array-like of shape (c,), default=None
        Class of each column. By default the columns of a data frame are matched by name. Otherwise the classes are
        0 to c - 1, or the sorted distinct labels if these are strings.

    Returns
    -------
    selected : ndarray of bool of shape (n,)
        Whether each sample is selected.

    Examples
    --------
    >>> from labelsieve import select_clean
    >>> select_clean([0, 1, 1], [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
    array([ True, False,  True])
    """
    given, probs = check_inputs(labels, pred_probs, classes)
    selected = np.empty(len(probs), dtype=np.bool_)
    for rows, codes, block in _chunks(given, probs):
        np.equal(block.argmax(axis=1), codes, out=selected[rows])
    return selected


def label_suspicion(labels: ArrayLike, pred_probs: ArrayLike, *, classes: ArrayLike | None = None) -> FloatArray:
    """Return a score from 0 to 1 for each label, higher if it is more likely wrong.

    Let ``p`` be the probability of the given label and ``q`` the probability of the predicted label. The score is
    ``q / (p + q)`` if the labels differ and ``(1 - p) / 2`` if they are equal. It is at least 1/2 exactly for
    the samples that `select_clean` does not select. ``benchmarks/suspicion.md`` compares it with other scores.

    Parameters
    ----------
    labels : array-like of shape (n,)
        Given labels: integers, strings or bools.
    pred_probs : array-like or data frame of shape (n, c)
        Out-of-sample probabilities. A memory-mapped array may be larger than the memory.
    classes : array-like of shape (c,), default=None
        Class of each column. By default the columns of a data frame are matched by name. Otherwise the classes are
        0 to c - 1, or the sorted distinct labels if these are strings.

    Returns
    -------
    suspicion : ndarray of float of shape (n,)
        Score to rank the labels. It is not a calibrated probability.

    Examples
    --------
    >>> from labelsieve import label_suspicion
    >>> label_suspicion([0, 1, 1], [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
    array([0.05, 0.8 , 0.15])
    """
    given, probs = check_inputs(labels, pred_probs, classes)
    suspicion = np.empty(len(probs))
    for rows, codes, block in _chunks(given, probs):
        predicted, probability, confidence = _look_up(block, codes)
        suspicion[rows] = suspicion_from_scores(probability, confidence, agrees=predicted == codes)
    return suspicion


def score_probabilities(labels: ArrayLike, pred_probs: ArrayLike, *, warn: bool = True) -> Scores:
    """Return the scores that selection uses. A given label with probability 0 has a large but finite loss.

    `warn` is false if `check_rows` has already warned about rows that are renormalised.
    """
    given, probs = check_inputs(labels, pred_probs, None)
    n, kept = len(probs), min(STORED_TOP_CLASSES, probs.shape[1])
    predicted, probability, confidence = np.empty(n, dtype=np.int64), np.empty(n), np.empty(n)
    top_classes, top_probs = np.empty((n, kept), dtype=np.int32), np.empty((n, kept), dtype=np.float32)
    for rows, codes, block in _chunks(given, probs, stacklevel=3 if warn else None):
        predicted[rows], probability[rows], confidence[rows] = _look_up(block, codes)
        found = likeliest(block, predicted[rows], kept)
        top_classes[rows], top_probs[rows] = found, np.take_along_axis(block, found, axis=1)
    return Scores(
        predicted, probability, confidence, loss_of(probability), top_classes=top_classes, top_probs=top_probs
    )


def check_rows(given: IntArray, probs: NDArray[Any]) -> None:
    """Check all rows, and warn if some are renormalised; for functions that use rows before they pass over all."""
    for _ in _chunks(given, probs, stacklevel=4):
        pass


def probability_blocks(given: IntArray, probs: NDArray[Any]) -> Iterator[tuple[IntArray, NDArray[Any]]]:
    """The label codes and renormalised probabilities, block by block, after `check_rows`."""
    for _, codes, block in _chunks(given, probs, stacklevel=None):
        yield codes, block


def likeliest(probability: NDArray[Any], best: IntArray, most: int = TOP_CLASSES) -> IntArray:
    """Return the columns of the largest values of each row, in order; `best` comes first, also among equal values."""
    count = min(most, probability.shape[1])
    if probability.shape[1] <= FEW_CLASSES:
        ordered = np.argsort(-probability, axis=1, kind="stable")[:, :count]
    else:
        found = np.argpartition(-probability, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(probability, found, axis=1), axis=1, kind="stable")
        ordered = np.asarray(np.take_along_axis(found, order, axis=1))
    again = np.where(ordered[:, 1:] == best[:, None], ordered[:, :1], ordered[:, 1:])  # it and the first change places
    return np.hstack([best[:, None], again])


def suspicion_from_scores(
    probability: ArrayLike, confidence: ArrayLike, *, agrees: ArrayLike | None = None
) -> FloatArray:
    """Return the suspicion from the probability of the given label and the confidence of the predicted label.

    `agrees` is true if both labels are equal; by default they are if `confidence` is not larger. NaN stays NaN.
    """
    p, q = np.asarray(probability, dtype=np.float64), np.asarray(confidence, dtype=np.float64)
    same = np.asarray(q <= p if agrees is None else agrees, dtype=np.bool_)
    if not p.shape == q.shape == same.shape:
        raise InputError(f"probability, confidence, agrees: lengths differ: {p.shape}, {q.shape}, {same.shape}")
    total = p + q
    # Two zeros say nothing about the label: 1/2.
    against = np.divide(q, total, out=np.full(p.shape, 0.5), where=total != 0)
    # Some classifiers predict a class that is not the most probable one: the result stays at least 1/2. A probability
    # of 1.0000001 (float32) is 1.
    return np.where(same, np.maximum((1 - p) / 2, 0.0), np.maximum(against, 0.5))


def suspicion_of(scores: Scores, labels: IntArray) -> FloatArray:
    """Return the suspicion of scored samples; `labels` are their given labels in the same order."""
    return suspicion_from_scores(scores.probability, scores.confidence, agrees=scores.predicted == labels)


def loss_of(probability: ArrayLike) -> FloatArray:
    """Cross-entropy of the given label, kept finite."""
    p = np.asarray(probability, dtype=np.float64)
    return np.asarray(-np.log(np.maximum(p, np.finfo(np.float64).tiny)))


# ---------------------------------------------------------------- the pass


def _look_up(block: NDArray[Any], codes: IntArray) -> tuple[IntArray, NDArray[Any], NDArray[Any]]:
    start = np.arange(0, block.size, block.shape[1])
    flat = block.reshape(-1)
    predicted = block.argmax(axis=1)
    return predicted, flat[start + codes], flat[start + predicted]


def _chunks(
    given: NDArray[Any], probs: NDArray[Any], *, stacklevel: int | None = 3
) -> Iterator[tuple[slice, IntArray, NDArray[Any]]]:
    """Yield rows, label codes and checked probabilities (contiguous, float32 or float64) of each chunk.

    A warning about renormalised rows has this `stacklevel`; there is none if it is None.
    """
    n, c = probs.shape
    size = max(1, CHUNK_BYTES // (c * probs.itemsize))
    working = np.float32 if probs.itemsize < 4 else probs.dtype
    ones = np.ones(c, dtype=working)
    rounding, renormalised = ROUNDING.get(probs.itemsize, 1e-3), 0
    released = 0
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        codes = _label_codes(given[rows], c, start)
        block = np.ascontiguousarray(probs[rows], dtype=working)
        # A product with ones is the fastest row sum; nan and infinity fail its test too.
        with np.errstate(invalid="ignore"):
            sums = block @ ones
        off = np.abs(sums - 1)
        if not (off.max() <= SUM_TOLERANCE and block.min() >= 0):
            _explain(block, start)
        if off.max() > rounding:
            renormalised += int(np.sum(off > rounding))
            block = block / sums[:, None]
        yield rows, codes, block
        if (rows.stop - released) * c * probs.itemsize >= RELEASE_BYTES:
            _release_pages(probs)
            released = rows.stop
    if renormalised and stacklevel is not None:
        rows_off = counted(renormalised, "row does not sum to 1 and was", "rows do not sum to 1 and were")
        warnings.warn(f"pred_probs: {rows_off} renormalised", stacklevel=stacklevel)


def _label_codes(labels: NDArray[Any], c: int, start: int) -> IntArray:
    codes = labels.astype(np.int64, copy=False)
    if codes.min() < 0 or codes.max() >= c:
        row = int(np.flatnonzero((codes < 0) | (codes >= c))[0])
        raise InputError(f"labels: {labels[row]} in row {start + row} is outside 0..{c - 1}, the columns of pred_probs")
    return codes


def _explain(block: NDArray[Any], start: int) -> None:
    """Raise InputError for the first bad row. A sum that is only off by rounding is accepted."""
    finite = np.asarray(np.isfinite(block).all(axis=1))
    negative = np.asarray((block < 0).any(axis=1))
    sums = np.asarray(block.sum(axis=1, dtype=np.float64, where=np.isfinite(block)))
    bad = np.flatnonzero(~finite | negative | (np.abs(sums - 1) > SUM_TOLERANCE))
    if not len(bad):
        return
    row = int(bad[0])
    if not finite[row]:
        raise InputError(f"pred_probs: row {start + row} holds NaN or infinity")
    if negative[row]:
        raise InputError(f"pred_probs: row {start + row} holds a negative probability, {block[row].min():g}")
    raise InputError(f"pred_probs: row {start + row} sums to {sums[row]:.6g}, not 1; give probabilities, not scores")


def _release_pages(probs: NDArray[Any]) -> None:
    """Release the pages of a mapped file that were read, which would otherwise count as memory of this process.

    Changes of a private mapping (mode "c") would be lost, so that its pages stay.
    """
    mapped = probs._mmap if isinstance(probs, np.memmap) and probs.mode != "c" else None  # type: ignore[attr-defined]
    if mapped is not None and sys.platform != "win32":
        mapped.madvise(mmap.MADV_DONTNEED)


# ---------------------------------------------------------------- checks


def check_inputs(
    labels: ArrayLike, pred_probs: ArrayLike, classes: ArrayLike | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the labels as columns of the probabilities, and the probabilities, whose values `_chunks` checks."""
    given = as_labels(labels)
    classes = named_columns(given, pred_probs, classes)
    probs = np.asanyarray(without_mask(pred_probs))
    if probs.dtype.kind not in "fiub":
        raise InputError("pred_probs: expected numbers")
    if probs.ndim != 2 or probs.shape[1] < 2:
        raise InputError(
            f"pred_probs: expected one row per sample and one column for each of 2 or more classes, got {probs.shape}"
        )
    if probs.dtype.kind != "f":
        probs = probs.astype(np.float64)
    if len(given) != len(probs):
        raise InputError(f"labels: {counted(len(given), 'label')} but pred_probs has {counted(len(probs), 'row')}")
    if len(given) == 0:
        return np.empty(0, dtype=np.int64), probs
    if classes is not None or given.dtype.kind not in "iub":
        given = _encode(given, probs.shape[1], classes)
    return given, probs


def class_names(labels: ArrayLike, columns: int, classes: ArrayLike | None) -> NDArray[Any]:
    """Return the class of each column of the probabilities, in the type of the labels."""
    given = as_labels(labels)
    if classes is not None:
        return as_labels(classes, "classes")
    if given.dtype.kind not in "iubf":
        return np.unique(given)
    return np.arange(columns).astype(given.dtype)


@runtime_checkable
class Frame(Protocol):
    """A data frame of any library."""

    columns: Any  # the names


def named_columns(labels: ArrayLike, pred_probs: Any, classes: ArrayLike | None) -> ArrayLike | None:
    """Return the classes that the columns of a data frame name, in the type of the labels; else `classes`.

    Columns without names (0, 1, ..., in polars `column_0`, ...) are the classes in their order.
    """
    given = as_labels(labels)
    if not isinstance(pred_probs, Frame) or len(given) == 0:
        return classes
    found = list(pred_probs.columns)
    if found in (list(range(len(found))), [f"column_{k}" for k in range(len(found))]):
        return classes
    texts = [str(name) for name in found]
    if len(set(texts)) < len(texts):
        raise InputError("pred_probs: two of its columns have the same name")
    if classes is not None:
        named = [str(name) for name in np.asarray(classes).tolist()]
        if named != texts and set(named) == set(texts):
            raise InputError(
                "classes: in another order than the columns of pred_probs; leave it out to go by their names"
            )
        return classes
    refuse_missing(given)
    present = list(dict.fromkeys(given.tolist()))
    kind = type(present[0])
    names = [_as_label(name, kind) for name in found]
    absent = [label for label in present if label not in names]
    other = [name for name in names if isinstance(name, str) != issubclass(kind, str)]
    if absent or other:
        wrong = f"none has the name of the label {absent[0]!r}" if absent else f"{other[0]!r} is not a label"
        there = ", ".join(texts)[:300]
        raise InputError(
            f"pred_probs: its columns are {there}, and {wrong}; rename them, or give classes= in their order"
        )
    return np.asarray(names, dtype=None if issubclass(kind, str) else given.dtype)


def _as_label(name: Any, kind: type) -> Any:
    """Convert the name of a column to the type of the labels: a table from a file has the text "1" for 1 or 1.0."""
    if kind is str or not isinstance(name, str):
        return str(name) if kind is str else name
    try:
        return {"True": True, "False": False}[name] if kind is bool else kind(name)
    except (KeyError, TypeError, ValueError):
        return name


def _encode(given: NDArray[Any], c: int, classes: ArrayLike | None) -> IntArray:
    refuse_missing(given)
    if classes is None and given.dtype.kind == "f":
        if (given != np.floor(given)).any():
            raise InputError("labels: expected whole numbers, text or bools")
        return given.astype(np.int64)
    names = (distinct(given) if classes is None else as_labels(classes, "classes")).tolist()
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise InputError(f"classes: {repeated!r} occurs more than once; name each class once")
    if len(names) != c:
        found = counted(len(names), "class", "classes")
        raise InputError(f"pred_probs: {c} columns but {found}; pass classes= in the order of the columns")
    return codes_among(given, names)
