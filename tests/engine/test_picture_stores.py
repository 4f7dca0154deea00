"""The stream: the same batches whatever the workers, the device store's batches, and exact resume within an epoch."""

from __future__ import annotations

import os
import signal
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from labelsieve.data.decode import GREY, ShorterSide
from labelsieve.data.make_webvision import make
from labelsieve.data.pictures import CENTRE, SPAN, PictureFiles, place
from labelsieve.data.stage import StagedPictures, stage
from labelsieve.data.webvision import listed_training
from labelsieve.engine.method import in_batches
from labelsieve.engine.picture_stores import CropStream, picture_store
from labelsieve.engine.store import MEAN, STD, DevicePictures
from labelsieve.errors import InputError
from labelsieve.types import IntArray

SIDE, CROP = 32, 25
pytestmark = pytest.mark.filterwarnings("ignore:.*replaced by grey ones")  # one warning; tested below


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> PictureFiles:
    folder = tmp_path_factory.mktemp("made") / "webvision"
    make(folder, classes=3, train=12, validation=1, side=40, corrupt=1, seed=3)
    found = listed_training(folder, side=SIDE).x
    assert isinstance(found, PictureFiles)
    return found


@pytest.fixture(scope="module")
def staged(pictures: PictureFiles, tmp_path_factory: pytest.TempPathFactory) -> StagedPictures:
    return stage(pictures, tmp_path_factory.mktemp("stage"), workers=1)


def epoch(samples: int, *, networks: int = 2, batch: int = 8, seed: int = 0) -> tuple[list[IntArray], list[IntArray]]:
    """Index and code batches of an epoch, [n, B] each, as the engine makes them: a function of the seed alone."""
    rng = np.random.default_rng(seed)
    order = [in_batches(rng.permutation(samples), batch) for _ in range(networks)]
    index = list(np.stack(order, axis=1))
    return index, [rng.integers(2 * SPAN * SPAN, size=i.shape) for i in index]


def by_hand(pictures: PictureFiles | StagedPictures, index: IntArray, code: IntArray) -> np.ndarray:
    """[B, n*3, crop, crop] from the definition."""
    n, b = index.shape
    x = np.zeros((b, n, 3, CROP, CROP))
    for i in range(n):
        for j in range(b):
            if index[i, j] >= 0:
                picture = np.array(pictures[int(index[i, j])])
                top, left, mirrored = place(int(code[i, j]), *picture.shape[:2], CROP)
                window = picture[top : top + CROP, left : left + CROP]
                window = window[:, ::-1] if mirrored else window
            else:
                window = np.full((CROP, CROP, 3), GREY, dtype=np.uint8)
            x[j, i] = ((window / 255 - MEAN) / STD).transpose(2, 0, 1)
    return x.reshape(b, n * 3, CROP, CROP)


def run(store: CropStream, index: list[IntArray], code: list[IntArray]) -> list[torch.Tensor]:
    store.expect(index, code)
    return [store.batch(i, c) for i, c in zip(index, code, strict=True)]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_batches_are_what_the_definition_says(pictures: PictureFiles) -> None:
    store = CropStream(pictures, crop=CROP, workers=0)
    assert store.shape == (3, CROP, CROP) and len(store) == 36
    index, code = epoch(36)
    assert (index[-1] == -1).any()
    for x, i, c in zip(run(store, index, code), index, code, strict=True):
        assert x.shape == (8, 6, CROP, CROP)
        np.testing.assert_allclose(x.numpy(), by_hand(pictures, i, c), atol=1e-5)
    assert len(store.pictures.unreadable) == 1  # the corrupt file: grey, counted, and no reason to stop


def test_any_number_of_workers_gives_the_same_batches(pictures: PictureFiles, staged: StagedPictures) -> None:
    index, code = epoch(36)
    reference = run(CropStream(pictures, crop=CROP, workers=0), index, code)
    for source, workers in ((pictures, 2), (staged, 0), (staged, 2)):
        with CropStream(source, crop=CROP, workers=workers) as store:
            assert same(run(store, index, code), reference), (type(source).__name__, workers)
            assert len(store.pictures.unreadable) == 1


def test_an_epoch_stopped_in_its_middle_goes_on_in_order(pictures: PictureFiles) -> None:
    index, code = epoch(36, seed=5)
    with CropStream(pictures, crop=CROP, workers=2) as store:
        whole = run(store, index, code)
        store.expect(iter(index), iter(code))
        seen = [store.batch(index[step], code[step]) for step in range(2)]  # stopped, with batches under way
        again, codes_again = epoch(36, seed=5)  # a new process makes the order anew from the seed ...
    with CropStream(pictures, crop=CROP, workers=0) as other:
        rest = run(other, again[2:], codes_again[2:])  # ... and asks for what is left of it
        assert same(seen + rest, whole)
        # The negative control: without the saved position the order is not the same.
        forgotten = run(other, again, codes_again)[: len(rest)]
        assert not same(seen + forgotten, whole)
        # Nor from another seed.
        other_order, other_codes = epoch(36, seed=6)
        assert not same(seen + run(other, other_order[2:], other_codes[2:]), whole)


def test_the_engine_asks_batch_by_batch_and_finds_them_ready(pictures: PictureFiles) -> None:
    index, code = epoch(36)
    reference = run(CropStream(pictures, crop=CROP, workers=0), index, code)
    made: list[int] = []
    with CropStream(pictures, crop=CROP, workers=2) as store:
        task = store._task
        store._task = lambda keys: (made.append(len(keys)), task(keys))[1]  # type: ignore[method-assign]
        store.expect(index, code)
        for step, (i, c) in enumerate(zip(index, code, strict=True)):
            valid = i >= 0
            if step == 1:  # scoring comes in between and disturbs nothing
                plain = store.batch(np.array([[5, 6]]), np.full((1, 2), store.plain))
                np.testing.assert_allclose(
                    plain.numpy(), by_hand(pictures, np.array([[5, 6]]), np.full((1, 2), CENTRE)), atol=1e-5
                )
            # padding arrives as sample 0
            x = store.batch(torch.as_tensor(np.where(valid, i, 0)), torch.as_tensor(c))
            real = valid.all(0)
            assert torch.equal(x[real], reference[step][real])
            # networks one at a time: the same windows again
            alone = store.batch(i[1:, real], c[1:, real])
            assert torch.equal(alone, reference[step][real][:, 3:])
    # Each expected step is read once. Only the scoring batch is read at once, one sample by each worker.
    assert made.count(1) == 2 and len(made) == len(index) + 2


def test_the_device_store_gives_the_same_batches(pictures: PictureFiles, staged: StagedPictures) -> None:
    index, code = epoch(36)
    reference = run(CropStream(staged, crop=CROP, workers=0), index, code)
    for source in (pictures, staged):
        store = DevicePictures(source, crop=CROP, workers=1)
        assert len(store) == 36 and store.shape == (3, CROP, CROP)
        for i, c, x in zip(index, code, reference, strict=True):
            valid = torch.as_tensor((i >= 0).all(0))
            found = store.batch(torch.as_tensor(i), torch.as_tensor(c))
            assert torch.equal(found[valid], x[valid])
            gathered = store._batch_by_gather(torch.as_tensor(i), torch.as_tensor(c))  # what a GPU does
            torch.testing.assert_close(gathered[valid], x[valid], rtol=1e-5, atol=1e-5)
        assert len(store.pictures.unreadable) == 1


def test_decoding_into_the_device_store_by_processes_keeps_the_order(tmp_path: Path) -> None:
    make(tmp_path / "many", classes=2, train=40, validation=1, side=20, corrupt=1)
    found = listed_training(tmp_path / "many", side=16).x
    here = DevicePictures(found, crop=16, workers=0)
    there = DevicePictures(PictureFiles(found.root, found.names, ShorterSide(16)), crop=16, workers=2)
    assert torch.equal(here.pixels, there.pixels) and torch.equal(here.start, there.start)
    assert here.pictures.unreadable == there.pictures.unreadable and len(there.pictures.unreadable) == 1


@pytest.mark.parametrize("kind", [CropStream, DevicePictures])
def test_without_augmentation_there_is_one_code_the_middle(
    kind: type[CropStream] | type[DevicePictures], staged: StagedPictures
) -> None:
    store = kind(staged, crop=CROP, augment=False, workers=0)
    assert (store.codes, store.plain) == (1, 0)
    index = torch.arange(4)[None]
    x = store.batch(index, torch.zeros_like(index))
    np.testing.assert_allclose(x.numpy(), by_hand(staged, index.numpy(), np.full((1, 4), CENTRE)), atol=1e-5)


@pytest.mark.parametrize("wait", [0.0, 1.5])  # noticed while results are awaited, or when more work is handed out
def test_a_killed_worker_does_not_stop_the_epoch(pictures: PictureFiles, wait: float) -> None:
    index, code = epoch(36)
    reference = run(CropStream(pictures, crop=CROP, workers=0), index, code)
    with CropStream(pictures, crop=CROP, workers=1) as store:
        store.expect(index, code)
        found = [store.batch(index[0], code[0])]
        for pid in list(store._executor._processes):  # type: ignore[union-attr]
            os.kill(pid, signal.SIGKILL)
        time.sleep(wait)
        found += [store.batch(i, c) for i, c in zip(index[1:], code[1:], strict=True)]
        assert same(found, reference)
        # and a batch that nobody announced
        asked = store.batch(index[0], code[0])
        assert torch.equal(asked, reference[0])


def test_batches_that_grow_find_room(staged: StagedPictures) -> None:
    index = [np.array([[0]]), np.array([[0, 1, 2, 3, 4]]), np.array([[7, 8]])]
    code = [np.full_like(i, CENTRE) for i in index]
    with CropStream(staged, crop=CROP, workers=2) as store:
        assert [x.shape[0] for x in run(store, index, code)] == [1, 5, 2]


def test_what_fits_is_held_and_what_does_not_streams(pictures: PictureFiles, staged: StagedPictures) -> None:
    assert isinstance(picture_store(staged, crop=CROP, workers=0), DevicePictures)
    assert isinstance(picture_store(staged, crop=CROP, workers=0, hold=False), CropStream)
    assert 0.5 < pictures.nbytes / staged.nbytes < 2  # an estimate


def test_a_crop_larger_than_the_pictures_is_named(staged: StagedPictures) -> None:
    for kind in (CropStream, DevicePictures):
        with pytest.raises(InputError, match="crop 33"):
            kind(staged, crop=33)


@pytest.mark.parametrize("kind", [CropStream, DevicePictures])
def test_a_picture_found_damaged_while_training_is_told_once_by_name(
    kind: type[CropStream] | type[DevicePictures], pictures: PictureFiles
) -> None:
    fresh = PictureFiles(pictures.root, pictures.names, ShorterSide(SIDE))
    index, code = epoch(36)
    with warnings.catch_warnings(record=True) as text:
        warnings.simplefilter("always")
        store = kind(fresh, crop=CROP, workers=0)
        for i, c in zip(index * 2, code * 2, strict=True):
            store.batch(torch.as_tensor(i), torch.as_tensor(c))
    (bad,) = fresh.unreadable
    assert len(text) == 1
    assert fresh.names[bad] in str(text[0].message)


@pytest.mark.parametrize("kind", [CropStream, DevicePictures])
def test_nothing_trains_on_grey_pictures_alone(kind: type[CropStream] | type[DevicePictures], tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"no picture")
    pictures = PictureFiles(tmp_path, ["a", "b", "c"], ShorterSide(SIDE))
    with pytest.raises(InputError, match="none of the 3 pictures can be read"):
        store = kind(pictures, crop=CROP, workers=0)
        store.batch(torch.tensor([[0, 1, 2]]), torch.tensor([[0, 0, 0]]))


def test_worker_processes_start_without_torch(pictures: PictureFiles) -> None:
    """Sixteen of them would otherwise take seconds and gigabytes to import it."""
    with CropStream(pictures, crop=CROP, workers=1) as store:
        run(store, *epoch(36))
        assert store._executor is not None
        assert not store._executor.submit(eval, "'torch' in __import__('sys').modules").result()
