"""Near duplicates and outliers among embedded samples.

Distances are cosine distances, d = 1 - cos. Embeddings of different models have different scales, so both limits are
relative to the data: d5 is the distance of a sample to the nearest 5 % of a random reference, and the median of d5 is
the typical distance.

    near duplicates    d < DUPLICATE_DISTANCE of the kind x typical distance
    outliers           log d5 is more than OUTLIER_SCORE of the kind robust standard deviations above its median

A cluster of outliers is found too, unless it has more than 5 % of the samples. The reference takes O(n) time. Pairs
are compared exactly up to MAX_EXACT samples; beyond, each sample is compared with those that share one of its two
nearest centres, which takes about O(n) time too and never holds n x n numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.files import atomic_file, open_archive, open_file
from labelsieve.types import BoolArray, FloatArray, IntArray, Kind

# Chosen on one half of the clothing photos and of banking77, measured on the other halves (benchmarks/similar.md).
DUPLICATE_DISTANCE = {"pictures": 0.2, "text": 0.1}
OUTLIER_SCORE = {"pictures": 2.3, "text": 3.0}
REFERENCE_SIZE, NEAREST_SHARE = 1000, 0.05
MIN_SAMPLES = 50  # with fewer, the nearest 5 % are two samples and the median says little
MIN_DISTANCE = 1e-6  # rounding errors of float32; a model whose typical distance is smaller says nothing
MAX_EXACT = 20_000  # samples compared with all others: takes seconds
SAMPLES_PER_CENTRE = 1024  # equal cost of finding the centres and of comparing, at about a million samples
ROWS_AT_ONCE = 2048  # rows of a block of similarities
MAX_STORED = 1024  # bytes per sample of the stored result, which has 9 and three headers
MAD_TO_DEVIATION = 1.4826  # of a normal distribution


@dataclass(frozen=True)
class SimilarSamples:
    """`group` is the position of the first sample of each sample's group of near duplicates."""

    group: IntArray
    outlier: BoolArray


def find_similar(rows: Any, kind: Kind = "pictures", *, exact: int = MAX_EXACT) -> SimilarSamples:
    """Find near duplicates and outliers; `rows` is an array or an `EmbeddedX`, of which blocks are read."""
    count = len(rows)
    none = SimilarSamples(np.arange(count), np.zeros(count, dtype=bool))
    if count < MIN_SAMPLES:
        return none
    distance = np.maximum(_reference_distances(rows), MIN_DISTANCE)
    typical = float(np.median(distance))
    if typical <= MIN_DISTANCE:
        return none
    distance, middle = np.log(distance), np.log(typical)
    deviation = max(MAD_TO_DEVIATION * float(np.median(np.abs(distance - middle))), MIN_DISTANCE)
    links = [_near_pairs(rows, part, 1 - DUPLICATE_DISTANCE[kind] * typical) for part in _parts(rows, exact)]
    return SimilarSamples(
        join_groups(count, np.concatenate(links)), distance > middle + OUTLIER_SCORE[kind] * deviation
    )


def stored_similar(path: Path, rows: Any, kind: Kind) -> SimilarSamples:
    """Return what `find_similar` found in an earlier run; else find it, and store it in `path`."""
    limits = np.array([DUPLICATE_DISTANCE[kind], OUTLIER_SCORE[kind]])
    with (
        suppress(Exception),  # a damaged archive can raise nearly any exception
        open_file(path) as file,
        open_archive(file, MAX_STORED * (1 + len(rows))),
        np.load(file, allow_pickle=False) as stored,
    ):
        if path.is_symlink():
            raise ValueError("a link")
        group, outlier = stored["group"].astype(np.int64), stored["outlier"].astype(bool)
        valid = group.shape == outlier.shape == (len(rows),) and ((group >= 0) & (group < len(rows))).all()
        if valid and np.array_equal(stored["limits"], limits):
            return SimilarSamples(group, outlier)
    found = find_similar(rows, kind)
    with suppress(OSError), atomic_file(path) as partial:  # the run folder may be read only
        np.savez(partial, group=found.group, outlier=found.outlier, limits=limits)
    return found


def join_groups(count: int, pairs: IntArray) -> IntArray:
    """Return the position of the first sample of each sample's group, if the samples of each pair share a group."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(pairs), dtype=bool), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    _, group = connected_components(graph, directed=False)
    _, first = np.unique(group, return_index=True)
    return np.asarray(first[group], dtype=np.int64)


def unit_rows(rows: Any, index: IntArray | slice) -> NDArray[np.float32]:
    """Return some rows with length 1; a row of zeros, such as a text of unknown words, is like no other."""
    some = np.asarray(rows[index], dtype=np.float32)
    return np.asarray(some / np.maximum(np.linalg.norm(some, axis=1, keepdims=True), 1e-12))


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, min(start + ROWS_AT_ONCE, count)) for start in range(0, count, ROWS_AT_ONCE))


def _reference_distances(rows: Any) -> FloatArray:
    """Return the distance of each sample to the nearest 5 % of a random reference."""
    chosen = np.sort(np.random.default_rng(0).permutation(len(rows))[:REFERENCE_SIZE])
    reference = unit_rows(rows, chosen)
    near = max(1, round(NEAREST_SHARE * len(chosen)))
    found = np.empty(len(rows))
    for block in _blocks(len(rows)):
        similarity = unit_rows(rows, block) @ reference.T
        own = np.flatnonzero((chosen >= block.start) & (chosen < block.stop))
        similarity[chosen[own] - block.start, own] = -1  # not its own neighbour
        found[block] = 1 - np.partition(similarity, -near, axis=1)[:, -near]
    return found


def _parts(rows: Any, exact: int) -> Iterator[IntArray]:
    """Yield sets of at most `exact` samples that are compared with each other."""
    count = len(rows)
    if count <= exact:
        yield np.arange(count)
        return
    centres = unit_rows(rows, np.sort(np.random.default_rng(1).permutation(count)[: -(-count // SAMPLES_PER_CENTRE)]))
    nearest, similarity = np.empty((count, 2), dtype=np.int64), np.empty((count, 2), dtype=np.float32)
    for block in _blocks(count):
        found = unit_rows(rows, block) @ centres.T
        nearest[block] = np.argpartition(found, -2, axis=1)[:, -2:]
        similarity[block] = np.take_along_axis(found, nearest[block], axis=1)
    order = np.lexsort((similarity.ravel(), nearest.ravel()))
    begins = np.flatnonzero(np.diff(nearest.ravel()[order], prepend=-1))
    for members in np.split(order // 2, begins[1:]):
        # A very large part is cut by the similarity to its centre, which near duplicates share.
        yield from (np.sort(members[start : start + exact]) for start in range(0, len(members), exact))


def _near_pairs(rows: Any, part: IntArray, least: float) -> IntArray:
    """Return pairs with at least this similarity: per sample the first such sample and the nearest one.

    These two connect a group in O(n) memory, also if all samples are equal.
    """
    unit = unit_rows(rows, part)
    pairs: list[IntArray] = [np.empty((0, 2), dtype=np.int64)]
    for block in _blocks(len(part)):
        similarity = unit[block] @ unit.T
        similarity[np.arange(len(similarity)), np.arange(block.start, block.stop)] = -1
        nearest = similarity.argmax(axis=1)
        close = np.flatnonzero(similarity[np.arange(len(similarity)), nearest] >= least)
        first = (similarity[close] >= least).argmax(axis=1)
        own = part[close + block.start]
        pairs += [np.stack([own, part[other]], axis=1) for other in (nearest[close], first)]
    return np.concatenate(pairs)
