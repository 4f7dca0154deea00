"""Samples that are there twice, exactly, with different labels: one of the two is wrong whatever a model says."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.types import IntArray, LabelledData

HEAD = 4096  # bytes of a file that nearly always tell it from others of its length
MOST_BYTES = 2**30  # of pictures in memory that are looked at; a second

Groups = list[list[int]]


@dataclass
class Same:
    """Samples whose files are the same: gathered while a source is read, judged when its labels are known."""

    groups: Groups | None = None  # None: nobody looked


def same_files(files: Sequence[Any]) -> Groups:
    """Which of the files have the same bytes. Most are told apart by their length, then by their first bytes."""
    groups = [[i for i, file in enumerate(files) if isinstance(file, Path)]]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for look in (_length, _head, _whole):
            groups = [part for group in groups for part in _split(group, pool.map(look, [files[i] for i in group]))]
    return groups


def _split(group: list[int], keys: Iterable[Any]) -> Groups:
    parts = defaultdict(list)
    for i, key in zip(group, keys, strict=True):
        if key is not None:
            parts[key].append(i)
    return [part for part in parts.values() if len(part) > 1]


def _unreadable_is_none(look: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def careful(path: Path) -> Any:
        try:
            return look(path)
        except OSError:
            return None

    return careful


@_unreadable_is_none
def _length(path: Path) -> int:
    return path.stat().st_size


@_unreadable_is_none
def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.blake2b(file.read(HEAD), digest_size=16).digest()


@_unreadable_is_none
def _whole(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest()


def conflicting(data: LabelledData, same: Same) -> Groups:
    """Groups of the same sample with more than one label, in input order."""
    groups = same.groups
    if groups is None:
        keys = _keys(data)
        groups = _equal(keys) if keys is not None else []
    return sorted(group for group in groups if len(set(data.y[group].tolist())) > 1)


def about_conflicts(data: LabelledData, same: Same) -> str | None:
    """A sentence on them; None where there are none."""
    groups = conflicting(data, same)
    if not groups:
        return None
    first = groups[0][0]
    other = next(i for i in groups[0] if data.y[i] != data.y[first])
    count = sum(len(group) for group in groups)
    names = f"{data.ids[first]} ({data.classes[data.y[first]]}) and {data.ids[other]} ({data.classes[data.y[other]]})"
    return f"{count:,} samples occur more than once with different labels, e.g. {names}"


def _equal(keys: IntArray) -> Groups:
    """Places of equal keys, for keys that are there more than once; key 0 is nobody's."""
    order = np.argsort(keys, kind="stable")
    begins = np.flatnonzero(np.diff(keys[order], prepend=keys[order[:1]] - 1))
    ends = np.append(begins[1:], len(keys))
    many = (ends - begins > 1) & (keys[order][begins] != 0)
    pairs = zip(begins[many].tolist(), ends[many].tolist(), strict=True)
    return [order[begin:end].tolist() for begin, end in pairs]


def _keys(data: LabelledData) -> IntArray | None:
    """A hash of each sample; None where that would take long."""
    if data.kind == "text":
        # Nothing written is not the same thing written twice.
        return np.fromiter((hash(str(text)) if str(text).strip() else 0 for text in data.x), np.int64, len(data))
    if data.kind == "table":
        return _row_keys(data.x)
    x = data.x
    if not isinstance(x, np.ndarray) or x.nbytes > MOST_BYTES:
        return None
    digests = (hashlib.blake2b(np.ascontiguousarray(x[i]).data, digest_size=8).digest() for i in range(len(x)))
    return np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64)


def _row_keys(x: Any) -> IntArray:
    """Of rows as they were written where that is known: filling gaps and sharing levels makes different rows alike."""
    from labelsieve.data.cells import distinct_values

    if hasattr(x, "table"):
        columns: Iterable[IntArray] = (distinct_values(x.table.column(name))[0] for name in x.table.column_names)
    else:
        matrix = np.ascontiguousarray(x)
        columns = (matrix[:, i].astype(np.float64).view(np.int64) for i in range(matrix.shape[1]))
    keys: NDArray[np.uint64] = np.full(len(x), 0x9E3779B97F4A7C15, dtype=np.uint64)
    for column in columns:
        keys = (keys ^ column.astype(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
        keys ^= keys >> np.uint64(29)
    return keys.astype(np.int64)
