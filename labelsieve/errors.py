"""Users' mistakes, told in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Value = TypeVar("Value")


class InputError(ValueError):
    """Something the user gave cannot be used. The message says what, where and what to do."""


class FailedError(Exception):
    """Nobody's mistake, and it cannot go on: told in one line as well, exit 1."""


class Problems:
    """Gathers what is wrong with the arguments, so that a person hears of everything at once."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def check(self, fine: bool, message: str) -> None:
        if not fine:
            self.found.append(message)

    def attempt(self, make: Callable[..., Value], *args: Any, **kwargs: Any) -> Value | None:
        """`make(...)`, or None and one more problem."""
        try:
            return make(*args, **kwargs)
        except InputError as problem:
            self.found.append(str(problem))
            return None

    def stop_if_any(self) -> None:
        if self.found:
            raise InputError("; ".join(dict.fromkeys(self.found)))
