"""Samples that occur more than once.

If two copies have different labels, one of the labels is wrong for sure. If they have the same label, a model that was
trained on one of them predicts the label of the other. This module finds equal samples; `similar.py` adds near
duplicates. Both are stored in `LabelledData.duplicates`.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.files import open_file
from labelsieve.frames import frame_table, is_frame
from labelsieve.progress import counted
from labelsieve.types import IntArray, Kind, LabelledData

HEAD = 4096  # first bytes of a file, which nearly always differ from those of others with its length
MAX_HASHED_BYTES = 2**30  # of pictures in memory: takes a second
# The limits below were set on real tables and texts (benchmarks/copies.md).
MOST_COPIES = 20  # a text that occurs more often is one that many people write, not a copy
MIN_DIFFERENT = 10  # different samples of a class; a class with fewer needs its repeated ones to be learned at all
INDEPENDENT_SHARE = 0.05  # share of groups with several labels above which each sample was labelled on its own

HASH_START = 0x9E3779B97F4A7C15  # any odd number; this one is 2**64 divided by the golden ratio

Groups = list[list[int]]


def same_files(files: Sequence[str | Path | None]) -> Groups:
    """Find files with equal bytes. Most are distinguished by their length, then by their first bytes."""
    groups = [[i for i, file in enumerate(files) if file is not None]]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for look in (_length, _head, _whole):
            read = partial(_look_at, look)
            groups = [part for group in groups for part in _split(group, pool.map(read, [files[i] for i in group]))]
    return groups


def group_codes(groups: Groups, count: int) -> IntArray:
    """Return one code per sample, equal for the samples of a group."""
    codes = np.arange(count)
    for group in groups:
        codes[group] = group[0]
    return codes


def _split(group: list[int], keys: Iterable[Any]) -> Groups:
    parts = defaultdict(list)
    for i, key in zip(group, keys, strict=True):
        if key is not None:
            parts[key].append(i)
    return [part for part in parts.values() if len(part) > 1]


def _look_at(look: Callable[[str | Path], Any], path: str | Path) -> Any:
    try:
        return look(path)
    except OSError:
        return None


def _length(path: str | Path) -> int:
    return os.stat(path).st_size  # noqa: PTH116


def _head(path: str | Path) -> bytes:
    with open_file(path) as file:
        return hashlib.blake2b(file.read(HEAD), digest_size=16).digest()


def _whole(path: str | Path) -> bytes:
    with open_file(path) as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest()


def repeated(data: LabelledData) -> Groups:
    """Return groups of equal samples, in input order."""
    keys = _keys(data) if data.equal_files is None else data.equal_files + 1
    return [] if keys is None else sorted(_equal(keys))


def has_independent_labels(data: LabelledData, groups: Groups) -> bool:
    """Return whether many groups of equal samples have several labels: then each sample was labelled on its own."""
    few = [group for group in groups if len(group) <= MOST_COPIES]
    several = sum(len(set(data.y[group].tolist())) > 1 for group in few)
    return several > INDEPENDENT_SHARE * len(few)


def kept_together(data: LabelledData) -> IntArray | None:
    """Return one code per sample, equal for duplicates that stay on one side of every split; None if there are none.

    Texts and rows may be equal by chance: many people write "thanks", and rows with few values repeat. If many groups
    of equal samples have several labels, each sample was labelled on its own, and they do not count as copies. Pictures
    and embedded samples are not equal by chance.
    """
    groups = [group for group in groups_of(data) if data.kind == "pictures" or len(group) <= MOST_COPIES]
    by_chance = data.kind != "pictures" and data.embedding is None
    if not groups or (by_chance and has_independent_labels(data, groups)):
        return None
    codes = group_codes(groups, len(data))
    different = np.bincount(data.y[np.unique(codes)], minlength=int(data.y.max()) + 1)
    rare = different[data.y] < MIN_DIFFERENT
    codes[rare] = np.flatnonzero(rare)
    return codes if (codes != np.arange(len(data))).any() else None


def groups_of(data: LabelledData) -> Groups:
    """Return the groups of duplicates, in input order."""
    return [] if data.duplicates is None else sorted(_equal(data.duplicates + 1))


def with_duplicates(x: Any, y: IntArray, kind: Kind) -> LabelledData:
    """Return samples in memory with the codes of their duplicates."""
    kind = "pictures" if isinstance(x, np.ndarray) and x.ndim > 2 else kind
    data = LabelledData(x, y, (), np.zeros(0, dtype=str), kind)
    return replace(data, duplicates=group_codes(repeated(data), len(data)))


def copies_among(x: Any, y: IntArray, *, text: bool = False) -> IntArray | None:
    """Return the codes of `kept_together` for texts, rows (a data frame, an array, a sparse matrix) or pictures."""
    return kept_together(with_duplicates(x, y, "text" if text else "table"))


def about_copies(codes: IntArray | None) -> str | None:
    """Return a note on them, None if there are none."""
    if codes is None:
        return None
    count = int((codes != np.arange(len(codes))).sum())
    samples = counted(count, "sample is a copy of another", "samples are copies of others")
    return f"{samples}; copies stay in the same half of the data, except with --protocol paper"


def _equal(keys: IntArray) -> Groups:
    """Return the groups of equal keys; key 0 belongs to no group."""
    order = np.argsort(keys, kind="stable")
    begins = np.flatnonzero(np.diff(keys[order], prepend=keys[order[:1]] - 1))
    ends = np.append(begins[1:], len(keys))
    many = (ends - begins > 1) & (keys[order][begins] != 0)
    pairs = zip(begins[many].tolist(), ends[many].tolist(), strict=True)
    return [order[begin:end].tolist() for begin, end in pairs]


def _keys(data: LabelledData) -> IntArray | None:
    """Return a hash per sample, None if that would take long."""
    if data.kind == "text":
        # Empty texts are not copies of each other.
        return np.fromiter((hash(str(text)) if str(text).strip() else 0 for text in data.x), np.int64, len(data))
    if data.kind == "table":
        return _row_keys(data.x)
    x = data.x
    if not isinstance(x, np.ndarray) or x.nbytes > MAX_HASHED_BYTES:
        return None
    digests = (hashlib.blake2b(np.ascontiguousarray(x[i]).data, digest_size=8).digest() for i in range(len(x)))
    return np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64)


def _row_keys(x: Any) -> IntArray:
    """Hash rows, of a table as the user wrote them: its encoding fills gaps, which makes different rows equal."""
    from scipy.sparse import issparse

    from labelsieve.data.cells import distinct_values
    from labelsieve.data.columns import TableX

    if isinstance(x, TableX) or is_frame(x):
        table = x.table if isinstance(x, TableX) else frame_table(x)
        columns: Iterable[Any] = (distinct_values(column)[0] for column in table.columns)
    elif issparse(x):
        return _sparse_keys(x)
    else:
        x = np.ascontiguousarray(x)
        columns = (_as_whole(x[:, i]) for i in range(x.shape[1]))
    keys: NDArray[np.uint64] = np.full(x.shape[0], HASH_START, dtype=np.uint64)
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
    """Hash the rows of a CSR matrix by their entries, in any order; an empty row belongs to no group."""
    columns = np.full(len(rows.indices), HASH_START, dtype=np.uint64)
    entries = _mixed(_mixed(columns, rows.indices.astype(np.uint64)), _as_whole(rows.data).astype(np.uint64))
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(entries, dtype=np.uint64)])
    return np.asarray(sums[rows.indptr[1:]] - sums[rows.indptr[:-1]]).astype(np.int64)
