"""Networks by name."""

from __future__ import annotations

import pytest
import torch
from labelsieve.models.catalog import MODELS, PICTURE_MODELS, best_model, create

from labelsieve.errors import InputError


@pytest.mark.parametrize("name", PICTURE_MODELS)
def test_every_named_network_is_made_and_stacks(name: str) -> None:
    side = 80 if name.startswith("inception") else 32
    with torch.device("meta"):
        factory = create(name, (3, side, side), 7)
        assert factory()(torch.zeros(2, 3, side, side)).shape == (2, 7)
        assert factory(n=2)(torch.zeros(2, 6, side, side)).shape == (2, 14)


def test_the_choice_by_shape() -> None:
    shapes: list[tuple[int, ...]] = [(5,), (1, 8, 8), (3, 32, 32), (3, 64, 64), (3, 70, 70), (3, 227, 227)]
    assert [best_model(shape) for shape in shapes] == [
        "mlp", "small-cnn", "resnet32", "resnet32", "preact-resnet18", "inception-resnet-v2",
    ]  # fmt: skip
    assert create("auto", (5,), 3)()(torch.zeros(2, 5)).shape == (2, 3)
    assert create("auto", (1, 8, 8), 3)()(torch.zeros(2, 1, 8, 8)).shape == (2, 3)
    assert "auto" in MODELS and "mlp" in MODELS


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("resnet7", (3, 32, 32), "not known: choose one of auto"),
        ("mlp", (3, 32, 32), "takes rows of numbers"),
        ("resnet32", (4,), "takes pictures"),
        ("inception-resnet-v2", (3, 64, 64), "needs pictures of 75 pixels"),
    ],
)
def test_what_does_not_fit(name: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        create(name, shape, 2)
