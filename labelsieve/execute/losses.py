"""What selection's networks minimise: `ce`, cross-entropy, or `gce`, generalised cross-entropy.

The second learns doubtful labels late, wrong ones and those of hard classes. benchmarks/repeats.md compares them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from labelsieve.errors import InputError

if TYPE_CHECKING:
    from labelsieve.engine.method import Method

LOSSES = ("ce", "gce")
Q = 0.7


def check_loss(loss: str, *, network: bool = True) -> None:
    """Raise InputError where the loss is not known, or where there is no network to train with it."""
    if loss not in LOSSES:
        raise InputError(f"loss {loss!r} is not known: choose {' or '.join(LOSSES)}")
    if loss != "ce" and not network:
        raise InputError(f"loss {loss} is for networks: a scikit-learn classifier brings its own; leave it out")


def method_of(loss: str, *, label_smoothing: float = 0.0) -> Method:
    """The engine's method for a loss."""
    check_loss(loss)
    from labelsieve.methods.generalised_ce import GeneralisedCE
    from labelsieve.methods.standard import Standard

    if loss == "ce" and label_smoothing == 0:
        return Standard()
    return GeneralisedCE(q=Q if loss == "gce" else 0.0, label_smoothing=label_smoothing)
