"""One way to look at a picture: the loader, large sets and the pages see the same."""

from __future__ import annotations

import io
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from labelsieve.data import decode
from labelsieve.data.decode import ExactSize, ShorterSide, UnreadablePictureError
from labelsieve.report.samples import render

SIDE = 16
CORNERS = {"top left": 200, "top right": 120, "bottom left": 60, "bottom right": 10}


def quarters(height: int = 48, width: int = 32) -> Image.Image:
    """Every turn and every mirror image of it is another picture."""
    pixels = np.zeros((height, width, 3), np.uint8)
    for name, grey in CORNERS.items():
        rows = slice(0, height // 2) if "top" in name else slice(height // 2, None)
        columns = slice(0, width // 2) if "left" in name else slice(width // 2, None)
        pixels[rows, columns] = grey
    return Image.fromarray(pixels)


def saved(picture: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def turned(orientation: int, kind: str = "JPEG") -> bytes:
    if kind == "TIFF":
        return saved(quarters(), kind, tiffinfo={decode.EXIF_ORIENTATION: orientation})
    exif = Image.Exif()
    exif[decode.EXIF_ORIENTATION] = orientation
    return saved(quarters(), kind, exif=exif)


def seen(data: bytes) -> dict[str, np.ndarray]:
    """By everyone who looks at pictures, at the size that has a shorter side of SIDE."""
    found = {"large sets": decode.decode(data, ShorterSide(SIDE))}
    found["loader"] = decode.decode(data, ExactSize(*found["large sets"].shape[:2]))
    with decode.open_checked(io.BytesIO(data)) as opened:
        shown = Image.open(io.BytesIO(render(opened, 1000).data)).convert("RGB")
    found["page"] = np.asarray(shown.resize(found["large sets"].shape[1::-1]))
    return found


def apart(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one.astype(int) - other.astype(int)).mean())


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_all_turn_a_picture_alike(orientation: int, kind: str) -> None:
    data = turned(orientation, kind)
    with Image.open(io.BytesIO(data)) as opened:
        expected = ImageOps.exif_transpose(opened).convert("RGB")
        assert decode.upright_size(Image.open(io.BytesIO(data))) == expected.size[::-1]
    small = (SIDE, 24) if orientation < 5 else (24, SIDE)
    for who, picture in seen(data).items():
        assert apart(picture, np.asarray(expected.resize(small))) < 10, who
        assert orientation == 1 or apart(picture, np.asarray(quarters().resize(small))) > 20, who


def test_a_jpeg_without_metadata_is_not_turned() -> None:
    found = decode.decode(saved(quarters(), "JPEG", quality=95), ShorterSide(32))
    assert found.shape == (48, 32, 3) and apart(found, np.asarray(quarters())) < 4


def test_a_jpeg_that_is_built_oddly_is_turned_as_well() -> None:
    data = turned(6)
    padded = data[:2] + b"\xff" * 3 + data[2:]  # a marker may have any number of bytes before it
    for who, picture in seen(padded).items():
        assert picture.shape == (SIDE, 24, 3), who


def test_xmp_turns_as_well() -> None:
    data = saved(quarters(), "JPEG", xmp=b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>')
    for who, picture in seen(data).items():
        assert picture.shape == (SIDE, 24, 3), who


def deep(mode: str, value: float) -> Image.Image:
    return Image.fromarray(np.full((20, 20), value, {"F": np.float32, "I;16": np.uint16}[mode]))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (saved(Image.new("RGBA", (20, 20), (255, 0, 0, 0)), "PNG"), 255),  # white, not the red that nobody sees
        (saved(Image.new("LA", (20, 20), (0, 0)), "PNG"), 255),
        (saved(Image.new("P", (20, 20), 0), "PNG", transparency=0), 255),
        (saved(Image.new("P", (20, 20), 0), "GIF", transparency=0), 255),
        (saved(Image.new("RGB", (20, 20), (9, 9, 9)), "PNG", transparency=(9, 9, 9)), 255),
        (saved(deep("I;16", 128 * 257), "PNG"), 128),
        (saved(deep("F", 300.0), "TIFF"), 255),  # clipped: numbers that may be anything have no scale
        (saved(deep("F", 90.0), "TIFF"), 90),
    ],
    ids=["rgba", "grey", "palette", "gif", "one colour", "16 bits", "float above", "float"],
)
def test_all_see_the_same_colours(data: bytes, expected: int) -> None:
    for who, picture in seen(data).items():
        assert np.abs(picture.astype(int) - expected).max() <= 1, who


def odd_metadata() -> bytes:
    """EXIF that pillow reads but cannot write again: a number where a text should be."""
    exif = Image.Exif()
    exif[decode.EXIF_ORIENTATION] = 6
    exif[0x010E] = "words"
    data = bytearray(saved(quarters(), "JPEG", exif=exif))
    entry = data.index(b"\x01\x0e\x00\x02")  # the tag and its type, big-endian
    data[entry + 2 : entry + 4] = b"\x00\x0c"  # now a floating point number
    return bytes(data)


def test_odd_metadata_are_no_reason_to_lose_a_picture() -> None:
    for who, picture in seen(odd_metadata()).items():
        assert picture.shape == (SIDE, 24, 3), who


def test_a_picture_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MAX_PIXELS", 1_000)
    with pytest.raises(UnreadablePictureError, match="too large: 0 megapixels"):
        decode.decode(saved(quarters(), "JPEG"), ShorterSide(SIDE))


def test_decoding_in_threads_leaves_warnings_as_they_were(tmp_path: Path) -> None:
    data = saved(Image.effect_noise((100, 100), 50).convert("RGB"), "PNG")
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: decode.decode(data, ShorterSide(SIDE)), range(2_000)))
    assert warnings.filters == before
    with pytest.warns(UserWarning, match="heard"):
        warnings.warn("heard", UserWarning, stacklevel=1)
