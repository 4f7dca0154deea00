"""Splits of samples into parts, with and without groups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier

from labelsieve import INCV, NCV
from labelsieve.errors import InputError
from labelsieve.selection.splits import stratified_parts


def test_parts_share_out_every_class_and_lose_nobody() -> None:
    labels = np.array([0] * 9 + [1] * 6 + [2] * 30)
    members = np.arange(0, 45, 2)
    parts = stratified_parts(members, labels, 3, np.random.default_rng(0))
    assert sorted(np.concatenate(parts)) == members.tolist()
    counts = np.array([np.bincount(labels[part], minlength=3) for part in parts])
    assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), min_size=2, max_size=60), st.integers(2, 4))
def test_a_group_is_never_on_two_sides_and_nobody_is_lost(samples: list[tuple[int, int]], parts: int) -> None:
    labels, groups = np.array(samples).T
    found = stratified_parts(np.arange(len(labels)), labels, parts, np.random.default_rng(1), groups)
    assert sorted(np.concatenate(found)) == list(range(len(labels)))
    sides = [set(groups[part].tolist()) for part in found]
    if all(len(part) for part in found) and len(np.unique(groups)) >= parts * 4:
        assert sum(map(len, sides)) == len(np.unique(groups))


def test_groups_are_dealt_out_evenly() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(300), rng.integers(1, 9, 300))
    labels = (groups * 7) % 5
    first, second = stratified_parts(np.arange(len(groups)), labels, 2, rng, groups)
    assert not set(groups[first]) & set(groups[second])
    sizes = np.array([np.bincount(labels[half], minlength=5) for half in (first, second)])
    assert (np.abs(sizes[0] - sizes[1]) <= 8).all()


def test_without_groups_a_split_is_as_it_was() -> None:
    labels = np.arange(20) % 3
    apart = stratified_parts(np.arange(20), labels, 2, np.random.default_rng(5))
    order = np.random.default_rng(5).permutation(20)
    order = order[np.argsort(labels[order], kind="stable")]
    assert [half.tolist() for half in apart] == [sorted(order[0::2]), sorted(order[1::2])]


def test_one_group_alone_is_split_after_all() -> None:
    parts = stratified_parts(np.arange(6), np.arange(6) % 2, 2, np.random.default_rng(0), np.zeros(6, dtype=np.int64))
    assert [len(part) for part in parts] == [3, 3]


FOREST = RandomForestClassifier(25, min_samples_leaf=2)  # as "forest", with fewer trees


def clouds(copies: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three classes, a fifth of the labels wrong, each row repeated `copies` times."""
    rng = np.random.default_rng(3)
    true = np.arange(240) % 3
    x = rng.normal(size=(240, 4)) + 4 * np.eye(3, 4)[true]
    given = np.where(rng.random(240) < 0.2, (true + rng.integers(1, 3, 240)) % 3, true)
    order = rng.permutation(240 * copies)
    return tuple(np.repeat(part, copies, axis=0)[order] for part in (x, given, true))  # type: ignore[return-value]


@pytest.mark.parametrize("form", ["array", "frame", "sparse"])
def test_copies_do_not_confirm_each_other(form: str) -> None:
    x, given, true = clouds(4)
    if form == "frame":
        x = pytest.importorskip("pandas").DataFrame(x)
    elif form == "sparse":
        from scipy.sparse import csr_matrix

        x = csr_matrix(x)
    found = INCV(FOREST, random_state=0, n_iterations=1).fit(x, given)
    wrong, flagged = given != true, found.suggested_ != given
    assert flagged[wrong].mean() > 0.85 and wrong[flagged].mean() > 0.8
    assert abs(found.noise_ratio_ - wrong.mean()) < 0.06


def test_groups_that_are_given_stay_together() -> None:
    """Rows of one patient are nearly alike, which no comparison finds."""
    x, given, true = clouds(1)
    rng = np.random.default_rng(4)
    patient = np.repeat(np.arange(240), 4)
    near = x[patient] + 1e-3 * rng.normal(size=(960, 4))
    wrong = (given != true)[patient]
    forest = INCV(FOREST, random_state=0, n_iterations=1)
    flagged = [
        forest.fit(near, given[patient], groups=groups).suggested_ != given[patient]
        for groups in (None, [f"p{i}" for i in patient])
    ]
    recall = [found[wrong].mean() for found in flagged]
    assert recall[0] < 0.5 < 0.85 < recall[1]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([1, 2], "groups: expected one value per sample, 60 values, got"),
        ([None, *range(59)], "groups: 1 value is missing, the first at sample 0"),
        ([7] * 60, "groups: all samples are in one group"),
    ],
)
def test_invalid_groups_are_refused(groups: list[object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        NCV("forest").fit(np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2, groups=groups)
