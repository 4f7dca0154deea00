"""suggestions.csv of a run: the suspects, most suspicious first, each with the label suggested and its probability."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from labelsieve.csv_files import read_csv, write_csv
from labelsieve.errors import InputError
from labelsieve.selection.finalize import JudgedSelection
from labelsieve.types import LabelledData

NAME = "suggestions.csv"
COLUMNS = ("id", "label", "suspicion", "suggested", "probability")  # suspicion: of the label, probability: of suggested


def write_suggestions(path: Path, data: LabelledData, selection: JudgedSelection) -> None:
    """Nothing is written where the selection judged nothing (protocol "paper")."""
    rows = np.flatnonzero(selection.doubted(data.y))
    if np.isnan(selection.suggested_probability).all():
        return
    cells = (
        (
            data.ids[i],
            str(data.classes[data.y[i]]),
            f"{selection.suspicion[i]:.6g}",
            str(data.classes[selection.predicted[i]]),
            f"{selection.suggested_probability[i]:.6g}",
        )
        for i in rows[np.argsort(-selection.suspicion[rows], kind="stable")].tolist()
    )
    write_csv(path, COLUMNS, cells)


def read_suggestions(path: Path) -> dict[str, float] | None:
    """Probability of the suggested label by id; None where the run has no such file."""
    if not path.is_file():
        return None
    found = {}
    for line, (id, _, _, _, probability) in read_csv(path, COLUMNS):
        try:
            found[id] = float(probability)
        except ValueError:
            raise InputError(f"{path}, line {line}: {probability!r} is not a number") from None
    return found
