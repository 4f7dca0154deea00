from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("report_runs", Path(__file__).with_name("runs.py"))
assert _spec is not None and _spec.loader is not None
_runs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_runs)


@pytest.fixture(scope="session")
def runs():
    """The builders of tests/report/runs.py."""
    return _runs


@pytest.fixture(scope="session")
def million_run(tmp_path_factory):
    return _runs.million(tmp_path_factory.mktemp("million"))


@pytest.fixture
def time_limit():
    """Fails when the block takes longer; the machine may be shared, so limits are generous where they can be."""
    from contextlib import contextmanager
    from time import perf_counter

    @contextmanager
    def limit(seconds):
        start = perf_counter()
        yield
        took = perf_counter() - start
        assert took < seconds, f"took {took:.2f} s, at most {seconds} s are allowed"

    return limit
