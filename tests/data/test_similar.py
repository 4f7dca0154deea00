from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from labelsieve.data import similar
from labelsieve.data.similar import MIN_SAMPLES, find_similar, join_groups, stored_similar
from labelsieve.types import Kind


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    """1,200 samples around 6 centres; 100 near copies, then 20 samples far from all others."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 64))
    samples = centres[rng.integers(0, 6, 1200)] + rng.normal(size=(1200, 64))
    copies = samples[:100] + 0.1 * rng.normal(size=(100, 64))
    far = -3 * centres.mean(axis=0) + 0.6 * rng.normal(size=(20, 64))
    return np.concatenate([samples, copies, far]).astype(np.float32)


def test_near_copies_share_a_group_and_others_do_not(rows: np.ndarray) -> None:
    group = find_similar(rows).group
    assert np.array_equal(group[1200:1300], np.arange(100))
    assert np.array_equal(group[:1200], np.arange(1200))


def test_a_cluster_of_outliers_is_found(rows: np.ndarray) -> None:
    outlier = find_similar(rows).outlier
    assert outlier[1300:].all() and outlier[:1300].mean() < 0.02


def test_the_length_of_the_rows_does_not_matter(rows: np.ndarray) -> None:
    scale = np.random.default_rng(1).uniform(0.1, 10, (len(rows), 1)).astype(np.float32)
    one, other = find_similar(rows), find_similar(rows * scale)
    assert np.array_equal(one.group, other.group) and np.array_equal(one.outlier, other.outlier)


def test_many_samples_are_compared_in_parts(rows: np.ndarray) -> None:
    exact, parts = find_similar(rows), find_similar(rows, exact=300)
    assert np.mean(exact.group == parts.group) > 0.99


@pytest.mark.parametrize("count", [MIN_SAMPLES, 3000])
def test_equal_rows_and_zeros(count: int) -> None:
    rng = np.random.default_rng(2)
    unlike = rng.normal(size=(count, 16)).astype(np.float32)
    rows = np.concatenate([unlike, np.repeat(unlike[:1], count // 4, axis=0), np.zeros((3, 16), np.float32)])
    group = find_similar(rows, exact=500).group
    assert (group[count : count + count // 4] == 0).all()
    assert np.array_equal(group[-3:], np.arange(len(rows) - 3, len(rows)))  # nothing is known about zeros


def test_rows_that_say_nothing() -> None:
    same = find_similar(np.ones((200, 8), dtype=np.float32))
    assert not same.outlier.any() and np.array_equal(same.group, np.arange(200))
    few = find_similar(np.ones((MIN_SAMPLES - 1, 8), dtype=np.float32))
    assert not few.outlier.any() and len(np.unique(few.group)) == MIN_SAMPLES - 1


def test_groups_are_joined_over_several_pairs() -> None:
    pairs = np.array([[4, 2], [2, 1], [5, 6]])
    assert join_groups(8, pairs).tolist() == [0, 1, 1, 3, 1, 5, 5, 7]


def test_what_was_found_is_read_the_next_time_unless_the_file_is_damaged(
    rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "similar.npz"
    first = stored_similar(path, rows, "pictures")
    calls = []

    def counted(some: np.ndarray, kind: Kind) -> similar.SimilarSamples:
        calls.append(kind)
        return find_similar(some, kind)

    monkeypatch.setattr(similar, "find_similar", counted)
    again = stored_similar(path, rows, "pictures")
    assert not calls
    assert np.array_equal(again.group, first.group) and np.array_equal(again.outlier, first.outlier)
    stored_similar(path, rows, "text")  # other limits
    stored_similar(path, rows[:900], "text")
    path.write_bytes(path.read_bytes()[:100])
    cut = stored_similar(path, rows, "pictures")
    assert calls == ["text", "text", "pictures"] and np.array_equal(cut.group, first.group)
    np.savez(path, group=first.group + len(rows), outlier=first.outlier, limits=np.array([0.2, 2.3]))
    assert np.array_equal(stored_similar(path, rows, "pictures").group, first.group)


def test_a_damaged_or_linked_result_is_found_again(tmp_path):
    rows = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)
    path = tmp_path / "similar.npz"
    expected = stored_similar(path, rows, "text")
    other = {"group": np.zeros(80, dtype=np.int64), "outlier": np.ones(80, dtype=bool), "limits": np.array([0.1, 3.0])}
    for extra in ({"more": np.zeros(10**7)}, {"group": np.full(80, 2.5)}):
        np.savez_compressed(path, **other | extra, allow_pickle=False)
        if "group" in extra:  # an entry that is not an array
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("group.npy", b"\x93NUMPY\x01\x00\x06\x00{'a':(")
        assert np.array_equal(stored_similar(path, rows, "text").outlier, expected.outlier)
    np.savez(tmp_path / "elsewhere.npz", **other)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere.npz")
    assert np.array_equal(stored_similar(path, rows, "text").outlier, expected.outlier)
    assert not path.is_symlink() and np.load(tmp_path / "elsewhere.npz")["outlier"].all()
