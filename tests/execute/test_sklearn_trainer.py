from __future__ import annotations

import tracemalloc
import warnings
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_info, threadpool_limits

from labelsieve.errors import InputError
from labelsieve.execute import sklearn_trainer
from labelsieve.execute.sklearn_trainer import SklearnTrainer, copy_with_seed, reduce, softmax, take
from labelsieve.types import Job


class Fixed(ClassifierMixin, BaseEstimator):
    """Answers with the first columns of x as probabilities, whatever it was trained on."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return X[:, : len(self.classes_)]


def job(labels, train, score, seed=0):
    return Job("test", np.asarray(labels), np.asarray(train), np.asarray(score, dtype=np.int64), seed)


def test_scores_by_hand_when_the_training_half_lacks_a_class():
    x = np.array([[0.0, 0.0], [0.0, 0.0], [0.7, 0.3], [0.2, 0.8], [0.4, 0.6]])
    labels = [0, 2, 0, 1, 2]
    (scores,) = SklearnTrainer(x, Fixed(), 3).train_and_score([job(labels, [0, 1], [2, 3, 4])])
    assert scores.predicted.tolist() == [0, 2, 2]  # codes, not columns
    assert scores.probability.tolist() == [0.7, 0.0, 0.6]  # class 1 was never seen
    assert scores.confidence.tolist() == [0.7, 0.8, 0.6]
    assert scores.loss == pytest.approx([-np.log(0.7), -np.log(1e-12), -np.log(0.6)])


@pytest.mark.parametrize("classes", [2, 3])
def test_a_decision_function_of_any_scale_gives_graded_probabilities(monkeypatch, classes):
    rng = np.random.default_rng(0)
    labels = np.arange(300) % classes
    x = 100 * rng.normal(size=(300, 4)) + 300 * np.eye(4)[labels]
    asked = job(labels, np.arange(150), np.arange(150, 300))
    (scores,) = SklearnTrainer(x, Perceptron(), classes).train_and_score([asked])
    assert np.mean(scores.confidence == 1) < 0.1 and np.median(scores.confidence) == pytest.approx(0.99, abs=0.01)
    raw = copy_with_seed(Perceptron(), 0).fit(x[:150], labels[:150]).decision_function(x[150:])
    assert np.mean(softmax(raw).max(axis=1) == 1) > 0.9
    assert np.array_equal(scores.predicted, softmax(raw).argmax(axis=1))
    monkeypatch.setattr(sklearn_trainer, "CHUNK_CELLS", 60)
    (parts,) = SklearnTrainer(x, Perceptron(), classes).train_and_score([asked])
    assert np.allclose(parts.confidence, scores.confidence, atol=1e-12)
    (plain,) = SklearnTrainer(x / 100, LinearSVC(), classes).train_and_score([asked])
    raw = copy_with_seed(LinearSVC(), 0).fit(x[:150] / 100, labels[:150]).decision_function(x[150:] / 100)
    assert np.array_equal(plain.confidence, softmax(raw).max(axis=1))


def test_chunks_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(60, 3)), rng.integers(0, 4, 60)
    asked = job(labels, np.arange(30), np.arange(30, 60))
    trainer = SklearnTrainer(x, LogisticRegression(), 4)
    (whole,) = trainer.train_and_score([asked])
    monkeypatch.setattr(sklearn_trainer, "CHUNK_CELLS", 28)
    (parts,) = trainer.train_and_score([asked])
    for name in ("predicted", "probability", "confidence", "loss"):
        assert np.allclose(getattr(whole, name), getattr(parts, name), atol=1e-12)
    (none,) = trainer.train_and_score([job(labels, np.arange(30), [])])
    assert len(none.predicted) == len(none.loss) == 0


def test_one_class_to_train_on_is_always_predicted():
    x = np.zeros((4, 2))
    (scores,) = SklearnTrainer(x, LogisticRegression(), 2).train_and_score([job([1, 1, 0, 1], [0, 1], [2, 3])])
    assert scores.predicted.tolist() == [1, 1] and scores.probability.tolist() == [0.0, 1.0]
    with pytest.raises(InputError, match="no samples"):
        SklearnTrainer(x, LogisticRegression(), 2).train_and_score([job([1, 1, 0, 1], np.array([], dtype=int), [2, 3])])


def test_softmax():
    assert softmax(np.array([[0.0, np.log(3.0)]])) == pytest.approx(np.array([[0.25, 0.75]]))
    assert softmax(np.array([np.log(3.0)])) == pytest.approx(np.array([[0.25, 0.75]]))
    assert np.isfinite(softmax(np.array([[1e6, -1e6]]))).all()


def test_decision_function_agrees_with_predict():
    rng = np.random.default_rng(0)
    for classes in (2, 4):
        labels = rng.integers(0, classes, 80)
        x = rng.normal(size=(80, 3)) + labels[:, None]
        asked = job(labels, np.arange(40), np.arange(40, 80))
        (scores,) = SklearnTrainer(x, LinearSVC(random_state=0), classes).train_and_score([asked])
        expected = LinearSVC(random_state=0).fit(x[:40], labels[:40]).predict(x[40:])
        assert np.array_equal(scores.predicted, expected)


@pytest.mark.parametrize("classes", [3, 5])
def test_columns_that_stand_for_pairs_of_classes_are_not_taken_for_classes(classes: int) -> None:
    """Three classes make three pairs, five make ten."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, 120)
    x = rng.normal(size=(120, classes)) + 5 * np.eye(classes)[labels]
    pairs = SVC(decision_function_shape="ovo")
    (scores,) = SklearnTrainer(x, pairs, classes).train_and_score([job(labels, np.arange(60), np.arange(60, 120))])
    assert np.array_equal(scores.predicted, SVC().fit(x[:60], labels[:60]).predict(x[60:]))
    assert (scores.predicted == labels[60:]).mean() > 0.9


def test_seed_reaches_nested_steps_and_leaves_the_original_alone():
    pipeline = make_pipeline(StandardScaler(), DecisionTreeClassifier(random_state=3))
    assert copy_with_seed(pipeline, 41).get_params()["decisiontreeclassifier__random_state"] == 41
    assert pipeline.get_params()["decisiontreeclassifier__random_state"] == 3


class OwnTexts:
    """Texts that are made when they are asked for."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> str:
        return f"text {i:d}"


def test_take_from_anything():
    index = np.array([2, 0])
    assert take(np.array([5, 6, 7]), index).tolist() == [7, 5]
    assert take(["a", "b", "c"], index) == ["c", "a"]
    assert take(OwnTexts(), index) == ["text 2", "text 0"]


def test_probabilities_that_are_not_numbers_are_refused():
    x = np.full((4, 2), np.nan)
    with pytest.raises(InputError, match="NaN"):
        SklearnTrainer(x, Fixed(), 2).train_and_score([job([0, 1, 0, 1], [0, 1], [2, 3])])


class Wide(ClassifierMixin, BaseEstimator):
    """Many classes, all equally likely."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


def test_memory_grows_with_the_samples_not_with_samples_times_classes():
    n, classes = 40_000, 1000
    x, labels = np.zeros((n, 1)), np.arange(n) % classes
    trainer = SklearnTrainer(x, Wide(), classes)
    tracemalloc.start()
    (scores,) = trainer.train_and_score([job(labels, np.arange(n // 2), np.arange(n // 2, n))])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(scores.loss) == n // 2
    assert peak < n // 2 * classes * 8 / 2  # half of what all probabilities at once would take


def test_leaders_are_the_likeliest_classes_and_as_many_whatever_was_seen():
    probability = np.array([[0.1, 0.7, 0.2], [0.6, 0.1, 0.3]])
    found = reduce(np.array([4, 0]), probability, np.array([0, 4, 5]), 6)
    assert found.top_classes.tolist() == [[4, 5, 0, 1], [0, 5, 4, 1]]
    np.testing.assert_allclose(found.top_probs, [[0.7, 0.2, 0.1, 0], [0.6, 0.3, 0.1, 0]])
    assert reduce(np.array([1, 0]), probability[:, :2], np.array([0, 1]), 2).top_classes.tolist() == [[1, 0], [0, 1]]
    wide = np.random.default_rng(0).dirichlet(np.ones(30), 50)
    found = reduce(np.zeros(50, dtype=np.int64), wide, np.arange(30), 30)
    assert np.array_equal(found.top_classes, np.argsort(-wide, axis=1)[:, :4])


class Invalid(Fixed):
    """Its arithmetic raises the flag that float32 products raise now and then."""

    def fit(self, X, y):
        _ = np.array([np.inf], dtype=np.float32) - np.float32(np.inf)
        return super().fit(X, y)


def test_the_predicted_class_leads_also_where_others_are_as_likely():
    rng = np.random.default_rng(0)
    probability = rng.multinomial(4, np.full(8, 1 / 8), size=500) / 4  # a forest of four trees: ties everywhere
    scores = reduce(np.zeros(500, dtype=np.int64), probability, np.arange(8), 8)
    assert (scores.top_classes[:, 0] == scores.predicted).all()
    assert (np.take_along_axis(probability, scores.top_classes.astype(int), 1) == scores.top_probs).all()
    assert all(len(set(row)) == len(row) for row in scores.top_classes.tolist())


def test_what_numpy_says_of_a_classifiers_own_arithmetic_is_not_passed_on(recwarn):
    x = np.array([[0.7, 0.3], [0.2, 0.8], [0.4, 0.6]])
    (scores,) = SklearnTrainer(x, Invalid(), 2).train_and_score([job([0, 1, 0], [0, 1], [2])])
    assert scores.predicted.tolist() == [1] and not recwarn.list


class CountsThreads(LogisticRegression):
    seen: ClassVar[list[int]] = []

    def fit(self, x: Any, y: Any, sample_weight: Any = None) -> CountsThreads:
        self.seen.append(max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"))
        return super().fit(x, y, sample_weight)


def test_linear_algebra_has_one_thread_while_it_trains_and_its_own_number_afterwards() -> None:
    x, y = load_iris(return_X_y=True)
    half = np.arange(0, 150, 2)
    with threadpool_limits(2, user_api="blas"):
        trainer = SklearnTrainer(x, CountsThreads(max_iter=1000), 3)
        trainer.train_and_score([Job("one", y, half, half + 1, seed=0)])
        assert CountsThreads.seen == [1]
        assert all(pool["num_threads"] == 2 for pool in threadpool_info() if pool["user_api"] == "blas")


def test_more_neighbours_than_training_samples_are_reduced():
    x, y = load_iris(return_X_y=True)
    rows = np.r_[0:3, 50:53, 100:103]
    neighbours = make_pipeline(StandardScaler(), KNeighborsClassifier(10))
    (scores,) = SklearnTrainer(x, neighbours, 3).train_and_score([job(y, rows, [10, 60])])
    assert np.allclose(scores.confidence, 1 / 3) and neighbours[-1].n_neighbors == 10


class Careless(Fixed):
    """Changes the warning filters, and warns, as a forest does if another thread sets them at the same time."""

    def fit(self, X, y):
        warnings.warn("`sklearn.utils.parallel.delayed` should be used with it", stacklevel=2)
        warnings.filters.append(("always", None, Warning, None, 0))
        return super().fit(X, y)


def test_threads_leave_the_warning_filters_as_they_were():
    before = list(warnings.filters)
    x, labels = np.full((8, 2), 0.5), np.arange(8) % 2
    jobs = [job(labels, np.arange(4), np.arange(4, 8), seed) for seed in range(2)]
    assert len(SklearnTrainer(x, Careless(), 2, executor="threads").train_and_score(jobs)) == 2
    assert warnings.filters == before
