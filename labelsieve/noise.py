"""Transition matrices in, corrupted labels out: exact in distribution, seeded, the input never changed."""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelsieve.errors import InputError
from labelsieve.missing import as_labels, refuse_missing
from labelsieve.theory import PATTERNS, Matrix, check_transition_matrix, matrix
from labelsieve.types import FloatArray, IntArray

Seed = int | np.random.Generator | None

# Rows of the n x c probabilities of instance-dependent noise that exist at once.
CHUNK_ROWS = 65_536


class LabelsWarning(UserWarning):
    """Labels that may mean either of two things; `classes` says which."""


def corrupt(labels: ArrayLike, T: ArrayLike, rng: Seed = None, classes: ArrayLike | None = None) -> NDArray[Any]:
    """Each label of class i becomes class j with probability T[i, j], independently; the labels' type is kept.

    Rows of T follow `classes`. Without it: 0..c-1 where the labels are whole numbers in that range, False and True for
    bools, else the sorted distinct labels. A LabelsWarning comes where 0 is not among whole numbers below c: they may
    as well count from 1, and the last class not be there.
    """
    t = check_transition_matrix(T)
    given, codes, names = _encode(labels, len(t), classes)
    uniform = generator(rng).random(len(codes))
    # Thresholds end at exactly 1, so that a class of probability 0 is never drawn, not even by rounding.
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
    """Noise that depends on the sample: its own flip rate, and wrong classes that follow from its features.

    In the manner of part-dependent noise (Xia et al. 2020): the flip rate of a sample is a normal draw around `ratio`
    (deviation `spread`), cut off at the same distance on both sides so that its mean is `ratio`; a random projection of
    the features, one for each true class, says which wrong class the sample looks like. Features may be sparse.
    """
    ratio, spread = _number("ratio", ratio), _number("spread", spread)
    if not 0 <= ratio <= 1:
        raise InputError(f"ratio: {ratio:g} is outside [0, 1]")
    if not spread >= 0:
        raise InputError(f"spread: {spread:g} is negative")
    given, codes, names = _encode(labels, None, classes)
    x = _rows(features, len(codes))
    source = generator(rng)
    rates = _flip_rates(len(codes), ratio, spread, source)
    mean, scale = _moments(x)
    if not (np.isfinite(mean).all() and np.isfinite(scale).all()):
        raise InputError("features: hold NaN or infinite values")
    # Standardised features over sqrt(d): projections of about unit variance whatever the data.
    scale = np.where(scale > 0, scale, 1.0) * np.sqrt(max(x.shape[1], 1))
    c = len(names)
    noisy = codes.copy()
    for i, members in _by_class(codes, c):
        projection = source.standard_normal((x.shape[1], c))
        for start in range(0, len(members), CHUNK_ROWS):
            part = members[start : start + CHUNK_ROWS]
            logits = _project(x[part], mean, scale, projection)
            logits[:, i] = -np.inf
            wrong = _draw(logits, source)
            flip = source.random(len(part)) < rates[part]
            noisy[part] = np.where(flip, wrong, i)
    return _decode(noisy, names, given)


def load_matrix(path: str | Path) -> Matrix:
    """T from a .csv (numbers alone), .json (rows, or a run's summary.json) or .npy file, checked."""
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    suffix = file.suffix.lower()
    if suffix == ".npy":
        try:
            return check_transition_matrix(np.load(file, allow_pickle=False))
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
        except (ValueError, EOFError):
            raise InputError(f"{file}: not a .npy file of plain numbers") from None
    if suffix == ".json":
        rows = _read_json(file)
    elif suffix in (".csv", ".txt"):
        rows = _read_csv(file)
    else:
        raise InputError(f"{file}: expected a .csv, .json or .npy file")
    try:
        return check_transition_matrix(rows)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def generator(rng: Seed) -> np.random.Generator:
    """A Generator as it is, or one from a seed."""
    if isinstance(rng, np.random.Generator):
        return rng
    if rng is not None and (isinstance(rng, bool) or not isinstance(rng, int | np.integer) or rng < 0):
        raise InputError(f"rng: expected a whole number of at least 0 or a numpy Generator, got {rng!r}")
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
        try:
            names = np.unique(given)
        except TypeError:
            raise InputError("labels: hold text and numbers at once; use one kind") from None
    if c is not None and len(names) != c:
        raise InputError(
            f"T: is {c} x {c} but the labels have {len(names)} classes; pass classes= in the order of T's rows"
        )
    if len(names) < 2:
        raise InputError("labels: hold one class only; noise needs at least 2")
    if given.dtype.kind in "iu" and names.dtype.kind in "iu" and np.array_equal(names, np.arange(len(names))):
        inside = (given >= 0) & (given < len(names))
        codes = given.astype(np.int64)
    else:
        try:
            order = np.argsort(names, kind="stable")
            place = np.minimum(np.searchsorted(names, given, sorter=order), len(names) - 1)
        except TypeError:
            raise InputError("classes: are not of the labels' kind, or of several (text and numbers)") from None
        codes = order[place].astype(np.int64)
        inside = names[codes] == given
    if not inside.all():
        row = int(np.flatnonzero(~inside)[0])
        raise InputError(f"labels: {given[row : row + 1].tolist()[0]!r} in row {row} is not one of the classes")
    return given, codes, names


def _decode(codes: IntArray, names: NDArray[Any], given: NDArray[Any]) -> NDArray[Any]:
    """Names of the codes in the labels' own type, or in a wider one that holds every class."""
    dtype = given.dtype
    narrow = dtype.kind in "iu" and len(names) > 0 and int(names.max()) > np.iinfo(dtype).max
    if narrow or dtype.kind in "US":
        dtype = np.result_type(dtype, names.dtype)
    return names.astype(dtype)[codes]


def _are_codes(given: NDArray[Any], c: int) -> bool:
    return given.dtype.kind in "iu" and (len(given) == 0 or (int(given.min()) >= 0 and int(given.max()) < c))


def _warn_of_ones(given: NDArray[Any], c: int) -> None:
    """Codes 0..c-1 without a 0 look as labels 1..c without the last do. One class alone: a look at one row of T."""
    if len(given) and int(given.min()) > 0 and given.min() < given.max():
        warnings.warn(
            f"labels: 0 is not among them, and they are read as codes 0..{c - 1}; pass classes=range({c}) if they are, "
            f"classes=range(1, {c + 1}) if they count from 1",
            LabelsWarning,
            stacklevel=4,
        )


def _by_class(codes: IntArray, c: int) -> Iterator[tuple[int, IntArray]]:
    """Every class that occurs, with the positions of its samples: one sort instead of c passes."""
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(c + 1))
    for i in range(c):
        if bounds[i] < bounds[i + 1]:
            yield i, order[bounds[i] : bounds[i + 1]]


# ---------------------------------------------------------------- features


def _rows(features: Any, n: int) -> Any:
    """Numbers, one row a label: an array of two dimensions, or a sparse matrix that can be cut by rows."""
    sparse = hasattr(features, "tocsr")
    x = features.tocsr() if sparse else np.asarray(features)
    if x.ndim < 1 or x.shape[0] != n:
        raise InputError(f"features: {x.shape[0] if x.ndim else 0} rows but {n} labels")
    if x.dtype.kind == "O" and not sparse:  # as pandas gives a table of several types, or one with gaps
        try:
            x = x.astype(np.float64)
        except (TypeError, ValueError):
            raise InputError("features: expected numbers, and no gaps among them") from None
    if x.dtype.kind not in "iufb":
        raise InputError("features: expected numbers")
    if sparse:
        return x.astype(np.float64)
    return (x.astype(np.uint8) if x.dtype.kind == "b" else x).reshape(len(x), -1)


def _moments(x: Any) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of each column."""
    if isinstance(x, np.ndarray):
        return x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    from sklearn.utils.sparsefuncs import mean_variance_axis

    if not np.isfinite(x.data).all():
        raise InputError("features: hold NaN or infinite values")
    mean, variance = mean_variance_axis(x, axis=0)
    return mean, np.sqrt(variance)


def _project(x: Any, mean: FloatArray, scale: FloatArray, projection: FloatArray) -> FloatArray:
    if isinstance(x, np.ndarray):
        return np.asarray(((x - mean) / scale) @ projection)
    # Without the mean taken off, which would fill what is empty.
    return np.asarray(x @ (projection / scale[:, None]) - (mean / scale) @ projection)


def _number(name: str, value: Any) -> float:
    if not isinstance(value, bool | str | bytes):
        try:
            return float(value)
        except (TypeError, ValueError):
            pass
    raise InputError(f"{name}: expected a number, got {value!r}"[:200].replace("\n", " "))


# ---------------------------------------------------------------- draws


def _flip_rates(n: int, ratio: float, spread: float, source: np.random.Generator) -> FloatArray:
    """Normal around `ratio`, redrawn until within min(ratio, 1 - ratio) of it: symmetric, so the mean is exact."""
    reach = min(ratio, 1 - ratio)
    if reach == 0 or spread == 0:
        return np.full(n, float(ratio))
    # Far narrower than the normal, the cut-off distribution is flat: draw that directly rather than reject for ever.
    if reach < spread / 20:
        return source.uniform(ratio - reach, ratio + reach, n)
    offset = source.normal(0, spread, n)
    while len(outside := np.flatnonzero(np.abs(offset) > reach)):
        offset[outside] = source.normal(0, spread, len(outside))
    return ratio + offset


def _draw(logits: FloatArray, source: np.random.Generator) -> IntArray:
    """One class a row from softmax(logits), by the Gumbel maximum."""
    return np.asarray(np.argmax(logits + source.gumbel(size=logits.shape), axis=1), dtype=np.int64)


# ---------------------------------------------------------------- files


def _read_csv(file: Path) -> list[list[float]]:
    rows: list[list[float]] = []
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            for line, fields in enumerate(csv.reader(stream), start=1):
                if not any(field.strip() for field in fields):
                    continue
                try:
                    rows.append([float(field) for field in fields])
                except ValueError:
                    raise InputError(f"{file}: line {line} holds something that is not a number") from None
                if len(rows[-1]) != len(rows[0]):
                    raise InputError(
                        f"{file}: line {line} has {len(rows[-1])} values, the first row has {len(rows[0])}"
                    )
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"{file}: not a CSV text file") from None
    if not rows:
        raise InputError(f"{file}: is empty")
    return rows


def _read_json(file: Path) -> Any:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{file}: not valid JSON ({error})") from None
    if isinstance(content, dict):
        for key in ("transition_matrix", "T"):
            if key in content:
                return content[key]
        raise InputError(f"{file}: expected a list of rows, or an object with transition_matrix")
    return content


__all__ = ["PATTERNS", "LabelsWarning", "corrupt", "corrupt_by_instance", "generator", "load_matrix", "matrix"]
