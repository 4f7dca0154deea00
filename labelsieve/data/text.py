"""Texts: an array of Python strings that indexes like any other, and texts as rows of numbers for a network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.columns import Column, Encoding

HASHES = 2**14
DIRECTIONS = 128


class TextX(np.ndarray[Any, np.dtype[np.object_]]):
    """Texts that know which column they are from, where it is not called so: new ones are read from there too."""

    encoding: Encoding | None = None

    def __array_finalize__(self, other: Any) -> None:
        self.encoding = getattr(other, "encoding", None)


def texts(values: Iterable[Any], *, column: str = "text") -> NDArray[np.object_]:
    """Strings as they are; a missing one is an empty text."""
    listed = ["" if value is None else str(value) for value in values]
    out = np.empty(len(listed), dtype=object)
    out[:] = listed
    if column == "text":
        return out
    named = out.view(TextX)
    named.encoding = Encoding((Column(column, "category", form="text"),))
    return named


@dataclass(frozen=True)
class TextFeatures:
    """Words and pairs of words, hashed, weighted by how rare they are, and turned to the directions that vary most.

    Two arrays are all there is to keep: a text read later gives the same numbers.
    """

    idf: NDArray[np.float32]  # [HASHES]
    components: NDArray[np.float32]  # [directions, HASHES]

    @classmethod
    def learn(cls, values: Sequence[str], *, directions: int = DIRECTIONS) -> TextFeatures:
        from sklearn.utils.extmath import randomized_svd

        counts = _counts(values)
        seen = np.asarray((counts > 0).sum(axis=0)).ravel()
        idf = np.log((1 + len(values)) / (1 + seen)).astype(np.float32) + 1
        weighted = _weighted(counts, idf)
        wanted = max(1, min(directions, len(values) - 1))
        _, _, components = randomized_svd(weighted, wanted, random_state=0)
        return cls(idf, np.asarray(components, dtype=np.float32))

    def rows(self, values: Sequence[str]) -> NDArray[np.float32]:
        """[n, directions]"""
        return np.asarray(_weighted(_counts(values), self.idf) @ self.components.T, dtype=np.float32)


def _counts(values: Sequence[str]) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    hashing = HashingVectorizer(n_features=HASHES, ngram_range=(1, 2), alternate_sign=False, norm=None)
    return hashing.transform(list(values))


def _weighted(counts: Any, idf: NDArray[np.float32]) -> Any:
    from sklearn.preprocessing import normalize

    weighted = counts.copy()
    weighted.data = (1 + np.log(weighted.data)) * idf[weighted.indices]
    return normalize(weighted)
