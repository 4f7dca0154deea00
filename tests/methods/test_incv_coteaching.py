import math

import numpy as np
import pytest
import torch

from labelsieve.errors import InputError
from labelsieve.methods.incv_coteaching import (
    INCVCoTeaching,
    authors_warmup,
    auto_warmup,
    candidate_share,
    training_sets,
)
from labelsieve.types import CANDIDATE, REMOVED, SELECTED


def split(selected, candidates, make_plan, **changes):
    n = selected + candidates
    order = np.random.default_rng(0).permutation(n)
    return make_plan(labels=np.arange(n) % 3, train=order[:selected], candidates=order[selected:], **changes)


def counts(rows, plan):
    """|B_S| and |B_C| of every batch; real samples must stand before padding."""
    found = []
    for row in rows:
        real = row[row >= 0]
        assert (row[: len(real)] >= 0).all()
        of_s = np.isin(real, plan.train).sum()
        found.append((int(of_s), int(len(real) - of_s)))
    return found


@pytest.mark.parametrize(
    ("selected", "candidates", "expected"),
    [
        (256, 64, [(128, 32), (128, 32)]),  # a quarter
        (256, 128, [(128, 64), (128, 64)]),  # a half: the edge
        (256, 5000, [(128, 64), (128, 64)]),  # C huge: still a half
        (256, 0, [(128, 0), (128, 0)]),  # C empty
        (50, 10, [(50, 10)]),  # S smaller than a batch
        (50, 500, [(50, 25)]),
        (1, 1, [(1, 0)]),  # half a sample, rounded to even
        (130, 13, [(128, 13), (2, 0)]),  # C runs out with the last batch
        (300, 3, [(128, 1), (128, 1), (44, 0)]),
    ],
)
def test_batches_after_the_warmup(selected, candidates, expected, make_plan):
    plan = split(selected, candidates, make_plan)
    method = INCVCoTeaching(warmup=2)
    rows = method.batches(plan, 2, 128, np.random.default_rng(1))
    assert counts(rows, plan) == expected
    assert rows.shape[1] == 128 + round(128 * candidate_share(selected, candidates))
    real = rows[rows >= 0]
    assert len(set(real)) == len(real)
    assert set(plan.train) <= set(real)


def test_the_warmup_uses_only_the_selected_set(make_plan):
    plan, method = split(300, 90, make_plan), INCVCoTeaching(warmup=3)
    for epoch in range(6):
        rows = method.batches(plan, epoch, 128, np.random.default_rng(epoch))
        assert rows.shape == (3, 128 + 38)
        of_c = sum(c for _, c in counts(rows, plan))
        assert (of_c == 0) == (epoch + 1 <= 3)  # e = epoch + 1; the pool widens for e > E_0
        assert set(plan.train) <= set(rows[rows >= 0])
        assert (rows[:, 128:] == -1).all() == (epoch < 3)


def test_batches_depend_only_on_the_generator(make_plan):
    plan, method = split(300, 90, make_plan), INCVCoTeaching(warmup=0)
    first, same, other = (method.batches(plan, 5, 128, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def test_auto_warmup_at_its_threshold():
    assert auto_warmup(200, 1000, 450) == 40
    assert auto_warmup(200, 1000, 451) == 80
    assert auto_warmup(200, 1000, 0) == 40
    assert auto_warmup(10, 1000, 0) == 2


def test_the_authors_rule():
    assert authors_warmup(200, pattern="symmetric", noise_ratio=0.6) == 40
    assert authors_warmup(200, pattern="symmetric", noise_ratio=0.8) == 80
    assert authors_warmup(200, pattern="pair", noise_ratio=0.2) == 80


def test_auto_uses_the_epochs_of_the_check(make_plan):
    method, plan = INCVCoTeaching(), split(300, 90, make_plan)
    with pytest.raises(InputError, match="auto"):
        method.batches(plan, 0, 128, np.random.default_rng(0))
    method.check(plan, 20)
    assert method.warmup_epochs(plan) == 4
    method.check(plan, 50)
    assert method.warmup_epochs(plan) == 10


def test_loss_against_loops(make_batch, make_plan, stacked):
    """n(e) counts |B_S| also where candidates are in the batch; any sample of the batch may be kept."""
    rng = np.random.default_rng(6)
    plan = make_plan(labels=np.arange(12) % 3, train=np.arange(8), candidates=np.arange(8, 12), noise_ratio=0.3)
    method = INCVCoTeaching(warmup=0)
    index = [[0, 9, 3, 8, 5, 11, 7, 2, -1, -1]]  # five of S, three of C
    logits, labels = rng.normal(size=(1, 2, 10, 3)), rng.integers(3, size=(1, 10))
    state = stacked(method, plan, samples=12, classes=3)
    for epoch in (0, 4, 9, 50):
        kept = math.floor(5 * (1 - 0.3 * min((epoch + 1) / 10, 1)) + 0.5)
        found = method.loss(torch.tensor(logits), make_batch(labels.tolist(), index=index, epoch=epoch, state=state))
        p = np.exp(logits[0]) / np.exp(logits[0]).sum(-1, keepdims=True)
        losses = [[-math.log(p[k, b, labels[0, b]]) for b in range(8)] for k in range(2)]
        for k in range(2):
            chosen = sorted(range(8), key=lambda b: losses[1 - k][b])[:kept]
            assert found[0, k].item() == pytest.approx(np.mean([losses[k][b] for b in chosen]), rel=1e-5)


def test_bad_settings(make_plan):
    plan = split(30, 9, make_plan)
    with pytest.raises(InputError, match="labelsieve select"):
        INCVCoTeaching().check(make_plan(candidates=None), 10)
    with pytest.raises(InputError, match="no sample is selected"):
        INCVCoTeaching().check(make_plan(train=np.empty(0, dtype=np.int64), candidates=np.arange(4)), 10)
    with pytest.raises(InputError, match="number of epochs"):
        INCVCoTeaching(warmup=11).check(plan, 10)
    INCVCoTeaching(warmup=10).check(plan, 10)
    with pytest.raises(InputError, match="warmup"):
        INCVCoTeaching(warmup=-1)
    with pytest.raises(InputError, match="warmup"):
        INCVCoTeaching(warmup="soon")
    with pytest.raises(InputError, match="noise ratio"):
        INCVCoTeaching(noise_ratio=1.0)
    with pytest.raises(InputError, match="noise ratio"):
        INCVCoTeaching().check(split(30, 9, make_plan, noise_ratio=None), 10)
    with pytest.raises(InputError, match="gradual_epochs"):
        INCVCoTeaching(gradual_epochs=0)


def test_all_samples_of_a_lost_class_are_used() -> None:
    verdict = np.array([SELECTED, CANDIDATE, REMOVED, CANDIDATE, REMOVED])
    chosen, candidates = training_sets(verdict == SELECTED, verdict == CANDIDATE, np.array([0, 0, 1, 1, 0]))
    assert chosen.tolist() == [0, 2, 3]
    assert candidates.tolist() == [1]
