"""Names, automatic choices and users' own models."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from labelsieve.errors import InputError
from labelsieve.models.choose import (
    NETWORKS,
    PICTURE_NETWORKS,
    ModelKind,
    SampleInfo,
    SelectorRequest,
    best_network,
    choose_network,
    choose_selector,
    create_network,
)


@pytest.mark.parametrize("name", PICTURE_NETWORKS)
def test_every_named_network_can_be_built_and_stacked(name: str) -> None:
    side = 80 if name.startswith("inception") else 32
    with torch.device("meta"):
        factory = create_network(name, (3, side, side), 7)
        assert factory()(torch.zeros(2, 3, side, side)).shape == (2, 7)
        assert factory(n=2)(torch.zeros(2, 6, side, side)).shape == (2, 14)


def test_network_by_shape_and_device() -> None:
    shapes: list[tuple[int, ...]] = [(5,), (1, 8, 8), (3, 32, 32), (3, 64, 64), (3, 70, 70), (3, 227, 227)]
    assert [best_network(shape) for shape in shapes] == [
        "mlp", "small-cnn", "resnet32", "resnet32", "preact-resnet18", "inception-resnet-v2",
    ]  # fmt: skip
    assert best_network((3, 32, 32), "cpu") == "small-cnn"
    choice = choose_network("auto", SampleInfo("table", 9, (5,)), 3, device_type="cpu")
    assert choice.name == "mlp" and choice.factory is not None
    assert choice.factory()(torch.zeros(2, 5)).shape == (2, 3)
    assert "mlp" in NETWORKS


@pytest.mark.parametrize(
    ("name", "shape", "fact"),
    [
        ("resnet7", (3, 32, 32), "resnet7"),
        ("mlp", (3, 32, 32), "32 x 32"),
        ("resnet32", (4,), "mlp"),
        ("inception-resnet-v2", (3, 64, 64), "75"),
    ],
)
def test_networks_that_do_not_fit_are_refused(name: str, shape: tuple[int, ...], fact: str) -> None:
    with pytest.raises(InputError, match=fact):
        create_network(name, shape, 2)


def selector(samples: SampleInfo, **request: object) -> str:
    choice = choose_selector(samples, 10, SelectorRequest(**request))  # type: ignore[arg-type]
    return choice.name


def pictures(count: int, side: int) -> SampleInfo:
    return SampleInfo("pictures", count, (3, side, side))


def test_automatic_selector_of_pictures() -> None:
    assert selector(pictures(5000, 32), device_type="cuda") == "fast"
    assert selector(pictures(5000, 32), device_type="cpu") == "edges"
    assert selector(pictures(40, 16), device_type="cpu") == "edges"
    for samples, request, name in (
        (pictures(5000, 32), {"device_type": "cuda", "protocol": "paper"}, "resnet32"),
        (pictures(4999, 32), {"device_type": "cuda"}, "resnet32"),
        (pictures(5000, 16), {"device_type": "cuda"}, "small-cnn"),
        (pictures(5001, 32), {}, "small-cnn"),
        (pictures(40, 32), {"protocol": "paper"}, "small-cnn"),
        (pictures(40, 32), {"epochs": 3}, "small-cnn"),
        (pictures(40, 32), {"loss": "gce"}, "small-cnn"),
        (pictures(40, 8), {}, "small-cnn"),
    ):
        assert selector(samples, **request) == name  # type: ignore[arg-type]


def test_automatic_selector_of_rows_and_texts() -> None:
    assert selector(SampleInfo("text", 10)) == "tfidf"
    assert selector(SampleInfo("table", 10, (4,), 4)) == "forest"
    assert selector(SampleInfo("table", 10, (300,), 4)) == "forest"  # 4 columns before encoding
    assert selector(SampleInfo("table", 10, (101,), 101)) == "svm"
    assert selector(SampleInfo("table", 6000, (101,), 101)) == "trees"
    assert selector(SampleInfo("table", 10, (4,), 4, sparse=True)) == "logistic"


def test_classifiers_grow_with_the_samples() -> None:
    def classifier(count: int, columns: int) -> object:
        return choose_selector(SampleInfo("table", count, (columns,), columns), 2, SelectorRequest()).classifier

    small, large, wide = classifier(10, 2), classifier(100_000, 2), classifier(6000, 101)
    assert isinstance(small, RandomForestClassifier) and small.min_samples_leaf == 2
    assert isinstance(large, RandomForestClassifier) and large.min_samples_leaf == 5
    assert isinstance(wide, ExtraTreesClassifier) and wide.min_samples_leaf == 3


def test_own_models() -> None:
    rows = SampleInfo("table", 40, (4,), 4)
    named = choose_selector(rows, 3, SelectorRequest("sklearn.dummy:DummyClassifier"))
    assert named.kind is ModelKind.CLASSIFIER and named.name == "sklearn.dummy:DummyClassifier"
    own = partial(torch.nn.Linear, 4, 3)
    assert choose_selector(rows, 3, SelectorRequest(own)).kind is ModelKind.NETWORK
    for model in (torch.nn.Linear(4, 3), "sklearn.linear_model:LinearRegression", "no.such:Thing", 3):
        with pytest.raises(InputError, match="--model"):
            choose_selector(rows, 3, SelectorRequest(model))
    with pytest.raises(InputError, match="tfidf"):
        choose_selector(SampleInfo("text", 40), 3, SelectorRequest(own))
    with pytest.raises(InputError, match="networks"):
        choose_selector(rows, 3, SelectorRequest("svm", loss="gce"))


def test_a_class_instead_of_a_classifier_is_named() -> None:
    rows = SampleInfo("table", 40, (4,), 4)
    with pytest.raises(InputError, match=r"estimator: RandomForestClassifier is a class; .*RandomForestClassifier\(\)"):
        choose_selector(rows, 3, SelectorRequest(RandomForestClassifier, option="estimator"))
    # The class of a network is a function that returns one.
    assert choose_selector(rows, 3, SelectorRequest(torch.nn.Module)).kind is ModelKind.NETWORK
