from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quick_dry_runs(short_measurement: None) -> None:
    """Dry runs measure for a shorter time."""
