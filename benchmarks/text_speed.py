"""Texts: processor time of the selection, and accuracy of the classifier that `train` gives.

    python benchmarks/text_speed.py --data FOLDER

FOLDER has banking77-train.csv and banking77-test.csv with the columns text and category. The result is text-speed.md
beside this file. Times are of the processor, so that other programs disturb them less; wall times are shown too.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from labelsieve import metrics, noise, theory
from labelsieve.data.read_options import ReadOptions
from labelsieve.data.source import load_source
from labelsieve.data.text import single_words, tokens
from labelsieve.models.choose import named_classifier
from labelsieve.progress import Progress
from labelsieve.workflow.run import run_source
from labelsieve.workflow.settings import RunSettings

HERE = Path(__file__).parent
RATIOS = (0.0, 0.3)


def timed(task) -> tuple[object, float, float]:
    """Return the result of a task, and its seconds of processor and of wall time."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = task()
    return result, time.process_time() - cpu, time.perf_counter() - wall


def solvers(train, test) -> list[str]:
    """Compare the solver of the selection with scikit-learn's default on one half of the questions."""
    rng = np.random.default_rng(0)
    given = noise.corrupt(train.y, theory.symmetric(len(train.classes), 0.2), rng)
    order = rng.permutation(len(given))
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    default = make_pipeline(
        TfidfVectorizer(analyzer=tokens, sublinear_tf=True), LogisticRegression(C=10, max_iter=1000)
    )
    lines = [
        "| training on one half, 20 % wrong | processor seconds | AUROC of the other half | test accuracy |",
        "|---|---|---|---|",
    ]
    for name, model in (("lbfgs, double precision", default), ("labelsieve", named_classifier("tfidf"))):
        _, cpu, _ = timed(lambda model=model: model.fit(train.x[first], given[first]))
        found = model.predict_proba(train.x[second])[np.arange(len(second)), given[second]]
        auroc = metrics.auroc(given[second] != train.y[second], -found)
        accuracy = float(np.mean(model.predict(test.x) == test.y))
        lines.append(f"| {name} | {cpu:.1f} | {auroc:.4f} | {accuracy:.4f} |")
    return lines


def rules(data, test, suspicion, given) -> list[tuple[str, float, float]]:
    """Return two accuracies per rule that says which labels are trained on.

    The first is that on a fifth of the training file, from trainings on the other four: it chooses the rule. The second
    is that on the test file, from a training on the whole training file: it is reported.
    """
    part = np.random.default_rng(2).permutation(len(given)) % 5 == 0
    found = []
    for name, most, weighted, words in (
        ("all labels", 1.0, False, single_words),
        ("all, weighted by 1 - suspicion", 1.0, True, single_words),
        *((f"suspicion at most {most}", most, False, single_words) for most in (0.1, 0.3, 0.5, 0.7, 0.9)),
        ("suspicion at most 0.5, weighted", 0.5, True, single_words),
        ("suspicion at most 0.5, words and pairs of words", 0.5, False, tokens),
    ):
        scores = []
        for among, x, y in ((~part, data.x[part], data.y[part]), (part | ~part, test.x, test.y)):
            rows = np.flatnonzero(among & (suspicion <= most))
            model = named_classifier("tfidf").set_params(tfidfvectorizer__analyzer=words)
            weight = np.maximum(1 - suspicion[rows], 1e-3) if weighted else None
            model.fit(data.x[rows], given[rows], logisticregression__sample_weight=weight)
            scores.append(float(np.mean(model.predict(x) == y)))
        found.append((name, *scores))
    return found


def main() -> None:
    """Measure, and write text-speed.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    folder = parser.parse_args().data
    options = ReadOptions(label_column="category")
    train, test = (load_source(str(folder / f"banking77-{part}.csv"), options) for part in ("train", "test"))
    size = f"{len(train):,} questions in {len(train.classes)} classes, {os.cpu_count()} cores"
    lines = [
        "# Texts: speed and accuracy",
        "",
        f"`python benchmarks/text_speed.py --data FOLDER`: banking77, {size}.",
        "",
    ]
    lines += [*solvers(train, test), ""]
    write(lines)
    lines += ["| wrong labels | stage | processor seconds | wall seconds | test accuracy |", "|---|---|---|---|---|"]
    compared = []
    for ratio in RATIOS:
        rng = np.random.default_rng(1)
        given = noise.corrupt(train.y, theory.symmetric(len(train.classes), ratio), rng) if ratio else train.y
        with tempfile.TemporaryDirectory() as scratch:
            labels = Path(scratch) / "labels.csv"
            rows = [f"{id},{train.classes[code]}" for id, code in zip(train.ids, given, strict=True)]
            labels.write_text("\n".join(["id,label", *rows]))
            settings = RunSettings(label_column="category", labels=labels)
            source = str(folder / "banking77-train.csv")
            result, cpu, wall = timed(
                lambda: run_source(source, Path(scratch) / "run", settings, Progress(silent=True))  # noqa: B023
            )
            found = result.predict(str(folder / "banking77-test.csv"), label_column="category")  # type: ignore[attr-defined]
            right = float(np.mean(np.array(found.predicted) == np.array(test.classes)[test.y]))
            suspicion = np.asarray(result.to_frame()["suspicion"])  # type: ignore[attr-defined]
        lines.append(f"| {ratio:.0%} | select, train, report | {cpu:.0f} | {wall:.0f} | {right:.4f} |")
        write(lines)
        compared.append(rules(train, test, suspicion, given))
    heads = [f"{ratio:.0%} wrong, {part}" for ratio in RATIOS for part in ("held-out fifth", "test file")]
    lines += [
        "",
        "The rule for the training samples was chosen on a held-out fifth of the training file, not on the test file.",
        "",
        f"| the classifier is trained on | {' | '.join(heads)} |",
        "|---|---|---|---|---|",
    ]
    for each in zip(*compared, strict=True):
        cells = " | ".join(f"{accuracy:.4f}" for _, *accuracies in each for accuracy in accuracies)
        lines.append(f"| {each[0][0]} | {cells} |")
    write(lines)


def write(lines: list[str]) -> None:
    """Write the page."""
    (HERE / "text-speed.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
