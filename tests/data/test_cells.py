"""Cells as numbers: what counts as one, what as missing, and what makes a column neither."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from labelsieve.data.cells import distinct_values, read_numbers


def test_a_few_odd_cells_among_numbers_are_missing() -> None:
    cells = [str(i / 2) for i in range(17)] + [" 1e3 ", "", None, "NA", "n.a.", "n.a."]
    found = read_numbers(pa.array(cells))
    assert found is not None and found.form == "number" and found.filled == 18
    assert found.odd.tolist() == [21, 22] and found.words == ("n.a.",)
    assert found.values[17] == 1000 and np.isnan(found.values[18:]).all()
    assert read_numbers(pa.array([*cells, "?"])) is None  # 18 of 21
    assert read_numbers(pa.array(["NA", ""])) is None


@pytest.mark.parametrize("cell", ["1_0", "0x1", "inf", "nan ", "1,5", "٣", "1 2", "--1", "1e"])
def test_what_is_no_number(cell: str) -> None:
    found = read_numbers(pa.array([*["1"] * 20, cell]))
    assert found is not None and np.isnan(found.values[-1])


def test_dates_and_times_are_days() -> None:
    day = datetime.date(1970, 1, 3)
    noon = datetime.datetime(1970, 1, 3, 12, tzinfo=datetime.UTC)
    for values, expected in (
        (pa.array([day, None]), 2),
        (pa.array([day, None], pa.date64()), 2),
        (pa.array([noon, None], pa.timestamp("ns", "UTC")), 2.5),
        (pa.array([noon.replace(tzinfo=None), None], pa.timestamp("s")), 2.5),
        (pa.array([datetime.time(6), None]), 0.25),
        (pa.array([datetime.timedelta(days=7), None]), 7),
        (pa.array(["1970-01-03", ""]), 2),
        (pa.array(["1970-01-03T12:00", None]), 2.5),
        (pa.array(["1970-01-03 13:00:00.0+01:00", None]), 2.5),
    ):
        found = read_numbers(values)
        assert found is not None and found.form == "date" and found.values[0] == expected, values
        assert np.isnan(found.values[1]) and not len(found.odd)


def test_dates_with_odd_cells_and_none_at_all() -> None:
    found = read_numbers(pa.array([f"2024-01-{i:02}" for i in range(1, 20)] + ["2024-02-31", "soon"]))
    assert found is not None and found.words == ("2024-02-31", "soon") and found.filled == 19
    assert read_numbers(pa.array(["3.1.2024"] * 5)) is None
    assert read_numbers(pa.array(["a", "b"])) is None
    assert read_numbers(pa.array([None, None])) is None
    assert read_numbers(pa.array(["1", "2"]).dictionary_encode()) is None  # categories, said by whoever wrote it


def test_read_as_something_that_is_known() -> None:
    assert read_numbers(pa.array([datetime.date(2024, 1, 1)]), "number") is None
    assert read_numbers(pa.array([5]), "date") is None
    for values in (pa.array([None, None]), pa.array([None, None], pa.string())):
        empty = read_numbers(values, "date")
        assert empty is not None and np.isnan(empty.values).all()
    words = read_numbers(pa.array(["7", "x", "y"]), "number")
    assert words is not None and words.odd.tolist() == [1, 2] and words.values[0] == 7


def test_distinct_values_of_chunks_and_of_lists() -> None:
    codes, values = distinct_values(pa.chunked_array([["b", None], ["a", "b"]]))
    assert codes.tolist() == [0, -1, 1, 0] and values == ["b", "a"]
    assert distinct_values(pa.array([[1], [2], [1], None]))[0].tolist() == [0, 1, 0, -1]
