"""suggestions.csv: who is in it, in what order, and what is said of a damaged one."""

from __future__ import annotations

import numpy as np
import pytest

from labelsieve.errors import InputError
from labelsieve.selection.finalize import read_suggestions, write_suggestions
from labelsieve.types import LabelledData, Selection


def judged(likely):
    nothing = np.zeros(4)
    return Selection(
        verdict=np.array([1, 0, 2, 0], dtype=np.int8),
        iteration=np.zeros(4, dtype=np.int16),
        predicted=np.array([0, 1, 0, 0]),
        probability=nothing,
        confidence=nothing,
        loss=nothing,
        suspicion=np.array([0.01, 0.6, 0.95, 0.7]),
        noise_ratio=0.5,
        transition_matrix=np.eye(2),
        expected_precision=1.0,
        expected_recall=1.0,
        suggested_probability=np.array(likely),
    )


DATA = LabelledData(np.zeros((4, 1)), np.array([0, 0, 1, 1]), ("a,b", "c"), np.array(list("wxyz")), "table")


def test_suspects_most_suspicious_first(tmp_path):
    path = tmp_path / "suggestions.csv"
    write_suggestions(path, DATA, judged([0.99, 0.5, 0.9, 0.25]))
    assert path.read_text().splitlines() == [
        "id,label,suspicion,suggested,probability",
        'y,c,0.95,"a,b",0.9',
        'z,c,0.7,"a,b",0.25',
        'x,"a,b",0.6,c,0.5',
    ]
    assert read_suggestions(path) == {"y": 0.9, "z": 0.25, "x": 0.5}


def test_nothing_where_nothing_was_judged(tmp_path):
    write_suggestions(tmp_path / "suggestions.csv", DATA, judged([np.nan] * 4))
    assert read_suggestions(tmp_path / "suggestions.csv") is None


@pytest.mark.parametrize(
    "content", [b"", b"a,b\n", b"id,label,suspicion,suggested,probability\n1,2\n", b"\xff\xfe", b"id,label\n\x00"]
)
def test_damage_is_one_sentence(tmp_path, content):
    path = tmp_path / "suggestions.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"suggestions\.csv"):
        read_suggestions(path)
