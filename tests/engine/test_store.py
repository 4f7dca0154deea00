from __future__ import annotations

import numpy as np
import pytest
import torch

from labelsieve.engine import PictureStore, VectorStore, stage_pictures
from labelsieve.errors import InputError

CPU = torch.device("cpu")


def by_hand(picture: np.ndarray, shift: int, code: int) -> np.ndarray:
    """Pad with the edge, crop at the code's place, flip if it says so."""
    span = 2 * shift + 1
    padded = np.pad(picture, ((shift, shift), (shift, shift), (0, 0)), mode="edge")
    place = code % (span * span)
    top, left = place // span, place % span
    crop = padded[top : top + picture.shape[0], left : left + picture.shape[1]]
    return crop[:, ::-1] if code >= span * span else crop


def test_every_code_is_a_crop_and_a_flip_of_the_right_picture():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (5, 6, 8, 3), dtype=np.uint8)
    store = PictureStore(x, CPU, shift=2, mean=np.zeros(3), std=np.ones(3))
    assert store.codes == 50
    index = torch.tensor([[0, 1, 2], [4, 4, 3]])
    for code in range(0, store.codes, 2):
        batch = store.batch(index, torch.tensor([[code, code + 1, code], [0, code, store.plain]]))
        assert batch.shape == (3, 6, 6, 8)  # [B, networks * channels, H, W]
        for network, b in np.ndindex(2, 3):
            own = [[code, code + 1, code], [0, code, store.plain]][network][b]
            expected = by_hand(x[index[network, b]], 2, own).transpose(2, 0, 1) / 255
            np.testing.assert_allclose(batch[b, 3 * network : 3 * network + 3], expected, atol=1e-6)


def test_the_plain_code_changes_nothing_and_normalises():
    x = np.random.default_rng(1).integers(0, 256, (50, 16, 16, 3), dtype=np.uint8)
    store = stage_pictures(x)
    batch = store.batch(torch.arange(50)[None], torch.full((1, 50), store.plain))
    raw = batch.permute(0, 2, 3, 1).numpy() * store.std + store.mean
    np.testing.assert_allclose(raw * 255, x, atol=1e-3)
    assert batch.mean(dim=(0, 2, 3)).abs().max() < 1e-5
    assert (batch.std(dim=(0, 2, 3)) - 1).abs().max() < 1e-3


def test_a_test_set_takes_the_training_sets_normalisation():
    x = np.random.default_rng(1).integers(0, 100, (20, 16, 16, 3), dtype=np.uint8)
    train = stage_pictures(x)
    test = stage_pictures(x + 100, statistics=(train.mean, train.std), augment=False)
    assert np.array_equal(train.mean, test.mean) and test.codes == 1


def test_rows_of_numbers_stand_side_by_side():
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    store = VectorStore(x, CPU)
    batch = store.batch(torch.tensor([[0, 1], [3, 2]]), torch.zeros(2, 2, dtype=torch.long))
    assert batch.tolist() == [[0, 1, 2, 9, 10, 11], [3, 4, 5, 6, 7, 8]]


def test_arrays_of_more_axes_stand_side_by_side_along_the_first():
    x = np.arange(4 * 2 * 3, dtype=np.float32).reshape(4, 2, 3)
    store = VectorStore(x, CPU)
    batch = store.batch(torch.tensor([[0, 1], [3, 2]]), torch.zeros(2, 2, dtype=torch.long))
    assert store.shape == (2, 3) and batch.shape == (2, 4, 3)
    assert np.array_equal(batch[0], np.concatenate([x[0], x[3]])) and np.array_equal(batch[1, 2:], x[2])


def test_what_are_no_pictures_is_said():
    with pytest.raises(InputError, match=r"uint8 .* not float64 \[3, 4\]"):
        PictureStore(np.zeros((3, 4)), CPU)  # type: ignore[arg-type]
