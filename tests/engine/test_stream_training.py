"""The engine's loop does not know whether its pictures are on the device or stream in."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch

from labelsieve.data.make_webvision import make
from labelsieve.data.webvision import training
from labelsieve.engine import Plan, Schedule, train
from labelsieve.engine.picture_stores import CropStream
from labelsieve.engine.store import DevicePictures
from labelsieve.methods.standard import Standard
from labelsieve.models.small import SmallCNN


class Noticing(CropStream):
    """Counts the batches that were not announced."""

    unannounced = 0

    def _read_now(self, keys):  # type: ignore[no-untyped-def]
        self.unannounced += 1
        return super()._read_now(keys)


def test_the_loop_announces_its_batches_so_that_they_are_read_ahead(tmp_path: Path) -> None:
    make(tmp_path / "made", classes=3, train=12, validation=1, wrong=0.0, side=24, seed=2)
    data = training(tmp_path / "made", side=20)
    store = Noticing(data.x, crop=16, workers=0)
    plans = [Plan(f"seed {seed}", data.y, np.arange(seed, len(data)), seed=seed) for seed in range(2)]
    factory, schedule = partial(SmallCNN, 3, widths=(8, 16)), Schedule(2, ((0, 1e-2),))
    train(store, factory, Standard(), plans, schedule=schedule, batch_size=8)
    assert store.unannounced == 0


def test_a_training_from_the_stream_is_the_one_from_the_device(tmp_path: Path) -> None:
    make(tmp_path / "made", classes=3, train=12, validation=1, wrong=0.0, side=24, seed=2)
    data = training(tmp_path / "made", side=20)
    everything = np.arange(len(data))
    results = []
    for store in (DevicePictures(data.x, crop=16, workers=0), CropStream(data.x, crop=16, workers=0)):
        plans = [Plan("half", data.y, everything[::2], seed=3, score=everything[1::2])]
        factory = partial(SmallCNN, 3, widths=(8, 16))
        schedule = Schedule(2, ((0, 1e-2),))
        results += train(store, factory, Standard(), plans, schedule=schedule, batch_size=8)
    held, streamed = results
    assert held.history and held.scores is not None and streamed.scores is not None
    for name, weights in held.states[0].items():
        torch.testing.assert_close(weights, streamed.states[0][name], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(held.scores.predicted, streamed.scores.predicted)
