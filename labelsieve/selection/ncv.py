"""Noisy cross-validation, algorithm 1 of the paper: one round, nothing removed.

    split D into D_1 and D_2; train on each; select the samples of the other half whose given label is predicted

It is INCV with one iteration and a remove ratio of 0, and is run as such.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from labelsieve.selection.incv import Steps, incv_steps
from labelsieve.selection.settings import INCVSettings
from labelsieve.selection.state import INCVState
from labelsieve.types import IntArray


def ncv_settings(settings: INCVSettings | None = None) -> INCVSettings:
    """The same settings with one iteration that removes nothing."""
    return replace(settings or INCVSettings(), n_iterations=1, remove_ratio=0.0)


def ncv_steps(
    labels: Any,
    classes: int,
    *,
    settings: INCVSettings | None = None,
    seed: int,
    state: INCVState | None = None,
    on_iteration: Callable[[INCVState], None] | None = None,
    name: str = "ncv",
    names: Sequence[Any] | None = None,
    groups: IntArray | None = None,
) -> Steps:
    """Select clean labels in one round; the arguments are those of `incv_steps`."""
    return incv_steps(
        labels,
        classes,
        settings=ncv_settings(settings),
        seed=seed,
        state=state,
        on_iteration=on_iteration,
        name=name,
        names=names,
        groups=groups,
    )
