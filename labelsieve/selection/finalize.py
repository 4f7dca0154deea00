"""Turn the last state into a Selection with expected precision, recall and suspicion, and write suggestions.csv.

suggestions.csv lists the suspects of a run, the most suspicious first, with the suggested label and its probability.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve import theory
from labelsieve.csv_files import read_csv, write_csv
from labelsieve.errors import InputError
from labelsieve.selection.noise_model import fit_noise_model, with_mean_posterior, without_meaning
from labelsieve.selection.posterior import calibrate, posterior_of
from labelsieve.selection.settings import INCVSettings
from labelsieve.selection.splits import averaged
from labelsieve.selection.state import INCVState
from labelsieve.types import (
    CANDIDATE,
    REMOVED,
    SELECTED,
    FloatArray,
    IntArray,
    LabelledData,
    NoiseEstimate,
    ScoredVerdicts,
    Scores,
    Selection,
    WhyUnknown,
)

# The weight of the log-odds of networks that have learnt the labels, against those of the selection (chosen on CIFAR-10
# with two noises, docs/reproduction.md), and the smallest suspicion in them: networks are not surer than that.
LEARNT_WEIGHT, LEAST_SUSPICION = 0.7, 1e-4
SUGGESTIONS = "suggestions.csv"
# `suspicion` is the probability that the label is wrong, `probability` that of the suggested label.
SUGGESTION_COLUMNS = ("id", "label", "suspicion", "suggested", "probability")


def expected_precision(state: INCVState, classes: int, settings: INCVSettings) -> float:
    """Corollary 2.2 for protocol "paper"; for "auto" the mean posterior of the selected labels."""
    if len(state.selected) == 0:
        return 0.0
    if settings.protocol == "paper":
        pattern = "pair" if settings.asymmetric else "symmetric"
        return theory.pattern_label_precision(state.noise_ratio, classes, pattern)
    return state.expected_precision()


def expected_recall(precision: float, noise_ratio: float, verdict: NDArray[np.int8]) -> float:
    """Right labels selected over all right labels, LP |S| / ((1 - eps) n): in theory 1 - eps after iteration 1."""
    clean = (1 - noise_ratio) * len(verdict)
    return min(1.0, precision * int(np.sum(verdict == SELECTED)) / clean) if clean > 0 else 0.0


def finish(state: INCVState, classes: int, settings: INCVSettings) -> Selection:
    """The Selection of a state."""
    precision = expected_precision(state, classes, settings)
    known = not np.isnan(state.wrong).all()
    suspicion = calibrate(state.order, state.wrong) if known else state.order
    # A sample is selected exactly if predicted and given label are the same.
    suggested = np.where(state.verdict == SELECTED, 1 - suspicion, suspicion * state.predicted_right)
    return Selection(
        **{field.name: getattr(state, field.name) for field in fields(ScoredVerdicts)},
        suspicion=suspicion,
        noise_ratio=state.noise_ratio,
        transition_matrix=state.transition,
        expected_precision=precision,
        expected_recall=expected_recall(precision, state.noise_ratio, state.verdict),
        history=state.history,
        notes=state.notes,
        suggested_probability=suggested if known else np.full(len(suspicion), np.nan),
    )


@dataclass(frozen=True)
class FirstJudgement:
    """The part of a selection that a second judgement builds on."""

    verdict: NDArray[np.int8]
    iteration: NDArray[np.int16]
    suspicion: FloatArray
    scores: Scores  # without top classes; the confidence is nan if it was not stored
    history: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    why_unknown: WhyUnknown | None = None  # why no classifier can estimate the noise of these labels
    transition: FloatArray | None = None  # of the selection, if the networks have learnt the labels that they judge


def combine_scores(first: Scores, second: Scores, given: IntArray, classes: int) -> Scores:
    """The mean of two predictions of each sample (of log-probabilities); the second one if the first is not known."""
    known = np.isfinite(first.confidence)
    rows, others = np.flatnonzero(known), np.flatnonzero(~known)
    mean = averaged((first.take(rows), second.take(rows)), given[rows], classes)
    return Scores.joined([mean, second.take(others)]).take(np.argsort(np.concatenate([rows, others])))


def _first_scores(first: Scores, second: Scores) -> Scores:
    """The first scores, and the second ones of samples without a first prediction.

    The confidence is the second one if the first is not known (labels.csv of earlier versions).
    """
    known, others = first.predicted >= 0, second.numbers()
    found = {name: np.where(known, values, others[name]) for name, values in first.numbers().items()}
    found["confidence"] = np.where(np.isfinite(found["confidence"]), found["confidence"], second.confidence)
    return Scores(**found)


def with_learnt_labels(suspicion: FloatArray, new: FloatArray) -> FloatArray:
    """The weighted mean of the log-odds of both, shifted so that the expected number of wrong labels stays the first.

    Samples without a first suspicion have the new one. A network that has learnt wrong labels ranks labels better than
    the selection did, but it finds too few wrong ones.
    """
    known = np.isfinite(suspicion)
    if not known.any():
        return suspicion
    first, second = (np.clip(values, LEAST_SUSPICION, 1 - LEAST_SUSPICION) for values in (suspicion, new))
    of_first, of_second = np.log(first / (1 - first)), np.log(second / (1 - second))
    log_odds = np.where(known, (1 - LEARNT_WEIGHT) * of_first + LEARNT_WEIGHT * of_second, of_second)
    expected, low, high = suspicion[known].mean(), -40.0, 40.0
    while high - low > 1e-9:
        shift = (low + high) / 2
        shifted = 1 / (1 + np.exp(-log_odds - shift))
        low, high = (low, shift) if shifted[known].mean() > expected else (shift, high)
    return np.asarray(shifted)


def judge_again(
    new: Scores, given: IntArray, classes: int, before: FirstJudgement, groups: IntArray | None = None
) -> Selection:
    """The judgement of a selection and of the networks that a robust method trained after it (`new`).

    Neither judge is always the better one, so both count (benchmarks/finish.md). The noise model is fitted to the mean
    of their predictions. Labels are ranked by the mean of the suspicion before and the order of the new scores, as
    `incv.with_scores` ranks by the mean over the iterations. A label is selected if it is the predicted one; others
    that were removed stay so. `iteration` counts the robust training as one more.

    Networks that have learnt the labels which they judge (`before.transition`) have memorised some wrong ones, so they
    cannot say how many are wrong: the noise estimate, the verdicts, the predictions and the mean suspicion stay, and
    only the order of the labels and their distances change (docs/reproduction.md).
    """
    distinct = 1.0 if groups is None else len(np.unique(groups)) / len(groups)
    first, *others = before.history or ({},)
    earlier = NoiseEstimate.from_record(first["estimate"]) if "estimate" in first else None
    kept = None if before.transition is None or earlier is None else replace(earlier, transition=before.transition)
    scores = combine_scores(before.scores, new, given, classes) if kept is None else _first_scores(before.scores, new)
    model = fit_noise_model(scores, given, classes, earlier=earlier, distinct=distinct)
    posterior = posterior_of(scores, given, model)
    if kept is not None:
        estimate = kept
        suspicion = with_learnt_labels(before.suspicion, 1 - new.probability)
        verdict, iteration = before.verdict, before.iteration
        selected = verdict == SELECTED
    else:
        order = posterior_of(new, given, model).order
        estimate = with_mean_posterior(model.estimate, posterior.wrong)
        judged = np.isfinite(before.scores.confidence) & np.isfinite(before.suspicion)
        suspicion = calibrate(np.where(judged, (before.suspicion + order) / 2, order), posterior.wrong)
        selected = scores.predicted == given
        verdict = np.where(selected, SELECTED, np.where(before.verdict == REMOVED, REMOVED, CANDIDATE)).astype(np.int8)
        last = int(before.iteration.max(initial=0)) + 1
        iteration = np.where(verdict == before.verdict, before.iteration, np.where(verdict == CANDIDATE, 0, last))
    if before.why_unknown is not None and estimate.known:
        estimate = without_meaning(estimate, before.why_unknown)
    precision = float(1 - suspicion[selected].mean()) if selected.any() else 0.0
    return Selection(
        verdict=verdict,
        iteration=iteration.astype(np.int16),
        **scores.numbers(),
        suspicion=suspicion,
        noise_ratio=estimate.ratio,
        transition_matrix=estimate.transition,
        expected_precision=precision,
        expected_recall=expected_recall(precision, estimate.ratio, verdict),
        history=({**first, "estimate": estimate.record()}, *others),
        notes=before.notes,
        suggested_probability=np.where(selected, 1 - suspicion, suspicion * posterior.predicted_right),
    )


def write_suggestions(path: Path, data: LabelledData, selection: Selection) -> None:
    """Write suggestions.csv, unless the selection has no probabilities (protocol "paper")."""
    rows = np.flatnonzero(selection.doubted(data.y))
    if np.isnan(selection.suggested_probability).all():
        return
    # Ranked as written, so that equal values keep the order of labels.csv and of the report.
    written = np.array([f"{value:.6g}" for value in selection.suspicion[rows]])
    rows = rows[order := np.argsort(-written.astype(float), kind="stable")]
    names = np.array([str(name) for name in data.classes], dtype=object)
    probability = (f"{value:.6g}" for value in selection.suggested_probability[rows])
    cells = (data.ids[rows], names[data.y[rows]], written[order], names[selection.predicted[rows]], probability)
    write_csv(path, SUGGESTION_COLUMNS, zip(*cells, strict=True))


def read_suggestions(path: Path) -> dict[str, float] | None:
    """Return the probability of the suggested label by id; None if the run has no such file."""
    if not path.is_file():
        return None
    found = {}
    for line, (id, _, _, _, probability) in read_csv(path, SUGGESTION_COLUMNS):
        try:
            found[id] = float(probability)
        except ValueError:
            raise InputError(f"{path}, line {line}: {probability!r} is not a number") from None
    return found
