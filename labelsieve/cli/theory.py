"""labelsieve theory: what the closed forms predict for a noise."""

from __future__ import annotations

from pathlib import Path

from labelsieve.cli.common import Common, percent, table
from labelsieve.errors import Problems


def theory(
    *,
    classes: int = 10,
    pattern: str = "symmetric",
    ratio: float = 0.4,
    matrix: Path | None = None,
    accuracy: float | None = None,
    common: Common = Common(),
) -> None:
    """Print the test accuracy, label precision and label recall that the theory predicts for a noise.

    Parameters
    ----------
    classes
        Number of classes.
    pattern
        Noise pattern: symmetric, symmetric-inclusive, pair or cifar10-map.
    ratio
        Share of labels that are redrawn, 0 to 1.
    matrix
        File with a transition matrix (.csv, .json, also a summary.json, or .npy) instead of --pattern and --ratio.
    accuracy
        Measured test accuracy on noisy labels; print the noise ratio that explains it (Eq. 4 and 5).
    """
    from labelsieve import noise
    from labelsieve import theory as closed_forms

    problems = Problems()
    problems.check(classes >= 2, f"--classes {classes}: give at least 2")
    found = None
    if accuracy is not None:
        problems.check(0 <= accuracy <= 1, f"--accuracy {accuracy}: give a number from 0 to 1")
        problems.check(pattern in ("symmetric", "pair"), f"--accuracy needs --pattern symmetric or pair, not {pattern}")
        problems.check(matrix is None, "--accuracy and --matrix exclude each other")
        problems.stop_if_any()
        found = closed_forms.ratio_from_accuracy(accuracy, classes, pattern)
        ratio = found.ratio
    problems.check(0 <= ratio <= 1, f"--ratio {ratio}: give a number from 0 to 1")
    if matrix is not None:
        transition = problems.attempt(noise.load_matrix, matrix)
    else:
        transition = problems.attempt(closed_forms.matrix, pattern, max(2, classes), min(1.0, max(0.0, ratio)))
    problems.stop_if_any()
    assert transition is not None
    summary = closed_forms.summary(transition)
    result = {"pattern": str(matrix) if matrix is not None else pattern, "ratio": None if matrix else ratio, **summary}
    if found is not None:
        result |= {"accuracy": accuracy, "in_reach": found.in_reach}
        clamped = "" if found.in_reach else " (clamped: no ratio explains it)"
        common.say(f"a noise ratio of {ratio:.4f} explains a test accuracy of {accuracy}{clamped}")
    name = f"matrix {matrix}" if matrix is not None else f"{pattern} noise, ratio {ratio:.4g}"
    common.say(
        f"{name}, {summary['classes']} classes: a network trained on one half and tested on the other",
        *table(
            [
                ["  wrong labels in the data", percent(summary["noise_ratio"])],
                ["  test accuracy on the given labels", percent(summary["test_accuracy"])],
                ["  label precision of the selected", percent(summary["label_precision"])],
                ["  label recall of the selected", percent(summary["label_recall"])],
                ["  wrong labels among the selected", percent(summary["selected_noise_ratio"])],
            ]
        ),
    )
    common.answer(result)
