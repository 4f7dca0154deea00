"""Cells as numbers: what counts as one, what as missing, and what makes a column neither."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from labelsieve.data.cells import Form, clearly_commas, distinct_values, read_numbers


def test_a_few_odd_cells_among_numbers_are_missing() -> None:
    cells = [str(i / 2) for i in range(17)] + [" 1e3 ", "", None, "NA", "n.a.", "n.a."]
    found = read_numbers(pa.array(cells))
    assert found is not None and found.form == "number" and found.filled == 18
    assert found.odd.tolist() == [21, 22] and found.words == ("n.a.",)
    assert found.values[17] == 1000 and np.isnan(found.values[18:]).all()
    assert read_numbers(pa.array([*cells, "?"])) is None  # 18 of 21
    assert read_numbers(pa.array(["NA", ""])) is None


@pytest.mark.parametrize("cell", ["1_0", "0x1", "inf", "nan ", "1,500", "1,,5", "٣", "1 2", "--1", "1e"])
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
        form = "clock" if pa.types.is_time(values.type) else "date"
        assert found is not None and found.form == form and found.values[0] == expected, values
        assert np.isnan(found.values[1]) and not len(found.odd)


def test_dates_with_odd_cells_and_none_at_all() -> None:
    found = read_numbers(pa.array([f"2024-01-{i:02}" for i in range(1, 20)] + ["2024-02-31", "soon"]))
    assert found is not None and found.words == ("2024-02-31", "soon") and found.filled == 19
    assert read_numbers(pa.array(["3-1-2024"] * 5)) is None
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


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["19,08", "-0,151", "1.234,5", " +7 ", "2,5e3", ",5"], [19.08, -0.151, 1234.5, 7, 2500, 0.5]),
        (["1"] * 18 + ["1,5", "2,"], [*[1] * 18, 1.5, 2]),
        (["1.234", "1.234", "1.234,5", "1.234.567,0"], [1234, 1234, 1234.5, 1234567]),
        (["0,123", "1,234"], [0.123, 1.234]),  # no thousands begin with 0
        (["1234,567", "1,234"], [1234.567, 1.234]),
    ],
)
def test_decimal_commas(cells: list[str], expected: list[float]) -> None:
    found = read_numbers(pa.array(cells))
    assert found is not None and found.form == "comma" and found.values.tolist() == expected
    assert clearly_commas(pa.array(cells)) and found.what == "number"


def test_decimal_commas_with_odd_cells() -> None:
    cells = [f"{i},5" for i in range(18)]
    found = read_numbers(pa.array([*cells, "1.5", "n.a.", "", None]))
    assert found is not None and found.words == ("1.5", "n.a.") and found.filled == 18
    assert read_numbers(pa.array([*cells, "a", "b", "c"])) is None


@pytest.mark.parametrize(
    "cells",
    [
        ["1,234", "5,678"],  # thousands, perhaps
        ["1,234", "-12,345", "7"],
        ["1,234,567", "1,5"],  # surely
        ["1,2", "2,3", "1,2,3"],  # answers that were ticked
        ["1.25", "2.5", "1,5"],
        ["Oslo, 5", "1,5"],
        [",", "1,5"],
    ],
)
def test_what_are_no_decimal_commas(cells: list[str]) -> None:
    assert read_numbers(pa.array(cells)) is None and not clearly_commas(pa.array(cells))


def test_commas_that_may_be_thousands_are_points_where_others_are() -> None:
    cells = pa.array(["1,234", "-12,345", "7"])
    found = read_numbers(cells, commas=True)
    assert found is not None and found.form == "comma" and found.values.tolist() == [1.234, -12.345, 7]
    for still in (["1,234,567", "1,234"], ["1.234"] * 19 + ["1,5"], ["a", "b"], ["1.5", "2.5"]):
        other = read_numbers(pa.array(still), commas=True)
        assert other is None or other.form == "number", still
    assert read_numbers(pa.array([5, 6]), "comma") is not None  # what Arrow has read needs no commas
    assert not clearly_commas(pa.array([5.5])) and not clearly_commas(pa.array(["a", None]))


@pytest.mark.parametrize(
    ("cells", "form", "expected"),
    [
        (["3.1.1970", "03.01.1970 06:00", "3.1.1970, 6:00:00.0", "1970-01-03"], "d.m.y", [2, 2.25, 2.25, 2]),
        (["3/1/1970", "31/1/1970 12:00"], "d/m/y", [2, 30.5]),
        (["1/3/1970", "1/31/1970 12:00 PM", "01/31/1970 12:00am"], "m/d/y", [2, 30.5, 30]),
        (["03.01.70", "03.01.29 12:00", "3.1.1970"], "d.m.y", [2, 21552.5, 2]),
        (["31/01/70", "03/01/70"], "d/m/y", [30, 2]),
    ],
)
def test_dates_with_the_year_at_the_end(cells: list[str], form: Form, expected: list[float]) -> None:
    found = read_numbers(pa.array(cells))
    assert found is not None and (found.form, found.what) == (form, "date") and found.values.tolist() == expected
    again = read_numbers(pa.array(cells[:1]), form)  # new rows need no proof
    assert again is not None and again.values.tolist() == expected[:1]
    assert read_numbers(pa.array([datetime.date(1970, 1, 3)]), form) is not None


@pytest.mark.parametrize(
    "cells",
    [
        ["3/1/2024", "4/12/2024"],  # either
        ["31/1/2024", "1/31/2024"],  # both
        ["31.1.24", "1.2.24"],
        ["1.2.3", "1.2.3.2024"],
        ["31.2.2024", "0.1.2024"],
        ["1.1.2024 25:00", "1.1.2024 13:00 PM", "1.1.2024 1:60", "1.1.2024 0:00 am"],
        ["1/13/0000"],
    ],
)
def test_what_are_no_dates(cells: list[str]) -> None:
    assert read_numbers(pa.array(cells)) is None


def test_one_slip_does_not_hide_the_order_of_dates() -> None:
    found = read_numbers(pa.array([f"{day}/1/2024" for day in range(1, 32)] + ["1/31/2024"]))
    assert found is not None and found.form == "d/m/y" and found.words == ("1/31/2024",)


def test_distinct_values_of_chunks_and_of_lists() -> None:
    codes, values = distinct_values(pa.chunked_array([["b", None], ["a", "b"]]))
    assert codes.tolist() == [0, -1, 1, 0] and values == ["b", "a"]
    assert distinct_values(pa.array([[1], [2], [1], None]))[0].tolist() == [0, 1, 0, -1]
