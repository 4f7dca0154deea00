"""Ctrl-C and SIGTERM: the first stops at the next safe point where somebody looks out for one, the second at once.

with stopping.safe_points():
    while not stopping.requested(): ...
    raise stopping.reason()
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM: as Ctrl-C, with an exit code of its own."""


_asked: int | None = None
_looking_out = 0


def requested() -> bool:
    return _asked is not None


def reason() -> KeyboardInterrupt:
    """What to raise once the safe point is reached."""
    return Terminated() if _asked == signal.SIGTERM else KeyboardInterrupt()


@contextmanager
def safe_points() -> Iterator[None]:
    """Inside, whoever works asks `requested()` often and stops by itself."""
    global _looking_out, _asked
    _looking_out += 1
    try:
        yield
    finally:
        _looking_out -= 1
        if not _looking_out:
            _asked = None


def on_signal(number: int, _frame: Any = None) -> None:
    global _asked
    if _looking_out and _asked is None:
        _asked = number
        print("labelsieve: stopping at the next safe point; once more stops at once", file=sys.stderr, flush=True)
        return
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt
