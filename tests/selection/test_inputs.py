"""What INCV and NCV read: tensors, arrays of any shape, grey pictures, sparse rows, frames, texts."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, csr_matrix
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.exceptions import DataConversionWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

from labelsieve import INCV, NCV, CleanClassifier, RobustClassifier
from labelsieve.data.source import load_source
from labelsieve.errors import InputError
from labelsieve.frames import check_columns
from labelsieve.models.choose import named_classifier
from labelsieve.selection.estimators import RareClassWarning
from labelsieve.selection.inputs import encode_labels, rare_classes_warning, read_frame

LABELS = np.arange(80) % 2


def bright(shape: tuple[int, ...]) -> np.ndarray:
    """Bytes; those of class 1 are brighter."""
    return np.random.default_rng(0).integers(0, 120, (80, *shape), dtype=np.uint8) + (
        100 * LABELS.astype(np.uint8)
    ).reshape(-1, *[1] * len(shape))


def in_time() -> tuple[np.ndarray, np.ndarray]:
    """Sequences [n, time, 2] that rise or fall: their mean says nothing."""
    rng = np.random.default_rng(0)
    rising = np.linspace(-1, 1, 6)[None, :, None] * np.where(LABELS == 1, 1, -1)[:, None, None]
    return rising + rng.normal(0, 0.1, (80, 6, 2)), LABELS


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRU(2, 48, batch_first=True), nn.Linear(48, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0][:, -1])


def convolution(channels: int, side: int) -> nn.Module:
    """A linear network that reads pictures only: it learns brightness in a few steps, from any initialisation."""
    return nn.Sequential(nn.Conv2d(channels, 8, side), nn.Flatten(), nn.Linear(8, 2))


def test_tensors_are_read_as_the_same_arrays():
    x = bright((16, 16, 3))
    array = NCV("edges", random_state=0).fit(x, LABELS)
    tensor = NCV("edges", random_state=0).fit(torch.from_numpy(x), torch.from_numpy(LABELS))
    assert np.array_equal(array.suspicion_, tensor.suspicion_)
    sequences, y = in_time()
    by_network = [
        NCV(Recurrent, epochs=2, device="cpu", random_state=0).fit(kind, y).suspicion_
        for kind in (sequences, torch.from_numpy(sequences), torch.from_numpy(sequences).requires_grad_())
    ]
    assert np.array_equal(by_network[0], by_network[1]) and np.array_equal(by_network[0], by_network[2])
    rows = torch.from_numpy(load_iris().data).requires_grad_()
    assert NCV("logistic", random_state=0).fit(rows, load_iris().target).selected_.mean() > 0.9
    assert len(NCV("logistic", random_state=0).fit(rows.bfloat16(), load_iris().target).selected_) == 150


def test_own_networks_get_arrays_with_their_shape():
    x, y = in_time()
    found = NCV(Recurrent, epochs=60, protocol="paper", device="cpu", random_state=0).fit(x, y)
    assert found.selected_.mean() > 0.9
    seen = []

    class Watched(Recurrent):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x.detach())
            return super().forward(x)

    NCV(Watched, epochs=1, device="cpu", random_state=0).fit(1000 + 50 * x, y)
    assert {tuple(batch.shape[1:]) for batch in seen} == {(6, 2)}
    read = torch.cat([batch for batch in seen if batch.any()])  # not the zeros that it is tried with
    assert abs(float(read.mean())) < 0.2 and 0.8 < float(read.std()) < 1.2
    channels_first = bright((3, 9, 9)) / 255.0
    found = NCV(lambda: convolution(3, 9), epochs=15, device="cpu", random_state=0).fit(channels_first, LABELS)
    assert found.selected_.mean() > 0.9


def test_grey_pictures_have_one_channel():
    x = bright((16, 16))
    for name in (None, "edges"):
        grey, message = (NCV(name, random_state=0).fit(kind, LABELS) for kind in (x, x[..., None]))
        assert np.array_equal(grey.suspicion_, message.suspicion_)
    found = NCV(lambda: convolution(1, 16), epochs=15, device="cpu", random_state=0).fit(x, LABELS)
    assert found.selected_.mean() > 0.9


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((80, 6, 2)), r"\[6, 2\] need your own network: give estimator"),
        (np.zeros((80, 3, 8, 8), dtype=np.float32), r"\[3, 8, 8\] .* uint8 .* X.reshape"),
        (np.full((80, 6, 2), "a"), "array of numbers"),
        (np.full((80, 6, 2), np.nan), "NaN or infinity"),
    ],
)
def test_arrays_that_nobody_reads(x, message):
    with pytest.raises(InputError, match=message):
        INCV(Recurrent if "NaN" in message else None).fit(x, LABELS)


def test_what_was_known_of_a_tables_columns_is_forgotten():
    pandas = pytest.importorskip("pandas")
    x, y = load_iris(return_X_y=True)
    found = NCV("logistic", random_state=0).fit(pandas.DataFrame(x, columns=list("abcd")), y)
    assert found.n_features_in_ == 4 and len(found.feature_names_in_) == 4
    found.set_params(estimator=None).fit(["fig plum", "zinc iron"] * 40, LABELS)
    assert not hasattr(found, "n_features_in_") and not hasattr(found, "feature_names_in_")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("logistic", csr_array)]
    + [(name, csr_matrix) for name in ("forest", "logistic", "nearest", "neighbours", "svm", "trees")],
)
def test_sparse_rows_by_name(name: str, kind: Any):
    x, y = load_iris(return_X_y=True)
    # The protocol of the paper has two trainings; "auto" would measure the noise with six more.
    assert NCV(name, protocol="paper", random_state=0).fit(kind(x), y).selected_.mean() > 0.85


def test_boosting_says_who_reads_sparse_rows():
    x, y = load_iris(return_X_y=True)
    with pytest.raises(InputError, match=r"boosting does not read sparse rows; choose one of forest, logistic.*toarr"):
        NCV("boosting").fit(csr_matrix(x), y)
    assert "maxabsscaler" in named_classifier("svm", sparse=True).named_steps  # which keeps zeros


def frame(**more: Any) -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(load_iris().data, columns=list("abcd")).assign(**more)


def gaps(kind: str) -> Any:
    pandas = pytest.importorskip("pandas")
    values = [1.5, 2.5] * 75 if kind.startswith(("f", "F")) else [1, 2] * 75
    values[7] = None  # type: ignore[call-overload]
    return pandas.array(values, dtype=kind) if kind[0].isupper() else np.array(values, dtype=kind)


@pytest.mark.parametrize("kind", ["float64", "Float64", "Int64", "object"])
def test_gaps_in_columns(kind: str):
    with pytest.raises(ValueError, match=r"NaN|NA|NoneType"):  # of the user's own classifier
        INCV(LogisticRegression(max_iter=1000)).fit(frame(e=gaps(kind)), load_iris().target)
    assert NCV("logistic", random_state=0).fit(frame(e=gaps(kind)), load_iris().target).selected_.mean() > 0.85


def test_gaps_that_are_filled_or_encoded():
    colour = np.where(load_iris().data[:, 3] > 0.8, "blue", "red").astype(object)
    colour[::10] = None
    given = frame(colour=colour)
    encoded = make_column_transformer((OneHotEncoder(), ["colour"]), (StandardScaler(), list("abcd")))
    found = NCV(make_pipeline(encoded, LogisticRegression()), random_state=0).fit(given, load_iris().target)
    assert found.selected_.mean() > 0.85
    filled = make_pipeline(SimpleImputer(), LogisticRegression(max_iter=1000))
    assert NCV(filled, random_state=0).fit(frame(e=gaps("float64")), load_iris().target).selected_.mean() > 0.85
    with pytest.raises(ValueError, match="infinity"):
        NCV(filled).fit(frame(e=np.where(np.arange(150) == 3, np.inf, 1.0)), load_iris().target)


def mixed_columns() -> dict[str, list[Any]]:
    """Columns of all types: numbers, texts, categories, dates and several types, all with missing values."""
    days = [datetime.date(2024, 1, 1 + i % 28) for i in range(150)]
    columns: dict[str, list[Any]] = {
        "width": load_iris().data[:, 3].tolist(),
        "remark": [f"remark number {i} is about {'red' if i < 50 else 'blue'} ones" for i in range(150)],
        "colour": ["red", "blue", "green"] * 50,
        "day": days,
    }
    for at, values in enumerate(columns.values()):
        values[at + 5] = None
    return columns


def check_mixed(x: Any) -> None:
    found = NCV(random_state=0).fit(x, load_iris().target)
    assert found.selected_.mean() > 0.8 and found.n_features_in_ == 4
    read = read_frame(x)
    assert [column.name for column in read.encoding.columns] == ["width", "remark", "colour", "day"]
    assert read.encoding.texts == ["remark"]
    assert [column.form for column in read.encoding.columns if column.kind == "number"] == ["number", "date"]


def test_columns_with_one_value_are_left_out_of_samples_to_fit_only() -> None:
    x = frame(e=[7.0] * 150)
    assert read_frame(x).numbers.shape == (150, 4)
    assert read_frame(x, fitting=False).numbers.shape == (150, 5)  # for a model that was fitted on arrays


def test_data_frames_are_read_like_table_files(tmp_path: Path):
    pandas = pytest.importorskip("pandas")
    x = pandas.DataFrame(mixed_columns())
    check_mixed(x)
    x.assign(label=load_iris().target).to_csv(tmp_path / "t.csv", index=False)
    from_file = load_source(str(tmp_path / "t.csv")).x
    assert np.allclose(read_frame(x).numbers, from_file.numbers) and read_frame(x).texts == from_file.texts
    with pytest.raises(InputError, match="'e' has inf"):
        NCV().fit(frame(e=[1, 2, float("inf")] * 50), load_iris().target)
    several = frame(e=np.array([1, 2, "x"] * 50, dtype=object))
    assert NCV("logistic", random_state=0).fit(several, load_iris().target).selected_.mean() > 0.85
    classifier = RobustClassifier(method="standard", epochs=3, random_state=0).fit(x, load_iris().target)
    assert np.allclose(classifier.predict_proba(x[:10]), classifier.predict_proba(x)[:10])


def test_data_frames_of_polars():
    polars = pytest.importorskip("polars")
    check_mixed(polars.DataFrame(mixed_columns()))
    own = polars.DataFrame({"a": load_iris().data[:, 2], "b": load_iris().data[:, 3]})
    found = NCV(LogisticRegression(), random_state=0).fit(own, load_iris().target)
    assert found.selected_.mean() > 0.9
    kinds = polars.Series(["complex", "simple", None] * 50, dtype=polars.Categorical)
    found = NCV("logistic", random_state=0).fit(own.with_columns(kinds.alias("kind")), load_iris().target)
    assert found.selected_.mean() > 0.9


def test_columns_of_numbers_however_they_are_kept():
    pandas = pytest.importorskip("pandas")
    given = frame(e=pandas.array([1, 2] * 75, dtype="Int64"), f=[True, False] * 75, g=pandas.Categorical([1, 2] * 75))
    assert NCV(random_state=0).fit(given, load_iris().target).selected_.mean() > 0.85
    found = read_frame(frame(e=pandas.cut(load_iris().data[:, 2], 4), f=pandas.period_range("2020", periods=150)))
    levels = {column.name: column.levels for column in found.encoding.columns}
    assert len(levels["e"]) == 4 and all(level.startswith("(") for level in levels["e"])  # (1.0, 2.5]
    assert {column.name: column.form for column in found.encoding.columns}["f"] == "date"
    twice = frame().set_axis(list("abca"), axis=1)
    with pytest.raises(InputError, match="several columns are called 'a'"):
        NCV().fit(twice, load_iris().target)


@pytest.mark.parametrize("text", ["", "  "])
def test_texts_without_words(text: str):
    for estimator in (None, "tfidf"):
        with pytest.raises(InputError, match="X: the texts have no words"):
            INCV(estimator).fit([text] * 80, LABELS)


def test_a_warning_names_five_classes():
    assert rare_classes_warning(["a", "b"]).endswith("class 'a', 'b'")
    assert rare_classes_warning(list(range(1500))).endswith("class 0, 1, 2, 3, 4 and 1,495 more")
    x = np.random.default_rng(0).normal(size=(70, 3))
    with pytest.warns(RareClassWarning, match=r"class 10, 11, 12, 13, 14 and \d more"):
        NCV("nearest", random_state=0).fit(x, np.r_[np.arange(10, 20), np.repeat([0, 1], 30)])


@pytest.mark.parametrize("labels", [np.array([b"a", b"b"] * 5), np.array([b"a", b"b"] * 5, dtype=object)])
def test_bytes_are_called_so(labels: Any):
    with pytest.raises(InputError, match="labels are bytes; decode them first"):
        encode_labels(labels)


@pytest.mark.parametrize("estimator", [None, LogisticRegression()])
def test_complex_numbers_in_a_frame_are_refused_before_a_training(estimator: Any) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"plain": np.arange(80.0), "phase": np.arange(80) + 1j})
    with pytest.raises(InputError, match="'phase' holds complex numbers"):
        INCV(estimator).fit(frame, LABELS)
    check_columns(frame.assign(phase=pandas.Categorical(["complex", "simple"] * 40)))


@pytest.mark.parametrize("labels", [[0, 1, 2] * 4, [True, False] * 6, [0.0, 1.0] * 6, ["a", "b"] * 6])
def test_labels_of_dtype_object(labels: list[Any]):
    pandas = pytest.importorskip("pandas")
    classes, codes = encode_labels(labels)
    of_series, codes_of_series = encode_labels(pandas.Series(labels, dtype=object))
    assert of_series.tolist() == classes.tolist() and np.array_equal(codes_of_series, codes)
    assert classes.dtype.kind == "U" or of_series.dtype == classes.dtype
    column = encode_labels(np.array(labels))[1]
    with pytest.warns(DataConversionWarning):
        assert np.array_equal(encode_labels(np.array(labels, dtype=object)[:, None])[1], column)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, True] * 6, "labels mix bool and int; convert all of them to strings"),
        ([0, "a"] * 6, "labels mix int and str; convert"),
        ([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)] * 6, "of type date; convert"),
        ([2**70, 2**71] * 6, "of type int; convert"),
        ([0.5, 1] * 6, "continuous"),
        ([0, None] * 6, "missing"),
    ],
)
def test_labels_of_dtype_object_that_are_refused(labels: list[Any], message: str):
    with pytest.raises(InputError, match=message):
        encode_labels(np.array(labels, dtype=object))


@pytest.mark.parametrize("estimator", [INCV(), NCV("forest"), RobustClassifier()])
def test_an_array_with_nan_is_refused_and_a_data_frame_recommended(estimator: Any):
    pandas = pytest.importorskip("pandas")
    x, y = load_iris(return_X_y=True)
    x[0, 0] = np.nan
    for given in (x, x.tolist()):
        with pytest.raises(InputError, match=r"NaN; give a data frame, such as pandas\.DataFrame"):
            estimator.fit(given, y)
    model = CleanClassifier("forest", n_iterations=1, random_state=0).fit(pandas.DataFrame(x), y)
    assert model.predict(pandas.DataFrame(x[:3])).tolist() == [0, 0, 0]
    with pytest.raises(InputError, match="NaN") as problem:  # the user's own classifier reads frames unchanged
        INCV(LogisticRegression()).fit(x, y)
    assert "data frame" not in str(problem.value)
    x[0, 0] = np.inf
    with pytest.raises(InputError, match="infinity") as problem:
        estimator.fit(x, y)
    assert "data frame" not in str(problem.value)


@pytest.mark.parametrize("estimator", [INCV(), NCV("forest"), RobustClassifier()])
def test_dictionaries_are_refused_and_a_data_frame_recommended(estimator: Any):
    with pytest.raises(InputError, match="DataFrame") as raised:
        estimator.fit([{"a": 1, "b": 2.0}, {"a": 3}] * 300, [0, 1] * 300)
    assert len(str(raised.value)) < 200
