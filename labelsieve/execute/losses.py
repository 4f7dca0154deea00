"""The losses that a selection can train networks with. Importing this module does not import torch.

Generalised cross-entropy learns doubtful labels late: wrong ones, and those of hard classes. benchmarks/repeats.md
compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from labelsieve.errors import InputError

if TYPE_CHECKING:
    from labelsieve.engine.method import Method

LOSSES = ("ce", "gce")  # cross-entropy, generalised cross-entropy
GCE_Q = 0.7  # as published


def check_loss(loss: str) -> None:
    """Raise InputError if the loss is not known."""
    if loss not in LOSSES:
        raise InputError(f"loss {loss!r} is not known: choose {' or '.join(LOSSES)}")


def method_of(loss: str, *, label_smoothing: float = 0.0) -> Method:
    """The engine's method for a loss."""
    from labelsieve.methods.generalised_ce import GeneralisedCE
    from labelsieve.methods.standard import Standard

    check_loss(loss)
    if loss == "ce" and label_smoothing == 0:
        return Standard()
    return GeneralisedCE(q=GCE_Q if loss == "gce" else 0.0, label_smoothing=label_smoothing)
