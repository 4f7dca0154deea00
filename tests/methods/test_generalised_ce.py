"""Generalised cross-entropy: its formula, its two ends, and its even batches."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from labelsieve.engine.method import Batch, Plan
from labelsieve.errors import InputError
from labelsieve.methods.standard import GeneralisedCE, Standard, even_batches, generalised_losses


def batch_of(labels: torch.Tensor, valid: torch.Tensor | None = None) -> Batch:
    valid = torch.ones_like(labels, dtype=torch.bool) if valid is None else valid
    return Batch(torch.arange(labels.numel()).view_as(labels), labels, valid, torch.zeros(len(labels)))


def test_the_formula_by_hand() -> None:
    logits = torch.log(torch.tensor([[[[0.25, 0.75], [0.5, 0.5]]]]))
    found = generalised_losses(logits, torch.tensor([[0, 1]]), 0.5)
    torch.testing.assert_close(found, torch.tensor([[[(1 - 0.5) / 0.5, (1 - 0.5**0.5) / 0.5]]]))
    mae = generalised_losses(logits, torch.tensor([[0, 1]]), 1.0)
    torch.testing.assert_close(mae, torch.tensor([[[0.75, 0.5]]]))


def test_q_of_zero_is_the_limit_cross_entropy() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 1, 7, 5), torch.randint(5, (2, 7))
    batch = batch_of(labels)
    for smoothing in (0.0, 0.2):
        zero = GeneralisedCE(q=0.0, label_smoothing=smoothing).loss(logits, batch)
        torch.testing.assert_close(zero, Standard(label_smoothing=smoothing).loss(logits, batch))
        near = GeneralisedCE(q=1e-4, label_smoothing=smoothing).loss(logits, batch)
        torch.testing.assert_close(near, zero, rtol=1e-2, atol=1e-3)


def test_the_gradient_is_that_of_cross_entropy_times_p_to_the_q() -> None:
    torch.manual_seed(1)
    logits = torch.randn(1, 1, 1, 4, dtype=torch.float32, requires_grad=True)
    labels = torch.tensor([[2]])
    (plain,) = torch.autograd.grad(generalised_losses(logits, labels, 0.0).sum(), logits)
    (general,) = torch.autograd.grad(generalised_losses(logits, labels, 0.7).sum(), logits)
    p = logits.softmax(-1)[..., 2].item()
    torch.testing.assert_close(general, plain * p**0.7)


def test_padding_does_not_count_and_impossible_labels_stay_finite() -> None:
    logits = torch.tensor([[[[300.0, -300.0], [0.0, 0.0]]]], requires_grad=True)
    batch = batch_of(torch.tensor([[1, 1]]), torch.tensor([[True, False]]))
    loss = GeneralisedCE().loss(logits, batch)
    torch.testing.assert_close(loss, torch.tensor([[1 / 0.7]]))
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert torch.isfinite(gradient).all() and (gradient[0, 0, 1] == 0).all()


@pytest.mark.parametrize("samples", [1, 2, 7, 8, 9, 10, 17, 100])
def test_batches_are_even_and_contain_every_sample_once(samples: int) -> None:
    batches = even_batches(np.arange(samples), 8)
    sizes = (batches >= 0).sum(1)
    held = np.sort(batches[batches >= 0])
    assert held.tolist() == list(range(samples)) and batches.shape[1] <= 8
    assert len(batches) == -(-samples // 8)
    if samples > 1:
        assert sizes.min() >= 2 and sizes.max() - sizes.min() <= 1
    assert all((row[: (row >= 0).sum()] >= 0).all() for row in batches)  # padding comes last


def test_batches_follow_the_generator() -> None:
    plan = Plan("p", np.zeros(20, dtype=np.int64), np.arange(5, 20), 0)
    first, again = (GeneralisedCE().batches(plan, 0, 4, np.random.default_rng(3)) for _ in range(2))
    assert np.array_equal(first, again) and set(first[first >= 0].tolist()) == set(range(5, 20))


def test_settings_and_invalid_settings() -> None:
    assert json.loads(json.dumps(GeneralisedCE().settings())) == {"q": 0.7, "label_smoothing": 0.0}
    with pytest.raises(InputError, match=r"\[0, 1\]"):
        GeneralisedCE(q=1.5)
    with pytest.raises(InputError, match=r"\[0, 1\)"):
        GeneralisedCE(label_smoothing=1)
