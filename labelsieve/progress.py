"""How a long command says where it is: a bar on a terminal, plain lines elsewhere, nothing under --json.

    progress = Progress()
    with progress.stage("decoding", total=1000, unit="pictures") as stage:
        stage.advance(10)
        stage.show(loss=0.31)

Everything goes to stderr; stdout belongs to results.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

RARELY = 300.0  # seconds between two lines of the longest stages


def in_words(seconds: float) -> str:
    """As precise as a person wants to know: 40 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


class Pace:
    """How far a stage is and how quickly it goes on.

    The first units are often slow (kernels are compiled, files come into the cache): once there are others they count
    no more. What was done before a stop says nothing of the pace.
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
        """Units a second."""
        began, before = self.began, self.before
        if self.first is not None and self.done > self.first[1] and self.last > self.first[0]:
            began, before = self.first
        return (self.done - before) / (self.last - began) if self.last > began else 0.0

    def left(self) -> float | None:
        """Seconds still to go; None where nobody can know."""
        rate = self.rate()
        if self.total is None or rate <= 0:
            return None
        return max(0.0, (self.total - self.done) / rate - (self.clock() - self.last))


class Stage:
    """One stretch of work. Its own methods do nothing: what silence looks like."""

    def advance(self, steps: int = 1) -> None:
        """So many more units are done."""

    def resume(self, done: int) -> None:
        """So many units were done before the stage began."""

    def show(self, **numbers: float) -> None:
        """Numbers worth seeing beside the bar, such as the loss."""


class PlainStage(Stage):
    """A line when the time left can first be told, one now and then, one when it ends."""

    def __init__(self, name: str, total: int | None, unit: str, *, stream: IO[str], every: float) -> None:
        self.name, self.unit, self.stream, self.every = name, unit, stream, every
        self.pace = Pace(total)
        self.numbers: dict[str, float] = {}
        self.told: float | None = None

    def advance(self, steps: int = 1) -> None:
        self.pace.advance(steps)
        now = time.monotonic()
        if self.pace.done == self.pace.total:
            return
        if self.told is None:
            left = self.pace.left()
            due = now - self.pace.began >= self.every or (left is not None and left >= 2 * self.every)
        else:
            due = now - self.told >= max(self.every, min(RARELY, (now - self.pace.began) / 10))
        if due:
            self.told = now
            self.line()

    def resume(self, done: int) -> None:
        self.pace.resume(done)

    def show(self, **numbers: float) -> None:
        self.numbers |= numbers

    def line(self, *, last: bool = False) -> None:
        pace = self.pace
        seconds, rate, left = time.monotonic() - pace.began, pace.rate(), pace.left()
        parts = [f"{pace.done:,}" + (f"/{pace.total:,}" if pace.total is not None else "") + f" {self.unit}".rstrip()]
        if rate >= 1 and seconds >= 1:
            parts.append(f"{rate:,.1f}/s")
        if last:
            parts.append(f"done in {seconds:.1f} s")
        elif left is not None:
            parts.append(f"{in_words(left)} left")
        parts += _shown(self.numbers)
        print(f"{self.name}: {', '.join(parts)}", file=self.stream, flush=True)


class BarStage(Stage):
    """One rich bar."""

    def __init__(self, bar: Any, task: Any, pace: Pace) -> None:
        self.bar, self.task, self.pace = bar, task, pace
        self.numbers: dict[str, float] = {}

    def advance(self, steps: int = 1) -> None:
        self.pace.advance(steps)
        self.bar.advance(self.task, steps)

    def resume(self, done: int) -> None:
        self.pace.resume(done)
        self.bar.update(self.task, completed=done)

    def show(self, **numbers: float) -> None:
        self.numbers |= numbers
        self.bar.update(self.task, numbers="  ".join(_shown(self.numbers)))


class Progress:
    """Where progress goes. `silent` for --json and for use as a library."""

    def __init__(self, *, silent: bool = False, stream: IO[str] | None = None, every: float = 10.0) -> None:
        self.silent = silent
        self.stream = stream if stream is not None else sys.stderr
        self.every = every
        self.bar: Any = None

    def note(self, text: str, *, passing: bool = False) -> None:
        """One line a person should read; above the bar where there is one. `passing`: of no interest afterwards."""
        if self.bar is not None:
            self.bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        elif not self.silent:
            print(text, file=self.stream, flush=True)

    @contextmanager
    def stage(self, name: str, total: int | None = None, *, unit: str = "") -> Iterator[Stage]:
        if self.silent:
            yield Stage()
        elif self.stream.isatty():
            pace = Pace(total)
            with _bar(self.stream) as bar:
                outer, self.bar = self.bar, bar
                try:
                    yield BarStage(bar, bar.add_task(name, total=total, unit=unit, numbers="", pace=pace), pace)
                finally:
                    self.bar = outer
        else:
            stage = PlainStage(name, total, unit, stream=self.stream, every=self.every)
            yield stage
            stage.line(last=True)

    @contextmanager
    def epochs(
        self, name: str, total: int, *, hint: Callable[[float], str | None] | None = None
    ) -> Iterator[Callable[[dict[str, Any]], None]]:
        """A stage of epochs, as what the engine tells of its training after each.

        `hint` is asked once, after the first epoch: given the seconds an epoch takes, it may have something to say.
        """
        with self.stage(name, total, unit="epochs") as stage:
            shown: int | None = None
            asked = False

            def tell(state: dict[str, Any]) -> None:
                nonlocal shown, asked
                epoch = int(state["epoch"])
                if shown is None:
                    shown = max(0, epoch - 1)
                    stage.resume(shown)
                if state["loss"]:
                    stage.show(**{"loss": float(np.mean(state["loss"])), "samples/s": state["images_per_second"]})
                if epoch <= shown:
                    return
                stage.advance(epoch - shown)
                if not asked and hint is not None:
                    said = hint(float(state["elapsed"]) / (epoch - shown))
                    if said:
                        self.note(said)
                asked, shown = True, epoch

            yield tell


class Overheard(Progress):
    """Passes everything on and remembers what was said."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(silent=progress.silent, stream=progress.stream, every=progress.every)
        self.progress = progress
        self.said: list[str] = []

    def note(self, text: str, *, passing: bool = False) -> None:
        if not passing:
            self.said.append(text)
        self.progress.note(text, passing=passing)

    @contextmanager
    def stage(self, name: str, total: int | None = None, *, unit: str = "") -> Iterator[Stage]:
        with self.progress.stage(name, total, unit=unit) as stage:
            yield stage


def _shown(numbers: dict[str, float]) -> list[str]:
    return [f"{name} {value:,.0f}" if value >= 100 else f"{name} {value:.3g}" for name, value in numbers.items()]


def _bar(stream: IO[str]) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
    from rich.table import Column
    from rich.text import Text

    def whole() -> Column:
        return Column(no_wrap=True)

    class Speed(ProgressColumn):
        def render(self, task: Any) -> Text:
            rate = task.fields["pace"].rate()
            return Text(f"{rate:,.1f}/s" if rate >= 1 and not task.fields["numbers"] else "")

    class Left(ProgressColumn):
        def render(self, task: Any) -> Text:
            left = None if task.finished else task.fields["pace"].left()
            return Text(f"{in_words(left)} left" if left is not None else "")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        Speed(whole()),
        Left(whole()),
        TextColumn("{task.fields[numbers]}", table_column=whole()),
    )
    return Progress(*columns, console=Console(file=stream), transient=False)
