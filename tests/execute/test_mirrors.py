"""Networks that select see no mirrored pictures where left and right tell classes apart."""

from __future__ import annotations

import numpy as np
import pytest

from labelsieve import INCV
from labelsieve.execute.network_trainer import FastTrainer


def halves(n: int, *, side: bool) -> tuple[np.ndarray, np.ndarray]:
    """Noise with a bright half: left or right, or else above or below."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 60, (n, 16, 16, 3)).astype(np.uint8), rng.integers(0, 2, n)
    for picture, label in zip(x, y.tolist(), strict=True):
        bright = slice(0, 8) if label else slice(8, 16)
        picture[(slice(None), bright) if side else bright] += 150
    return x, y


@pytest.mark.parametrize(("protocol", "learnt"), [("auto", True), ("paper", False)])
def test_left_and_right_are_learnt_but_by_the_papers_protocol(protocol: str, learnt: bool) -> None:
    found = INCV("small-cnn", random_state=0, epochs=8, n_iterations=1, protocol=protocol)
    assert (found.fit(*halves(160, side=True)).selected_.mean() > 0.95) == learnt


@pytest.mark.parametrize("side", [True, False])
def test_the_fast_network_looks_at_no_mirror_image_either(side: bool) -> None:
    x, y = halves(200, side=side)
    trainer = FastTrainer(x, classes=2, epochs=1, widths=(24, 24), device="cpu")
    assert trainer.store.mirrors and trainer.factory().mirror
    codes = trainer.store.codes
    assert trainer.disable_harmful_mirroring(x, y) == side
    assert trainer.store.mirrors == trainer.factory().mirror == (not side)
    assert trainer.store.codes == (codes // 2 if side else codes)
