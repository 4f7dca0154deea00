"""Corruption of labels with a transition matrix or with noise that depends on the sample."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelsieve.checks import as_labels, check_integer, check_range, codes_among, distinct, refuse_missing
from labelsieve.errors import InputError, first_line
from labelsieve.files import read_text, regular_file
from labelsieve.theory import PATTERNS, Matrix, check_transition_matrix, matrix
from labelsieve.types import FloatArray, IntArray

Seed = int | np.random.Generator | None

# Bounds the memory of instance-dependent noise: rows of the n x c probabilities per chunk.
CHUNK_ROWS = 65_536


class LabelsWarning(UserWarning):
    """The labels are ambiguous: they may count from 0 or from 1. Pass `classes`."""


def corrupt(labels: ArrayLike, T: ArrayLike, rng: Seed = None, classes: ArrayLike | None = None) -> NDArray[Any]:
    """Replace each label at random according to a transition matrix.

    A `LabelsWarning` is issued if the labels are integers below c without a 0, because they may count from 1.

    Parameters
    ----------
    labels : array-like of shape (n,)
        Labels: integers, strings or bools.
    T : array-like of shape (c, c)
        Transition matrix. A label of class ``i`` becomes class ``j`` with probability ``T[i, j]``.
    rng : int, numpy.random.Generator or None, default=None
        Seed or random generator.
    classes : array-like of shape (c,), default=None
        Class of each row of `T`. By default the classes are 0 to c - 1 if all labels are integers in this range, False
        and True for bools, and otherwise the sorted distinct labels.

    Returns
    -------
    noisy : ndarray of shape (n,)
        Labels with noise, of the same type. The input is not changed.

    Examples
    --------
    >>> from labelsieve import noise, theory
    >>> noise.corrupt(["a", "b", "c", "a"], theory.pair(3, 1.0), rng=0)
    array(['b', 'c', 'a', 'b'], dtype='<U1')
    >>> labels = [0, 1, 2] * 1000
    >>> noisy = noise.corrupt(labels, theory.symmetric(3, 0.4), rng=0)
    >>> round(float((noisy != labels).mean()), 2)
    0.4
    """
    t = check_transition_matrix(T)
    given, codes, names = _encode(labels, len(t), classes)
    uniform = generator(rng).random(len(codes))
    # The last threshold is exactly 1, so that rounding never draws a class of probability 0.
    thresholds = np.cumsum(t, axis=1)
    thresholds /= thresholds[:, -1:]
    noisy = np.empty_like(codes)
    for i, members in _by_class(codes, len(t)):
        noisy[members] = np.searchsorted(thresholds[i], uniform[members], side="right")
    return _decode(noisy, names, given)


def corrupt_by_instance(
    labels: ArrayLike,
    features: ArrayLike,
    ratio: float,
    rng: Seed = None,
    *,
    classes: ArrayLike | None = None,
    spread: float = 0.1,
) -> NDArray[Any]:
    """Corrupt labels with noise that depends on the features of each sample.

    This is similar to the part-dependent noise of Xia et al. (2020). Each sample has its own probability of a wrong
    label, drawn from a normal distribution around `ratio` that is truncated symmetrically. A random projection of the
    features, one per true class, decides which wrong class is likely.

    Parameters
    ----------
    labels : array-like of shape (n,)
        Labels: integers, strings or bools.
    features : array-like of shape (n, d)
        Features of the samples.
    ratio : float
        Noise ratio: mean probability of a wrong label.
    rng : int, numpy.random.Generator or None, default=None
        Seed or random generator.
    classes : array-like of shape (c,), default=None
        Classes. The default is the sorted distinct labels.
    spread : float, default=0.1
        Standard deviation of the probability of a wrong label between samples.

    Returns
    -------
    noisy : ndarray of shape (n,)
        Labels with noise, of the same type.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from labelsieve import noise
    >>> x, y = load_iris(return_X_y=True)
    >>> noisy = noise.corrupt_by_instance(y, x, 0.3, rng=0)
    >>> bool(0.2 < (noisy != y).mean() < 0.4)
    True
    """
    check_range("ratio", ratio, 0, 1)
    check_range("spread", spread, 0, math.inf)
    given, codes, names = _encode(labels, None, classes)
    x = _rows(features, len(codes))
    source = generator(rng)
    rates = _flip_rates(len(codes), ratio, spread, source)
    mean, scale = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    if not (np.isfinite(mean).all() and np.isfinite(scale).all()):
        raise InputError("features: contain NaN or infinite values")
    # Standardised features divided by sqrt(d) give projections of about unit variance.
    scale = np.where(scale > 0, scale, 1.0) * np.sqrt(max(x.shape[1], 1))
    c = len(names)
    noisy = codes.copy()
    for i, members in _by_class(codes, c):
        projection = source.standard_normal((x.shape[1], c))
        for start in range(0, len(members), CHUNK_ROWS):
            part = members[start : start + CHUNK_ROWS]
            logits = ((x[part] - mean) / scale) @ projection
            logits[:, i] = -np.inf
            wrong = _draw(logits, source)
            flip = source.random(len(part)) < rates[part]
            noisy[part] = np.where(flip, wrong, i)
    return _decode(noisy, names, given)


def load_matrix(path: str | Path) -> Matrix:
    """Read a transition matrix from a file.

    Parameters
    ----------
    path : str or Path
        ``.csv`` file with numbers only, ``.json`` file with rows or a run's ``summary.json``, or ``.npy`` file.

    Returns
    -------
    T : ndarray of shape (c, c)
        Validated transition matrix.

    Examples
    --------
    >>> import json, tempfile
    >>> from labelsieve import noise
    >>> with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    ...     json.dump([[0.9, 0.1], [0.2, 0.8]], file)
    ...     file.flush()
    ...     noise.load_matrix(file.name)
    array([[0.9, 0.1],
           [0.2, 0.8]])
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    try:
        return check_transition_matrix(_read_matrix(file))
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    except Exception as error:  # a damaged file can raise nearly any exception
        raise InputError(f"{file}: not a matrix of plain numbers ({first_line(error)})") from None


def _read_matrix(file: Path) -> Any:
    suffix = file.suffix.lower()
    if suffix == ".npy":
        return np.load(regular_file(file), allow_pickle=False)
    if suffix in (".csv", ".txt"):
        with warnings.catch_warnings(action="error"):  # an empty file is a warning
            return np.loadtxt(regular_file(file), delimiter=",", quotechar='"', ndmin=2, encoding="utf-8-sig")
    if suffix != ".json":
        raise InputError("expected a .csv, .json or .npy file")
    content = json.loads(read_text(file))
    if isinstance(content, dict) and not {"transition_matrix", "T"} & content.keys():
        raise InputError("expected a list of rows, or an object with transition_matrix")
    return content.get("transition_matrix", content.get("T")) if isinstance(content, dict) else content


def generator(rng: Seed) -> np.random.Generator:
    """Return a random generator.

    Parameters
    ----------
    rng : int, numpy.random.Generator or None, default=None
        Seed or random generator.

    Returns
    -------
    generator : numpy.random.Generator
        `rng` itself if it is a generator.

    Examples
    --------
    >>> from labelsieve import noise
    >>> int(noise.generator(0).integers(10))
    8
    """
    if isinstance(rng, np.random.Generator):
        return rng
    if rng is not None:
        check_integer("rng", rng, otherwise=" or a numpy Generator")
    return np.random.default_rng(rng)


# ---------------------------------------------------------------- labels to codes and back


def _encode(labels: ArrayLike, c: int | None, classes: ArrayLike | None) -> tuple[NDArray[Any], IntArray, NDArray[Any]]:
    given = as_labels(labels)
    refuse_missing(given)
    if classes is not None:
        names = np.asarray(classes)
        if names.ndim != 1 or len(set(names.tolist())) != len(names):
            raise InputError("classes: expected distinct names in one dimension")
    elif c is not None and _are_codes(given, c):
        names = np.arange(c)
        _warn_of_ones(given, c)
    elif given.dtype.kind == "b":
        names = np.array([False, True])
    else:
        names = distinct(given)
    if c is not None and len(names) != c:
        raise InputError(
            f"T: is {c} x {c} but the labels have {len(names)} classes; pass classes= in the order of the rows of T"
        )
    if len(names) < 2:
        raise InputError("labels: contain one class only; noise needs at least 2")
    return given, codes_among(given, names.tolist()), names


def _decode(codes: IntArray, names: NDArray[Any], given: NDArray[Any]) -> NDArray[Any]:
    """Return the class of each code in the type of the labels, or in a wider type if a class needs it."""
    dtype = given.dtype
    narrow = dtype.kind in "iu" and len(names) > 0 and int(names.max()) > np.iinfo(dtype).max
    if narrow or dtype.kind in "US":
        dtype = np.result_type(dtype, names.dtype)
    return names.astype(dtype)[codes]


def _are_codes(given: NDArray[Any], c: int) -> bool:
    return given.dtype.kind in "iu" and (len(given) == 0 or (int(given.min()) >= 0 and int(given.max()) < c))


def _warn_of_ones(given: NDArray[Any], c: int) -> None:
    """Warn if the labels may count from 1. A single class is not ambiguous enough for a warning."""
    if len(given) and int(given.min()) > 0 and given.min() < given.max():
        warnings.warn(
            f"labels: no label is 0; the labels are read as 0..{c - 1}. Pass classes=range({c}) to confirm this, or "
            f"classes=range(1, {c + 1}) if they count from 1",
            LabelsWarning,
            stacklevel=4,
        )


def _by_class(codes: IntArray, c: int) -> Iterator[tuple[int, IntArray]]:
    """Yield each class that occurs with the positions of its samples."""
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(c + 1))
    for i in range(c):
        if bounds[i] < bounds[i + 1]:
            yield i, order[bounds[i] : bounds[i + 1]]


# ---------------------------------------------------------------- features


def _rows(features: ArrayLike, n: int) -> NDArray[Any]:
    """Validate the features and return one row per label."""
    x = np.asarray(features)
    if x.ndim < 1 or x.shape[0] != n:
        raise InputError(f"features: {x.shape[0] if x.ndim else 0} rows but {n} labels")
    if x.dtype.kind == "O":  # pandas: several column types, or missing values
        try:
            x = x.astype(np.float64)
        except (TypeError, ValueError):
            raise InputError("features: expected numbers without missing values") from None
    if x.dtype.kind not in "iufb":
        raise InputError("features: expected numbers")
    return (x.astype(np.uint8) if x.dtype.kind == "b" else x).reshape(len(x), -1)


# ---------------------------------------------------------------- draws


def _flip_rates(n: int, ratio: float, spread: float, source: np.random.Generator) -> FloatArray:
    """Draw from a normal distribution around `ratio`, truncated symmetrically so that the mean is exact."""
    reach = min(ratio, 1 - ratio)
    if reach == 0 or spread == 0:
        return np.full(n, float(ratio))
    # A very narrow truncated normal is nearly uniform, and rejection would take too long.
    if reach < spread / 20:
        return source.uniform(ratio - reach, ratio + reach, n)
    offset = source.normal(0, spread, n)
    while len(outside := np.flatnonzero(np.abs(offset) > reach)):
        offset[outside] = source.normal(0, spread, len(outside))
    return ratio + offset


def _draw(logits: FloatArray, source: np.random.Generator) -> IntArray:
    """Draw one class per row from softmax(logits) with the Gumbel-max trick."""
    return np.asarray(np.argmax(logits + source.gumbel(size=logits.shape), axis=1), dtype=np.int64)


__all__ = ["PATTERNS", "LabelsWarning", "corrupt", "corrupt_by_instance", "generator", "load_matrix", "matrix"]
