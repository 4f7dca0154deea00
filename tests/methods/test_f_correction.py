import numpy as np
import pytest
import torch

from labelsieve import theory
from labelsieve.errors import InputError
from labelsieve.methods.f_correction import FCorrection, estimate_transition, forward_losses


def published_estimate(eta, percentile):
    """As published: the largest probability below the percentile; rows are then made to sum to 1."""
    t = np.empty((eta.shape[1], eta.shape[1]))
    for i in range(eta.shape[1]):
        column = eta[:, i].copy()
        if percentile is not None:
            column[column >= np.percentile(column, percentile, method="higher")] = 0
        t[i] = eta[column.argmax()]
    return t / t.sum(1, keepdims=True)


@pytest.mark.parametrize("percentile", [97.0, 90.0, None])
def test_estimate_is_the_published_one(percentile):
    eta = np.random.default_rng(0).dirichlet([0.3] * 5, size=457)
    found = estimate_transition(torch.tensor(eta), percentile)
    np.testing.assert_allclose(found, published_estimate(eta, percentile), rtol=1e-12)


def test_estimate_by_hand():
    eta = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.3, 0.7]])
    assert estimate_transition(eta, None).tolist() == [pytest.approx([0.9, 0.1]), pytest.approx([0.2, 0.8])]
    # rank floor(0.7 * 3) = 2 of 0..3: the second largest
    assert estimate_transition(eta, 70).tolist() == [pytest.approx([0.6, 0.4]), pytest.approx([0.3, 0.7])]


def test_true_posteriors_give_the_true_matrix():
    T = theory.pair(4, 0.4)
    found = estimate_transition(torch.tensor(T[np.arange(400) % 4]), 97.0)
    np.testing.assert_allclose(found, T, atol=1e-12)


def test_saturated_outputs_still_give_an_anchor_of_the_class():
    found = estimate_transition(torch.eye(3)[torch.arange(300) % 3], 97.0)
    assert torch.equal(found, torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize(("percentile", "classes"), [(97.0, 34), (97.0, 50), (90.0, 10)])
def test_with_many_classes_the_largest_probability_is_the_anchor(percentile, classes, make_plan, fake_view):
    """As many samples lie above the percentile as a class has, or more: it would take another class's sample."""
    T = theory.symmetric(classes, 0.3)
    eta = torch.tensor(T[np.arange(20 * classes) % classes])
    np.testing.assert_allclose(estimate_transition(eta, percentile), T, atol=1e-12)
    method = FCorrection(percentile=percentile, estimate_epochs=1)
    plan = make_plan(labels=np.arange(20 * classes) % classes, train=np.arange(20 * classes))
    view = fake_view(plan, method.state(plan, samples=20 * classes, classes=classes, epochs=2), epochs=2)
    view.outputs, view.epoch = eta, 1
    method.before_epoch(view)
    np.testing.assert_allclose(view.state["transition"], T, atol=1e-6)


def test_the_percentile_is_used_if_a_class_has_enough_samples():
    eta = np.random.default_rng(0).dirichlet([0.1] * 33, size=3300)
    np.testing.assert_allclose(estimate_transition(torch.tensor(eta), 97.0), published_estimate(eta, 97.0), rtol=1e-12)


def test_forward_loss_against_loops():
    rng = np.random.default_rng(3)
    logits, labels = rng.normal(size=(2, 1, 6, 4)), rng.integers(4, size=(2, 6))
    T = rng.dirichlet(np.ones(4), size=(2, 4))
    found = forward_losses(torch.tensor(logits), torch.tensor(labels), torch.tensor(T, dtype=torch.float32))
    for t in range(2):
        for b in range(6):
            p = np.exp(logits[t, 0, b]) / np.exp(logits[t, 0, b]).sum()
            corrected = sum(p[i] * T[t, i, labels[t, b]] for i in range(4))
            assert found[t, 0, b].item() == pytest.approx(-np.log(corrected), rel=1e-5)


def test_the_first_stage_is_cross_entropy(make_batch, make_plan, stacked):
    logits, labels = torch.randn(1, 1, 5, 4), [[0, 1, 2, 3, 0]]
    method = FCorrection()
    found = method.loss(logits, make_batch(labels, index=[[0, 1, 2, 3, -1]], state=stacked(method, make_plan())))
    expected = torch.nn.functional.cross_entropy(logits[0, 0, :4], torch.tensor(labels[0][:4]))
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_zeros_in_t_stay_finite():
    logits = torch.tensor([[[[80.0, -80.0]]]], requires_grad=True)
    loss = forward_losses(logits, torch.tensor([[1]]), torch.eye(2)[None])
    assert torch.isfinite(loss).all()
    assert torch.isfinite(torch.autograd.grad(loss.sum(), logits)[0]).all()


@pytest.mark.parametrize(("estimate_epochs", "total", "turn"), [(None, 20, 10), (4, 14, 4)])
def test_two_stages(estimate_epochs, total, turn, make_plan, fake_view):
    method, plan = FCorrection(estimate_epochs=estimate_epochs), make_plan()
    assert method.epochs(plan, 10) == total
    T = theory.symmetric(4, 0.3)
    view = fake_view(plan, method.state(plan, samples=40, classes=4, epochs=total), epochs=total)
    view.outputs = torch.tensor(T[plan.labels])
    for view.epoch in range(total):
        method.before_epoch(view)
        assert view.restarts == (view.epoch >= turn)
        expected = T if view.epoch >= turn else np.eye(4)
        np.testing.assert_allclose(view.state["transition"], expected, atol=1e-6)


@pytest.mark.parametrize("where", ["method", "plan"])
def test_a_known_matrix_needs_no_first_stage(where, make_plan, fake_view):
    T = theory.pair(4, 0.2)
    method = FCorrection(transition=T) if where == "method" else FCorrection(estimate_epochs=0)
    plan = make_plan(transition=T if where == "plan" else None)
    method.check(plan, 10)
    assert method.epochs(plan, 10) == 10
    view = fake_view(plan, method.state(plan, samples=40, classes=4, epochs=10), epochs=10)
    method.before_epoch(view)
    assert view.restarts == 0
    np.testing.assert_allclose(view.state["transition"], T, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "transition", "message"),
    [
        ({"estimate_epochs": 0}, None, "no transition matrix"),
        ({}, np.eye(4), "estimate_epochs=0"),
        ({"estimate_epochs": 0}, np.eye(3), "classes x classes"),
        ({"estimate_epochs": 0}, np.ones(4), "square matrix"),
        ({"estimate_epochs": 0}, np.full((4, 4), 0.5), "sums to 2"),
        ({"estimate_epochs": 0}, np.eye(4) * 2 - np.eye(4)[::-1], "negative"),
    ],
)
def test_bad_matrices(settings, transition, message, make_plan):
    with pytest.raises(InputError, match=message):
        FCorrection(**settings).check(make_plan(transition=transition), 10)


def test_bad_settings(make_plan):
    with pytest.raises(InputError, match="percentile"):
        FCorrection(percentile=0)
    with pytest.raises(InputError, match="estimate_epochs"):
        FCorrection(estimate_epochs=-1)
    with pytest.raises(InputError, match="4 classes"):
        FCorrection(transition=np.eye(5)).state(make_plan(), samples=40, classes=4, epochs=10)
