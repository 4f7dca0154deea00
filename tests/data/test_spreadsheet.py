"""The apostrophe that keeps a spreadsheet from running a cell comes off again, and no other one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelsieve.data.spreadsheet import neutral, plain


@given(st.text(alphabet="=+-@\t'1.ea, /()%").filter(lambda cell: not cell.startswith("'")))
def test_what_was_made_harmless_is_told_again(cell: str) -> None:
    assert plain(neutral(cell)) == cell


@pytest.mark.parametrize("cell", ["", "'", "'quoted'", "'-1.5", "a'=b", "''=1"])
def test_other_apostrophes_stay(cell: str) -> None:
    assert plain(cell) == cell


@pytest.mark.parametrize(
    ("cell", "written"),
    [("=1+1", "'=1+1"), ("+A1", "'+A1"), ("-2+3", "'-2+3"), ("@SUM(A1)", "'@SUM(A1)"), ("\tx", "'\tx"),
     ("\r=1", "'\r=1"), ("＝1", "'＝1"), ("-1.5", "-1.5"), ("+3e-7", "+3e-7"), ("-.5", "-.5"),
     ("a=b", "a=b"), ("", ""), ("-", "-"), ("=", "'="), ("--", "'--")],
)  # fmt: skip
def test_cells_that_a_spreadsheet_would_run(cell, written):
    assert neutral(cell) == written


@pytest.mark.parametrize(
    "cell",
    ["-0,151", "+0,5", "-,5", "-1.234.567,89", "-1,234,567.89", "-1 234,5", "-1\u00a0234", "-1\u202f234,5", "-1'234.50",
     "-1\u2019234", "-1,5e-3", "+1.5E+10", "-5%", "-5 %", "-0,5\u00a0%", "- 5", "-3/4", "+49 170 1",
     "+49 (0)170/123 45 67", "+1 (555) 010.0000", "+1-555-010-0000", "+49 30-1234567", "+44-20-7946-0000"],
)  # fmt: skip
def test_numbers_stay_as_people_write_them(cell):
    assert neutral(cell) == cell


@pytest.mark.parametrize(
    "cell",
    ["-1+1", "+1+1", "+1-2", "-1-1", "=1", "=-1", "@1", "=0,5", "@49 170 1", "--5", "+-5", "-(-5)", "-5-", "+",
     "-()", "-.", "+1-2|cmd", "+1-2-3", "-1*2", "-2^3", "-1&2", "-1e5+1", "-1e", "-e5", "-5%%", "-5%+1", "-1%1", "-1:1",
     "-1!2", "-1;2", "-$5", "-1'2'!A1", "-'1'", "+49 170 1\n=1", "-0,151\n", "-1\t2", "\t-0,151", "\uff0b49 170 1",
     "-\u0661", "+1234567-1234567", "-1-555-010-0000", "+0-555-010-0000", "+1-555-010-0000-010-0000", "+49 170+1234567",
     "+49-170-1234567|cmd", "+1+cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0", "@SUM(1+1)*cmd|' /C calc'!A0",
     "=cmd|' /C calc'!A0", '=HYPERLINK("http://x","y")', "-A1", "+R1C1", "-1 A1", "+SUM(1,2)", "-0x1", "-1E5A"],
)  # fmt: skip
def test_what_only_looks_like_a_number_is_made_harmless(cell):
    assert neutral(cell) == "'" + cell
    assert plain("'" + cell) == cell


@given(st.text(alphabet="+-0123456789 .,/()%eE'").map(lambda rest: "+" + rest))
def test_nothing_that_stays_can_reach_anything(cell: str) -> None:
    if neutral(cell) == cell:
        signs = cell[1:].count("+") + cell[1:].count("-")
        assert signs == 0 or is_exponent(cell) or 7 <= sum(map(str.isdigit, cell)) <= 15


def is_exponent(cell: str) -> bool:
    _, mark, power = cell.lower().partition("e")
    return bool(mark) and power.lstrip("+-").rstrip("% ").isdigit()


def test_a_long_cell_is_read_in_no_time():
    for end in ("x", "-", "e", "%%"):
        cell = "+49 " + "1 " * 200_000 + end
        assert neutral(cell) == "'" + cell
