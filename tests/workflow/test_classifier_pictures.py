"""RobustClassifier on pictures: what mirroring does to sides, and what does not fit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from torch import nn

from labelsieve import INCV, RobustClassifier
from labelsieve.errors import InputError
from labelsieve.workflow.robust_classifier import WeakTrainingWarning


@pytest.fixture(scope="module")
def sides() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200)
    pictures = rng.integers(0, 80, (200, 10, 10, 1), dtype=np.uint8)
    for picture, side in zip(pictures, labels, strict=True):
        picture[:, 5 * side : 5 * side + 5] += 120
    return pictures, labels


def plain(**settings) -> RobustClassifier:
    return RobustClassifier(method="standard", epochs=10, random_state=0, device="cpu", **settings)


def test_left_and_right_can_be_learnt(sides) -> None:
    model = plain().fit(*sides)
    assert model.augment_ == "shift" and model.score(*sides) > 0.95
    assert plain(augment="none").fit(*sides).score(*sides) > 0.95
    with pytest.warns(WeakTrainingWarning, match='augment="shift"'):
        mirrored = plain(augment="mirror").fit(*sides)
    assert mirrored.augment_ == "mirror" and mirrored.score(*sides) < 0.8


def test_the_networks_that_select_mirror_no_more_either(sides) -> None:
    model = RobustClassifier(epochs=8, selection_epochs=8, n_iterations=1, random_state=0, device="cpu").fit(*sides)
    assert model.selected_.mean() > 0.9


def test_what_is_no_choice(sides) -> None:
    with pytest.raises(InputError, match="augment 'flip'"):
        plain(augment="flip").fit(*sides)


def test_pictures_of_another_size(sides) -> None:
    pictures, labels = sides
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeakTrainingWarning)
        model = RobustClassifier(method="standard", epochs=1, random_state=0, device="cpu").fit(pictures, labels)
    for other in (pictures[:, :8], pictures[:, :, :8], pictures.repeat(3, axis=3)):
        with pytest.raises(InputError, match=f"{other.shape[1]} x {other.shape[2]} pixels .* trained on 10 x 10"):
            model.predict(other)
    with pytest.raises(InputError, match=r"rows of numbers, .* trained on pictures"):
        model.predict(pictures.reshape(200, -1))
    rows = RobustClassifier(method="standard", epochs=1, random_state=0).fit(pictures.reshape(200, -1), labels)
    with pytest.raises(InputError, match=r"pictures, .* trained on rows of numbers"):
        rows.predict(pictures)


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_network_with_another_number_of_outputs(sides, outputs: int) -> None:
    def bad() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(100, outputs))

    with pytest.raises(InputError, match=f"network: .*{outputs} output"):
        plain(network=bad).fit(*sides)
    with pytest.raises(InputError, match=f"the network .*{outputs} output"):
        INCV(bad, epochs=1, device="cpu").fit(*sides)


def test_a_factory_that_makes_none(sides) -> None:
    def needy(width: int) -> nn.Module:
        return nn.Linear(width, 2)

    for factory, message in ((needy, "without arguments: missing"), (lambda: "a network", "not a str")):
        with pytest.raises(InputError, match=message):
            plain(network=factory).fit(*sides)
        with pytest.raises(InputError, match=message):
            INCV(factory, epochs=1, device="cpu").fit(*sides)
