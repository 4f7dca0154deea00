"""Figure 4 compared with the paper's values."""

from __future__ import annotations

from typing import Any

import pytest

from labelsieve.experiments import paper, render, result_figures
from labelsieve.experiments.paper import PAPER, Noise


def _record(noise: Noise, difference: tuple[float, float], seed: int) -> dict[str, Any]:
    """INCV's published values, changed by (LP, LR) after the last iteration."""
    described = {"pattern": noise.pattern, "ratio": noise.ratio}
    published = paper.FIGURE_4[noise.key]
    steps = [{"label_precision": lp, "label_recall": lr, "selected": 100} for lp, lr in published]
    steps[-1]["label_precision"] += difference[0]
    steps[-1]["label_recall"] += difference[1]
    lengths = {"epochs": 50, "full_epochs": 50, "iterations": 4, "selection_epochs": 50}
    cell = {"noise": described, "method": "incv", "settings": {}, "seed": seed, **lengths}
    return {"noise": described, "cell": cell, "results": {"by_iteration": steps, "noise_ratio_estimate": noise.ratio}}


def test_largest_difference_from_the_paper_is_of_the_means_over_seeds() -> None:
    low, high = Noise("symmetric", 0.2), Noise("symmetric", 0.8)
    found = [
        _record(low, (-0.01, 0.004), 0),
        _record(high, (0.04, -0.05), 0),
        _record(high, (-0.04, 0.02), 1),  # the precisions of the two seeds cancel out
    ]
    precision, recall = result_figures.largest_differences(render.by_noise(found, PAPER.table_noises))
    assert precision == ("LP", pytest.approx(-0.01), low.title)
    assert recall == ("LR", pytest.approx(-0.015), high.title)
