"""Output streams that survive a reader that closes them (`| head`): later output is lost, the work continues.

with pipes.unbroken():
    print(...)          # never raises BrokenPipeError
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO


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
