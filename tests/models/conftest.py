"""Kernels run in Triton's interpreter if there is no GPU, and are compared with torch in full single precision (a GPU
would use TF32)."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before the first import of triton


@pytest.fixture(autouse=True)
def whole_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
