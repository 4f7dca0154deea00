from __future__ import annotations

import numpy as np
import pytest

from labelsieve.errors import InputError
from labelsieve.labels_csv import most_confused, pair_counts, read_labels

HEAD = "id,label,predicted,probability,loss,verdict,iteration,suspicion,suggested,duplicates,outlier,confidence\n"
ROWS = """\
"a,
b",cat,dog,0.1,2.3,candidate,0,0.9,dog,,,0.5
NA,null,null,0.8,0.2,selected,1,0.2,,,,0.5
x,dog,,,,candidate,0,,,,,0.5
y,cat,dog,0.05,3,removed,2,0.95,dog,,,0.5
z,dog,cat,0.1,2.3,candidate,0,0.9,cat,,,0.5
"""


@pytest.fixture
def columns(tmp_path):
    (tmp_path / "labels.csv").write_text(HEAD + ROWS, encoding="utf-8")
    return read_labels(tmp_path / "labels.csv", ["dog", "cat"])


def test_names_stay_names_and_the_order_is_the_given_one(columns):
    assert columns.classes == ("dog", "cat", "null")
    assert [columns.id(i) for i in range(5)] == ["a,\nb", "NA", "x", "y", "z"]
    assert columns.label.tolist() == [1, 2, 0, 1, 0]
    assert columns.predicted.tolist() == [0, 2, -1, 0, 1]
    assert columns.suggested.tolist() == [0, -1, -1, 0, 1]
    assert columns.verdict.tolist() == [0, 1, 0, 2, 0]
    assert columns.iteration.tolist() == [0, 1, 0, 2, 0]
    assert np.isnan(columns.suspicion[2]) and columns.suspicion[3] == pytest.approx(0.95)
    assert columns.name(-1) is None and columns.name(1) == "cat"


def test_suspects_are_ranked_and_ties_stay_in_order(columns):
    assert np.flatnonzero(columns.suspect()).tolist() == [0, 3, 4]
    assert columns.ranked(np.arange(5)).tolist() == [3, 0, 4, 1, 2]


def test_pairs_and_the_most_confused(columns):
    pairs = pair_counts(columns, np.array([0, 3, 4, 2]))
    assert pairs == {(1, 0): 2, (0, 1): 1}
    assert most_confused(pairs, 5) == [0, 1]
    assert most_confused({(0, 1): 1, (2, 3): 9, (3, 0): 2, (5, 5): 99}, 2) == [2, 3]
    assert most_confused({(2, code): 1 for code in range(3, 20)} | {(0, 1): 5}, 2) == [0, 1]  # one frequent pair


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,label\n1,cat\n", "no column predicted, probability.*select"),
        (HEAD + "1,cat,dog,much,2.3,candidate,0,0.9,dog,,,0.5\n", "much.*select"),
        (HEAD + ROWS.replace("removed", "guilty"), "line 5: .*verdict"),
    ],
)
def test_what_is_not_a_labels_file_is_said(tmp_path, content, message):
    (tmp_path / "labels.csv").write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        read_labels(tmp_path / "labels.csv")
    assert "\n" not in str(caught.value)


def test_a_missing_file_says_what_to_do(tmp_path):
    with pytest.raises(InputError, match="labelsieve select"):
        read_labels(tmp_path / "labels.csv")


def test_no_rows_at_all(tmp_path):
    (tmp_path / "labels.csv").write_text(HEAD)
    assert len(read_labels(tmp_path / "labels.csv")) == 0
