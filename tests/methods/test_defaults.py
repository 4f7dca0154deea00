"""Defaults of a robust training."""

from __future__ import annotations

import numpy as np

from labelsieve.methods.defaults import auto_batch_size, auto_epochs, one_drop, training_sets
from labelsieve.types import CANDIDATE, REMOVED, SELECTED


def test_all_samples_of_a_lost_class_are_used() -> None:
    verdict = np.array([SELECTED, CANDIDATE, REMOVED, CANDIDATE, REMOVED])
    chosen, candidates = training_sets(verdict == SELECTED, verdict == CANDIDATE, np.array([0, 0, 1, 1, 0]))
    assert chosen.tolist() == [0, 2, 3]
    assert candidates.tolist() == [1]


def test_batch_size_and_epochs_depend_on_the_data() -> None:
    assert [auto_batch_size(n) for n in (10, 1000, 5000)] == [32, 62, 128]
    assert [auto_epochs(n, auto_batch_size(n)) for n in (10, 100, 200, 50_000)] == [60, 40, 22, 20]
    assert [auto_epochs(n, auto_batch_size(n), pictures=True) for n in (100, 600, 3000, 5000)] == [60, 37, 26, 20]


def test_the_learning_rate_drops_in_the_last_quarter() -> None:
    assert one_drop(40).steps == ((0, 5e-3), (30, 5e-4))
    assert one_drop(8, 0.1).steps == ((0, 0.1), (6, 0.01))
    assert one_drop(1, 0.1).steps == ((0, 0.1),)
