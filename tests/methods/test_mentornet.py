import numpy as np
import pytest
import torch

from labelsieve.errors import InputError
from labelsieve.methods import mentornet
from labelsieve.methods.mentornet import MentorNet, batch_percentile, curriculum, mentor_weights, trained_mentor


@pytest.fixture(scope="module")
def mentor():
    return trained_mentor(4, 0)


def test_curriculum_by_hand():
    difference = torch.tensor([-1.0, 0.0, 0.25, 3.0])
    assert curriculum(difference, torch.tensor(18)).tolist() == [1, 1, 1, 1]
    assert curriculum(difference, torch.tensor(19)).tolist() == [1, 1, 0, 0]
    assert curriculum(difference, torch.tensor(89)).tolist() == [1, 1, 0, 0]
    assert curriculum(difference, torch.tensor(90)).tolist() == [1, 1, 0.75, 0]


def forward_by_loops(mentor, loss, difference, label, percent):
    """The mentor for one sample: each direction of the LSTM takes one step from a zero state."""
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    weights = {name: tensor.double().numpy() for name, tensor in mentor.items()}
    gates = np.array([loss, difference]) @ weights["lstm"] + weights["lstm_bias"]
    seen = []
    for unit in range(20):
        cell = sigmoid(gates[unit]) * np.tanh(gates[20 + unit])
        seen.append(sigmoid(gates[40 + unit]) * np.tanh(cell))
    features = np.concatenate([weights["label"][label], weights["epoch"][percent], seen])
    hidden = np.tanh(features @ weights["hidden"] + weights["hidden_bias"])
    return sigmoid(hidden @ weights["out"] + weights["out_bias"])[0]


def test_forward_against_loops(mentor):
    rng = np.random.default_rng(0)
    losses, difference, labels = rng.random((2, 1, 5)) * 4, rng.normal(size=(2, 1, 5)), rng.integers(4, size=(2, 5))
    percent = [30, 95]
    rows = {name: torch.stack([tensor, tensor]) for name, tensor in mentor.items()}
    found = mentor_weights(
        rows,
        torch.tensor(losses, dtype=torch.float32),
        torch.tensor(difference, dtype=torch.float32),
        torch.tensor(labels),
        torch.tensor(percent),
    )
    for t in range(2):
        for b in range(5):
            expected = forward_by_loops(mentor, losses[t, 0, b], difference[t, 0, b], labels[t, b], percent[t])
            assert found[t, 0, b].item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("percent", [0, 18, 19, 50, 89, 90, 99])
@pytest.mark.parametrize("loss", [0.05, 1.0, 4.0])
def test_the_mentor_has_learned_its_curriculum(percent, loss, mentor):
    difference = torch.linspace(-4.95, 4.95, 100)
    rows = {name: tensor[None] for name, tensor in mentor.items()}
    found = mentor_weights(
        rows,
        torch.full((1, 1, 100), loss),
        difference.view(1, 1, -1),
        torch.arange(100)[None] % 4,
        torch.tensor([percent]),
    )
    assert (found[0, 0] - curriculum(difference, torch.tensor(percent))).abs().mean() < 0.05


def test_pretraining_is_a_function_of_its_seed(mentor, monkeypatch):
    monkeypatch.setattr(mentornet, "MENTOR_STEPS", 20)
    again, other, same = (trained_mentor.__wrapped__(4, seed) for seed in (0, 1, 0))
    assert all(torch.equal(again[name], same[name]) for name in mentor)
    assert not torch.equal(again["out"], other["out"])


def test_percentile_is_the_nearest_rank_of_the_valid():
    losses = torch.tensor([[[5.0, 1.0, 4.0, 2.0, 3.0, 0.0]]])
    valid = torch.tensor([[True] * 5 + [False]])
    assert batch_percentile(losses, valid, 0.75).item() == 4  # rank 3 of 0..4
    assert batch_percentile(losses, valid, 0.5).item() == 3
    assert batch_percentile(losses, valid & False, 0.75).item() == 0


def test_loss_against_the_written_out_formula(make_batch, make_plan, stacked, mentor):
    method = MentorNet(percentile=0.5, decay=0.5)
    state = stacked(method, make_plan())
    state["percent"].fill_(50)
    state["dropped"][0, 2] = True
    rng = np.random.default_rng(5)
    logits, labels = rng.normal(size=(1, 1, 6, 4)), [[0, 1, 2, 3, 0, 1]]
    batch = make_batch(labels, index=[[0, 1, 2, 3, 4, -1]], state=state)
    average = 0.0
    for _ in range(3):  # the average moves on with every step
        found = method.loss(torch.tensor(logits), batch)
        p = np.exp(logits[0, 0]) / np.exp(logits[0, 0]).sum(-1, keepdims=True)
        losses = [-np.log(p[b, labels[0][b]]) for b in range(5)]
        average = 0.5 * average + 0.5 * sorted(losses)[2]
        weights = [forward_by_loops(mentor, loss, loss - average, labels[0][b], 50) for b, loss in enumerate(losses)]
        weights[2] = 0
        expected = sum(w * loss for w, loss in zip(weights, losses, strict=True)) / 5
        assert found.item() == pytest.approx(expected, abs=1e-5)
        assert state["moving_percentile"].item() == pytest.approx(average, rel=1e-5)


def test_padding_does_not_change_the_average_and_weights_have_no_gradient(make_batch, make_plan, stacked):
    method = MentorNet()
    state = stacked(method, make_plan())
    state["moving_percentile"].fill_(0.7)
    method.loss(torch.randn(1, 1, 2, 4), make_batch([[0, 0]], index=[[-1, -1]], state=state))
    assert state["moving_percentile"].item() == pytest.approx(0.7)
    logits = torch.randn(1, 1, 4, 4, requires_grad=True)
    batch = make_batch([[0, 1, 2, 3]], state=state)
    weights = method.weights(
        torch.nn.functional.cross_entropy(logits[0, 0], batch.labels[0], reduction="none")[None, None].detach(), batch
    )
    assert not weights.requires_grad


def test_dropout_by_epoch(make_plan, fake_view):
    method, plan = MentorNet(), make_plan()
    state = method.state(plan, samples=4000, classes=4, epochs=100)
    view = fake_view(plan, state, epochs=100)
    shares, percents = [], []
    for view.epoch in range(100):
        method.before_epoch(view)
        shares.append(state["dropped"].float().mean().item())
        percents.append(state["percent"].item())
    assert percents == list(range(100))
    assert np.allclose(shares[:17], 0.5, atol=0.05)
    assert np.allclose(shares[17:], 0.05, atol=0.02)
    view.epoch = 40
    method.before_epoch(view)
    first = state["dropped"].clone()
    method.before_epoch(view)
    assert torch.equal(first, state["dropped"])


@pytest.mark.parametrize("setting", ["percentile", "decay", "dropout", "burn_in_dropout"])
def test_bad_settings(setting):
    with pytest.raises(InputError, match=setting):
        MentorNet(**{setting: 1.5})
    with pytest.raises(InputError, match=setting):
        MentorNet(**{setting: -0.1})
