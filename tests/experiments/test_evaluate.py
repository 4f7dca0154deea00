"""Evaluation of predictions, checked by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import labelsieve
from labelsieve.experiments import evaluate
from labelsieve.experiments.cells import SweepRequest, accuracy_cells, theory_cells
from labelsieve.experiments.datasets import PictureArrays, synthetic
from labelsieve.experiments.paper import PAPER, SMOKE, Noise
from labelsieve.types import CANDIDATE, REMOVED, SELECTED


def small_data(true: list[int], test: list[int]) -> PictureArrays:
    def pictures(n: int) -> np.ndarray:
        return np.zeros((n, 8, 8, 3), np.uint8)

    return PictureArrays(
        pictures(len(true)), np.array(true), pictures(len(test)), np.array(test), ("a", "b", "c"), "small"
    )


def test_accuracy_is_the_last_epochs_mean_over_networks() -> None:
    data = small_data([0], [0, 1, 2, 0])
    watched = np.array(
        [
            [[2, 2, 2, 2], [2, 2, 2, 2]],  # the first stage, not part of the curve
            [[0, 1, 2, 0], [0, 1, 2, 1]],  # 1 and 3/4
            [[0, 1, 0, 1], [0, 0, 0, 1]],  # 1/2 and 1/4
        ],
        np.uint8,
    )
    found = evaluate.accuracy_results(data, watched, 2)
    assert found["curve"] == [0.875, 0.375]
    assert found["test_accuracy"] == 0.375 and found["test_accuracy_by_network"] == [0.5, 0.25]
    assert (found["best_epoch_accuracy"], found["best_epoch"]) == (0.875, 1)


def test_figure_2_by_hand() -> None:
    cell = theory_cells(PAPER, SweepRequest(noises=(Noise("symmetric", 0.5),)))[0]
    data = small_data([0, 0, 1, 1, 2, 2], [0])
    given = np.array([0, 1, 1, 2, 2, 2])
    held_out = np.array([0, 1, 3, 4, 5])  # clean: 0, 4, 5
    predicted = np.array([0, 1, 1, 2, 0])  # agrees at 0, 1 and 4; of these 0 and 4 are clean
    found = evaluate.theory_results(data, cell, given, held_out, predicted)
    assert found["test_accuracy"] == pytest.approx(3 / 5)
    assert found["label_precision"] == pytest.approx(2 / 3)
    assert found["label_recall"] == pytest.approx(2 / 3)
    # c = 3, eps = 0.5: A = 0.25 + 0.25 / 2, LP = 0.25 / A, LR = 0.5
    assert found["theory"] == pytest.approx({"test_accuracy": 0.375, "label_precision": 2 / 3, "label_recall": 0.5})
    assert found["gap"]["test_accuracy"] == pytest.approx(0.225)


def test_recall_is_zero_without_clean_labels() -> None:
    cell = theory_cells(SMOKE, SweepRequest(noises=(Noise("pair", 1.0),)))[0]
    data = small_data([0, 1, 2], [0])
    found = evaluate.theory_results(data, cell, np.array([1, 2, 0]), np.arange(3), np.array([1, 2, 2]))
    assert (found["label_precision"], found["label_recall"]) == (0.0, 0.0)


def test_confusion_matrix_and_transition_matrix() -> None:
    cell = theory_cells(SMOKE, SweepRequest(noises=(Noise("pair", 0.4),)))[0]
    found = evaluate.confusion_results(small_data([0], [0, 0, 1, 2]), cell, np.array([0, 1, 1, 2], np.uint8))
    assert found["confusion"] == [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]]
    assert found["largest_difference"] == pytest.approx(0.4) and found["clean_test_accuracy"] == 0.75


def test_selection_by_iteration() -> None:
    data = small_data([0, 0, 1, 1, 2], [0])
    given = np.array([0, 1, 1, 1, 2])  # the second is wrong
    verdict = np.array([SELECTED, SELECTED, REMOVED, SELECTED, CANDIDATE], np.int8)
    selection = SimpleNamespace(verdict=verdict, iteration=np.array([1, 2, 1, 2, 0]))
    found = evaluate.selection_results(data.true, given, selection, 2)["by_iteration"]
    assert found[0] == {"iteration": 1, "label_precision": 1.0, "label_recall": 0.25, "selected": 1}
    assert found[1]["label_precision"] == pytest.approx(2 / 3) and found[1]["label_recall"] == 0.5


def test_given_labels_depend_only_on_noise_and_seed() -> None:
    data = synthetic()
    by_method = [
        accuracy_cells(SMOKE, SweepRequest(seeds=(seed,), methods=(m,), noises=(Noise("pair", 0.4),)))[-1]
        for seed in (0, 1)
        for m in ("standard", "incv-coteaching")
    ]
    one, two, other, _ = (data.given(c) for c in by_method)
    assert np.array_equal(one, two) and not np.array_equal(one, other)
    wrong = one != data.true
    assert 0.3 < wrong.mean() < 0.5
    assert np.array_equal(one[wrong], (data.true[wrong] + 1) % data.classes)
    first, second = data.halves(by_method[0])
    assert len(first) == len(second) and np.array_equal(np.sort(np.concatenate([first, second])), np.arange(len(one)))


def test_only_the_evaluation_reads_test_and_validation_labels() -> None:
    root = Path(labelsieve.__file__).parent
    for name in ("test_labels", "validation_labels"):
        readers = {path.relative_to(root).as_posix() for path in root.rglob("*.py") if name in path.read_text()}
        assert readers == {"experiments/datasets.py", "experiments/evaluate.py"}


def test_calibration_error_by_hand():
    wrong = np.array([True, False, False, True])
    assert evaluate.calibration_error(wrong, np.array([0.5, 0.5, 0.0, 1.0])) == pytest.approx(0.0)
    assert evaluate.calibration_error(wrong, np.array([0.9, 0.9, 0.0, 1.0])) == pytest.approx((1.8 - 1) / 4)
