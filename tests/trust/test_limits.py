"""Other users, read-only folders, clocks, kills during an export, full disks and very large inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trust_large as large
import trust_limits as limits


@pytest.fixture(scope="module")
def here() -> Iterator[Path]:
    with limits.finished_run() as folder:
        yield folder


def marked(case: Callable[[Path], str]) -> object:
    marks = [pytest.mark.slow] if case in limits.SLOW else []
    if case in limits.NEEDS_ROOT:
        marks.append(pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user"))
    return pytest.param(case, marks=marks, id=case.__name__)


@pytest.mark.parametrize("case", [marked(case) for case in limits.CASES.values()])
def test_nothing_is_harmed(case: Callable[[Path], str], here: Path) -> None:
    assert case(here)


@pytest.mark.slow
@pytest.mark.parametrize("name", large.CASES)
def test_very_large_inputs(name: str) -> None:
    """They are read, or refused with one line; report and export of the result work."""
    assert large.measure(name).code == (2 if "1,000,000" in name else 0)
