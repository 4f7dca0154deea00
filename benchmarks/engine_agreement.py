"""Accuracy of networks that the engine trains: CIFAR-10, clean labels, ResNet-32, test accuracy after the last epoch.

    python3 benchmarks/engine_agreement.py DIR --out agreement.json                       30 epochs, fast and plain
    python3 benchmarks/engine_agreement.py DIR --recipe sgd --epochs 200 --out sgd.json   as in the ResNet paper
    python3 benchmarks/engine_agreement.py DIR --recipe adam --epochs 200 --out adam.json as in the noisy-label paper

DIR contains CIFAR-10. `fast` uses all features of the engine (on a GPU: kernels, bf16, captured steps), `plain` uses
none of them (eager, float32, cuDNN). Each runs in its own process with the same seeds. With `--checkpoint FOLDER` a run
that was stopped resumes after its last finished epoch. Test labels are only read after the training. Needs
torch and numpy, with `--checkpoint` safetensors too. `--small` trains a small network on made pictures, to try it out.

The ResNet paper's CIFAR-10 recipe: SGD 0.1, momentum 0.9, weight decay 1e-4 on everything, a tenth at half and three
quarters of the training, batches of 128, shifts by up to 4 pixels and flips. Here pixels beyond the edge repeat it
(there: zeros), channels are divided by their deviation too, and 200 epochs are trained (there 164, 64,000 steps).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

RECIPES = ("incv", "sgd", "adam")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("data", type=Path, nargs="?")
    options.add_argument("--recipe", choices=RECIPES, default="incv")
    options.add_argument("--epochs", type=int, default=30)
    options.add_argument("--seeds", type=int, default=4, help="number of networks, one per seed")
    options.add_argument("--first-seed", type=int, default=0)
    options.add_argument("--path", choices=["fast", "plain", "both"], help="default: both for incv, else fast")
    options.add_argument("--checkpoint", type=Path)
    options.add_argument("--out", type=Path)
    options.add_argument("--small", action="store_true", help="made pictures, a small network")
    chosen = options.parse_args()
    if not chosen.small and chosen.data is None:
        options.error("name the folder with CIFAR-10, or --small")
    path = chosen.path or ("both" if chosen.recipe == "incv" else "fast")
    if path == "both":
        result: dict[str, Any] = {name: in_its_own_process(name) for name in ("fast", "plain")}
        result["comparison"] = comparison(result["fast"]["accuracy"], result["plain"]["accuracy"])
    else:
        result = trained(chosen, path)
    text = json.dumps(result)
    print(text, flush=True)
    if chosen.out is not None:
        chosen.out.write_text(text + "\n")


def in_its_own_process(path: str) -> dict[str, Any]:
    """The kernels are switched for a whole process."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--path", path, "--out", str(out)], check=True)
        found: dict[str, Any] = json.loads(out.read_text())
        return found


def comparison(fast: list[float], plain: list[float]) -> dict[str, float]:
    """Difference of the means beside the spread (standard deviation) from seed to seed."""
    import numpy as np

    spread = [float(np.std(values, ddof=1)) if len(values) > 1 else float("nan") for values in (fast, plain)]
    return {
        "mean_fast": float(np.mean(fast)), "mean_plain": float(np.mean(plain)),
        "difference": float(np.mean(fast) - np.mean(plain)), "spread_fast": spread[0], "spread_plain": spread[1],
    }  # fmt: skip


def recipe(name: str, epochs: int) -> Any:
    """The schedule of a recipe. `sgd` is that of He et al. 2016."""
    from labelsieve.engine import Schedule

    if name != "sgd":
        return Schedule.incv_50(epochs) if name == "incv" else Schedule.paper_200(epochs)
    half, three = epochs // 2, epochs * 3 // 4
    steps = ((0, 0.1), (half, 0.01), (three, 0.001)) if 0 < half < three else ((0, 0.1),)
    return Schedule(epochs, steps, optimizer="sgd", weight_decay=1e-4, decay_everything=True)


def trained(chosen: argparse.Namespace, path: str) -> dict[str, Any]:
    """Train the seeds' networks together; test accuracy by seed, and how fast."""
    plain = path == "plain"
    if plain:
        os.environ["LABELSIEVE_KERNELS"] = "0"
    import numpy as np
    import torch

    from labelsieve.data.cifar import arrays
    from labelsieve.engine import PictureStore, Plan, train
    from labelsieve.methods.standard import Standard
    from labelsieve.models import kernels
    from labelsieve.models.resnet_cifar import ResNetCifar

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x, y, x_test, y_test = made() if chosen.small else arrays(chosen.data)
    dtype = torch.float32 if plain or device.type == "cpu" else torch.bfloat16
    store = PictureStore(x, device, dtype=dtype)
    test = PictureStore(x_test, device, shift=0, flip=False, mean=store.mean, std=store.std, dtype=dtype)
    schedule = recipe(chosen.recipe, chosen.epochs)
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    plans = [Plan(f"seed {seed}", y.astype(np.int64), np.arange(len(y)), seed=seed) for seed in seeds]
    results = train(
        store, partial(ResNetCifar, depth=8 if chosen.small else 32), Standard(), plans, schedule=schedule,
        watch=test, watch_every=chosen.epochs, capture=not plain, progress=tell,
        checkpoint=chosen.checkpoint and chosen.checkpoint / f"{chosen.recipe}-{path}", checkpoint_seconds=20,
    )  # fmt: skip
    accuracy = [float((result.watched[-1, 0] == y_test).mean()) for result in results]
    seconds = sum(line["seconds"] for line in results[0].history)  # also of what ran before a stop
    return {
        "recipe": chosen.recipe, "path": path, "schedule": schedule.settings(), "seeds": list(seeds),
        "accuracy": accuracy, "mean": float(np.mean(accuracy)), "seconds": round(seconds, 1),
        "last_loss": [result.history[-1]["loss"][0] for result in results],
        "images_per_second": round(chosen.epochs * len(y) * chosen.seeds / seconds),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu", "torch": torch.__version__,
        "kernels": kernels.available(), "fused": kernels.fused(),
        "small": chosen.small, "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


def tell(state: dict[str, Any]) -> None:
    if state["epoch"] % 10 == 0:
        print(f"epoch {state['epoch']} of {state['epochs']}: {state['images_per_second']:,.0f} img/s", file=sys.stderr)


def made() -> tuple[Any, Any, Any, Any]:
    """Pictures whose class is their shade."""
    import numpy as np

    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 640)
    shade = (labels * 25)[:, None, None, None]
    pictures = np.clip(shade + rng.normal(0, 8, (640, 8, 8, 3)), 0, 255).astype(np.uint8)
    return pictures[:512], labels[:512], pictures[512:], labels[512:]


if __name__ == "__main__":
    main()
