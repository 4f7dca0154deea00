"""Works out the computed part of docs/scaling.md again: `python scripts/scaling_page.py`.

What the numbers rest on stands here and nowhere else. Where benchmarks/inception.json is there (`python
benchmarks/inception.py --write benchmarks/inception.md` on a GPU writes it), speeds are the measured ones.
"""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelsieve.workflow.plan import HOST_BYTES, Measured, Wanted, estimate

ROOT = Path(__file__).resolve().parent.parent
PAGE, INCEPTION = ROOT / "docs" / "scaling.md", ROOT / "benchmarks" / "inception.json"
BEGIN, END = "<!-- worked out by scripts/scaling_page.py -->", "<!-- end -->"

ASSUMED_TRAINED, ASSUMED_SCORED = 1_000.0, 3_000.0  # pictures a second of one GPU, until they are measured
DECODED = 82  # pictures a second of one core: benchmarks/decode.md, on a busy machine
CORES = 64  # of a GPU's host: assumed
NAME = 28  # characters of a file name; ids are of four bytes each, names Python strings of 57 bytes more
PICTURE_BYTES = 253_700  # decoded, shorter side 256: the mean of the drawn ones
WINDOW_BYTES = 227 * 227 * 3
PARAMETERS = 54_400_000
HEADER = "| samples | INCV, training | INCV, scoring | robust training | in all | decode once | host memory | staged |"
SETTINGS = ((65_944, 50, 120), (2_400_000, 50, 120), (1_000_000_000, 1, 2))


@dataclass(frozen=True)
class Speed:
    """Of one GPU."""

    trained: float
    scored: float
    source: str


def speed(path: Path = INCEPTION) -> Speed:
    """The measured one, or what is assumed."""
    if not path.exists():
        return Speed(ASSUMED_TRAINED, ASSUMED_SCORED, "assumed, not yet measured")
    found = json.loads(path.read_text(encoding="utf-8"))
    rows = {name: row["images_per_second"] for name, row in found["rows"].items() if "failed" not in row}
    trained = max(rate for name, rate in rows.items() if name.startswith("engine") and name != "engine, scoring")
    scored, source = rows.get("engine, scoring"), f"measured on one {found['device']}, `benchmarks/inception.md`"
    return Speed(
        trained, scored or 3 * trained, source + ("" if scored else "; scoring is assumed to be 3 times as fast")
    )


def rows(at: Speed) -> list[tuple[Wanted, dict[str, Any]]]:
    """The estimate of each setting."""
    measured = Measured(
        at.trained, at.scored, DECODED * CORES, sample_bytes=PICTURE_BYTES, parameters=PARAMETERS, working_bytes=0,
        host_bytes=HOST_BYTES + 4 * NAME + NAME + 57,
    )  # fmt: skip
    wanted = [Wanted(n, iterations=2, selection_epochs=s, training_epochs=t) for n, s, t in SETTINGS]
    return [(one, estimate(one, measured, free=10**11)) for one in wanted]


def size(amount: float) -> str:
    for unit, length in (("TB", 1e12), ("GB", 1e9)):
        if amount >= length:
            return f"{amount / length:,.3g} {unit}" if amount < 1000 * length else f"{amount / length:,.0f} {unit}"
    return f"{amount / 1e6:,.0f} MB"


def computed(at: Speed) -> str:
    """The two sections."""
    found, stages = rows(at), ("selection, training", "selection, scoring", "robust training")
    trained = [sum(row["seconds"][stage] for stage in stages) / 3600 for _, row in found]  # GPU hours
    table = []
    for (wanted, row), whole in zip(found, trained, strict=True):
        epochs = f" ({wanted.selection_epochs} and {wanted.training_epochs} epochs)" if wanted.samples >= 10**9 else ""
        each = [f"{row['seconds'][stage] / 3600:,.1f}" for stage in stages]
        once, held = row["seconds"]["decode once"] / 3600, (row["host_bytes"], row["disk_bytes"]["staged pictures"])
        cells = [
            f"{wanted.samples:,}{epochs}",
            *each,
            f"{whole:,.1f}",
            f"{once:,.1f}",
            *(size(value) for value in held),
        ]
        table.append(f"| {' | '.join(cells)} |")
    host, eight, cards = DECODED * CORES, 8 * at.trained, max(1, round(trained[2] / 24))
    return "\n".join(
        [
            "## On paper",
            "",
            filled(f"""Inception-ResNet-v2 with the paper's settings (INCV 2 x 50 epochs, robust training 120 epochs,
            two networks), at {at.trained:,.0f} pictures a second trained and {at.scored:,.0f} scored on one GPU
            ({at.source}), and {host:,} decoded a second by its host ({CORES} cores, assumed, at the {DECODED} a second
            of one core in `benchmarks/decode.md`). Time goes with their inverse: put in what `plan` measures on your
            machine. For a billion: one epoch for each of INCV's trainings and two for the robust one, an assumption
            too. Hours of a GPU (of a host, to decode):"""),
            "",
            HEADER,
            "|---" * HEADER.count(" | ") + "|---|",
            *table,
            "",
            filled("""`python scripts/scaling_page.py` works this and the next section out again; what they rest on
            stands at the top of that script."""),
            "",
            "## What becomes the bottleneck",
            "",
            filled("""**65,944 pictures, one GPU.** Everything is on the card; arithmetic alone. More GPUs help by the
            number of trainings that run at once (the two halves, then methods and seeds) before data parallel training
            is needed."""),
            "",
            filled(f"""**2.4 million, eight GPUs.** {trained[1]:,.0f} GPU hours are {trained[1] / 8 / 24:.1f} days. The
            pictures no longer fit one card ({size(2.4e6 * PICTURE_BYTES)}), so shards are read: eight cards at
            {at.trained:,.0f} pictures a second each touch {size(eight * PICTURE_BYTES)} a second of the mapped files
            and take {size(eight * WINDOW_BYTES)} a second of windows. Whether a disk gives that has to be looked up for
            yours; stage on local disks, each machine its own copy. Without staging the same {eight:,.0f} have to be
            decoded, {eight / DECODED:,.0f} cores' work all the time. Scoring every epoch (`checkpoint="best-until-k"`)
            costs {at.trained / at.scored:.0%} of INCV's training; `checkpoint="last"` saves it."""),
            "",
            filled(f"""**A billion.** {trained[2]:,.0f} GPU hours are a day on {cards:,} GPUs, so arithmetic is not what
            breaks."""),
            "",
            item(f"""Staged pixels ({size(1e9 * PICTURE_BYTES)}) do not fit local disks: pictures stay JPEGs on shared
            storage, in files of a gigabyte rather than one file a picture, and are decoded as they stream:
            {cards * at.trained:,.0f} a second, {cards * at.trained / host:,.0f} hosts of the assumed kind for every
            epoch."""),
            item(f"""Host memory: {size(found[2][1]["host_bytes"])}, of which {size(1e9 * HOST_BYTES)} are selection's
            own numbers at their peak and the rest ids and file names, held by every process. The ids have to become row
            numbers into the source and the numbers have to be split by rows over the machines; selection itself is
            counts by given and predicted class and the largest losses and confidences, which split without
            approximation."""),
            item("""The order of an epoch: a permutation of 10^9 int64 is 8 GB a process. Permuting shards, and samples
            within a few shards at a time, keeps it small and reads the storage in one direction; it changes the order,
            not the expectation."""),
            item("""One text file with a row a sample (`labels.csv`) no longer is what anyone opens: it has to become
            Parquet in parts."""),
        ]
    )


def filled(text: str, indent: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()), 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def item(text: str) -> str:
    return filled(f"- {text}", "  ")


def renewed(page: str, at: Speed) -> str:
    """The page with its computed part worked out again."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{computed(at)}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), speed()), encoding="utf-8")
