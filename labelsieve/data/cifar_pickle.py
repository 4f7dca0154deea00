"""Read numpy arrays, numbers and text from an untrusted pickle file.

A pickle is a program: it may name any callable and call it. Here the only names are those of numpy's own pickles, and
they lead to the small substitutes below, never to numpy: an array is built from its bytes after its shape, type and
length were checked. Everything else is refused, and so is a small file that would fill the memory: arrays without
their bytes, nested lists that share their parts, zip files that expand without limit.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from labelsieve.errors import InputError
from labelsieve.files import read_bytes

_TYPES = {"b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"}
_MAX_UNPACKED = 2**30  # bytes of an unpacked zip file; the known ones have a few million


class Refused(pickle.UnpicklingError):
    """The pickle asks for something that plain arrays do not need."""


def _text(value: Any) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


class _DType:
    """Replaces numpy.dtype: holds the type code and the byte order, both from short lists."""

    def __init__(self, code: Any = "", *_: Any) -> None:
        self.code = _text(code).lstrip("<>|=")
        if self.code not in _TYPES:
            raise Refused(f"array type {self.code!r}")
        self.order = "<"

    def __setstate__(self, state: Any) -> None:
        order = _text(state[1])
        if order not in "<>|=":
            raise Refused(f"byte order {order!r}")
        self.order = ">" if order == ">" else "<"

    def real(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.code)


class _Array:
    """Replaces an array: numpy pickles it empty, then sets its state."""

    value: NDArray[Any] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        if isinstance(content, str):  # Python 2 text
            content = content.encode("latin1")
        if not (isinstance(dtype, _DType) and isinstance(content, bytes) and isinstance(shape, tuple)):
            raise Refused("an array that is not plain numbers")
        if not all(type(n) is int and n >= 0 for n in shape):
            raise Refused(f"array shape {shape!r}")
        real = dtype.real()
        if math.prod(shape) * real.itemsize != len(content):
            raise Refused(f"array of shape {shape} with {len(content)} bytes")
        flat = np.frombuffer(content, real).astype(real.newbyteorder("="))
        self.value = flat.reshape(shape, order="F" if fortran else "C")


class _NdArrayName:
    """Replaces numpy.ndarray, which is only named, never called."""

    def __init__(self, *_: Any) -> None:
        raise Refused("a call of numpy.ndarray")

    def __setstate__(self, state: Any) -> None:
        raise Refused("a state for numpy.ndarray")


class _Call:
    """Replaces a function. Unlike a function it has no attributes that a pickle could set."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *values: Any) -> Any:
        return self._function(*values)

    def __setstate__(self, state: Any) -> None:
        raise Refused("a state for a function")


def _reconstruct(kind: Any, *_: Any) -> _Array:
    if kind is not _NdArrayName:
        raise Refused("an array of another class")
    return _Array()


def _scalar(dtype: Any, content: Any) -> Any:
    array = _Array()
    array.__setstate__((1, (), dtype, False, content))
    assert array.value is not None
    return array.value.item()


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    if not isinstance(text, str) or _text(encoding) != "latin1":
        raise Refused("a text encoding other than latin1")
    return text.encode("latin1")


def _empty_bytes() -> bytes:
    return b""


_NAMES: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _NdArrayName,
    ("numpy", "dtype"): _DType,
    ("numpy.core.multiarray", "_reconstruct"): _Call(_reconstruct),
    ("numpy._core.multiarray", "_reconstruct"): _Call(_reconstruct),
    ("numpy.core.multiarray", "scalar"): _Call(_scalar),
    ("numpy._core.multiarray", "scalar"): _Call(_scalar),
    ("_codecs", "encode"): _Call(_encode),
    ("__builtin__", "bytes"): _Call(_empty_bytes),
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _NAMES[module, name]
        except KeyError:
            raise Refused(f"the name {module}.{name}") from None

    def persistent_load(self, pid: Any) -> Any:
        raise Refused("an object stored outside the pickle")


def _plain(value: Any, left: list[int], depth: int = 0) -> Any:
    """Convert substitutes to arrays and keys to text. `left` counts the values that may still follow."""
    left[0] -= 1
    if depth > 20 or left[0] < 0:
        raise Refused("data nested too deep")
    if isinstance(value, _Array):
        if value.value is None:
            raise Refused("an array without contents")
        return value.value
    if isinstance(value, dict):
        return {_key(k): _plain(v, left, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v, left, depth + 1) for v in value]
    if value is None or isinstance(value, (str, bytes, int, float)):
        return value
    raise Refused(f"a {type(value).__name__}")


def _key(key: Any) -> Any:
    return key.decode("latin1") if isinstance(key, bytes) else key


def _check_places(stream: BinaryIO) -> None:
    """Refuse memo numbers that exceed the number of values: the unpickler allocates memory for them."""
    start = stream.tell()
    for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > count:
            raise Refused(f"a value in place {argument}")
    stream.seek(start)


def _load(stream: BinaryIO) -> Any:
    start = stream.tell()
    _check_places(stream)
    loaded = _Reader(stream, fix_imports=False, encoding="bytes").load()
    # Every value takes at least one byte, unless lists share their parts.
    return _plain(loaded, [stream.tell() - start])


def read_dict(path: Path, needs: str) -> dict[str, Any]:
    """Return the dictionary in `path` that has the key `needs`.

    The file is a pickle, several pickles (torch's old format) or torch's zip format.
    """
    try:
        content = read_bytes(path)
        if zipfile.is_zipfile(io.BytesIO(content)):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                inside = [name for name in archive.namelist() if name.endswith("data.pkl")]
                if not inside:
                    raise Refused("a zip file without data.pkl")
                if archive.getinfo(inside[0]).file_size > _MAX_UNPACKED:
                    raise Refused(f"more than {_MAX_UNPACKED:,} bytes once unpacked")
                content = archive.read(inside[0])
        stream = io.BytesIO(content)
        while stream.tell() < len(content):
            found = _load(stream)
            if isinstance(found, dict) and needs in found:
                return found
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except Refused as error:
        raise InputError(f"{path} does not contain plain arrays only, but {error}: download it again") from error
    except Exception as error:  # a damaged pickle raises errors of many types
        raise InputError(f"{path} is damaged ({type(error).__name__}): download it again") from error
    raise InputError(f"{path} has no entry {needs!r}: is it the right file?")
