from __future__ import annotations

import numpy as np
import pytest

from labelsieve.decisions import DecisionLog
from labelsieve.labels_csv import read_labels
from labelsieve.review.review_session import Filter, Queues


@pytest.fixture
def columns(runs, tmp_path):
    return read_labels(runs.table(tmp_path, n=60) / "labels.csv", ["flat", "house", "shop"])


@pytest.fixture
def queues(columns, tmp_path):
    return Queues(columns, DecisionLog(tmp_path / "decisions.csv", columns), None, np.zeros(len(columns), dtype=bool))


@pytest.mark.parametrize(
    "wanted",
    [
        Filter(),
        Filter("all"),
        Filter("selected", given=1),
        Filter("candidate", low=0.5, high=0.9),
        Filter("removed"),
        Filter("suspects", given=0, suggested=2),
    ],
)
def test_a_queue_has_the_matching_samples_by_rank(columns, queues, wanted):
    names = ("candidate", "selected", "removed")
    expected = []
    for i in range(len(columns)):
        suspect = columns.verdict[i] != 1 and columns.suggested[i] >= 0
        fits = wanted.show == "all" or (
            suspect if wanted.show == "suspects" else names[columns.verdict[i]] == wanted.show
        )
        fits = fits and wanted.given in (None, columns.label[i]) and wanted.suggested in (None, columns.suggested[i])
        if fits and wanted.low <= columns.suspicion[i] <= wanted.high:
            expected.append((-columns.suspicion[i], i))
    assert queues.rows(wanted).tolist() == [i for _, i in sorted(expected)]
    assert wanted.mask(columns, np.zeros(len(columns), dtype=bool), queues.no_class).sum() == len(expected)


@pytest.mark.parametrize("bad", [{"show": "guilty"}, {"low": -1}, {"high": 2.0}, {"low": float("nan")}, {"sort": "x"}])
def test_an_invalid_filter_is_refused(bad):
    with pytest.raises(ValueError):
        Filter(**bad)


def test_the_next_open_sample_in_both_directions(queues):
    rows = queues.rows(Filter("all"))
    decided = queues.log.decided
    decided[:] = True
    assert queues.next_open(Filter("all"), 0) is None
    decided[rows[[10, 40]]] = False
    assert queues.next_open(Filter("all"), 0) == 10
    assert queues.next_open(Filter("all"), 11) == 40
    assert queues.next_open(Filter("all"), 41) is None
    assert queues.next_open(Filter("all"), 39, step=-1) == 10
    assert queues.next_open(Filter("all"), 9, step=-1) is None
    assert queues.next_open(Filter("all"), 999) is None


def test_only_a_few_queues_are_cached(queues):
    for i in range(50):
        queues.rows(Filter("all", low=i / 100))
    assert queues._stored.cache_info().currsize <= 16
