"""labelsieve train: a network that does not learn the wrong labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from labelsieve.commands.common import Common, Problems, beside_others, check_seed, one_first
from labelsieve.commands.training import TrainOptions

if TYPE_CHECKING:
    from labelsieve.progress import Progress
    from labelsieve.runfolder import RunFolder
    from labelsieve.types import LabelledData


def train(
    run: Path, /, *, device: str = "auto", options: TrainOptions = TrainOptions(), common: Common = Common()
) -> None:
    """Train a robust network on a run's selection; the same command goes on where it was stopped.

    Parameters
    ----------
    run
        A run folder, made by `select` or `run`.
    device
        auto, cpu, cuda or mps.
    """
    from labelsieve.commands.training import run_training
    from labelsieve.runfolder import RunFolder

    problems = Problems()
    check_seed(problems, common)
    options.check(problems)
    folder = problems.attempt(RunFolder.existing, beside_others(run, device))
    problems.stop_if_any()
    assert folder is not None
    progress = common.progress()
    with folder.lock():
        with one_first():
            data = samples_of(folder, progress)
        begun = run_training(folder, data, options, seed=common.seed, device=device, progress=progress)
        stage = folder.record()["stages"]["train"]
    done = "was trained already" if begun == "done" else f"trained in {stage['seconds']:.1f} s"
    common.say(f"{options.method}, {stage['settings']['network']}: {done}", f"model: {run}/model.safetensors")
    common.answer({"run": run, "resumed": begun, "model": folder / "model.safetensors", **stage})


def samples_of(run: RunFolder, progress: Progress) -> LabelledData:
    """The samples of a run, read again as its selection read them; refused where they changed since."""
    from labelsieve.data.labels import read_label_file
    from labelsieve.data.source import load_source
    from labelsieve.errors import InputError
    from labelsieve.runfolder import fingerprint

    record = run.record()
    about, settings = record.get("data"), record.get("settings", {})
    if about is None or not about.get("source"):
        raise InputError(f"{run.path} does not say where its samples are: run `labelsieve select` first")
    data = load_source(
        about["source"],
        labels=read_label_file(settings["labels"]) if settings.get("labels") else None,
        label_column=settings.get("label_column") or "label",
        root=Path(settings["root"]) if settings.get("root") else None,
        size=settings.get("size"),
        staging=run / "staged",
        progress=progress,
    )
    if fingerprint(data) != about["fingerprint"]:
        raise InputError(f"{about['source']} changed since {run.path} was begun: begin another run")
    return data
