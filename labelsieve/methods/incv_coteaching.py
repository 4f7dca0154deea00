"""Algorithm 3 of Chen et al., "Understanding and utilizing deep neural networks trained with noisy labels", ICML 2019.

Co-teaching on the samples that INCV selected. In epochs e = 1 ... E_max (the engine's epoch + 1):

    e <= E_0    B = B_S, batches of 128 from the selected set S only
    e >  E_0    B = B_S and B_C together, |B_C| / |B_S| = min(0.5, |C| / |S|), B_C from the candidate set C
    always      each network is updated on the n(e) samples of B with the smallest loss of the other network,
                n(e) = |B_S| * (1 - eps_S * min(e / 10, 1)), eps_S = 1 - LP is the noise ratio of S

n(e) is computed from |B_S| also if B_C is in the batch, so up to a third of the batch, the hardest samples, is not
used. It is rounded as in coteaching.py, and at least one sample is kept. |B_C| is rounded to the nearest whole number,
halves to even. An epoch uses S once, and C at most once. The last batch of an epoch may be smaller, and so is its B_C.

E_0 is `warmup`: a number of epochs, or "auto": 40 % of E_max if |C| > 0.45 |S|, else 20 % (the paper: 80 of 200 "if the
candidate set is large", else 40). `authors_warmup` is the rule of the released code, which needs the true noise.

Needs a selection (S and C) and eps_S. Fails if S has lost a class or is very small: then C is hardly used. The ranking
uses the same forward pass as the update; the authors use a second one in inference mode.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from labelsieve.checks import check_integer
from labelsieve.engine.method import Batch, Method, Needs, Plan, State, in_batches, sample_losses
from labelsieve.errors import InputError
from labelsieve.methods.coteaching import check_ratio, exchanged_loss, kept_count
from labelsieve.types import BoolArray, IntArray

MAX_CANDIDATE_SHARE = 0.5  # of |B_S|, from the paper
LARGE_CANDIDATE_SET = 0.45  # of |S|; separates the paper's settings as its released rule does (results/selection)


def training_sets(selected: BoolArray, candidate: BoolArray, given: IntArray) -> tuple[IntArray, IntArray]:
    """Return S and C of algorithm 3. If no sample of a class was selected, all its samples are in S."""
    chosen = selected | np.isin(given, np.setdiff1d(given, given[selected]))
    return np.flatnonzero(chosen), np.flatnonzero(candidate & ~chosen)


def candidate_share(selected: int, candidates: int) -> float:
    """Return |B_C| / |B_S| = min(0.5, |C| / |S|)."""
    return min(MAX_CANDIDATE_SHARE, candidates / selected)


def auto_warmup(epochs: int, selected: int, candidates: int) -> int:
    """Return E_0: 40 % of the epochs if the candidate set is large, else 20 %."""
    return round((0.4 if candidates > LARGE_CANDIDATE_SET * selected else 0.2) * epochs)


def authors_warmup(epochs: int, *, pattern: str, noise_ratio: float) -> int:
    """Return E_0 as released: 80 of 200 epochs for pair noise or a ratio above 0.6, else 40 of 200."""
    return round((0.4 if pattern == "pair" or noise_ratio > 0.6 else 0.2) * epochs)


def joined_batches(selected: IntArray, candidates: IntArray, batch_size: int) -> IntArray:
    """Return batches of S, each followed by its share of C and then by padding (-1)."""
    share = candidate_share(len(selected), len(candidates))
    from_s = in_batches(selected, batch_size)
    joined = np.full((len(from_s), batch_size + candidate_width(share, batch_size)), -1, dtype=np.int64)
    used = 0
    for row, batch in zip(joined, from_s, strict=True):
        size = int((batch >= 0).sum())
        from_c = candidates[used : used + candidate_width(share, size)]  # fewer if C is used up by rounding
        row[:size] = batch[:size]
        row[size : size + len(from_c)] = from_c
        used += len(from_c)
    return joined


def candidate_width(share: float, selected: int) -> int:
    """Return |B_C| for a batch with `selected` samples of S."""
    return round(selected * share)


@dataclass(eq=False)
class INCVCoTeaching(Method):
    """The paper's method.

    Parameters
    ----------
    warmup
        E_0, the number of epochs that use the selected set only; "auto" is 20 or 40 % of the epochs.
    noise_ratio
        eps_S, the noise ratio of the selected set; by default the estimated one.
    gradual_epochs
        Number of epochs over which the share of unused samples rises to noise_ratio.
    """

    name = "incv-coteaching"
    networks = 2
    warmup: int | Literal["auto"] = "auto"
    noise_ratio: float | None = None
    gradual_epochs: int = 10
    _epochs: int | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.noise_ratio is not None:
            check_ratio(self.noise_ratio, self.name)
        if not (isinstance(self.warmup, str) and self.warmup == "auto"):
            check_integer("incv-coteaching: warmup", self.warmup, otherwise=", or 'auto'")
        check_integer("incv-coteaching: gradual_epochs", self.gradual_epochs, least=1)

    def needs(self) -> Needs:
        return "selection"

    def ratio(self, plan: Plan) -> float:
        return check_ratio(plan.noise_ratio if self.noise_ratio is None else self.noise_ratio, self.name)

    def check(self, plan: Plan, epochs: int) -> None:
        self._epochs = epochs  # batches() needs it for "auto"
        if plan.candidates is None:
            raise InputError("method 'incv-coteaching' needs a selection: run `labelsieve select` first")
        if len(plan.train) == 0:
            raise InputError(
                "method 'incv-coteaching': no sample is selected; select with another model, or use another method"
            )
        self.ratio(plan)
        if self.warmup != "auto" and self.warmup > epochs:
            raise InputError(f"warmup {self.warmup} is larger than the number of epochs, {epochs}; decrease it")

    def warmup_epochs(self, plan: Plan) -> int:
        """Return E_0 of this plan."""
        if self.warmup != "auto":
            return self.warmup
        if self._epochs is None:
            raise InputError(
                "warmup 'auto' depends on the number of epochs: call check(plan, epochs) first, or set a number"
            )
        return auto_warmup(self._epochs, len(plan.train), len(_candidates(plan)))

    def batches(self, plan: Plan, epoch: int, batch_size: int, rng: np.random.Generator) -> IntArray:
        """Return batches with |B_S| = `batch_size`; all rows have the width of B_S and B_C together."""
        order = rng.permutation(plan.train)
        if epoch + 1 > self.warmup_epochs(plan):
            return joined_batches(order, rng.permutation(_candidates(plan)), batch_size)
        alone = in_batches(order, batch_size)
        extra = candidate_width(candidate_share(len(plan.train), len(_candidates(plan))), batch_size)
        return np.pad(alone, ((0, 0), (0, extra)), constant_values=-1)

    def state(self, plan: Plan, *, samples: int, classes: int, epochs: int) -> State:
        selected = torch.zeros(samples, dtype=torch.bool)
        selected[torch.from_numpy(np.asarray(plan.train, dtype=np.int64))] = True
        return {"noise_ratio": torch.tensor(self.ratio(plan)), "selected": selected}

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        from_s = batch.state["selected"].gather(1, batch.index.clamp_min(0)) & batch.valid
        kept = kept_count(from_s.sum(-1).float(), batch.state["noise_ratio"], batch.epoch, self.gradual_epochs)
        return exchanged_loss(sample_losses(logits, batch), batch.valid, kept)


def _candidates(plan: Plan) -> IntArray:
    return np.empty(0, dtype=np.int64) if plan.candidates is None else plan.candidates
