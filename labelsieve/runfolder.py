"""The files of a run: read, written atomically, locked against a second process.

    run.json        every setting used, versions, seed, data fingerprint, state of each stage
    labels.csv      one row a sample, in input order; the columns are those of `LabelRow`
    skipped.csv     samples that could not be read, and why
    summary.json    samples, classes, noise ratio, transition matrix, expected precision and recall, counts by verdict
    history.jsonl   one line an epoch (or an iteration of selection)
    decisions.csv   what a person decided, one line a decision, the last one of a sample counts
    checkpoints/    what an unfinished stage goes on from

Whole files are written beside their place, synced and renamed, so that a reader or a crash sees the old file or the new
one. Files that grow are appended a whole line at a time; half a line at the end (a crash) is ignored and repaired.
"""

from __future__ import annotations

import csv
import json
import math
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from labelsieve.decisions import Decision, csv_line, is_whole, read_lines
from labelsieve.errors import InputError
from labelsieve.files import append_line, atomic_writer, is_wide, lines_of, locked, sweep, unended_line, write_json
from labelsieve.folders import check_free, contents
from labelsieve.types import VERDICTS, LabelledData, Selection

FORMAT = 1
LOCK, STAGED = "run.lock", "staged"
Progressed = Literal["new", "resumed", "done"]
MOST_WHOLE = 1000  # classes whose transition matrix is written whole
READ_WHOLE = 2**28  # bytes of samples that a fingerprint takes in; a quarter of a second
# A resumed stage goes on with the numbers an earlier process computed, so these must not have changed under it.
VERSIONED = ("labelsieve", "numpy", "scikit-learn", "torch")


class LabelRow(NamedTuple):
    """One row of labels.csv. Class names are the users' own; a value that was never computed is an empty cell."""

    id: str  # of the sample, unique: a file's path, a row's id or its number
    label: str  # the given label
    predicted: str  # by a network that did not train on this sample
    probability: float  # of the given label, by that network
    loss: float  # cross-entropy of the given label
    verdict: str  # selected, candidate or removed
    iteration: int  # in which the verdict fell; 0: still a candidate
    suspicion: float  # 0..1, higher is more likely mislabelled
    suggested: str  # another label to consider; empty where the given one is not doubted


class RunFolder:
    """A run folder. Making the object touches nothing; `start` and the writers create what they need."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file, not a run folder: give another --out")

    @classmethod
    def existing(cls, path: str | os.PathLike[str]) -> RunFolder:
        """The run folder at `path`, which must hold a run."""
        if Path(path).is_file():
            raise InputError(f"{path} is a file, not a run folder: name the folder that `select` or `run` made")
        run = cls(path)
        if not run.exists():
            raise InputError(
                f"{run.path} is not a run folder (no run.json): make one with `labelsieve select` or `run`"
            )
        return run

    @classmethod
    def to_write(cls, path: str | os.PathLike[str]) -> RunFolder:
        """The run folder at `path`, to begin a run or go on with one; refused where somebody's own files lie there."""
        run = cls(path)
        run.check_own()
        return run

    def check_own(self) -> None:
        """A run is begun in a folder of its own: files of its names may be somebody's, maybe the source."""
        if not self.exists():
            staged = contents(self.path / STAGED)  # a command that was stopped before it began leaves no more than that
            own = (LOCK, STAGED) if all(name.startswith("pictures-") for name in staged) else (LOCK,)
            check_free(self.path, "--out", lacking="run", own=own)

    def exists(self) -> bool:
        return (self.path / "run.json").is_file()

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder; a second process is refused, a lock whose process is gone is taken over."""
        if self.exists() and not os.access(self.path, os.W_OK):
            stages = self.record().get("stages", {}).values()
            if stages and all(stage["state"] == "done" for stage in stages):
                yield  # all is done, and nobody can do anything to it
                return
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with locked(self.path / LOCK, what=f"run folder {self.path}"):
                sweep(self.path, "**/.*.partial")
                yield
        finally:
            with suppress(OSError):  # a source that could not be read leaves no empty folders behind
                for folder in made:
                    folder.rmdir()

    # run.json

    def record(self) -> dict[str, Any]:
        """run.json, or an empty record."""
        if not self.exists():
            return {}
        record = _read_json(self.path / "run.json")
        if record.get("format") != FORMAT:
            raise InputError(f"{self.path}/run.json has format {record.get('format')!r}, this version reads {FORMAT}")
        _check_record(record, self.path / "run.json")
        return record

    def update(self, **entries: Any) -> None:
        """Set top-level entries of run.json."""
        self._write("run.json", {"format": FORMAT, **self.record(), **entries})

    def start(
        self, stage: str, *, settings: Mapping[str, Any], data: LabelledData | None = None, source: str | None = None
    ) -> Progressed:
        """Begin a stage, go on with it, or learn that it is done. What changed since it began is refused aloud."""
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
                raise self._begun_differently(changed, other)
        elif data is not None and (other := _other_data(record.get("data"), about)):
            raise InputError(f"{self.path} holds other data: {'; '.join(other)}. {self._another_out()}")
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
        """Refuse what `start` would refuse, as far as it is known before the samples are read: nothing is touched."""
        before = self.record().get("stages", {}).get(stage)
        asked = _as_written(settings)
        if before is not None and (changed := _differences(before["settings"], asked, only=tuple(sorted(asked)))):
            raise self._begun_differently(changed)

    def _begun_differently(self, settings: list[str], data: Sequence[str] = ()) -> InputError:
        way = "Give the same settings, or another --out" if settings else self._another_out()
        return InputError(f"{self.path} was begun differently: {'; '.join([*settings, *data])}. {way}")

    def _another_out(self) -> str:
        way = f"copy {self.path / 'decisions.csv'} there when it is done"
        return "Give another --out" + f"; samples that keep their ids keep their decisions: {way}" * bool(
            self.decided()
        )

    def finish(self, stage: str, **facts: Any) -> None:
        """Mark a stage done, with what is worth knowing about it (seconds, devices, files)."""
        self._end(stage, "done", facts)

    def fail(self, stage: str, reason: str) -> None:
        """Mark a stage failed; the next start goes on from its checkpoints."""
        self._end(stage, "failed", {"reason": reason})

    def state(self, stage: str) -> str | None:
        """running, failed, done, or None where the stage never began."""
        entry = self.record().get("stages", {}).get(stage)
        return None if entry is None else str(entry["state"])

    def _end(self, stage: str, state: str, facts: Mapping[str, Any]) -> None:
        stages = self.record()["stages"]
        stages[stage] = {**stages[stage], "state": state, "ended": _now(), **facts}
        self.update(stages=stages)

    # selection

    def write_selection(
        self, data: LabelledData, selection: Selection, *, measured: Mapping[str, float] | None = None
    ) -> None:
        """labels.csv and summary.json. `measured` is what `metrics` found where the true labels are known."""
        with atomic_writer(self.path / "labels.csv") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(LabelRow._fields)
            writer.writerows(_label_cells(data, selection))
        self.write_summary(summarise(data, selection, measured=measured))

    def read_labels(self) -> Iterator[LabelRow]:
        """The rows of labels.csv, one at a time."""
        path = self.path / "labels.csv"
        if not path.is_file():
            raise InputError(f"{self.path} has no labels.csv: run `labelsieve select` first")
        with path.open(newline="", encoding="utf-8") as file:
            try:
                yield from _parse_labels(file, path)
            except (UnicodeDecodeError, csv.Error) as error:
                raise InputError(f"{path} is not a CSV file in UTF-8 ({error})") from None

    def write_skipped(self, data: LabelledData) -> None:
        """skipped.csv: what could not be read, and why."""
        with atomic_writer(self.path / "skipped.csv") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("id", "reason"))
            writer.writerows(data.skipped)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        self._write("summary.json", summary)

    def read_summary(self) -> dict[str, Any]:
        path = self.path / "summary.json"
        if not path.is_file():
            raise InputError(f"{self.path} has no summary.json: run `labelsieve select` first")
        return _read_json(path)

    # files that grow

    def append_history(self, entry: Mapping[str, Any]) -> None:
        append_line(self.path / "history.jsonl", json.dumps(_finite(entry)))

    def read_history(self) -> list[dict[str, Any]]:
        path = self.path / "history.jsonl"
        try:
            entries = [json.loads(line) for line in lines_of(path)]
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} holds a line that is not JSON ({error})") from None
        return [entry for entry in entries if isinstance(entry, dict)]

    def rewind_history(self, keep: Callable[[dict[str, Any]], bool]) -> None:
        """Forget the lines that a resumed stage will write again."""
        kept = [entry for entry in self.read_history() if keep(entry)]
        if (self.path / "history.jsonl").exists():
            with atomic_writer(self.path / "history.jsonl") as file:
                file.writelines(json.dumps(entry) + "\n" for entry in kept)

    def append_decision(self, id: str, decision: str, label: str = "") -> Decision:
        made = Decision(id, decision, label, _now())
        path = self.path / "decisions.csv"
        if not _has_a_line(path):  # not there, or a full disk took no more than its name
            append_line(path, csv_line(Decision._fields))
        append_line(path, csv_line(made))
        return made

    def decision_lines(self) -> tuple[list[str], str]:
        """The lines of decisions.csv, and what follows them where it may be half a decision."""
        path = self.path / "decisions.csv"
        if is_wide(path):  # nothing could be added to it, so nobody may begin
            raise InputError(f"{path} is in UTF-16: save it as UTF-8")
        lines, last = lines_of(path), unended_line(path)
        return ([*lines, last], "") if is_whole(lines, last) else (lines, last)

    def read_decisions(self) -> list[Decision]:
        """Every decision in the order it was made."""
        return [line.made for line in read_lines(self.decision_lines()[0]) if line.made is not None]

    def decided(self) -> int:
        """How many samples have a decision."""
        last = {made.id: made.decision for made in self.read_decisions()}
        return sum(decision != "undo" for decision in last.values())

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.path / name, _finite(content))


def fingerprint(data: LabelledData, *, looked_at: int = 256) -> str:
    """A hash of all ids, labels and contents; of what is too much to read, of some samples' contents, evenly spread."""
    import hashlib

    digest = hashlib.sha256(json.dumps([str(name) for name in data.classes]).encode())
    for start in range(0, len(data), 100_000):
        digest.update("\n".join(data.ids[start : start + 100_000].tolist()).encode())
    digest.update(np.ascontiguousarray(data.y, dtype="<i8").tobytes())
    whole = getattr(data.x, "matrix", data.x)  # of a table, the numbers
    if isinstance(whole, np.ndarray) and whole.nbytes <= READ_WHOLE:
        if not whole.dtype.hasobject:
            digest.update(np.ascontiguousarray(whole).tobytes())
            return digest.hexdigest()[:32]
        looked_at = len(data)
    for i in np.unique(np.linspace(0, max(len(data) - 1, 0), min(looked_at, len(data))).astype(int)):
        sample = data.x[int(i)]
        digest.update(sample.tobytes() if isinstance(sample, np.ndarray) else repr(sample).encode())
    return digest.hexdigest()[:32]


def describe(data: LabelledData, source: str | None) -> dict[str, Any]:
    """What run.json says of the data."""
    return {
        "source": source,
        "name": data.name,
        "kind": data.kind,
        "samples": len(data),
        "classes": [_plain(name) for name in data.classes],
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
    summary: dict[str, Any] = {
        "samples": len(data),
        "skipped": len(data.skipped),
        "classes": [_plain(name) for name in data.classes],
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
    }
    if measured is not None:
        summary |= {f"measured_{name}": float(value) for name, value in measured.items()}
    return summary


def _matrix(transition: Any) -> dict[str, Any]:
    """T whole, or with very many classes its entries alone: nearly all of it is nothing."""
    matrix = np.asarray(transition)
    if len(matrix) <= MOST_WHOLE:
        return {"transition_matrix": matrix.tolist()}
    rows, columns = np.nonzero(matrix)
    entries = zip(rows.tolist(), columns.tolist(), matrix[rows, columns].tolist(), strict=True)
    return {"transition_matrix": None, "transition_entries": [list(entry) for entry in entries]}


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on, without importing any of it."""
    from importlib.metadata import PackageNotFoundError, version

    # Not platform.platform(), which starts a process to ask.
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    found = {"python": platform.python_version(), "platform": system}
    for name in VERSIONED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _label_cells(data: LabelledData, selection: Selection) -> Iterator[tuple[Any, ...]]:
    names, doubted = [str(name) for name in data.classes], selection.doubted(data.y)
    for i in range(len(data)):
        given, predicted = int(data.y[i]), int(selection.predicted[i])
        yield (
            data.ids[i],
            names[given],
            names[predicted] if predicted >= 0 else "",
            _number(selection.probability[i]),
            _number(selection.loss[i]),
            VERDICTS[selection.verdict[i]],
            int(selection.iteration[i]),
            _number(selection.suspicion[i]),
            names[predicted] if doubted[i] else "",
        )


def _parse_labels(file: Iterable[str], path: Path) -> Iterator[LabelRow]:
    rows = csv.reader(file)
    if tuple(next(rows, ())) != LabelRow._fields:
        raise InputError(f"{path}: the first line must be {','.join(LabelRow._fields)}")
    for number, row in enumerate(rows, start=2):
        try:
            id, label, predicted, probability, loss, verdict, iteration, suspicion, suggested = row
            yield LabelRow(
                id, label, predicted, _float(probability), _float(loss), verdict, int(iteration), _float(suspicion),
                suggested,
            )  # fmt: skip
        except ValueError:
            raise InputError(f"{path}, line {number}: not a row of a labels.csv") from None


def _differences(
    before: Mapping[str, Any], now: Mapping[str, Any], *, only: tuple[str, ...] | None = None, prefix: str = ""
) -> list[str]:
    names = only if only is not None else sorted({*before, *now})
    changed = [name for name in names if before.get(name) != now.get(name)]
    # What holds settings of its own (a schedule) mostly follows from another one, which says it in a word.
    plain = [name for name in changed if not isinstance(now.get(name), dict)]
    return [f"{prefix}{name} was {_shown(before.get(name))}, now {_shown(now.get(name))}" for name in plain or changed]


def _other_data(before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> list[str]:
    if before is None or now is None or before.get("fingerprint") == now.get("fingerprint"):
        return []
    many = _differences(before, now, only=("samples",), prefix="the number of ")
    return many or ["the samples, or their labels, are not what they were"]


def _as_written(settings: Mapping[str, Any]) -> dict[str, Any]:
    """As run.json gives them back."""
    return dict(json.loads(json.dumps(dict(settings), default=str)))


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)


def _number(value: Any) -> str:
    return "" if math.isnan(value) else f"{float(value):.6g}"


def _float(cell: str) -> float:
    return float(cell) if cell else math.nan


def _plain(value: Any) -> Any:
    """A class name as JSON can hold it."""
    return (
        value.item() if isinstance(value, np.generic) else value if isinstance(value, str | int | bool) else str(value)
    )


def _finite(value: Any) -> Any:
    """JSON has no nan: null instead. Numpy's numbers and arrays become plain ones."""
    if isinstance(value, np.ndarray | np.generic):
        return _finite(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value


def _check_record(record: Mapping[str, Any], path: Path) -> None:
    """A run.json that somebody wrote by hand, or with ill will, is refused where it is read."""
    stages = record.get("stages", {})
    whole = all(isinstance(record.get(name, {}), dict) for name in ("settings", "versions", "stages"))
    whole &= isinstance(record.get("data"), dict | None)
    for stage in stages.values() if isinstance(stages, dict) else ():
        whole &= isinstance(stage, dict) and isinstance(stage.get("state"), str)
        whole = whole and all(isinstance(stage.get(name), dict) for name in ("settings", "versions"))
        whole = whole and isinstance(stage.get("started"), str)
    if not whole or not isinstance(stages, dict):
        raise InputError(f"{path} is damaged: it does not say what a run's does")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON ({error})") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} does not hold a JSON object")
    return content


def _has_a_line(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.readline().endswith(b"\n")
    except FileNotFoundError:
        return False


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
