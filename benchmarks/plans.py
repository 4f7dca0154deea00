"""Plans beside runs: time and memory that `labelsieve plan` announces, and those that `labelsieve run` takes.

    python benchmarks/plans.py [--data FOLDER] [--only NAME ...]

The sources are data sets of scikit-learn and made ones; FOLDER has texts/banking77-test.csv and photos/clothing.zip.
Each plan and each run is a process of its own, on the CPU. The table is written to plans.md beside this file after
every source; --only replaces only the rows of these sources.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_classification

from labelsieve.progress import format_bytes, format_duration

HERE = Path(__file__).parent
Made = Callable[[Path], str]
FACTOR = 2.0  # a plan holds if it is right within this factor


def table(name: str, load: Callable[[], tuple[Any, Any]]) -> Made:
    """Return a function that writes a CSV file of numbers."""

    def make(folder: Path) -> str:
        x, y = load()
        rows = [",".join([*(f"{value:.5g}" for value in row), f"c{label}"]) for row, label in zip(x, y, strict=True)]
        header = ",".join([*(f"f{i}" for i in range(x.shape[1])), "label"])
        (folder / f"{name}.csv").write_text("\n".join([header, *rows]))
        return str(folder / f"{name}.csv")

    return make


def made(samples: int, columns: int, classes: int) -> Callable[[], tuple[Any, Any]]:
    """Return a function that makes rows of numbers."""
    return lambda: make_classification(
        samples, columns, n_informative=min(columns, 12), n_redundant=0, n_classes=classes, random_state=0
    )


def texts(folder: Path) -> str:
    """Write 600 short texts of six classes as JSON Lines."""
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(300)]
    rows = [(" ".join(rng.choice(words[40 * c : 40 * c + 90], 12)), f"c{c}") for c in rng.integers(0, 6, 600)]
    lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    (folder / "texts.jsonl").write_text("\n".join(lines))
    return str(folder / "texts.jsonl")


def workbook(folder: Path) -> str:
    """Write the wines as a spreadsheet."""
    x, y = load_wine(return_X_y=True)
    rows = [[f"f{i}" for i in range(x.shape[1])] + ["label"], *([*row, f"c{c}"] for row, c in zip(x, y, strict=True))]
    cells = "".join(
        "<row>" + "".join(
            f"<c><v>{value}</v></c>" if isinstance(value, float) else f'<c t="inlineStr"><is><t>{value}</t></is></c>'
            for value in row
        ) + "</row>"
        for row in rows
    )  # fmt: skip
    main, package = (
        "http://schemas.openxmlformats.org/spreadsheetml/2006/main",
        "http://schemas.openxmlformats.org/package/2006",
    )
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    sheet = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="rels" ContentType='
        '"application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/xl/workbook.xml" '
        f'ContentType="{sheet}.sheet.main+xml"/><Override PartName="/xl/sheet1.xml" '
        f'ContentType="{sheet}.worksheet+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>'
        '<sheet name="wine" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/worksheet" Target="sheet1.xml"/></Relationships>',
        "xl/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{cells}</sheetData></worksheet>',
    }
    with zipfile.ZipFile(folder / "wine.xlsx", "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return str(folder / "wine.xlsx")


def mixed(folder: Path) -> str:
    """Write 1,500 rows with a text and three numbers."""
    rng = np.random.default_rng(0)
    rows = [
        f"{' '.join(rng.choice(300, 8).astype(str))} w{rng.integers(c, c + 3)},"
        + ",".join(f"{value:.3f}" for value in rng.normal(c, 1, 3)) + f",c{c}"
        for c in rng.integers(0, 4, 1_500)
    ]  # fmt: skip
    (folder / "mixed.csv").write_text("\n".join(["remark,a,b,c,label", *rows]))
    return str(folder / "mixed.csv")


def digits_array(folder: Path) -> str:
    """Write the digits as pictures of 16 x 16 pixels."""
    x, y = load_digits(return_X_y=True)
    pictures = np.kron(x.reshape(-1, 8, 8), np.ones((2, 2))).astype(np.uint8) * 15
    np.savez(folder / "digits16.npz", x=pictures[:600, :, :, None], y=y[:600])
    return str(folder / "digits16.npz")


def picture_folder(folder: Path) -> str:
    """Write 120 pictures of 48 x 48 pixels in two class folders."""
    rng = np.random.default_rng(0)
    for i in range(120):
        target = folder / "pictures" / ("dark" if i % 2 else "light")
        target.mkdir(parents=True, exist_ok=True)
        pixels = np.clip(rng.normal(90 if i % 2 else 160, 50, (48, 48, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(target / f"{i}.png")
    return str(folder / "pictures")


def clothing(data: Path, per_class: int) -> Made:
    """Return a function that unpacks some photos of every class."""

    def make(folder: Path) -> str:
        with zipfile.ZipFile(data / "photos" / "clothing.zip") as archive:
            names = [name for name in archive.namelist() if name.startswith("train/") and not name.endswith("/")]
            counts: Counter[str] = Counter()
            for name in names:
                counts[name.split("/")[1]] += 1
                if counts[name.split("/")[1]] <= per_class:
                    archive.extract(name, folder)
        return str(folder / "train")

    return make


SOURCES: dict[str, tuple[Made, str]] = {
    "iris, CSV": (table("iris", lambda: load_iris(return_X_y=True)), ""),
    "wine, xlsx": (workbook, ""),
    "breast cancer, CSV": (table("cancer", lambda: load_breast_cancer(return_X_y=True)), ""),
    "digits": (lambda folder: "digits", ""),
    "texts, JSON Lines": (texts, ""),
    "text beside numbers": (mixed, ""),
    "rows, 1,000 x 200": (table("wide", made(1_000, 200, 4)), ""),
    "rows, 10,000 x 10": (table("long", made(10_000, 10, 3)), ""),
    "breast cancer, network": (table("cancer", lambda: load_breast_cancer(return_X_y=True)), "--method standard"),
    "pictures, npz": (digits_array, "--train-epochs 10"),
    "pictures, npz, network": (digits_array, "--method incv-posterior"),
    "pictures, folder": (picture_folder, "--train-epochs 10"),
}


def with_data(data: Path) -> dict[str, tuple[Made, str]]:
    """Return the sources of real texts and photos."""
    return {
        "banking77, test file": (lambda folder: str(data / "texts" / "banking77-test.csv"), "--label-column category"),
        "photos, edges": (clothing(data, 30), "--model edges --train-epochs 10"),
        "photos, embedded": (clothing(data, 20), "--embed pretrained:lite0"),
    }


def measure(words: list[str]) -> tuple[dict[str, Any], int]:
    """Run labelsieve in a process; return its answer and the most bytes of memory that it used."""
    command = [sys.executable, "-m", "labelsieve", *words, "--json", "--device", "cpu"]
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])  # of pretrained.py
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": paths}
    )
    assert process.stdout is not None
    answer = process.stdout.read()
    _, _, used = os.wait4(process.pid, 0)
    return json.loads(answer), used.ru_maxrss * 1024


def main() -> None:
    """Measure every source, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    chosen = parser.parse_args()
    record = HERE / "plans.json"
    rows: dict[str, dict[str, Any]] = json.loads(record.read_text()) if record.is_file() and chosen.only else {}
    for name, (make, options) in (SOURCES | (with_data(chosen.data) if chosen.data else {})).items():
        if chosen.only and name not in chosen.only:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            words = [make(Path(scratch)), *options.split()]
            plan, _ = measure(["plan", *words])
            done, memory = measure(["run", *words, "--out", f"{scratch}/run"])
        rows[name] = {
            "options": options, "samples": plan["samples"], "planned_seconds": plan["total_seconds"],
            "seconds": done["seconds"], "planned_bytes": plan["host_bytes"], "bytes": memory, "stages": plan["seconds"],
        }  # fmt: skip
        print(name, rows[name], flush=True)
        record.write_text(json.dumps(rows, indent=1) + "\n")
        (HERE / "plans.md").write_text(page(rows))


def page(rows: dict[str, dict[str, Any]]) -> str:
    """Return the page with the table."""
    head = ("source", "options", "samples", "planned", "took", "ratio", "memory planned", "memory used", "ratio")
    lines, held = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)], 0
    for name, row in rows.items():
        time_ratio, memory_ratio = row["planned_seconds"] / row["seconds"], row["planned_bytes"] / row["bytes"]
        held += all(1 / FACTOR <= ratio <= FACTOR for ratio in (time_ratio, memory_ratio))
        cells = (
            name, row["options"] and f"`{row['options']}`", f"{row['samples']:,}",
            format_duration(row["planned_seconds"]), format_duration(row["seconds"]), f"{time_ratio:.2f}",
            format_bytes(row["planned_bytes"]), format_bytes(row["bytes"]), f"{memory_ratio:.2f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    text = f"{held} of {len(rows)} plans are right within a factor of {FACTOR:.0f}, in time and in memory."
    command = (
        "`python benchmarks/plans.py --data FOLDER`, CPU only, 2 cores; other programs ran at a much lower priority."
    )
    return "\n".join(["# Plans and runs", "", command, "", text, "", *lines]) + "\n"


if __name__ == "__main__":
    main()
