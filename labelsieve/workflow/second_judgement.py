"""The second judgement: the networks of a robust training judge the labels again.

The new judgement replaces labels.csv, suggestions.csv and summary.json of the run. The files of the selection stay in
the folder `before`, because the training depends on them: a run that is resumed, or trained with another method, reads
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from labelsieve.files import atomic_path, copy_file
from labelsieve.selection.finalize import SUGGESTIONS, Verdicts, judge_again, write_suggestions
from labelsieve.types import VERDICTS, LabelledData, Scores

if TYPE_CHECKING:
    from labelsieve.runfolder import RunFolder

BEFORE = "before"  # folder of the selection's files
JUDGEMENT_FILES = ("labels.csv", SUGGESTIONS, "summary.json")  # the last one shows that all are copied
COMPARED = ("noise_ratio", "noise_known", "label_precision", "label_recall", "counts")


def selection_files(run: RunFolder) -> RunFolder:
    """The folder with the files of the selection itself: the run's, or `before` if the labels were judged again."""
    before = type(run)(run / BEFORE)
    return before if (before / "summary.json").is_file() else run


def judge_labels(run: RunFolder, data: LabelledData, scores: Scores) -> None:
    """Replace the judgement of the selection by that of out-of-sample scores, and keep its files."""
    if selection_files(run) is run:
        (run / BEFORE).mkdir(exist_ok=True)
        for name in JUDGEMENT_FILES:
            if (run / name).is_file():
                with atomic_path(run / BEFORE / name) as partial_path:
                    copy_file(run / name, partial_path)
    before = selection_files(run)
    summary, rows = before.read_summary(), list(before.read_labels())
    verdicts = Verdicts(
        np.array([VERDICTS.index(row.verdict) for row in rows], dtype=np.int8),
        np.array([row.iteration for row in rows], dtype=np.int16),
        tuple(summary["iterations"]),
        tuple(note for note in summary["notes"] if note not in data.notes),
    )
    judged = judge_again(scores, data.y, len(data.classes), verdicts, data.groups)
    write_suggestions(run / SUGGESTIONS, data, judged)
    run.write_selection(data, judged)
    after = run.read_summary()
    compared = {name: summary.get(name) for name in (*COMPARED, *(n for n in summary if n.startswith("measured_")))}
    after["notes"] = [*after["notes"], comparison(compared, after)]
    run.write_summary(after | {"before_finish": compared})


def comparison(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The judgements before and after the training in one sentence."""
    parts = []
    for when, found in (("before", before), ("after", after)):
        ratio = f"{100 * found['noise_ratio']:.1f} %" if found["noise_known"] else "unknown"
        parts.append(f"{when} it: noise ratio {ratio}, {found['counts']['selected']:,} labels selected")
    return f"the robust training judged the labels again; {'; '.join(parts)}"
