"""Turn the last state into a Selection with expected precision, recall and suspicion, and write suggestions.csv.

suggestions.csv lists the suspects of a run, the most suspicious first, with the suggested label and its probability.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labelsieve import theory
from labelsieve.csv_files import read_csv, write_csv
from labelsieve.errors import InputError
from labelsieve.selection.noise_model import fit_noise_model
from labelsieve.selection.posterior import LEAST_ODDS, log_odds_of, posterior_of, probability_of, shift_to_mean
from labelsieve.selection.settings import INCVSettings
from labelsieve.selection.splits import distinct_share
from labelsieve.selection.state import INCVState
from labelsieve.types import SELECTED, FloatArray, IntArray, LabelledData, ScoredVerdicts, Scores, Selection

# The smallest suspicion in the log-odds of networks that have learnt the labels, which are too sure (chosen on CIFAR-10
# and photos: docs/reproduction.md, benchmarks/finish.md).
LEAST_LEARNT_SUSPICION = 1e-2
# The weight of networks if the selection is sure of all labels, and the part of it that is lost per memorised share of
# the wrong labels (both chosen on digits, photos, human labels and CIFAR-10: benchmarks/finish.md).
WEIGHT_IF_SURE, LOST_IF_MEMORISED = 0.6, 6.0
SUGGESTIONS = "suggestions.csv"
# `suspicion` is the probability that the label is wrong, `probability` that of the suggested label.
SUGGESTION_COLUMNS = ("id", "label", "suspicion", "suggested", "probability")


def expected_recall(precision: float, right: float, verdict: NDArray[np.int8]) -> float:
    """Right labels selected over the number of right labels, LP |S| / right: in theory 1 - eps after iteration 1."""
    return min(1.0, precision * int(np.sum(verdict == SELECTED)) / right) if right > 0 else 0.0


def finish(state: INCVState, settings: INCVSettings) -> Selection:
    """The Selection of a state."""
    if settings.protocol == "auto":
        precision = state.expected_precision()
    else:  # proposition 2
        precision = theory.label_precision(state.transition) if len(state.selected) else 0.0
    # By the same suspicions as the precision: the noise ratio differs from their mean.
    right = (1 - state.noise_ratio) * len(state.verdict)
    if settings.protocol == "auto" and np.isfinite(state.noise_ratio):
        right = float(np.nansum(1 - state.suspicion))
    return Selection(
        **{field.name: getattr(state, field.name) for field in fields(ScoredVerdicts)},
        suspicion=state.suspicion,
        noise_ratio=state.noise_ratio,
        transition_matrix=state.transition,
        expected_precision=precision,
        expected_recall=expected_recall(precision, right, state.verdict),
        history=state.history,
        notes=state.notes,
        suggested_probability=state.suggested_probability,
    )


def _first_scores(first: Selection, second: Scores) -> Scores:
    """The scores of a selection, and the second ones of samples without a first prediction."""
    known = first.predicted >= 0
    return Scores(**{name: np.where(known, getattr(first, name), other) for name, other in second.numbers().items()})


def with_learnt_labels(suspicion: FloatArray, new: FloatArray) -> FloatArray:
    """The weighted mean of the log-odds of both, shifted so that the expected number of wrong labels stays the first.

    Samples without a first suspicion have the new one.
    """
    known = np.isfinite(suspicion)
    if not known.any():
        return suspicion
    expected = suspicion[known].mean()
    weight = weight_of_networks(suspicion[known], new[known])
    of_first, of_second = log_odds_of(suspicion, LEAST_ODDS), log_odds_of(new, LEAST_LEARNT_SUSPICION)
    log_odds = np.where(known, (1 - weight) * of_first + weight * of_second, of_second)
    return probability_of(log_odds + shift_to_mean(log_odds[known], expected))


def weight_of_networks(suspicion: FloatArray, new: FloatArray) -> float:
    """How much networks that have learnt the labels count against a selection, from the suspicions of both.

    The weight depends on two shares. One is the share of the variance of "wrong" that the suspicion explains,
    1 - E[s (1 - s)] / (E[s] (1 - E[s])): a selection that is sure of all labels counts more. The other is the share of
    wrong labels that the networks have memorised. Networks on embeddings memorise many and rank the labels worse than
    the selection did. This is seen without true labels: they contradict fewer labels than are expected to be wrong.
    As the selection expects them, the second share matters less if the first one is small.
    """
    expected = suspicion.mean()
    variance = expected * (1 - expected)
    if variance == 0:
        return WEIGHT_IF_SURE
    explained = 1 - (suspicion * (1 - suspicion)).mean() / variance
    memorised = max(0.0, 1 - (new > 0.5).mean() / expected)
    weight = WEIGHT_IF_SURE + (1 - WEIGHT_IF_SURE) * (1 - explained)
    return float(weight * max(0.0, 1 - LOST_IF_MEMORISED * memorised * explained))


def judge_again(
    new: Scores, given: IntArray, classes: int, before: Selection, groups: IntArray | None = None
) -> Selection:
    """The judgement of a selection and of the networks that a robust method trained after it (`new`).

    The networks have learnt the labels and memorised some wrong ones, so they cannot say how many are wrong: the noise
    estimate, the verdicts, the predictions and the mean suspicion stay, and only the order of the labels and their
    distances change (docs/reproduction.md, benchmarks/finish.md).
    """
    earlier, scores = before.noise, _first_scores(before, new)
    known = earlier if earlier is not None and earlier.known else None
    model = fit_noise_model(scores, given, classes, earlier=known, distinct=distinct_share(groups))
    estimate, history = earlier or model.estimate, before.history
    if earlier is None:
        *others, last = history or ({},)
        history = (*others, {**last, "estimate": estimate.record()})
    suspicion = with_learnt_labels(before.suspicion, 1 - new.probability)
    predicted_right = posterior_of(scores, given, model).predicted_right
    precision = float(1 - suspicion[before.selected].mean()) if before.selected.any() else 0.0
    return replace(
        before,
        **scores.numbers(),
        suspicion=suspicion,
        noise_ratio=estimate.ratio,
        expected_precision=precision,
        expected_recall=expected_recall(precision, float(np.nansum(1 - suspicion)), before.verdict),
        history=history,
        suggested_probability=np.where(scores.predicted == given, 1 - suspicion, suspicion * predicted_right),
    )


def write_suggestions(path: Path, data: LabelledData, selection: Selection) -> None:
    """Write suggestions.csv, unless the selection has no probabilities (protocol "paper")."""
    rows = np.flatnonzero(selection.is_suspect(data.y))
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
    probabilities = {}
    for line, (id, _, _, _, probability) in read_csv(path, SUGGESTION_COLUMNS):
        try:
            probabilities[id] = float(probability)
        except ValueError:
            raise InputError(f"{path}, line {line}: {probability!r} is not a number") from None
    return probabilities
