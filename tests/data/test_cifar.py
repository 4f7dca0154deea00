"""CIFAR folders written here, byte by byte, and read back."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from labelsieve.data import cifar
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.errors import InputError


def rows(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 3072), dtype=np.uint8)


def write_binary(folder: Path, n: int = 4) -> None:
    for i in range(1, 6):
        labels = np.arange(n, dtype=np.uint8)[:, None] + i
        np.concatenate([labels, rows(n, i)], axis=1).tofile(folder / f"data_batch_{i}.bin")
    np.concatenate([np.zeros((n, 1), np.uint8), rows(n, 9)], axis=1).tofile(folder / "test_batch.bin")


def test_binary_planes_become_points(tmp_path: Path) -> None:
    record = np.concatenate([[7], np.full(1024, 1), np.full(1024, 2), np.full(1024, 3)]).astype(np.uint8)
    record[1 + 33] = 99  # red plane, row 1, column 1
    record.tofile(tmp_path / "one.bin")
    x, y = cifar.from_binary(tmp_path / "one.bin")
    assert x.shape == (1, 32, 32, 3) and y.tolist() == [7]
    assert x[0, 0, 0].tolist() == [1, 2, 3]
    assert x[0, 1, 1].tolist() == [99, 2, 3]


def test_arrays_keep_the_order_of_the_batches(tmp_path: Path) -> None:
    write_binary(tmp_path)
    x_train, y_train, x_test, y_test = cifar.arrays(tmp_path)
    assert y_train.tolist() == [1, 2, 3, 4, 2, 3, 4, 5, 3, 4, 5, 6, 4, 5, 6, 7, 5, 6, 7, 8]
    assert x_train.shape == (20, 32, 32, 3) and x_test.shape == (4, 32, 32, 3) and y_test.tolist() == [0] * 4
    assert np.array_equal(x_train[5].transpose(2, 0, 1).reshape(-1), rows(4, 2)[1])


def test_python_format_gives_the_same_as_binary(tmp_path: Path) -> None:
    write_binary(tmp_path)
    inner = tmp_path / "py" / "cifar-10-batches-py"
    inner.mkdir(parents=True)
    for name, seed in [(f"data_batch_{i}", i) for i in range(1, 6)] + [("test_batch", 9)]:
        labels = [0] * 4 if seed == 9 else [k + seed for k in range(4)]
        content = {b"data": rows(4, seed), b"labels": labels, b"batch_label": b"one", b"filenames": [b"a.png"] * 4}
        (inner / name).write_bytes(pickle.dumps(content, protocol=2))
    for ours, theirs in zip(cifar.arrays(tmp_path / "py"), cifar.arrays(tmp_path), strict=True):
        assert np.array_equal(ours, theirs)


def test_cifar100_in_both_formats(tmp_path: Path) -> None:
    labels = np.array([[3, 40], [19, 99]], np.uint8)
    binary, python = tmp_path / "b", tmp_path / "p"
    binary.mkdir()
    python.mkdir()
    for part in ("train", "test"):
        np.concatenate([labels, rows(2)], axis=1).tofile(binary / f"{part}.bin")
        content = {"data": rows(2), "fine_labels": [40, 99], "coarse_labels": [3, 19]}
        (python / part).write_bytes(pickle.dumps(content, protocol=2))
    (python / "meta").write_bytes(pickle.dumps({"fine_label_names": [f"c{i}" for i in range(100)]}, protocol=2))
    one, other = cifar.load(f"cifar100:{binary}"), cifar.load(f"cifar100:{python}", ReadOptions(split="test"))
    assert one.y.tolist() == other.y.tolist() == [40, 99]
    assert np.array_equal(one.x, other.x)
    assert one.classes[5] == "5" and other.classes[5] == "c5"


def test_load_says_what_it_is(tmp_path: Path) -> None:
    write_binary(tmp_path)
    data = cifar.load(f"cifar10:{tmp_path}")
    assert (data.kind, data.name, len(data), data.classes[3]) == ("pictures", "cifar10", 20, "cat")
    assert data.ids[0] == "train-00000" and len(set(data.ids)) == 20
    test = load_source(f"cifar10:{tmp_path}", ReadOptions(split="test", allow_one_class=True))
    assert len(test) == 4 and test.ids[0] == "test-00000"
    both = load_source(f"cifar10:{tmp_path}", ReadOptions(split="all"))
    assert both.ids.tolist() == [*data.ids, *test.ids] and both.y.tolist() == [*data.y, *test.y]


def test_cifar10n_takes_the_labels_asked_for(tmp_path: Path) -> None:
    write_binary(tmp_path)
    human = {key: np.full(20, i, np.int64) for i, key in enumerate(dict.fromkeys(cifar.CIFAR10N_LABELS.values()))}
    (tmp_path / "CIFAR-10_human.pt").write_bytes(pickle.dumps(human))
    assert set(cifar.load(f"cifar10n:{tmp_path}").y.tolist()) == {0}
    assert set(cifar.load(f"cifar10n:{tmp_path}?labels=random2").y.tolist()) == {3}
    with pytest.raises(InputError, match="no labels 'best'"):
        cifar.load(f"cifar10n:{tmp_path}?labels=best")
    human["worse_label"] = np.zeros(7, np.int64)
    (tmp_path / "CIFAR-10_human.pt").write_bytes(pickle.dumps(human))
    with pytest.raises(InputError, match="7 labels for 20 pictures"):
        cifar.load(f"cifar10n:{tmp_path}?labels=worse")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cifar10:{0}/nowhere", "labelsieve data fetch cifar10"),
        ("cifar10:{0}?what=1", "'what' is not an option"),
        ("cifar10:{0}?split=test", "'split' is not an option.*--split"),
        ("cifar10:", "write cifar10:DIR"),
        ("cifar100", "write cifar10:DIR, cifar100:DIR"),
        ("cifar10n:{0}", "CIFAR-10_human.pt"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path: Path, spec: str, message: str) -> None:
    write_binary(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        cifar.load(spec.format(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "split", "message"),
    [("cifar10", "middle", "--split middle: .* train, test"), ("cifar10n", "test", "--split test: .* train$")],
)
def test_splits_that_do_not_exist(tmp_path: Path, name: str, split: str, message: str) -> None:
    write_binary(tmp_path)
    with pytest.raises(InputError, match=message):
        cifar.load(f"{name}:{tmp_path}", ReadOptions(split=split))


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    write_binary(tmp_path)
    with (tmp_path / "data_batch_3.bin").open("ab") as file:
        file.write(b"x")
    with pytest.raises(InputError, match="not a multiple of 3073"):
        cifar.load(f"cifar10:{tmp_path}")
    np.full(3073, 77, np.uint8).tofile(tmp_path / "data_batch_3.bin")
    with pytest.raises(InputError, match=r"labels outside 0\.\.9"):
        cifar.load(f"cifar10:{tmp_path}")


def test_the_command_that_fetches_can_be_pasted(tmp_path: Path) -> None:
    folder = tmp_path / "my data"
    with pytest.raises(InputError, match=re.escape(f"labelsieve data fetch cifar10 --to '{folder}'")):
        cifar.load(f"cifar10:{folder}")
