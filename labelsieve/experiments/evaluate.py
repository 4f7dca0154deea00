"""Turn stored predictions into numbers. Only this module reads test and validation labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve import metrics, theory
from labelsieve.experiments.cells import Cell
from labelsieve.experiments.datasets import PictureArrays, WebVisionFiles
from labelsieve.types import SELECTED, FloatArray, IntArray, Selection

Predictions = NDArray[np.uint8]


def accuracy_results(data: PictureArrays, watched: Predictions, last_epochs: int) -> dict[str, Any]:
    """Table 1 and figure 6, from predictions [epochs, networks, test pictures].

    Methods with two networks count the mean of both. The curve has the last `last_epochs` epochs: all of
    them, or without the first stage of f-correction.
    """
    correct = watched[-last_epochs:] == data.test_labels()
    by_network = correct.mean(2)
    curve = by_network.mean(1)
    return {
        "test_accuracy": float(curve[-1]),
        "test_accuracy_by_network": by_network[-1].tolist(),
        "best_epoch_accuracy": float(curve.max()),  # no table shows it
        "best_epoch": int(curve.argmax()) + 1,
        "last_10_epochs_mean": float(curve[-10:].mean()),
        "curve": curve.tolist(),
    }


def prediction_accuracy(data: PictureArrays, predicted: IntArray) -> float:
    """Share of the test pictures whose class is predicted."""
    return float(np.mean(predicted == data.test_labels()))


def theory_results(
    data: PictureArrays, cell: Cell, given: IntArray, held_out: IntArray, predicted: IntArray
) -> dict[str, Any]:
    """Figure 2: accuracy on the noisy labels of the held-out half, and LP and LR of the labels that agree."""
    labels, true = given[held_out], data.true[held_out]
    agrees = predicted == labels
    T = cell.noise.transition(data.classes)
    measured = {
        "test_accuracy": metrics.accuracy(labels, predicted),
        "label_precision": metrics.label_precision(agrees, labels, true),
        # Without any correct label recall is undefined; the limit of the formula is 0.
        "label_recall": metrics.label_recall(agrees, labels, true) if (labels == true).any() else 0.0,
    }
    expected = {
        "test_accuracy": theory.test_accuracy(T),
        "label_precision": theory.label_precision(T),
        "label_recall": theory.label_recall(T),
    }
    return measured | {"theory": expected, "gap": {key: measured[key] - expected[key] for key in expected}}


def confusion_results(data: PictureArrays, cell: Cell, predicted: Predictions) -> dict[str, Any]:
    """Figure 3: confusion matrix M on the test pictures, and T."""
    M = metrics.confusion(data.test_labels(), predicted.astype(np.int64), data.classes)
    T = cell.noise.transition(data.classes)
    return {
        "confusion": M.tolist(),
        "transition": T.tolist(),
        "largest_difference": float(np.nanmax(np.abs(M - T))),
        "mean_difference": float(np.nanmean(np.abs(M - T))),
        "clean_test_accuracy": metrics.accuracy(data.test_labels(), predicted),
    }


def selection_results(true: IntArray | None, given: IntArray, selection: Selection, iterations: int) -> dict[str, Any]:
    """Figure 4: LP and LR of the samples selected up to each iteration; NaN if the true labels are unknown."""
    by_iteration = []
    for k in range(1, iterations + 1):
        selected = (selection.verdict == SELECTED) & (selection.iteration <= k)
        by_iteration.append(
            {
                "iteration": k,
                "label_precision": np.nan if true is None else metrics.label_precision(selected, given, true),
                "label_recall": np.nan if true is None else metrics.label_recall(selected, given, true),
                "selected": int(selected.sum()),
            }
        )
    return {"by_iteration": by_iteration}


def judgement_results(wrong: NDArray[np.bool_], suspicion: FloatArray) -> dict[str, float]:
    """How well the suspicion ranks the wrong labels, and its calibration error."""
    suspicion = np.nan_to_num(suspicion, nan=0.5)
    return {"auroc": metrics.auroc(wrong, suspicion), "calibration_error": calibration_error(wrong, suspicion)}


def calibration_error(wrong: NDArray[np.bool_], suspicion: FloatArray, bins: int = 15) -> float:
    """Expected calibration error: the mean difference between suspicion and the share of wrong labels, by bins."""
    place = np.minimum((suspicion * bins).astype(int), bins - 1)
    sums = (np.bincount(place, weights=values, minlength=bins) for values in (suspicion, wrong.astype(float)))
    return float(np.abs(np.subtract(*sums)).sum() / len(wrong))


def suspects_results(
    true: IntArray | None, given: IntArray, suspicion: FloatArray, worst: IntArray
) -> dict[str, float]:
    """Share of the suspects whose label is wrong, if the true labels are known."""
    if true is None:
        return {}
    flagged = np.zeros(len(given), dtype=np.bool_)
    flagged[worst] = True
    detection = metrics.detection(given != true, flagged, np.nan_to_num(suspicion, nan=0.0))
    return {"suspects_wrong": detection.precision, "suspicion_auroc": detection.auroc}


def top_accuracy(labels: IntArray, ranked: Predictions, k: int) -> float:
    """Share of samples whose label is among the first k of [samples, ranks]."""
    return float((ranked[:, :k] == labels[:, None]).any(1).mean())


def webvision_results(data: WebVisionFiles, ranked: dict[str, Predictions]) -> dict[str, Any]:
    """Table 2, from [networks, pictures, ranks] of each validation set. Two networks count their mean."""
    results: dict[str, Any] = {"pictures": data.counts()}
    for name, predicted in ranked.items():
        labels = data.validation_labels(name)
        results[name] = {}
        for k in (1, 5):
            by_network = [top_accuracy(labels, ranks, k) for ranks in predicted]
            results[name] |= {f"top{k}": float(np.mean(by_network)), f"top{k}_by_network": by_network}
    return results


def headline(results: dict[str, Any]) -> str:
    """Summarise the results of a cell in a few words."""
    if "by_iteration" in results:
        last = results["by_iteration"][-1]
        if np.isnan(last["label_precision"]):
            return f"{last['selected']:,} labels selected"
        return f"LP {last['label_precision']:.3f}, LR {last['label_recall']:.3f}"
    if "label_precision" in results:
        return ", ".join(f"{k} {results[k]:.3f}" for k in ("test_accuracy", "label_precision", "label_recall"))
    if "imagenet" in results:
        sets = ("webvision", "imagenet")
        return ", ".join(f"{s} {100 * results[s]['top1']:.2f} % ({100 * results[s]['top5']:.2f} %)" for s in sets)
    return f"test accuracy {100 * results['test_accuracy']:.2f} %"
