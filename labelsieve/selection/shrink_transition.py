"""T-hat from few counted labels: what chance explains of the differences between its entries is not kept.

Five hundred labels of a class under symmetric noise of 0.8 leave each of nine entries of 0.09 uncertain by 0.013, which
adds up to a row error of 0.1 without any mistake of the classifier. So entries that should be alike are drawn together,
each by the share of its row's variance that chance is expected to make (empirical Bayes): the rows' noise towards their
mean, and where it goes towards an even spread, as far as there are labels for that: a class that is given to few
samples cannot be what many others became. Pair noise or noisy single classes differ by far more than chance and stay as
they were counted.
"""

from __future__ import annotations

import numpy as np

from labelsieve.selection.joint_counts import MOST_CLASSES
from labelsieve.types import FloatArray

UNEVEN = 3.0  # times what chance explains


def rows_to_one(counts: FloatArray) -> FloatArray:
    """Counts to a transition matrix; a row without any is taken as clean."""
    total = counts.sum(axis=1, keepdims=True)
    return np.asarray(np.where(total > 0, counts / np.maximum(total, 1e-300), np.eye(len(counts))))


def uneven(counts: FloatArray) -> bool:
    """Do mistakes prefer some classes, by more than so many counted labels would show where they prefer none?"""
    if len(counts) > MOST_CLASSES:
        return False
    off, total = _off_diagonal(rows_to_one(counts)), counts.sum(axis=1)
    spread = float(np.sum((off - off.mean(axis=1, keepdims=True)) ** 2))
    chance = float(np.sum(off * (1 - off) / np.maximum(total, 1)[:, None]))
    return spread > UNEVEN * chance


def transition_from_counts(counts: FloatArray, prior: FloatArray, given_share: FloatArray) -> FloatArray:
    """T-hat whose rows borrow from each other what they cannot say themselves; `prior` @ its noise is as counted.

    `prior` are the shares of the true classes, `given_share` those of the given labels.
    """
    c, total = len(counts), counts.sum(axis=1)
    if not total.any():
        return np.eye(c)
    if c > MOST_CLASSES:  # nothing is undone with it then, and a matrix without zeros would fill memory and disk
        return rows_to_one(counts)
    size = np.maximum(total, 1e-9)  # a row without labels borrows everything
    seen, T = total > 0, rows_to_one(counts)
    own = 1 - np.diagonal(T)

    mean = float(total @ own / total.sum())
    chance = mean * (1 - mean) / size
    borrowed = _borrowed(chance, float(np.sum((own - mean)[seen] ** 2) - chance[seen].sum() * (1 - 1 / seen.sum())), c)
    weight = prior * borrowed
    centre = float(weight @ own / weight.sum()) if weight.sum() > 0 else mean
    ratio = own + borrowed * (centre - own)

    if c > 2:
        off, even = _off_diagonal(T), _even_spread(given_share, mean)
        expected = ratio[:, None] * even
        chance = np.sum(expected * (1 - expected), axis=1) / size * (c - 2) / (c - 1)
        excess = float(np.sum((off - own[:, None] * even)[seen] ** 2) - chance[seen].sum())
        borrowed = _borrowed(chance, excess, c)[:, None]
        spread = np.where(own[:, None] > 0, off / np.maximum(own, 1e-300)[:, None], even)
        off = ratio[:, None] * (spread + borrowed * (even - spread))
    else:
        off = ratio[:, None]
    found = np.diag(1 - ratio)
    found[~np.eye(c, dtype=bool)] = off.ravel()
    return found


def _even_spread(given_share: FloatArray, ratio: float) -> FloatArray:
    """Where noise goes that prefers nothing, c x (c - 1): to all others alike, but no more than there are labels."""
    c = len(given_share)
    most = np.minimum(1 / (c - 1), given_share / max(ratio, 1e-9))
    rows = _off_diagonal(np.tile(np.maximum(most, 1e-9), (c, 1)))
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def _borrowed(chance: FloatArray, excess: float, c: int) -> FloatArray:
    """The share of each row's variance that chance makes, when all rows together vary by `excess` more than that."""
    beyond = max(excess, 0.0) / c
    return np.where(chance > 0, chance / np.maximum(chance + beyond, 1e-300), 0.0)


def _off_diagonal(T: FloatArray) -> FloatArray:
    """c x (c - 1)."""
    c = len(T)
    return T[~np.eye(c, dtype=bool)].reshape(c, c - 1)
