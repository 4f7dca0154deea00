from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from labelsieve import metrics, noise, theory
from labelsieve.errors import InputError
from labelsieve.models.choose import CLASSIFIERS, named_classifier
from labelsieve.selection.estimators import INCV, NCV, RareClassWarning
from labelsieve.selection.inputs import is_text
from labelsieve.types import Trust


@parametrize_with_checks([INCV("neighbours", n_iterations=2, random_state=0), NCV("nearest", random_state=0)])
def test_check_estimator(estimator, check):
    check(estimator)


def digits(T, seed=0):
    x, true = load_digits(return_X_y=True)
    return x, true, noise.corrupt(true, T, np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("T", "precision", "recall", "ranking"),
    [
        (np.eye(10), 0.999, 0.97, None),
        pytest.param(theory.symmetric(10, 0.2), 0.99, 0.96, 0.98, marks=pytest.mark.slow),
        (theory.symmetric(10, 0.6), 0.95, 0.92, 0.96),
        pytest.param(theory.pair(10, 0.2), 0.985, 0.96, 0.97, marks=pytest.mark.slow),
        (theory.pair(10, 0.4), 0.83, 0.90, 0.88),
    ],
    ids=["clean", "symmetric-0.2", "symmetric-0.6", "pair-0.2", "pair-0.4"],
)
def test_digits_without_known_noise(T, precision, recall, ranking):
    x, true, given = digits(T)
    incv = INCV(random_state=0).fit(x, given)
    wrong = float(np.mean(given != true))
    assert metrics.label_precision(incv.selected_, given, true) >= precision
    assert metrics.label_recall(incv.selected_, given, true) >= recall
    assert incv.noise_ratio_ == pytest.approx(wrong, abs=0.05)
    assert incv.transition_matrix_.shape == (10, 10)
    assert np.abs(incv.transition_matrix_ - T).sum(axis=1).mean() < 0.35
    if ranking:
        assert roc_auc_score(given != true, incv.suspicion_) > ranking
    else:
        assert np.mean(incv.suspicion_ > 0.5) < 0.03


def test_digits_as_in_the_paper():
    T = theory.symmetric(10, 0.4)
    x, true, given = digits(T)
    incv, ncv = (
        kind("svm", protocol="paper", pattern="symmetric", random_state=0).fit(x, given) for kind in (INCV, NCV)
    )
    assert metrics.label_recall(incv.selected_, given, true) > metrics.label_recall(ncv.selected_, given, true)
    assert metrics.label_precision(ncv.selected_, given, true) > 0.97
    assert len(ncv.history_) == 1 and not ncv.removed_.any()
    assert incv.removed_.any() and np.mean(given[incv.removed_] != true[incv.removed_]) > 0.9


class OnlyPredicts(ClassifierMixin, BaseEstimator):
    """A classifier with nothing but fit and predict, without even `classes_`."""

    def fit(self, X, y):
        self.inner_ = KNeighborsClassifier(5).fit(X, y)
        return self

    def predict(self, X):
        return self.inner_.predict(X)


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
        make_pipeline(StandardScaler(), LinearSVC()),
        make_pipeline(StandardScaler(), SVC()),
        make_pipeline(StandardScaler(), OnlyPredicts()),
        RandomForestClassifier(30),
    ],
    ids=["predict_proba", "decision_function", "svc", "predict", "forest"],
)
def test_any_classifier(estimator):
    x, true = load_wine(return_X_y=True)
    given = noise.corrupt(true, theory.symmetric(3, 0.2), np.random.default_rng(0))
    incv = INCV(estimator, random_state=0).fit(x, given)
    assert metrics.label_precision(incv.selected_, given, true) > 0.93
    assert metrics.label_recall(incv.selected_, given, true) > 0.85
    total = incv.selected_.astype(int) + incv.candidate_ + incv.removed_
    assert (total == 1).all()
    for name in ("predicted_", "probability_", "loss_", "suspicion_", "iteration_"):
        assert getattr(incv, name).shape == (178,)
    assert np.isfinite(incv.loss_).all()
    assert [line["iteration"] for line in incv.history_] == list(range(1, len(incv.history_) + 1))
    assert incv.n_features_in_ == 13


@pytest.mark.parametrize("kind", ["strings", "bools", "objects", "list"])
def test_labels_keep_their_type(kind):
    x, true = load_iris(return_X_y=True)
    if kind == "bools":
        y, classes = true == 1, [False, True]
    elif kind == "strings":
        y, classes = np.array(["setosa", "versicolor", "virginica"])[true], ["setosa", "versicolor", "virginica"]
    elif kind == "objects":
        y, classes = np.array(["a", "b", "c"], dtype=object)[true], ["a", "b", "c"]
    else:
        y, classes = [int(v) * 10 for v in true], [0, 10, 20]
    ncv = NCV("neighbours", random_state=0).fit(x, y)
    assert ncv.classes_.tolist() == classes
    assert set(ncv.predicted_.tolist()) <= set(classes)
    assert ncv.selected_[ncv.predicted_ == np.asarray(y)].all()


def test_texts_sparse_frames_and_missing_values():
    rng = np.random.default_rng(0)
    words = np.array([["sun", "sea", "sand"], ["snow", "ice", "frost"]])
    y = np.arange(80) % 2
    texts = [" ".join(rng.choice(words[label], 5)) for label in y]
    wrong = y.copy()
    wrong[:8] = 1 - wrong[:8]
    for x in (texts, np.array(texts), np.array(texts, dtype=object)):
        ncv = NCV(random_state=0).fit(x, wrong)
        assert not ncv.selected_[:8].any() and ncv.selected_[8:].all()
    iris, true = load_iris(return_X_y=True)
    dense = NCV(LogisticRegression(max_iter=1000), random_state=0).fit(iris, true)
    sparse = NCV(LogisticRegression(max_iter=1000), random_state=0).fit(csr_matrix(iris), true)
    assert np.mean(dense.selected_ == sparse.selected_) > 0.97
    assert NCV(random_state=0).fit(csr_matrix(iris), true).selected_.mean() > 0.85
    holes = iris.copy()
    holes[3, 2] = np.nan
    NCV(HistGradientBoostingClassifier(max_iter=5), random_state=0).fit(holes, true)
    NCV(make_pipeline(SimpleImputer(), LogisticRegression(max_iter=1000)), random_state=0).fit(holes, true)
    with pytest.raises(ValueError, match="NaN"):
        NCV(LogisticRegression()).fit(holes, true)
    assert not is_text(iris) and not is_text("text") and is_text(["a", "b"]) and not is_text(3)


def test_default_does_not_take_hard_for_wrong():
    """Clean labels that half of the columns decide by a rule: a smooth classifier misses it and cries wolf."""
    x = np.random.default_rng(0).uniform(-1, 1, (1500, 6))
    true = ((x[:, 0] > 0) * 2 + (x[:, 1] * x[:, 2] > 0)).astype(int)
    forest, smooth = (INCV(name, random_state=0, n_iterations=1).fit(x, true) for name in (None, "svm"))
    assert (forest.predicted_ == true).mean() > (smooth.predicted_ == true).mean() + 0.05
    assert (forest.suspicion_ > 0.5).mean() < 0.03 and forest.noise_ratio_ < 0.03


def test_object_labels_with_a_class_of_one_sample():
    x = np.random.default_rng(0).normal(size=(41, 3))
    y = np.array(["a", "b"] * 20 + ["rare"], dtype=object)
    with pytest.warns(RareClassWarning, match="'rare'"):
        INCV("nearest", random_state=0, n_iterations=1).fit(x, y)


def test_missing_texts_are_counted_and_named():
    labels = ["x", "y"] * 20
    for texts in (["a b", None] * 20, np.array(["a b", float("nan")] * 20, dtype=object)):
        with pytest.raises(InputError, match=r"20 texts .* sample 1"):
            INCV().fit(texts, labels)
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InputError, match="20 texts"):
        INCV().fit(pandas.Series(["a b", None] * 20), labels)
    # A data frame is read like a table file, where a missing text is an empty one.
    bodies = [f"text number {i} is about {'refunds' if i % 2 else 'parcels'}" for i in range(40)]
    found = INCV(random_state=0, n_iterations=1).fit(pandas.DataFrame({"body": [None, *bodies[1:]]}), labels)
    assert found.selected_[1:].all()
    assert found.predict(pandas.DataFrame({"body": ["about refunds", "about parcels"]})).tolist() == ["y", "x"]


def test_a_network_reads_sparse_rows():
    from torch import nn

    x = np.random.default_rng(0).normal(size=(60, 5))
    x[:, 0] += np.repeat([-3, 3], 30)
    found = INCV(lambda: nn.Linear(5, 2), random_state=0, epochs=3, n_iterations=1, device="cpu")
    assert len(found.fit(csr_matrix(x), np.repeat([0, 1], 30)).selected_) == 60


def test_same_seed_same_answer_on_any_number_of_workers():
    x, _, given = digits(theory.symmetric(10, 0.3))
    x, given = x[:300], given[:300]
    forest = RandomForestClassifier(10)
    with ThreadPoolExecutor(2) as pool:
        found = [
            INCV(forest, random_state=7, executor=executor).fit(x, given)
            for executor in (None, "threads", "processes", 2, pool)
        ]
    for other in found[1:]:
        assert np.array_equal(found[0].selected_, other.selected_)
        assert np.array_equal(found[0].removed_, other.removed_)
        assert np.array_equal(found[0].loss_, other.loss_)
    different = INCV(forest, random_state=8).fit(x, given)
    assert not np.array_equal(found[0].loss_, different.loss_)
    assert clone(INCV(forest, executor="threads")).executor == "threads"


def test_rare_class_is_named_and_stays_candidate():
    x, true = load_iris(return_X_y=True)
    y = np.array(["a", "b", "c"])[true].astype("<U8")
    y[0] = "lonely"
    with pytest.warns(RareClassWarning, match="'lonely'"):
        incv = INCV("neighbours", random_state=0, n_iterations=2).fit(x, y)
    assert incv.candidate_[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y[1] = "lonely"  # two samples: one in each half
        INCV("neighbours", random_state=0, n_iterations=2).fit(x, y)


def bad(change):
    x, y = load_iris(return_X_y=True)
    return change(x.copy(), y.copy())


def with_value(value):
    def change(x, y):
        x[5, 1] = value
        return x, y

    return change


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (with_value(np.nan), "NaN"),
        (lambda x, y: (csr_matrix(with_value(np.nan)(x, y)[0]), y), "NaN"),
        (with_value(np.inf), "infinity"),
        (lambda x, y: (x, np.zeros(150)), "one class"),
        (lambda x, y: (x, y[:149]), "inconsistent numbers of samples"),
        (lambda x, y: (["text"] * 150, y[:149]), "inconsistent numbers of samples"),
        (lambda x, y: ("text", y), "X: .* got str"),
        (lambda x, y: ({"a": x[:, 0]}, y), "X: .* got dict"),
        (lambda x, y: (iter(x), y), "X: .* got"),
        (lambda x, y: (None, y), "X: .* got NoneType"),
        (lambda x, y: (np.ma.array(x, mask=x > 6), y), "NaN"),
        (lambda x, y: (x, np.ma.array(y, mask=y > 1)), "50 labels are missing"),
        (lambda x, y: (x, [None, *y[1:]]), "1 label is missing.* sample 0"),
        (lambda x, y: (x, np.where(y == 2, np.nan, y)), "50 labels"),
        (lambda x, y: (x, [*map(str, y[:-1]), float("nan")]), "missing.* sample 149"),
        (lambda x, y: (x, [*map(str, y[:-1]), 3]), "mix"),
        (lambda x, y: (x, y + 0.5 * x[:, 0]), "Unknown label type"),
        (lambda x, y: (x, None), "requires y"),
        (lambda x, y: (x[:0], y[:0]), "0 sample"),
    ],
)
def test_bad_input_is_one_clear_line(change, word):
    x, y = bad(change)
    for estimator in (INCV(), NCV()):
        with pytest.raises(ValueError, match=word):
            estimator.fit(x, y)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"estimator": LogisticRegression}, "estimator"),
        ({"estimator": "svc"}, "estimator 'svc'.*fast, boosting, edges, forest"),
        ({"estimator": "tfidf"}, "tfidf reads texts"),
        ({"executor": "cloud"}, "executor"),
        ({"executor": 0}, "executor"),
        ({"random_state": -1}, "random_state"),
        ({"n_iterations": 0}, "n_iterations"),
        ({"remove_ratio": -0.5}, "remove_ratio"),
        ({"epochs": 1.5}, "epochs is 1.5"),
        ({"epochs": 0}, "epochs is 0"),
        ({"epochs": "3", "estimator": "mlp"}, "epochs is '3'"),
        ({"estimator": LinearRegression()}, "estimator: LinearRegression .* regressor"),
        ({"estimator": make_pipeline(StandardScaler(), LinearRegression())}, "Pipeline .* regressor"),
        ({"estimator": KMeans(3)}, "estimator: KMeans .* clusterer"),
        ({"estimator": IsolationForest()}, "IsolationForest .* outlier"),
        ({"estimator": "resnet32"}, "resnet32 .* 4 numbers; choose mlp"),
    ],
)
def test_bad_arguments_are_named(arguments, word):
    x, y = load_iris(return_X_y=True)
    with pytest.raises(InputError, match=word):
        INCV(**arguments).fit(x, y)


class Duck:
    """What scikit-learn's `clone` needs, fit and predict: no tags."""

    def __init__(self, neighbours=5):
        self.neighbours = neighbours

    def get_params(self, deep=True):
        return {"neighbours": self.neighbours}

    def set_params(self, **params):
        vars(self).update(params)
        return self

    def fit(self, X, y):
        self.inner = KNeighborsClassifier(self.neighbours).fit(X, y)
        return self

    def predict(self, X):
        return self.inner.predict(X)


class Untold(BaseEstimator):
    """Tags that do not say what it is."""

    def fit(self, X, y):
        self.inner_ = KNeighborsClassifier(5).fit(X, y)
        return self

    def predict(self, X):
        return self.inner_.predict(X)


def test_what_does_not_say_that_it_is_a_classifier_is_taken_for_one():
    x, true = load_iris(return_X_y=True)
    for estimator in (Duck(), Untold()):
        for selector in (INCV, NCV):
            assert selector(estimator, random_state=0).fit(x, true).selected_.mean() > 0.9
    bare = type("Bare", (), {"fit": Duck.fit, "predict": Duck.predict})()
    with pytest.raises(InputError, match="Bare"):
        INCV(bare).fit(x, true)


def pictures(n, side, dtype=np.uint8):
    """Bright above or bright on the left; labels of the first eighth are wrong."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 60, (n, side, side, 3)), np.arange(n) % 2
    x[y == 0, : side // 2] += 150
    x[y == 1, :, : side // 2] += 150
    given = y.copy()
    given[: n // 8] = 1 - y[: n // 8]
    return x.astype(dtype), y, given


def test_pictures_where_nothing_is_named():
    x, true, given = pictures(120, 16)
    for selector in (INCV, NCV):
        found, named = (selector(name, random_state=0).fit(x, given) for name in (None, "edges"))
        assert np.array_equal(found.selected_, named.selected_)
        assert metrics.label_precision(found.selected_, given, true) == 1
    floats = pictures(40, 16, float)[0]
    for wrong in (floats, floats[..., 0]):
        with pytest.raises(InputError, match="your own network") as problem:
            INCV().fit(wrong, given[:40])
        assert str(list(wrong.shape[1:])) in str(problem.value) and "\n" not in str(problem.value)
    small = NCV(random_state=0, epochs=2, device="cpu").fit(pictures(40, 8)[0], given[:40])  # small-cnn, as in `run`
    assert len(small.selected_) == 40


def test_networks_by_name():
    x, true, given = pictures(96, 8)
    found = NCV("small-cnn", random_state=0, epochs=6, device="cpu").fit(x, given)
    assert metrics.label_precision(found.selected_, given, true) > 0.9
    rows = NCV("mlp", random_state=0, epochs=6, device="cpu").fit(x.reshape(96, -1), given)
    assert metrics.label_precision(rows.selected_, given, true) > 0.9
    with pytest.raises(InputError, match="mlp reads rows"):
        NCV("mlp").fit(x, given)
    with pytest.raises(InputError, match="small-cnn reads pictures as uint8"):
        NCV("small-cnn").fit(x.astype(float), given)
    with pytest.raises(InputError, match="mlp does not read texts; choose tfidf"):
        NCV("mlp").fit(["a b", "c d"] * 20, [0, 1] * 20)
    with pytest.raises(InputError, match=r"estimator 'vgg'.*small-cnn, resnet20"):
        NCV("vgg").fit(x, given)


@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if name not in ("tfidf", "edges")])
def test_the_command_lines_names(name):
    x, true = (values[::3] for values in load_wine(return_X_y=True))
    # The protocol of the paper has two trainings; "auto" would measure the noise with six more.
    found = [NCV(each, protocol="paper", random_state=0).fit(x, true) for each in (name, named_classifier(name))]
    assert np.array_equal(found[0].selected_, found[1].selected_) and np.array_equal(found[0].loss_, found[1].loss_)


def test_names_fit_the_samples():
    texts = ["fig plum pear", "zinc tin iron"] * 20
    incv = INCV("tfidf", random_state=0).fit(texts, [0, 1] * 20)
    assert incv.selected_.all()
    with pytest.raises(InputError, match="choose tfidf"):
        INCV("forest").fit(texts, [0, 1] * 20)
    pictures = np.zeros((40, 8, 8, 3), dtype=np.uint8)
    pictures[1::2] = 255
    assert (
        NCV("forest", protocol="paper", random_state=0).fit(pictures, [0, 1] * 20).selected_.all()
    )  # reads pixels as columns


@pytest.mark.parametrize("kind", ["ints", "strings"])
def test_suggested_labels_are_the_users_own(kind):
    x, true = load_wine(return_X_y=True)
    given = noise.corrupt(true, theory.symmetric(3, 0.2), np.random.default_rng(0))
    names = np.arange(3) + 5 if kind == "ints" else np.array(["red", "rosé", "white"])
    incv = INCV(RandomForestClassifier(25), random_state=0, n_iterations=2).fit(x, names[given])
    assert incv.suggested_.dtype == names[given].dtype and incv.suggested_.shape == given.shape
    assert np.array_equal(incv.suggested_[incv.selected_], names[given][incv.selected_])
    changed = incv.suggested_ != names[given]
    assert np.array_equal(changed, ~incv.selected_ & (incv.predicted_ != names[given]))
    assert np.mean(incv.suggested_ == names[true]) > 0.95 > np.mean(given == true)


def test_network_factory_selects_and_a_network_is_refused():
    import torch

    x, true, given = digits(theory.symmetric(10, 0.3))

    def network():
        return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    # With 15 epochs of 7 steps the network has not learned the digits yet, and recall is 0.69 to 0.75.
    ncv = NCV(network, random_state=0, epochs=30, device="cpu").fit(x, given)
    assert metrics.label_precision(ncv.selected_, given, true) > 0.97
    assert metrics.label_recall(ncv.selected_, given, true) > 0.85
    assert ncv.noise_ratio_ == pytest.approx(np.mean(given != true), abs=0.08)
    with pytest.raises(InputError, match="estimator: a network"):
        NCV(network()).fit(x, given)


def test_frames_reach_the_pipeline_with_their_columns():
    import pandas as pd
    from sklearn.compose import make_column_transformer
    from sklearn.preprocessing import OneHotEncoder

    x, true = load_iris(return_X_y=True)
    frame = pd.DataFrame({"size": x[:, 2], "colour": np.where(x[:, 3] > 0.8, "blue", "red")})
    columns = make_column_transformer((OneHotEncoder(), ["colour"]), (StandardScaler(), ["size"]))
    y = pd.Series(np.array(["a", "b", "c"])[true], index=np.arange(150) + 7)
    ncv = NCV(make_pipeline(columns, LogisticRegression()), random_state=0).fit(frame, y)
    assert ncv.feature_names_in_.tolist() == ["size", "colour"] and ncv.n_features_in_ == 2
    assert ncv.selected_.mean() > 0.85
    frame.loc[3, "size"] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        NCV(make_pipeline(columns, LogisticRegression())).fit(frame, y)


def test_random_labels_have_no_known_noise():
    rng = np.random.default_rng(0)
    random = INCV("logistic", random_state=0, n_iterations=1).fit(rng.normal(size=(300, 3)), rng.integers(0, 3, 300))
    assert not random.noise_known_ and random.trust_ is Trust.UNKNOWN
    assert 0 <= random.noise_ratio_ <= 1
    x, y = load_wine(return_X_y=True)
    assert INCV("logistic", random_state=0, n_iterations=1).fit(x, y).noise_known_


def test_one_rare_class_leaves_the_noise_of_all_others_known():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(12), 30)
    x = rng.normal(size=(12, 6))[y] * 4 + rng.normal(size=(len(y), 6)) * 0.5
    given = np.where(rng.random(len(y)) < 0.1, (y + 1) % 12, y)
    rows = np.flatnonzero((given != 3) | (np.cumsum(given == 3) <= 2))  # two samples of class 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RareClassWarning)
        model = INCV(LogisticRegression(max_iter=1000), random_state=0).fit(x[rows], given[rows])
    estimate = model.history_[0]["estimate"]
    assert estimate["known"] and estimate["low"] <= np.mean(given[rows] != y[rows]) <= estimate["high"]
