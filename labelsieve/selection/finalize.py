"""From the last state to the Selection: expected precision and recall, and suspicion as a probability."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from labelsieve import theory
from labelsieve.selection.calibrate import calibrated_suspicion
from labelsieve.selection.joint_counts import can_invert
from labelsieve.selection.settings import INCVSettings
from labelsieve.selection.state import INCVState
from labelsieve.types import SELECTED, BoolArray, FloatArray, IntArray, Selection


@dataclass(frozen=True)
class JudgedSelection(Selection):
    """A Selection that also says how likely each predicted label is the true one.

    Where predicted and given label differ, that is the suggested label; nan where nothing was judged (protocol
    "paper", or too many classes for it), and `suspicion` is then the plain mean over a sample's looks; nan too for the
    labels of a class that could not be judged.
    """

    suggested_probability: FloatArray = field(default_factory=lambda: np.empty(0))

    def doubted(self, given: IntArray) -> BoolArray:
        unknown = np.isnan(self.suggested_probability)
        return super().doubted(given) & (unknown.all() | ~unknown)


def expected_precision(state: INCVState, classes: int, settings: INCVSettings) -> float:
    """Corollary 2.2 for protocol "paper"; for "auto" what the measured joint says (see `joint`)."""
    if len(state.selected) == 0:
        return 0.0
    if settings.protocol == "paper":
        pattern = "pair" if settings.asymmetric else "symmetric"
        return theory.pattern_label_precision(state.noise_ratio, classes, pattern)
    return min(state.precision_cap, state.right / len(state.selected))


def expected_recall(precision: float, state: INCVState) -> float:
    """Right labels selected over all right labels, LP |S| / ((1 - eps) n): in theory 1 - eps after iteration 1."""
    clean = (1 - state.noise_ratio) * len(state.verdict)
    return min(1.0, precision * len(state.selected) / clean) if clean > 0 else 0.0


def unjudged_suspicion(state: INCVState) -> float:
    """Of the labels that were not judged: how much of them the noise ratio takes for wrong, or as wrong as any.

    No more than 1/2 unless most labels are wrong: that is a guess about a class, and nothing was found in a label.
    """
    estimate = state.history[0].get("estimate", {}) if state.history else {}
    wrong = estimate.get("unjudged_ratio", state.noise_ratio)
    return float(min(wrong, max(0.5, state.noise_ratio)))


def finish(state: INCVState, classes: int, settings: INCVSettings) -> JudgedSelection:
    """The Selection of a state."""
    precision = expected_precision(state, classes, settings)
    judged = not np.isnan(state.wrong).all()
    suspicion = state.suspicion
    if judged:
        suspicion = calibrated_suspicion(state.suspicion, state.wrong, both=can_invert(state.transition))
        suspicion = np.where(state.unjudged, unjudged_suspicion(state), suspicion)  # and nothing to suggest
    # Selected is a sample exactly where predicted and given label are the same.
    suggested = np.where(state.verdict == SELECTED, 1 - suspicion, suspicion * state.share)
    return JudgedSelection(
        verdict=state.verdict,
        iteration=state.iteration,
        predicted=state.predicted,
        probability=state.probability,
        confidence=state.confidence,
        loss=state.loss,
        suspicion=suspicion,
        noise_ratio=state.noise_ratio,
        transition_matrix=state.transition,
        expected_precision=precision,
        expected_recall=expected_recall(precision, state),
        history=state.history,
        notes=state.notes,
        suggested_probability=suggested if judged else np.full(len(suspicion), np.nan),
    )
