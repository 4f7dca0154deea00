"""Small real work for the engine: drawn digits, small networks."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from labelsieve.engine import PictureStore, Plan, stage_pictures
from labelsieve.models.resnet_cifar import ResNetCifar

tiny_resnet = partial(ResNetCifar, 10, depth=8)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def digits():
    from sklearn.datasets import load_digits

    found = load_digits()
    pictures = np.repeat((found.images * 15).astype(np.uint8)[..., None], 3, axis=-1)
    return pictures[:400], found.target[:400].astype(np.int64)


@pytest.fixture
def store(digits) -> PictureStore:
    return stage_pictures(digits[0], "cpu")


@pytest.fixture
def plans(digits) -> list[Plan]:
    """Two trainings of different size, seed and labels."""
    labels = digits[1]
    other = (labels + (np.arange(len(labels)) % 5 == 0)) % 10
    held_out = np.arange(350, 400)
    return [
        Plan("a", labels, np.arange(0, 200), seed=1, noise_ratio=0.2, score=held_out, keep_best=True),
        Plan("b", other, np.arange(50, 310), seed=2, noise_ratio=0.2, score=held_out),
    ]
