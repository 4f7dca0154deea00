from __future__ import annotations

import numpy as np
import torch

from labelsieve.engine import VectorStore
from labelsieve.engine.evaluate import agreement, has_learnt, what_may_help


def test_the_share_is_of_the_networks_together() -> None:
    rows = np.eye(3, dtype=np.float32)[np.arange(300) % 3]
    store, labels = VectorStore(rows, torch.device("cpu")), np.arange(300) % 3
    sure = {"weight": torch.eye(3), "bias": torch.zeros(3)}
    sleepy = {"weight": torch.zeros(3, 3), "bias": torch.zeros(3)}

    def factory() -> torch.nn.Module:
        return torch.nn.Linear(3, 3)

    assert agreement(store, factory, [sure, sleepy], labels, np.arange(300)) == 1
    assert agreement(store, factory, [sleepy], labels, np.arange(300)) == 1 / 3
    assert agreement(store, factory, [sure], (labels + 1) % 3, np.arange(30)) == 0


def test_what_is_little() -> None:
    labels = np.repeat([0, 1], [60, 40])
    assert has_learnt(0.84, labels, precision=0.98) and not has_learnt(0.82, labels, precision=0.98)
    assert has_learnt(0.35, labels, precision=0.4)
    assert has_learnt(0.7, labels, precision=None) and not has_learnt(0.63, labels, precision=None)


def test_less_augmentation_than_there_was_may_help() -> None:
    assert what_may_help("mirror") == "--augment shift (or none), more epochs or another network may help"
    assert what_may_help("shift") == "--augment none, more epochs or another network may help"
    assert what_may_help("none") == "more epochs or another network may help"
