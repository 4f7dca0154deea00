"""The files of a finished selection: replaced by a second judgement, or copied to another run.

A second judgement, by the networks of a robust training, replaces labels.csv, suggestions.csv and summary.json of the
run. The files of the selection stay in the folder `before`, because the training depends on them: a run that is
resumed, or trained with another method, reads them.
"""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np

from labelsieve.errors import InputError
from labelsieve.export import default_target
from labelsieve.files import atomic_path, copy_file
from labelsieve.progress import Note, NoteKind
from labelsieve.report.source_state import RunSource
from labelsieve.runfolder import NoteTopic, RunFolder, notes_besides
from labelsieve.selection.finalize import SUGGESTIONS, judge_again, write_suggestions
from labelsieve.types import FloatArray, LabelledData, Scores, Selection
from labelsieve.workflow.settings import absolute

BEFORE = "before"  # folder of the selection's files
JUDGEMENT_FILES = ("labels.csv", SUGGESTIONS, "summary.json")  # the last one shows that all are copied
SELECTION_FILES = ("labels.csv", "summary.json", "suggestions.csv", "skipped.csv")
COMPARED = ("noise_ratio", "noise_known", "label_precision", "label_recall", "counts")


def selection_files(run: RunFolder) -> RunFolder:
    """The folder with the files of the selection itself: the run's, or `before` if the labels were judged again."""
    before = RunFolder(run / BEFORE)
    return before if (before / "summary.json").is_file() else run


def read_selection(run: RunFolder, data: LabelledData) -> Selection | None:
    """Read the selection of a run back from its files, without its transition matrix; None if there is none."""
    if not (run / "labels.csv").is_file():
        return None
    files = selection_files(run)
    summary, columns = files.read_summary(complete=True), files.columns_of(data)
    ratio, precision, recall = (summary[key] or 0.0 for key in ("noise_ratio", "label_precision", "label_recall"))
    return Selection(
        columns.verdict, columns.iteration, columns.predicted.astype(np.int64), columns.probability,
        columns.confidence, columns.loss, columns.suspicion, ratio, np.empty((0, 0)), precision, recall,
        tuple(summary.get("iterations") or ()),
        tuple(note for note in notes_besides(summary, NoteTopic.DATA) if note not in map(str, data.notes)),
    )  # fmt: skip


def read_transition(run: RunFolder, classes: int) -> FloatArray:
    """Return the transition matrix of a run; shares that were not stored are spread evenly over their row."""
    files = selection_files(run)
    summary, matrix = files.read_summary(), np.full((classes, classes), np.nan)
    try:
        if (stored := summary.get("transition_matrix")) is not None:
            matrix = np.array(stored, dtype=float).reshape(classes, classes)
        for row, column, share in summary.get("transition_entries") or ():
            matrix[row, column] = share
    except (TypeError, ValueError, IndexError):
        raise InputError(
            f"{files / 'summary.json'} is damaged: the transition matrix cannot be read; start again with another --out"
        ) from None
    left = 1 - np.nansum(matrix, axis=1, keepdims=True)
    missing = np.isnan(matrix)
    matrix = np.where(missing, left.clip(0) / np.maximum(missing.sum(axis=1, keepdims=True), 1), matrix)
    return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))


def judge_labels(run: RunFolder, data: LabelledData, selection: Selection, scores: Scores) -> None:
    """Replace the judgement of the selection, which has its transition matrix, by that of its scores and these.

    The files of the selection are kept.
    """
    if selection_files(run) is run:
        (run / BEFORE).mkdir(exist_ok=True)
        for name in JUDGEMENT_FILES:
            if (run / name).is_file():
                with atomic_path(run / BEFORE / name) as partial_path:
                    copy_file(run / name, partial_path)
    summary = selection_files(run).read_summary()
    judged = judge_again(scores, data.y, len(data.classes), selection, data.groups)
    write_suggestions(run / SUGGESTIONS, data, judged)
    run.write_selection(data, judged)
    after = run.read_summary()
    compared = {name: summary.get(name) for name in (*COMPARED, *(n for n in summary if n.startswith("measured_")))}
    after["notes"] = [*after["notes"], comparison(compared, after, selection.suspicion, judged.suspicion)]
    after["note_topics"] = [*after["note_topics"], NoteTopic.SELECTION]
    run.write_summary(after | {"before_finish": compared})


def comparison(before: dict[str, Any], after: dict[str, Any], first: FloatArray, second: FloatArray) -> str:
    """What the training changed, in one sentence, from the summaries and the suspicions before and after it."""
    wrong = round(after["noise_ratio"] * len(first))  # as many labels are expected to be wrong, before and after
    listed, now = (np.argsort(-np.nan_to_num(suspicion), kind="stable")[:wrong] for suspicion in (first, second))
    new = len(np.setdiff1d(now, listed))
    return (
        f"the labels were assessed again after the training: {new:,} of the {wrong:,} most suspicious labels are new; "
        f"expected label precision: {100 * before['label_precision']:.1f} % before, "
        f"{100 * after['label_precision']:.1f} % after"
    )


def copy_selection(run: RunFolder, out: RunFolder) -> None:
    """Copy the selection of a run to another folder, to train another network there; do nothing if it is there."""
    record = run.record()
    selected = record.get("stages", {}).get("select")
    if selected is None or selected["state"] != "done":
        raise InputError(f"{run.path} has no finished selection; run `labelsieve select` first")
    before = out.record()
    if before:
        existing = before.get("stages", {}).get("select")
        unfinished = existing is None and "branch" in before  # a copy that was stopped
        if before.get("data") != record.get("data") or not (unfinished or existing == selected):
            raise InputError(f"{out.path} holds a run with another selection than {run.path}; give another --out")
        if not unfinished:
            return
    with out.lock():
        # Written first, so that a stopped copy is known as one.
        out.update(data=record.get("data"), branch=absolute(run.path))
        source = selection_files(run)
        for name in SELECTION_FILES:
            path = source / name if (source / name).is_file() else run / name  # skipped.csv has one place only
            if path.is_file():
                with atomic_path(out / name) as partial_path:
                    copy_file(path, partial_path)
        out.rewind_history(lambda _: False)
        for entry in run.read_history():
            if entry.get("stage") == "select":
                out.append_history(entry)
        out.update(
            data=record.get("data"), versions=selected["versions"], seed=record.get("seed"),
            settings=selected["settings"], stages={"select": selected},
        )  # fmt: skip


def decisions_note(run: RunFolder) -> Note | None:
    """Return a note that the decisions of a person are not trained on, with the commands that do so."""
    count = run.decided()
    if not count:
        return None
    source = RunSource.of(run)
    target = default_target(run.record(), source.path, "cleaned")
    copied = source.path is not None and (source.path.is_dir() or source.is_table)  # else ids and labels are exported
    words = source.words(str(target), table=copied)
    return Note.of(
        NoteKind.DECISIONS_NOT_USED,
        count=count,
        file=run / "decisions.csv",
        export=shlex.join(["labelsieve", "export", str(run.path)]),
        run=shlex.join(["labelsieve", "run", *words]),
    )
