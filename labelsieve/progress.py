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
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any


class Stage:
    """One stretch of work. Its own methods do nothing: what silence looks like."""

    def advance(self, steps: int = 1) -> None:
        """So many more units are done."""

    def show(self, **numbers: float) -> None:
        """Numbers worth seeing beside the bar, such as the loss."""


class PlainStage(Stage):
    """A line when it begins, one now and then, one when it ends."""

    def __init__(self, name: str, total: int | None, unit: str, *, stream: IO[str], every: float) -> None:
        self.name, self.total, self.unit, self.stream, self.every = name, total, unit, stream, every
        self.done = 0
        self.numbers: dict[str, float] = {}
        self.began = self.told = time.monotonic()

    def advance(self, steps: int = 1) -> None:
        self.done += steps
        now = time.monotonic()
        if now - self.told >= self.every and self.done != self.total:
            self.told = now
            self.line()

    def show(self, **numbers: float) -> None:
        self.numbers |= numbers

    def line(self, *, last: bool = False) -> None:
        seconds = time.monotonic() - self.began
        rate = self.done / seconds if seconds > 0 else 0.0
        parts = [f"{self.done:,}" + (f"/{self.total:,}" if self.total is not None else "") + f" {self.unit}".rstrip()]
        if self.done and seconds >= 1:
            parts.append(f"{rate:,.1f}/s")
        if last:
            parts.append(f"done in {seconds:.1f} s")
        elif self.total and rate > 0:
            parts.append(f"{(self.total - self.done) / rate:.0f} s left")
        parts += [f"{name} {value:.4g}" for name, value in self.numbers.items()]
        print(f"{self.name}: {', '.join(parts)}", file=self.stream, flush=True)


class BarStage(Stage):
    """One rich bar."""

    def __init__(self, bar: Any, task: Any) -> None:
        self.bar, self.task = bar, task
        self.numbers: dict[str, float] = {}

    def advance(self, steps: int = 1) -> None:
        self.bar.advance(self.task, steps)

    def show(self, **numbers: float) -> None:
        self.numbers |= numbers
        self.bar.update(self.task, numbers="  ".join(f"{name} {value:.4g}" for name, value in self.numbers.items()))


class Progress:
    """Where progress goes. `silent` for --json and for use as a library."""

    def __init__(self, *, silent: bool = False, stream: IO[str] | None = None, every: float = 10.0) -> None:
        self.silent = silent
        self.stream = stream if stream is not None else sys.stderr
        self.every = every

    def note(self, text: str) -> None:
        """One line a person should read."""
        if not self.silent:
            print(text, file=self.stream, flush=True)

    @contextmanager
    def stage(self, name: str, total: int | None = None, *, unit: str = "") -> Iterator[Stage]:
        if self.silent:
            yield Stage()
        elif self.stream.isatty():
            with _bar(self.stream) as bar:
                yield BarStage(bar, bar.add_task(name, total=total, unit=unit, numbers=""))
        else:
            stage = PlainStage(name, total, unit, stream=self.stream, every=self.every)
            yield stage
            stage.line(last=True)


def _bar(stream: IO[str]) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(f"{task.speed:,.1f}/s" if task.speed else "")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        Speed(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[numbers]}"),
    )
    return Progress(*columns, console=Console(file=stream), transient=False)
