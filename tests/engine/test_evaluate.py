from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from labelsieve.engine import Schedule, VectorStore, evaluate
from labelsieve.engine.bundle import Bundle, initial_state, stackable
from labelsieve.engine.store import fast_store, stage_pictures
from labelsieve.models.resnet_cifar import ResNetCifar

CPU = torch.device("cpu")
tiny_resnet = partial(ResNetCifar, 10, depth=8)
SCHEDULE = Schedule(1, ((0, 0.1),))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))


def bundle_of(factory, seeds):
    return Bundle(factory, [initial_state(factory, seed) for seed in seeds], SCHEDULE, CPU)


def test_scores_are_the_softmax_of_each_network_on_its_own_samples(store, digits, monkeypatch):
    monkeypatch.setattr(evaluate, "CPU_CHUNK", 7)  # several chunks, the last one short
    stack = bundle_of(tiny_resnet, (1, 2))
    index = torch.as_tensor(np.stack([np.arange(30), np.arange(100, 130)]))
    labels = torch.as_tensor(digits[1])[index]
    found = evaluate.scores(stack, store, index, labels)
    for network, seed in enumerate((1, 2)):
        single = tiny_resnet()
        single.load_state_dict(initial_state(tiny_resnet, seed))
        with torch.no_grad():
            p = single.eval()(store.batch(index[network : network + 1], torch.full((1, 30), store.plain))).softmax(1)
        mine = found[network]
        assert np.array_equal(mine.predicted, p.argmax(1))
        np.testing.assert_allclose(mine.confidence, p.max(1).values, rtol=1e-4)
        given = p[torch.arange(30), labels[network]]
        np.testing.assert_allclose(mine.probability, given, rtol=1e-4)
        np.testing.assert_allclose(mine.loss, -given.log(), rtol=1e-4, atol=1e-6)
        assert np.array_equal(mine.top_classes, p.argsort(1, descending=True)[:, :4])
        np.testing.assert_allclose(mine.top_probs, p.sort(1, descending=True).values[:, :4], rtol=1e-4)


class NoFloat64(torch.Tensor):
    """A tensor of a device without float64, such as MPS."""

    def double(self):
        raise TypeError

    def cpu(self):
        return self.as_subclass(torch.Tensor)


def test_mean_scores_are_those_of_the_mean_prediction(monkeypatch):
    monkeypatch.setattr(evaluate, "SCORED_AT_ONCE", 4)  # several pieces, the last one short
    rows, labels = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32), np.arange(9) % 3
    store, states, samples = (
        VectorStore(rows, CPU),
        [initial_state(mlp, seed) for seed in (1, 2)],
        np.arange(9)[::-1].copy(),
    )
    each = evaluate.probabilities
    monkeypatch.setattr(evaluate, "probabilities", lambda *arguments: each(*arguments).as_subclass(NoFloat64))
    found = evaluate.mean_scores(store, mlp, states, labels[samples], samples)
    p = torch.zeros(9, 3)
    for state in states:
        single = mlp()
        single.load_state_dict(state)
        p += single.eval()(torch.from_numpy(rows[samples])).detach().softmax(1) / 2
    given = p[torch.arange(9), torch.from_numpy(labels[samples])]
    assert np.array_equal(found.predicted, p.argmax(1))
    np.testing.assert_allclose(found.confidence, p.max(1).values, rtol=1e-5)
    np.testing.assert_allclose(found.probability, given, rtol=1e-5)
    np.testing.assert_allclose(found.loss, -given.log(), rtol=1e-4)


def test_evaluating_leaves_the_network_training_and_untouched(store):
    stack = bundle_of(tiny_resnet, (1, 2))
    before = stack.states()
    evaluate.predicted_classes(stack, store, [0, 1])
    assert stack.module.training
    assert all(torch.equal(a[name], b[name]) for a, b in zip(before, stack.states(), strict=True) for name in a)


def test_features_of_a_module_without_a_name_for_them():
    rows = np.random.default_rng(0).normal(size=(9, 5))
    store = VectorStore(rows, CPU)
    single = bundle_of(mlp, (4,))
    hidden = evaluate.features(single, store, np.arange(9), 0)
    expected = single.module[:2](torch.as_tensor(rows, dtype=torch.float32))
    torch.testing.assert_close(hidden, expected)


def test_features_of_a_stack_are_each_networks_own(store):
    stack = bundle_of(tiny_resnet, (1, 2))
    second = evaluate.features(stack, store, np.arange(12), 1)
    alone = evaluate.features(bundle_of(tiny_resnet, (2,)), store, np.arange(12), 0)
    torch.testing.assert_close(second, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("networks", [[3], [4, 1], [0, 2, 3], [0, 1, 2, 3]])
def test_few_of_a_stack_answer_as_they_would_in_all_of_it(store, digits, networks):
    stack = bundle_of(tiny_resnet, range(9))
    asked, seats = stack.part(networks)
    assert asked.n == {1: 1, 2: 2, 3: 4, 4: 4}[len(networks)] and len(seats) == len(networks)
    places = [np.arange(10 * n, 10 * n + 5 + n) for n in networks]
    found = evaluate.held_out_scores(stack, store, networks, [(at, digits[1][at]) for at in places])
    classes = evaluate.predicted_classes(stack, store, networks)
    for network, at, scores, own in zip(networks, places, found, classes, strict=True):
        alone = bundle_of(tiny_resnet, [network])
        labels = torch.as_tensor(digits[1][at])[None]
        (expected,) = evaluate.scores(alone, store, torch.as_tensor(at)[None], labels)
        np.testing.assert_allclose(scores.loss, expected.loss, rtol=1e-4, atol=1e-6)
        assert np.array_equal(own, evaluate.predicted_classes(alone, store, [0])[0])
        torch.testing.assert_close(
            evaluate.probabilities(stack, store, at, network), evaluate.probabilities(alone, store, at, 0),
            rtol=1e-4, atol=1e-6,
        )  # fmt: skip


def test_a_part_is_asked_anew_after_every_step(store):
    stack = bundle_of(tiny_resnet, range(4))
    before = evaluate.probabilities(stack, store, np.arange(5), 2)
    stack.load_network(2, initial_state(tiny_resnet, 77))
    after = evaluate.probabilities(stack, store, np.arange(5), 2)
    torch.testing.assert_close(after, evaluate.probabilities(bundle_of(tiny_resnet, [77]), store, np.arange(5), 0))
    assert not torch.equal(before, after)


def test_which_factories_stack():
    assert stackable(tiny_resnet) and not stackable(mlp)


def test_a_new_start_of_one_network_leaves_its_neighbour_alone():
    stack = bundle_of(tiny_resnet, (1, 2))
    stack.first += 1
    stack.count += 5
    kept = stack.states()[0]
    stack.load_network(1, initial_state(tiny_resnet, 9))
    first, second = stack.states()
    assert all(torch.equal(first[name], kept[name]) for name in kept)
    assert all(torch.equal(second[name], tensor) for name, tensor in initial_state(tiny_resnet, 9).items())
    assert stack.count.tolist() == [5, 0]
    assert (stack.first[stack.owner == 0] == 1).all() and (stack.first[stack.owner == 1] == 0).all()


def test_several_views_are_averaged_in_log_space():
    pictures = np.random.default_rng(0).integers(0, 256, (9, 16, 16, 3), dtype=np.uint8)
    seen = fast_store(pictures)
    assert [seen.views, seen.plain] == [(12, 18, 6), 12]  # of 5 x 5 places the middle, and one off along the diagonal
    stack = bundle_of(tiny_resnet, (1, 2))
    index = torch.arange(9).expand(2, -1)
    with torch.no_grad(), evaluate.inference(stack):
        parts = [stack.forward(seen.batch(index, torch.full_like(index, view))).softmax(2) for view in seen.views]
    geometric = torch.stack(parts).log().mean(0).exp()
    expected = geometric / geometric.sum(2, keepdim=True)
    (place, logits), *rest = evaluate.outputs(stack, seen, index)
    assert not rest and place == slice(0, 9)
    torch.testing.assert_close(logits.softmax(2), expected, rtol=1e-4, atol=1e-6)
    assert (logits.softmax(2) - parts[0]).abs().max() > 1e-3  # the other views are seen


def test_a_view_is_the_picture_moved():
    pictures = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
    seen = fast_store(pictures)
    index = torch.tensor([[0, 1]])
    plain, moved = (seen.batch(index, torch.full_like(index, view)) for view in seen.views[:2])
    torch.testing.assert_close(moved[:, :, :-1, :-1], plain[:, :, 1:, 1:])


def test_predictions_average_over_a_shifted_and_a_mirrored_view():
    pictures = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)
    seen = stage_pictures(pictures)
    assert seen.views == (seen.plain,)
    seen.averages_views = True
    index = torch.arange(5)[None]
    first, second = (seen.batch(index, torch.full_like(index, view)) for view in seen.views)
    plain = seen.batch(index, torch.full_like(index, seen.plain))
    torch.testing.assert_close(first[:, :, :-1, :-1], plain[:, :, 1:, 1:])  # shifted along the diagonal
    torch.testing.assert_close(second.flip(3)[:, :, 1:, 1:], plain[:, :, :-1, :-1])  # shifted back and mirrored
    seen.disable_mirroring()
    assert seen.views == (seen.plain,)
    fixed = stage_pictures(pictures, augment=False)
    fixed.averages_views = True
    assert fixed.views == (fixed.plain,)
