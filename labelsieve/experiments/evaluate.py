"""Stored predictions in, numbers out: the only place where experiments meet the test labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve import metrics, theory
from labelsieve.experiments.bench import Bench
from labelsieve.experiments.cells import Cell
from labelsieve.experiments.webvision_bench import WebVisionBench
from labelsieve.types import SELECTED, FloatArray, IntArray

Predictions = NDArray[np.uint8]


def accuracy_results(bench: Bench, watched: Predictions, last_epochs: int) -> dict[str, Any]:
    """Table 1 and figure 6 from [epochs, networks, test pictures]; a method of two networks counts their mean.

    `last_epochs`: the schedule's length; f-correction's first stage lies before it and is not part of the curve.
    """
    right = watched[-last_epochs:] == bench.test_labels()
    by_network = right.mean(2)
    curve = by_network.mean(1)
    return {
        "test_accuracy": float(curve[-1]),
        "test_accuracy_by_network": by_network[-1].tolist(),
        "best_epoch_accuracy": float(curve.max()),  # named so, and never what a table shows
        "best_epoch": int(curve.argmax()) + 1,
        "last_10_epochs_mean": float(curve[-10:].mean()),
        "curve": curve.tolist(),
    }


def theory_results(
    bench: Bench, cell: Cell, given: IntArray, held_out: IntArray, predicted: IntArray
) -> dict[str, Any]:
    """Figure 2: the held-out half's agreement with its noisy labels, and LP and LR of what agrees."""
    labels, true = given[held_out], bench.true[held_out]
    agrees = predicted == labels
    T = cell.noise.transition(bench.classes)
    measured = {
        "test_accuracy": metrics.accuracy(labels, predicted),
        "label_precision": metrics.label_precision(agrees, labels, true),
        # Where no label is right there is nothing to recall; the formula's limit is 0, and so is this.
        "label_recall": metrics.label_recall(agrees, labels, true) if (labels == true).any() else 0.0,
    }
    expected = {
        "test_accuracy": theory.test_accuracy(T),
        "label_precision": theory.label_precision(T),
        "label_recall": theory.label_recall(T),
    }
    return measured | {"theory": expected, "gap": {key: measured[key] - expected[key] for key in expected}}


def confusion_results(bench: Bench, cell: Cell, predicted: Predictions) -> dict[str, Any]:
    """Figure 3: M on the test pictures beside T."""
    M = metrics.confusion(bench.test_labels(), predicted.astype(np.int64), bench.classes)
    T = cell.noise.transition(bench.classes)
    return {
        "confusion": M.tolist(),
        "transition": T.tolist(),
        "largest_difference": float(np.nanmax(np.abs(M - T))),
        "mean_difference": float(np.nanmean(np.abs(M - T))),
        "clean_test_accuracy": metrics.accuracy(bench.test_labels(), predicted),
    }


def selection_results(
    bench: Bench | WebVisionBench,
    given: IntArray,
    verdict: NDArray[np.int8],
    iteration: NDArray[Any],
    iterations: int,
) -> dict[str, Any]:
    """Figure 4: LP and LR of what was selected up to each iteration; nan where nobody knows the truth."""
    by_iteration = []
    for k in range(1, iterations + 1):
        selected = (verdict == SELECTED) & (iteration <= k)
        true = bench.true
        by_iteration.append(
            {
                "iteration": k,
                "label_precision": np.nan if true is None else metrics.label_precision(selected, given, true),
                "label_recall": np.nan if true is None else metrics.label_recall(selected, given, true),
                "selected": int(selected.sum()),
            }
        )
    return {"by_iteration": by_iteration}


def suspects_results(bench: WebVisionBench, given: IntArray, suspicion: FloatArray, worst: IntArray) -> dict[str, Any]:
    """How many of the suspects are wrong indeed, where the truth is known."""
    if bench.true is None:
        return {}
    flagged = np.zeros(len(given), dtype=np.bool_)
    flagged[worst] = True
    found = metrics.detection(given != bench.true, flagged, np.nan_to_num(suspicion, nan=0.0))
    return {"suspects_wrong": found.precision, "suspicion_auroc": found.auroc}


def top_accuracy(labels: IntArray, ranked: Predictions, k: int) -> float:
    """The share of samples whose label is among the first k of [samples, ranks], the likeliest class first."""
    return float((ranked[:, :k] == labels[:, None]).any(1).mean())


def webvision_results(bench: WebVisionBench, ranked: dict[str, Predictions]) -> dict[str, Any]:
    """Table 2 from [networks, pictures, ranks] of each validation set; two networks count their mean."""
    found: dict[str, Any] = {"pictures": bench.counts()}
    for name, predicted in ranked.items():
        labels = bench.validation_labels(name)
        found[name] = {}
        for k in (1, 5):
            by_network = [top_accuracy(labels, one, k) for one in predicted]
            found[name] |= {f"top{k}": float(np.mean(by_network)), f"top{k}_by_network": by_network}
    return found
