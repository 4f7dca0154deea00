"""Ctrl-C and SIGTERM: the first one stops at the next safe point, the second one immediately.

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
    """SIGTERM. It is handled like Ctrl-C, with another exit code."""


_requested: int | None = None
_inside = 0


def requested() -> bool:
    """Return whether the work should stop at the next safe point."""
    return _requested is not None


def reason() -> KeyboardInterrupt:
    """Return the exception to raise at the safe point."""
    return Terminated() if _requested == signal.SIGTERM else KeyboardInterrupt()


@contextmanager
def safe_points() -> Iterator[None]:
    """Inside this context the work checks `requested()` often and stops by itself."""
    global _inside, _requested
    _inside += 1
    try:
        yield
    finally:
        _inside -= 1
        if not _inside:
            _requested = None


def on_signal(number: int, _frame: Any = None) -> None:
    """Handle SIGINT and SIGTERM."""
    global _requested
    if _inside and _requested is None:
        _requested = number
        print("labelsieve: stopping at the next safe point; repeat to stop immediately", file=sys.stderr, flush=True)
        return
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt
