"""Cells as numbers and dates: what is valid, what is missing, and which columns are neither."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from labelsieve.data.cells import Form, distinct_values, has_decimal_commas, read_numbers


def test_a_few_invalid_cells_among_numbers_are_missing() -> None:
    cells = [str(i / 2) for i in range(17)] + [" 1e3 ", "", None, "NA", "n.a.", "n.a."]
    found = read_numbers(pa.array(cells))
    assert found is not None and found.form == "number" and found.filled == 18
    assert found.invalid_rows.tolist() == [21, 22] and found.invalid_texts == ("n.a.",)
    assert found.values[17] == 1000 and np.isnan(found.values[18:]).all()
    assert read_numbers(pa.array([*cells, "?"])) is None  # 18 of 21
    assert read_numbers(pa.array(["NA", ""])) is None


@pytest.mark.parametrize("cell", ["1_0", "0x1", "inf", "nan ", "1,500", "1,,5", "٣", "1 2", "--1", "1e", "5 kg", "$5"])
def test_invalid_numbers(cell: str) -> None:
    found = read_numbers(pa.array([*["1"] * 20, cell]))
    assert found is not None and np.isnan(found.values[-1])


def test_typed_dates_and_times_are_days() -> None:
    day = datetime.date(1970, 1, 3)
    noon = datetime.datetime(1970, 1, 3, 12, tzinfo=datetime.UTC)
    for values, expected, is_date in (
        (pa.array([day, None]), 2, True),
        (pa.array([day, None], pa.date64()), 2, True),
        (pa.array([noon, None], pa.timestamp("ns", "UTC")), 2.5, True),
        (pa.array([noon.replace(tzinfo=None), None], pa.timestamp("s")), 2.5, True),
        (pa.array([datetime.time(6), None]), 0.25, False),
        (pa.array([datetime.timedelta(hours=36), None]), 1.5, False),
    ):
        found = read_numbers(values)
        assert found is not None and found.is_date == is_date
        assert found.values[0] == expected and np.isnan(found.values[1])


def test_a_known_form() -> None:
    empty = read_numbers(pa.nulls(3), "d.m.y")
    assert empty is not None and np.isnan(empty.values).all()
    assert read_numbers(pa.array([1, 2]), "date") is None
    assert read_numbers(pa.array([datetime.date(1970, 1, 3)]), "number") is None
    found = read_numbers(pa.array(["1,5", "x"]), "comma")
    assert found is not None and found.values[0] == 1.5 and found.invalid_texts == ("x",)
    assert read_numbers(pa.array([[1], [2]])) is None
    assert read_numbers(pa.array(["1", "2"]).dictionary_encode()) is None  # categories


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1,5", "2", "-0,25", ",5", "1,5e3"], [1.5, 2, -0.25, 0.5, 1500]),
        (["1,234", "1,5", "12,345"], [1.234, 1.5, 12.345]),  # one cell shows that commas are decimal
        (["0,123", "0,456"], [0.123, 0.456]),  # thousands do not start with 0
    ],
)
def test_decimal_commas(cells: list[str], expected: list[float]) -> None:
    found = read_numbers(pa.array(cells))
    assert found is not None and found.form == "comma" and np.allclose(found.values, expected)
    assert has_decimal_commas(pa.array(cells))


@pytest.mark.parametrize(
    "cells",
    [
        ["1,234", "12,345", "999"],
        ["1,234,567", "1,234"],
        ["1,2,3", "4,5,6"],
        ["1.5", "2.5"],
        ["a,b", "c,5"],
        ["1", "2"],
    ],
)
def test_no_decimal_commas(cells: list[str]) -> None:
    assert not has_decimal_commas(pa.array(cells))


def test_ambiguous_commas_are_decimal_if_the_table_has_decimal_commas() -> None:
    cells = pa.array(["1,234", "12,345", "999"])
    assert read_numbers(cells) is None
    found = read_numbers(cells, commas=True)
    assert found is not None and found.values.tolist() == [1.234, 12.345, 999]


@pytest.mark.parametrize(
    ("cells", "form", "expected"),
    [
        (["2024-12-31", "1970-01-02 12:00"], "date", [20088, 1.5]),
        (["31.12.2024", "1.2.1970", "02.01.1970 06:00"], "d.m.y", [20088, 31, 1.25]),
        (["31/12/2024", "01/02/1970", "1970-01-03"], "d/m/y", [20088, 31, 2]),
        (["12/31/2024", "01/02/1970"], "m/d/y", [20088, 1]),
    ],
)
def test_dates(cells: list[str], form: Form, expected: list[float]) -> None:
    found = read_numbers(pa.array(cells))
    assert found is not None and found.form == form and np.allclose(found.values, expected)


@pytest.mark.parametrize(
    "cells",
    [
        ["01/02/2024", "03/04/2024"],  # no day above 12
        ["13/01/2024", "01/13/2024"],
        ["31 Dec 2024", "1 Jan 2025"],
        ["31.12.24", "1.1.25"],
        ["14:05", "15:10"],
        ["1.2.10", "1.2.11"],
        ["30.02.2024", "31.02.2024"],
    ],
)
def test_no_dates(cells: list[str]) -> None:
    assert read_numbers(pa.array(cells)) is None


def test_one_typing_error_does_not_hide_the_order_of_dates() -> None:
    found = read_numbers(pa.array([*(f"{day}/01/2024" for day in range(1, 30)), "01/13/2024"]))
    assert found is not None and found.form == "d/m/y" and found.invalid_texts == ("01/13/2024",)


@pytest.mark.parametrize(
    "cells", [["$410.96", "$1,200.50"], ["12 %", "3.5 %"], ["5 kg", "300 g"], ["9'109.64", "3"], ["65,00 €"], ["1,234"]]
)
def test_numbers_with_units_are_not_numbers(cells: list[str]) -> None:
    assert read_numbers(pa.array(cells)) is None


def test_distinct_values_of_chunks_and_of_lists() -> None:
    codes, values = distinct_values(pa.chunked_array([["a", None], ["b", "a"]]))
    assert codes.tolist() == [0, -1, 1, 0] and values == ["a", "b"]
    assert distinct_values(pa.array([[1], [1]]))[0].tolist() == [0, 0]
