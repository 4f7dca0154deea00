"""Samples shared out at random, evenly by class, and what is one sample twice (or one group) never on two sides.

A copy of a sample, with its label, in the half that trains is that label learnt by heart: the copy in the other half is
then confirmed whatever is wrong with it.
"""

from __future__ import annotations

import numpy as np

from labelsieve.types import IntArray


def halves(
    candidates: IntArray, labels: IntArray, rng: np.random.Generator, *, even: bool, groups: IntArray | None = None
) -> tuple[IntArray, IntArray]:
    """Two random halves; `even` shares out each given class, so that a class of two samples is in both, and keeps the
    members of a group together."""
    if even:
        first, second = shared_out(candidates, labels, 2, rng, groups)
        return first, second
    order = rng.permutation(candidates)
    middle = (len(order) + 1) // 2
    return np.sort(order[:middle]), np.sort(order[middle:])


def shared_out(
    members: IntArray, labels: IntArray, parts: int, rng: np.random.Generator, groups: IntArray | None = None
) -> list[IntArray]:
    """Random parts, each with its share of every given class; members of one group (equal codes) are in one part."""
    order = rng.permutation(members)
    if groups is not None:
        found = _by_group(order, labels, groups, parts)
        if all(len(part) for part in found):  # too few groups: better parts that know each other than none
            return found
    order = order[np.argsort(labels[order], kind="stable")]
    return [np.sort(order[k::parts]) for k in range(parts)]


def _by_group(order: IntArray, labels: IntArray, groups: IntArray, parts: int) -> list[IntArray]:
    """Groups by class, the largest first, dealt to and fro, so that parts end up about as large."""
    codes, first, inverse, size = np.unique(groups[order], return_index=True, return_inverse=True, return_counts=True)
    lead = labels[order[first]]
    rank = np.lexsort((first, -size, lead))
    begins = np.diff(lead[rank], prepend=lead[rank[:1]] - 1) != 0
    kind = np.cumsum(begins) - 1
    turn, at = np.divmod(np.arange(len(codes)) - np.flatnonzero(begins)[kind], parts)
    part = np.empty(len(codes), dtype=np.int64)
    part[rank] = (np.where(turn % 2, parts - 1 - at, at) + kind) % parts  # not every class begins with the same part
    return [np.sort(order[part[inverse] == k]) for k in range(parts)]
