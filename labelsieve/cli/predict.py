"""labelsieve predict: a run's network on new samples."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelsieve.cli.common import Common, Flag, check_target, counted, percent
from labelsieve.errors import InputError, Problems
from labelsieve.workflow.read import SourceOptions

if TYPE_CHECKING:
    from labelsieve.data.columns import Encoding
    from labelsieve.types import LabelledData


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

    Where --root and the names of columns are not given they are those of the run; a table without the run's column of
    ids goes by row numbers.

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

    from labelsieve.files import atomic_writer
    from labelsieve.runfolder import RunFolder
    from labelsieve.workflow import model_file as modelfile

    problems = Problems()
    check_target(problems, "--to", to, source=source, force=force, usual="predictions.csv")
    folder = problems.attempt(RunFolder.existing, run)
    problems.stop_if_any()
    assert folder is not None
    model = modelfile.load(folder / "model.safetensors", network=network)
    pictures = model.reading.kind == "pictures"
    data = _read(
        source,
        reading,
        folder.record().get("settings", {}),
        labelled=score,
        allow_one_class=score,
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
    scored, left = None, len(data.skipped)
    if score:
        labels = [str(data.classes[code]) for code in data.y.tolist()]
        scored = compare(labels, [names[code] for code in best.tolist()], names)
    common.say(
        f"{to}: {counted(len(data), 'prediction')}"
        + (f", {counted(left, 'sample')} {'was' if left == 1 else 'were'} left out" if left else "")
        + (f", accuracy {percent(scored.accuracy)}" if scored is not None else ""),
        *(about_unknown(scored, len(data)) if scored is not None else ()),
    )
    common.answer(
        {
            "to": to,
            "samples": len(data),
            "skipped": [skipped._asdict() for skipped in data.skipped],
            "notes": data.notes,
            "predicted": dict(zip(names, counts.tolist(), strict=True)),
            "accuracy": None,
            **(asdict(scored) if scored is not None else {}),
        }
    )


def _read(source: str, reading: SourceOptions, settings: Mapping[str, Any], **how: Any) -> LabelledData:
    """As the run's source was read. Ids only name the answers: where the run's column of them is not there, rows go by
    number; one that was named for this source has to be there."""
    asked = reading.as_in(settings)
    lacking = ""
    try:
        data = asked.read(source, **how)
    except InputError as problem:
        lacking = f"no column {asked.id_column!r}"
        if reading.id_column is not None or lacking not in str(problem):
            raise
        data = replace(asked, id_column=None).read(source, **how)
    told = ""
    which = "row numbers, from 0" if _are_numbers(data) else "its paths" if data.kind == "pictures" else "its column id"
    if lacking:
        told = f"{source} has {lacking}, which held the ids in the run: its ids are {which}"
    elif which.startswith("row"):
        told = f"the ids of {source} are {which}"
    if not told:
        return data
    how["progress"].note(told)
    return replace(data, notes=(*data.notes, told))


def _are_numbers(data: LabelledData) -> bool:
    """Are the ids those of a source that has none: 0, 1, 2, ... less what was left out?"""
    left_out = {skipped.id for skipped in data.skipped}
    numbers = map(str, range(len(data) + len(left_out)))
    return list(data.ids) == [number for number in numbers if number not in left_out]


@dataclass(frozen=True)
class Scored:
    """How far predictions agree with labels, some of which may be of classes that no prediction can be."""

    accuracy: float
    accuracy_known: float | None  # over the labels of the model's classes; None where there are none
    unknown_labels: dict[str, int]  # of other classes, and how many of each, the most frequent first
    spelled_otherwise: dict[
        str, str
    ]  # those of them that only case and what stands between words tell from a class, and that class


def compare(labels: Sequence[str], predicted: Sequence[str], classes: Sequence[str]) -> Scored:
    from labelsieve import metrics
    from labelsieve.data.spelling import bare

    there = set(classes)
    known = [(label, guess) for label, guess in zip(labels, predicted, strict=True) if label in there]
    unknown = dict(Counter(label for label in labels if label not in there).most_common())
    alike = {bare(name): name for name in classes}
    return Scored(
        metrics.accuracy(labels, predicted),
        metrics.accuracy(*zip(*known, strict=True)) if known else None,
        unknown,
        {name: alike[bare(name)] for name in unknown if bare(name) in alike},
    )


def about_unknown(scored: Scored, samples: int) -> list[str]:
    """Lines on labels that count as wrong whatever is predicted; none where there are none."""
    from labelsieve.data.columns import some

    unknown, alike = scored.unknown_labels, scored.spelled_otherwise
    if not unknown:
        return []
    count = sum(unknown.values())
    over = "no label is of a class it knows"
    if scored.accuracy_known is not None:
        over = f"accuracy over the other {samples - count:,} is {percent(scored.accuracy_known)}"
    classes = f"classes that the model does not know ({some(list(map(repr, unknown)))})"
    lines = [f"{count:,} of {samples:,} labels are of {classes} and count as wrong; {over}"]
    if alike:
        pairs = some([f"{name!r} for {own!r}" for name, own in alike.items()])
        lines.append(f"only written otherwise: {pairs}; spell them as the run does and score again")
    return lines


def _renamed(encoding: Encoding | None, text_column: str | None) -> Encoding | None:
    """How the run read its columns, with its texts in a column of another name where one was given."""
    if encoding is None or text_column is None:
        return encoding
    columns = (replace(column, name=text_column) if column.form == "text" else column for column in encoding.columns)
    return replace(encoding, columns=tuple(columns))
