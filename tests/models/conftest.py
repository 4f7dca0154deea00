"""Everything that can be switched on is on: what is off unless asked for is tested too."""

from __future__ import annotations

import pytest

from labelsieve.models.kernels.switches import PARTS


@pytest.fixture(autouse=True)
def all_parts_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for part, value in PARTS.items():
        monkeypatch.setenv(f"LABELSIEVE_{part}", str(value))


@pytest.fixture
def no_parts_on(monkeypatch: pytest.MonkeyPatch, all_parts_on: None) -> None:
    for part in PARTS:
        monkeypatch.delenv(f"LABELSIEVE_{part}")
