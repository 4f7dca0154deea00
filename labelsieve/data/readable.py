"""Which picture files cannot be read, without decoding most of them.

A JPEG whose header can be parsed and which has its end is believed; everything else is decoded. What slips through (an
error in the middle of a file) shows when it is decoded for training, as a warning.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from labelsieve.data.decode import Pictures, UnreadablePictureError, decode_file
from labelsieve.data.open_image import open_checked
from labelsieve.data.workers import usable_cores
from labelsieve.progress import Progress

TAIL = 1024  # bytes in which a JPEG's end mark is looked for; some programs write a little behind it
AT_ONCE = 1_024  # between two looks at the clock: on a slow disk some seconds


def problem(path: str, side: int) -> str | None:
    """Why a file is no picture; None: it is one."""
    try:
        if not _whole_jpeg(path):
            decode_file(path, side=side)
    except UnreadablePictureError as found:
        return str(found)
    return None


def _whole_jpeg(path: str) -> bool:
    try:
        with Path(path).open("rb") as file:
            if file.read(2) != b"\xff\xd8":
                return False
            file.seek(-min(TAIL, os.fstat(file.fileno()).st_size), os.SEEK_END)
            if b"\xff\xd9" not in file.read():
                return False
            file.seek(0)
            with open_checked(file):
                return True
    except Exception:  # pillow's parsers raise whatever they meet; decoding has the last word
        return False


def unreadable(pictures: Pictures, progress: Progress | None = None) -> dict[int, str]:
    """Which of the files are no pictures, and why."""
    found: dict[int, str] = {}
    told = (progress or Progress(silent=True)).stage("looking at pictures", len(pictures), unit="pictures")
    # the threads mostly wait for the disk
    with told as stage, ThreadPoolExecutor(min(32, 4 * usable_cores())) as pool:
        for first in range(0, len(pictures), AT_ONCE):
            some = range(first, min(first + AT_ONCE, len(pictures)))
            reasons = pool.map(lambda i: problem(pictures.path(i), pictures.side), some)
            found |= {i: reason for i, reason in zip(some, reasons, strict=True) if reason is not None}
            stage.advance(len(some))
    return found


__all__ = ["problem", "unreadable"]
