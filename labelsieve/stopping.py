"""Signals and closed pipes.

The first Ctrl-C or SIGTERM stops the work at the next safe point, the second one immediately. A command that does not
reach a safe point is ended after `GRACE_SECONDS`: files are replaced atomically, so it can be resumed all the same.

with stopping.handled(), stopping.safe_points():
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
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO


class Terminated(KeyboardInterrupt):
    """SIGTERM. It is handled like Ctrl-C, with another exit code."""


EXIT_CODES = {int(signal.SIGINT): 130, int(signal.SIGTERM): 143}
GRACE_SECONDS = 4.0  # so that a command ends within 5 seconds, as SECURITY.md says

_requested: int | None = None
_inside = 0
_watching = False


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


@contextmanager
def handled() -> Iterator[None]:
    """Handle SIGINT and SIGTERM. Inside this context the process ends `GRACE_SECONDS` after the first one.

    Python calls a handler between two of its own instructions only, which a library may delay for minutes. So a thread
    waits for the signals too.
    """
    global _watching
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    ended = threading.Event()
    threading.Thread(target=_watch, args=(reader, ended), daemon=True).start()
    for number in EXIT_CODES:
        signal.signal(number, on_signal)
    before, _watching = signal.set_wakeup_fd(writer, warn_on_full_buffer=False), True
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        _watching = False
        ended.set()
        os.close(writer)  # ends the thread


def _watch(reader: int, ended: threading.Event) -> None:
    while signals := os.read(reader, 64):
        for number in signals:
            if number in EXIT_CODES and not ended.wait(GRACE_SECONDS):
                _end_process(number)
    os.close(reader)


def _end_process(number: int) -> None:
    try:
        os.write(2, b"labelsieve: stopped; run the same command to resume\n")
        if multiprocessing := sys.modules.get("multiprocessing"):  # if it is not imported, there are no workers
            for worker in multiprocessing.active_children():
                worker.kill()
    finally:  # also if a worker cannot be killed
        os._exit(EXIT_CODES[number])


def limit_exit(code: int) -> None:
    """After a signal, do not let Python wait for threads at exit."""
    if code in EXIT_CODES.values():
        timer = threading.Timer(1.0, os._exit, (code,))
        timer.daemon = True
        timer.start()


def _forget_parent() -> None:
    """In a forked process: a signal to it must not wake the thread of its parent."""
    global _watching
    if _watching:
        signal.set_wakeup_fd(-1)
        _watching = False


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_parent)


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
