"""The settings of a selection, and the choices of the authors' code."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from labelsieve.checks import check_integer, is_number
from labelsieve.errors import InputError
from labelsieve.models.choose import ModelChoice, ModelKind
from labelsieve.types import WhyUnknown

Protocol = Literal["auto", "paper"]
ASYMMETRIC = ("pair", "asymmetric", "cifar10-map")
PATTERNS = ("auto", "symmetric", "symmetric-inclusive", *ASYMMETRIC)


@dataclass(frozen=True)
class INCVSettings:
    """Every setting of INCV."""

    n_iterations: int = 4
    """Rounds of noisy cross-validation. Protocol "auto" stops earlier if another round would add nothing."""

    remove_ratio: float | Literal["auto"] = "auto"
    """At most this number of samples is removed per selected sample; 0 removes none. "auto" does not limit it in
    protocol "auto" and follows the authors' rule in protocol "paper"."""

    pattern: str = "auto"
    """The noise pattern, for protocol "paper" only; "auto" means symmetric. It has no effect in protocol "auto"."""

    checkpoint: str = "auto"
    """Which epoch selects: "last", "best-until-2" (the best on the held-out labels up to iteration 2), or "auto"."""

    repeats: int = 1
    """Number of random splits per iteration. Their predictions are averaged; the cost grows with the number."""

    protocol: Protocol = "auto"
    """"auto" estimates the noise from the data; "paper" follows the authors' code."""

    networks: bool = True
    """Whether networks are trained. A note then says which epoch selects; random parts are not trained on, and the
    interval of the noise ratio does not allow for mistakes that the classifiers share."""

    stored: bool = False
    """Whether the scores are stored predictions (stored.py). Then no further training can measure the noise."""

    why_unknown: WhyUnknown | None = None
    """Why agreement with these labels says nothing about wrong ones: a leak, or outcomes. None if it does."""

    def __post_init__(self) -> None:
        r = self.remove_ratio
        check_integer("n_iterations", self.n_iterations, least=1)
        check_integer("repeats", self.repeats, least=1)
        if self.repeats > 1 and self.protocol == "paper":
            raise InputError("repeats: the paper's protocol has one split per iteration; choose protocol auto")
        if r != "auto" and not (is_number(r) and 0 <= float(r) < float("inf")):
            raise InputError(f'remove_ratio: expected "auto" or a number of at least 0, got {r!r}')
        if self.pattern not in PATTERNS:
            raise InputError(f"unknown pattern {self.pattern!r}; choose one of {', '.join(PATTERNS)}")
        if self.protocol not in ("auto", "paper"):
            raise InputError(f"unknown protocol {self.protocol!r}; choose auto or paper")
        if self.checkpoint not in ("auto", "last") and not re.fullmatch(r"best-until-[1-9]\d*", self.checkpoint):
            raise InputError(
                f'checkpoint: expected "auto", "last" or "best-until-2" (any number), got {self.checkpoint!r}'
            )

    @property
    def asymmetric(self) -> bool:
        return self.pattern in ASYMMETRIC

    def for_fast_network(self) -> INCVSettings:
        """Let the last epoch select by default: the learning rate of the fast network ends near 0."""
        return replace(self, checkpoint="last") if (self.protocol, self.checkpoint) == ("auto", "auto") else self

    def for_model(self, choice: ModelChoice, why_unknown: WhyUnknown | None) -> INCVSettings:
        """Adapt the settings to the model that selects, and to the kind of labels."""
        settings = self.for_fast_network() if choice.kind is ModelKind.FAST else self
        return replace(settings, networks=choice.is_network, why_unknown=why_unknown)

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
    label. Protocol "auto" also selects samples whose label is more likely right than wrong.
    """
    return replace(settings or INCVSettings(), n_iterations=1, remove_ratio=0.0)


def authors_best_until(noise_ratio: float, *, asymmetric: bool, n_iterations: int = 4) -> int:
    """Iteration 1 for asymmetric noise or a ratio above 0.6, iteration 2 above 0.3, all iterations below."""
    if asymmetric or noise_ratio > 0.6:
        return 1
    return 2 if noise_ratio > 0.3 else n_iterations


def authors_remove_ratio(noise_ratio: float, *, asymmetric: bool = False) -> float:
    """min(2, eps / (1 - eps)): the number of wrong labels per right label, at most 2."""
    if asymmetric:
        return 0.0
    return 2.0 if noise_ratio >= 2 / 3 else noise_ratio / (1 - noise_ratio)


def which_epoch(best_until: int) -> str:
    """Which epoch of a network makes the predictions, in words."""
    if best_until < 1:
        return "networks predict with their last epoch"
    return f"networks predict with their best epoch up to iteration {best_until}, then with their last epoch"


def networks_at_once(settings: INCVSettings) -> int:
    """Return the maximum number of trainings that a selection asks for at once.

    Protocol "auto" trains on three parts per split, and for the noise estimate on two halves per split and four parts.
    """
    return 2 if settings.protocol == "paper" else max(3 * settings.repeats, 2 * settings.repeats + 4)


def selection_passes(settings: INCVSettings) -> int:
    """Return the maximum number of times that a selection trains on all samples, per epoch.

    The halves of iteration 1 are one pass. A later iteration trains twice, on the selected samples and one half of the
    candidates, or three times, on two thirds of the samples: at most two passes. The noise estimate trains on both
    halves, and on two parts of each: two passes, and one more for classifiers that turn out to be weak.
    """
    estimate = 0 if settings.protocol == "paper" else 2 if settings.networks else 3
    return settings.repeats * (1 + 2 * (settings.n_iterations - 1) + estimate)
