"""Check the samples and labels that users pass to the scikit-learn estimators."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence, Set, Sized
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from labelsieve.checks import is_missing, label_array, without_mask
from labelsieve.data.columns import Encoding, Origin, TableX
from labelsieve.data.features import read_features
from labelsieve.data.read_options import ReadOptions
from labelsieve.data.text import tokens
from labelsieve.errors import InputError
from labelsieve.frames import check_columns, frame_table, is_frame
from labelsieve.models.choose import Classifier, SampleInfo, columns_of, numbers_of, own_network_needed
from labelsieve.progress import counted, join_names
from labelsieve.types import IntArray, LabelledData

MAX_NAMED_CLASSES = 5  # in a warning about many classes
ROWS_PER_CHECK = 1024  # arrays are checked for NaN in blocks, so that the check needs little memory


@runtime_checkable
class Array(Protocol):
    """A numpy array, a sparse matrix, or a data frame or series of pandas."""

    ndim: int


def encode_labels(y: Any) -> tuple[NDArray[Any], IntArray]:
    """Return the sorted classes and the code of each label. Ints, strings and bools keep their type."""
    if y is None:
        raise InputError("y: labels are required; requires y to be passed, but the target y is None")
    labels = column_or_1d(label_array(y, "y"), warn=True)
    missing = np.flatnonzero(is_missing(labels))
    if len(missing):
        count = counted(len(missing), "label is", "labels are")
        raise InputError(f"y: {count} missing, the first at sample {missing[0]}; drop or fill them")
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise InputError("y: it contains infinity, which is not a class; drop these samples")
    if labels.dtype.kind == "S" or (labels.dtype.kind == "O" and any(isinstance(label, bytes) for label in labels)):
        raise InputError('y: labels are bytes; decode them first: np.char.decode(y, "utf-8")')
    if labels.dtype.kind == "O" and not all(isinstance(label, str) for label in labels):
        types = sorted({type(label).__name__ for label in labels})
        wrong = f"mix {' and '.join(types)}" if len(types) > 1 else f"are of type {types[0]}"
        raise InputError(f"y: labels {wrong}; convert all of them to strings: [str(label) for label in y]")
    try:
        check_classification_targets(labels)
    except ValueError as problem:  # continuous numbers
        raise InputError(f"y: {problem}") from None
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise InputError("y: there is only one class; labels of at least two classes are needed")
    return classes, codes.astype(np.int64)


def group_codes(groups: Any, samples: int) -> IntArray:
    """Return one code per sample; samples of the same group have the same code."""
    names = label_array(groups, "groups")
    if names.shape != (samples,):
        raise InputError(f"groups: expected one value per sample, {samples:,} values, got shape {names.shape}")
    missing = np.flatnonzero(is_missing(names))
    if len(missing):
        count = counted(len(missing), "value is", "values are")
        raise InputError(f"groups: {count} missing, the first at sample {missing[0]}; fill them")
    codes = {name: code for code, name in enumerate(dict.fromkeys(names.tolist()))}
    if len(codes) < 2:
        raise InputError("groups: all samples are in one group; at least two groups are needed")
    return np.array([codes[name] for name in names.tolist()], dtype=np.int64)


def check_lengths(X: Any, y: Any) -> None:
    """Raise ValueError unless X holds several samples and there is one label per sample."""
    if X is None or np.isscalar(X) or (isinstance(X, Mapping | Set | Iterator) and not issparse(X)):
        raise InputError(
            "X: expected an array, a data frame, a list of texts, or pictures as uint8 [n, height, width, channels], "
            f"got {type(X).__name__}"
        )
    if y is not None:
        check_consistent_length(X, label_array(y, "y"))


def is_text(x: Any) -> bool:
    """Whether `x` is a sequence of strings, and not a table."""
    if isinstance(x, str) or dimensions(x, of_lists=1) != 1:
        return False
    if isinstance(x, np.ndarray) and x.dtype.kind not in "OUT":
        return False
    try:
        return len(x) > 0 and all(isinstance(value, str) for value in x)
    except TypeError:
        return False


def dimensions(x: Any, *, of_lists: int = 2) -> int:
    """Return the number of axes of an array, a frame or a sparse matrix; lists are not inspected."""
    return int(x.ndim) if isinstance(x, Array) else of_lists


def is_pictures(x: Any) -> bool:
    """Whether `x` is an array of pictures, uint8 [n, height, width, channels]."""
    return isinstance(x, np.ndarray) and x.ndim == 4 and x.dtype == np.uint8


def describe_samples(x: Any) -> SampleInfo:
    """Return what decides which model reads samples that were passed from Python."""
    if is_text(x):
        return SampleInfo("text", len(x))
    shape = np.shape(x) if not issparse(x) else x.shape
    if is_pictures(x):
        height, width, channels = shape[1:]
        return SampleInfo("pictures", shape[0], (channels, height, width))
    if len(shape) > 2:
        return SampleInfo("arrays", shape[0], tuple(shape[1:]))
    return SampleInfo("table", shape[0], tuple(shape[1:]), columns_of(x), sparse=issparse(x), numbers=numbers_of(x))


def unlabelled(x: Any) -> LabelledData:
    """Return samples that were passed from Python, as the models of labelsieve read them."""
    kind = describe_samples(x).kind
    none, names = np.empty(0, dtype=np.int64), np.empty(0, dtype=str)
    return LabelledData(x, none, (), names, "table" if kind == "arrays" else kind, name="X")


def check_samples(
    estimator: Any, X: Any, y: Any = None, *, model: Any, encoding: Encoding | None = None, fitting: bool = True
) -> Any:
    """Return X as the trainer indexes it; set n_features_in_ and the names of the columns if X is a table.

    `model` is the estimator's model. The user's own classifier gets a data frame as it is and may refuse it; the models
    of labelsieve read it like a table file. Unless `fitting`, the columns of X must be those of the samples that the
    estimator was fitted on, which are read with `encoding`.
    """
    X = without_mask(without_torch(X))
    check_lengths(X, y)
    check_no_missing_text(X)
    if isinstance(X, list | tuple) and any(isinstance(sample, Mapping) for sample in X):
        raise InputError("X: the samples are dictionaries; give a data frame, such as pandas.DataFrame(X)")
    if is_text(X):
        if fitting:
            check_words(X, own=not reads_arrays(model))
            forget_columns(estimator)
        return X
    if is_frame(X):
        check_columns(X)
        validate_data(estimator, X=X, skip_check_array=True, reset=fitting)  # stores the names of the columns
        return read_frame(X, encoding, fitting=fitting) if reads_arrays(model) else X
    if reads_arrays(model) and dimensions(X) > 2:
        if fitting:
            forget_columns(estimator)
        return check_array(with_channel(X), own=model is not None, least=2 if fitting else 1)
    finite: Any = "allow-nan" if allows_nan(model) else True
    try:
        return validate_data(
            estimator, X=X, accept_sparse="csr", ensure_all_finite=finite, ensure_min_samples=2 if fitting else 1,
            reset=fitting,
        )  # fmt: skip
    except ValueError as problem:
        if reads_arrays(model) and (fitting or encoding is not None) and has_nan(X):
            advice = "give a data frame, such as pandas.DataFrame(X), in which values may be missing, or fill them"
            raise InputError(f"X: the array contains NaN; {advice}") from None
        raise InputError(f"X: {' '.join(str(problem).split())}") from None


def has_nan(X: Any) -> bool:
    """Whether an array, or lists of numbers, contain NaN. Sparse matrices are not inspected."""
    try:
        array = np.asarray(X)
        return array.dtype.kind in "fO" and bool(np.isnan(array.astype(np.float64)).any())
    except (TypeError, ValueError):  # a sparse matrix, texts, or lists of different lengths
        return False


def check_no_missing_text(X: Any) -> None:
    """Raise InputError if some texts are missing: the list would be taken for a broken table."""
    if not isinstance(X, Sized) or dimensions(X, of_lists=1) != 1:
        return
    if isinstance(X, np.ndarray) and X.dtype.kind not in "OUT":
        return
    values = list(X)  # type: ignore[call-overload]
    if any(isinstance(value, str) for value in values):
        missing = np.flatnonzero(is_missing(np.array([*values, None], dtype=object))[:-1])
        if len(missing):
            count = counted(len(missing), "text is", "texts are")
            raise InputError(f"X: {count} missing, the first at sample {missing[0]}; drop these samples")


def check_words(texts: Sequence[str], *, own: bool) -> None:
    """Raise InputError if no text has a word; the user's own classifier may count anything but blanks."""
    if not any(map(str.strip if own else tokens, texts)):
        raise InputError("X: the texts have no words of two letters or more; give other texts, or other features")


def without_torch(X: Any) -> Any:
    """Return a torch tensor of any device as a numpy array; anything else unchanged."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(X, torch.Tensor):
        return X
    X = X.detach().cpu()
    return (X.float() if X.dtype == torch.bfloat16 else X).numpy()


def with_channel(X: Any) -> Any:
    """Give grey pictures, uint8 [n, height, width], their one channel."""
    return X[..., None] if X.ndim == 3 and X.dtype == np.uint8 else X


def check_array(X: Any, *, own: bool, least: int) -> Any:
    """Check pictures, or arrays of any shape for the user's own network."""
    if X.dtype.kind not in "biuf":
        raise InputError(f"X: expected an array of numbers, got {X.dtype}")
    if not own and X.dtype != np.uint8:
        raise InputError(own_network_needed(describe_samples(X), "estimator"))
    if len(X) < least:
        raise InputError(f"X: got {counted(len(X), 'sample')}; at least {least} are needed")
    blocks = range(0, len(X), ROWS_PER_CHECK)
    if X.dtype.kind == "f" and not all(np.isfinite(X[i : i + ROWS_PER_CHECK]).all() for i in blocks):
        raise InputError("X: it contains NaN or infinity; fill these values or drop the samples")
    return X


def forget_columns(estimator: Any) -> None:
    """Remove what an earlier fit stored about the columns of a table."""
    for name in ("n_features_in_", "feature_names_in_"):
        vars(estimator).pop(name, None)


def read_frame(frame: Any, encoding: Encoding | None = None, *, fitting: bool = True) -> Any:
    """Read a data frame as the command line reads a table: numbers, dates, categories and texts, with gaps."""
    table = frame_table(frame)
    if table.num_rows < 2 and encoding is None:
        raise InputError(f"X: got {counted(table.num_rows, 'sample')}; at least two are needed")
    notes: list[str] = []
    origin = Origin("X", lambda note: notes.append(str(note)), by_sample)
    x, _ = read_features(table, ReadOptions(encoding=encoding, labelled=fitting), origin)
    if isinstance(x, TableX):
        x.notes = tuple(notes)
    return x


def by_sample(row: int) -> str:
    return f"sample {row}"


def allows_nan(inner: Any) -> bool:
    """Whether a classifier reads missing values, or a pipeline fills them; a pipeline does not declare it itself."""
    if not isinstance(inner, BaseEstimator):
        return False
    fills = any(type(part).__module__.startswith("sklearn.impute") for part in inner.get_params(deep=True).values())
    return fills or bool(get_tags(inner).input_tags.allow_nan)


def rare_classes_warning(names: Sequence[Any]) -> str:
    """Name the classes that were never in both halves, however many there are."""
    listed = join_names(list(map(repr, names)), MAX_NAMED_CLASSES)
    return f"too few samples to be in both halves, labels stay candidates: class {listed}"


def reads_arrays(inner: Any) -> bool:
    """Whether a model reads arrays of any shape: networks do, and an automatic choice depends on the samples."""
    return inner is None or isinstance(inner, str) or (callable(inner) and not isinstance(inner, Classifier))
