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
    """Fails if the block takes more processor time; the time on a clock depends on the load of the machine."""
    from contextlib import contextmanager
    from time import process_time

    @contextmanager
    def limit(seconds):
        start = process_time()
        yield
        took = process_time() - start
        assert took < seconds, f"took {took:.2f} s, at most {seconds} s are allowed"

    return limit
