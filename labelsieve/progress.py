"""Progress of long commands and notes to the user: a bar on a terminal, plain lines elsewhere, nothing with --json.

    progress = Progress()
    with progress.stage("decoding", total=1000, unit="pictures") as stage:
        stage.advance(10)
        stage.show(loss=0.31)

Progress goes to stderr, results go to stdout. A note has a kind and the values that it mentions: code asks for
the kind, and only `NoteKind` has the sentences.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from importlib.util import find_spec
from typing import IO, Any

MOST_NAMES = 10  # in one note


class NoteKind(Enum):
    """Every kind of note, with its sentence."""

    SELECTION_STARTED = "{name}: {samples:,} samples, {classes} classes; {model}"
    SELECTION_RESUMED = "{name}: {samples:,} samples, {classes} classes; {model}; resuming"
    SELECTION_DONE = "{run}: the selection is already done"
    MEASURED_AGAIN = "{run}: the selection is already done; measured again with the current true labels"
    TRAININGS = "{stage}: training {count} models"
    DAMAGED_ANSWER = "{file} is damaged or from another version; this model is trained again"
    ALL_PREDICTED = (
        "every label was predicted; if the model was trained on these samples, its predictions are not out-of-sample"
    )
    NO_EMBEDDING_MODEL = (
        "a pretrained model may find more wrong labels; to use one: {install}labelsieve data fetch model {name}"
    )
    EPOCHS_NOT_USED = "--epochs {epochs} has no effect: {model} is a classifier, which is not trained in epochs"
    FEATURES = "{name}: features: {columns}"
    SELECTION_NOT_MIRRORED = "classes differ by left and right: the selection does not mirror pictures"
    TRAINING_NOT_MIRRORED = (
        "training shifts but does not mirror pictures: the nearest neighbour has the same label for {plain:.1f} % of "
        "the pictures, but only for {mirrored:.1f} % of the mirrored ones. --augment mirror mirrors them anyway"
    )
    TRAINING_STARTED = "training {network} with {method}: {epochs} epochs, {samples}, {device}"
    TRAINING_RESUMED = "resuming the training of {network} with {method}: {epochs} epochs, {samples}, {device}"
    CLASSIFIER_STARTED = "training the classifier {model} on {samples}"
    WEAK_NETWORK = "the network learned little: it agrees with {agreement:.1f} % of {which}; {remedy}"
    SLOW_SELECTION = (
        "one training takes about {each}, and the selection needs up to {count} of them. Faster but less accurate: "
        "fewer --epochs, fewer --iterations, smaller pictures (--size) or another --model, with another --out. Ctrl-C "
        "stops the run without losing anything"
    )
    SLOW_TRAINING = (
        "this training takes about {total}. Faster but less accurate: fewer --train-epochs, smaller pictures (--size) "
        "or another --network, with another --out. Ctrl-C stops the run without losing anything"
    )
    DECISIONS_NOT_USED = (
        "decisions in {file} that are not used: {count:,}. Training uses the selection of the run. To train on "
        "corrected labels: {export}, then {run}"
    )
    FIRST_SHEET = "{path}: the first sheet, {sheet!r}, is read; other sheets: {others}"
    COLUMNS_NUMBERED = "{path}: columns whose name is empty or occurs twice are called {names}"
    TEXTS_AND_OTHERS = (
        "the texts in {texts} are used together with the other columns; to use only one column of texts, set "
        "--text-column, or pass only this column in Python"
    )
    CONTRADICTIONS = (
        "samples that occur more than once with different labels: {count:,}, e.g. {pair}. At least {wrong:,} of their "
        "labels ({share} of all labels) differ from the label of an identical sample: they are wrong, or "
        "equal samples can have different labels"
    )
    NEAR_DUPLICATES = (
        "identical or nearly identical samples: {count:,}; number of groups: {groups:,}, with different labels: "
        "{conflicts:,}. A group stays in the same half of the data, except with --protocol paper"
    )
    OUTLIERS = "outliers: {count:,}, far from all other samples, perhaps of none of the classes"
    LEAK = (
        "column {column} alone predicts {share} of the labels. If it was derived from the labels, the noise "
        "estimate has no meaning: exclude it with --ignore-columns {column}, or drop it in Python"
    )
    NUMERIC_LABELS = (
        "the labels are {count} numbers from {low} to {high}: each of them is a class, and a label next to the right "
        "one counts as wrong. For measured values, use ranges as labels"
    )
    OUTCOMES = (
        "the labels may be outcomes, such as survival, instead of annotations: outcomes of equal cases can differ, so "
        "that a suspect can be an unusual case instead of a wrong label. Check suspects before you change them"
    )
    SPLITS = "splits read: {used}; not read: {unused}; use --split NAME,... or --split all to change this"
    IDS_CHANGED = "{source} has no column {column!r}, which has the ids in the run; its first id is {first!r}"


@dataclass(frozen=True)
class Note:
    """One note."""

    kind: NoteKind
    values: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, kind: NoteKind, **values: Any) -> Note:
        """Make a note from keyword arguments."""
        return cls(kind, values)

    def __str__(self) -> str:
        return self.kind.value.format(**self.values)


SECONDS_TO_ESTIMATE = 1.0  # before, the slow first unit decides: 43 s were estimated for a stage of 0.1 s
MAX_SECONDS_BETWEEN_LINES = 300.0  # a long run without any line looks stopped
SPEED_SECONDS = 3600.0  # the speed of a bar is the mean over this time: an epoch can take minutes


def format_duration(seconds: float) -> str:
    """Return 0.4 s, 40 s, 12 min, 3.5 h or 2.5 d."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    for unit, length, limit in (("min", 60, 100), ("h", 3600, 48)):
        if seconds < limit * length:
            return f"{seconds / length:.0f} min" if unit == "min" else f"{seconds / length:.1f} h"
    return f"{seconds / 86_400:,.1f} d"


def format_bytes(amount: float) -> str:
    """Return 1.5 kB, 1.5 MB, 1.5 GB or 1.5 TB."""
    for unit, length in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if amount >= length:
            return f"{amount / length:,.1f} {unit}"
    return f"{amount / 1e3:,.1f} kB"


def format_share(share: float, digits: int = 1, *, space: str = " ") -> str:
    """Return 38.4 %. A share that only rounding makes 0 or 100 % is shown as a bound: < 0.1 % or > 99.9 %."""
    text, step = f"{100 * share:.{digits}f}", 10**-digits
    if share < 1 and float(text) == 100:
        text = f"> {100 - step:.{digits}f}"
    elif share > 0 and float(text) == 0:
        text = f"< {step:.{digits}f}"
    return f"{text}{space}%"


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return "1 sample" or "1,200 samples"; `many` if the plural has another form."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def join_names(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """Return "a, b and 1,200 more": at most `most` names, separated by commas."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class Pace:
    """The speed of a stage.

    The first units are often slow (kernels are compiled, files are cached), so they stop counting when there are
    others. Units that were done before a stop do not count.
    """

    def __init__(self, total: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.clock = total, clock
        self.done = self.before = 0
        self.began = self.last = clock()
        self.first: tuple[float, int] | None = None

    def resume(self, done: int) -> None:
        self.done = self.before = done

    def advance(self, steps: int) -> None:
        self.done += steps
        self.last = self.clock()
        if self.first is None and steps:
            self.first = (self.last, self.done)

    def rate(self) -> float:
        """Return units per second."""
        began, before = self.began, self.before
        if self.first is not None and self.done > self.first[1] and self.last > self.first[0]:
            began, before = self.first
        return (self.done - before) / (self.last - began) if self.last > began else 0.0

    def left(self) -> float | None:
        """Return the remaining seconds; None if they are not known."""
        rate = self.rate()
        if self.total is None or rate <= 0:
            return None
        return max(0.0, (self.total - self.done) / rate - (self.clock() - self.last))


class Stage:
    """One stage of the work. This base class prints nothing."""

    def advance(self, steps: int = 1) -> None:
        """Count units that are done."""

    def resume(self, done: int) -> None:
        """Set the number of units that were done before."""

    def show(self, **numbers: float) -> None:
        """Show numbers such as the loss."""

    def end_early(self) -> None:
        """The work ended before the total, which was a maximum."""


class PlainStage(Stage):
    """Prints a line when the remaining time is first known, later ones at growing intervals, and one at the end."""

    def __init__(self, name: str, total: int | None, unit: str, *, stream: IO[str], every: float) -> None:
        self.name, self.unit, self.stream, self.every = name, unit, stream, every
        self.pace = Pace(total)
        self.numbers: dict[str, float] = {}
        self.last_line: float | None = None

    def advance(self, steps: int = 1) -> None:
        self.pace.advance(steps)
        now = time.monotonic()
        if self.pace.done == self.pace.total:
            return
        if self.last_line is None:
            left, seconds = self.pace.left(), self.pace.last - self.pace.began
            long = left is not None and left >= 2 * self.every and seconds >= min(SECONDS_TO_ESTIMATE, self.every)
            due = now - self.pace.began >= self.every or long
        else:
            due = now - self.last_line >= max(self.every, min(MAX_SECONDS_BETWEEN_LINES, (now - self.pace.began) / 10))
        if due:
            self.last_line = now
            self.line()

    def resume(self, done: int) -> None:
        self.pace.resume(done)

    def show(self, **numbers: float) -> None:
        self.numbers |= numbers

    def end_early(self) -> None:
        self.pace.total = self.pace.done

    def line(self, *, last: bool = False) -> None:
        pace = self.pace
        seconds, left = time.monotonic() - pace.began, pace.left()
        rate = (pace.done - pace.before) / max(seconds, 1e-9) if last else pace.rate()
        parts = [f"{pace.done:,}" + (f"/{pace.total:,}" if pace.total is not None else "") + f" {self.unit}".rstrip()]
        if rate >= 1 and seconds >= 1:
            parts.append(f"{rate:,.1f}/s")
        if last:
            parts.append(f"done in {seconds:.1f} s")
        elif left is not None:
            parts.append(f"{format_duration(left)} left")
        parts += _shown(self.numbers)
        print(f"{self.name}: {', '.join(parts)}", file=self.stream, flush=True)


class BarStage(Stage):
    """A bar of rich."""

    def __init__(self, bar: Any, task: Any) -> None:
        self.bar, self.task = bar, task
        self.numbers: dict[str, float] = {}

    def advance(self, steps: int = 1) -> None:
        self.bar.advance(self.task, steps)

    def resume(self, done: int) -> None:
        self.bar.reset(self.task, completed=done)  # what was done before a stop does not count for the speed

    def show(self, **numbers: float) -> None:
        self.numbers |= numbers
        self.bar.update(self.task, numbers="  ".join(_shown(self.numbers)))

    def end_early(self) -> None:
        self.bar.update(self.task, total=self.bar.tasks[self.task].completed)


def in_notebook() -> bool:
    """Whether this is a cell of a notebook, which shows a bar without a terminal."""
    if "IPython" not in sys.modules:
        return False
    from rich.console import Console

    return Console().is_jupyter


class Progress:
    """Prints stages and notes; `silent` prints nothing."""

    def __init__(self, *, silent: bool = False, stream: IO[str] | None = None, every: float = 10.0) -> None:
        self.silent = silent
        self.stream = stream if stream is not None else sys.stderr
        self.every = every
        self.bar: Any = None

    def note(self, text: str | Note, *, passing: bool = False) -> None:
        """Print a note, above the bar if there is one. A `passing` note is not recorded."""
        if self.bar is not None:
            self.bar.console.print(str(text), markup=False, highlight=False, soft_wrap=True)
        elif not self.silent:
            print(text, file=self.stream, flush=True)

    @contextmanager
    def stage(self, name: str, total: int | None = None, *, unit: str = "") -> Iterator[Stage]:
        if self.silent:
            yield Stage()
        elif find_spec("rich") and (self.stream.isatty() or in_notebook()):  # experiments also run without rich
            with _bar(self.stream) as bar:
                outer, self.bar = self.bar, bar
                try:
                    yield BarStage(bar, bar.add_task(name, total=total, unit=unit, numbers=""))
                finally:
                    self.bar = outer
        else:
            stage = PlainStage(name, total, unit, stream=self.stream, every=self.every)
            yield stage
            stage.line(last=True)

    @contextmanager
    def epochs(
        self, name: str, total: int, *, hint: Callable[[float], str | Note | None] | None = None
    ) -> Iterator[Callable[[dict[str, Any]], None]]:
        """Show a stage of epochs; yields the function that receives the state of a training after each epoch.

        `hint` is called after the first epoch with its seconds, and may return a note.
        """
        import numpy as np

        with self.stage(name, total, unit="epochs") as stage:
            shown: int | None = None
            hinted = False

            def on_epoch(state: dict[str, Any]) -> None:
                nonlocal shown, hinted
                epoch = int(state["epoch"])
                if shown is None:
                    shown = max(0, epoch - 1)
                    stage.resume(shown)
                if state["loss"]:
                    loss = float(np.mean(np.concatenate(state["loss"])))  # of all networks of all trainings
                    stage.show(**{"loss": loss, "samples/s": state["images_per_second"]})
                if epoch <= shown:
                    return
                stage.advance(epoch - shown)
                if not hinted and hint is not None:
                    note = hint(float(state["elapsed"]) / (epoch - shown))
                    if note is not None:
                        self.note(note)
                hinted, shown = True, epoch

            yield on_epoch

    @contextmanager
    def trainings(self, trainer: Any, samples: int) -> Iterator[None]:
        """Show how far the trainings of a selection are; `samples` is the maximum number that they train on.

        Networks show their epochs instead.
        """
        if trainer.epochs:
            yield
            return
        with self.stage("selection", samples, unit="samples over all models") as stage:
            done = 0

            def on_trained(job: Any, *, loaded: bool = False) -> None:
                nonlocal done
                done += len(job.train)
                if loaded:
                    stage.resume(done)
                else:
                    stage.advance(len(job.train))

            trainer.on_trained = on_trained
            yield
            stage.end_early()  # a selection may stop before its last iteration


SILENT = Progress(silent=True)


class RecordingProgress(Progress):
    """Forwards everything to another progress and records the notes."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(silent=progress.silent, stream=progress.stream, every=progress.every)
        self.progress = progress
        self.notes: list[str | Note] = []

    def note(self, text: str | Note, *, passing: bool = False) -> None:
        if not passing:
            self.notes.append(text)
        self.progress.note(text, passing=passing)

    @contextmanager
    def stage(self, name: str, total: int | None = None, *, unit: str = "") -> Iterator[Stage]:
        with self.progress.stage(name, total, unit=unit) as stage:
            yield stage


def _shown(numbers: dict[str, float]) -> list[str]:
    return [f"{name} {value:,.0f}" if value >= 100 else f"{name} {value:.3g}" for name, value in numbers.items()]


def _bar(stream: IO[str]) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=True)),
    )
    return Progress(*columns, console=Console(file=stream), speed_estimate_period=SPEED_SECONDS)
