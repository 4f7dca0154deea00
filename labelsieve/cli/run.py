"""labelsieve run: select, train, report in one go."""

from __future__ import annotations

import shlex
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelsieve.cli.common import Common, Flag, beside_others, check_seed, folder_for, one_first
from labelsieve.cli.select import SelectOptions, check_method, describe, predictions_of, select_stage
from labelsieve.errors import Problems
from labelsieve.workflow.train import TrainOptions

if TYPE_CHECKING:
    from labelsieve.runfolder import RunFolder


def run(
    source: str,
    /,
    *,
    out: Path | None = None,
    selection: str = "incv",
    dry_run: Flag = False,
    selecting: SelectOptions = SelectOptions(),
    training: TrainOptions = TrainOptions(),
    common: Common = Common(),
) -> None:
    """Select, train and report; the same command goes on where it was stopped, and does nothing when all is done.

    Parameters
    ----------
    source
        A folder of class folders; a .csv or .parquet file with a label column and path, text or feature columns; an
        .npz with x and y; cifar10:DIR, cifar10n:DIR?labels=worse, webvision:DIR, hf:NAME_OR_DIR; digits (embedded).
    out
        The run folder to write; runs/ and the source's name where none is given.
    selection
        incv (iterations of noisy cross-validation) or ncv (one round, nothing removed).
    dry_run
        Say what would happen, how long it would take and how much memory and disk; write nothing.
    """
    from labelsieve.data.decode_cache import trial
    from labelsieve.report import write_report
    from labelsieve.runfolder import STAGED, RunFolder
    from labelsieve.selection.ncv import ncv_settings
    from labelsieve.workflow.build_trainer import check_selector
    from labelsieve.workflow.train import check_training, run_training

    problems = Problems()
    check_seed(problems, common)
    check_method(problems, "--selection", selection)
    check_selector(problems, selecting.model, selecting.size)
    settings, file = selecting.check(problems)
    training.check(problems)
    out = folder_for(source, out)
    folder = problems.attempt(RunFolder.to_write, beside_others(out, selecting.device))
    problems.stop_if_any()
    assert folder is not None and settings is not None
    if dry_run:
        asked = settings if selection == "incv" else ncv_settings(settings)
        say_what_would_happen(source, folder, selecting, asked, training, file, common)
        return
    began = time.monotonic()
    progress = common.progress()
    with folder.lock(), trial(folder / STAGED, begun=folder.exists()) as take:
        folder.check_settings("select", selecting.known(method=selection, seed=common.seed))
        with one_first():
            refuse_mixed = folder.state("select") is None
            data = selecting.load(source, file, folder / STAGED, progress, refuse_mixed=refuse_mixed)
        check_training(folder, data, training, selecting.device, paper=selecting.protocol == "paper")
        selected, _ = select_stage(folder, source, data, selection, selecting, settings, file, common, take)
        trained = run_training(folder, data, training, seed=common.seed, device=selecting.device, progress=progress)
        if folder.state("report") != "done" or not reported(folder):
            folder.start("report", settings={})
            write_report(folder)
            folder.finish("report")
        summary = folder.read_summary()
    stages = {"select": selected, "train": trained}
    named = shlex.quote(str(out))
    common.say(
        *describe(summary, told=data.notes),
        f"files: {out}/labels.csv, {out}/model.safetensors, {out}/report.html",
        f"next: labelsieve review {named}, or labelsieve export {named}",
        "nothing was left to do" if set(stages.values()) == {"done"} else f"done in {time.monotonic() - began:.1f} s",
    )
    common.answer(
        {
            "run": out,
            "stages": stages,
            "model": folder / "model.safetensors",
            "report": folder / "report.html",
            **summary,
        }
    )


def reported(folder: RunFolder) -> bool:
    """Whether the report is there and says what summary.json does: with other true labels that is measured again."""
    report, summary = folder / "report.html", folder / "summary.json"
    return report.is_file() and report.stat().st_mtime_ns >= summary.stat().st_mtime_ns


def on_a_card(found: dict[str, Any], device: str) -> str:
    """How much memory of its own a GPU gives, where there is one."""
    from labelsieve.cli.plan import size
    from labelsieve.engine.device import choose_device

    return "" if choose_device(device).type == "cpu" else f" and on the device {size(found['device_bytes'])}"


def say_what_would_happen(
    source: str,
    folder: Any,
    selecting: SelectOptions,
    settings: Any,
    training: TrainOptions,
    file: Any,
    common: Common,
) -> None:
    """Reads the source, measures a little, writes nothing."""
    import tempfile

    from labelsieve.cli.plan import duration, size
    from labelsieve.engine.device import choose_device
    from labelsieve.workflow.build_trainer import STORED, epochs_of, resolve_selector
    from labelsieve.workflow.planning import Asked, not_measured, plan_run
    from labelsieve.workflow.time_hints import rounds
    from labelsieve.workflow.train import checked_method, paper_batch_size

    with tempfile.TemporaryDirectory(prefix="labelsieve-") as scratch:
        data = selecting.load(source, file, Path(scratch), common.progress())
        if selecting.predictions is not None:
            model = STORED
            predictions_of(selecting.predictions, data)
        else:
            model = resolve_selector(
                selecting.model, data, selecting.device, loss=selecting.loss, protocol=selecting.protocol,
                epochs=selecting.epochs,
            )  # fmt: skip
        checked_method(data, training, choose_device(selecting.device).type, paper=selecting.protocol == "paper")
        states = {stage: folder.state(stage) or "not begun" for stage in ("select", "train", "report")}
        volume = folder.path if folder.path.exists() else folder.path.absolute().parent
        while not volume.exists():
            volume = volume.parent
        asked = Asked(
            model, training.network, rounds=rounds(settings), repeats=settings.repeats,
            epochs=epochs_of(model, selecting.epochs), train_epochs=training.train_epochs,
            batch_size=training.batch_size or (paper_batch_size(len(data)) if selecting.protocol == "paper" else None),
            method=training.method, method_settings=training.settings(),
        )  # fmt: skip
        found = plan_run(data, asked, device=selecting.device)
        result: dict[str, Any] = {
            "run": folder.path, "samples": len(data), "classes": len(data.classes), "skipped": len(data.skipped),
            "model": model, "method": training.method, "method_settings": training.settings(),
            "network": found["model"], "stages": states,
            "disk_free": shutil.disk_usage(volume).free, "plan": found,
        }  # fmt: skip
        chosen = found["selection_seconds"]
        epochs = found["wanted"]["training_epochs"]
        common.say(
            f"{data.name}: {len(data):,} samples of {len(data.classes)} classes, {len(data.skipped):,} left out",
            *(f"{stage}: {state}" for stage, state in states.items()),
            f"select with {model}: " + ("not measured" if chosen is None else f"at most {duration(chosen)}"),
            f"then train {found['model']} with {training.told()}, {epochs} epochs: at most "
            f"{duration(found['seconds']['robust training'])}",
            f"in all: at most {duration(found['total_seconds'])}{not_measured(found)}",
            f"memory: {size(found['host_bytes'])}" + on_a_card(found, selecting.device),
            f"disk: {size(sum(found['disk_bytes'].values()))} into {folder.path}, {size(result['disk_free'])} are free",
        )
        common.answer(result)
