"""labelsieve corrupt: write labels with planted errors, together with the true ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from labelsieve.cli.common import Common, Flag, Flat, check_target, percent
from labelsieve.csv_files import write_csv
from labelsieve.errors import Problems
from labelsieve.workflow.settings import SourceSettings, check_known, check_seed


def corrupt(
    source: str,
    /,
    *,
    out: Path,
    pattern: str = "symmetric",
    ratio: float = 0.4,
    matrix: Path | None = None,
    force: Flag = False,
    settings: Annotated[SourceSettings, Flat] = SourceSettings(),
    common: Common = Common(),
) -> None:
    """Write a CSV file with id, label (some of them wrong) and true.

    Parameters
    ----------
    source
        A folder of class folders, a .csv, .parquet or .npz file, cifar10:DIR, hf:NAME_OR_DIR, digits.
    out
        File to write; give it to `select` or `run` as --labels.
    pattern
        Noise pattern: symmetric, symmetric-inclusive, pair, cifar10-map or instance (depends on the sample).
    ratio
        Share of labels that are redrawn, 0 to 1.
    matrix
        File with a transition matrix (.csv, .json or .npy) instead of --pattern and --ratio.
    force
        Overwrite the file if it exists.
    """
    from labelsieve import metrics
    from labelsieve.theory import PATTERNS
    from labelsieve.workflow.edit_labels import INSTANCE, corrupt_labels, label_rows, read_matrix
    from labelsieve.workflow.read import read_samples

    problems = Problems()
    check_seed(problems, common.seed)
    problems.check(0 <= ratio <= 1, f"--ratio {ratio}: give a number from 0 to 1")
    check_known(problems, "pattern", pattern, (*PATTERNS, INSTANCE))
    check_target(problems, "--out", out, source=source, force=force, example="labels.csv")
    transition = problems.attempt(read_matrix, matrix)
    data = problems.attempt(read_samples, source, settings, progress=common.progress())
    problems.stop_if_any()
    assert data is not None
    noisy = corrupt_labels(data, pattern, ratio, common.seed, transition=transition)
    rows = label_rows(data, noisy)
    write_csv(out, next(rows), rows)
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
