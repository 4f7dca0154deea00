"""Users' mistakes, told in one line."""

from __future__ import annotations


class InputError(ValueError):
    """Something the user gave cannot be used. The message says what, where and what to do."""


class FailedError(Exception):
    """Nobody's mistake, and it cannot go on: told in one line as well, exit 1."""
