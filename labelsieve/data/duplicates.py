"""Samples that are there twice, exactly: with different labels one of the two is wrong whatever a model says, with the
same label each would confirm the other's.
"""

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

from labelsieve.types import IntArray, Kind, LabelledData

HEAD = 4096  # bytes of a file that nearly always tell it from others of its length
MOST_BYTES = 2**30  # of pictures in memory that are looked at; a second
MOST_COPIES = 20  # what is there more often is something that people write, not one sample many times
FEWEST = 10  # different samples of a class; with fewer its repeats are all there is to learn from
INDEPENDENT = 0.05  # share of groups with several labels, from which on labels were given to each by itself

START = 0x9E3779B97F4A7C15  # of a hash

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


def repeated(data: LabelledData, same: Same) -> Groups:
    """Groups of the same sample, in input order."""
    if same.groups is None:
        keys = _keys(data)
        same.groups = _equal(keys) if keys is not None else []
    return sorted(group for group in same.groups if len(group) > 1)  # others may have been left out since


def conflicting(data: LabelledData, same: Same) -> Groups:
    """Those with more than one label."""
    return [group for group in repeated(data, same) if len(set(data.y[group].tolist())) > 1]


def copied(data: LabelledData, same: Same) -> IntArray | None:
    """A code a sample, the same for copies of one sample; None where there are none.

    Copies come with their labels: rows that were joined or drawn twice, files that were uploaded again. Where many of
    the same samples have several labels these were given to each by itself, as to rows of few columns with few values,
    or to what many people write: then they are no copies but as many witnesses.
    """
    groups = [group for group in repeated(data, same) if len(group) <= MOST_COPIES]
    several = sum(len(set(data.y[group].tolist())) > 1 for group in groups)
    if not groups or several > INDEPENDENT * len(groups):
        return None
    codes = np.arange(len(data))
    for group in groups:
        codes[group] = group[0]
    different = np.bincount(data.y[np.unique(codes)], minlength=int(data.y.max()) + 1)
    poor = different[data.y] < FEWEST
    codes[poor] = np.flatnonzero(poor)
    return codes if (codes != np.arange(len(data))).any() else None


def copies_among(x: Any, y: IntArray, *, text: bool = False) -> IntArray | None:
    """The same of samples that no source was read for: texts, rows (a frame, an array, sparse ones) or pictures."""
    kind: Kind = "text" if text else "pictures" if getattr(x, "ndim", 2) > 2 else "table"
    return copied(LabelledData(x, y, (), np.zeros(0, dtype=str), kind), Same())


def about_copies(codes: IntArray | None) -> str | None:
    """A sentence on them; None where there are none."""
    if codes is None:
        return None
    count = int((codes != np.arange(len(codes))).sum())
    samples = "1 sample is a copy of another" if count == 1 else f"{count:,} samples are copies of others"
    return f"{samples}: copies are searched together, so that none confirms another's label"


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
        columns: Iterable[Any] = (distinct_values(x.table.column(name))[0] for name in x.table.column_names)
    elif hasattr(x, "iloc"):
        columns = (x.iloc[:, i].factorize()[0] for i in range(x.shape[1]))
    elif hasattr(x, "indptr"):
        return _sparse_keys(x)
    else:
        matrix = np.ascontiguousarray(x)
        columns = (_as_whole(matrix[:, i]) for i in range(matrix.shape[1]))
    keys: NDArray[np.uint64] = np.full(x.shape[0] if hasattr(x, "shape") else len(x), START, dtype=np.uint64)
    for column in columns:
        keys = _mixed(keys, column.astype(np.uint64))
    return keys.astype(np.int64)


def _mixed(keys: NDArray[np.uint64], column: NDArray[np.uint64]) -> NDArray[np.uint64]:
    keys = (keys ^ column) * np.uint64(0xBF58476D1CE4E5B9)
    return keys ^ (keys >> np.uint64(29))


def _as_whole(column: NDArray[Any]) -> IntArray:
    if column.dtype.kind in "biuf":
        return np.ascontiguousarray(column, dtype=np.float64).view(np.int64)
    return np.fromiter(map(hash, column), np.int64, len(column))


def _sparse_keys(rows: Any) -> IntArray:
    """Of a CSR matrix: what its entries are, in any order; a row without any is nobody's."""
    columns = np.full(len(rows.indices), START, dtype=np.uint64)
    entries = _mixed(_mixed(columns, rows.indices.astype(np.uint64)), _as_whole(rows.data).astype(np.uint64))
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(entries, dtype=np.uint64)])
    return np.asarray(sums[rows.indptr[1:]] - sums[rows.indptr[:-1]]).astype(np.int64)
