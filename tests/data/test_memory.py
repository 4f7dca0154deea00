from __future__ import annotations

import pytest
import torch

from labelsieve.data import memory
from labelsieve.data.device_pictures import free_memory


def test_a_processor_has_what_can_be_had_without_pushing_anything_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that are merely free are far fewer: what the system caches of files can be had as well."""
    monkeypatch.setattr(memory, "available", lambda: 12345)
    assert free_memory(torch.device("cpu")) == 12345
