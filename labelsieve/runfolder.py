"""The files of a run: written atomically, and locked against a second process.

    run.json        every setting, versions, seed, data fingerprint, state of each stage
    labels.csv      one row per sample in input order; the columns are those of `LabelRow`
    skipped.csv     samples that could not be used, and why
    summary.json    samples, classes, noise ratio, transition matrix, expected precision and recall, counts by verdict
    history.jsonl   one line per epoch (or per iteration of the selection)
    decisions.csv   decisions of the review, one line per decision, the last one of a sample counts
    checkpoints/    from which an unfinished stage resumes

`run / name` is the way to a file of a run. It refuses links: a run folder may come from another person, and nothing
outside it is written. Files that grow are appended one complete line at a time; an incomplete last line is repaired.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from labelsieve import stopping
from labelsieve.csv_files import read_csv, write_csv
from labelsieve.data.columns import TableX
from labelsieve.data.read_pictures import picture_shape
from labelsieve.decisions import decided_ids
from labelsieve.errors import InputError
from labelsieve.files import (
    append_line,
    atomic_writer,
    check_free,
    first_link,
    link_on_way,
    locked,
    read_bytes,
    read_lines,
    sweep,
    visible_names,
    write_json,
)
from labelsieve.labels_csv import LabelColumns, LabelRow, number_cell, read_labels
from labelsieve.types import VERDICTS, LabelledData, Samples, Selection, Skipped, evenly_spaced

FORMAT = 1  # increased if earlier versions cannot read the files
LOCK, STAGED, DECISIONS = "run.lock", "staged", "decisions.csv"
RESTORE = "restore it from a backup, or start a new run with another --out"
StageStart = Literal["new", "resumed", "done"]
MAX_DENSE_CLASSES = 1000  # up to here summary.json holds the whole transition matrix
MAX_FINGERPRINT_BYTES = 2**28  # of samples that are hashed completely; takes a quarter of a second
FINGERPRINT_SAMPLES = 256  # of larger data that are hashed
# A resumed stage continues from numbers of an earlier process, so these versions must be the same.
VERSIONED = ("labelsieve", "numpy", "scikit-learn", "torch")
TEXT = str | None
# Types of the entries of run.json that other parts use as names of files and columns.
SETTING_TYPES: dict[str, Any] = {
    "root": TEXT,
    "labels": TEXT,
    "label_column": TEXT,
    "text_column": TEXT,
    "id_column": TEXT,
    "group_column": TEXT,
    "ignore_columns": list | tuple | str | None,
    "size": int | list | None,
    "embed": TEXT,
    "embed_revision": TEXT,
}
NUMBER = int | float | None
# Entries of summary.json that commands print and trainings use.
SUMMARY_TYPES: dict[str, Any] = {
    "samples": int,
    "skipped": int,
    "noise_ratio": NUMBER,
    "label_precision": NUMBER,
    "label_recall": NUMBER,
    "counts": dict,
    "notes": list,
    "iterations": list | None,
}
DATA_TYPES: dict[str, Any] = {"source": TEXT, "name": TEXT, "kind": TEXT, "fingerprint": TEXT, "skipped": int | None}


class NoteTopic(StrEnum):
    """What a note of summary.json is about."""

    DATA = "data"
    NOISE = "noise"  # the noise estimate
    SELECTION = "selection"


def notes_besides(summary: Mapping[str, Any], topic: NoteTopic) -> list[str]:
    """The notes of a summary without those on a topic."""
    notes, topics = summary.get("notes"), summary.get("note_topics")
    notes = notes if isinstance(notes, list) else []
    topics = topics if isinstance(topics, list) and len(topics) == len(notes) else [""] * len(notes)
    return [str(note) for note, about in zip(notes, topics, strict=True) if about != topic]


class RunFolder:
    """A run folder. Creating the object writes nothing; `start` and the writers create the files."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file, not a run folder; choose another --out")

    @classmethod
    def existing(cls, path: str | os.PathLike[str]) -> RunFolder:
        """The run folder at `path`, which must contain a run."""
        if Path(path).is_file():
            raise InputError(f"{path} is a file, not a run folder: give the folder that `select` or `run` made")
        run = cls(path)
        if not run.exists():
            raise InputError(
                f"{run.path} is not a run folder (run.json not found); create one with `labelsieve select` or "
                "`labelsieve run`"
            )
        return run

    @classmethod
    def to_write(cls, path: str | os.PathLike[str]) -> RunFolder:
        """The run folder at `path`, to start a run or resume one; refused if the folder contains other files."""
        run = cls(path)
        run.check_own()
        return run

    def check_own(self) -> None:
        """A new run needs a folder of its own: existing files may be the user's, or even the source."""
        if not self.exists():
            staged = visible_names(self.path / STAGED)  # left by a command that was stopped here
            ours = all(name.startswith(("pictures-", "embeddings-")) for name in staged)
            own = (LOCK, STAGED) if ours else (LOCK,)
            check_free(self.path, "--out", missing="run.json", own=own)

    def exists(self) -> bool:
        return (self.path / "run.json").is_file()

    def __truediv__(self, name: str) -> Path:
        """The path of a file or folder of this run. Neither it nor a folder on the way to it may be a link."""
        path = self.path / name
        self._refuse_link(link_on_way(self.path, path))
        return path

    def _refuse_link(self, link: Path | None) -> None:
        if link is not None:
            raise InputError(f"{link} is a link: labelsieve does not follow links in a run folder, remove it")

    @property
    def checkpoints(self) -> Path:
        return self / "checkpoints"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder. A second process is refused; the lock of a process that died is taken over."""
        if self.exists() and not os.access(self.path, os.W_OK):
            stages = self.record().get("stages", {}).values()
            if stages and all(stage["state"] == "done" for stage in stages):
                yield  # everything is done and nothing can be written
                return
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with locked(self.path / LOCK, what=f"run folder {self.path}"):
                self._refuse_link(first_link(self.path))
                sweep(self.path, "**/.*.partial")
                yield
        finally:
            with suppress(OSError):  # a source that could not be read leaves no empty folders
                for folder in made:
                    folder.rmdir()

    # run.json

    def record(self) -> dict[str, Any]:
        """run.json, or an empty record."""
        if not self.exists():
            return {}
        record = _read_json(self / "run.json")
        if record.get("format") != FORMAT:
            raise InputError(
                f"{self.path}/run.json has format {record.get('format')!r}, this version of labelsieve reads {FORMAT}; "
                "start a new run with another --out"
            )
        _check_record(record, self / "run.json")
        return record

    def update(self, **entries: Any) -> None:
        """Set top-level entries of run.json."""
        write_json(self / "run.json", plain({"format": FORMAT, **self.record(), **entries}))

    def start(
        self, stage: str, *, settings: Mapping[str, Any], data: LabelledData | None = None, source: str | None = None
    ) -> StageStart:
        """Start a stage, resume it, or report that it is done. Changed settings, versions or data are an error."""
        record = self.record()
        self.check_own()
        asked = _as_written(settings)
        about = describe(data, source) if data is not None else record.get("data")
        before = record.get("stages", {}).get(stage)
        if before is not None:
            changed = _differences(before["settings"], asked)
            if before["state"] != "done":
                changed += _differences(before["versions"], versions(), only=VERSIONED, prefix="version of ")
            other = _other_data(record.get("data"), about)
            if changed or other:
                raise self._started_differently(changed, other)
        elif data is not None and (other := _other_data(record.get("data"), about)):
            raise InputError(f"{self.path} contains a run of other data: {'; '.join(other)}. {self._another_out()}")
        if before is not None and before["state"] == "done":
            return "done"
        began = before["started"] if before is not None else _now()
        entry = {"state": "running", "started": began, "settings": asked, "versions": versions()}
        self.update(
            data=record.get("data") or about,
            versions=versions(),
            seed=asked.get("seed", record.get("seed")),
            settings={**record.get("settings", {}), **asked},
            stages={**record.get("stages", {}), stage: entry},
        )
        if data is not None and data.skipped:
            self.write_skipped(data)
        return "new" if before is None else "resumed"

    def check_settings(self, stage: str, settings: Mapping[str, Any]) -> None:
        """Raise the errors of `start` that are known before the samples are read; writes nothing."""
        before = self.record().get("stages", {}).get(stage)
        asked = _as_written(settings)
        if before is not None and (changed := _differences(before["settings"], asked, only=tuple(sorted(asked)))):
            raise self._started_differently(changed)

    def _started_differently(self, settings: list[str], data: Sequence[str] = ()) -> InputError:
        hint = "Use the same settings, or another --out" if settings else self._another_out()
        return InputError(f"{self.path} was started with other settings: {'; '.join([*settings, *data])}. {hint}")

    def _another_out(self) -> str:
        hint = "Use another --out"
        if self.decided():
            hint += f"; to keep the decisions, copy {self / DECISIONS} into the new run folder when it is done"
        return hint

    @contextmanager
    def work(self, stage: str, began: float) -> Iterator[None]:
        """Mark a stage as done after this context, or as failed. `began` is the value of `time.monotonic` at its start.

        Inside, the work stops at its next safe point if a signal asks for it. At the end the next stage does not start.
        """
        with stopping.safe_points():
            try:
                yield
            except Exception as problem:
                # Work that stops at a safe point raises its own exceptions; the user must see bad files and full disks.
                of_files = isinstance(problem, OSError | InputError) and not isinstance(problem, InterruptedError)
                if stopping.requested() and not of_files:
                    raise stopping.reason() from None
                with suppress(OSError, InputError):  # a full disk or a damaged record, perhaps the problem itself
                    self.fail(stage, str(problem))
                raise
            self.finish(stage, seconds=round(time.monotonic() - began, 3))
            if stopping.requested():
                raise stopping.reason()

    def finish(self, stage: str, **facts: Any) -> None:
        """Mark a stage as done, with facts about it (seconds, devices, files)."""
        stages = self.record()["stages"]
        stages[stage] |= {"state": "done", "ended": _now()} | facts
        self.update(stages=stages)

    def fail(self, stage: str, reason: str) -> None:
        """Mark a stage as failed; the next start resumes from its checkpoints."""
        self.finish(stage, state="failed", reason=reason)

    def state(self, stage: str) -> str | None:
        """running, failed, done, or None if the stage has not started."""
        entry = self.record().get("stages", {}).get(stage)
        return None if entry is None else str(entry["state"])

    def stage_settings(self, stage: str) -> dict[str, Any]:
        """The settings that a stage was started with; empty if it has not started."""
        return dict(self.record().get("stages", {}).get(stage, {}).get("settings", {}))

    # selection

    def write_selection(
        self, data: LabelledData, selection: Selection, *, measured: Mapping[str, float] | None = None
    ) -> None:
        """Write labels.csv and summary.json. `measured` holds metrics computed with known true labels."""
        write_csv(self / "labels.csv", (*LabelRow._fields, "no_class"), _label_rows(data, selection))
        self.write_summary(summarise(data, selection, measured=measured))

    def columns(self, classes: object = None) -> LabelColumns:
        """labels.csv as columns; class codes follow summary.json."""
        return read_labels(self / "labels.csv", classes or self.read_summary().get("classes"))

    def columns_of(self, data: LabelledData) -> LabelColumns:
        """The columns, which must be those of these samples."""
        columns = self.columns()
        if columns.ids.to_pylist() != data.ids.tolist():
            raise InputError(
                f"{self.path}/labels.csv has other samples than the source has now; restore the source, or select "
                "again with another --out"
            )
        return columns

    def read_labels(self) -> Iterator[LabelRow]:
        """The rows of labels.csv."""
        return read_labels(self / "labels.csv").rows()

    def write_skipped(self, data: LabelledData) -> None:
        """skipped.csv: samples that could not be used, and why."""
        write_csv(self / "skipped.csv", Skipped._fields, data.skipped)

    def read_skipped(self) -> list[Skipped]:
        path = self / "skipped.csv"
        if not path.exists():
            return []
        return [Skipped(*row.cells) for row in read_csv(path, Skipped._fields)]

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_json(self / "summary.json", plain(summary))

    def read_summary(self, *, complete: bool = False) -> dict[str, Any]:
        """summary.json; with `complete`, the entries of `SUMMARY_TYPES` must be there."""
        path = self / "summary.json"
        if not path.is_file():
            raise InputError(f"{self.path} has no summary.json: run `labelsieve select` first")
        summary = _read_json(path)
        if complete:
            summary = dict.fromkeys(SUMMARY_TYPES) | summary
            measured = {name: NUMBER for name in summary if name.startswith("measured_")}
            _check_types(summary, SUMMARY_TYPES | measured, path, "summary")
            _check_types(summary["counts"], dict.fromkeys(VERDICTS, int), path, "summary.counts")
            for name, kind in (("notes", str), ("iterations", dict)):
                if not all(isinstance(entry, kind) for entry in summary[name] or ()):
                    raise InputError(f"{path} is damaged: summary.{name} has a wrong type; {RESTORE}")
        return summary

    # files that grow

    def append_history(self, entry: Mapping[str, Any]) -> None:
        append_line(self / "history.jsonl", json.dumps(plain(entry)))

    def read_history(self) -> list[dict[str, Any]]:
        path = self / "history.jsonl"
        try:
            entries = [json.loads(line) for line in read_lines(path)[0]]
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is damaged: a line is not JSON ({error}); {RESTORE}") from None
        return [entry for entry in entries if isinstance(entry, dict)]

    def rewind_history(self, keep: Callable[[dict[str, Any]], bool]) -> None:
        """Remove the lines that a resumed stage will write again."""
        path = self / "history.jsonl"
        if path.exists():
            kept = [entry for entry in self.read_history() if keep(entry)]
            with atomic_writer(path) as file:
                file.writelines(json.dumps(entry) + "\n" for entry in kept)

    def decided(self) -> int:
        """Number of samples that have a decision."""
        return len(decided_ids(self / DECISIONS))


def fingerprint(data: LabelledData) -> str:
    """Hash of all ids, labels and contents; of large data, the contents of `FINGERPRINT_SAMPLES` of them."""
    import hashlib

    digest = hashlib.sha256(json.dumps([str(name) for name in data.classes]).encode())
    for start in range(0, len(data), 100_000):
        digest.update("\n".join(data.ids[start : start + 100_000].tolist()).encode())
    digest.update(np.ascontiguousarray(data.y, dtype="<i8").tobytes())
    whole, count = data.x, FINGERPRINT_SAMPLES
    if isinstance(whole, TableX) and whole.encoding.texts:  # features of texts are not the same on all machines
        digest.update(repr(whole.texts).encode())
        whole = whole.numbers
    if data.kind == "table" or (isinstance(whole, Samples) and _is_small_array(whole)):
        whole = np.asarray(whole)
    if isinstance(whole, np.ndarray) and whole.nbytes <= MAX_FINGERPRINT_BYTES:
        if not whole.dtype.hasobject:
            digest.update(np.ascontiguousarray(whole).tobytes())
            return digest.hexdigest()[:32]
        count = len(data)
    for i in evenly_spaced(len(data), count):
        sample = data.x[int(i)]
        digest.update(sample.tobytes() if isinstance(sample, np.ndarray) else repr(sample).encode())
    return digest.hexdigest()[:32]


def _is_small_array(x: Any) -> bool:
    """Whether pictures on disk have one size and are small: their hash is that of the same pictures in memory."""
    return picture_shape(x) is not None and x.nbytes <= MAX_FINGERPRINT_BYTES


def describe(data: LabelledData, source: str | None) -> dict[str, Any]:
    """The entry `data` of run.json."""
    return {
        "source": source,
        "name": data.name,
        "kind": data.kind,
        "samples": len(data),
        "classes": [_class_name(name) for name in data.classes],
        "skipped": len(data.skipped),
        "fingerprint": fingerprint(data),
    }


def summarise(
    data: LabelledData, selection: Selection, *, measured: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """The content of summary.json."""
    c = len(data.classes)
    by_class = np.zeros((c, len(VERDICTS)), dtype=int)
    np.add.at(by_class, (data.y, selection.verdict), 1)
    topics = [NoteTopic.DATA] * len(data.notes) + [NoteTopic.SELECTION] * len(selection.notes)
    if selection.noise is not None and selection.notes:  # the first note describes the estimate
        topics[len(data.notes)] = NoteTopic.NOISE
    summary: dict[str, Any] = {
        "samples": len(data),
        "skipped": len(data.skipped),
        "classes": [_class_name(name) for name in data.classes],
        "noise_ratio": float(selection.noise_ratio),
        "noise_known": selection.noise_known,
        **_matrix(selection.transition_matrix),
        "label_precision": float(selection.expected_precision),
        "label_recall": float(selection.expected_recall),
        "counts": {name: int(np.sum(selection.verdict == code)) for code, name in enumerate(VERDICTS)},
        "by_class": {
            str(name): dict(zip(VERDICTS, map(int, by_class[i]), strict=True)) for i, name in enumerate(data.classes)
        },
        "iterations": [dict(entry) for entry in selection.history],
        "notes": [*data.notes, *selection.notes],
        "note_topics": [str(topic) for topic in topics],
    }
    if measured is not None:
        summary |= {f"measured_{name}": float(value) for name, value in measured.items()}
    return summary


def _matrix(transition: Any) -> dict[str, Any]:
    """The whole transition matrix. If there are many classes: its diagonal and the entries above an even spread."""
    matrix = np.asarray(transition)
    if len(matrix) <= MAX_DENSE_CLASSES:
        return {"transition_matrix": matrix.tolist()}
    rows, columns = np.nonzero((matrix > 2 / len(matrix)) | np.eye(len(matrix), dtype=bool))
    entries = zip(rows.tolist(), columns.tolist(), matrix[rows, columns].tolist(), strict=True)
    return {"transition_matrix": None, "transition_entries": [list(entry) for entry in entries]}


@cache
def versions() -> dict[str, str]:
    """Versions of the packages that the results depend on, without importing them."""
    from importlib.metadata import PackageNotFoundError, version

    # platform.platform() would start a process.
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    found = {"python": platform.python_version(), "platform": system}
    for name in VERSIONED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _label_rows(data: LabelledData, selection: Selection) -> Iterable[tuple[Any, ...]]:
    """The rows of labels.csv."""
    names = np.array([*map(str, data.classes), ""], dtype=object)  # the last one is for the code -1
    numbers = (selection.probability, selection.loss, selection.suspicion, selection.confidence)
    probability, loss, suspicion, confidence = (map(number_cell, values.tolist()) for values in numbers)
    suggested = np.where(selection.is_suspect(data.y), selection.predicted, -1)
    return zip(
        data.ids.tolist(), names[data.y], names[selection.predicted], probability, loss,
        (VERDICTS[code] for code in selection.verdict.tolist()), selection.iteration.tolist(), suspicion,
        names[suggested], (group or "" for group in _group_numbers(data)),
        [""] * len(data) if data.outlier is None else data.outlier.astype(int).tolist(), confidence,
        selection.no_class(data.y).astype(int).tolist(), strict=True,
    )  # fmt: skip


def _group_numbers(data: LabelledData) -> list[int]:
    """The groups of duplicates, numbered from 1; 0 for a sample without duplicates."""
    if data.duplicates is None:
        return [0] * len(data)
    _, group, size = np.unique(data.duplicates, return_inverse=True, return_counts=True)
    numbers: list[int] = np.where(size > 1, np.cumsum(size > 1), 0)[group].tolist()
    return numbers


def _differences(
    before: Mapping[str, Any], now: Mapping[str, Any], *, only: tuple[str, ...] | None = None, prefix: str = ""
) -> list[str]:
    names = only if only is not None else sorted({*before, *now})
    changed = [name for name in names if before.get(name) != now.get(name)]
    # A group of settings (a schedule) usually follows from a plain one, which is enough to name.
    plain = [name for name in changed if not isinstance(now.get(name), dict)]
    return [f"{prefix}{name} was {_shown(before.get(name))}, now {_shown(now.get(name))}" for name in plain or changed]


def _other_data(before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> list[str]:
    if before is None or now is None or before.get("fingerprint") == now.get("fingerprint"):
        return []
    counts = _differences(before, now, only=("samples",), prefix="the number of ")
    return counts or ["the samples or their labels have changed"]


def _as_written(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings after a round trip through JSON."""
    return dict(json.loads(json.dumps(dict(settings), default=str)))


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)


def _class_name(value: Any) -> Any:
    """A class name as a JSON value."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str | int | bool) else str(value)


def plain(value: Any, *, digits: int = 17) -> Any:
    """A value for JSON: null instead of nan, Python numbers with `digits` significant digits instead of numpy ones."""
    if isinstance(value, np.ndarray | np.generic):
        return plain(float(value) if isinstance(value, np.longdouble) else value.tolist(), digits=digits)
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(entry, digits=digits) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry, digits=digits) for entry in value]
    return value


def _check_record(record: Mapping[str, Any], path: Path) -> None:
    """Raise InputError for a damaged or hostile run.json, here rather than where an entry is used."""
    check = partial(_check_types, path=path)
    check(record.get("settings", {}), SETTING_TYPES, where="settings")
    check(record.get("versions", {}), {}, where="versions")
    data = record.get("data")
    check({} if data is None else data, DATA_TYPES, where="data")
    check(record.get("stages", {}), {}, where="stages")
    for name, stage in record.get("stages", {}).items():
        check(stage, {"state": str, "started": str, "settings": dict, "versions": dict}, where=f"stages.{name}")
        check(stage["settings"], SETTING_TYPES, where=f"stages.{name}.settings")


def _check_types(entries: Any, types: Mapping[str, Any], path: Path, where: str) -> None:
    if not isinstance(entries, dict):
        raise InputError(f"{path} is damaged: {where} must be an object; {RESTORE}")
    for name, expected in types.items():
        if not isinstance(entries.get(name), expected):
            raise InputError(f"{path} is damaged: {where}.{name} has a wrong type; {RESTORE}")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_bytes(path).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: not valid JSON ({error}); {RESTORE}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} is damaged: not a JSON object; {RESTORE}")
    return content


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
