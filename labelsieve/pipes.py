"""Streams whose reader may go away (`| head`): what is said after that is lost, the work goes on.

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
    """A text stream that from the first broken pipe on leads nowhere; in everything else the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except BrokenPipeError:
            self._lead_nowhere()
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._lead_nowhere()

    def end(self) -> None:
        """Say what is still held back, now: when Python ends and cannot, it would complain."""
        try:
            self._stream.flush()
        except OSError:
            self._lead_nowhere()

    def _lead_nowhere(self) -> None:
        """Below Python, so that what the stream still holds goes there too and not once more into the pipe."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


@contextmanager
def unbroken() -> Iterator[None]:
    """Inside, stdout and stderr survive a reader that has seen enough."""
    before = sys.stdout, sys.stderr
    during: tuple[Any, Any] = Unbroken(before[0]), Unbroken(before[1])
    sys.stdout, sys.stderr = during
    try:
        yield
        for stream in during:
            stream.end()
    finally:
        # Somebody else may have put other streams there for good: theirs stay.
        if sys.stdout is during[0]:
            sys.stdout = before[0]
        if sys.stderr is during[1]:
            sys.stderr = before[1]
