"""CIFAR-10, CIFAR-100 and CIFAR-10N from a folder, in the official binary or Python format.

The files in Python format are pickles. A pickle is a program: it may name any callable and call it. `read_dict` runs
none: names of numpy lead to functions of this module, which build arrays from bytes. It refuses everything else, and
small files that would fill the memory.

cifar10:DIR    cifar100:DIR    cifar10n:DIR?labels=worse|aggregate|random1|random2|random3|clean
each with --split train (the default), test or all
"""

from __future__ import annotations

import functools
import io
import pickle
import pickletools
import shlex
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.read_options import DEFAULTS, ReadOptions, choose_splits, parse_source
from labelsieve.errors import InputError, first_line
from labelsieve.files import open_archive, read_bytes, read_text
from labelsieve.progress import SILENT, Progress
from labelsieve.types import IntArray, LabelledData

Pictures = NDArray[np.uint8]

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10N_LABELS = {
    "worse": "worse_label",
    "aggregate": "aggre_label",
    "aggre": "aggre_label",
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
    "clean": "clean_label",
}
CIFAR100_NAMES = "fine_label_names"  # with .txt a file of the binary format, in the Python format a key of meta
HUMAN = "CIFAR-10_human.pt"
NUMBER_TYPES = ("b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")
MAX_UNPACKED = 2**30  # bytes of an unpacked zip file; the known ones have a few million


class _Layout(NamedTuple):
    """Names of the files of a data set in both formats, and of the labels in them."""

    classes: int
    label_bytes: int  # before each picture; the last of them is the fine label
    binary: dict[str, tuple[str, ...]]  # in the Python format without .bin
    label_key: str
    folders: tuple[str, ...]


_LAYOUTS = {
    "cifar10": _Layout(
        10,
        1,
        {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)},
        "labels",
        ("", "cifar-10-batches-bin", "cifar-10-batches-py"),
    ),
    "cifar100": _Layout(
        100,
        2,
        {"train": ("train.bin",), "test": ("test.bin",)},
        "fine_labels",
        ("", "cifar-100-binary", "cifar-100-python"),
    ),
}


def from_binary(path: Path, *, label_bytes: int = 1, classes: int = 10) -> tuple[Pictures, IntArray]:
    """Read records of `label_bytes` labels and 3,072 bytes: the red, green and blue plane, row by row."""
    raw = np.frombuffer(read_bytes(path), dtype=np.uint8)
    if len(raw) == 0 or len(raw) % (label_bytes + 3072):
        raise InputError(f"{path} has {len(raw)} bytes, not a multiple of {label_bytes + 3072}: fetch it again")
    rows = raw.reshape(-1, label_bytes + 3072)
    return _pictures(rows[:, label_bytes:]), _labels(rows[:, label_bytes - 1], path, classes)


def from_python(path: Path, *, label_key: str = "labels", classes: int = 10) -> tuple[Pictures, IntArray]:
    """Read the "python version": a pickled dict, from which no code is run."""
    content = read_dict(path, label_key)
    rows = content.get("data")
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != 3072:
        raise InputError(
            f"{path} has no 'data' with 3,072 bytes per picture, so it is not a CIFAR batch: download it again"
        )
    labels = _labels(content[label_key], path, classes)
    if len(labels) != len(rows):
        raise InputError(f"{path} has {len(rows)} pictures but {len(labels)} labels: fetch it again")
    return _pictures(rows), labels


def _pictures(rows: Pictures) -> Pictures:
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _labels(found: Any, path: Path, classes: int) -> IntArray:
    # An array of texts would need as much memory for each of them as for the longest.
    texts = isinstance(found, list | tuple) and any(isinstance(label, str | bytes) for label in found)
    values = np.asarray(None if texts else found)
    if (
        values.ndim != 1
        or values.dtype.kind not in "iu"
        or (len(values) and not 0 <= values.min() <= values.max() < classes)
    ):
        raise InputError(f"{path} has labels outside 0..{classes - 1}: check that it belongs to this data set")
    return values.astype(np.int64)


def split(folder: Path | str, name: str = "cifar10", part: str = "train") -> tuple[Pictures, IntArray]:
    """Return pictures [n,32,32,3] and labels of the training or the test part."""
    layout = _LAYOUTS[name]
    batches = _batches(Path(folder), layout, part)
    if not batches:
        missing = ", ".join(layout.binary[part])
        command = shlex.join(["labelsieve", "data", "fetch", name, "--to", str(folder)])
        raise InputError(f"{folder} does not contain {name} ({missing}): download it with `{command}`")
    if batches[0].name in layout.binary[part]:
        return _join([from_binary(file, label_bytes=layout.label_bytes, classes=layout.classes) for file in batches])
    return _join([from_python(file, label_key=layout.label_key, classes=layout.classes) for file in batches])


def _batches(folder: Path, layout: _Layout, part: str) -> list[Path]:
    """Return the files of a part in the first format that is complete, or none."""
    for inner in layout.folders:
        for suffix in (".bin", ""):
            found = [folder / inner / (name.removesuffix(".bin") + suffix) for name in layout.binary[part]]
            if all(file.is_file() for file in found):
                return found
    return []


def files(spec: str) -> list[Path]:
    """Return the files that `load` may read."""
    name, folder, _ = _parse(spec)
    layout = _LAYOUTS["cifar100" if name == "cifar100" else "cifar10"]
    batches = [file for part in parts_of(name) for file in _batches(folder, layout, part)]
    return [*batches, folder / HUMAN] if name == "cifar10n" else batches


def parts_of(name: str) -> tuple[str, ...]:
    """The splits of a data set; people labelled the training pictures only."""
    return ("train",) if name == "cifar10n" else ("train", "test")


def _join(parts: Sequence[tuple[Pictures, IntArray]]) -> tuple[Pictures, IntArray]:
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def arrays(folder: Path | str, name: str = "cifar10") -> tuple[Pictures, IntArray, Pictures, IntArray]:
    """Return x_train, y_train, x_test, y_test; pictures are uint8 [n,32,32,3]."""
    return (*split(folder, name, "train"), *split(folder, name, "test"))


def human_labels(folder: Path | str, labels: str = "worse") -> IntArray:
    """Return the labels of CIFAR-10N, which people gave to the training pictures of CIFAR-10."""
    if labels not in CIFAR10N_LABELS:
        raise InputError(f"cifar10n has no labels {labels!r}: choose one of {', '.join(CIFAR10N_LABELS)}")
    path = Path(folder) / HUMAN
    if not path.is_file():
        raise InputError(f"{path} is missing: copy CIFAR-10_human.pt of CIFAR-10N to the folder of CIFAR-10")
    values = read_dict(path, CIFAR10N_LABELS[labels])[CIFAR10N_LABELS[labels]]
    return _labels(values, path, 10)


def class_names(folder: Path | str, name: str = "cifar10") -> tuple[str, ...]:
    """Return the official names; those of CIFAR-100 are read from its folder, numbers if the file is missing."""
    if name != "cifar100":
        return CIFAR10_CLASSES
    layout = _LAYOUTS[name]
    for here in (Path(folder) / inner for inner in layout.folders):
        if (here / CIFAR100_NAMES).with_suffix(".txt").is_file():
            names = read_text((here / CIFAR100_NAMES).with_suffix(".txt")).split()
        elif (here / "meta").is_file():
            listed = read_dict(here / "meta", CIFAR100_NAMES)[CIFAR100_NAMES]
            listed = listed if isinstance(listed, list | tuple) else []
            names = [n.decode(errors="replace") if isinstance(n, bytes) else str(n) for n in listed]
        else:
            continue
        if len(names) == layout.classes:
            return tuple(names)
    return tuple(str(i) for i in range(layout.classes))


def load(spec: str, reading: ReadOptions = DEFAULTS, progress: Progress = SILENT) -> LabelledData:
    """Read `cifar10:DIR`, `cifar100:DIR` or `cifar10n:DIR?labels=worse`."""
    name, folder, chosen = _parse(spec)
    base = "cifar10" if name == "cifar10n" else name
    parts = choose_splits(parts_of(name), replace(reading, split=reading.split or "train"), spec, progress)
    read = [split(folder, base, part) for part in parts]
    x, y = read[0] if len(read) == 1 else _join(read)
    if name == "cifar10n":
        human = human_labels(folder, chosen)
        if len(human) != len(y):
            raise InputError(f"{HUMAN} has {len(human)} labels for {len(y)} pictures: copy the file of CIFAR-10N again")
        y = human
    ids = np.array([f"{part}-{i:05d}" for part, (_, own) in zip(parts, read, strict=True) for i in range(len(own))])
    return LabelledData(x=x, y=y, classes=class_names(folder, base), ids=ids, kind="pictures", name=name)


def _parse(spec: str) -> tuple[str, Path, str]:
    """Return the data set, its folder and the labels."""
    name, colon, _ = spec.partition(":")
    if not colon:
        raise InputError(f"cannot read {spec!r}: write cifar10:DIR, cifar100:DIR or cifar10n:DIR?labels=worse")
    folder, options = parse_source(spec, name, ("labels",) if name == "cifar10n" else ())
    return name, Path(folder), options.get("labels", "worse")


# ---------------------------------------------------------------- pickles
#
# Arrays are views of the bytes that the pickle has: it can use the same bytes many times, so that copies would fill the
# memory.


class _DType:
    """Replaces numpy.dtype, which would accept any type."""

    def __init__(self, code: Any, *_: Any) -> None:
        code = _text(code).lstrip("<>|=")
        if code not in NUMBER_TYPES:
            raise ValueError(f"an array of the type {code!r}")
        self.dtype = np.dtype(code).newbyteorder("<")

    def __setstate__(self, state: Any) -> None:
        self.dtype = self.dtype.newbyteorder(">" if _text(state[1]) == ">" else "<")

    def numbers(self, content: Any) -> NDArray[Any]:
        return np.frombuffer(content, self.dtype)


class _Array:
    """Replaces the function that makes an empty array, whose state then is its content."""

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        self.values = dtype.numbers(content).reshape(shape, order="F" if fortran else "C")


def _scalar(dtype: _DType, content: Any) -> Any:
    return dtype.numbers(content).item()


def _bytes(value: Any = b"") -> bytes:
    return value.encode("latin1") if isinstance(value, str) else bytes(memoryview(value))


def _text(value: Any) -> str:
    return _bytes(value).decode("latin1")


_NAMES: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): None,  # an argument of _reconstruct, which nothing calls
    ("numpy", "dtype"): _DType,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy._core.multiarray", "scalar"): _scalar,
    ("_codecs", "encode"): _bytes,
    ("__builtin__", "bytes"): _bytes,
}


class _Function:
    """What a pickle names. It can be called, but has no state that a pickle can set for every later file."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise ValueError("a state of a function")


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, fix_imports=False, encoding="bytes")
        self.encoded = functools.cache(_bytes)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMES:
            raise ValueError(f"the name {module}.{name}")
        if _NAMES[module, name] is _bytes:
            return _Function(lambda value=b"", *_: self.encoded(value))
        return _Function(_NAMES[module, name])


def read_dict(path: Path, needs: str) -> dict[str, Any]:
    """Return the dictionary in `path` that has the key `needs`: numbers, texts, arrays, and lists of numbers and texts.

    The file is a pickle, several pickles (torch's old format) or torch's zip format.
    """
    try:
        content = read_bytes(path)
        if zipfile.is_zipfile(io.BytesIO(content)):
            content = _unzipped(content)
        stream = io.BytesIO(content)
        while stream.tell() < len(content):
            _check_places(stream)
            found = _Unpickler(stream).load()
            named = {_text(key): key for key in found} if isinstance(found, dict) else {}
            if needs in named:
                return {name: _plain(found[key]) for name, key in named.items()}
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except Exception as error:  # a damaged pickle raises errors of many types, some with its content
        raise InputError(
            f"{path} is damaged or has more than plain arrays ({first_line(error)}): download it again"
        ) from error
    raise InputError(f"{path} has no entry {needs!r}: check that it is the right file, or download it again")


def _unzipped(content: bytes) -> bytes:
    with open_archive(io.BytesIO(content), MAX_UNPACKED) as archive:
        inside = next((name for name in archive.namelist() if name.endswith("data.pkl")), None)
        if inside is None:
            raise ValueError("a zip file without data.pkl")
        return archive.read(inside)


def _check_places(stream: io.BytesIO) -> None:
    """Refuse memo numbers that exceed the number of values: the unpickler allocates memory for them."""
    start = stream.tell()
    for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > count:
            raise ValueError(f"a value in place {argument}")
    stream.seek(start)


def _plain(value: Any) -> Any:
    if isinstance(value, _Array):
        return value.values
    for entry in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(entry, str | bytes | int | float | None):
            raise ValueError(f"a nested {type(entry).__name__}")
    return value
