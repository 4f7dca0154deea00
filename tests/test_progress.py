from __future__ import annotations

import io
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from labelsieve.progress import Pace, PlainStage, Progress, counted, format_duration


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def state(epoch: int, *, elapsed: float = 1.0) -> dict[str, Any]:
    return {"epoch": epoch, "epochs": 10, "loss": [[0.25], [0.75]], "images_per_second": 120.0, "elapsed": elapsed}


@pytest.mark.parametrize(
    ("seconds", "message"),
    [(0.4, "0.4 s"), (40, "40 s"), (99, "99 s"), (100, "2 min"), (5400, "90 min"), (6000, "1.7 h"), (3e5, "3.5 d")],
)
def test_format_duration(seconds: float, message: str) -> None:
    assert format_duration(seconds) == message


def test_time_left_by_hand() -> None:
    clock = Clock()
    pace = Pace(10, clock)
    assert pace.left() is None
    clock.now = 20  # the first one is slow: kernels are compiled
    pace.advance(1)
    assert pace.left() == 180
    clock.now = 24
    pace.advance(2)  # two in four seconds: the first no longer counts
    assert pace.rate() == 0.5 and pace.left() == 14
    clock.now = 27  # time passes between two epochs
    assert pace.left() == 11
    clock.now = 99
    assert pace.left() == 0


def test_what_was_done_before_a_stop_says_nothing_of_the_pace() -> None:
    clock = Clock()
    pace = Pace(50, clock)
    pace.resume(40)
    clock.now = 3
    pace.advance(1)
    assert pace.done == 41 and pace.left() == 27
    assert Pace(None, clock).left() is None


def test_a_line_when_the_time_left_is_first_known_and_fewer_later(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("labelsieve.progress.time.monotonic", clock)
    stream = io.StringIO()
    stage = PlainStage("training", 500, "epochs", stream=stream, every=10.0)
    stage.pace = Pace(500, clock)
    for _ in range(500):
        clock.now += 6
        stage.advance()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "training: 1/500 epochs, 50 min left"
    assert 10 < len(lines) < 50
    quick = io.StringIO()
    stage = PlainStage("decoding", 10, "pictures", stream=quick, every=10.0)
    stage.pace = Pace(10, clock)
    for _ in range(10):
        clock.now += 0.5
        stage.advance()
    assert quick.getvalue() == ""
    stage = PlainStage("checking", 600, "pictures", stream=quick, every=10.0)  # the first one takes 0.1 s
    stage.pace = Pace(600, clock)
    clock.now += 0.1
    stage.advance()
    assert quick.getvalue() == ""


def test_epochs_count_from_where_they_were_stopped_and_hint_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()  # a second per reading: the number of lines depends on the time
    monkeypatch.setattr("labelsieve.progress.time.monotonic", lambda: float(next(clock)))
    stream, asked = io.StringIO(), []

    def hint(seconds: float) -> str:
        asked.append(seconds)
        return "be quicker"

    with Progress(stream=stream, every=0.0).epochs("training", 10, hint=hint) as tell:
        tell(state(7, elapsed=4.0))
        tell(state(7, elapsed=5.0))
        tell(state(8, elapsed=8.0))
        tell(state(10, elapsed=16.0))
    assert asked == [4.0]
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("training: 7/10 epochs") and lines[0].endswith("loss 0.5, samples/s 120")
    assert lines[1] == "be quicker" and "10/10 epochs, done in" in lines[-1] and len(lines) == 4


def test_a_note_goes_above_the_bar() -> None:
    terminal = Terminal()
    progress = Progress(stream=terminal)
    with progress.epochs("training", 2, hint=lambda _: "a hint with [brackets] " + "x" * 200) as tell:
        tell(state(1))
        tell(state(2))
    assert "a hint with [brackets] " + "x" * 200 in terminal.getvalue() and "2/2" in terminal.getvalue()
    progress.note("after")
    assert terminal.getvalue().endswith("after\n")


def test_numbers_with_nouns() -> None:
    assert counted(1, "sample") == "1 sample"
    assert counted(2000, "class", "classes") == "2,000 classes"


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_selection_that_stops_early_shows_only_the_samples_it_trained_on(stream: type[io.StringIO]) -> None:
    shown = stream()
    trainer, job = SimpleNamespace(epochs=0), SimpleNamespace(train=range(30))
    with Progress(stream=shown).trainings(trainer, 120):
        trainer.on_trained(job)
        trainer.on_trained(job)
    assert "60/60" in shown.getvalue() and "120/120" not in shown.getvalue()
