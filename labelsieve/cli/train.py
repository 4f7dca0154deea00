"""labelsieve train: a network that does not learn the wrong labels."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelsieve.cli.common import Common, beside_others, check_seed, counted, one_first
from labelsieve.decisions import csv_line
from labelsieve.errors import InputError, Problems
from labelsieve.workflow.read import absolute
from labelsieve.workflow.train import TrainOptions

if TYPE_CHECKING:
    from labelsieve.progress import Progress
    from labelsieve.runfolder import RunFolder
    from labelsieve.types import LabelledData


SELECTION = ("labels.csv", "summary.json", "suggestions.csv", "skipped.csv")  # what a selection leaves, beside run.json


def train(
    run: Path,
    /,
    *,
    out: Path | None = None,
    device: str = "auto",
    options: TrainOptions = TrainOptions(),
    common: Common = Common(),
) -> None:
    """Train a robust network on a run's selection; the same command goes on where it was stopped.

    Decisions of the review page play no part: to train on corrected labels, `export` them and `run` what was written.

    Parameters
    ----------
    run
        A run folder, made by `select` or `run`.
    out
        Another run folder, with the same selection and a network of its own: to compare methods. Default: RUN itself.
    device
        auto, cpu, cuda or mps.
    """
    from labelsieve.runfolder import STAGED, RunFolder
    from labelsieve.workflow.train import run_training

    problems = Problems()
    check_seed(problems, common)
    options.check(problems)
    problems.stop_if_any()
    target, staging = run, None
    if out is not None and out.absolute() != run.absolute():
        target, staging = out, run / STAGED
        if os.environ.get("RANK", "0") == "0":
            branch(RunFolder.existing(run), RunFolder.to_write(out))
    folder = RunFolder.existing(beside_others(target, device))
    trained = folder.record().get("stages", {}).get("train", {}).get("settings", {}).get("train_method")
    if trained not in (None, options.method):
        other = options.method.rpartition(":")[2]
        free = shlex.quote(f"{target}-{other}")
        raise InputError(
            f"{target} holds a network of {trained} already: give --out {free} to train another on the same selection"
        )
    progress = common.progress()
    notes = [told] if (told := about_decisions(RunFolder(run))) else []
    for note in notes:
        progress.note(note)
    with folder.lock():
        with one_first():
            data = samples_of(folder, progress, staging=staging)
        begun = run_training(folder, data, options, seed=common.seed, device=device, progress=progress)
        stage = folder.record()["stages"]["train"]
    done = "was trained already" if begun == "done" else f"trained in {stage['seconds']:.1f} s"
    common.say(f"{options.told()}, {stage['settings']['network']}: {done}", f"model: {target}/model.safetensors")
    common.answer({"run": target, "resumed": begun, "model": folder / "model.safetensors", **stage, "notes": notes})


def about_decisions(run: RunFolder) -> str:
    """That a person's decisions are not trained on, and what to type for it; nothing where there are none."""
    from labelsieve.data.source import TABLES
    from labelsieve.export import default_target
    from labelsieve.report.source_table import find_source

    made = run.decided()
    if not made:
        return ""
    record = run.record()
    about, settings = record.get("data") or {}, record.get("settings", {})
    source = find_source(run, str(about.get("source") or ""))
    target = default_target(record, source, "cleaned")
    words = [str(target)]
    if source is None or not (source.is_dir() or source.suffix.lower() in TABLES):  # ids and labels are written
        words = [str(about.get("source")), "--labels", str(target)]
    elif source.is_file() and about.get("kind") == "pictures":
        words += ["--root", str(settings.get("root") or source.parent)]
    words += options_of(settings)
    export, again = (shlex.join(["labelsieve", *line]) for line in (["export", str(run.path)], ["run", *words]))
    return (
        f"{counted(made, 'decision')} in {run / 'decisions.csv'} {'is' if made == 1 else 'are'} not trained on, only "
        f"the run's own selection is; for corrected labels: {export}, then {again}"
    )


def options_of(settings: Mapping[str, Any]) -> list[str]:
    """The columns that were named for a run, as one writes them."""
    words = []
    for name, usual in (("label_column", "label"), ("text_column", "text"), ("id_column", "id"), ("group_column", "")):
        if isinstance(value := settings.get(name), str) and value != usual:
            words += [f"--{name.replace('_', '-')}", value]
    if isinstance(ignored := settings.get("ignore_columns"), list):
        words += ["--ignore-columns", csv_line(map(str, ignored))]
    return words


def branch(run: RunFolder, out: RunFolder) -> None:
    """`run`'s selection in another folder, without its training; nothing where that was done before."""
    import shutil

    from labelsieve.files import atomic_path

    record = run.record()
    selected = record.get("stages", {}).get("select")
    if selected is None or selected["state"] != "done":
        raise InputError(f"{run.path} has no selection to take along: run `labelsieve select` first")
    before = out.record()
    if before:
        there = before.get("stages", {}).get("select")
        half = there is None and "branch" in before  # stopped before all was there
        if before.get("data") != record.get("data") or not (half or there == selected):
            raise InputError(f"{out.path} holds a run with another selection than {run.path}: give another --out")
        if not half:
            return
    with out.lock():
        # First of all, so that the folder is a run's whenever this is stopped, and the same command goes on.
        out.update(data=record.get("data"), branch=absolute(run.path))
        for name in SELECTION:
            if (run / name).is_file():
                with atomic_path(out / name) as partial:
                    shutil.copyfile(run / name, partial)
        out.rewind_history(lambda _: False)
        for entry in run.read_history():
            if entry.get("stage") == "select":
                out.append_history(entry)
        out.update(
            data=record.get("data"), versions=selected["versions"], seed=record.get("seed"),
            settings=selected["settings"], stages={"select": selected},
        )  # fmt: skip


def samples_of(run: RunFolder, progress: Progress, *, staging: Path | None = None) -> LabelledData:
    """The samples of a run, read again as its selection read them; refused where they changed since."""
    from labelsieve.data.decode_cache import trial
    from labelsieve.data.labels import read_label_file
    from labelsieve.data.source import ReadOptions, load_source
    from labelsieve.runfolder import STAGED, fingerprint

    record = run.record()
    about, settings = record.get("data"), record.get("settings", {})
    if about is None or not about.get("source"):
        raise InputError(f"{run.path} does not say where its samples are: run `labelsieve select` first")
    staging = staging or run / STAGED
    with trial(staging, begun=True) as take:
        data = load_source(
            about["source"],
            ReadOptions.of_run(
                settings,
                labels=read_label_file(settings["labels"]) if settings.get("labels") else None,
                cache_dir=staging,
            ),
            progress=progress,
        )
        if fingerprint(data) != about["fingerprint"]:
            raise InputError(f"{about['source']} changed since {run.path} was begun: begin another run")
        take()
    return data
