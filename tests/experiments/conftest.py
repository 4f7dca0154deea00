"""Fixtures of the experiments' tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def page_script() -> Any:
    path = Path(__file__).parents[2] / "scripts" / "reproduction_page.py"
    spec = importlib.util.spec_from_file_location("reproduction_page", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
