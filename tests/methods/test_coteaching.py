import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labelsieve.errors import InputError
from labelsieve.methods.coteaching import CoTeaching, exchanged_loss, kept_count


def exact_kept(size: int, ratio: Fraction, epoch: int, gradual: int = 10) -> int:
    kept = size * (1 - ratio * min(Fraction(epoch + 1, gradual), Fraction(1)))
    return min(size, max(1, math.floor(kept + Fraction(1, 2))))


@given(size=st.integers(0, 192), percent=st.integers(0, 99), epoch=st.integers(0, 40))
def test_kept_counts_are_exact_at_every_epoch(size, percent, epoch):
    found = kept_count(
        torch.tensor([float(size)]), torch.tensor([percent / 100]), torch.tensor([float(epoch)]), gradual_epochs=10
    )
    assert found.item() == exact_kept(size, Fraction(percent, 100), epoch)


def test_kept_counts_of_the_paper():
    """eps 0.5, batches of 128: 122, 115, ... 64 over the first ten epochs, then 64."""
    found = [kept_count(torch.tensor([128.0]), torch.tensor([0.5]), torch.tensor([e]), 10).item() for e in range(12)]
    assert found == [122, 115, 109, 102, 96, 90, 83, 77, 70, 64, 64, 64]


def test_exchange_by_hand():
    losses = torch.tensor([[[1.0, 2.0, 3.0, 4.0], [40.0, 30.0, 20.0, 10.0]]])
    found = exchanged_loss(losses, torch.ones(1, 4, dtype=torch.bool), torch.tensor([2.0]))
    # network 1 finds samples 3 and 2 easiest: network 0 pays 4 and 3 for them; and the other way round
    assert found.tolist() == [[3.5, 35.0]]


def test_padding_is_not_kept(make_batch):
    losses = torch.tensor([[[5.0, 7.0, 0.0], [5.0, 7.0, 0.0]]])
    found = exchanged_loss(losses, torch.tensor([[True, True, False]]), torch.tensor([2.0]))
    assert found.tolist() == [[6.0, 6.0]]


def test_only_samples_chosen_by_the_other_network_have_gradients(make_batch, make_plan, stacked):
    """Network 0 learns from what network 1 finds easy, and from nothing else."""
    method = CoTeaching(noise_ratio=0.5)
    logits = torch.zeros(1, 2, 4, 2)
    logits[0, 0, :, 0] = torch.tensor([4.0, 3.0, 2.0, 1.0])  # easiest for network 0: samples 0 and 1
    logits[0, 1, :, 0] = torch.tensor([1.0, 2.0, 3.0, 4.0])  # easiest for network 1: samples 3 and 2
    logits.requires_grad_()
    batch = make_batch([[0, 0, 0, 0]], epoch=9, state=stacked(method, make_plan()))
    loss = method.loss(logits, batch)
    of_first = torch.autograd.grad(loss[0, 0], logits, retain_graph=True)[0]
    assert of_first[0, 0].abs().sum(-1).bool().tolist() == [False, False, True, True]
    assert not of_first[0, 1].any()
    of_second = torch.autograd.grad(loss[0, 1], logits)[0]
    assert of_second[0, 1].abs().sum(-1).bool().tolist() == [True, True, False, False]
    assert not of_second[0, 0].any()


def test_against_loops(make_batch, make_plan, stacked):
    rng = np.random.default_rng(1)
    ratios, epochs, padded = [0.2, 0.8], [3, 30], [9, 7]
    logits, labels = rng.normal(size=(2, 2, 9, 3)), rng.integers(3, size=(2, 9))
    index = [[i if i < size else -1 for i in range(9)] for size in padded]
    method = CoTeaching()
    state = stacked(method, *(make_plan(noise_ratio=ratio) for ratio in ratios))
    found = method.loss(torch.tensor(logits), make_batch(labels.tolist(), index=index, epoch=epochs, state=state))
    for t in range(2):
        size = padded[t]
        p = np.exp(logits[t]) / np.exp(logits[t]).sum(-1, keepdims=True)
        losses = np.array([[-math.log(p[k, b, labels[t, b]]) for b in range(size)] for k in range(2)])
        kept = exact_kept(size, Fraction(str(ratios[t])), epochs[t])
        for k in range(2):
            chosen = sorted(range(size), key=lambda b: losses[1 - k, b])[:kept]
            assert found[t, k].item() == pytest.approx(np.mean([losses[k, b] for b in chosen]), rel=1e-5)


def test_the_ratio_of_the_method_has_priority(make_plan):
    assert CoTeaching().ratio(make_plan(noise_ratio=0.3)) == 0.3
    assert CoTeaching(noise_ratio=0.1).ratio(make_plan(noise_ratio=0.3)) == 0.1


@pytest.mark.parametrize("ratio", [-0.01, 1.0, 1.5, float("nan")])
def test_bad_ratios(ratio, make_plan):
    with pytest.raises(InputError, match="noise ratio"):
        CoTeaching(noise_ratio=ratio)
    with pytest.raises(InputError, match=r"\[0, 1\)"):
        CoTeaching().check(make_plan(noise_ratio=ratio), 20)


def test_a_missing_ratio_and_invalid_gradual_epochs(make_plan):
    with pytest.raises(InputError, match="needs a noise ratio"):
        CoTeaching().check(make_plan(noise_ratio=None), 20)
    with pytest.raises(InputError, match="gradual_epochs"):
        CoTeaching(gradual_epochs=0)
