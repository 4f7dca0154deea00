"""Update the computed part of docs/scaling.md: `python scripts/scaling_page.py`.

The assumptions are the constants below. If benchmarks/inception.json exists, its measured speeds are used
(`python benchmarks/inception.py --write benchmarks/inception.md` on a GPU writes it).
"""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelsieve.selection.settings import INCVSettings, selection_passes
from labelsieve.workflow.plan import HOST_BYTES, Measured, Workload, estimate

ROOT = Path(__file__).resolve().parent.parent
PAGE, INCEPTION = ROOT / "docs" / "scaling.md", ROOT / "benchmarks" / "inception.json"
BEGIN, END = "<!-- computed by scripts/scaling_page.py -->", "<!-- end -->"

ASSUMED_TRAINED, ASSUMED_SCORED = 1_000.0, 3_000.0  # pictures per second on one GPU, if not measured
DECODED = 82  # pictures per second on one core: benchmarks/decode.md
CORES = 64  # of the machine of a GPU: assumed
NAME = 28  # characters of a file name; an id has 4 bytes per character, a Python string 57 bytes more
PICTURE_BYTES = 253_700  # decoded, shorter side 256: mean of the drawn pictures
WINDOW_BYTES = 227 * 227 * 3
PARAMETERS = 54_400_000
HEADER = (
    "| samples | INCV, training | INCV, scoring | robust training | total | decoding (machine hours) | memory "
    "| staged pictures on disk |"
)
PASSES = selection_passes(INCVSettings(n_iterations=2, protocol="paper"))  # the paper's INCV on WebVision
SETTINGS = ((65_944, 50, 120), (2_400_000, 50, 120), (1_000_000_000, 1, 2))


@dataclass(frozen=True)
class Speed:
    """Pictures per second on one GPU."""

    trained: float
    scored: float
    source: str


def speed(path: Path = INCEPTION) -> Speed:
    """Return the measured speed, or the assumed one."""
    if not path.exists():
        return Speed(ASSUMED_TRAINED, ASSUMED_SCORED, "assumed, not yet measured")
    found = json.loads(path.read_text(encoding="utf-8"))
    rows = {name: row["images_per_second"] for name, row in found["rows"].items() if "failed" not in row}
    trained = max(rate for name, rate in rows.items() if name.startswith("engine") and name != "engine, scoring")
    scored, source = rows.get("engine, scoring"), f"measured on one {found['device']}, `benchmarks/inception.md`"
    return Speed(
        trained, scored or 3 * trained, source + ("" if scored else "; scoring is assumed to be 3 times as fast")
    )


def rows(at: Speed) -> list[tuple[Workload, dict[str, Any]]]:
    """Return the estimate of each setting."""
    measured = Measured(
        at.trained, at.scored, DECODED * CORES, sample_bytes=PICTURE_BYTES, parameters=PARAMETERS, working_bytes=0,
        host_bytes=HOST_BYTES + 4 * NAME + NAME + 57,
    )  # fmt: skip
    wanted = [Workload(n, selection_passes=PASSES, selection_epochs=s, training_epochs=t) for n, s, t in SETTINGS]
    return [(one, estimate(one, measured, free=10**11)) for one in wanted]


def size(amount: float) -> str:
    for unit, length in (("TB", 1e12), ("GB", 1e9)):
        if amount >= length:
            return f"{amount / length:,.3g} {unit}" if amount < 1000 * length else f"{amount / length:,.0f} {unit}"
    return f"{amount / 1e6:,.0f} MB"


def computed(at: Speed) -> str:
    """Return the two computed sections."""
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
            "## Estimated cost",
            "",
            filled(f"""The table shows GPU hours for Inception-ResNet-v2 with the settings of the paper for
            WebVision: two iterations of INCV with 50 epochs each, and robust training of two networks for 120
            epochs. An epoch of INCV processes at most {PASSES} times the number of samples (once in the first
            iteration, and at most {PASSES - 1} times in the second), so the hours of INCV are upper limits.
            The table assumes {at.trained:,.0f}
            pictures per second in training and {at.scored:,.0f} in scoring on one GPU ({at.source}). The
            decoding time is given in hours on one machine, which is assumed to have {CORES} cores and to
            decode {host:,} pictures per second ({DECODED} per core, `benchmarks/decode.md`). The row for
            a billion samples assumes one epoch per iteration of INCV and two epochs of robust training.
            Use `labelsieve plan` for the speed of your machine."""),
            "",
            HEADER,
            "|---" * HEADER.count(" | ") + "|---|",
            *table,
            "",
            "## Bottlenecks",
            "",
            filled("""**65,944 pictures, one GPU.** All pictures fit on the GPU, and computation is the bottleneck.
            With more GPUs, several models can be trained at the same time (the two halves, then methods
            and seeds)."""),
            "",
            filled(f"""**2.4 million pictures, eight GPUs.** {trained[1]:,.0f} GPU hours take {
                trained[1] / 8:.0f} hours on eight GPUs. The pictures do not fit on one GPU ({
                size(2.4e6 * PICTURE_BYTES)
            }), so they are read from staged files. Eight GPUs that each process {at.trained:,.0f}
            pictures per second read {size(eight * PICTURE_BYTES)} per second from the memory-mapped files and copy
            {size(eight * WINDOW_BYTES)} of crops per second. Stage the pictures on a fast local disk of
            each machine. Without staging, {eight:,.0f} pictures per second must be decoded, which takes
            {eight / DECODED:,.0f} cores. Scoring after every epoch takes
            {100 * at.trained / at.scored:.0f} % of the training time of INCV. In Python, `checkpoint="last"` avoids
            it."""),
            "",
            filled(f"""**A billion pictures.** {trained[2]:,.0f} GPU hours take one day on {cards:,} GPUs.
            Computation is not the bottleneck:"""),
            "",
            item(f"""Staged pictures ({size(1e9 * PICTURE_BYTES)}) do not fit on local disks. The pictures would
            have to stay on shared storage as JPEG in large files and to be decoded while they are read. At
            {cards * at.trained:,.0f} pictures per second, this takes {cards * at.trained / host:,.0f} machines
            of the kind assumed above."""),
            item(f"""Each process needs {size(found[2][1]["host_bytes"])} of memory: {size(1e9 * HOST_BYTES)} at the
            peak of the selection, and the rest for ids and file names. The per-sample data would have to be
            distributed over several machines. Selection uses counts per class and the largest losses and
            confidences, which can be merged exactly."""),
            item("""The order of the samples in an epoch, a permutation of 10^9 int64 values, takes 8 GB per
            process. To avoid this, the files can be permuted first, and then the samples within a few
            files at a time."""),
            item(
                """With one row per sample, `labels.csv` is too large for one text file. It would have to be
            replaced by several Parquet files."""
            ),
        ]
    )


def filled(text: str, indent: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()), 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def item(text: str) -> str:
    return filled(f"- {text}", "  ")


def renewed(page: str, at: Speed) -> str:
    """Return the page with an updated computed part."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{computed(at)}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), speed()), encoding="utf-8")
