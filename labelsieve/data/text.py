"""Texts: an array of Python strings that indexes like any other, what is counted in them, and texts as rows of numbers
for a network.

Words and pairs of words are counted; in writing that has no blanks between its words, one to three letters in a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.columns import Column, Encoding

HASHES = 2**14
# Where texts are read by their letters, of which more are counted; models of earlier versions have not so many.
MORE_HASHES = 2**15
SOME = 0.1  # of the texts have to be read so
LETTERS = 0.2  # of a text that make it one without blanks: each says as much as several of an alphabet
LONGEST = 3  # letters in a row that are counted
# Thai, Lao, Tibetan, Burmese, Khmer; Japanese and Chinese.
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
)
_RUNS = re.compile(f"(?P<letters>[{UNSPACED}]+)|(?:(?![{UNSPACED}])\\w){{2,}}")
_UNSPACED = re.compile(f"[{UNSPACED}]")
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


def is_unspaced(text: str) -> bool:
    """Is this written without blanks between its words, for the most part?"""
    if text.isascii():
        return False
    letters = sum(map(str.isalpha, text))
    return len(_UNSPACED.findall(text)) > LETTERS * letters


def tokens(text: str) -> list[str]:
    """What is counted in a text."""
    if not is_unspaced(text):
        return _words()(text)
    found = []
    for run in _RUNS.finditer(text.lower()):
        word = run.group()
        if run["letters"] is None:
            found.append(word)
            continue
        for length in range(1, LONGEST + 1):
            found += [word[at : at + length] for at in range(len(word) - length + 1)]
    return found


@cache
def _words() -> Callable[[str], list[str]]:
    """Words and pairs of words, as scikit-learn finds them."""
    from sklearn.feature_extraction.text import CountVectorizer

    return cast("Callable[[str], list[str]]", CountVectorizer(ngram_range=(1, 2)).build_analyzer())


@dataclass(frozen=True)
class TextFeatures:
    """What is counted in texts, hashed, weighted by how rare it is, and turned to the directions that vary most.

    Two arrays are all there is to keep: a text read later gives the same numbers. How many hashes there are says
    whether there were texts without blanks.
    """

    idf: NDArray[np.float32]  # [hashes]
    components: NDArray[np.float32]  # [directions, hashes]

    @classmethod
    def learn(cls, values: Sequence[str], *, directions: int = DIRECTIONS) -> TextFeatures:
        from sklearn.utils.extmath import randomized_svd

        unspaced = sum(map(is_unspaced, values)) > SOME * len(values)
        counts = _counts(values, MORE_HASHES if unspaced else HASHES)
        seen = np.asarray((counts > 0).sum(axis=0)).ravel()
        idf = np.log((1 + len(values)) / (1 + seen)).astype(np.float32) + 1
        weighted = _weighted(counts, idf)
        wanted = max(1, min(directions, len(values) - 1))
        _, _, components = randomized_svd(weighted, wanted, random_state=0)
        return cls(idf, np.asarray(components, dtype=np.float32))

    def rows(self, values: Sequence[str]) -> NDArray[np.float32]:
        """[n, directions]"""
        return np.asarray(_weighted(_counts(values, len(self.idf)), self.idf) @ self.components.T, dtype=np.float32)


def _counts(values: Sequence[str], hashes: int) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    reader = tokens if hashes == MORE_HASHES else _words()
    return HashingVectorizer(n_features=hashes, analyzer=reader, alternate_sign=False, norm=None).transform(
        list(values)
    )


def _weighted(counts: Any, idf: NDArray[np.float32]) -> Any:
    from sklearn.preprocessing import normalize

    weighted = counts.copy()
    weighted.data = (1 + np.log(weighted.data)) * idf[weighted.indices]
    return normalize(weighted)
