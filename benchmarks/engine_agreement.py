"""Fast and plain paths learn the same: run on a GPU with CIFAR-10 in binary form.

    python3 benchmarks/engine_agreement.py DIR [--epochs 30]

Trains the same networks (clean labels, ResNet-32, the same seeds) with kernels, bf16 and captured steps, and again with
all of them off (eager, float32, cuDNN), and prints both test accuracies by seed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("data", type=Path)
    options.add_argument("--epochs", type=int, default=30)
    options.add_argument("--seeds", type=int, default=4)
    options.add_argument("--plain", action="store_true", help="the plain path (a process of its own)")
    chosen = options.parse_args()
    if chosen.plain:
        os.environ["LABELSIEVE_KERNELS"] = "0"
    import numpy as np
    import torch

    from labelsieve.data.cifar import arrays
    from labelsieve.engine import PictureStore, Plan, Schedule, train
    from labelsieve.methods.standard import Standard
    from labelsieve.models.resnet_cifar import ResNetCifar

    x, y, x_test, y_test = arrays(chosen.data)
    dtype = torch.float32 if chosen.plain else torch.bfloat16
    device = torch.device("cuda")
    store = PictureStore(x, device, dtype=dtype)
    test = PictureStore(x_test, device, shift=0, flip=False, mean=store.mean, std=store.std, dtype=dtype)
    plans = [Plan(f"seed {seed}", y.astype(np.int64), np.arange(len(y)), seed=seed) for seed in range(chosen.seeds)]
    began = time.monotonic()
    results = train(
        store, partial(ResNetCifar, depth=32), Standard(), plans, schedule=Schedule.incv_50(chosen.epochs),
        watch=test, watch_every=chosen.epochs, capture=not chosen.plain,
    )  # fmt: skip
    found = [float((result.watched[-1, 0] == y_test).mean()) for result in results]
    print(json.dumps({"path": "plain" if chosen.plain else "fast", "epochs": chosen.epochs, "accuracy": found,
                      "seconds": round(time.monotonic() - began, 1)}))  # fmt: skip


if __name__ == "__main__":
    main()
