"""Users' samples and labels, checked once, with errors that say what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.errors import InputError
from labelsieve.missing import is_missing
from labelsieve.selection.defaults import is_text
from labelsieve.types import IntArray


def encode_labels(y: Any) -> tuple[NDArray[Any], IntArray]:
    """(sorted classes, codes). Ints, strings and bools keep their type."""
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import column_or_1d

    if y is None:
        raise InputError("y: labels are required; requires y to be passed, but the target y is None")
    labels = column_or_1d(as_array(y), warn=True)
    missing = is_missing(labels)
    if missing.any():
        where = np.flatnonzero(missing)
        raise InputError(f"y: {len(where)} labels are missing, the first at sample {where[0]}; drop or fill them")
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise InputError("y: it contains infinity, which is no class; drop these samples")
    try:
        classes, codes = np.unique(labels, return_inverse=True)
        check_classification_targets(labels)
    except TypeError:
        raise InputError(
            "y: labels of different kinds (numbers and strings) cannot be mixed; make them all strings"
        ) from None
    except ValueError as problem:  # numbers that are no classes
        raise InputError(f"y: {problem}") from None
    if len(classes) < 2:
        raise InputError("y: there is one class only; samples of two classes or more are needed")
    return classes, codes.astype(np.int64)


def group_codes(groups: Any, samples: int) -> IntArray:
    """One code a sample, the same for members of one group."""
    names = np.asarray(groups)
    if names.shape != (samples,):
        raise InputError(f"groups: expected one value a sample, {samples:,} of them, got {names.shape}")
    missing = is_missing(names)
    if missing.any():
        where = np.flatnonzero(missing)
        raise InputError(f"groups: {len(where):,} are missing, the first at sample {where[0]}; give each a value")
    codes = {name: code for code, name in enumerate(dict.fromkeys(names.tolist()))}
    if len(codes) < 2:
        raise InputError("groups: all samples are of one group; two or more are needed")
    return np.array([codes[name] for name in names.tolist()], dtype=np.int64)


def check_lengths(X: Any, y: Any) -> None:
    """As many labels as samples; that there are none is told where labels are read."""
    from sklearn.utils.validation import check_consistent_length

    if y is not None:
        check_consistent_length(X, as_array(y))


def check_samples(estimator: Any, X: Any, y: Any) -> Any:
    """X as the trainer will index it; sets n_features_in_ (and names) on `estimator` where X is a table."""
    from sklearn.utils.validation import validate_data

    inner = estimator.estimator
    refuse_holes_among_texts(X)
    check_lengths(X, y)
    if is_text(X):
        return X
    if hasattr(X, "iloc"):
        validate_data(estimator, X=X, skip_check_array=True)
        check_frame(X, allow_nan=allows_nan(inner))
        return X
    if takes_pictures(inner) and getattr(X, "ndim", 2) > 2:
        if X.dtype.kind == "f" and not all(np.isfinite(X[i : i + 1024]).all() for i in range(0, len(X), 1024)):
            raise InputError("X: it contains NaN or infinity")
        return X
    finite: Any = "allow-nan" if allows_nan(inner) else True
    return validate_data(estimator, X=X, accept_sparse="csr", ensure_all_finite=finite, ensure_min_samples=2)


def refuse_holes_among_texts(X: Any) -> None:
    """A sequence of texts and of nothing is no sequence of texts, and would be taken for a broken table."""
    if isinstance(X, (str, bytes)) or getattr(X, "ndim", 1) != 1 or (hasattr(X, "dtype") and X.dtype.kind not in "OUT"):
        return
    values = list(X) if hasattr(X, "__len__") else []
    if any(isinstance(value, str) for value in values):
        missing = np.flatnonzero(is_missing(np.array([*values, None], dtype=object))[:-1])
        if len(missing):
            raise InputError(
                f"X: {len(missing)} texts are missing, the first at sample {missing[0]}; drop these samples"
            )


def check_frame(frame: Any, *, allow_nan: bool) -> None:
    if len(frame.columns) == 1 and is_text(frame[frame.columns[0]]):
        raise InputError(f"X: a table of one column of texts; give the column itself, X[{frame.columns[0]!r}]")
    for name, dtype in zip(frame.columns, frame.dtypes, strict=True):
        if getattr(dtype, "kind", "O") == "f":
            column = np.asarray(frame[name])
            if np.isinf(column).any() or (not allow_nan and np.isnan(column).any()):
                raise InputError(f"X: column {name!r} contains NaN or infinity; fill or drop these samples")


def allows_nan(inner: Any) -> bool:
    from sklearn.utils import get_tags

    if inner is None or not hasattr(inner, "__sklearn_tags__") or isinstance(inner, type):
        return False
    parts = inner.get_params(deep=True).values()
    # A pipeline does not say it of itself, but one that fills gaps can have them.
    fills = any(type(part).__module__.startswith("sklearn.impute") for part in parts)
    return fills or bool(get_tags(inner).input_tags.allow_nan)


def takes_pictures(inner: Any) -> bool:
    """Networks take arrays of any shape; where nothing is named it is chosen by what the samples are."""
    return inner is None or isinstance(inner, str) or (callable(inner) and not hasattr(inner, "fit"))


def as_array(y: Any) -> NDArray[Any]:
    """Labels as an array that keeps None and NaN visible among strings."""
    if hasattr(y, "__array__") and np.asarray(y).ndim:
        return np.asarray(y)
    if isinstance(y, str | bytes) or not hasattr(y, "__len__") or hasattr(y, "__array__"):
        raise InputError(f"y: expected one label a sample, got {y!r}")
    values = list(y)
    if any(value is None or isinstance(value, str) for value in values):
        return np.array(values, dtype=object) if any(not isinstance(v, str) for v in values) else np.array(values)
    return np.asarray(values)
