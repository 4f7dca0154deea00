"""incv-posterior: its targets by hand, its memory, hidden values, the fallback, and that it learns."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from labelsieve import noise, theory
from labelsieve.engine import OutOfTime, Plan, VectorStore, lockstep, train
from labelsieve.engine.method import MethodWarning
from labelsieve.engine.schedule import one_drop
from labelsieve.engine.step import DRAWS, hidden_values, hiding_frequencies, hiding_numbers
from labelsieve.errors import InputError
from labelsieve.methods import create, incv_posterior
from labelsieve.methods.incv_posterior import (
    INCVPosterior,
    label_likelihood,
    learnt_transition,
    posterior_targets,
    ranked_again,
)
from labelsieve.models.small import MLP

T = theory.symmetric(4, 0.3)


@pytest.fixture
def plan(make_plan):
    return make_plan(train=np.arange(20), candidates=np.arange(20, 40), transition=T)


def started(method, plan, epochs=20):
    method.check(plan, epochs)
    return {
        name: tensor[None]
        for name, tensor in method.state(plan, samples=len(plan.labels), classes=4, epochs=epochs).items()
    }


def test_targets_by_hand():
    p, likelihood = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.1, 0.8, 0.1])
    plain = p * likelihood
    sharp = (plain / plain.sum()) ** 2
    torch.testing.assert_close(posterior_targets(7 * p, likelihood, 0.5), sharp / sharp.sum())
    assert posterior_targets(torch.zeros(3), likelihood, 0.5).sum() == 0  # padding


def test_the_likelihood_of_a_label_by_hand():
    transition = torch.tensor([[[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.0, 0.5, 0.5]]])
    found = label_likelihood(torch.tensor([[1, 0]]), torch.tensor([[0.2, 0.9]]), transition)
    by_suspicion = torch.tensor([[[0.2 * 2 / 7, 0.8, 0.2 * 5 / 7], [0.1, 0.9, 0.0]]])
    by_class = torch.tensor([[[0.2, 0.6, 0.5], [0.7, 0.3, 0.0]]])
    torch.testing.assert_close(found, by_suspicion * by_class)


def test_labels_without_weight_do_not_change_the_targets(plan, make_batch):
    logits, teacher = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 2, 4)

    def loss(labels, weight):
        method = INCVPosterior(networks=1, mixup=0.0, label_weight=weight)
        batch = make_batch([labels], index=[[5, 30]], epoch=10.0, state=started(method, plan))
        return float(method.loss(logits, replace(batch, teacher=teacher)))

    assert loss([0, 1], 0.0) == loss([2, 3], 0.0)
    assert loss([0, 1], 0.5) != loss([2, 3], 0.5)


@pytest.mark.parametrize("networks", [1, 2])
def test_the_targets_use_the_suspicion_of_the_selection(plan, networks):
    suspicion = np.full(40, 0.3)
    suspicion[:3] = 1.0, 0.0, np.nan
    found = started(INCVPosterior(networks=networks), replace(plan, suspicion=suspicion))["suspicion"][0]
    of_class = started(INCVPosterior(networks=networks), plan)["suspicion"][0]
    assert found[[0, 1]].tolist() == pytest.approx([0.98, 0.02]) and found[2] == of_class[2]
    assert found[5] == pytest.approx(0.3) and found[-1] == 0


def test_the_learnt_transition_matrix_by_hand(monkeypatch):
    monkeypatch.setattr(incv_posterior, "READ_AT_ONCE", 2)  # several pieces, the last one short
    monkeypatch.setattr(incv_posterior, "SELECTION_COUNTS", 2.0)
    first, labels = torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 0, 1])
    predictions = torch.tensor([[0.4, 0.1], [0.0, 0.3], [0.1, 0.9]])
    counts = torch.tensor([[1.8 + 0.8, 0.2 + 0.1], [0.8 + 0.2 + 1.0, 1.2 + 0.9]])
    torch.testing.assert_close(learnt_transition(predictions, labels, first), counts / counts.sum(1, keepdim=True))


def test_the_transition_matrix_follows_the_predictions_after_the_warm_up(plan, fake_view):
    method, known = INCVPosterior(networks=1), replace(plan, suspicion=np.full(40, 0.3))
    state = {name: tensor[0] for name, tensor in started(method, known).items()}
    first = state["transition"].clone()
    predicted = known.labels.copy()
    predicted[np.flatnonzero(predicted == 1)[1:]] = 2  # all labels of class 1 but one look wrong
    state["memory"][:-1, 0] = torch.nn.functional.one_hot(torch.as_tensor(predicted), 4).float()
    method.before_epoch(fake_view(known, state, 20, epoch=3))
    assert torch.equal(state["transition"], first)
    for epoch in (4, 5):  # from the matrix of the selection each time
        method.before_epoch(fake_view(known, state, 20, epoch=epoch))
        found = learnt_transition(state["memory"][:-1, 0], torch.as_tensor(known.labels), first)
        torch.testing.assert_close(state["transition"], found)
    assert found[2, 1] > 2 * first[2, 1]
    assert state["prior"][2] > state["prior"][1]  # although both have as many labels


def test_the_order_of_the_labels_by_hand(monkeypatch):
    monkeypatch.setattr(incv_posterior, "READ_AT_ONCE", 3)  # several pieces, the last one short
    first = torch.tensor([0.2, 0.3, 0.9, 0.6])
    labels, transition = torch.tensor([0, 0, 0, 1]), torch.tensor([[0.8, 0.2], [0.2, 0.8]])
    sure, unsure = [0.99, 0.01], [0.5, 0.5]
    found = ranked_again(first, torch.tensor([unsure, sure, sure, unsure]), labels, transition)
    # Weighted log-odds: 0.3 log(s / (1 - s)) - 0.7 log(4) if unsure, - 0.7 log(4 * 99) if sure.
    assert found.tolist() == pytest.approx([0.6, 0.2, 0.3, 0.9])


@pytest.mark.parametrize("networks", [1, 2])
def test_labels_are_ranked_again_after_the_warm_up(plan, fake_view, networks):
    method, known = INCVPosterior(networks=networks), replace(plan, suspicion=np.linspace(0.1, 0.9, 40))
    state = {name: tensor[0] for name, tensor in started(method, known).items()}
    first = state["suspicion"].clone()
    state["memory"][:-1, 0] = torch.nn.functional.one_hot(torch.as_tensor(known.labels), 4).float()
    state["memory"][0, 0] = state["memory"][0, 0].roll(1)  # the networks contradict the first label
    state["memory"][:, -1] = state["memory"][:, 0]
    method.before_epoch(fake_view(known, state, 20, epoch=3))
    assert torch.equal(state["suspicion"], first)
    method.before_epoch(fake_view(known, state, 20, epoch=4))
    assert state["suspicion"][0] == first.max() and torch.equal(state["suspicion"].sort().values, first.sort().values)
    again = state["suspicion"].clone()
    method.before_epoch(fake_view(known, state, 20, epoch=5))  # from the first suspicions, not from the last ones
    assert torch.equal(state["suspicion"], again)


def test_labels_are_judged_again_if_their_suspicion_is_known(plan):
    assert not INCVPosterior().judges_labels(plan)
    assert INCVPosterior().judges_labels(replace(plan, suspicion=np.full(40, 0.3)))


def test_the_warm_up_shows_classes_as_often_as_they_are_right(plan):
    labels = np.repeat(np.arange(4), 10)
    few = replace(plan, labels=labels, train=np.arange(1, 30), suspicion=np.linspace(0, 0.9, 40))
    method = INCVPosterior(warmup=1.0)
    method.check(few, 20)
    rng = np.random.default_rng(0)
    shown = [np.unique(method.batches(few, epoch, 8, rng)) for epoch in range(20)]
    # 7 labels of each class are right. None of class 3 is selected, and 10 of classes 1 and 2 are.
    seen = np.unique(np.concatenate(shown))
    assert np.bincount(labels[seen[seen >= 0]]).tolist() == [9, 9, 9, 6]
    assert 30 in seen and 39 not in seen and 0 not in seen


@pytest.mark.parametrize("known", [False, True])
def test_memory_and_loss_of_two_networks(plan, make_batch, known):
    plan = replace(plan, suspicion=np.full(40, 0.3)) if known else plan
    method = INCVPosterior(networks=2, mixup=0.0)
    if known:
        plan.suspicion[5] = 0.9
    state = started(method, plan)
    index = [[5, 30, 7, -1]]
    labels = [[int(plan.labels[i]) if i >= 0 else 0 for i in index[0]]]
    teacher = torch.randn(1, 2, 4, 4)
    batch = replace(make_batch(labels, index=index, epoch=10.0, state=state), teacher=teacher)
    logits = torch.randn(1, 2, 4, 4, requires_grad=True)
    shares = state["shares"].clone()
    losses = method.loss(logits, batch).detach()
    p = teacher.softmax(-1)
    torch.testing.assert_close(state["memory"][0, 30], p[0, :, 1] / 2)
    assert (state["memory"][0, -1] == 0).all() and (state["memory"][0, [0, 1, 2]] == 0).all()
    updated = 0.99 * shares + 0.01 * p[:, :, :3].mean(2)
    torch.testing.assert_close(state["shares"], updated)

    transition, log_p = state["transition"][0], logits.detach().log_softmax(-1)
    for k in range(2):
        total = 0.0
        for b in range(3):
            likelihood = transition[:, labels[0][b]]  # without suspicions of the selection that of the class
            if known:
                suspicion = torch.tensor([[float(plan.suspicion[index[0][b]])]])
                likelihood = label_likelihood(torch.tensor([[labels[0][b]]]), suspicion, transition[None])[0, 0].sqrt()
            pull = state["prior"][0] / updated[0, 1 - k]
            target = p[0, 1 - k, b] * likelihood * pull  # the other network predicts
            target = (target / target.sum()) ** 2
            total -= float((target / target.sum() * log_p[0, k, b]).sum())
        assert float(losses[0, k]) == pytest.approx(total / 3, rel=1e-4)


def test_the_warm_up_uses_the_selected_samples(plan):
    method = INCVPosterior(networks=1)
    method.check(plan, 20)
    rng = np.random.default_rng(0)
    assert method.warmup_epochs() == 3
    early, late = (method.batches(plan, epoch, 8, rng) for epoch in (2, 3))
    assert early.shape == late.shape and set(early[early >= 0]) <= set(plan.train)
    assert sorted(late[late >= 0]) == list(range(40))
    for batch in early:  # a step writes the memory of each sample once
        assert len(np.unique(batch[batch >= 0])) == (batch >= 0).sum()


@pytest.fixture
def noisy_plan(plan):
    """A quarter of the selected labels are expected to be wrong."""
    return replace(plan, noise_ratio=0.25, suspicion=np.linspace(0.1, 0.9, 40))


def test_a_second_round_if_many_selected_labels_are_wrong(noisy_plan):
    few, unknown = replace(noisy_plan, noise_ratio=0.05), replace(noisy_plan, noise_ratio=None)
    ranks = replace(noisy_plan, suspicion=None)  # nothing is known about the noise
    plans = (noisy_plan, few, unknown, ranks)
    assert [INCVPosterior().epochs(each, 20) for each in plans] == [40, 20, 20, 20]
    assert [INCVPosterior(rounds=2).epochs(each, 20) for each in plans] == [40] * 4
    assert [INCVPosterior(rounds=1).epochs(each, 20) for each in plans] == [20] * 4


def with_memory(rows, shift):
    """Predictions of one of the first three classes by sample."""
    rows["memory"][:-1] = 0.25 + 0.5 * torch.nn.functional.one_hot((torch.arange(40)[:, None] + shift) % 3, 4)


def test_a_second_round_starts_from_new_networks_and_fixed_targets(noisy_plan, fake_view, make_batch):
    method = INCVPosterior(networks=1, mixup=0.0)
    state = started(method, noisy_plan)
    rows = {name: tensor[0] for name, tensor in state.items()}
    view = fake_view(noisy_plan, rows, 40)
    for view.epoch in range(25):
        with_memory(rows, view.epoch)
        before = rows["suspicion"].clone()
        method.before_epoch(view)
        assert view.restarts == (view.epoch >= 20)
        assert rows["fixed"] == (20 <= view.epoch < 23)
        ranked = 4 <= view.epoch < 20 or view.epoch == 24
        assert torch.equal(rows["suspicion"], before) != ranked

    kept = {name: rows[name].clone() for name in ("memory", "shares")}
    labels = [[int(noisy_plan.labels[i]) for i in (5, 30)]]
    logits, teacher = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 2, 4)

    def loss(epoch, *, fixed):
        rows["fixed"].fill_(fixed)
        batch = replace(make_batch(labels, index=[[5, 30]], epoch=epoch, state=state), teacher=teacher)
        return float(method.loss(logits, batch))

    log_p = logits.log_softmax(-1)[0, 0]
    likelihood = label_likelihood(torch.tensor(labels), rows["suspicion"][[5, 30]][None], state["transition"])[0].sqrt()
    target = posterior_targets(rows["memory"][[5, 30], 0] * rows["prior"] / rows["shares"][0], likelihood, 0.5)
    assert loss(22.0, fixed=True) == pytest.approx(-float((target * log_p).sum(-1).mean()), rel=1e-5)
    assert all(torch.equal(rows[name], values) for name, values in kept.items())
    by_given = -float(log_p[[0, 1], labels[0]].mean())
    assert loss(2.0, fixed=False) == pytest.approx(by_given, rel=1e-5)  # the first round begins with the given labels
    assert not any(torch.equal(rows[name], values) for name, values in kept.items())


def test_no_second_round_after_a_class_has_vanished(noisy_plan, fake_view):
    method = INCVPosterior(networks=1)
    rows = {name: tensor[0] for name, tensor in started(method, noisy_plan).items()}
    rows["memory"][:-1] = torch.tensor([0.5, 0.3, 0.19, 0.01])
    view = fake_view(noisy_plan, rows, 40, epoch=10)
    with pytest.warns(MethodWarning, match="forward-corrected"):
        method.before_epoch(view)
    view.epoch = 20
    method.before_epoch(view)
    assert view.restarts == 0


@pytest.mark.parametrize("warmup", [0.0, 0.15, 1.0])
def test_the_second_round_has_batches_of_all_samples_and_some_epochs_of_fixed_targets(noisy_plan, fake_view, warmup):
    method = INCVPosterior(warmup=warmup)
    rows = {name: tensor[0] for name, tensor in started(method, noisy_plan).items()}
    rng = np.random.default_rng(0)
    for epoch in (20, 21, 23, 39):
        found = method.batches(noisy_plan, epoch, 8, rng)
        assert sorted(found[found >= 0]) == list(range(40))
    with_memory(rows, 0)
    method.before_epoch(fake_view(noisy_plan, rows, 40, epoch=20))
    assert rows["fixed"] == 1


def numbers_store():
    return VectorStore(np.random.default_rng(0).normal(size=(40, 5)), torch.device("cpu"))


def trained_on_numbers(*plans, epochs=4, method=None, **options):
    return train(
        numbers_store(), partial(MLP, 4, inputs=5), method or INCVPosterior(), plans, schedule=one_drop(epochs),
        batch_size=23, classes=4, **options,
    )  # fmt: skip


def equal_networks(one, other):
    pairs = zip(one.states, other.states, strict=True)
    return all(torch.equal(left[name], right[name]) for left, right in pairs for name in left)


def test_the_first_of_two_rounds_is_a_training_of_one_round(noisy_plan):
    (chosen,) = trained_on_numbers(noisy_plan)
    (twice,), (once,) = (trained_on_numbers(noisy_plan, method=INCVPosterior(rounds=n)) for n in (2, 1))
    assert equal_networks(chosen, twice) and not equal_networks(chosen, once)
    assert len(chosen.history) == 8
    for name in ("loss", "learning_rate"):
        assert [line[name] for line in chosen.history[:4]] == [line[name] for line in once.history]
    assert [line["learning_rate"] for line in chosen.history[4:]] == [line["learning_rate"] for line in once.history]


def test_one_and_two_rounds_in_one_lockstep(noisy_plan):
    plans = [replace(noisy_plan, noise_ratio=ratio, seed=seed) for seed, ratio in enumerate((0.25, 0.05, 0.25))]
    shown = []
    found = trained_on_numbers(*plans, progress=lambda state: shown.append((state["epoch"], state["epochs"])))
    assert [len(each.history) for each in found] == [8, 4, 8]
    assert shown[-1] == (8, 8) and sorted(set(shown)) == shown  # the epoch rises to the end
    for one, plan in zip(found, plans, strict=True):
        assert equal_networks(one, trained_on_numbers(plan)[0])


def test_mixup_ends_in_every_round(plan, monkeypatch):
    drawn, draw_views = [], lockstep.draw_views
    monkeypatch.setattr(
        lockstep, "draw_views", lambda order, mixup, rng: draw_views(order, drawn.append(mixup) or mixup, rng)
    )
    trained_on_numbers(plan, method=INCVPosterior(rounds=2, unmixed=0.5))
    assert drawn == [0.5, 0.5, 0, 0, 0.5, 0.5, 0, 0]


@pytest.mark.parametrize("stop_after", [3, 4, 5, 7])
def test_a_stopped_training_of_two_rounds_continues_with_the_same_steps(noisy_plan, tmp_path, stop_after):
    epochs = iter(range(1, 9))
    (whole,) = trained_on_numbers(noisy_plan)
    with pytest.raises(OutOfTime):
        trained_on_numbers(noisy_plan, checkpoint=tmp_path, stop=lambda: next(epochs) == stop_after)
    (resumed,) = trained_on_numbers(noisy_plan, checkpoint=tmp_path)
    assert [line["loss"] for line in resumed.history] == [line["loss"] for line in whole.history]
    assert equal_networks(resumed, whole)


@pytest.mark.parametrize("small_data", [False, True])
def test_a_class_that_vanishes_ends_the_targets_with_a_warning(plan, fake_view, small_data):
    method = INCVPosterior(networks=2)
    state = {name: tensor[0] for name, tensor in started(method, plan).items()}
    state["memory"][:-1] = 0.25
    method.before_epoch(fake_view(plan, state, 20, epoch=10))
    assert state["target_weight"].tolist() == [1, 1]
    if small_data:  # the memory shows it first
        state["memory"][:-1, 1] = torch.tensor([0.5, 0.3, 0.19, 0.01])
    else:
        state["shares"][1] = torch.tensor([0.5, 0.3, 0.19, 0.01])
    with pytest.warns(MethodWarning, match="forward-corrected"):
        method.before_epoch(fake_view(plan, state, 20, epoch=10))
    assert state["target_weight"].tolist() == [0, 0]  # the other network learns from the predictions of this one
    method.before_epoch(fake_view(plan, state, 20, epoch=11))  # says it once


@pytest.mark.parametrize(
    "changes", [{"candidates": None}, {"transition": None}, {"train": np.arange(0)}, {"transition": np.ones((4, 4))}]
)
def test_refused_plans(plan, changes):
    with pytest.raises(InputError, match="incv-posterior"):
        INCVPosterior().check(replace(plan, **changes), 20)


@pytest.mark.parametrize(
    "settings",
    [
        {"networks": 0},
        {"networks": 3},
        {"temperature": 0},
        {"teacher_decay": 1},
        {"warmup": 2},
        {"hidden": 1},
        {"label_weight": 1.5},
        {"rounds": 0},
        {"rounds": 3},
        {"rounds": 1.5},
        {"rounds": "twice"},
    ]
    + [{"strong": value} for value in (1, "yes", None, np.ones(3))],
)
def test_refused_settings(settings):
    with pytest.raises(InputError):
        create("incv-posterior", **settings)


def test_too_much_memory_is_refused(make_plan):
    labels = np.zeros(1_100_000, dtype=np.int64)
    plan = make_plan(labels=labels, train=np.arange(10), candidates=np.arange(10, 20), transition=np.eye(1000))
    INCVPosterior(networks=1).check(plan, 10)
    with pytest.raises(InputError, match="8 GiB"):
        INCVPosterior(networks=2).check(plan, 10)


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_confusions_that_were_not_counted_are_one_percent_of_a_row(make_plan, classes):
    plan = make_plan(labels=np.arange(2000) % classes, transition=np.eye(classes), candidates=np.arange(0))
    method = INCVPosterior()
    method.check(plan, 10)
    state = method.state(plan, samples=2000, classes=classes, epochs=10)
    assert 0.985 < float(state["transition"].diagonal().min()) < 0.999
    assert float(state["suspicion"][:-1].max()) < 0.011


def test_memory_for_50_000_samples(make_plan):
    labels = np.arange(50_000) % 10
    plan = make_plan(labels=labels, train=np.arange(50_000), candidates=np.arange(0), transition=np.eye(10))
    method = INCVPosterior()
    method.check(plan, 10)
    state = method.state(plan, samples=50_000, classes=10, epochs=10)
    assert sum(tensor.nbytes for tensor in state.values()) < 4.4e6  # 4 MB of predictions, as docs/methods.md says


def test_the_recipe_for_pictures():
    method = create("incv-posterior", **INCVPosterior.recipe.settings)
    assert method.views().strong and method.networks == 1
    assert not INCVPosterior().views().strong


def test_the_networks_do_not_see_a_part_of_the_values_of_rows():
    numbers = torch.rand(1, 4000, DRAWS, generator=torch.Generator().manual_seed(1)).expand(2, -1, -1)
    used = hiding_numbers(numbers, torch.tensor([0, 1]))  # two networks of a training
    hidden = hidden_values(used, hiding_frequencies(50), 0.3).float()
    torch.testing.assert_close(hidden.mean(0), torch.full((100,), 0.3), rtol=0, atol=0.03)
    together = hidden.T @ hidden / 4000  # pairs of values are hidden independently of each other
    torch.testing.assert_close(together.fill_diagonal_(0.09), torch.full((100, 100), 0.09), rtol=0, atol=0.03)
    alone = hidden_values(used[1:, 5:9], hiding_frequencies(50), 0.3)
    assert torch.equal(alone.float(), hidden[5:9, 50:])
    store = VectorStore(np.array([[1.0, 2.0], [3.0, 6.0]]), torch.device("cpu"))
    assert store.centre.tolist() == [2, 4]
    many = hiding_numbers(numbers[:1].expand(6, -1, -1), torch.arange(6))  # more networks than there are numbers
    assert torch.equal(many[4], many[0]) and not torch.equal(many[3], many[0])
    assert INCVPosterior().views().hidden == 0.3


@pytest.mark.parametrize("networks", [1, 2])
def test_plans_in_one_lockstep_do_not_influence_each_other(plan, networks):
    """Batches of 23 samples, and of 7 in the warm-up of the second plan."""
    store = VectorStore(np.random.default_rng(0).normal(size=(40, 5)), torch.device("cpu"))
    labels = plan.labels.astype(np.int32)
    plans = [plan, replace(plan, labels=labels, train=np.arange(7), seed=4, suspicion=np.linspace(0, 1, 40))]

    def trained(*plans):
        method = INCVPosterior(networks=networks, warmup=0.4)
        return train(store, partial(MLP, 4, inputs=5), method, plans, schedule=one_drop(4), batch_size=23, classes=4)

    for found, (alone,) in zip(trained(*plans), (trained(one) for one in plans), strict=True):
        for one, other in zip(found.states, alone.states, strict=True):
            assert all(torch.equal(one[name], other[name]) for name in one)


def test_it_beats_standard_on_digits_with_40_percent_noise():
    """The same network, epochs and learning rate; 20 epochs are enough for `standard` to learn the wrong labels."""
    from sklearn.datasets import load_digits
    from sklearn.neighbors import KNeighborsClassifier

    torch.set_num_threads(1)
    found = load_digits()
    x, true, n = (found.data - 8) / 6, found.target.astype(np.int64), 700
    transition = theory.symmetric(10, 0.4)
    given = np.asarray(noise.corrupt(true[:n], transition, np.random.default_rng(0)), dtype=np.int64)
    selected, order = np.zeros(n, dtype=bool), np.random.default_rng(0).permutation(n)
    for fit, held_out in ((order[: n // 2], order[n // 2 :]), (order[n // 2 :], order[: n // 2])):
        neighbours = KNeighborsClassifier(10).fit(x[fit], given[fit])
        selected[held_out] = neighbours.predict(x[held_out]) == given[held_out]
    store, watch = (VectorStore(part, torch.device("cpu")) for part in (x[:n], x[n:]))
    plans = {
        "standard": Plan("standard", given, np.arange(n), 0),
        "incv-posterior": Plan(
            "incv-posterior", given, np.flatnonzero(selected), 0, candidates=np.flatnonzero(~selected),
            transition=transition,
        ),
    }  # fmt: skip
    accuracy = {}
    for name, plan in plans.items():
        (result,) = train(
            store, partial(MLP, 10, inputs=64), create(name), [plan], schedule=one_drop(20), batch_size=43,
            watch=watch, watch_every=20, classes=10,
        )  # fmt: skip
        accuracy[name] = float((result.watched[-1] == true[n:]).mean())
    assert accuracy["incv-posterior"] > accuracy["standard"] + 0.15
