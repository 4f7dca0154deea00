"""Select from a folder of 200,000 photos in bounded memory, and compare a small part of it with everything in memory.

    python benchmarks/large_folder.py --photos PHOTOS.zip [--count 200000] [--work DIR]

PHOTOS.zip contains real photos as .../CLASS/NAME.jpg (3,781 photos of clothes, CC0, for the numbers below). The folder
consists of variants of them, cropped, rotated, mirrored, brightened and resized to 64 pixels; a tenth of the labels is
wrong. `labelsieve select --model edges` runs in a new process; its memory is the resident memory of that process and
its children, summed and sampled five times per second. Writes large-folder.md. Takes about an hour on one core, most
of it for the trainings, and 4 GB of disk.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
SIDE, WRONG, QUALITY = 64, 0.1, 80
PART = 6_000  # photos that are also selected from with everything in memory
PARTS = 8  # in which the folder is written; each decodes its photos once
# With this limit every set of pictures counts as too large for memory.
STAGED = "import labelsieve.data.read_pictures as r; r.MEMORY_LIMIT = 0; "
MAIN = "import sys; from labelsieve.__main__ import main; sys.exit(main())"


def make_folder(photos: Path, root: Path, count: int) -> None:
    """Write variants of the photos as ROOT/CLASS/NUMBER.jpg, and ROOT/../true.csv with the right classes."""
    with zipfile.ZipFile(photos) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
    classes = sorted({name.split("/")[-2] for name in names})
    rng = np.random.default_rng(0)
    true = [name.split("/")[-2] for name in names]
    rows = []
    for number in range(count):
        source = number % len(names)
        wrong = rng.random() < WRONG
        label = classes[int(rng.integers(len(classes)))] if wrong else true[source]
        rows.append((number, names[source], label, true[source]))
    for name in classes:
        (root / name).mkdir(parents=True, exist_ok=True)
    parts = [[row for row in rows if row[0] % len(names) % PARTS == part] for part in range(PARTS)]
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        list(pool.map(partial(_write_variants, photos, root), parts))
    with (root.parent / "true.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("id", "label", "true"))
        table.writerows((f"{label}/{number:07d}.jpg", label, shown) for number, _, label, shown in rows)


def _write_variants(photos: Path, root: Path, rows: list[tuple[int, str, str, str]]) -> None:
    from PIL import Image, ImageEnhance

    with zipfile.ZipFile(photos) as archive:
        decoded = {}
        for number, name, label, _ in rows:
            if name not in decoded:
                with Image.open(io.BytesIO(archive.read(name))) as opened:
                    opened.draft("RGB", (96, 96))
                    decoded[name] = opened.convert("RGB").resize((96, 96))
            rng = np.random.default_rng(number)
            side = int(rng.integers(76, 96))
            left, top = rng.integers(0, 96 - side, size=2).tolist()
            variant = decoded[name].rotate(float(rng.uniform(-8, 8)))
            variant = variant.crop((left, top, left + side, top + side)).resize((SIDE, SIDE))
            if rng.random() < 0.5:
                variant = variant.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            variant = ImageEnhance.Brightness(variant).enhance(float(rng.uniform(0.8, 1.2)))
            variant.save(root / label / f"{number:07d}.jpg", quality=QUALITY)


def part_of(root: Path, to: Path, count: int) -> None:
    """Link the first photos to another folder."""
    for path in sorted(root.glob("*/*.jpg"), key=lambda path: path.name)[:count]:
        (to / path.parent.name).mkdir(parents=True, exist_ok=True)
        os.link(path, to / path.parent.name / path.name)


def run(words: list[str], *, staged: bool = False) -> dict[str, float]:
    """Run a command in a new process and return its seconds and its peak memory in bytes."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", (STAGED if staged else "") + MAIN, *words]
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(resident(pid) for pid in tree(process.pid)))
        time.sleep(0.2)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} failed with exit code {process.returncode}")
    return {"seconds": time.perf_counter() - began, "bytes": peak}


def tree(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found = [pid]
    for parent in found:
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        except OSError:
            continue
        found += map(int, children)
    return found


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def same_rows(one: Path, other: Path) -> bool:
    return (one / "labels.csv").read_bytes() == (other / "labels.csv").read_bytes()


def page(found: dict[str, Any]) -> str:
    """Return the text of the page."""
    names = {"large": (found["count"], "staged on disk"), "memory": (PART, "memory"), "disk": (PART, "staged on disk")}
    rows = [
        f"| {pictures:,} | {place} | {found[name]['bytes'] / 1e9:.2f} GB | {found[name]['seconds'] / 60:.1f} min |"
        for name, (pictures, place) in names.items()
    ]
    summary, count, size = found["summary"], found["count"], SIDE * SIDE * 3
    facts = [
        f"""- Of the {count:,} labels {summary["selected"]:,} are selected, with a label precision of
  {summary["precision"]:.3f} (all labels: {summary["clean"]:.3f}) and a label recall of {summary["recall"]:.3f}.""",
        f"""- The noise ratio is estimated as {summary["ratio"]:.3f} ({summary["low"]:.3f} to {summary["high"]:.3f},
  {summary["trust"]}); {1 - summary["clean"]:.3f} are wrong.
  The folder contains variants of the same photos. They are on both sides of a split, so the two models that measure the
  error of the classifier make the same errors, and the estimate is too high. This also makes precision and recall
  higher than for {count:,} different photos.""",
    ]
    equal = "the same labels.csv, byte for byte," if found["same"] else "DIFFERENT files labels.csv"
    facts.append(f"- The {PART:,} photos give {equal} from memory and from disk.")
    facts_text = "\n".join(facts)
    return f"""# A large folder of photos

Written by `benchmarks/large_folder.py` on {date.today()}: {platform.machine()}, {os.cpu_count()} shared cores, no GPU.

`labelsieve select FOLDER --model edges --method ncv`: {count:,} JPEG photos of {SIDE} x {SIDE} pixels
({count * size / 1e9:.1f} GB once they are decoded) in {found["classes"]} classes, {WRONG:.0%} of the labels replaced by
random ones. Memory is the resident memory of all processes of the command. The cores were shared with other work.

| pictures | read from | memory, peak | time |
|---|---|---|---|
{chr(10).join(rows)}

{facts_text}
"""


def measured(run_folder: Path, truth: Path) -> dict[str, Any]:
    """Return the noise estimate, and the precision and recall of the selected labels."""
    with truth.open(newline="") as file:
        true = {row["id"]: row["true"] for row in csv.DictReader(file)}
    with (run_folder / "labels.csv").open(newline="") as file:
        rows = [(row["verdict"] == "selected", row["label"] == true[row["id"]]) for row in csv.DictReader(file)]
    selected, right = np.array(rows).T
    estimate = json.loads((run_folder / "summary.json").read_text())["iterations"][0]["estimate"]
    return {key: estimate[key] for key in ("ratio", "low", "high", "trust")} | {
        "selected": int(selected.sum()),
        "precision": float(right[selected].mean()),
        "recall": float(selected[right].mean()),
        "clean": float(right.mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="a zip file of photos in class folders")
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--work", type=Path, help="a folder for the photos and runs (default: a temporary one)")
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp(prefix="large-folder-"))
    root, part = work / f"photos-{options.count}", work / "part"
    if not (work / "true.csv").exists():
        make_folder(options.photos, root, options.count)
    if not part.exists():
        part_of(root, part, PART)
    for name in ("memory", "disk", "large"):
        shutil.rmtree(work / name, ignore_errors=True)
    select = ["select", "--model", "edges", "--method", "ncv", "--device", "cpu", "--out"]
    found: dict[str, Any] = {
        "count": options.count,
        "classes": len(list(root.iterdir())),
        "memory": run([*select, str(work / "memory"), str(part)]),
        "disk": run([*select, str(work / "disk"), str(part)], staged=True),
    }
    found["same"] = same_rows(work / "memory", work / "disk")
    found["large"] = run([*select, str(work / "large"), str(root)])
    found["summary"] = measured(work / "large", work / "true.csv")
    text = page(found)
    (HERE / "large-folder.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
