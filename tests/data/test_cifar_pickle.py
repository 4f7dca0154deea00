"""Plain arrays come through; anything that could act does not."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelsieve.data.cifar import class_names, from_python, read_dict
from labelsieve.errors import InputError


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("dtype", ["u1", "<i8", ">i4", "f4", "?"])
def test_arrays_round_trip(tmp_path: Path, protocol: int, dtype: str) -> None:
    value = np.arange(12).reshape(3, 4).astype(dtype)
    both = {"labels": value, "fortran": np.asfortranarray(value), "list": [1, 2], "one": np.int64(5)}
    (tmp_path / "a").write_bytes(pickle.dumps(both, protocol=protocol))
    read = read_dict(tmp_path / "a", "labels")
    assert np.array_equal(read["labels"], value) and np.array_equal(read["fortran"], value)
    assert read["labels"].dtype.newbyteorder("=") == value.dtype.newbyteorder("=")
    assert read["list"] == [1, 2] and read["one"] == 5


def test_a_python_2_pickle_as_the_official_files_are(tmp_path: Path) -> None:
    # Written out by opcode: {'labels': [6, 9], 'data': array of two rows}, strings as Python 2's cPickle wrote them.
    data = bytes(range(6))
    content = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05"
        b"(K\x01K\x02K\x03\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89U\x06" + data + b"tbU\x06labelsq\x08]q\x09(K\x06K\x09eu."
    )
    (tmp_path / "data_batch_1").write_bytes(content)
    read = read_dict(tmp_path / "data_batch_1", "labels")
    assert read["labels"] == [6, 9]
    assert read["data"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_torch_files_new_and_old(tmp_path: Path) -> None:
    import torch

    labels = {"worse_label": np.arange(5), "clean_label": np.arange(5)[::-1].copy()}
    torch.save(labels, tmp_path / "new.pt")
    torch.save(labels, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for name in ("new.pt", "old.pt"):
        assert read_dict(tmp_path / name, "worse_label")["clean_label"].tolist() == [4, 3, 2, 1, 0]


class Acts:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize(
    "evil",
    [
        Acts(os.mkdir, ("made",)),
        Acts(eval, ("open('made', 'w')",)),
        Acts(np.frombuffer, (b"1234", "u1")),
        Acts(np.dtype, ("O",)),
        Acts(np.ndarray, ((2,), "u1")),
        Acts(bytearray, (10,)),
        np.array([Acts(os.mkdir, ("made",))], dtype=object),
        np.array(["a", "b"]),
    ],
    ids=["mkdir", "eval", "frombuffer", "object-dtype", "ndarray", "bytearray", "object-array", "text-array"],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_what_acts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evil: Any, protocol: int) -> None:
    monkeypatch.chdir(tmp_path)
    plain = pickle.dumps({"labels": [1], "data": evil}, protocol=protocol)
    (tmp_path / "bad").write_bytes(plain)
    with zipfile.ZipFile(tmp_path / "bad.pt", "w") as archive:
        archive.writestr("archive/data.pkl", plain)
    for name in ("bad", "bad.pt"):
        with pytest.raises(InputError, match="plain arrays"):
            read_dict(tmp_path / name, "labels")
    assert not (tmp_path / "made").exists()


def test_lengths_must_agree(tmp_path: Path) -> None:
    honest = pickle.dumps({"labels": np.zeros(4, np.uint8)}, protocol=2)
    lie = honest.replace(b"K\x04\x85", b"K\x64\x85")
    assert lie != honest
    (tmp_path / "lie").write_bytes(lie)
    with pytest.raises(InputError, match="shape"):
        read_dict(tmp_path / "lie", "labels")


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "cut").write_bytes(pickle.dumps({"labels": [1, 2, 3]})[:-3])
    (tmp_path / "else").write_bytes(pickle.dumps({"other": 1}))
    empty = io.BytesIO()
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("x", "y")
    (tmp_path / "zip").write_bytes(empty.getvalue())
    for name, message in [("text", "damaged"), ("cut", "damaged"), ("else", "no entry 'labels'"), ("zip", "data.pkl")]:
        with pytest.raises(InputError, match=message):
            read_dict(tmp_path / name, "labels")
    with pytest.raises(InputError, match="cannot read"):
        read_dict(tmp_path / "missing", "labels")


def calls(value: bytes, call: bytes) -> bytes:
    """A pickle with a list of 20,000 calls, each with the same value."""
    return b"\x80\x03}X\x06\x00\x00\x00labels](" + value + b"q\x010" + 20_000 * call + b"es."


@pytest.mark.parametrize("opcode", [b"X", b"B"])
def test_a_value_that_is_used_often_is_stored_once(tmp_path: Path, opcode: bytes) -> None:
    value = opcode + struct.pack("<I", 500_000) + bytes(500_000)
    (tmp_path / "a").write_bytes(calls(value, b"c_codecs\nencode\nh\x01\x85R"))
    assert len({id(entry) for entry in read_dict(tmp_path / "a", "labels")["labels"]}) == 1


@pytest.mark.parametrize("state", [b"N}X\x0c\x00\x00\x00__defaults__)s\x86", b"}X\x01\x00\x00\x00aK\x01s"])
@pytest.mark.parametrize("name", [b"_codecs\nencode", b"numpy\ndtype", b"numpy\nndarray"])
def test_a_pickle_does_not_change_the_functions_that_it_names(tmp_path: Path, state: bytes, name: bytes) -> None:
    content = b"\x80\x02c" + name + b"\n" + state + b"b0}X\x06\x00\x00\x00labelsK\x01s."
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(InputError, match="a state of a function"):
        read_dict(tmp_path / "a", "labels")


def test_labels_and_class_names_that_are_no_lists_of_them(tmp_path: Path) -> None:
    texts = ["a" * 10**6] + [""] * 10**6  # 4 TB as an array
    batch = {"data": np.zeros((2, 3072), dtype=np.uint8), "labels": texts}
    (tmp_path / "batch").write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(InputError, match="labels outside"):
        from_python(tmp_path / "batch")
    for names in (5, [b"\xff"] * 99):
        (tmp_path / "meta").write_bytes(pickle.dumps({"fine_label_names": names}, protocol=2))
        assert class_names(tmp_path, "cifar100")[:2] == ("0", "1")
