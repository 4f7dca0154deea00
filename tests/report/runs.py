"""Run folders for the tests: real files, real sources, a selection as it would come out of a good network."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from labelsieve.data.source import load_source
from labelsieve.decisions import append_decision
from labelsieve.runfolder import RunFolder, fingerprint
from labelsieve.types import CANDIDATE, REMOVED, SELECTED, LabelledData, Selection

SHAPES = ("circle", "square", "triangle", "star")
SENTENCES = {
    "delivery": ("The parcel came {} days late and nobody told me.", "Where is my order? It was sent {} days ago."),
    "payment": ("I was charged twice, {} euros each time.", "My card was refused although {} euros are there."),
    "praise": ("Wonderful service, I told {} friends about it!", "Best shop in town, {} stars out of five."),
}


def noisy(true: Any, classes: int, ratio: float, rng: np.random.Generator) -> Any:
    wrong = rng.random(len(true)) < ratio
    return np.where(wrong, (true + rng.integers(1, classes, len(true))) % classes, true)


def selection_for(data: LabelledData, true: Any, rng: np.random.Generator) -> Selection:
    """The network is right nearly always; it is held out, so its scores follow the true class."""
    n, c = len(data), len(data.classes)
    predicted = np.where(rng.random(n) < 0.97, true, rng.integers(0, c, n))
    agrees = predicted == data.y
    probability = np.where(agrees, 0.6 + 0.4 * rng.random(n), 0.3 * rng.random(n))
    verdict = np.where(agrees, SELECTED, CANDIDATE).astype(np.int8)
    verdict[(~agrees) & (probability < 0.02)] = REMOVED
    joint = np.zeros((c, c))
    np.add.at(joint, (true, data.y), 1)
    matrix = joint / np.maximum(joint.sum(1, keepdims=True), 1)
    ratio = float(np.mean(true != data.y))
    why = "trustworthy: the noise looks the same for all samples of a class"
    interval = {"low": max(ratio - 0.03, 0), "high": ratio + 0.03}
    estimate = {"ratio": ratio, **interval, "trust": "trustworthy", "explanation": why}
    return Selection(
        verdict=verdict,
        iteration=np.where(agrees, 1 + (np.arange(n) % 3), 0).astype(np.int16),
        predicted=predicted.astype(np.int64),
        probability=probability,
        confidence=np.where(agrees, probability, 0.9),
        loss=-np.log(np.maximum(probability, 1e-6)),
        suspicion=1 - probability,
        noise_ratio=ratio,
        transition_matrix=matrix,
        expected_precision=0.964,
        expected_recall=0.891,
        history=({"iteration": 1, "estimate": estimate},),
    )


def write_run(path: Path, data: LabelledData, true: Any, source: str, *, seed: int = 0, **settings: Any) -> RunFolder:
    rng = np.random.default_rng(seed)
    run = RunFolder(path)
    run.start(
        "select", settings={"method": "incv", "iterations": 3, "seed": seed, **settings}, data=data, source=source
    )
    run.write_selection(
        data, selection_for(data, true, rng), measured={"label_precision": 0.958, "label_recall": 0.902}
    )
    lines = []
    for iteration in (1, 2, 3):
        for half in (1, 2):
            for epoch in range(1, 21):
                loss = 2.2 * np.exp(-epoch / (5 + half)) / iteration + 0.1 + 0.02 * rng.random()
                line = {"training": f"incv-{iteration}-{half}", "epoch": epoch, "loss": [loss], "seconds": 0.1}
                lines.append({**line, "accuracy_given": [0.9 - 0.6 * np.exp(-epoch / 4) - 0.05 / iteration]})
    (path / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    run.finish("select")
    return run


def as_read(run: RunFolder) -> RunFolder:
    """The fingerprint that a selection of the source would have left."""
    about = run.record()["data"]
    run.update(data={**about, "fingerprint": fingerprint(load_source(about["source"]))})
    return run


def draw(shape: str, rng: np.random.Generator, side: int) -> Any:
    from PIL import Image, ImageDraw

    sky = tuple(int(v) for v in rng.integers(200, 250, 3))
    ink = tuple(int(v) for v in rng.integers(20, 160, 3))
    picture = Image.new("RGB", (side, side), sky)
    pen = ImageDraw.Draw(picture)
    x, y = rng.uniform(0.4, 0.6, 2) * side
    r = rng.uniform(0.22, 0.36) * side
    if shape == "circle":
        pen.ellipse((x - r, y - r, x + r, y + r), fill=ink)
    else:
        corners = {"square": 4, "triangle": 3, "star": 10}.get(shape, 6)
        turn = rng.uniform(-0.3, 0.3)
        spokes = [r if shape != "star" or i % 2 == 0 else r * 0.45 for i in range(corners)]
        angles = [
            turn - np.pi / 2 + 2 * np.pi * i / corners + (np.pi / 4 if shape == "square" else 0) for i in range(corners)
        ]
        pen.polygon([(x + s * np.cos(a), y + s * np.sin(a)) for s, a in zip(spokes, angles, strict=True)], fill=ink)
    return picture


def pictures(
    folder: Path, *, n: int = 48, classes: tuple[str, ...] = SHAPES, ratio: float = 0.3, side: int = 120
) -> RunFolder:
    """ROOT/class/picture: the class folder is the given label."""
    rng = np.random.default_rng(1)
    c = len(classes)
    true = np.arange(n) % c
    given = noisy(true, c, ratio, rng)
    root = folder / "shapes"
    for name in classes:
        (root / name).mkdir(parents=True, exist_ok=True)
    ids = []
    for i in range(n):
        ids.append(f"{classes[given[i]]}/shot {i:03d}.png")
        draw(SHAPES[true[i] % len(SHAPES)], rng, side).save(root / ids[-1])
    order = np.argsort(np.array(ids))
    data = LabelledData(None, given[order], classes, np.array(ids)[order], "pictures", name="shapes")
    data = LabelledData(np.zeros((n, 2)), data.y, classes, data.ids, "pictures", name="shapes")
    return write_run(folder / "run", data, true[order], str(root))


def text(folder: Path, *, n: int = 60, classes: tuple[str, ...] = tuple(SENTENCES)) -> RunFolder:
    rng = np.random.default_rng(2)
    true = np.arange(n) % 3
    given = noisy(true, 3, 0.25, rng)
    kinds = list(SENTENCES.values())
    said = [kinds[t][i % 2].format(i + 2) for i, t in enumerate(true)]
    with (folder / "mails.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "label", "text", "lang"])
        writer.writerows([f"mail-{i:04d}", classes[given[i]], said[i], "en"] for i in range(n))
    ids = np.array([f"mail-{i:04d}" for i in range(n)])
    data = LabelledData(np.array(said, dtype=object), given, classes, ids, "text", name="mails")
    return as_read(write_run(folder / "run", data, true, str(folder / "mails.csv")))


def table(folder: Path, *, n: int = 60, classes: tuple[str, ...] = ("flat", "house", "shop")) -> RunFolder:
    """No id column: a row's number is its id."""
    rng = np.random.default_rng(3)
    true = np.arange(n) % 3
    given = noisy(true, 3, 0.25, rng)
    with (folder / "homes.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["rooms", "area m2", "town", "label", "code", "true"])
        for i in range(n):
            rooms, area = 1 + 2 * true[i] + rng.integers(0, 2), 35 + 60 * true[i] + rng.normal(0, 8)
            town = ["Aarau", "Bern", ""][i % 3]
            writer.writerow([rooms, f"{area:.1f}", town, classes[given[i]], f"{i:05d}", classes[true[i]]])
    data = LabelledData(rng.random((n, 3)), given, classes, np.array([str(i) for i in range(n)]), "table", name="homes")
    return as_read(write_run(folder / "run", data, true, str(folder / "homes.csv")))


def million(folder: Path, *, n: int = 1_000_000, c: int = 100) -> RunFolder:
    """A run of a million texts, three in ten of them suspects; written by columns, for time's sake."""
    import pyarrow as pa
    import pyarrow.compute as pac
    import pyarrow.csv as pc

    rng = np.random.default_rng(4)
    names = np.array([f"class {i:03d}" for i in range(c)])
    label = rng.integers(0, c, n)
    predicted = np.where(rng.random(n) < 0.7, label, rng.integers(0, c, n))
    agrees = label == predicted
    ids = pa.array(np.arange(n)).cast(pa.string())
    columns = {
        "id": ids,
        "label": names[label],
        "predicted": names[predicted],
        "probability": rng.random(n).round(6),
        "loss": rng.random(n).round(6),
        "verdict": np.array(["candidate", "selected"])[agrees.astype(int)],
        "iteration": agrees.astype(int),
        "suspicion": rng.random(n).round(6),
        "suggested": np.where(agrees, "", names[predicted]),
        **dict.fromkeys(("duplicates", "outlier"), pa.nulls(n, pa.string())),
        "confidence": rng.random(n).round(6),
    }
    run = RunFolder(folder / "run")
    source = folder / "million.csv"
    about = {"source": str(source), "name": "million", "kind": "text", "samples": n}
    run.update(settings={"method": "incv"}, data=about)
    pc.write_csv(pa.table(columns), run / "labels.csv")
    texts = pa.array(["a text of class "] * n)
    pc.write_csv(pa.table({"label": names[label], "text": pac.binary_join_element_wise(texts, ids, "")}), source)
    matrix = np.full((c, c), 0.3 / (c - 1))
    np.fill_diagonal(matrix, 0.7)
    run.write_summary({"samples": n, "classes": names.tolist(), "noise_ratio": 0.3, "transition_matrix": matrix})
    return run


def rows_of(path):
    """What a CSV holds."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def mark(run, column, values):
    """Write some cells of labels.csv."""
    with (run / "labels.csv").open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    for i, value in values.items():
        rows[i][head.index(column)] = value
    with (run / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])


def suspects_of(run):
    """The rows that another label is suggested for, the most suspicious first."""
    return sorted((row for row in run.read_labels() if row.suggested), key=lambda row: -row.suspicion)


def write_suggestions(run, probability):
    """Write suggestions.csv; `probability` maps the place of a suspect in the ranking to that of its suggestion."""
    rows = enumerate(suspects_of(run))
    lines = [f"{row.id},{row.label},{row.suspicion},{row.suggested},{probability(place)}" for place, row in rows]
    text = "\n".join(["id,label,suspicion,suggested,probability", *lines]) + "\n"
    (run / "suggestions.csv").write_text(text, encoding="utf-8")


def keep_all(run):
    """Decide to keep the label of every suspect, so that an export has nothing to mark."""
    for row in suspects_of(run):
        append_decision(run / "decisions.csv", row.id, "keep", row.label)
