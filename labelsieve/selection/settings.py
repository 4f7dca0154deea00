"""What a selection may be told, and what the authors' code would have chosen."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from labelsieve.checks import is_number, whole
from labelsieve.errors import InputError

Protocol = Literal["auto", "paper"]
ASYMMETRIC = ("pair", "asymmetric", "cifar10-map")
PATTERNS = ("auto", "symmetric", "symmetric-inclusive", *ASYMMETRIC)


@dataclass(frozen=True)
class INCVSettings:
    """Every setting of INCV."""

    n_iterations: int = 4
    """Rounds of noisy cross-validation; with protocol "auto" it may stop earlier, when another would add nothing."""

    remove_ratio: float | Literal["auto"] = "auto"
    """Samples removed for each one selected: a number, 0 removes nothing; "auto" takes it from the noise."""

    pattern: str = "auto"
    """Noise pattern where it is known: symmetric, pair. "auto" measures it (protocol "paper" assumes symmetric)."""

    checkpoint: str = "auto"
    """Which epoch selects: "last", "best-until-2" (the best on the held-out labels up to iteration 2), or "auto"."""

    repeats: int = 1
    """Random splits in each iteration, whose predictions are averaged: better selection for so many times the cost."""

    protocol: Protocol = "auto"
    """"auto" measures the noise and is told nothing; "paper" does what the authors' code does."""

    networks: bool = True
    """Networks answer: which epoch of theirs selects is worth a word."""

    stored: bool = False
    """The answers are predictions that were made elsewhere: nothing can be trained to measure the noise (stored.py)."""

    def __post_init__(self) -> None:
        r = self.remove_ratio
        whole("n_iterations", self.n_iterations, least=1)
        whole("repeats", self.repeats, least=1)
        if self.repeats > 1 and self.protocol == "paper":
            raise InputError("repeats: the paper's protocol has one split an iteration; choose protocol auto")
        if r != "auto" and not (is_number(r) and 0 <= float(r) < float("inf")):
            raise InputError(f'remove_ratio: expected "auto" or a number of at least 0, got {r!r}')
        if self.pattern not in PATTERNS:
            raise InputError(f"pattern: {self.pattern!r} is not known; choose one of {', '.join(PATTERNS)}")
        if self.protocol not in ("auto", "paper"):
            raise InputError(f"protocol: {self.protocol!r} is not known; choose auto or paper")
        if self.checkpoint not in ("auto", "last") and not re.fullmatch(r"best-until-[1-9]\d*", self.checkpoint):
            raise InputError(
                f'checkpoint: expected "auto", "last" or "best-until-2" (any number), got {self.checkpoint!r}'
            )

    @property
    def asymmetric(self) -> bool:
        return self.pattern in ASYMMETRIC

    def for_fast_network(self) -> INCVSettings:
        """Its rate falls to nearly nothing, so its last epoch selects, unless told otherwise or in the paper's way."""
        return replace(self, checkpoint="last") if (self.protocol, self.checkpoint) == ("auto", "auto") else self

    def best_until(self, noise_ratio: float | None) -> int:
        """The last iteration in which the best checkpoint selects; before the noise is known, `noise_ratio` is None."""
        if self.checkpoint == "last":
            return 0
        if self.checkpoint != "auto":
            return int(self.checkpoint.rsplit("-", 1)[1])
        if self.protocol == "auto" or noise_ratio is None:
            return 1
        return authors_best_until(noise_ratio, asymmetric=self.asymmetric, n_iterations=self.n_iterations)


def ncv_settings(settings: INCVSettings | None = None) -> INCVSettings:
    """Noisy cross-validation, algorithm 1 of the paper: INCV with one iteration that removes nothing.

    The samples are split into two halves, and a sample is selected if a model trained on the other half predicts its
    label.
    """
    return replace(settings or INCVSettings(), n_iterations=1, remove_ratio=0.0)


def authors_best_until(noise_ratio: float, *, asymmetric: bool, n_iterations: int = 4) -> int:
    """Iteration 1 for asymmetric or heavy noise, two up to 0.6, every one where there is little."""
    if asymmetric or noise_ratio > 0.6:
        return 1
    return 2 if noise_ratio > 0.3 else n_iterations


def authors_remove_ratio(noise_ratio: float, *, asymmetric: bool = False) -> float:
    """min(2, eps / (1 - eps)): as many removed for each selected as there are wrong labels for each right one."""
    if asymmetric:
        return 0.0
    return 2.0 if noise_ratio >= 2 / 3 else noise_ratio / (1 - noise_ratio)
