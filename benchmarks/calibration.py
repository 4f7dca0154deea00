"""Calibration of the probability that a label is wrong, compared with the score that it is computed from.

    .venv/bin/python benchmarks/calibration.py     4 minutes of one core; writes calibration.md and .svg

INCV with default settings and three classifiers on five small data sets. The computation was chosen on the
same data sets with symmetric noise of 0, 0.1, 0.2, 0.4, 0.6 and pair noise of 0.2, 0.4, one other draw, logistic
regression and extra trees with leaves of 2.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from detection import DATASETS, markdown, mean
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from labelsieve import metrics, noise, theory
from labelsieve.execute.sklearn_trainer import SklearnTrainer
from labelsieve.experiments.evaluate import calibration_error
from labelsieve.experiments.render import COLOURS
from labelsieve.selection.incv import drive, incv_steps
from labelsieve.types import FloatArray

HERE = Path(__file__).parent
SETTINGS = (
    ("symmetric", 0.0), ("symmetric", 0.15), ("symmetric", 0.3), ("symmetric", 0.5), ("pair", 0.1), ("pair", 0.3),
)  # fmt: skip
MODELS: dict[str, Callable[[int], Any]] = {
    "SVM": lambda seed: make_pipeline(StandardScaler(), SVC()),
    "extra trees, leaves of 3": lambda seed: ExtraTreesClassifier(60, min_samples_leaf=3, random_state=seed),
    "neural network": lambda seed: make_pipeline(
        StandardScaler(), MLPClassifier((64,), max_iter=60, random_state=seed, early_stopping=False)
    ),
}
BINS = 10


class Row(NamedTuple):
    dataset: str
    model: str
    pattern: str
    ratio: float
    estimate: float
    wrong: Any
    raw: FloatArray
    probability: FloatArray
    suggestion: FloatArray  # of the suspects
    suggestion_right: Any


def runs(seeds: range) -> Iterator[Row]:
    for dataset, load in DATASETS.items():
        x, true = load()
        true = true.astype(np.int64)
        c = int(true.max()) + 1
        for pattern, ratio in SETTINGS:
            if ratio >= 0.5 and c == 2:
                continue  # labels alone cannot tell
            for seed in seeds:
                T = theory.matrix(pattern, c, ratio)
                given = np.asarray(noise.corrupt(true, T, rng=7000 + 100 * seed + round(100 * ratio)))
                for model, make in MODELS.items():
                    yield one(dataset, model, pattern, ratio, x, true, given, c, make(seed), seed)


def one(
    dataset: str, model: str, pattern: str, ratio: float,
    x: Any, true: Any, given: Any, c: int, estimator: Any, seed: int,
) -> Row:  # fmt: skip
    selection = drive(incv_steps(given, c, seed=seed), SklearnTrainer(x, estimator, classes=c))
    doubted = selection.is_suspect(given)
    return Row(
        dataset, model, pattern, ratio, selection.noise_ratio, given != true, 1 - selection.probability,
        selection.suspicion, selection.suggested_probability[doubted], (selection.predicted == true)[doubted],
    )  # fmt: skip


PAGE = """\
# Calibration of suspicion

`.venv/bin/python benchmarks/calibration.py` writes this page in {minutes:.0f} minutes on one core.

INCV with default settings on {number} combinations of data set, noise, classifier and seed. *Plain*: 1 minus
the mean predicted probability of the given label. *Suspicion*: the probability in `labels.csv`, which the noise model
computes from the same predictions without true labels. *ECE*: expected calibration error
with 15 bins. *Clean flagged*: proportion of labels with a value above 0.5 in data without wrong labels. F1 also refers
to values above 0.5. The noise model was chosen on the same data sets with other ratios and classifiers (real-noise.md),
so this page is not an independent test.

{overview}

![Suspicion and measured proportion of wrong labels, by data set](calibration.svg)

The mean absolute error of the estimated noise ratio is {ratio_error:.3f}. The mean suspicion is about the estimated
ratio, so its calibration error cannot be much smaller. If the error of the ratio is at most 0.03 ({good} of {number}
combinations), the ECE is {good_ece:.3f} (plain: {good_raw:.3f}) and F1 is {good_f1:.3f} (plain: {good_raw_f1:.3f}). The
AUROC of suspicion is at most 0.002 below that of the plain score in {rank} of {ranked} combinations; the mean
difference is {gain:+.4f}.

Over all {suspects} suspects, the probability of the suggested label has an ECE of {suggested:.3f}. Its mean is
{suggested_mean:.3f}, and the suggested label is right for a proportion of {suggested_right:.3f}.

## Reliability, all combinations together

{reliability}
"""


def page(rows: list[Row], minutes: float) -> str:
    parts: list[tuple[str, Callable[[Row], bool]]] = [
        ("all", lambda r: True),
        *((f"{p} {q:g}", lambda r, p=p, q=q: (r.pattern, r.ratio) == (p, q)) for p, q in SETTINGS),
        *((d, lambda r, d=d: r.dataset == d) for d in DATASETS),
        *((m, lambda r, m=m: r.model == m) for m in MODELS),
    ]
    table = []
    for name, keep in parts:
        own = [r for r in rows if keep(r)]
        noisy = [r for r in own if r.wrong.any()]
        cells = [name, str(len(own))]
        for scores in (lambda r: r.raw, lambda r: r.probability):
            cells += [
                f"{mean(calibration_error(r.wrong, scores(r)) for r in own):.3f}",
                f"{mean(metrics.auroc(r.wrong, scores(r)) for r in noisy):.4f}",
                f"{mean(metrics.detection(r.wrong, scores(r) > 0.5).f1 for r in noisy):.3f}",
                f"{mean(float((scores(r) > 0.5).mean()) for r in own if not r.wrong.any()):.3f}",
            ]
        table.append(cells)
    head = [
        "",
        "runs",
        *(f"{m}, {s}" for s in ("plain", "suspicion") for m in ("ECE", "AUROC", "F1", "clean flagged")),
    ]
    error = [abs(r.estimate - float(r.wrong.mean())) for r in rows]
    good = [r for r, e in zip(rows, error, strict=True) if e <= 0.03]
    noisy = [r for r in rows if r.wrong.any()]
    gains = [metrics.auroc(r.wrong, r.probability) - metrics.auroc(r.wrong, r.raw) for r in noisy]
    good_noisy = [r for r in good if r.wrong.any()]
    likely, right = (np.concatenate([getattr(r, name) for r in rows]) for name in ("suggestion", "suggestion_right"))
    return PAGE.format(
        minutes=minutes,
        number=len(rows),
        overview=markdown(head, table),
        ratio_error=mean(error),
        good=len(good),
        good_ece=mean(calibration_error(r.wrong, r.probability) for r in good),
        good_raw=mean(calibration_error(r.wrong, r.raw) for r in good),
        good_f1=mean(metrics.detection(r.wrong, r.probability > 0.5).f1 for r in good_noisy),
        good_raw_f1=mean(metrics.detection(r.wrong, r.raw > 0.5).f1 for r in good_noisy),
        rank=sum(g >= -0.002 for g in gains),
        ranked=len(gains),
        gain=mean(gains),
        suspects=len(likely),
        suggested=calibration_error(right, likely),
        suggested_mean=likely.mean(),
        suggested_right=right.mean(),
        reliability=reliability(rows),
    )


def reliability(rows: list[Row]) -> str:
    """Stated and measured shares of wrong labels by tenth."""
    wrong = np.concatenate([r.wrong for r in rows])
    lines = []
    scores = [np.concatenate([getattr(r, name) for r in rows]) for name in ("raw", "probability")]
    for b in range(BINS):
        cells = [f"{b / BINS:.1f} to {(b + 1) / BINS:.1f}"]
        for score in scores:
            inside = np.minimum((score * BINS).astype(np.int64), BINS - 1) == b
            empty = not inside.any()
            cells += [str(int(inside.sum())), "" if empty else f"{score[inside].mean():.3f}"]
            cells += ["" if empty else f"{wrong[inside].mean():.3f}"]
        lines.append(cells)
    head = ["value", *(f"{s}: {w}" for s in ("plain", "suspicion") for w in ("samples", "stated", "wrong"))]
    return markdown(head, lines)


def points(score: FloatArray, wrong: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(stated, measured, samples) of the tenths that hold at least twenty."""
    which = np.minimum((score * BINS).astype(np.int64), BINS - 1)
    size = np.bincount(which, minlength=BINS).astype(np.float64)
    full = size >= 20
    stated, measured = (np.bincount(which, weights=w, minlength=BINS)[full] / size[full] for w in (score, wrong))
    return stated, measured, size[full]


def picture(rows: list[Row], path: Path) -> None:
    """Draw reliability diagrams: a calibrated suspicion is on the diagonal."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: Any = {"svg.hashsalt": "labelsieve", "svg.fonttype": "none", "font.size": 10, "font.family": "sans-serif"}
    with matplotlib.rc_context(style | {"axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(9, 4.3), layout="constrained")
        FigureCanvasSVG(figure)
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        kinds = (("raw", "before: mean score of a sample"), ("probability", "suspicion, as users get it"))
        for axes, (name, title) in zip(panels, kinds, strict=True):
            axes.plot((0, 1), (0, 1), color="#999999", linewidth=1)
            for dataset, colour in zip(DATASETS, COLOURS, strict=False):
                own = [r for r in rows if r.dataset == dataset]
                score, wrong = (np.concatenate([getattr(r, key) for r in own]) for key in (name, "wrong"))
                x, y, size = points(score, wrong)
                axes.plot(x, y, color=colour, linewidth=1.3, label=dataset)
                axes.scatter(x, y, 6 + 60 * size / len(score), color=colour, linewidths=0)
            error = mean(calibration_error(r.wrong, getattr(r, name)) for r in rows)
            axes.set_title(f"{title} (mean ECE {error:.3f})", fontsize=10)
            axes.set_xlabel("stated: mean in its tenth")
            axes.set_aspect("equal")
        panels[0].set_ylabel("measured: share of wrong labels")
        panels[0].legend(frameon=False, fontsize=9, loc="upper left")
        figure.savefig(path, metadata={"Date": None}, facecolor="white")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE, help="folder of calibration.md and calibration.svg")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message="Stochastic Optimizer")
    began = time.process_time()
    found = list(runs(range(1, 1 + args.seeds)))
    text = page(found, (time.process_time() - began) / 60)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "calibration.md").write_text(text)
    picture(found, args.out / "calibration.svg")
    print(text)


if __name__ == "__main__":
    main()
