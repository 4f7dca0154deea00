"""labelsieve predict: a run's network on new samples."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from labelsieve.commands.common import Common, Flag, check_target, percent
from labelsieve.commands.source import SourceOptions
from labelsieve.errors import Problems

if TYPE_CHECKING:
    from labelsieve.data.columns import Encoding


def predict(
    run: Path,
    source: str,
    /,
    *,
    to: Path = Path("predictions.csv"),
    all_classes: Flag = False,
    device: str = "auto",
    network: str | None = None,
    score: Flag = False,
    force: Flag = False,
    reading: SourceOptions = SourceOptions(),
    common: Common = Common(),
) -> None:
    """Write id, predicted and probability of every sample of SOURCE to FILE.csv. Labels in SOURCE are not needed.

    Where --root and the names of columns are not given they are those of the run.

    Parameters
    ----------
    run
        A run folder with a trained network.
    source
        As for `select`; a folder may hold pictures without class folders.
    to
        The CSV file to write.
    all_classes
        Also the probability of every class, one column each.
    device
        auto, cpu, cuda or mps.
    network
        The package.module:Name that the model was trained with, where it was: code is only imported when you name it.
    score
        SOURCE has labels that are right: say how many predictions agree with them.
    force
        Write over the file that is there already.
    """
    import numpy as np

    from labelsieve.commands import modelfile
    from labelsieve.files import atomic_writer
    from labelsieve.runfolder import RunFolder

    problems = Problems()
    check_target(problems, "--to", to, source=source, force=force, usual="predictions.csv")
    folder = problems.attempt(RunFolder.existing, run)
    problems.stop_if_any()
    assert folder is not None
    model = modelfile.load(folder / "model.safetensors", network=network)
    pictures = model.reading.kind == "pictures"
    data = reading.as_in(folder.record().get("settings", {})).read(
        source,
        labelled=score,
        size=(model.reading.shape[1], model.reading.shape[2]) if pictures else None,
        encoding=_renamed(model.reading.encoding, reading.text_column),
        progress=common.progress(),
    )
    found = model.probabilities(data, device=device)
    names = [str(name) for name in model.classes]
    best = found.argmax(axis=1)
    with atomic_writer(to) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "predicted", "probability", *(names if all_classes else ())])
        for id, code, row in zip(data.ids.tolist(), best, found, strict=True):
            writer.writerow([id, names[code], f"{row[code]:.6g}", *(f"{p:.6g}" for p in row if all_classes)])
    counts = np.bincount(best, minlength=len(names))
    accuracy = None
    if score:
        from labelsieve import metrics

        labels = np.array([str(name) for name in data.classes], dtype=object)[data.y]
        accuracy = metrics.accuracy(labels, np.array(names, dtype=object)[best])
    common.say(
        f"{to}: {len(data):,} predictions"
        + (f", {len(data.skipped):,} samples were left out" if data.skipped else "")
        + (f", accuracy {percent(accuracy)}" if accuracy is not None else "")
    )
    common.answer(
        {
            "to": to,
            "samples": len(data),
            "skipped": [skipped._asdict() for skipped in data.skipped],
            "predicted": dict(zip(names, counts.tolist(), strict=True)),
            "accuracy": accuracy,
        }
    )


def _renamed(encoding: Encoding | None, text_column: str | None) -> Encoding | None:
    """How the run read its columns, with its texts in a column of another name where one was given."""
    if encoding is None or text_column is None:
        return encoding
    columns = (replace(column, name=text_column) if column.form == "text" else column for column in encoding.columns)
    return replace(encoding, columns=tuple(columns))
