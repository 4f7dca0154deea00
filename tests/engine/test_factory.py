from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from labelsieve.engine import OutOfTime, Schedule, VectorStore, train
from labelsieve.engine.bundle import check_factory, materialize
from labelsieve.engine.evaluate import agreement
from labelsieve.errors import InputError
from labelsieve.methods.coteaching import CoTeaching
from labelsieve.models.fast_cnn import FastCNN
from labelsieve.models.small import MLP, SmallCNN


def linear(classes: int, wide: int = 8) -> nn.Module:
    return nn.Linear(wide, classes)


class Two(nn.Linear):
    def forward(self, x):
        return super().forward(x), x


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (partial(linear, 3), "own:bad .*3 outputs.* 4 classes"),
        (partial(linear, 5), "own:bad .*5 outputs.* 4 classes"),
        (partial(MLP, 3, inputs=8), "own:bad .*3 outputs.* 4 classes"),
        (linear, r"own:bad .*without arguments.*'classes'"),
        (partial(linear, 4, 8, 9), "own:bad .*number of classes"),
        (lambda: 4, "own:bad .*torch module.*int"),
        (lambda: linear, "own:bad .*torch module.*function"),
        (partial(linear, 4, 9), r"own:bad cannot read samples of shape \[8\]: mat1 and mat2"),
        (partial(Two, 8, 4), "own:bad .*tuple"),
        (partial(nn.Flatten, 0), r"own:bad .*\[16\]"),
    ],
)
def test_an_unusable_factory_is_refused_in_one_line(factory, message: str) -> None:
    with pytest.raises(InputError, match=message) as problem:
        check_factory(factory, (8,), 4, name="own:bad")
    assert "\n" not in str(problem.value)


def test_what_can_is_let_through_and_leaves_no_trace() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    check_factory(partial(linear, 4), (8,), 4)
    check_factory(lambda: nn.Sequential(nn.Conv2d(3, 4, 8), nn.BatchNorm2d(4)), (3, 8, 8), 4)  # [n, 4, 1, 1]
    check_factory(partial(SmallCNN, 4), (3, 8, 8), 4)
    check_factory(partial(FastCNN, 4, filters=torch.zeros(24, 3, 2, 2), widths=(24, 24)), (3, 8, 8), 4)
    assert torch.equal(torch.rand(3), expected)


def test_an_error_inside_the_users_code_stays_as_it_is() -> None:
    def broken() -> nn.Module:
        raise TypeError("my own mistake")

    with pytest.raises(TypeError, match="my own mistake"):
        check_factory(broken, (8,), 4)


def lazy() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(16), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(10))


def eager() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))


def test_layers_that_wait_for_their_sizes_train_like_others(digits, plans, tmp_path) -> None:
    store = VectorStore(digits[0][..., 0].reshape(400, -1).astype(np.float32) / 255, torch.device("cpu"))
    check_factory(lazy, store.shape, 10)
    options = {"schedule": Schedule(2, ((0, 1e-2),)), "batch_size": 64}
    found = train(store, lazy, CoTeaching(), plans, **options)
    usual = train(store, eager, CoTeaching(), plans, **options)
    for a, b in zip(found, usual, strict=True):
        for one, other in zip(a.states, b.states, strict=True):
            assert set(one) == set(other) and all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    assert agreement(store, lazy, found[0].states, digits[1], plans[0].train) > 0.5
    for _ in range(20):
        try:
            resumed = train(store, lazy, CoTeaching(), plans, checkpoint=tmp_path, stop=lambda: True, **options)
            break
        except OutOfTime:
            continue
    assert all(torch.equal(tensor, resumed[1].states[1][name]) for name, tensor in found[1].states[1].items())


def test_they_are_laid_out_without_memory_too() -> None:
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in materialize(lazy, (64,))().state_dict().items()}
    assert shapes == {name: tensor.shape for name, tensor in eager().state_dict().items()}


def test_a_settled_factory_is_still_asked_for_stacks() -> None:
    assert materialize(partial(MLP, 4, inputs=8), (8,))(n=3).n == 3
