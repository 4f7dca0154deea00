"""Samples that are left out: named whole, and an error where none is left."""

from __future__ import annotations

import numpy as np
import pytest

from labelsieve.data.columns import Origin
from labelsieve.data.labels import about_left_out, leave_out, leave_out_unusable
from labelsieve.errors import InputError
from labelsieve.types import LabelledData


def data(labels: list[int]) -> LabelledData:
    ids = np.array([f"my photo {i}.png" for i in range(len(labels))])
    return LabelledData(np.zeros((len(labels), 2)), np.array(labels), ("a", "b"), ids, "table", name="t")


def test_samples_without_a_label_are_named() -> None:
    message: list[str] = []
    origin = Origin("t", message.append, lambda row: f"photo {row}")
    assert len(leave_out_unusable(data([0, -1, 1, -1]), origin, labels=True, texts=True)) == 2
    assert message == ["2 samples left out (no label): photo 1, photo 3"]


def test_one_row_is_one() -> None:
    assert about_left_out("empty row", ["line 4"]) == "1 sample left out (empty row): line 4"


def test_where_none_is_left_the_first_is_named() -> None:
    with pytest.raises(InputError, match=r"^t: all 2 samples are skipped.* my photo 0\.png \(dropped\)$"):
        leave_out(data([0, 1]), {1: "no label", 0: "dropped"})
