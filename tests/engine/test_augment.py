"""`auto` mirrors photographs and noise, and neither digits nor sides; a store that does not mirror still shifts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from labelsieve.data.decode import ShorterSide
from labelsieve.data.pictures import PictureFiles
from labelsieve.engine import stage_pictures
from labelsieve.engine.augment import check_augment, mirror_test, shrunk
from labelsieve.engine.picture_stores import CropStream
from labelsieve.engine.store import DevicePictures
from labelsieve.errors import InputError
from labelsieve.types import AUGMENT


def halves(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The bright half is the left or the right one."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    pictures = rng.integers(0, 80, (n, 16, 16, 1), dtype=np.uint8)
    for picture, side in zip(pictures, labels, strict=True):
        picture[:, 8 * side : 8 * side + 8] += 120
    return pictures, labels


def photographs(n: int, *, copies: int = 1, side: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Windows of two photographs, with things that look either way; copies differ by a little noise."""
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, n)
    photos, found = load_sample_images().images, []
    for label in labels:
        top, left = (int(rng.integers(0, size - side)) for size in photos[label].shape[:2])
        window = photos[label][top : top + side, left : left + side]
        found.append(window[:, ::-1] if rng.random() < 0.5 else window)
    several = np.repeat(np.stack(found), copies, axis=0).astype(int)
    noisy = several + rng.integers(-8, 9, several.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8), np.repeat(labels, copies)


def all_of(labels: np.ndarray) -> np.ndarray:
    return np.arange(len(labels))


@pytest.mark.parametrize("wrong", [0.0, 0.3])
def test_digits_are_not_mirrored(wrong: float) -> None:
    from sklearn.datasets import load_digits

    found = load_digits()
    pictures = np.kron((found.images * 15).astype(np.uint8), np.ones((1, 2, 2), np.uint8))[..., None]
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(len(pictures)) < wrong, rng.integers(0, 10, len(pictures)), found.target)
    seen = mirror_test(pictures, labels, all_of(labels))
    assert seen.harms and seen.plain > seen.mirrored


def test_sides_are_not_mirrored_even_where_there_are_few() -> None:
    pictures, labels = halves(600)
    assert mirror_test(pictures, labels, all_of(labels))[:2] == (1.0, 0.0)
    assert mirror_test(pictures, labels, np.arange(40)).harms
    assert not mirror_test(pictures, labels, np.arange(10)).harms  # too few to be sure
    assert mirror_test(pictures, labels, np.arange(1)) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("copies", [1, 2, 5])
def test_photographs_are_mirrored_also_where_they_are_there_several_times(copies: int) -> None:
    pictures, labels = photographs(1000 // copies, copies=copies)
    seen = mirror_test(pictures, labels, all_of(labels))
    assert not seen.harms and seen.mirrored > 0.6  # the classes differ, mirrored or not


@pytest.mark.parametrize("classes", [2, 10])
def test_noise_is_mirrored(classes: int) -> None:
    rng = np.random.default_rng(classes)
    pictures = rng.integers(0, 256, (1000, 12, 12, 3), dtype=np.uint8)
    labels = rng.integers(0, classes, 1000)
    assert not mirror_test(pictures, labels, all_of(labels)).harms
    assert not mirror_test(np.zeros_like(pictures), labels, all_of(labels)).harms


def test_large_pictures_are_averaged() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (70, 48, 33, 3), dtype=np.uint8)
    small = shrunk(pictures, np.arange(0, 70, 2))
    assert small.shape == (35, 16, 16, 3)
    np.testing.assert_allclose(small[1, 0, 0], pictures[2, :3, :2].mean((0, 1)), rtol=1e-6)


def test_a_store_that_does_not_mirror_shifts() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)
    whole, half, plain = stage_pictures(pictures), stage_pictures(pictures), stage_pictures(pictures, augment=False)
    for store in (half, half, plain):  # a second call changes nothing
        store.disable_mirroring()
    assert half.codes == 25 and whole.codes == 50 and not half.mirrors and half.plain == whole.plain
    assert plain.codes == 1
    index = torch.zeros((1, half.codes), dtype=torch.int64)
    seen = half.batch(index, torch.arange(half.codes)[None])
    assert len(torch.unique(seen, dim=0)) == 25
    assert not any(torch.equal(one, seen[half.plain].flip(2)) for one in seen)


@pytest.mark.parametrize("kind", [DevicePictures, CropStream])
def test_pictures_from_files_too(kind, tmp_path) -> None:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    store = kind(PictureFiles(tmp_path, ["a.png"], ShorterSide(24)), "cpu", crop=24, workers=0)
    before = store.codes
    half = store
    half.disable_mirroring()
    index = torch.zeros((1, 2), dtype=torch.int64)
    first, last = half.batch(index, torch.tensor([[0, half.codes - 1]]))
    assert 2 * half.codes == before and torch.equal(first, last)  # the whole picture, either way


def test_what_is_not_known() -> None:
    for mode in AUGMENT:
        check_augment(mode)
    with pytest.raises(InputError, match=r"augment 'flip'.* auto, mirror, shift or none"):
        check_augment("flip")
