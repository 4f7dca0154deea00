"""The words that are counted in texts, and texts as rows of numbers.

Words and pairs of words are counted. In scripts without spaces between words, such as Chinese, one to three letters in
a row are counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

HASHES = 2**14  # columns that words are hashed to
UNSPACED_HASHES = 2**15  # runs of letters are more numerous than words
UNSPACED_TEXTS = 0.1  # share of unspaced texts above which runs of letters are counted
UNSPACED_LETTERS = 0.2  # share of unspaced letters that makes a text unspaced: one letter carries more than in Latin
MAX_RUN = 3  # letters in a row
# Thai, Lao, Tibetan, Burmese, Khmer; Japanese and Chinese.
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
)
_RUNS = re.compile(f"(?P<letters>[{UNSPACED}]+)|(?:(?![{UNSPACED}])\\w){{2,}}")
_UNSPACED = re.compile(f"[{UNSPACED}]")
DIRECTIONS = 128  # numbers per text that a network reads


def is_unspaced(text: str) -> bool:
    """Whether a text is mostly written without spaces between words."""
    if text.isascii():
        return False
    letters = sum(map(str.isalpha, text))
    return len(_UNSPACED.findall(text)) > UNSPACED_LETTERS * letters


def tokens(text: str) -> list[str]:
    """The words or runs of letters that are counted in a text; a text without any, such as "5" or "-", is a word."""
    return _tokens(text) or [text] * bool(text.strip())


def _tokens(text: str) -> list[str]:
    if not is_unspaced(text):
        return _words()(text)
    found = []
    for run in _RUNS.finditer(text.lower()):
        word = run.group()
        if run["letters"] is None:
            found.append(word)
            continue
        for length in range(1, MAX_RUN + 1):
            found += [word[at : at + length] for at in range(len(word) - length + 1)]
    return found


def single_words(text: str) -> list[str]:
    """The counted words or runs of letters, without pairs of words."""
    return [token for token in tokens(text) if " " not in token]


@cache
def _words() -> Callable[[str], list[str]]:
    """Words and pairs of words, as scikit-learn splits them."""
    from sklearn.feature_extraction.text import CountVectorizer

    return cast("Callable[[str], list[str]]", CountVectorizer(ngram_range=(1, 2)).build_analyzer())


@dataclass(frozen=True)
class TextFeatures:
    """Counts of words, hashed, weighted by inverse document frequency and projected on the main directions.

    The two arrays are all that a model file stores. The number of hashes says whether runs of letters are counted.
    """

    idf: NDArray[np.float32]  # [hashes]
    components: NDArray[np.float32]  # [directions, hashes]

    @classmethod
    def learn(cls, values: Sequence[str]) -> TextFeatures:
        from sklearn.utils.extmath import randomized_svd

        unspaced = sum(map(is_unspaced, values)) > UNSPACED_TEXTS * len(values)
        counts = _counts(values, UNSPACED_HASHES if unspaced else HASHES)
        seen = np.asarray((counts > 0).sum(axis=0)).ravel()
        idf = np.log((1 + len(values)) / (1 + seen)).astype(np.float32) + 1
        weighted = _weighted(counts, idf)
        wanted = max(1, min(DIRECTIONS, len(values) - 1))
        _, _, components = randomized_svd(weighted, wanted, random_state=0)
        return cls(idf, np.asarray(components, dtype=np.float32))

    def rows(self, values: Sequence[str]) -> NDArray[np.float32]:
        """Features of shape [n, directions]."""
        return np.asarray(_weighted(_counts(values, len(self.idf)), self.idf) @ self.components.T, dtype=np.float32)


def _counts(values: Sequence[str], hashes: int) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    split = tokens if hashes == UNSPACED_HASHES else _words()
    return HashingVectorizer(n_features=hashes, analyzer=split, alternate_sign=False, norm=None).transform(list(values))


def _weighted(counts: Any, idf: NDArray[np.float32]) -> Any:
    from sklearn.preprocessing import normalize

    weighted = counts.copy()
    weighted.data = (1 + np.log(weighted.data)) * idf[weighted.indices]
    return normalize(weighted)


def weighted_words(values: Sequence[str], words: Sequence[str], idf: NDArray[np.float32]) -> Any:
    """Return sparse rows with the weight of each of `words` in each text, as `TfidfVectorizer(sublinear_tf=True)`."""
    from sklearn.feature_extraction.text import CountVectorizer

    counts = CountVectorizer(analyzer=tokens, vocabulary=words).transform(list(values))
    return _weighted(counts.astype(np.float32), idf)
