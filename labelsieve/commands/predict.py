"""labelsieve predict: a run's network on new samples."""

from __future__ import annotations

import csv
from pathlib import Path

from labelsieve.commands.common import Common, Flag, Problems, percent


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
    root: Path | None = None,
    label_column: str | None = None,
    force: Flag = False,
    common: Common = Common(),
) -> None:
    """Write id, predicted and probability of every sample of SOURCE to FILE.csv. Labels in SOURCE are not needed.

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
    root
        Where the relative paths in a CSV begin; default: beside it.
    label_column
        Name of the column with the labels, where there is one: it is no feature. Default: what it was in the run.
    force
        Write over the file that is there already.
    """
    import numpy as np

    from labelsieve.commands import modelfile
    from labelsieve.data.source import load_source
    from labelsieve.files import atomic_writer
    from labelsieve.runfolder import RunFolder

    problems = Problems()
    problems.check(not to.is_dir(), f"--to {to} is a folder: give a file, such as {to / 'predictions.csv'}")
    itself = to.is_file() and Path(source).exists() and to.samefile(source)
    problems.check(not itself, f"--to {to} is the source, which is never changed: give another file")
    if not (force or itself or to.is_dir()):
        problems.check(not to.exists(), f"{to} is there already: give another --to, or --force to write over it")
    folder = problems.attempt(RunFolder.existing, run)
    problems.stop_if_any()
    assert folder is not None
    model = modelfile.load(folder / "model.safetensors", network=network)
    pictures = model.reading.kind == "pictures"
    data = load_source(
        source,
        labelled=score,
        label_column=label_column or folder.record().get("settings", {}).get("label_column") or "label",
        root=root,
        size=(model.reading.shape[1], model.reading.shape[2]) if pictures else None,
        encoding=model.reading.encoding,
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
        + (f", {len(data.skipped):,} samples could not be read" if data.skipped else "")
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
