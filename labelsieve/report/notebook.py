"""The most suspicious labels of a run as the HTML that a notebook shows."""

from __future__ import annotations

import html
from pathlib import Path

import numpy as np

from labelsieve.frames import SHOWN_SUSPECTS, THUMBNAIL_SIDE, Suspect, picture_html, sample_html, suspects_html
from labelsieve.report.samples import Missing, Picture, Row, Sample, open_samples
from labelsieve.runfolder import RunFolder


def run_html(path: Path, title: str) -> str:
    """Return the first suspects of a run, with thumbnails of pictures."""
    run = RunFolder.existing(path)
    columns = run.columns()
    samples = open_samples(run, columns)
    rows = columns.ranked(np.flatnonzero(columns.suspect()))[:SHOWN_SUSPECTS].tolist()
    return suspects_html(
        title,
        (
            Suspect(
                _shown(samples.show(row, side=THUMBNAIL_SIDE)), columns.name(int(columns.label[row])),
                columns.name(int(columns.suggested[row])), float(columns.suspicion[row]),
            )
            for row in rows
        ),
    )  # fmt: skip


def _shown(sample: Sample) -> str:
    if isinstance(sample, Picture):
        return picture_html(sample.data, sample.media)
    if isinstance(sample, Missing):
        return html.escape(sample.reason)
    if isinstance(sample, Row):
        return sample_html(", ".join(f"{name}: {cell}" for name, cell in sample.cells))
    return sample_html(sample.text)
