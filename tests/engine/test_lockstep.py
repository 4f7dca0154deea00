from __future__ import annotations

import itertools
import weakref
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from labelsieve.engine import Diverged, Method, OutOfTime, Plan, Schedule, VectorStore, train
from labelsieve.engine.lockstep import Lockstep
from labelsieve.engine.method import mean_over, sample_losses
from labelsieve.errors import InputError
from labelsieve.methods.coteaching import CoTeaching
from labelsieve.methods.f_correction import FCorrection
from labelsieve.methods.incv_coteaching import INCVCoTeaching
from labelsieve.methods.standard import Standard
from labelsieve.models.resnet_cifar import ResNetCifar

tiny_resnet = partial(ResNetCifar, 10, depth=8)
SGD = Schedule(2, ((0, 0.05), (1, 0.01)), optimizer="sgd")
ADAM = Schedule(3, ((0, 1e-3), (2, 1e-4)), fresh_state=True)


def same(left, right):
    return all(
        torch.equal(a[name], b[name]) for x, y in zip(left, right, strict=True)
        for a, b in zip(x.states, y.states, strict=True) for name in a
    )  # fmt: skip


def furthest(left, right):
    return max(
        float((a[name] - b[name]).abs().max()) for x, y in zip(left, right, strict=True)
        for a, b in zip(x.states, y.states, strict=True) for name in a
    )  # fmt: skip


@pytest.mark.parametrize("method", [Standard(), CoTeaching()])
def test_stacked_networks_learn_weight_for_weight_what_single_ones_learn(store, plans, method):
    options = {"schedule": SGD, "batch_size": 64}
    stacked = train(store, tiny_resnet, method, plans, together=True, **options)
    alone = [train(store, tiny_resnet, method, [plan], together=False, **options)[0] for plan in plans]
    assert furthest(stacked, alone) < 2e-4  # float32 sums in another order
    for a, b in zip(stacked, alone, strict=True):
        assert np.abs(a.scores.probability - b.scores.probability).max() < 1e-3
    untrained = train(store, tiny_resnet, method, plans, schedule=Schedule(1, ((0, 0.0),), optimizer="sgd"))
    assert furthest(stacked, untrained) > 0.01  # the comparison above can fail


def test_an_epoch_repeats_few_samples_as_often_as_asked(digits):
    x = digits[0].reshape(400, -1)[:, ::3].astype(np.float32) / 255
    store, factory = VectorStore(x, torch.device("cpu")), partial(_mlp, x.shape[1])
    shown = []

    class Counting(Standard):
        def loss(self, logits, batch):
            shown.append(batch.index[batch.valid].tolist())
            return super().loss(logits, batch)

    plan = Plan("p", digits[1], np.arange(40), seed=3, epoch_samples=100)
    train(store, factory, Counting(), [plan], schedule=Schedule(1, ((0, 1e-2),)), batch_size=16)
    assert len(shown) == 7  # 3 batches, 3 of another round and 1 of a third one
    assert sorted(itertools.chain(*shown[:3])) == sorted(itertools.chain(*shown[3:6])) == list(range(40))
    assert shown[:3] != shown[3:6]
    shown.clear()
    train(store, factory, Counting(), [replace(plan, epoch_samples=20)], schedule=SGD, batch_size=16)
    assert len(shown) == 6  # never fewer than all samples


def test_a_plain_torch_loop_gives_the_same_weights(digits):
    """The engine's flat Adam, order and weight decay against torch.optim.Adam written out."""
    x = digits[0].reshape(400, -1)[:, ::3].astype(np.float32) / 255
    store, labels = VectorStore(x, torch.device("cpu")), digits[1]
    factory = partial(_mlp, x.shape[1])
    schedule = Schedule(2, ((0, 1e-2), (1, 1e-3)), weight_decay=1e-3)
    plan = Plan("p", labels, np.arange(100, 300), seed=3)
    (result,) = train(store, factory, Standard(), [plan], schedule=schedule, batch_size=32)

    torch.manual_seed(3 * 1000)
    network = factory()
    weights = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim == 1]
    optimizer = torch.optim.Adam([{"params": weights, "weight_decay": 1e-3}, {"params": others}])
    for epoch in range(2):
        for group in optimizer.param_groups:
            group["lr"] = schedule.learning_rate(epoch)
        order = np.random.default_rng([3, epoch, 1]).permutation(plan.train)
        for batch in np.split(order, range(32, 200, 32)):
            loss = nn.functional.cross_entropy(network(torch.as_tensor(x[batch])), torch.as_tensor(labels[batch]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for name, tensor in network.state_dict().items():
        torch.testing.assert_close(result.states[0][name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("hidden", "threads"), [(32, 1), (20_000, 2)])
def test_rows_through_a_small_network_take_one_thread(digits, hidden, threads):
    x = digits[0].reshape(400, -1)[:, ::3].astype(np.float32) / 255
    used: set[int] = set()
    torch.set_num_threads(2)
    train(
        VectorStore(x, torch.device("cpu")), partial(_mlp, x.shape[1], hidden), Standard(),
        [Plan("p", digits[1], np.arange(64), seed=3)], schedule=Schedule(1, ((0, 1e-2),)), batch_size=32,
        progress=lambda _: used.add(torch.get_num_threads()),
    )  # fmt: skip
    assert used == {threads} and torch.get_num_threads() == 2


def _mlp(inputs: int, hidden: int = 32) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 10))


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("method", [Standard(), CoTeaching()])
def test_stopped_after_every_epoch_and_resumed_it_ends_the_same(store, plans, method, together, tmp_path):
    options = {"schedule": ADAM, "batch_size": 64, "together": together, "watch": store}
    undisturbed = train(store, tiny_resnet, method, plans, **options)
    for attempt in itertools.count():
        try:
            resumed = train(store, tiny_resnet, method, plans, checkpoint=tmp_path, stop=lambda: True, **options)
            break
        except OutOfTime:
            assert attempt < 20
    assert attempt >= 3
    assert same(undisturbed, resumed)
    for a, b in zip(undisturbed, resumed, strict=True):
        assert np.array_equal(a.watched, b.watched)
        assert np.array_equal(a.scores.loss, b.scores.loss)
        assert [{**line, "seconds": 0} for line in a.history] == [{**line, "seconds": 0} for line in b.history]


def test_a_resume_with_other_labels_is_refused(store, plans, tmp_path):
    with pytest.raises(OutOfTime):
        train(store, tiny_resnet, Standard(), plans, schedule=ADAM, checkpoint=tmp_path, stop=lambda: True)
    changed = [Plan("a", plans[1].labels, plans[0].train, seed=1), plans[1]]
    with pytest.raises(InputError, match="other settings, data or labels"):
        train(store, tiny_resnet, Standard(), changed, schedule=ADAM, checkpoint=tmp_path)


def test_a_resume_that_is_asked_about_other_samples_is_refused(store, plans, tmp_path):
    plan = replace(plans[0], score=np.arange(10))
    with pytest.raises(OutOfTime):
        train(store, tiny_resnet, Standard(), [plan], schedule=SGD, checkpoint=tmp_path, stop=lambda: True)
    with pytest.raises(InputError, match="other settings, data or labels"):
        changed = replace(plan, score=np.arange(5, 15))
        train(store, tiny_resnet, Standard(), [changed], schedule=SGD, checkpoint=tmp_path)


@pytest.mark.parametrize("change", [{"transition": np.eye(10) * 0.9 + 0.01}, {"suspicion": np.full(400, 0.3)}])
def test_a_resume_with_another_noise_estimate_is_refused(store, plans, tmp_path, change):
    method = FCorrection(estimate_epochs=0)
    plan = replace(plans[0], transition=np.eye(10), suspicion=np.full(400, 0.2))
    with pytest.raises(OutOfTime):
        train(store, tiny_resnet, method, [plan], schedule=SGD, checkpoint=tmp_path, stop=lambda: True)
    with pytest.raises(InputError, match="other settings, data or labels"):
        train(store, tiny_resnet, method, [replace(plan, **change)], schedule=SGD, checkpoint=tmp_path)
    train(store, tiny_resnet, method, [plan], schedule=SGD, checkpoint=tmp_path)  # the same one goes on


def test_a_finished_training_is_not_trained_again(store, plans, tmp_path):
    first = train(store, tiny_resnet, Standard(), plans, schedule=SGD, checkpoint=tmp_path)
    again = train(store, _broken, Standard(), plans, schedule=SGD, checkpoint=tmp_path, together=False)
    assert same(first, again)


def _broken(**_):
    network = tiny_resnet()
    network.forward = None  # would fail if a step were taken
    return network


def test_trainings_of_several_methods_share_a_lockstep(store, plans):
    both = train(store, tiny_resnet, [Standard(), CoTeaching()], plans, schedule=SGD, together=True, batch_size=64)
    alone = train(store, tiny_resnet, CoTeaching(), plans[1:], schedule=SGD, together=True, batch_size=64)
    assert [len(result.states) for result in both] == [1, 2]
    assert furthest(both[1:], alone) < 2e-4


def test_the_best_epoch_scores_where_asked_and_the_last_elsewhere(store, plans):
    results = train(store, tiny_resnet, Standard(), plans, schedule=Schedule(4, ((0, 3e-3),)), batch_size=32)
    best, last = results
    agreement = float((best.scores.predicted == best.plan.labels[best.plan.score]).mean())
    assert agreement == pytest.approx(max(line["agreement"] for line in best.history), abs=1e-6)
    assert ["agreement" in line for line in last.history] == [False, False, False, True]


class Exploding(Method):
    name = "exploding"

    def loss(self, logits, batch):
        return (
            mean_over(sample_losses(logits, batch), batch.valid[:, None])
            * torch.where(batch.epoch > 0, np.nan, 1.0)[:, None]
        )


def test_a_loss_that_becomes_nan_stops_and_keeps_the_checkpoint_before(store, plans, tmp_path):
    with pytest.raises(Diverged, match="epoch 2"):
        train(store, tiny_resnet, Exploding(), plans[:1], schedule=ADAM, checkpoint=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["000000000.safetensors"]


def test_fewer_at_once_change_nothing(store, plans):
    together = train(store, tiny_resnet, Standard(), plans, schedule=SGD)
    one_by_one = [train(store, tiny_resnet, Standard(), [plan], schedule=SGD)[0] for plan in plans]
    assert same(together, one_by_one)


def test_labels_must_match_the_data(store, plans):
    with pytest.raises(InputError, match="3 labels for 400 samples"):
        train(store, tiny_resnet, Standard(), [Plan("p", np.zeros(3, dtype=np.int64), np.arange(3), 0)], schedule=SGD)


def test_algorithm_3_in_a_stack_that_shrinks_learns_what_it_learns_alone(store, digits):
    """Trainings of different length and width: the short one ends first and is left behind."""
    labels, method = digits[1], INCVCoTeaching(warmup=1)
    plans = [
        Plan("long", labels, np.arange(0, 150), 1, candidates=np.arange(150, 180), noise_ratio=0.1),
        Plan("short", labels, np.arange(100, 160), 2, candidates=np.arange(200, 390), noise_ratio=0.3),
    ]
    options = {"schedule": Schedule(3, ((0, 0.05),), optimizer="sgd"), "batch_size": 32}
    stacked = train(store, tiny_resnet, method, plans, together=True, watch=store, **options)
    alone = [train(store, tiny_resnet, method, [plan], together=False, **options)[0] for plan in plans]
    assert furthest(stacked, alone) < 1e-3
    assert [len(result.history) for result in stacked] == [3, 3]
    assert stacked[0].watched.shape == (3, 2, 400)


def test_out_of_memory_is_answered_with_fewer_networks_at_a_time(store, plans, monkeypatch, tmp_path):
    real, sizes, failed = Lockstep.run, [], []

    def limited(self, **options):
        sizes.append(len(self.trainings))
        assert all(lockstep() is None for lockstep in failed)  # or its networks would still fill the memory
        if len(self.trainings) > 1:
            failed.append(weakref.ref(self))
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return real(self, **options)

    expected = train(store, tiny_resnet, Standard(), plans, schedule=SGD)
    monkeypatch.setattr(Lockstep, "run", limited)
    with pytest.warns(UserWarning, match="out of GPU memory with 2 trainings"):
        found = train(store, tiny_resnet, Standard(), plans, schedule=SGD, checkpoint=tmp_path)
    assert sizes == [2, 1, 1] and same(found, expected)
