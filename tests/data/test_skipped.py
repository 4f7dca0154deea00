"""Samples that are left out: named whole, and an error where none is left."""

from __future__ import annotations

import numpy as np
import pytest

from labelsieve.data.labels import about_left_out, leave_out, without_label
from labelsieve.errors import InputError
from labelsieve.types import LabelledData


def data(labels: list[int]) -> LabelledData:
    ids = np.array([f"my photo {i}.png" for i in range(len(labels))])
    return LabelledData(np.zeros((len(labels), 2)), np.array(labels), ("a", "b"), ids, "table", name="t")


def test_ids_with_spaces_are_told_whole() -> None:
    message: list[str] = []
    assert len(without_label(data([0, -1, 1, -1]), message.append)) == 2
    assert message == ["2 samples left out (no label): id my photo 1.png, id my photo 3.png"]


def test_one_row_is_one() -> None:
    assert about_left_out("empty row", ["line 4"]) == "1 sample left out (empty row): line 4"


def test_where_none_is_left_the_first_is_named() -> None:
    with pytest.raises(InputError, match=r"^t: none of its 2 samples is left \(my photo 0\.png: dropped\)$"):
        leave_out(data([0, 1]), {1: "no label", 0: "dropped"})
