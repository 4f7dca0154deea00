import math

import numpy as np
import pytest
import torch

from labelsieve.errors import InputError
from labelsieve.methods.standard import Standard


def test_two_rows_by_hand(make_batch):
    # softmax of (ln 3, 0) is (3/4, 1/4): losses ln(4/3) for label 0 and ln 4 for label 1
    logits = torch.tensor([[[[math.log(3), 0.0], [math.log(3), 0.0], [9.0, -9.0]]]])
    found = Standard().loss(logits, make_batch([[0, 1, 0]], index=[[4, 7, -1]]))
    assert found.shape == (1, 1)
    assert found.item() == pytest.approx((math.log(4 / 3) + math.log(4)) / 2, abs=1e-6)


def test_smoothing_against_the_written_out_target(make_batch):
    rng = np.random.default_rng(0)
    logits, labels, s = rng.normal(size=(2, 3, 5, 4)), rng.integers(4, size=(2, 5)), 0.3
    expected = np.zeros((2, 3))
    for t in range(2):
        for k in range(3):
            for b in range(5):
                target = np.full(4, s / 4)
                target[labels[t, b]] += 1 - s
                p = np.exp(logits[t, k, b]) / np.exp(logits[t, k, b]).sum()
                expected[t, k] -= (target * np.log(p)).sum() / 5
    found = Standard(label_smoothing=s).loss(torch.tensor(logits), make_batch(labels.tolist()))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_batch_of_padding_has_no_loss(make_batch):
    logits = torch.randn(1, 1, 3, 4, requires_grad=True)
    loss = Standard().loss(logits, make_batch([[0, 0, 0]], index=[[-1, -1, -1]]))
    assert loss.item() == 0
    assert not torch.autograd.grad(loss.sum(), logits)[0].any()


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, 2.0])
def test_bad_smoothing(smoothing):
    with pytest.raises(InputError, match="label_smoothing"):
        Standard(label_smoothing=smoothing)


def test_settings_are_complete():
    assert Standard(label_smoothing=0.1).settings() == {"label_smoothing": 0.1}
