"""labelsieve corrupt: wrong labels made on purpose, with the true ones beside them."""

from __future__ import annotations

import csv
from pathlib import Path

from labelsieve.cli.common import Common, Flag, check_seed, check_target, percent
from labelsieve.errors import Problems
from labelsieve.workflow.read import SourceOptions


def corrupt(
    source: str,
    /,
    *,
    out: Path,
    pattern: str = "symmetric",
    ratio: float = 0.4,
    matrix: Path | None = None,
    force: Flag = False,
    reading: SourceOptions = SourceOptions(),
    common: Common = Common(),
) -> None:
    """Write labels.csv with id, label (some of them wrong) and true.

    Parameters
    ----------
    source
        A folder of class folders, a .csv, .parquet or .npz file, cifar10:DIR, hf:NAME_OR_DIR, digits.
    out
        The file to write; give it to `select` or `run` as --labels.
    pattern
        symmetric, symmetric-inclusive, pair, cifar10-map or instance (depends on the sample).
    ratio
        Share of labels that are redrawn, 0 to 1.
    matrix
        A transition matrix instead: .csv, .json or .npy, rows in the order of the classes.
    force
        Write over the file that is there already.
    """
    import numpy as np

    from labelsieve import metrics, noise
    from labelsieve.errors import InputError
    from labelsieve.files import atomic_writer
    from labelsieve.theory import PATTERNS

    problems = Problems()
    check_seed(problems, common)
    problems.check(0 <= ratio <= 1, f"--ratio {ratio} is outside 0..1")
    known = (*PATTERNS, "instance")
    problems.check(pattern in known, f"--pattern {pattern!r} is not known: choose one of {', '.join(known)}")
    check_target(problems, "--out", out, source=source, force=force, usual="labels.csv")
    transition = problems.attempt(noise.load_matrix, matrix) if matrix is not None else None
    asks = pattern == "instance" and matrix is None  # nothing else looks at the samples
    data = problems.attempt(reading.read, source, refuse_mixed=asks, progress=common.progress())
    problems.stop_if_any()
    assert data is not None
    rng = np.random.default_rng(common.seed)
    codes = np.arange(len(data.classes))
    if pattern == "instance" and transition is None:
        if data.kind == "text":
            raise InputError("--pattern instance needs pictures or numbers: texts have no features of their own")
        noisy = noise.corrupt_by_instance(data.y, np.asarray(data.x), ratio, rng, classes=codes)
    else:
        if transition is None:
            transition = noise.matrix(pattern, len(data.classes), ratio)
        elif len(transition) != len(data.classes):
            raise InputError(f"{matrix} is for {len(transition)} classes, {data.name} has {len(data.classes)}")
        noisy = noise.corrupt(data.y, transition, rng, classes=codes)
    with atomic_writer(out) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("id", "label", "true"))
        names = [str(name) for name in data.classes]
        writer.writerows(
            (id, names[given], names[true]) for id, given, true in zip(data.ids.tolist(), noisy, data.y, strict=True)
        )
    wrong = metrics.noise_ratio(noisy, data.y)
    common.say(f"{out}: {len(data):,} labels, {percent(wrong)} of them wrong")
    common.answer(
        {
            "out": out,
            "samples": len(data),
            "classes": list(data.classes),
            "pattern": pattern if matrix is None else None,
            "matrix": matrix,
            "ratio": ratio if matrix is None else None,
            "seed": common.seed,
            "wrong": wrong,
        }
    )
