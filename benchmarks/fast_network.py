"""The fast network's training (models/fast_cnn.py) on noise: pictures per second of 1, 2 and 4 networks; kernels.

    python benchmarks/fast_network.py [--networks 1 2 4] [--seconds 2] [--batch 512] [--widths 64 256 256] [--top 20]

Under 40 s on one GPU. On a CPU give narrow widths and a small batch; there is no profile of kernels there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from labelsieve.engine import Plan
from labelsieve.engine.device import choose_device, fastest_convolutions
from labelsieve.engine.lockstep import Lockstep, Options
from labelsieve.engine.schedule import fast_schedule
from labelsieve.engine.store import PictureStore, fast_store
from labelsieve.execute.build_trainer import method_of
from labelsieve.execute.network_trainer import LABEL_SMOOTHING
from labelsieve.models.fast_cnn import PATCH, WIDTHS, fast_cnn_factory

sys.path.insert(0, str(Path(__file__).resolve().parent))
from step_profile import profile, rate


def multiply_adds(side: int = 32, channels: int = 3, widths: Sequence[int] = WIDTHS) -> int:
    """Multiply-adds of a forward pass of one picture; training takes about six times as many operations."""
    before = 2 * channels * PATCH * PATCH
    total = side * side * channels * PATCH * PATCH * before
    for width in widths:
        total += side * side * 9 * before * width
        side //= 2
        total += side * side * 9 * width * width
        before = width
    return total


def noise_store(device: torch.device, samples: int) -> PictureStore:
    pictures = np.random.default_rng(0).integers(0, 256, (samples, 32, 32, 3), dtype=np.uint8)
    return fast_store(pictures, device)


def lockstep(store: PictureStore, networks: int, batch: int, widths: Sequence[int]) -> Lockstep:
    """Networks whose first epoch is laid out."""
    method, labels = method_of("ce", label_smoothing=LABEL_SMOOTHING), np.arange(len(store)) % 10
    work = [(method, Plan(f"network {i}", labels, np.arange(len(store)), seed=i)) for i in range(networks)]
    factory = fast_cnn_factory(store, 10, widths=tuple(widths))
    made = Lockstep(store, factory, work, fast_schedule(16, batch), Options(batch_size=batch))
    for row in range(networks):
        made._begin_epoch(row)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--widths", type=int, nargs="+", default=list(WIDTHS))
    parser.add_argument("--samples", type=int, default=25_000)
    parser.add_argument("--top", type=int, default=20, help="kernels to name")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    device = choose_device(options.device)
    store = noise_store(device, options.samples)
    operations = 6 * multiply_adds(widths=options.widths)
    print(f"{torch.cuda.get_device_name(device) if device.type == 'cuda' else 'CPU'}, torch {torch.__version__}")
    with fastest_convolutions(device):
        for networks in options.networks:
            made = lockstep(store, networks, options.batch, options.widths)
            found = rate(made, networks, options.batch, options.seconds)
            print(f"{networks} networks: {found:,.0f} img/s, {found * operations / 1e12:.0f} TFLOP/s", flush=True)
        if device.type == "cuda":
            made = lockstep(store, 1, options.batch, options.widths)
            made.stepper.run(3, options.batch)
            print("", *profile(made, options.batch, options.top), sep="\n")


if __name__ == "__main__":
    main()
