"""CleanClassifier, predictions of INCV, results as data frames and in notebooks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from labelsieve import INCV, CleanClassifier, InputError, noise, theory
from labelsieve.execute.sklearn_trainer import LEAST_KERNEL_WEIGHT, LEAST_WEIGHT, Refit, TrainingSet, trusted_rows
from labelsieve.types import CANDIDATE, SELECTED, NoiseEstimate, Selection, Trust


@parametrize_with_checks([CleanClassifier(GaussianNB(), n_iterations=1)])
def test_check_estimator(estimator: Any, check: Any) -> None:
    check(estimator)


def test_wrong_labels_are_not_learned() -> None:
    """A nearest neighbour repeats wrong labels; without the suspects it does not. Ridge has no probabilities."""
    x, true = load_digits(return_X_y=True)
    x, true, new, right = x[:900], true[:900], x[900:], true[900:]
    given = noise.corrupt(true, theory.symmetric(10, 0.3), np.random.default_rng(0))
    for model, gain in ((KNeighborsClassifier(1), 0.1), (RidgeClassifier(), 0.0)):
        plain = model.fit(x, given).score(new, right)
        clean = CleanClassifier(model, n_iterations=1, random_state=0).fit(x, given)
        assert clean.score(new, right) > plain + gain
        assert clean.predict_proba(new).shape == (len(new), 10)


def test_incv_predicts_texts_and_names_of_classes() -> None:
    texts = ["lost card please", "my card was lost", "late payment again", "the payment is late"] * 8
    labels = np.array(["card", "card", "payment", "payment"] * 8)
    incv = INCV(random_state=0, n_iterations=1).fit(texts, labels)
    assert incv.predict(["the card", "a payment"]).tolist() == ["card", "payment"]
    with pytest.raises(InputError, match="RobustClassifier"):
        INCV("mlp", epochs=1, n_iterations=1, random_state=0).fit(np.eye(40), np.arange(40) % 2).predict(np.eye(40))


def test_networks_are_refused_before_a_training() -> None:
    def network() -> Any:
        raise AssertionError("built")

    pictures = np.zeros((40, 8, 8, 3), dtype=np.uint8)  # for which None is a network
    for estimator, x in (("mlp", np.eye(40)), (network, np.eye(40)), (None, pictures), ("small-cnn", pictures)):
        with pytest.raises(InputError, match=r"does not support networks.*RobustClassifier"):
            CleanClassifier(estimator).fit(x, np.arange(40) % 2)


def test_samples_to_train_on() -> None:
    labels = np.array([0, 0, 1, 1, 2])
    suspicion = np.array([0.1, 0.9, 0.5, np.nan, 0.8])
    assert trusted_rows(suspicion, labels).tolist() == [0, 2, 3, 4]  # the only label of class 2 stays


def selection_of(suspicion: Any, *, protocol: str = "auto") -> Selection:
    """A selection with these suspicions; every second sample is selected."""
    n = len(suspicion)
    verdict = np.where(np.arange(n) % 2, CANDIDATE, SELECTED).astype(np.int8)
    number = np.zeros(n)
    estimate = NoiseEstimate(0.2, 0.1, 0.3, Trust.FAIR).record() if protocol == "auto" else None
    return Selection(
        verdict, number.astype(np.int16), number.astype(np.int64), number, number, number, np.asarray(suspicion), 0.2,
        np.eye(3), 0.9, 0.9, history=({"estimate": estimate},),
    )  # fmt: skip


class PlainForest(RandomForestClassifier):  # type: ignore[misc]
    """A forest whose `fit` takes no weights."""

    def fit(self, X: Any, y: Any) -> PlainForest:
        super().fit(X, y)
        return self


@pytest.mark.parametrize(
    ("weighted", "least"), [(RandomForestClassifier(20), LEAST_WEIGHT), (SVC(C=3), LEAST_KERNEL_WEIGHT)]
)
def test_some_classifiers_learn_all_labels_with_weights_and_others_the_trusted_ones(
    weighted: Any, least: float
) -> None:
    labels, suspicion = np.array([0, 0, 1, 1, 2]), selection_of([0.0, 0.75, 0.5, np.nan, 1.0])
    every = TrainingSet.choose(weighted, labels, suspicion)
    assert every.rows.tolist() == [0, 1, 2, 3, 4]
    assert every.weight is not None and every.weight == pytest.approx([1, 0.5, 0.5**0.5, 1, least])
    for estimator in (GaussianNB(), PlainForest(5), make_pipeline(SVC())):
        other = TrainingSet.choose(estimator, labels, suspicion)
        assert other.weight is None and other.rows.tolist() == [0, 2, 3, 4]
    x = np.array([[0.0], [0.0], [1.0], [1.0]] * 10)
    given = np.array([0, 1, 1, 0] * 10)  # every second label is wrong
    samples = TrainingSet.choose(weighted, given, selection_of(np.tile([0.1, 0.9], 20)))
    learnt = Refit.train(weighted, x, given, samples, 0)
    assert learnt.predict_proba(x, 2).argmax(axis=1).tolist() == [0, 0, 1, 1] * 10


def test_with_protocol_paper_the_selected_samples_are_learned() -> None:
    """Suspicion is a rank there, not a probability."""
    labels, ranks = np.array([0, 0, 1, 1]), selection_of([0.9, 0.1, 0.9, 0.1], protocol="paper")
    samples = TrainingSet.choose(RandomForestClassifier(5), labels, ranks)
    assert samples.rows.tolist() == [0, 2] and samples.weight is None


def test_frame_and_notebook() -> None:
    x, y = load_wine(return_X_y=True)
    y[:5] = 2
    incv = INCV(RandomForestClassifier(20, random_state=0), n_iterations=1, random_state=0)
    assert "RandomForest" in incv._repr_html_()  # the parameters, before fit
    frame = incv.fit(x, y).to_frame()
    assert len(frame) == len(y) and {"label", "suspicion", "suggested", "verdict"} <= set(frame.columns)
    assert (frame["verdict"] == "selected").sum() == incv.selected_.sum()
    shown = incv._repr_mimebundle_()["text/html"]
    assert shown.count("<tr>") == 1 + min(10, len(incv._suspects)) and "1.4" in shown


def test_a_notebook_shows_the_cells_of_a_data_frame() -> None:
    frame = load_wine(as_frame=True).data[["alcohol", "flavanoids", "proline"]]
    frame = frame.assign(note=[f"bottle {i} of the cellar" for i in range(178)])
    given = load_wine().target
    given[:5] = 2
    incv = INCV(n_iterations=1, random_state=0).fit(frame, given)
    assert incv._suspects
    for suspect in incv._suspects:  # cells as written, not as features
        assert suspect.sample.startswith(f"alcohol: {frame['alcohol'][suspect.id]}, ")
        assert f"note: bottle {suspect.id} of" in suspect.sample and f">{suspect.id}</td>" in incv._repr_html_()


def test_pictures_are_shown_as_thumbnails(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = load_digits(return_X_y=True)
    pictures = np.kron(x[:300].reshape(-1, 8, 8), np.ones((2, 2))).astype(np.uint8)[..., None] * 15
    given = y[:200].copy()
    given[:10] = (given[:10] + 1) % 10
    incv = INCV(random_state=0, n_iterations=1, device="cpu", verbose=True).fit(pictures[:200], given)
    assert "data:image/png;base64" in incv._repr_html_()
    assert "samples" in capsys.readouterr().err  # the progress
    assert (incv.predict(pictures[200:]) == y[200:300]).mean() > 0.8
