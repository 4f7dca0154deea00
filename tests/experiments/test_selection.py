from __future__ import annotations

from typing import Any

from labelsieve.experiments import paper, selection
from labelsieve.experiments.items import ITEMS
from labelsieve.experiments.settings import Noise


def _record(noise: Noise, off: tuple[float, float], seed: int) -> dict[str, Any]:
    """INCV's measures as published, `off` by (LP, LR) after the last iteration."""
    described = {"pattern": noise.pattern, "ratio": noise.ratio}
    published = paper.FIGURE_4[noise.key]
    steps = [{"label_precision": lp, "label_recall": lr, "selected": 100} for lp, lr in published]
    steps[-1] = {
        "label_precision": published[-1][0] + off[0],
        "label_recall": published[-1][1] + off[1],
        "selected": 100,
    }
    lengths = {"epochs": 50, "full_epochs": 50, "iterations": 4, "selection_epochs": 50}
    cell = {"noise": described, "method": "incv", "settings": {}, "seed": seed, **lengths}
    return {"noise": described, "cell": cell, "results": {"by_iteration": steps, "noise_ratio_estimate": noise.ratio}}


def test_the_farthest_from_the_paper_s_is_told_by_means_over_seeds() -> None:
    few, many = Noise("symmetric", 0.2), Noise("symmetric", 0.8)
    found = [
        _record(few, (-0.01, 0.004), 0),
        _record(many, (0.04, -0.05), 0),
        _record(many, (-0.04, 0.02), 1),  # the precisions of the two seeds cancel out
    ]
    scale = ITEMS["selection"].scales["paper"]
    told = selection.from_the_paper(selection.grouped(found, scale))
    assert told == ("Farthest from the paper's after the last iteration: LP -0.010 at Sym. 0.2, LR -0.015 at Sym. 0.8.")
