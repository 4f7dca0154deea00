"""Picture files in, uint8 [height, width, 3] out, the shorter side `side` pixels; and the window a code cuts out.

JPEGs are decoded at the smallest eighth that is still large enough (pillow's draft mode, simplejpeg's scaling), which
is most of the speed. numpy and pillow only, so that decoding processes start quickly; simplejpeg is used where it is
installed. A picture that cannot be read never stops anything: it becomes a grey one and is counted.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.open_image import MOST_PIXELS, TURNS, open_checked, orientation, upright
from labelsieve.errors import InputError
from labelsieve.types import IntArray

if TYPE_CHECKING:
    from PIL import Image

Pixels = NDArray[np.uint8]
Decoder = Literal["auto", "pillow", "simplejpeg"]

SIDE = 256  # the paper's: "resize each image to make shorter size as 256"
CROP = 227  # the window cut out of it, the paper's too; smaller pictures are cut to their shorter side
LONGEST = 4  # a side longer than 4 times the shorter is cut around its middle: banners must not fill the disk
SPAN = 127  # crop positions a side; odd, so that one is the middle, and codes fit 16 bits
CODES = 2 * SPAN * SPAN  # with the mirrored ones
CENTRE = (SPAN // 2) * SPAN + SPAN // 2
GREY = 128
TURN_MARKS = (b"Exif\0\0", b"tiff:Orientation")  # one of them is in every JPEG that says how it is turned


class UnreadablePictureError(ValueError):
    """Why a file is not a picture."""


@cache
def best_decoder() -> Literal["pillow", "simplejpeg"]:
    try:
        import simplejpeg  # noqa: F401
    except ImportError:
        return "pillow"
    return "simplejpeg"


def decode(data: bytes, *, side: int = SIDE, decoder: Decoder = "auto") -> Pixels:
    """The picture in `data`, upright, RGB, resized so that its shorter side is `side`."""
    from PIL import Image

    chosen = best_decoder() if decoder == "auto" else decoder
    pixels = _simplejpeg(data, side) if chosen == "simplejpeg" and data[:2] == b"\xff\xd8" else None
    if pixels is not None and min(pixels.shape[:2]) == side and max(pixels.shape[:2]) <= LONGEST * side:
        return pixels
    picture = _pillow(data, side) if pixels is None else Image.fromarray(pixels)
    short = min(picture.size)
    # first the cut, then the resize: a file of 1 x 60,000 pixels must not become gigabytes
    margins = [max(0, length - LONGEST * short) for length in picture.size]
    if any(margins):
        left, top = (margin // 2 for margin in margins)
        width, height = (length - margin for length, margin in zip(picture.size, margins, strict=True))
        picture = picture.crop((left, top, left + width, top + height))
    if short != side:
        width, height = (max(side, round(length * side / short)) for length in picture.size)
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(picture)


def _simplejpeg(data: bytes, side: int) -> Pixels | None:
    """None where it is not sure of itself (CMYK, small damages) or turns nothing: pillow has the last word."""
    import simplejpeg

    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
        if colours not in ("YCbCr", "RGB", "Gray") or height * width > MOST_PIXELS or _turned(data):
            return None
        pixels: Pixels = simplejpeg.decode_jpeg(data, "RGB", min_height=side, min_width=side)
        return pixels
    except ValueError:
        return None


def _pixels_begin(data: bytes) -> int:
    """Where a JPEG's metadata end: segments with their lengths, up to the scan; its end where it is built oddly."""
    at = 2
    while data[at : at + 1] == b"\xff" and at + 4 <= len(data):
        if data[at + 1] == 0xDA:
            return at
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return len(data)


def _turned(data: bytes) -> bool:
    """Whether a JPEG is to be turned. Most have no mark of it, and a search takes less time than a parser."""
    end = _pixels_begin(data)
    if all(data.find(mark, 0, end) < 0 for mark in TURN_MARKS):
        return False
    try:
        with open_checked(io.BytesIO(data)) as picture:
            return orientation(picture) in TURNS
    except Exception:  # pillow cannot read it at all: then it cannot say how it is turned
        return False


def _pillow(data: bytes, side: int) -> Image.Image:
    from PIL import UnidentifiedImageError

    try:
        with open_checked(io.BytesIO(data)) as picture:
            picture.draft("RGB", (side, side))
            found: Image.Image = upright(picture)
            return found
    except UnidentifiedImageError as problem:  # its own words name an object in memory
        raise UnreadablePictureError("not a readable picture: of no known format") from problem
    except InputError as problem:
        raise UnreadablePictureError(f"not a readable picture: {problem}") from problem
    except Exception as problem:  # pillow's decoders raise whatever their format's library does
        raise UnreadablePictureError(f"not a readable picture ({type(problem).__name__}: {problem})") from problem


def decode_file(path: str | Path, *, side: int = SIDE, decoder: Decoder = "auto") -> Pixels:
    try:
        data = Path(path).read_bytes()
    except OSError as problem:
        raise UnreadablePictureError(f"cannot be read ({problem.strerror or problem})") from problem
    if not data:
        raise UnreadablePictureError("empty file")
    return decode(data, side=side, decoder=decoder)


def decode_many(paths: list[str], side: int, decoder: Decoder) -> list[Pixels | str]:
    """Pictures, or why they are none."""
    found: list[Pixels | str] = []
    for path in paths:
        try:
            found.append(decode_file(path, side=side, decoder=decoder))
        except UnreadablePictureError as problem:
            found.append(str(problem))
    return found


def grey(side: int) -> Pixels:
    return np.full((side, side, 3), GREY, dtype=np.uint8)


def place(code: int, height: int, width: int, crop: int) -> tuple[int, int, bool]:
    """Where code's window lies (top, left) and whether it is mirrored; every position is equally likely."""
    mirrored, spot = divmod(code, SPAN * SPAN)
    row, column = divmod(spot, SPAN)
    return row * (height - crop + 1) // SPAN, column * (width - crop + 1) // SPAN, bool(mirrored)


def cut(picture: Pixels, code: int, crop: int) -> Pixels:
    """The crop x crop window of a code, as a view; mirroring is left to the device."""
    top, left, _ = place(code, picture.shape[0], picture.shape[1], crop)
    return picture[top : top + crop, left : left + crop]


def square(picture: Pixels, side: int) -> Pixels:
    """The middle side x side of a picture, as the paper's supplement C shows them."""
    top, left = (picture.shape[0] - side) // 2, (picture.shape[1] - side) // 2
    return picture[top : top + side, left : left + side]


class PictureSequence:
    """Pictures of different sizes that look like an array of squares to whoever wants one.

    `x[3]` is a whole picture; `x[2:9]`, `x[indices]` and `np.asarray(x)` are middle squares, [n, side, side, 3].
    """

    side: int
    unreadable: dict[int, str]

    def __len__(self) -> int:
        raise TypeError("a sequence of pictures has a length")

    def picture(self, i: int) -> Pixels:
        raise TypeError("a sequence of pictures has pictures")

    def tell_unreadable(self, new: Iterable[int]) -> None:
        """Warns of pictures that turned out unreadable only now, when they are already part of a run."""
        found = sorted(new)
        if len(self.unreadable) == len(self) > 0:
            raise InputError(f"none of the {len(self):,} pictures can be read (the first: {self.unreadable[0]})")
        if found:
            named = ", ".join(f"{self.describe(i)}: {self.unreadable[i]}" for i in found[:3])
            count = f"{len(found):,} of {len(self):,} pictures cannot be read"
            warnings.warn(f"{count} and are shown as grey ones; take them out ({named})", stacklevel=3)

    def describe(self, i: int) -> str:
        return f"picture {i}"

    @overload
    def __getitem__(self, i: int) -> Pixels: ...
    @overload
    def __getitem__(self, i: slice | NDArray[Any] | list[int]) -> Pixels: ...
    def __getitem__(self, i: int | slice | NDArray[Any] | list[int]) -> Pixels:
        if isinstance(i, int | np.integer):
            place = int(i) + (len(self) if i < 0 else 0)
            if not 0 <= place < len(self):
                raise IndexError(f"picture {i} of {len(self)}")
            return self.picture(place)
        chosen = np.arange(len(self))[i]
        found = np.empty((len(chosen), self.side, self.side, 3), dtype=np.uint8)
        for row, j in enumerate(chosen.tolist()):
            found[row] = square(self.picture(j), self.side)
        return found

    def __iter__(self) -> Iterator[Pixels]:
        return (self.picture(i) for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or np.uint8, copy=False)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self), self.side, self.side, 3

    @property
    def ndim(self) -> int:
        return 4

    @property
    def dtype(self) -> np.dtype[np.uint8]:
        return np.dtype(np.uint8)


@dataclass(frozen=True)
class Pictures(PictureSequence):
    """Picture files, decoded when asked for. `unreadable` fills up with what turned out not to be pictures."""

    root: Path
    names: Sequence[str]
    side: int = SIDE
    decoder: Decoder = "auto"
    unreadable: dict[int, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if self.side < 1:
            raise InputError(f"side {self.side}: pictures need at least one pixel")

    def __len__(self) -> int:
        return len(self.names)

    def subset(self, index: IntArray) -> Pictures:
        """Some of the files."""
        places = index.tolist()
        bad = {row: self.unreadable[i] for row, i in enumerate(places) if i in self.unreadable}
        return replace(self, names=[self.names[i] for i in places], unreadable=bad)

    def path(self, i: int) -> str:
        return f"{self.root}{os.sep}{self.names[i]}"

    def describe(self, i: int) -> str:
        return self.names[i]

    def picture(self, i: int) -> Pixels:
        try:
            return decode_file(self.path(i), side=self.side, decoder=self.decoder)
        except UnreadablePictureError as problem:
            self.unreadable[i] = str(problem)
            return grey(self.side)
