"""A picture as people see it: upright, RGB, white where it was transparent; and which files are opened at all.

The loader, the decoder of large sets and the pages all go this way, so that a page shows what a network saw. numpy and
pillow only: decoding processes start with it.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np

from labelsieve.errors import InputError

MOST_PIXELS = 100_000_000
# Formats with a plain decoder: nothing that runs another program (EPS) or reads other files.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
ORIENTATION = 0x0112  # EXIF's
# What brings a picture of that orientation upright.
TURNS = {
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE",
    8: "ROTATE_90",
}  # fmt: skip
SIDEWAYS = (5, 6, 7, 8)


class _Quiet:
    """No warnings while anyone is inside: odd metadata and odd palettes are not the user's business.

    `warnings.catch_warnings` puts back what it found. Of two threads the later one finds the silence of the other and
    leaves it behind for good; so the first one in remembers, and the last one out puts back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = warnings.catch_warnings()
                self._before.__enter__()
                warnings.simplefilter("ignore")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._before.__exit__(None, None, None)


quiet = _Quiet()


def open_checked(file: Any) -> Any:
    """An opened PIL picture of a known format and a sane size; nothing is decoded yet."""
    from PIL import Image

    with quiet:
        opened = Image.open(file, formats=FORMATS)
    pixels = opened.size[0] * opened.size[1]
    if pixels > MOST_PIXELS:
        opened.close()
        raise InputError(f"too large: {pixels / 1e6:.0f} megapixels, at most {MOST_PIXELS / 1e6:.0f} are read")
    return opened


def orientation(picture: Any) -> int:
    """EXIF's, 1 where it says none; metadata that cannot be read are no reason to lose the picture."""
    try:
        with quiet:
            return int(picture.getexif().get(ORIENTATION, 1))
    except Exception:  # pillow's parsers raise whatever they meet
        return 1


def upright_size(opened: Any) -> tuple[int, int]:
    """(height, width) after EXIF's rotation."""
    width, height = opened.size
    # pillow turns a TIFF itself, and gives its size as if that were done
    sideways = opened.format != "TIFF" and orientation(opened) in SIDEWAYS
    return (width, height) if sideways else (height, width)


def upright(picture: Any) -> Any:
    """RGB, turned as EXIF says, white where it was transparent."""
    from PIL import Image

    with quiet:
        picture.load()  # a TIFF is upright from here on, and says so
        turn = TURNS.get(orientation(picture))
        if picture.mode.startswith("I") or picture.mode == "F":
            picture = Image.fromarray(_eight_bits(picture))
        if picture.has_transparency_data:
            picture = picture.convert("RGBA")
            picture = Image.alpha_composite(Image.new("RGBA", picture.size, (255, 255, 255, 255)), picture)
        picture = picture.convert("RGB")
        return picture if turn is None else picture.transpose(Image.Transpose[turn])


def _eight_bits(picture: Any) -> Any:
    """16 or 32 bits a pixel: PIL would clip where we want to scale."""
    values = np.asarray(picture, dtype=np.float64)
    top = 65535.0 if picture.mode.startswith("I") and values.max(initial=0) > 255 else 255.0
    return np.clip(values * (255.0 / top), 0, 255).astype(np.uint8)
