"""Decode encoded pictures (JPEG, PNG and other formats) to uint8 RGB arrays.

Every picture that labelsieve shows or trains on comes through this module, so that a page shows what a network saw:
upright (EXIF), RGB, white where it was transparent. JPEGs are decoded at the smallest scale that is still large enough,
which is most of the speed. The module needs numpy and pillow only, so that decoding processes start quickly.
"""

from __future__ import annotations

import io
import os
import threading
import warnings
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelsieve.errors import InputError, first_line
from labelsieve.files import read_bytes

Pixels = NDArray[np.uint8]

MAX_PIXELS = 100_000_000  # a larger picture would take more than 300 MB; Pillow warns from 89 million on
# Formats with a plain decoder: none of them runs another program (as EPS does) or reads other files.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
EXIF_ORIENTATION = 0x0112  # number of the tag in the EXIF standard
# The operation that turns a picture of an EXIF orientation upright.
TURNS = {
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE",
    8: "ROTATE_90",
}  # fmt: skip
SIDEWAYS = (5, 6, 7, 8)  # EXIF orientations that swap width and height

SIDE = 256  # shorter side in the paper: "resize each image to make shorter size as 256"
MAX_ASPECT = 4  # a longer picture is cut around its middle, so that a banner does not fill the disk
GREY = 128  # replaces a picture that cannot be read
JPEG_TAIL = 1024  # bytes in which a JPEG's end mark is searched: some programs write a little behind it
FILE_NOT_FOUND = "the file is not there"


class UnreadablePictureError(ValueError):
    """A file is not a picture that can be decoded; the message is the reason."""


class ShorterSide(NamedTuple):
    """Resize so that the shorter side has this number of pixels; the aspect ratio stays."""

    pixels: int


class ExactSize(NamedTuple):
    """Resize and cut out the middle, so that every picture has this size."""

    height: int
    width: int


Resize = ShorterSide | ExactSize


class _SilencedWarnings:
    """Silences warnings while at least one thread is inside.

    Pillow warns of unusual metadata and palettes, which users cannot change. `warnings.catch_warnings` restores the
    filters that it found: of two threads, the second would restore the silence of the first. Here the first thread in
    saves the filters and the last one out restores them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._saved = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._saved = warnings.catch_warnings()
                self._saved.__enter__()
                warnings.simplefilter("ignore")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._saved.__exit__(None, None, None)


silenced_warnings = _SilencedWarnings()


def open_checked(file: Any) -> Any:
    """Open a file, or a binary stream, as a PIL picture after checks of format and size; nothing is decoded yet."""
    from PIL import Image

    if isinstance(file, str | os.PathLike):
        file = io.BytesIO(read_bytes(file))
    with silenced_warnings:
        opened = Image.open(file, formats=FORMATS)
    pixels = opened.size[0] * opened.size[1]
    if pixels > MAX_PIXELS:
        opened.close()
        raise InputError(f"too large: {pixels / 1e6:.0f} megapixels, at most {MAX_PIXELS / 1e6:.0f} are read")
    return opened


def orientation(picture: Any) -> int:
    """Return the EXIF orientation, 1 if there is none or if the metadata are damaged."""
    try:
        with silenced_warnings:
            return int(picture.getexif().get(EXIF_ORIENTATION, 1))
    except Exception:  # pillow's parsers raise errors of many types
        return 1


def upright_size(opened: Any) -> tuple[int, int]:
    """Return (height, width) of a PIL picture after the EXIF rotation."""
    width, height = opened.size
    # pillow rotates a TIFF itself and reports the size after the rotation
    sideways = opened.format != "TIFF" and orientation(opened) in SIDEWAYS
    return (width, height) if sideways else (height, width)


def turn_upright(picture: Any) -> Any:
    """Convert a PIL picture to RGB, rotated by its EXIF orientation, white where it was transparent."""
    from PIL import Image

    with silenced_warnings:
        picture.load()  # a TIFF is upright from here on
        turn = TURNS.get(orientation(picture))
        if picture.mode.startswith("I") or picture.mode == "F":
            picture = Image.fromarray(_to_eight_bits(picture))
        if picture.has_transparency_data:
            picture = picture.convert("RGBA")
            picture = Image.alpha_composite(Image.new("RGBA", picture.size, (255, 255, 255, 255)), picture)
        picture = picture.convert("RGB")
        return picture if turn is None else picture.transpose(Image.Transpose[turn])


def _to_eight_bits(picture: Any) -> Pixels:
    """Scale 16 or 32 bits per pixel to 8, where PIL would clip."""
    values = np.asarray(picture, dtype=np.float64)
    top = 65535.0 if picture.mode.startswith("I") and values.max(initial=0) > 255 else 255.0
    return np.clip(values * (255.0 / top), 0, 255).astype(np.uint8)


def decode(data: bytes, resize: Resize) -> Pixels:
    """Decode an encoded picture to [height, width, 3]."""
    try:
        with open_checked(io.BytesIO(data)) as opened:
            opened.draft("RGB", (max(resize), max(resize)))
            picture = turn_upright(opened)
        return np.asarray(_fit(picture, resize) if isinstance(resize, ExactSize) else _shrink(picture, resize.pixels))
    except Exception as problem:  # pillow's decoders raise errors of many types
        raise UnreadablePictureError(reason(problem)) from problem


def reason(problem: Exception) -> str:
    """Say why a picture cannot be read."""
    from PIL import Image, UnidentifiedImageError

    if isinstance(problem, InputError | UnreadablePictureError):
        return str(problem)
    if isinstance(problem, UnidentifiedImageError):
        return "not a picture in a supported format"
    if isinstance(problem, Image.DecompressionBombError):
        return f"too large: at most {MAX_PIXELS / 1e6:.0f} megapixels are read"
    if isinstance(problem, FileNotFoundError):
        return FILE_NOT_FOUND
    if isinstance(problem, OSError) and problem.strerror:
        return f"cannot be read: {problem.strerror}"
    return f"damaged: {first_line(problem)}"


def _fit(picture: Any, size: ExactSize) -> Any:
    from PIL import Image, ImageOps

    wanted = (size.width, size.height)
    return picture if picture.size == wanted else ImageOps.fit(picture, wanted, method=Image.Resampling.BICUBIC)


def _shrink(picture: Any, side: int) -> Any:
    from PIL import Image

    short = min(picture.size)
    # the cut comes before the resize: a file of 1 x 60,000 pixels must not become gigabytes
    margins = [max(0, length - MAX_ASPECT * short) for length in picture.size]
    if any(margins):
        left, top = (margin // 2 for margin in margins)
        width, height = (length - margin for length, margin in zip(picture.size, margins, strict=True))
        picture = picture.crop((left, top, left + width, top + height))
    if short == side:
        return picture
    size = tuple(max(side, round(length * side / short)) for length in picture.size)
    return picture.resize(size, Image.Resampling.BILINEAR)


def is_whole_jpeg(file: BinaryIO) -> bool:
    """Return whether a file is a JPEG with a readable header and an end mark, without decoding it."""
    if file.read(2) != b"\xff\xd8":
        return False
    length = file.seek(0, io.SEEK_END)
    file.seek(-min(JPEG_TAIL, length), io.SEEK_END)
    if b"\xff\xd9" not in file.read():
        return False
    file.seek(0)
    try:
        open_checked(file)
        return True
    except Exception:  # decoding it gives the reason
        return False


def grey(resize: Resize) -> Pixels:
    """Return the picture that replaces an unreadable one."""
    height, width = resize if isinstance(resize, ExactSize) else (resize.pixels, resize.pixels)
    return np.full((height, width, 3), GREY, dtype=np.uint8)
