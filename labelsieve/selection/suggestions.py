"""suggestions.csv of a run: the suspects, most suspicious first, each with the label suggested and its probability."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from labelsieve.errors import InputError
from labelsieve.files import atomic_writer
from labelsieve.selection.finalize import JudgedSelection
from labelsieve.types import LabelledData

NAME = "suggestions.csv"
COLUMNS = ("id", "label", "suspicion", "suggested", "probability")  # suspicion: of the label, probability: of suggested


def write_suggestions(path: Path, data: LabelledData, selection: JudgedSelection) -> None:
    """Nothing is written where the selection judged nothing (protocol "paper")."""
    rows = np.flatnonzero(selection.doubted(data.y))
    if np.isnan(selection.suggested_probability).all():
        return
    with atomic_writer(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for i in rows[np.argsort(-selection.suspicion[rows], kind="stable")].tolist():
            given, suggested = str(data.classes[data.y[i]]), str(data.classes[selection.predicted[i]])
            likely = selection.suggested_probability[i]
            writer.writerow((data.ids[i], given, f"{selection.suspicion[i]:.6g}", suggested, f"{likely:.6g}"))


def read_suggestions(path: Path) -> dict[str, float] | None:
    """Probability of the suggested label by id; None where the run has no such file."""
    if not path.is_file():
        return None
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            if tuple(next(rows, ())) != COLUMNS:
                raise InputError(f"{path}: the first line must be {','.join(COLUMNS)}")
            return {id: float(probability) for id, _, _, _, probability in rows}
    except (ValueError, csv.Error) as problem:
        raise problem if isinstance(problem, InputError) else InputError(f"{path} is damaged: {problem}") from None
