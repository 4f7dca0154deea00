"""What RobustClassifier keeps and says of the selection inside it, and what it reads."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits, make_blobs, make_classification
from torch import nn

from labelsieve import INCV, RobustClassifier
from labelsieve.engine.method import Method, mean_over, sample_losses
from labelsieve.errors import InputError
from labelsieve.selection.estimators import RareClassWarning
from labelsieve.types import Trust
from labelsieve.workflow.robust_classifier import WeakTrainingWarning

KEPT = "iteration_ suggested_ suggested_probability_ expected_precision_ expected_recall_ notes_".split()


def quick(**settings: Any) -> RobustClassifier:
    message = {"epochs": 4, "selection_epochs": 6, "n_iterations": 1, "random_state": 0, "device": "cpu"}
    return RobustClassifier(**message | settings)


def test_an_unreliable_noise_ratio_is_a_warning():
    x, y = make_classification(2000, 20, n_informative=8, n_classes=6, class_sep=1.0, random_state=0, flip_y=0)
    for method in ("incv-coteaching", "coteaching"):
        with pytest.warns(WeakTrainingWarning, match=r'the noise ratio.*method="standard"') as found:
            model = quick(method=method, selection_epochs=None, epochs=20).fit(x[:300], y[:300])
        assert len(found) == 1 and found[0].filename == __file__
        low, high = model.noise_interval_
        assert 0 <= low <= model.noise_ratio_ <= high <= 1
        assert model.trust_ is Trust.ROUGH
        assert model.selection_history_[0]["estimate"]["trust"] == str(model.trust_)


def test_what_is_kept_is_called_as_incv_calls_it():
    x, y = make_blobs(300, centers=3, random_state=0, cluster_std=0.7)
    names = np.array(["a", "b", "c"])[y]
    names[:9] = "a"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a fair estimate is no reason for a warning
        model = quick(epochs=8).fit(x, names)
    incv = INCV("nearest", random_state=0, n_iterations=1).fit(x, names)
    for name in KEPT:
        assert np.shape(getattr(model, name))[1:] == np.shape(getattr(incv, name))[1:], name
    assert set(model.suggested_) <= {"a", "b", "c"} and model.notes_[0].startswith("noise ratio ")
    assert 0.9 < model.expected_precision_ <= 1


def test_few_samples_are_told_of_where_it_matters():
    x, y = make_blobs(40, centers=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert quick(epochs=10, selection_epochs=10).fit(x, y).trust_ is Trust.FAIR
    x, y = make_classification(150, 20, n_informative=8, n_classes=6, class_sep=1.0, random_state=0, flip_y=0)
    with pytest.warns(WeakTrainingWarning, match="the noise ratio"):
        RobustClassifier(random_state=0, epochs=2, device="cpu", n_iterations=1).fit(x, y)


def test_a_class_that_is_too_rare_is_told_of_and_called_by_its_name():
    x, y = make_blobs(120, centers=2, random_state=0)
    y[0] = 7
    with pytest.warns(RareClassWarning, match=r"labels stay candidates: class 7$") as found:
        model = quick(epochs=10, selection_epochs=10).fit(x, y)
    assert found[0].filename == __file__ and any("class 7" in note for note in model.notes_)


def test_nothing_of_an_earlier_fit_is_left():
    x, y = make_blobs(600, centers=3, random_state=0, cluster_std=0.7)
    model = quick().fit(x, y)
    assert len(model.selected_) == 600
    model.set_params(method="standard").fit(x[:300], y[:300])
    fresh = quick(method="standard").fit(x[:300], y[:300])
    assert set(vars(model)) == set(vars(fresh)) and not hasattr(model, "noise_ratio_")
    with pytest.raises(InputError, match="epochs"):
        model.set_params(epochs=0).fit(x, y)
    assert np.array_equal(model.predict(x), fresh.predict(x))  # what cannot be begun changes nothing


@pytest.mark.filterwarnings("ignore:the noise ratio")  # in few epochs
@pytest.mark.parametrize("network", [None, lambda: nn.Linear(2, 3)], ids=["default", "own"])
def test_torchs_random_numbers_are_nobodys_else(network):
    x, y = make_blobs(100, centers=3, random_state=0, cluster_std=0.7)
    before = torch.random.get_rng_state()
    quick(network=network).fit(x, y).predict(x)
    assert torch.equal(before, torch.random.get_rng_state())


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRU(8, 16, batch_first=True), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.shape[1:] == (8, 8)
        return self.head(self.cell(x)[0][:, -1])


def zeros_and_ones() -> tuple[np.ndarray, np.ndarray]:
    x, y = load_digits(n_class=2, return_X_y=True)
    return x.reshape(-1, 8, 8)[:200], y[:200]


def test_own_networks_get_arrays_with_their_shape():
    x, y = zeros_and_ones()
    model = quick(network=Recurrent, epochs=15, selection_epochs=15).fit(100 * x + 7, y)
    assert model.score(100 * x + 7, y) > 0.95 and model.selected_.mean() > 0.8
    tensor = torch.from_numpy(100 * x + 7)
    assert np.array_equal(model.predict_proba(tensor), model.predict_proba(tensor.numpy()))
    for other, message in ((x[:, :4], r"\[4, 8\].*\[8, 8\]"), (x.reshape(200, -1), r"\[64\].*\[8, 8\]")):
        with pytest.raises(InputError, match=message):
            model.predict(other)
    channels_first = np.stack([x, -x], axis=1).astype(np.float32)
    model = quick(network=convolution, method="standard", epochs=15).fit(channels_first, y)
    assert model.score(channels_first, y) > 0.95
    with pytest.raises(InputError, match="pictures, the model was trained on rows"):
        model.predict(x.astype(np.uint8))


def convolution() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2))


def test_arrays_that_are_no_pictures_need_a_network():
    x, y = zeros_and_ones()
    for network in (None, "small-cnn"):
        for samples in (x, x[..., None]):
            with pytest.raises(InputError, match="your own network: give network"):
                quick(network=network).fit(samples, y)


@pytest.mark.filterwarnings("ignore:the network learned little")
def test_grey_pictures_have_one_channel():
    x, y = zeros_and_ones()
    x = (15 * x).astype(np.uint8)
    grey, message = (quick(method="standard", epochs=2).fit(kind, y) for kind in (x, x[..., None]))
    assert type(grey.networks_[0]).__name__ == "SmallCNN"
    assert np.array_equal(grey.predict_proba(x), message.predict_proba(torch.from_numpy(x[..., None])))


def test_samples_that_are_not_read():
    x, y = make_blobs(40, centers=2, random_state=0)
    with pytest.raises(InputError, match=r"sparse .*INCV"):
        quick().fit(csr_matrix(x), y)
    with pytest.raises(InputError, match="X: the texts"):
        quick().fit([""] * 40, y)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(x, columns=["a", "b"])
    model = quick(method="standard").fit(frame, y)
    whole = pandas.array([None, *[1] * 39], dtype="Int64")
    assert len(model.predict(frame.assign(b=whole))) == 40  # a gap gets the median
    with pytest.raises(InputError, match="column 'b' has text"):
        model.predict(frame.assign(b=["x"] * 40))


class Curious(Method):
    """Needs nothing, and looks at the ratio if there is one."""

    name = "curious"

    def loss(self, logits, batch):
        return mean_over(sample_losses(logits, batch), batch.valid[:, None])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "noise_ratio: method 'incv-coteaching'"),
        ({"method": "standard"}, "noise_ratio: method 'standard'"),
        ({"method_settings": {"noise_ratio": 0.1}}, "noise_ratio: .* 0.4 .* 0.1"),
        ({"method": "coteaching", "method_settings": {"noise_ratio": 0.1}}, "noise_ratio: .* 0.4 .* 0.1"),
    ],
)
def test_a_ratio_that_nobody_would_look_at(settings, message):
    x, y = make_blobs(40, centers=2, random_state=0)
    with pytest.raises(InputError, match=message):
        quick(noise_ratio=0.4, **settings).fit(x, y)
    assert quick(noise_ratio=0.4, method=Curious).fit(x, y).score(x, y) >= 0
    assert quick(method="coteaching", method_settings={"noise_ratio": 0.1}).fit(x, y).score(x, y) >= 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA card is here, and would be taken")
def test_a_device_that_is_not_there():
    x, y = make_blobs(40, centers=2, random_state=0)
    with pytest.raises(InputError, match="device 'cuda'"):
        quick(device="cuda").fit(x, y)
