"""Errors that a user can correct. They are shown as one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Value = TypeVar("Value")


class InputError(ValueError):
    """The input cannot be used. The message says what is wrong, where, and how to fix it.

    Examples
    --------
    >>> from labelsieve import InputError, theory
    >>> try:
    ...     theory.symmetric(10, 1.5)
    ... except InputError as problem:
    ...     print(problem)
    eps is 1.5: choose a number in [0, 1]
    """


class MissingColumnError(InputError):
    """A table does not have the columns that were named."""

    def __init__(self, message: str, columns: tuple[str, ...]) -> None:
        super().__init__(message)
        self.columns = columns


def first_line(problem: BaseException) -> str:
    """The first line of an error of a library, at most 300 characters; the name of its class if it says nothing."""
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:300]


def class_and_line(problem: BaseException) -> str:
    """The class of an error, and its first line if it says something."""
    return f"{type(problem).__name__}: {first_line(problem)}" if str(problem).strip() else type(problem).__name__


def hub_unreachable(name: str, content: str, use: str) -> InputError:
    """Return the error for a name that cannot be downloaded; `use` is the argument that reads a copied folder."""
    return InputError(
        f"{name} cannot be downloaded because Hugging Face cannot be reached; check the network connection, or copy "
        f"the folder of the {content} from another computer and use {use}"
    )


class FailedError(Exception):
    """The work cannot continue, and the input is not the reason. Shown as one line; exit code 1."""


class Problems:
    """Collects what is wrong with the options, so that the user sees all of it at once."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def check(self, fine: bool, message: str) -> None:
        """Add a problem unless `fine`."""
        if not fine:
            self.found.append(message)

    def attempt(self, make: Callable[..., Value], *args: Any, **kwargs: Any) -> Value | None:
        """Return `make(...)`; if it raises InputError, add the problem and return None."""
        try:
            return make(*args, **kwargs)
        except InputError as problem:
            self.found.append(str(problem))
            return None

    def stop_if_any(self) -> None:
        """Raise InputError with all problems."""
        if self.found:
            raise InputError("; ".join(dict.fromkeys(self.found)))
