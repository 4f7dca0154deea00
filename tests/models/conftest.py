"""Kernels run in Triton's interpreter where there is no GPU, beside torch in full single precision (TF32 is its default
on a GPU). Everything that can be switched on is on: what is off unless asked for is tested too."""

from __future__ import annotations

import os

import pytest
import torch

from labelsieve.models.kernels.switches import PARTS

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before the first import of triton


@pytest.fixture(autouse=True)
def whole_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.fixture(autouse=True)
def all_parts_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for part, value in PARTS.items():
        monkeypatch.setenv(f"LABELSIEVE_{part}", str(value))


@pytest.fixture
def no_parts_on(monkeypatch: pytest.MonkeyPatch, all_parts_on: None) -> None:
    for part in PARTS:
        monkeypatch.delenv(f"LABELSIEVE_{part}")
