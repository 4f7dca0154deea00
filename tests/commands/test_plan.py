"""`labelsieve plan`."""

from __future__ import annotations

import json

import pytest

from labelsieve.commands.common import Common
from labelsieve.commands.plan import plan
from labelsieve.errors import InputError


def test_for_people_and_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    plan("digits", seconds=0.2, gpus=2, device="cpu")
    words = capsys.readouterr().out
    assert "1,797 samples, 2 such devices, at most:" in words
    for part in ("selection, training", "robust training", "memory, device", "disk, checkpoints", "Takes longest"):
        assert part in words
    assert "at least" in next(line for line in words.splitlines() if line.startswith("memory, device"))
    plan("digits", seconds=0.2, samples=1_000_000_000, device="cpu", common=Common(json=True))
    found = json.loads(capsys.readouterr().out)
    assert found["wanted"]["samples"] == 1_000_000_000
    assert found["total_seconds"] > 86_400


def test_all_mistakes_at_once() -> None:
    with pytest.raises(InputError) as caught:
        plan("nowhere", gpus=0, model="resnet7", seconds=0)
    for part in ("--gpus 0", "--model 'resnet7'", "--seconds 0", "nowhere is not there"):
        assert part in str(caught.value)
