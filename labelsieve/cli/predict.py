"""labelsieve predict: predict new samples with the network of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from labelsieve.cli.common import Common, Flag, Flat, check_target, counted, percent
from labelsieve.csv_files import write_csv
from labelsieve.errors import Problems
from labelsieve.workflow.predict import Accuracy, predict_source
from labelsieve.workflow.settings import SourceSettings


@dataclass(frozen=True)
class PredictOptions:
    """Options of `predict`.

    Parameters
    ----------
    to
        CSV file to write.
    all_classes
        Also write the probability of every class, one column per class.
    device
        Device: auto, cpu, cuda or mps.
    network
        package.module:Name of your own network, if the model was trained with one. Code is only imported if you
        name it.
    embed
        Pretrained model of the run, if it is in another place or if it is package.module:function.
    score
        Compare the predictions with the labels of SOURCE.
    force
        Overwrite the file if it exists.
    """

    to: Path = Path("predictions.csv")
    all_classes: Flag = False
    device: str = "auto"
    network: str | None = None
    embed: str | None = None
    score: Flag = False
    force: Flag = False


def predict(
    run: Path,
    source: str,
    /,
    *,
    options: Annotated[PredictOptions, Flat] = PredictOptions(),
    settings: Annotated[SourceSettings, Flat] = SourceSettings(),
    common: Common = Common(),
) -> None:
    """Write id, predicted class and probability of every sample of SOURCE to a CSV file. SOURCE needs no labels.

    Columns and --root are those of the run unless you set them. If the run's id column is missing, ids are row numbers.

    Parameters
    ----------
    run
        Run folder with a trained network.
    source
        As for `select`; a folder may hold pictures without class folders.
    """
    problems = Problems()
    check_target(problems, "--to", options.to, source=source, force=options.force, example="predictions.csv")
    problems.stop_if_any()
    found = predict_source(
        run, source, settings, progress=common.progress(), network=options.network, device=options.device,
        score=options.score, embed=options.embed,
    )  # fmt: skip
    rows = iter(found.rows(all_classes=options.all_classes))
    write_csv(options.to, next(rows), rows)
    skipped = len(found.data.skipped)
    common.say(
        f"{options.to}: {counted(len(found.data), 'prediction')}"
        + (f", {counted(skipped, 'sample')} skipped" if skipped else "")
        + (f", accuracy {percent(found.accuracy.accuracy)}" if found.accuracy is not None else ""),
        *(describe_unknown(found.accuracy, len(found.data)) if found.accuracy is not None else ()),
    )
    counts = Counter(found.predicted)
    common.answer(
        {
            "to": options.to,
            "samples": len(found.data),
            "skipped": [sample._asdict() for sample in found.data.skipped],
            "notes": [str(note) for note in found.notes],
            "predicted": {name: counts[name] for name in found.classes},
            "accuracy": None,
            **(asdict(found.accuracy) if found.accuracy is not None else {}),
        }
    )


def describe_unknown(scored: Accuracy, samples: int) -> list[str]:
    """Return lines on labels of classes that the model does not know, which count as wrong."""
    from labelsieve.data.columns import join_names

    unknown, alike = scored.unknown_labels, scored.spelled_otherwise
    if not unknown:
        return []
    count = sum(unknown.values())
    known = "no label is of a known class"
    if scored.accuracy_known is not None:
        known = f"accuracy over the other {samples - count:,} is {percent(scored.accuracy_known)}"
    names = join_names(list(map(repr, unknown)))
    lines = [f"{count:,} of {samples:,} labels count as wrong, their classes are not known ({names}); {known}"]
    if alike:
        pairs = join_names([f"{name!r} for {known_name!r}" for name, known_name in alike.items()])
        lines.append(f"only the spelling differs: {pairs}; use the spelling of the run and score again")
    return lines
