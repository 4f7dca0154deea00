"""Has a network learnt at all? How many of the labels it was trained on it gives itself, and how many it should."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from labelsieve.engine.bundle import Bundle, Factory, NetworkState
from labelsieve.engine.evaluate import probabilities
from labelsieve.engine.factory import settled
from labelsieve.engine.rng import Draws, borrowed
from labelsieve.engine.schedule import Schedule
from labelsieve.engine.store import Store
from labelsieve.types import IntArray

MOST = 2_000  # samples that are asked
FAR_FEWER = 0.85  # of the labels that are expected to be right
HARDLY = 0.15  # of the way from the share of the largest class to all


def agreement(
    store: Store, factory: Factory, states: Sequence[NetworkState], labels: IntArray, among: IntArray
) -> float:
    """Share of these samples, or of some of them, whose label is the class that the networks together predict."""
    asked = np.random.default_rng(0).permutation(among)[:MOST]
    factory = settled(factory, store.shape)
    total = torch.zeros(())
    with borrowed(store.device):
        Draws(store.device).begin(0)  # of networks that draw even now
        for state in states:
            bundle = Bundle(factory, [state], Schedule.incv_50(1), store.device)
            total = total + probabilities(bundle, store, asked, 0).cpu()
    return float((total.argmax(1).numpy() == labels[asked]).mean())


def has_learnt(share: float, labels: IntArray, *, precision: float | None) -> bool:
    """`precision`: expected of the labels; where nobody knows, what counts is whether it beats the largest class."""
    if precision is not None:
        return share >= FAR_FEWER * precision
    largest = np.bincount(labels).max() / len(labels)
    return bool(share >= largest + HARDLY * (1 - largest))


def what_may_help(
    augment: str, *, option: str = "--augment {}", epochs: str = "epochs", network: str = "network"
) -> str:
    """Less augmentation than there was, and what always may."""
    less = {"mirror": f"{option.format('shift')} (or none), ", "shift": f"{option.format('none')}, "}.get(augment, "")
    return f"{less}more {epochs} or another {network} may help"
