"""Teachers, strong views and mixtures: plain formulas, the same numbers in every arrangement, resumed bit for bit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from labelsieve.engine import Method, OutOfTime, Plan, Schedule, VectorStore, train
from labelsieve.engine.bundle import Bundle, initial_state
from labelsieve.engine.method import Views, mean_over, mix_targets
from labelsieve.engine.step import DRAWS, draw_views, mix, strong_view
from labelsieve.errors import InputError
from labelsieve.methods.standard import Standard
from labelsieve.models.small import MLP, SmallCNN

SGD = Schedule(3, ((0, 0.05),), optimizer="sgd", nesterov=True)


def small(n: int = 1) -> SmallCNN:
    return SmallCNN(10, channels=3, widths=(4, 6), n=n)


class Remembering(Method):
    """Cross-entropy of mixed targets from the teacher and from a memory per sample."""

    name = "remembering"

    def views(self):
        return Views(teacher_decay=0.9, strong=True, mixup=0.5, unmixed=0.4)  # the last of three epochs

    def state(self, plan, *, samples, classes, epochs):
        return {"memory": torch.zeros(samples + 1, classes)}

    def loss(self, logits, batch):
        row = torch.arange(len(logits))[:, None]
        p = batch.teacher[:, 0].softmax(-1) * batch.valid[..., None]
        memory = (batch.state["memory"][row, batch.index] + p) / 2
        batch.state["memory"][row, batch.index] = memory
        targets = F.one_hot(batch.labels, logits.shape[-1]) + memory
        losses = -(mix_targets(targets[:, None], batch) * logits.log_softmax(-1)).sum(-1)
        return mean_over(losses, batch.valid[:, None])


def test_a_teacher_is_the_moving_average_of_its_network():
    def factory(n=1):
        return MLP(3, inputs=4, widths=(5,), n=n)

    bundle = Bundle(factory, [initial_state(factory, s) for s in (0, 1)], SGD, torch.device("cpu"), teacher_decay=0.3)
    bundle.rate.fill_(0.1)
    expected = bundle.flat.clone()
    assert torch.equal(bundle.teacher_flat, expected)
    for step in range(1, 5):
        bundle.update([torch.randn_like(p) for p in bundle.parameters])
        decay = min(0.3, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * bundle.flat
        torch.testing.assert_close(bundle.teacher_flat, expected)
    assert not torch.allclose(bundle.teacher_flat, bundle.flat)
    state = bundle.teacher.states()[1]
    torch.testing.assert_close(state["head.weight"], bundle.teacher.module.head.weight[3:].detach())
    evaluated, _ = bundle.part([0, 1])
    assert evaluated is bundle.teacher


def test_the_draws_of_an_epoch():
    order = np.array([[4, 2, 7, 9], [3, 1, -1, -1]])
    numbers, partner, weight = draw_views(order, 0.5, np.random.default_rng(3))
    assert numbers.shape == (2, 4, DRAWS) and numbers.min() >= 0 and numbers.max() < 1
    assert sorted(partner[0]) == [0, 1, 2, 3] and sorted(partner[1, :2]) == [0, 1]
    assert ((weight >= 0.5) & (weight <= 1)).all()
    again = draw_views(order, 0.5, np.random.default_rng(3))
    assert all(np.array_equal(a, b) for a, b in zip((numbers, partner, weight), again, strict=True))
    _, partner, _ = draw_views(np.arange(40_000)[None], 0.5, np.random.default_rng(3))  # a large batch
    assert sorted(partner[0]) == list(range(40_000))
    _, partner, weight = draw_views(order, 0.0, np.random.default_rng(3))
    assert (partner == np.arange(4)).all() and (weight == 1).all()


def test_the_last_epochs_of_a_training_may_be_unmixed():
    views = Views(mixup=0.5, unmixed=0.3)
    assert [views.mixup_at(epoch, 10) for epoch in range(10)] == [0.5] * 7 + [0.0] * 3
    assert Views(mixup=0.5).mixup_at(9, 10) == 0.5 and Views(mixup=0.5, unmixed=1.0).mixup_at(0, 10) == 0.0


@pytest.mark.parametrize("unmixed", [0.4, 1.0])
def test_unmixed_epochs_see_whole_samples(store, plans, unmixed):
    class Looking(Remembering):
        weights: ClassVar[dict[int, list[float]]] = {}

        def views(self):
            return replace(super().views(), unmixed=unmixed)

        def loss(self, logits, batch):
            self.weights.setdefault(int(batch.epoch[0]), []).extend(batch.weight.tolist())
            return super().loss(logits, batch)

    train(store, small, (method := Looking()), plans, schedule=SGD, batch_size=64)
    whole = {epoch: all(w == 1 for w in weights) for epoch, weights in method.weights.items()}
    assert whole == {0: unmixed == 1, 1: unmixed == 1, 2: True}


def test_mixtures_follow_the_plain_formula():
    x = torch.randn(3, 2 * 4)  # 3 samples, 2 networks, 4 features
    partner, weight = torch.tensor([[1, 0, 2], [2, 1, 0]]), torch.tensor([0.7, 0.9])
    found = mix(x, partner, weight).view(3, 2, 4)
    for k in range(2):
        for i in range(3):
            own = x.view(3, 2, 4)[i, k]
            torch.testing.assert_close(
                found[i, k], weight[k] * own + (1 - weight[k]) * x.view(3, 2, 4)[partner[k, i], k]
            )


def test_strong_views(store):
    index = torch.arange(12).view(2, 6)
    x = store.batch(index, torch.full_like(index, store.plain))
    off = torch.ones(2, 6, DRAWS)  # no operation but cutout, whose centre is a corner
    found = strong_view(x, off, store)
    half = x.shape[2] // 2
    torch.testing.assert_close(found[:, :, :half], x[:, :, :half], rtol=1e-4, atol=1e-4)
    assert (found[:, :, -half // 2 :, -half // 2 :] == 0).all()  # a quarter of the square of half the side

    numbers = torch.from_numpy(np.random.default_rng(0).random((2, 6, DRAWS), dtype=np.float32))
    strong = strong_view(x, numbers, store)
    assert strong.shape == x.shape and torch.isfinite(strong).all() and not torch.allclose(strong, x)
    assert torch.equal(strong, strong_view(x, numbers, store))
    for k in range(2):  # a stack sees what each network would see alone
        alone = strong_view(x[:, 3 * k : 3 * k + 3], numbers[k : k + 1], store)
        torch.testing.assert_close(alone, strong[:, 3 * k : 3 * k + 3])


def everything(results):
    return {f"{i}.{name}": tensor for i, found in enumerate(results) for name, tensor in found.states[0].items()}


@pytest.mark.parametrize("together", [True, False], ids=["stacked", "one by one"])
def test_a_training_with_views_resumes_bit_for_bit(store, plans, together, tmp_path):
    def training(**options):
        return train(store, small, Remembering(), plans, schedule=SGD, batch_size=64, together=together, **options)

    whole = training()
    for _ in range(20):
        try:
            again = training(checkpoint=tmp_path, stop=lambda: True)
            break
        except OutOfTime:
            continue
    one, other = everything(whole), everything(again)
    assert [name for name in one if not torch.equal(one[name], other[name])] == []
    assert np.array_equal(whole[0].scores.loss, again[0].scores.loss)
    checkpoint = max(tmp_path.glob("*.safetensors"))
    from safetensors import safe_open

    with safe_open(checkpoint, framework="pt") as file:
        finals = {name for name in file.keys() if ".final0." in name}  # noqa: SIM118
    assert finals


def test_stacked_and_single_networks_see_the_same_views(store, plans):
    stacked, single = (
        train(store, small, Remembering(), plans, schedule=SGD, batch_size=64, together=it) for it in (True, False)
    )
    for a, b in zip(stacked, single, strict=True):
        for name in a.states[0]:
            torch.testing.assert_close(a.states[0][name], b.states[0][name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("together", [True, False], ids=["stacked", "one by one"])
def test_padding_is_mixed_with_nothing(store, plans, together):
    class Checking(Remembering):
        def loss(self, logits, batch):
            padding = mix_targets(batch.valid[:, None, :, None].float(), batch)[:, 0, :, 0][~batch.valid]
            assert len(padding) and (padding == 0).all()
            return super().loss(logits, batch)

    train(store, small, Checking(), plans, schedule=SGD, batch_size=43, together=together)  # the engine reads 48 places


def test_methods_with_different_views_do_not_share_a_lockstep(store, plans):
    with pytest.raises(InputError, match="views"):
        train(store, small, [Standard(), Remembering()], plans, schedule=SGD)


def test_strong_views_are_for_pictures():
    rows = VectorStore(np.random.default_rng(0).normal(size=(20, 4)), torch.device("cpu"))
    plan = Plan("rows", np.arange(20) % 2, np.arange(20), 0)
    with pytest.raises(InputError, match="strong"):
        train(rows, partial(MLP, 2, inputs=4), Remembering(), [plan], schedule=SGD, batch_size=10)
