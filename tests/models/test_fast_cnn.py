"""The fast network, its first layer, and its recipe on the engine."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from labelsieve.engine import Plan, VectorStore, train
from labelsieve.engine.bundle import Bundle, stackable
from labelsieve.engine.schedule import fast_schedule, triangle
from labelsieve.engine.store import fast_store
from labelsieve.errors import InputError
from labelsieve.execute.network_trainer import FastTrainer
from labelsieve.experiments.datasets import synthetic
from labelsieve.methods.standard import GeneralisedCE
from labelsieve.models import fast_cnn
from labelsieve.models.fast_cnn import FastCNN, fast_cnn_factory, sampled_pictures, whitening_filters
from labelsieve.models.layers import stack_states
from labelsieve.types import Job

WIDTHS = (24, 28, 28)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def filters() -> Tensor:
    torch.manual_seed(0)
    return whitening_filters(torch.randn(50, 3, 8, 8))


def correlated_pictures() -> Tensor:
    torch.manual_seed(1)
    x = torch.randn(400, 3, 9, 9)
    x[:, 1] = 0.8 * x[:, 0] + 0.3 * x[:, 1]
    return x + 0.5 * x.roll(1, 3)


def test_whitened_patches_have_unit_covariance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_cnn, "WHITENING_FLOOR", 0.0)
    x = correlated_pictures()
    filters = whitening_filters(x)
    assert filters.shape == (24, 3, 2, 2)
    out = torch.nn.functional.conv2d(x, filters[:12]).permute(0, 2, 3, 1).reshape(-1, 12)
    torch.testing.assert_close(out.T @ out / len(out), torch.eye(12), atol=1e-3, rtol=0)
    torch.testing.assert_close(filters[12:], -filters[:12])
    patch = x[:, :, :2, :2].reshape(400, 12)
    assert (patch.T @ patch / 400 - torch.eye(12)).abs().max() > 0.3  # the pictures themselves are not white


def test_the_floor_keeps_directions_without_variance_small() -> None:
    x = torch.randn(100, 1, 6, 6)
    filters = whitening_filters(torch.cat([x, x], 1))  # the second channel repeats the first
    assert torch.isfinite(filters).all()
    assert filters.abs().max() <= 1 / np.sqrt(5e-4) + 1e-3


def test_the_store_is_seen_as_networks_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = synthetic(samples=60)
    store = fast_store(bench.pictures)
    x = sampled_pictures(store)
    expected = (bench.pictures / 255 - store.mean) / store.std
    np.testing.assert_allclose(x.numpy(), expected.transpose(0, 3, 1, 2), atol=1e-4)
    monkeypatch.setattr(fast_cnn, "WHITENING_PIXELS", 20 * store.shape[1] * store.shape[2])
    assert len(sampled_pictures(store)) == 20
    with pytest.raises(InputError, match="takes pictures"):
        fast_cnn_factory(VectorStore(np.zeros((4, 3)), torch.device("cpu")), 2)


@pytest.mark.parametrize("training", [True, False])
def test_a_stack_is_its_single_networks(filters: Tensor, training: bool) -> None:
    make = partial(FastCNN, 4, filters=filters, widths=WIDTHS, mirror=True)
    singles = []
    for seed in (1, 2, 3):
        torch.manual_seed(seed)
        single = make()
        with torch.no_grad():
            for norm in single.norms:
                norm.bias.normal_()
                norm.running_mean.normal_()
        singles.append(single.train(training))
    stack = make(n=3)
    stack.load_state_dict(stack_states([single.state_dict() for single in singles]))
    stack.train(training)
    x = torch.randn(6, 3, 3, 16, 12)
    alone = torch.cat([single(x[:, i]) for i, single in enumerate(singles)], 1)
    torch.testing.assert_close(stack(x.flatten(1, 2)), alone, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(stack.norms[1].running_mean, torch.cat([s.norms[1].running_mean for s in singles]))


def test_padding_enters_no_statistic(filters: Tensor) -> None:
    torch.manual_seed(0)
    stack = FastCNN(4, filters=filters, widths=WIDTHS, n=2)
    x = torch.randn(5, 6, 8, 8)
    x[3:, 3:] = 100.0
    for norm in stack.norms:
        norm.valid = torch.tensor([5, 3], dtype=torch.int32)
    found = stack(x).view(5, 2, 4)[:3, 1]
    single = FastCNN(4, filters=filters, widths=WIDTHS)
    single.load_state_dict({name: tensor.chunk(2)[1] for name, tensor in stack.state_dict().items()})
    torch.testing.assert_close(found, single(x[:3, 3:]), rtol=1e-4, atol=1e-5)


def test_statistics_are_those_of_all_processes(filters: Tensor) -> None:
    """Two processes with the same half of a batch find what one finds of it; with another half they do not."""
    torch.manual_seed(0)
    network = FastCNN(4, filters=filters, widths=WIDTHS)
    x = torch.randn(6, 3, 8, 8)
    alone = network(x)
    for norm in network.norms:
        norm.valid = torch.tensor([6], dtype=torch.int32)
        norm.across = lambda own: torch.stack([own, own])
    torch.testing.assert_close(network(x), alone, rtol=1e-4, atol=1e-5)
    for norm in network.norms:
        norm.across = lambda own: torch.stack([own, own + 1])
    assert (network(x) - alone).abs().max() > 1e-3


def test_it_starts_as_the_identity_and_learns_biases_64_times_as_fast(filters: Tensor) -> None:
    network = FastCNN(4, filters=filters, widths=WIDTHS)
    middle = network.weights[1][:, :, 1, 1]
    torch.testing.assert_close(middle, torch.eye(24))
    x = torch.randn(2, 3, 8, 8)
    eye = network.norms[1]
    with torch.no_grad():
        before = eye(torch.zeros(2, 24, 2, 2))
        eye.bias += 0.5
        after = torch.nn.functional.gelu(torch.full((2, 24, 2, 2), 4.0))
        torch.testing.assert_close(eye(torch.zeros(2, 24, 2, 2)) - before, after)
    assert network(x).shape == (2, 4)
    frozen = {"filters", *(name for name, _ in network.named_buffers())}
    assert not frozen & {name for name, _ in network.named_parameters()}
    assert all("norms" not in name or name.endswith("bias") for name, _ in network.named_parameters())


def test_mirror_makes_no_difference_between_left_and_right(filters: Tensor) -> None:
    network = FastCNN(4, filters=filters, widths=WIDTHS, mirror=True).eval()
    x = torch.randn(3, 3, 8, 8)
    torch.testing.assert_close(network(x), network(x.flip(3)), rtol=1e-4, atol=1e-5)
    network.mirror = False
    assert (network(x) - network(x.flip(3))).abs().max() > 1e-4


def test_nonsense_is_named(filters: Tensor) -> None:
    with pytest.raises(InputError, match="must not decrease"):
        FastCNN(4, filters=filters, widths=(16, 32))
    with pytest.raises(InputError, match="too small"):
        FastCNN(4, filters=filters, widths=WIDTHS)(torch.zeros(1, 3, 4, 4))


def test_rates_rise_then_fall_to_little() -> None:
    assert triangle(np.array([0.0, 0.23, 1.0])).tolist() == pytest.approx([0.2, 1.0, 0.07])
    schedule = fast_schedule(20, 1024)
    rates = [schedule.learning_rate(epoch) for epoch in range(20)]
    assert max(rates) == rates[4] == pytest.approx(1.5, rel=0.05)
    assert rates[-1] == pytest.approx(1.5 * (0.07 + 0.93 * 0.5 / 20 / 0.77), rel=1e-3)
    assert fast_schedule(20, 256).learning_rate(7) == pytest.approx(rates[7] / 4)


def test_the_bundle_takes_it_and_every_parameter_learns() -> None:
    bench = synthetic(samples=96)
    store = fast_store(bench.pictures)
    factory = fast_cnn_factory(store, 4, widths=WIDTHS)
    assert stackable(factory)
    bundle = Bundle(factory, [factory().state_dict() for _ in range(2)], fast_schedule(2, 32), torch.device("cpu"))
    assert len(bundle.norms) == 6
    plans = [Plan(name, bench.true, np.arange(96), seed) for seed, name in enumerate("ab")]
    method = GeneralisedCE(q=0.0, label_smoothing=0.2)
    options = {"schedule": fast_schedule(2, 32), "batch_size": 32}
    stacked = train(store, factory, method, plans, together=True, **options)
    alone = train(store, factory, method, plans, together=False, **options)
    for a, b in zip(stacked, alone, strict=True):
        for name, tensor in a.states[0].items():
            torch.testing.assert_close(tensor, b.states[0][name], rtol=1e-2, atol=2e-3, msg=name)
    torch.testing.assert_close(stacked[0].states[0]["filters"], factory().filters)


def test_it_learns_a_small_set_in_a_few_epochs() -> None:
    bench = synthetic(samples=320, mistakes=0)
    trainer = FastTrainer(bench.pictures, classes=4, epochs=16, batch_size=32, widths=WIDTHS, device="cpu")
    (scores,) = trainer.train_and_score([Job("j", bench.true, np.arange(220), np.arange(220, 320), 0)])
    assert np.mean(scores.predicted == bench.true[220:]) > 0.9
