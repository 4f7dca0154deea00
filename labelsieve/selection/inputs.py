"""Users' samples and labels, checked once, with errors that say what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.errors import InputError
from labelsieve.missing import is_missing
from labelsieve.selection.defaults import is_text
from labelsieve.types import IntArray

NAMED = 5  # classes in a warning that is about many
ENCODE = "turn it into numbers first (sklearn.preprocessing.OneHotEncoder, in a pipeline with your classifier)"


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
    if labels.dtype.kind == "S" or (labels.dtype.kind == "O" and any(isinstance(label, bytes) for label in labels)):
        raise InputError('y: labels are bytes; decode them first: np.char.decode(y, "utf-8")')
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
    X = without_torch(X)
    refuse_holes_among_texts(X)
    check_lengths(X, y)
    if is_text(X):
        check_words(X, own=inner not in (None, "tfidf"))
        forget_columns(estimator)
        return X
    if is_frame(X):
        check_frame(X, allow_nan=allows_nan(inner), inner=inner)
        validate_data(estimator, X=X, skip_check_array=True)
        return X
    if takes_pictures(inner) and getattr(X, "ndim", 2) > 2:
        forget_columns(estimator)
        return checked_arrays(as_pictures(X), own=inner is not None)
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


def check_words(texts: Sequence[str], *, own: bool) -> None:
    """Some text has something that can be counted; what a classifier of one's `own` counts, nobody knows."""
    from labelsieve.data.text import tokens

    if not any(map(str.strip if own else tokens, texts)):
        nothing = "nothing is written in them" if own else "there are no words in them, of two letters or more"
        raise InputError(f"X: the texts say nothing: {nothing}; give other texts, or other features")


def without_torch(X: Any) -> Any:
    """A torch tensor, from whatever device, as the same numpy array; anything else as it is."""
    if not (hasattr(X, "detach") and hasattr(X, "cpu")):
        return X
    X = X.detach().cpu()
    return (X.float() if str(X.dtype) == "torch.bfloat16" else X).numpy()


def as_pictures(X: Any) -> Any:
    """Grey pictures, uint8 [n, height, width], get their one channel, as those of an .npz file do."""
    return X[..., None] if getattr(X, "ndim", 2) == 3 and X.dtype == np.uint8 else X


def checked_arrays(X: Any, *, own: bool) -> Any:
    """Pictures, or arrays of any shape for a network of one's own; whether a named one reads them it says itself."""
    if X.dtype.kind not in "biuf":
        raise InputError(f"X: an array of numbers is needed, not of {X.dtype}")
    if not own and X.dtype != np.uint8:
        raise InputError(only_own_networks(X, "estimator"))
    if len(X) < 2:
        raise InputError(f"X: there are {len(X)} samples; two or more are needed")
    if X.dtype.kind == "f" and not all(np.isfinite(X[i : i + 1024]).all() for i in range(0, len(X), 1024)):
        raise InputError("X: it contains NaN or infinity; fill these values or drop the samples")
    return X


def only_own_networks(X: Any, parameter: str) -> str:
    """What can be done with arrays of more than two axes that are no pictures."""
    return (
        f"X: {X.dtype} {list(X.shape)} is read by a network of your own: give {parameter} a function that returns one; "
        "pictures are uint8 [n, height, width, channels] or [n, height, width], rows X.reshape(len(X), -1)"
    )


def forget_columns(estimator: Any) -> None:
    """What an earlier fit knew of a table's columns is nothing that these samples have."""
    for name in ("n_features_in_", "feature_names_in_"):
        vars(estimator).pop(name, None)


def is_frame(X: Any) -> bool:
    return hasattr(X, "iloc") and getattr(X, "ndim", 1) == 2


def check_frame(frame: Any, *, allow_nan: bool, inner: Any = None) -> None:
    """One rule for columns of every kind: no infinity, no gap unless the classifier `inner` can have it (`allow_nan`),
    and numbers, unless it is a classifier of the user's own, which may read anything."""
    if len(frame.columns) == 1 and is_text(frame[frame.columns[0]]):
        raise InputError(f"X: a table of one column of texts; give the column itself, X[{frame.columns[0]!r}]")
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise InputError(f"X: several columns are called {twice!r}; give each a name of its own")
    for at, name in enumerate(frame.columns):
        column = frame.iloc[:, at]
        kind = getattr(column.dtype, "kind", "O")
        gaps = np.asarray(column.isna())
        if gaps.any() and not allow_nan and (kind in "biufc" or not encodes_gaps(inner)):
            raise InputError(
                f"X: column {name!r} has no value, or NaN, in {int(gaps.sum()):,} samples, the first is sample "
                f"{int(gaps.argmax())}; fill these values (sklearn.impute.SimpleImputer) or drop the samples"
            )
        values = column[~gaps]
        if kind not in "biuf" and takes_pictures(inner):
            check_numbers(values, name, np.flatnonzero(~gaps))
        if kind == "f" and np.isinf(values.to_numpy(dtype=np.float64)).any():
            raise InputError(f"X: column {name!r} contains infinity; fill these values or drop the samples")


def check_numbers(values: Any, name: Any, rows: IntArray) -> None:
    """The values of a column that does not say what they are, and in which rows they stand."""
    if (kind := getattr(values.dtype, "kind", "O")) in "mMc":
        what = {"m": "lengths of time", "M": "dates", "c": "complex numbers"}[kind]
        raise InputError(f"X: column {name!r} holds {what}; make plain numbers of them first, or drop it")
    for row, value in zip(rows.tolist(), values, strict=True):
        try:
            number = float(value)
        except (TypeError, ValueError):
            shown = f"the first is {value!r:.60} in sample {row}"
            told = f"X: column {name!r} holds texts where numbers are needed, {shown}; {ENCODE}, or drop it"
            raise InputError(told) from None
        if np.isinf(number):
            raise InputError(f"X: column {name!r} contains infinity; fill these values or drop the samples")


def encodes_gaps(inner: Any) -> bool:
    """Whether a pipeline has a step for which having no value is a category like others, as OneHotEncoder is one."""
    from sklearn.utils import get_tags

    parts = inner.get_params(deep=True).values() if hasattr(inner, "get_params") else ()
    tags = [get_tags(part).input_tags for part in parts if hasattr(part, "__sklearn_tags__")]
    return any(tag.categorical and tag.allow_nan for tag in tags)


def allows_nan(inner: Any) -> bool:
    from sklearn.utils import get_tags

    if inner is None or not hasattr(inner, "__sklearn_tags__") or isinstance(inner, type):
        return False
    parts = inner.get_params(deep=True).values()
    # A pipeline does not say it of itself, but one that fills gaps can have them.
    fills = any(type(part).__module__.startswith("sklearn.impute") for part in parts)
    return fills or bool(get_tags(inner).input_tags.allow_nan)


def columns_of(x: Any) -> int | None:
    """How many columns rows have, as their owner counts them; None of texts, pictures and other arrays."""
    if (encoding := getattr(x, "encoding", None)) is not None:  # a category is one column, however many numbers
        return len(encoding.columns)
    shape: tuple[int, ...] = getattr(x, "shape", ())
    return int(shape[1]) if len(shape) == 2 else None


def about_rare(names: Sequence[Any]) -> str:
    """A sentence on classes that never were in both halves, however many they are."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    few = ", ".join(map(repr, names[:NAMED]))
    return f"too few samples to be in both halves, labels stay candidates: class {few}{more}"


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
