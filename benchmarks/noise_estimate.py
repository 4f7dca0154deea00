"""What the noise is, and which labels are wrong, on CIFAR-10 beside Eq. 4, cleanlab's confident joint and HOC.

    python3 benchmarks/noise_estimate.py --data DIR                     ResNet-32: about 6 minutes on an H200
    python3 benchmarks/noise_estimate.py --data DIR --model fast        the fast selector: about 2 minutes
    python3 benchmarks/noise_estimate.py --small                        synthetic pictures, a CPU, half a minute
    python3 benchmarks/noise_estimate.py --draw                         the page again, from the JSON

Writes noise-estimate.json and noise-estimate.md to --out. Needs torch and numpy, and where git cannot tell the commit
LABELSIEVE_COMMIT. A run that was stopped keeps the trainings of a finished phase (f, then g) in --work and goes on from
there.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from labelsieve.experiments.bench import open_bench, synthetic
from labelsieve.experiments.noise_estimate import SETTINGS, measure, page, trainer_for
from labelsieve.experiments.records import commit, device_name, versions

HERE = Path(__file__).parent


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with CIFAR-10")
    parser.add_argument("--model", default="resnet32", help="resnet32 or fast")
    parser.add_argument("--epochs", type=int, help="default: 50, fast: 10")
    parser.add_argument("--batch-size", type=int, help="default: 128, fast: 512")
    parser.add_argument("--checkpoint", help="which epoch selects: auto (the best), last; default: auto, fast: last")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, default=Path("runs/noise-estimate"), help="kept answers")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the JSON and the page")
    parser.add_argument("--small", action="store_true", help="synthetic pictures on a CPU")
    parser.add_argument("--draw", action="store_true", help="the page alone, from the JSON in --out")
    args = parser.parse_args(arguments)
    name = "noise-estimate" if args.model == "resnet32" else f"noise-estimate-{args.model}"
    stored = args.out / f"{name}.json"
    if not args.draw:
        args.out.mkdir(parents=True, exist_ok=True)
        stored.write_text(json.dumps(measured(args), indent=1) + "\n")
    text = drawn(json.loads(stored.read_text()))
    stored.with_suffix(".md").write_text(text)
    print(text)


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """What the page is drawn from."""
    if args.small:
        bench = synthetic(classes=10, samples=600, test_samples=10, mistakes=0)
        model = "fast" if args.model == "fast" else "small"
        trainer = trainer_for(
            model, bench, args.work, device="cpu", epochs=args.epochs or 4, batch_size=32, widths=(24, 32)
        )
    else:
        bench = open_bench("cifar10", args.data)
        trainer = trainer_for(
            args.model, bench, args.work, device=args.device, epochs=args.epochs, batch_size=args.batch_size
        )
    settings = (SETTINGS[0], SETTINGS[1], SETTINGS[-1]) if args.small else SETTINGS
    checkpoint = args.checkpoint or ("last" if args.model == "fast" else "auto")
    return measure(bench, trainer, settings=settings, seed=args.seed, checkpoint=checkpoint) | {
        "data": bench.name,
        "model": args.model,
        "seed": args.seed,
        "checkpoint": checkpoint,
        "schedule": trainer.schedule.settings(),
        "batch_size": trainer.batch_size,
        "method": {"name": trainer.method.name, **trainer.method.settings()},
        "device": device_name(str(trainer.store.device)),
        "versions": versions(),
        "commit": commit(),
    }


def drawn(result: dict[str, Any]) -> str:
    """The page."""
    what = (
        f"{result['data']}, {result['model']}, {result['schedule']['epochs']} epochs, {result['device']}, commit"
        f" {result['commit'][:7]}: {result['training_seconds']:.0f} s of training for {len(result['rows'])} settings"
    )
    command = f"`python3 benchmarks/noise_estimate.py --data DIR --model {result['model']}`"
    return page(result, command=command, what=what)


if __name__ == "__main__":
    main()
