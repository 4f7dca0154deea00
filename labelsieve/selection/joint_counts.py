"""How clean the selected set is, from what was measured rather than from a network that memorises.

M[i, j] counts candidates of true class i and given label j (at first n pi_i T_ij), P[p, i] = P(predicted p | true i).
Held-out predictions know nothing of the label a sample got, so the measured joint of predicted and given labels is

    J = P M.

P comes from it by non-negative least squares, the right labels among the selected are sum_j P_jj M_jj, and what stays
candidate of each cell, share K[p, j], leaves M' = M * (P^T K) for the next iteration.
"""

from __future__ import annotations

import numpy as np

from labelsieve.types import FloatArray

NEAR_SINGULAR = 0.1  # smallest singular value of T-hat below which least squares cannot tell classes apart
MOST_CLASSES = 1000  # above, the cube of their number would take longer than the trainings


def can_invert(transition: FloatArray) -> bool:
    """Whether T-hat tells classes apart well enough to be undone."""
    least = float(np.linalg.eigvalsh(transition @ transition.T)[0])  # several times as fast as singular values
    return least >= NEAR_SINGULAR**2


def non_negative_least_squares(
    M: FloatArray, J: FloatArray, *, tolerance: float = 1e-7, steps: int = 2000
) -> FloatArray:
    """argmin over P >= 0 of |P M - J|, every row of P on its own, by accelerated projected gradient."""
    gram, target = M @ M.T, J @ M.T
    bound = float(np.linalg.eigvalsh(gram)[-1])
    if bound <= 0:
        return np.zeros((len(J), len(M)))
    P = np.maximum(target / bound, 0.0)
    ahead, momentum = P, 1.0
    for _ in range(steps):
        new = np.maximum(ahead - (ahead @ gram - target) / bound, 0.0)
        change = new - P
        if float(np.sum((ahead - new) * change)) > 0:
            # Momentum points uphill: start it again, which keeps the convergence linear.
            next_momentum, ahead = 1.0, new
        else:
            next_momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead = new + (momentum - 1) / next_momentum * change
        P, momentum = new, next_momentum
        if np.abs(change).max() <= tolerance * max(1.0, np.abs(P).max()):
            break
    return np.asarray(P)


def expected_right(J: FloatArray, M: FloatArray) -> tuple[float, FloatArray]:
    """Expected right labels among the agreeing samples (the diagonal of J), and P."""
    P = non_negative_least_squares(M, J)
    fitted = P @ M
    right = np.diagonal(P) * np.diagonal(M)
    share = np.where(np.diagonal(fitted) > 0, right / np.maximum(np.diagonal(fitted), 1e-300), 0.0)
    # The share of each fitted diagonal cell, applied to what was counted there: never more right than selected.
    return float(np.clip(share, 0, 1) @ np.diagonal(J)), P


def selected_pairs(J: FloatArray, M: FloatArray, P: FloatArray) -> FloatArray:
    """The agreeing samples by true class and given label: their cells of P M, as many in all as were counted."""
    fitted = np.diagonal(P @ M)
    scale = np.where(fitted > 1e-12, np.diagonal(J) / np.maximum(fitted, 1e-12), 0.0)
    return np.asarray(P.T * M * scale)


def left_over(
    M: FloatArray, P: FloatArray, J: FloatArray, right_stay: FloatArray, wrong_stay: FloatArray
) -> FloatArray:
    """M of what stays candidate, when of each cell [p, j] of J these shares of the right and of the wrong labels do.

    Two shares, because the samples that are removed, those of the largest loss, are nearly all wrong.
    """
    fitted = P @ M
    scale = np.where(fitted > 1e-12, J / np.maximum(fitted, 1e-12), 0.0)
    right, wrong = P.T @ (scale * right_stay), P.T @ (scale * wrong_stay)
    return np.asarray(M * np.where(np.eye(len(M), dtype=bool), right, wrong))
