"""The whole product on one screen: each function is one stage, and `run` calls them all.

    source -> read -> select -> train -> report -> review -> export
                        |         |        |
                     labels.csv  model   report.html        one run folder

Each stage writes files that the next one reads, so any stage can run alone, stop and resume.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from labelsieve.data.labels import LabelFile, read_label_file, true_codes
from labelsieve.data.source import source_text
from labelsieve.data.stage import provisional_cache
from labelsieve.errors import InputError, Problems
from labelsieve.execute.embed_samples import embed_data
from labelsieve.export import Exported, export
from labelsieve.files import free_disk
from labelsieve.progress import SILENT, Progress, format_share, in_notebook
from labelsieve.report import run_html, write_report
from labelsieve.runfolder import STAGED, RunFolder
from labelsieve.types import LabelledData
from labelsieve.workflow.predict import Predictions, predict_source, read_frame
from labelsieve.workflow.read import default_out, join_processes, one_process_first, read_run_samples, read_to_embed
from labelsieve.workflow.select import measure_again, read_stored_predictions, select_labels
from labelsieve.workflow.selection_files import copy_selection, decisions_note
from labelsieve.workflow.settings import PlanRequest, RunSettings, SelectSettings, SourceSettings, TrainSettings
from labelsieve.workflow.train import check_augment, check_method, check_training, train_model


@dataclass(frozen=True)
class RunResult:
    """The results of a run.

    Attributes
    ----------
    path : Path
        The run folder.
    summary : dict
        The content of summary.json: counts, noise ratio, transition matrix, expected precision and recall.
    stages : dict
        For each stage "new", "resumed" or "done" (it was already finished).
    model : str
        Name of the model used for the selection.
    seconds : float
        Duration of this call.
    """

    path: Path
    summary: dict[str, Any]
    stages: dict[str, str]
    model: str
    seconds: float = field(default=0.0, repr=False)

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {verdict}" for verdict, count in self.summary["counts"].items())
        noise = "unknown" if self.noise_ratio is None else format_share(self.noise_ratio)
        return f"{self.path}: {self.summary['samples']:,} samples ({counts}); noise {noise}"

    def to_frame(self) -> Any:
        """Return labels.csv as a data frame of pandas if it is installed, else of polars, else an arrow table."""
        return read_frame(self.path / "labels.csv")

    @property
    def labels(self) -> Any:
        """The same as `to_frame()`."""
        return self.to_frame()

    def _repr_html_(self) -> str:
        """Return the most suspicious labels as HTML, for notebooks."""
        return run_html(self.path, str(self))

    @property
    def noise_ratio(self) -> float | None:
        """Estimated proportion of wrong labels; None if it could not be estimated."""
        return float(self.summary["noise_ratio"]) if self.summary["noise_known"] else None

    @property
    def report_path(self) -> Path:
        """Path of the report."""
        return self.path / "report.html"

    @property
    def model_path(self) -> Path:
        """Path of the trained model."""
        return self.path / "model.safetensors"

    def predict(self, source: str | Path, **options: Any) -> Predictions:
        """Predict the samples of a source with the trained model.

        `options` set the columns of the source, such as text_column="title".
        """
        return predict_source(self.path, source_text(source), SourceSettings(**options), progress=SILENT)

    def export(self, to: str | Path | None = None, **options: Any) -> Exported:
        """Write the corrected labels to `to`.

        `options` are those of `labelsieve export`, such as apply="suggested" or dry_run=True.
        """
        return export(self.path, to=to, **options)


def run(source: str | Path, *, out: str | Path | None = None, **options: Any) -> RunResult:
    """Select the samples whose labels are probably right, train a model and write a report.

    This function does the same as the command `labelsieve run`. To resume a stopped run, call it again with the same
    options.

    Parameters
    ----------
    source : str or Path
        A folder with one subfolder per class; a CSV, TSV, Parquet, JSON Lines or .xlsx file with a label column and
        path, text or feature columns; an .npz file with the arrays x and y; "cifar10:DIR", "cifar100:DIR",
        "cifar10n:DIR", "webvision:DIR", "hf:NAME_OR_DIR" or "digits".
    out : str or Path, default=None
        The run folder. None: a folder in "runs/" with the name of the source.
    **options
        The options of `labelsieve run`, with underscores instead of hyphens. Reading: root, label_column, text_column,
        id_column, ignore_columns, group_column, header, split, labels, size. Selection: selection, iterations, epochs,
        model, embed, loss, repeats, predictions, remove_ratio, executor, protocol, pattern, workers. Training: method,
        set, network, train_epochs, batch_size, augment. Selection and training: device, seed. `progress=False` hides
        the progress bar, which is shown in a terminal and in a notebook.

    Returns
    -------
    RunResult
        The results, with the methods `to_frame`, `predict` and `export`.

    Examples
    --------
    >>> import tempfile
    >>> import labelsieve
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = labelsieve.run("digits", out=folder + "/run", model="logistic", iterations=1, train_epochs=1)
    ...     rows = len(result.labels)
    >>> rows, result.summary["samples"]
    (1797, 1797)
    """
    source = source_text(source)
    shown = options.pop("progress", True) and (sys.stderr.isatty() or in_notebook())
    settings = RunSettings.from_options(options)
    return run_source(source, Path(out) if out is not None else None, settings, Progress(silent=not shown))


def run_source(source: str, out: Path | None, settings: RunSettings, progress: Progress) -> RunResult:
    """Run every stage: read, select, train, report."""
    began = time.monotonic()
    with open_run(source, out, settings) as (folder, path, labels):
        data = read_for_run(folder, source, settings, labels, progress)
        settings = settings.for_samples(data, folder.record(), paper=settings.protocol == "paper")
        check_training(folder, data, settings)
        selected, choice = select_labels(folder, source, data, settings, labels, progress)
        trained = train_model(folder, data, settings, progress)
        if labels is not None and "before_finish" in folder.read_summary():  # the labels were judged again
            measure_again(folder, data, true_codes(data, labels))
        report_run(folder)
        summary = folder.read_summary(complete=True)
    stages = {"select": selected, "train": trained}
    return RunResult(path, summary, stages, choice.name, time.monotonic() - began)


def select_source(source: str, out: Path | None, settings: SelectSettings, progress: Progress) -> RunResult:
    """Run the first two stages: read and select."""
    with open_run(source, out, settings) as (folder, path, labels):
        data = read_for_run(folder, source, settings, labels, progress)
        selected, choice = select_labels(folder, source, data, settings, labels, progress)
        summary = folder.read_summary(complete=True)
    return RunResult(path, summary, {"select": selected}, choice.name)


@dataclass(frozen=True)
class TrainResult:
    """The result of the training stage."""

    path: Path
    begun: str  # new, resumed or done
    stage: dict[str, Any]  # the entry of run.json
    notes: list[str]


def train_run(run: Path, out: Path | None, settings: TrainSettings, progress: Progress) -> TrainResult:
    """Train a network on the selection of a run; `out` is another run folder for it."""
    problems = Problems()
    settings.check(problems)
    problems.stop_if_any()
    path, cache_dir = run, None
    if out is not None and out.absolute() != run.absolute():
        path, cache_dir = out, run / STAGED
        if os.environ.get("RANK", "0") == "0":
            copy_selection(RunFolder.existing(run), RunFolder.to_write(out))
    folder = RunFolder.existing(join_processes(path, settings.device))
    trained = folder.stage_settings("train").get("train_method")
    if trained not in (None, settings.method) and settings.method != "auto":
        other = shlex.quote(f"{path}-{settings.method.rpartition(':')[2]}")
        what = "a model" if folder.state("train") == "done" else "an unfinished training"
        raise InputError(f"{path} contains {what} with {trained}; use --out {other} for another method")
    note = decisions_note(RunFolder(run))
    if note is not None:
        progress.note(note)
    with folder.lock():
        with one_process_first():
            data = read_run_samples(folder, progress, cache_dir=cache_dir)
        record = folder.record()
        paper = record.get("settings", {}).get("protocol") == "paper"
        settings = settings.for_samples(data, record, paper=paper)
        begun = train_model(folder, data, settings, progress)
        stage = folder.record()["stages"]["train"]
    return TrainResult(path, begun, stage, [] if note is None else [str(note)])


def report_run(folder: RunFolder) -> None:
    """Write the report unless it is up to date: after new true labels summary.json is newer than the report."""
    report, summary = folder / "report.html", folder / "summary.json"
    current = report.is_file() and report.stat().st_mtime_ns >= summary.stat().st_mtime_ns
    if folder.state("report") != "done" or not current:
        folder.start("report", settings={})
        write_report(folder)
        folder.finish("report")


def check_resumable(source: str, out: Path | None, settings: RunSettings) -> None:
    """Raise InputError if the run folder belongs to a run with other settings."""
    folder, _ = check_run(default_out(source, out), settings)
    folder.check_settings("select", settings.recorded())


def plan_source(
    source: str, out: Path | None, settings: RunSettings, request: PlanRequest, progress: Progress
) -> dict[str, Any]:
    """Read a source, measure what a run would use, and return its plan and the state of its stages; write nothing."""
    import tempfile

    began = time.monotonic()
    from labelsieve.engine.device import choose_device
    from labelsieve.workflow.plan import embed_some, plan_run

    imported = time.monotonic()
    folder, labels = check_run(default_out(source, out), settings, request)
    with tempfile.TemporaryDirectory(prefix="labelsieve-") as scratch:
        data, model = read_to_embed(source, settings, progress, recorded={}, cache_dir=Path(scratch), labels=labels)
        samples = request.samples or len(data)
        growth = samples / len(data) if data.kind == "pictures" else 1.0  # tables and texts are read fast
        before = {"reading": imported - began + growth * (time.monotonic() - imported)}
        features = data
        if model is not None:
            request = replace(request, samples=samples)
            features, per_second = embed_some(data, model, settings.device)
            before["embed once"] = samples / per_second
        check_augment(features, settings.augment)
        if settings.predictions is not None:
            read_stored_predictions(settings.predictions, data, progress)
        paper = settings.protocol == "paper"
        settings = settings.for_samples(features, folder.record(), paper=paper, samples=samples)
        check_method(features, settings, choose_device(settings.device), paper=paper)
        plan = plan_run(features, settings, request, before=before, progress=progress)
    return {
        "run": folder.path, "samples": len(data), "classes": len(data.classes), "skipped": len(data.skipped),
        "model": plan["selector"], "method": settings.method, "method_settings": settings.method_settings(),
        "network": plan["model"],
        "stages": {stage: folder.state(stage) or "not started" for stage in ("select", "train", "report")},
        "disk_free": free_disk(folder.path), "plan": plan,
    }  # fmt: skip


@contextmanager
def open_run(
    source: str, out: Path | None, settings: SelectSettings
) -> Iterator[tuple[RunFolder, Path, LabelFile | None]]:
    """Check the settings and lock the run folder; yield it, its path, and the file of labels."""
    path = default_out(source, out)
    folder, labels = check_run(join_processes(path, settings.device), settings)
    with folder.lock(), provisional_cache(folder / STAGED, begun=folder.exists()) as keep_cache:
        folder.check_settings("select", settings.recorded())
        yield folder, path, labels
        keep_cache()


def check_run(
    path: Path, settings: SelectSettings, request: PlanRequest | None = None
) -> tuple[RunFolder, LabelFile | None]:
    """Return the run folder and the file of labels; raise all that is wrong with them and with the settings at once."""
    problems = Problems()
    settings.check(problems)
    labels = problems.attempt(read_label_file, settings.labels) if settings.labels is not None else None
    if request is not None:
        request.check(problems)
    folder = problems.attempt(RunFolder.to_write, path)
    problems.stop_if_any()
    assert folder is not None
    return folder, labels


def read_for_run(
    folder: RunFolder, source: str, settings: SelectSettings, labels: LabelFile | None, progress: Progress
) -> LabelledData:
    """Read the samples; their decoded pictures are cached in the run folder."""
    with one_process_first():
        data, model = read_to_embed(
            source, settings, progress, recorded=folder.stage_settings("select"), cache_dir=folder / STAGED,
            labels=labels,
        )  # fmt: skip
        if model is None:
            return data
        own_groups = settings.group_column is not None
        return embed_data(data, model, folder / STAGED, settings.device, progress, own_groups=own_groups)
