"""The first line of an error of a library."""

import pytest

from labelsieve.errors import class_and_line, first_line


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (ValueError("one\ntwo"), "one"),
        (ValueError("\n one\ntwo"), "one"),
        (ValueError(), "ValueError"),
        (OSError("x" * 999), "x" * 300),
    ],
)
def test_the_first_line(problem: Exception, line: str) -> None:
    assert first_line(problem) == line


@pytest.mark.parametrize(("problem", "line"), [(KeyError("x"), "KeyError: 'x'"), (AssertionError(), "AssertionError")])
def test_the_class_is_named_once(problem: Exception, line: str) -> None:
    assert class_and_line(problem) == line
