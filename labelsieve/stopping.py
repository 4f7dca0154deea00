"""Signals and closed pipes.

The first Ctrl-C or SIGTERM stops the work at the next safe point, the second one immediately.

with stopping.safe_points():
    while not stopping.requested(): ...
    raise stopping.reason()

If the reader of an output stream closes it (`| head`), later output is lost and the work continues.

with stopping.unbroken():
    print(...)          # never raises BrokenPipeError
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO


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


class Unbroken:
    """A text stream that writes to /dev/null after the first broken pipe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except BrokenPipeError:
            self._discard()
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._discard()

    def end(self) -> None:
        """Flush now; at exit Python would print an error if this failed."""
        try:
            self._stream.flush()
        except OSError:
            self._discard()

    def _discard(self) -> None:
        """Replace the file descriptor, so that buffered output is lost too."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)


@contextmanager
def unbroken() -> Iterator[None]:
    """Inside this context stdout and stderr survive a reader that closes them."""
    before = sys.stdout, sys.stderr
    during: tuple[Any, Any] = Unbroken(before[0]), Unbroken(before[1])
    sys.stdout, sys.stderr = during
    try:
        yield
        for stream in during:
            stream.end()
    finally:
        # Streams that were replaced meanwhile stay.
        if sys.stdout is during[0]:
            sys.stdout = before[0]
        if sys.stderr is during[1]:
            sys.stderr = before[1]
