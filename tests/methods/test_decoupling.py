import numpy as np
import pytest
import torch

from labelsieve.errors import InputError
from labelsieve.methods.decoupling import Decoupling, disagreement


def test_disagreement_by_hand():
    logits = torch.tensor([[[[1.0, 0], [1, 0], [0, 1]], [[1, 0], [0, 1], [1, 0]]]])
    assert disagreement(logits, torch.tensor([[True, True, False]])).tolist() == [[False, True, False]]


def test_against_loops(make_batch):
    rng = np.random.default_rng(2)
    logits, labels = rng.normal(size=(2, 2, 12, 3)), rng.integers(3, size=(2, 12))
    index = [list(range(12)), [*range(10), -1, -1]]
    found = Decoupling().loss(torch.tensor(logits), make_batch(labels.tolist(), index=index))
    for t, size in enumerate([12, 10]):
        p = np.exp(logits[t]) / np.exp(logits[t]).sum(-1, keepdims=True)
        chosen = [b for b in range(size) if logits[t, 0, b].argmax() != logits[t, 1, b].argmax()]
        for k in range(2):
            total = sum(-np.log(p[k, b, labels[t, b]]) for b in chosen)
            assert found[t, k].item() == pytest.approx(total / max(len(chosen), 0.1 * size, 1), rel=1e-5)


def test_the_divisor_has_a_lower_limit(make_batch):
    logits = torch.zeros(1, 2, 40, 2)
    logits[..., 0] = 1
    logits[0, 1, 0] = torch.tensor([0.0, 1.0])
    batch = make_batch([[0] * 40])
    one = torch.nn.functional.cross_entropy(torch.tensor([[1.0, 0.0]]), torch.tensor([0])).item()
    assert Decoupling().loss(logits, batch)[0, 0].item() == pytest.approx(one / 4)
    assert Decoupling(min_fraction=0).loss(logits, batch)[0, 0].item() == pytest.approx(one)


def test_no_gradient_without_disagreement(make_batch):
    logits = torch.randn(1, 1, 6, 3).expand(1, 2, 6, 3).clone().requires_grad_()
    loss = Decoupling().loss(logits, make_batch([[0, 1, 2, 0, 1, 2]]))
    assert loss.tolist() == [[0.0, 0.0]]
    assert not torch.autograd.grad(loss.sum(), logits)[0].any()


def test_warmup_trains_on_everything(make_batch):
    logits = torch.randn(1, 1, 6, 3).expand(1, 2, 6, 3).clone()
    labels = [[0, 1, 2, 0, 1, 2]]
    plain = torch.nn.functional.cross_entropy(logits[0, 0], torch.tensor(labels[0])).item()
    method = Decoupling(warmup_epochs=2)
    assert method.loss(logits, make_batch(labels, epoch=1))[0, 1].item() == pytest.approx(plain)
    assert method.loss(logits, make_batch(labels, epoch=2))[0, 1].item() == 0


def test_bad_settings(make_plan):
    with pytest.raises(InputError, match="min_fraction"):
        Decoupling(min_fraction=1.1)
    with pytest.raises(InputError, match="warmup_epochs"):
        Decoupling(warmup_epochs=-1)
    with pytest.raises(InputError, match="number of epochs"):
        Decoupling(warmup_epochs=11).check(make_plan(), 10)
