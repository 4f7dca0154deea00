"""Other noise estimators, written from their papers: the confident joint (cleanlab) and HOC.

Confident learning: Northcutt, Jiang & Chuang, JAIR 2021. The tests compare it with the cleanlab package, which the
benchmark does not need. HOC: Zhu, Song & Liu, ICML 2021.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from labelsieve.types import BoolArray, FloatArray, IntArray

NEIGHBOUR_ROWS = 4096  # rows of the similarity matrix in memory at once
HOC_STEPS, HOC_RATE, HOC_START = 1500, 0.1, 3.0


class Estimate(NamedTuple):
    """Transition matrix (rows: true class) and share of wrong labels."""

    transition: FloatArray
    ratio: float


def confident_joint(given: IntArray, probs: FloatArray) -> FloatArray:
    """Count samples by given and guessed true class.

    A class qualifies if the sample's probability reaches the mean probability of that class among samples with its
    label. The most probable qualifying class counts; a sample without one is not counted.
    """
    n, c = probs.shape
    present = np.bincount(given, minlength=c)
    threshold = np.bincount(given, weights=probs[np.arange(n), given], minlength=c) / np.maximum(present, 1)
    reached = probs >= np.where(present > 0, threshold, np.inf) - 1e-6
    number = reached.sum(axis=1)
    guess = np.where(number > 1, probs.argmax(axis=1), reached.argmax(axis=1))
    counts = np.zeros((c, c))
    np.add.at(counts, (given[number > 0], guess[number > 0]), 1)
    np.fill_diagonal(counts, np.maximum(np.diagonal(counts), 1))
    return counts


def calibrated_joint(given: IntArray, probs: FloatArray) -> FloatArray:
    """Scale the confident joint to the number of samples of each given label."""
    counts = confident_joint(given, probs)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True) * np.bincount(given, minlength=len(counts))[:, None])


def from_confident_joint(given: IntArray, probs: FloatArray) -> Estimate:
    joint = calibrated_joint(given, probs)
    true = joint.sum(axis=0)
    transition = np.where(true[:, None] > 0, joint.T / np.maximum(true, 1e-300)[:, None], np.eye(len(joint)))
    return Estimate(transition, 1 - float(np.trace(joint) / joint.sum()))


def confident_issues(given: IntArray, probs: FloatArray) -> BoolArray:
    """Flag labels as cleanlab does by default.

    For each given class k and true class j, flag the number of samples in the joint with the largest margin p_j - p_k.
    Samples whose given label is also the predicted one are not flagged.
    """
    joint = np.rint(calibrated_joint(given, probs)).astype(np.int64)
    flagged = np.zeros(len(given), dtype=np.bool_)
    for k in range(probs.shape[1]):
        members = np.flatnonzero(given == k)
        for j in range(probs.shape[1]):
            if j != k and joint[k, j] > 0:
                margin = probs[members, j] - probs[members, k]
                flagged[members[np.argsort(-margin)[: joint[k, j]]]] = True
    return np.asarray(flagged & (probs.argmax(axis=1) != given))


# ---------------------------------------------------------------- HOC


def two_neighbours(features: NDArray[np.floating], device: torch.device | str = "cpu") -> IntArray:
    """Return the two nearest other samples of each sample by cosine similarity, [n, 2]."""
    x = torch.nn.functional.normalize(torch.as_tensor(features, dtype=torch.float32, device=device), dim=1)
    found = []
    for start in range(0, len(x), NEIGHBOUR_ROWS):
        similar = x[start : start + NEIGHBOUR_ROWS] @ x.T
        rows = torch.arange(len(similar), device=similar.device)
        similar[rows, rows + start] = -torch.inf
        found.append(similar.topk(2, dim=1).indices.cpu())
    return torch.cat(found).numpy().astype(np.int64)


def consensus(given: IntArray, neighbours: IntArray, classes: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the shares of labels, pairs and triples of neighbouring labels: [c], [c, c], [c, c, c]."""
    first, second = given[neighbours[:, 0]], given[neighbours[:, 1]]
    flat = np.bincount((given * classes + first) * classes + second, minlength=classes**3)
    three = flat.reshape(classes, classes, classes) / len(given)
    return three.sum(axis=(1, 2)), three.sum(axis=2), three


def hoc(
    consensuses: tuple[FloatArray, FloatArray, FloatArray], *, steps: int = HOC_STEPS
) -> tuple[FloatArray, FloatArray]:
    """Fit T and prior to the measured consensuses, if a sample and its two neighbours have the same true class:

        P(j) = sum_i pi_i T_ij,   P(j, k) = sum_i pi_i T_ij T_ik,   P(j, k, l) = sum_i pi_i T_ij T_ik T_il.

    Simplified from the paper: all samples once instead of rounds of 15,000, the full tensors instead of their rotated
    sums, and the squared error of each order relative to its size. Softmax and Adam are as in the paper.
    """
    c = len(consensuses[0])
    one, two, three = (torch.as_tensor(part, dtype=torch.float64) for part in consensuses)
    odds = (HOC_START * torch.eye(c, dtype=torch.float64)).requires_grad_()
    prior_odds = torch.zeros(c, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([odds, prior_odds], lr=HOC_RATE)
    for _ in range(steps):
        T, prior = odds.softmax(1), prior_odds.softmax(0)
        weighted = prior[:, None] * T
        pairs = (T[:, :, None] * T[:, None, :]).reshape(c, -1)
        loss = (weighted.sum(0) - one).square().sum() / one.square().sum()
        loss = loss + (weighted.T @ T - two).square().sum() / two.square().sum()
        loss = loss + (weighted.T @ pairs - three.view(c, -1)).square().sum() / three.square().sum()
        odds.grad, prior_odds.grad = torch.autograd.grad(loss, [odds, prior_odds])
        optimizer.step()
    return odds.softmax(1).detach().numpy(), prior_odds.softmax(0).detach().numpy()


def from_hoc(parts: list[tuple[IntArray, NDArray[np.floating]]], classes: int, device: torch.device | str) -> Estimate:
    """Apply HOC to (given labels, features) of several networks; consensuses are averaged over the networks."""
    size = sum(len(given) for given, _ in parts)
    measured = [
        [len(given) / size * order for order in consensus(given, two_neighbours(features, device), classes)]
        for given, features in parts
    ]
    one, two, three = (np.sum([found[order] for found in measured], axis=0) for order in range(3))
    T, prior = hoc((one, two, three))
    return Estimate(T, float(prior @ (1 - np.diagonal(T))))
