"""Kernels run in Triton's interpreter where there is no GPU, beside torch in full single precision (TF32 is its default
on a GPU). What can be switched off is on, as shipped, whatever the environment says."""

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
def as_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in PARTS:
        monkeypatch.delenv(f"LABELSIEVE_{part}", raising=False)


@pytest.fixture(params=["as shipped", "all parts off"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, as_shipped: None) -> None:
    """Both ways."""
    for part in PARTS if request.param == "all parts off" else ():
        monkeypatch.setenv(f"LABELSIEVE_{part}", "0")
