"""Decoding: sizes, scaling, windows, and files that are no pictures."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from labelsieve.data import decode
from labelsieve.data.decode import ShorterSide, UnreadablePictureError
from labelsieve.data.pictures import CENTRE, CODES, SPAN, PictureFiles, cut, place


def smooth(height: int, width: int) -> np.ndarray:
    """A picture that scaling hardly changes: a ramp in each channel."""
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    return (255 * np.stack([x, y, (x + y) / 2], axis=2)).astype(np.uint8)


def encoded(pixels: np.ndarray, kind: str = "JPEG", mode: str = "RGB") -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(out, format=kind, **({"quality": 95} if kind == "JPEG" else {}))
    return out.getvalue()


@pytest.mark.parametrize(("height", "width"), [(480, 640), (1200, 900), (40, 60), (32, 32)])
def test_the_shorter_side_is_what_was_asked_for(height: int, width: int) -> None:
    pixels = smooth(height, width)
    found = decode.decode(encoded(pixels), ShorterSide(64))
    scale = 64 / min(height, width)
    assert found.dtype == np.uint8
    assert found.shape == (round(height * scale), round(width * scale), 3)
    expected = smooth(*found.shape[:2]).astype(int)
    assert np.abs(found.astype(int) - expected).mean() < 4  # the same picture, not only the same shape


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_grey_and_printers_jpegs_become_rgb(mode: str) -> None:
    pixels = np.full((40, 40, 3), 90, dtype=np.uint8)
    found = decode.decode(encoded(pixels, mode=mode), ShorterSide(20))
    assert found.shape == (20, 20, 3)
    assert np.abs(found.astype(int) - 90).max() < 12


@pytest.mark.parametrize(("kind", "mode"), [("PNG", "RGBA"), ("PNG", "P"), ("GIF", "P"), ("WEBP", "RGB")])
def test_other_formats(kind: str, mode: str) -> None:
    assert decode.decode(encoded(smooth(30, 50), kind, mode), ShorterSide(10)).shape == (10, 17, 3)


def test_a_banner_is_cut_around_its_middle_before_it_is_enlarged() -> None:
    wide = np.zeros((1, 9_001, 3), dtype=np.uint8)
    wide[:, 4_498:4_503] = 255  # the middle
    found = decode.decode(encoded(wide, "PNG"), ShorterSide(32))
    assert found.shape == (32, 128, 3)
    assert found.max() > 200


@pytest.mark.parametrize("data", [b"", b"not a picture", encoded(smooth(64, 64))[:300], b"\xff\xd8\xff\xe0"])
def test_what_is_no_picture_says_so(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(data)
    with pytest.raises(UnreadablePictureError):
        PictureFiles(tmp_path, ["a.jpg"], ShorterSide(16)).decode(0)


def test_an_unreadable_picture_is_grey_and_counted(tmp_path: Path) -> None:
    (tmp_path / "good.png").write_bytes(encoded(smooth(20, 20), "PNG"))
    (tmp_path / "bad.png").write_bytes(b"x")
    pictures = PictureFiles(tmp_path, ["good.png", "bad.png", "missing.png"], ShorterSide(8))
    found = list(pictures)
    assert (found[0] != decode.GREY).any()
    for i in (1, 2):
        assert found[i].shape == (8, 8, 3) and (found[i] == decode.GREY).all()
    assert list(pictures.unreadable) == [1, 2]
    assert pictures.unreadable[2] == decode.FILE_NOT_FOUND


@given(st.integers(0, CODES - 1), st.integers(16, 300), st.integers(16, 300), st.integers(1, 16))
def test_windows_lie_inside(code: int, height: int, width: int, crop: int) -> None:
    top, left, _ = place(code, height, width, crop)
    assert 0 <= top <= height - crop
    assert 0 <= left <= width - crop


def test_codes_reach_every_position_equally_and_fit_sixteen_bits() -> None:
    assert np.iinfo(np.int16).max >= CODES - 1
    tops = np.bincount([place(row * SPAN, 256, 256, 227)[0] for row in range(SPAN)])
    assert len(tops) == 30 and tops.max() - tops.min() <= 1
    assert place(CENTRE, 256, 256, 227) == (14, 14, False)
    assert place(CENTRE, 255, 301, 227) == (14, 37, False)  # exact middles
    assert place(CENTRE + SPAN * SPAN, 256, 256, 227) == (14, 14, True)


def test_cut_is_a_view() -> None:
    picture = smooth(20, 30)
    window = cut(picture, 0, 16)
    assert np.shares_memory(picture, window)
    np.testing.assert_array_equal(window, picture[:16, :16])


def test_pictures_look_like_an_array_of_squares(tmp_path: Path) -> None:
    for name, (height, width) in {"wide.png": (20, 50), "tall.png": (40, 10), "small.png": (5, 5)}.items():
        (tmp_path / name).write_bytes(encoded(smooth(height, width), "PNG"))
    pictures = PictureFiles(tmp_path, ["wide.png", "tall.png", "small.png"], ShorterSide(10))
    assert pictures.shape == (3, 10, 10, 3) and pictures.ndim == 4 and pictures.dtype == np.uint8
    whole = np.asarray(pictures)
    assert whole.shape == pictures.shape and whole.dtype == np.uint8
    np.testing.assert_array_equal(whole[0], pictures[0][:, 7:17])  # 10 x 25: the middle
    np.testing.assert_array_equal(whole[1], pictures[1][15:25])  # 40 x 10
    np.testing.assert_array_equal(pictures[np.array([2, 0])], whole[[2, 0]])
    np.testing.assert_array_equal(pictures[1:], whole[1:])
    np.testing.assert_array_equal(pictures[-1], whole[2])
    with pytest.raises(IndexError):
        pictures[3]
