import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import estimator_checks_generator

from labelsieve import INCV, noise, theory
from labelsieve.errors import InputError
from labelsieve.methods import METHODS
from labelsieve.models.small import MLP
from labelsieve.workflow.robust_classifier import RobustClassifier, WeakTrainingWarning

CHECKS = [  # scikit-learn itself skips the array API check unless SCIPY_ARRAY_API is set before scipy is imported
    pytest.param(estimator, check, id=check.func.__name__)
    for estimator, check in estimator_checks_generator(
        RobustClassifier(n_iterations=1, epochs=8, selection_epochs=2, random_state=0)
    )
    if check.func.__name__ != "check_array_api_input"
]


@pytest.mark.filterwarnings("ignore:the noise ratio")  # many labels are random there
@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    """Half of 1,000 digits' labels are wrong; 797 with right labels are for testing."""
    x, true = load_digits(return_X_y=True)
    given = np.asarray(noise.corrupt(true[:1000], theory.symmetric(10, 0.5), np.random.default_rng(0)))
    return x[:1000], given, true[:1000], x[1000:], true[1000:]


def test_it_is_not_misled_where_plain_training_is(digits):
    *training, x_test, y_test = digits
    x, given, true = (part[:700] for part in training)
    names = np.array([f"digit {i}" for i in range(10)])
    # With half of the labels wrong, 700 digits do not separate wrong labels from errors of the network.
    with pytest.warns(WeakTrainingWarning, match="the noise ratio"):
        robust = RobustClassifier(random_state=0, n_iterations=2).fit(x, names[given])
    plain = RobustClassifier(method="standard", random_state=0).fit(x, names[given])
    assert robust.score(x_test, names[y_test]) > 0.85
    assert robust.score(x_test, names[y_test]) > plain.score(x_test, names[y_test]) + 0.1
    assert list(robust.classes_) == list(names)
    right = given == true
    assert right[robust.selected_].mean() > 0.95
    assert robust.suspicion_[~right].mean() > robust.suspicion_[right].mean() + 0.3
    assert (robust.selected_.astype(int) + robust.candidate_ + robust.removed_ == 1).all()
    assert robust.transition_matrix_.shape == (10, 10)


@pytest.mark.filterwarnings("ignore:the noise ratio")  # in two epochs
def test_one_network_or_both(digits):
    x, given, _, x_test, _ = digits
    both = RobustClassifier(random_state=0, epochs=3, selection_epochs=2, n_iterations=1).fit(x, given)
    assert len(both.networks_) == 2
    together = both.predict_proba(x_test)
    both.set_params(together=False)
    first = both.predict_proba(x_test)
    both.networks_.reverse()
    second = both.predict_proba(x_test)
    np.testing.assert_allclose(together, (first + second) / 2, atol=1e-12)
    assert not np.allclose(first, second)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(both)).predict_proba(x_test), second, atol=0)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_fits(method):
    x, y = make_blobs(200, centers=3, random_state=0, cluster_std=0.7)
    model = RobustClassifier(method=method, epochs=12, selection_epochs=8, n_iterations=1, random_state=0).fit(x, y)
    assert model.score(x, y) > 0.9
    assert model.method_.name == method
    assert hasattr(model, "selected_") == (method in ("incv-coteaching", "incv-posterior", "coteaching"))


def test_a_known_ratio_needs_no_selection():
    x, y = make_blobs(100, centers=2, random_state=0)
    model = RobustClassifier(method="coteaching", noise_ratio=0.1, epochs=3, random_state=0).fit(x, y)
    assert not hasattr(model, "selected_")


@pytest.mark.filterwarnings("ignore:the network learned little")  # in two epochs
def test_pictures_get_a_cnn(digits):
    x, given, _, x_test, _ = digits
    pictures = (x * 15).astype(np.uint8).reshape(-1, 8, 8, 1)[:100]
    model = RobustClassifier(method="standard", epochs=2, random_state=0).fit(pictures, given[:100])
    later = (x_test * 15).astype(np.uint8).reshape(-1, 8, 8, 1)[:100]
    assert type(model.networks_[0]).__name__ == "SmallCNN"
    assert model.predict_proba(later).shape == (len(later), 10)


def test_your_own_network(digits):
    x, given, *_ = digits
    model = RobustClassifier(partial(MLP, 10, inputs=64, widths=(16,)), method="standard", epochs=2, random_state=0)
    assert model.fit(x, given).networks_[0].head.weight.shape == (10, 16)
    plain = RobustClassifier(lambda: torch.nn.Linear(64, 10), method="standard", epochs=2, random_state=0)
    assert isinstance(plain.fit(x, given).networks_[0], torch.nn.Linear)
    assert cross_val_score(plain, x[:200], given[:200], cv=2).shape == (2,)
    named = RobustClassifier("mlp", method="standard", epochs=2, random_state=0).fit(x, given)
    assert named.networks_[0].head.weight.shape == (10, 128)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "magic"}, "unknown method"),
        ({"method_settings": {"E_0": 3}}, "its settings: warmup"),
        ({"method_settings": {"warmup": 99}, "epochs": 3}, "warmup.* 99"),
        ({"noise_ratio": 1.0}, r"\[0, 1\)"),
        ({"epochs": 0}, "epochs"),
        ({"batch_size": 0}, "batch_size"),
        ({"device": "abacus"}, "abacus"),
        ({"n_iterations": 0}, "n_iterations"),
        ({"n_iterations": 0, "method": "standard"}, "n_iterations"),
        ({"remove_ratio": "much", "method": "standard"}, "remove_ratio"),
        ({"learning_rate": -1}, "learning_rate: .* -1"),
        ({"learning_rate": 0}, "learning_rate: .* 0"),
        ({"learning_rate": float("nan")}, "learning_rate: .* nan"),
        ({"learning_rate": "fast"}, "learning_rate: .* 'fast'"),
        ({"epochs": 1.5}, "epochs is 1.5"),
        ({"epochs": "3"}, "epochs is '3'"),
        ({"epochs": True}, "epochs is True"),
        ({"selection_epochs": 2.5}, "selection_epochs is 2.5"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"noise_ratio": "half"}, r"noise_ratio is 'half': choose a number in \[0, 1\), or None"),
        ({"method_settings": [1]}, r"method_settings: .*\[1\]"),
        ({"method": "coteaching", "method_settings": {"gradual_epochs": "x"}}, "gradual_epochs"),
        ({"together": "no"}, "together: .* 'no'"),
        ({"network": "vgg16"}, "network 'vgg16'.*small-cnn"),
        ({"network": "resnet32"}, "resnet32 reads pictures"),
        ({"network": 3}, "network: .* got 3"),
        ({"network": torch.nn.Linear(2, 2)}, "network: "),
    ],
)
def test_bad_settings(settings, message):
    x, y = make_blobs(40, centers=2, random_state=0)
    with pytest.raises(InputError, match=message):
        RobustClassifier(**settings).fit(x, y)


def test_texts():
    words = {"fruit": "apple pear plum cherry fig".split(), "metal": "iron zinc copper tin lead".split()}
    rng = np.random.default_rng(0)
    y = ["fruit", "metal"] * 60
    texts = [" ".join(rng.choice(words[kind], 6)) for kind in y]
    y[0], y[2], y[5] = "metal", "metal", "fruit"
    model = RobustClassifier(random_state=3).fit(texts, y)
    assert list(model.predict(["fig and plum", "zinc or tin"])) == ["fruit", "metal"]
    assert set(np.argsort(-model.suspicion_)[:3]) == {0, 2, 5}  # the wrong labels
    assert not model.selected_[[0, 2, 5]].any()
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(texts), model.predict(texts))
    with pytest.raises(InputError, match="trained on texts"):
        model.predict(np.zeros((2, 128)))
    x, codes = make_blobs(40, centers=2, random_state=0)
    model.set_params(method="standard", epochs=2).fit(x, codes)
    with pytest.raises(InputError, match="trained on rows of numbers"):
        model.predict(texts)


@pytest.mark.parametrize("other", ["constant", "ids"])
def test_a_frame_of_texts_and_a_column_without_information_is_predicted_as_it_was_read(other):
    words = {"fruit": "apple pear plum cherry fig".split(), "metal": "iron zinc copper tin lead".split()}
    rng = np.random.default_rng(0)
    y = ["fruit", "metal"] * 60
    frame = pd.DataFrame({"note": [" ".join(rng.choice(words[kind], 6)) for kind in y]})
    frame["other"] = "same" if other == "constant" else [f"K{i:03}" for i in range(120)]
    model = RobustClassifier(method="standard", epochs=8, random_state=3).fit(frame, y)
    assert (model.predict(frame) == y).mean() > 0.9
    assert list(model.predict(frame[:3])) == list(model.predict(frame)[:3])


def test_samples_that_are_no_numbers_are_refused():
    x, y = make_blobs(40, centers=2, random_state=0)
    x[7, 1] = np.nan
    with pytest.raises(InputError, match=r"X: .*NaN"):
        RobustClassifier().fit(x, y)
    with pytest.raises(InputError, match=r"X: .*(strings|numeric)"):
        RobustClassifier().fit([["red", "1"], ["blue", "2"]], [0, 1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: np.where(y == 1, np.nan, y), "y: .* labels are missing.* sample"),
        (lambda y: [None, *y[1:]], "y: 1 label is missing.* sample 0"),
        (lambda y: [*map(str, y[:-1]), 3], "y: labels mix"),
        (lambda y: [*map(str, y[:-1]), None], "y: 1 label is missing.* sample 39"),
        (lambda y: np.where(y == 1, np.inf, y), "y: it contains infinity"),
        (lambda y: y + np.linspace(0, 0.5, 40), "y: Unknown label type"),
        (lambda y: "labels", "y: .* got 'labels'"),
        (lambda y: 3, "y: .* got 3"),
        (lambda y: None, "y: labels are required"),
    ],
)
def test_labels_are_checked_as_for_a_selection(change, message):
    x, y = make_blobs(40, centers=2, random_state=0)
    for estimator in (RobustClassifier(), RobustClassifier(method="standard"), INCV()):
        with pytest.raises(InputError, match=message):
            estimator.fit(x, change(y))


def test_pandas_own_missing_labels():
    pandas = pytest.importorskip("pandas")
    x, y = make_blobs(40, centers=2, random_state=0)
    for labels in (pandas.array([None, *y[1:]], dtype="Int64"), pandas.Series([pandas.NA, *map(str, y[1:])])):
        with pytest.raises(InputError, match=r"y: 1 label is missing.* sample 0"):
            RobustClassifier().fit(x, labels)


def test_bad_data():
    x, _ = make_blobs(40, centers=2, random_state=0)
    with pytest.raises(InputError, match="only one class"):
        RobustClassifier().fit(x, np.zeros(40))
    with pytest.raises(NotFittedError):
        RobustClassifier().predict(x)
