"""The apostrophe that keeps a spreadsheet from running a cell comes off again, and no other one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelsieve.data.spreadsheet import neutral, plain


@given(st.text(alphabet="=+-@\t'1.ea").filter(lambda cell: not cell.startswith("'")))
def test_what_was_made_harmless_is_told_again(cell: str) -> None:
    assert plain(neutral(cell)) == cell


@pytest.mark.parametrize("cell", ["", "'", "'quoted'", "'-1.5", "a'=b", "''=1"])
def test_other_apostrophes_stay(cell: str) -> None:
    assert plain(cell) == cell


@pytest.mark.parametrize(
    ("cell", "written"),
    [("=1+1", "'=1+1"), ("+A1", "'+A1"), ("-2+3", "'-2+3"), ("@SUM(A1)", "'@SUM(A1)"), ("\tx", "'\tx"),
     ("\r=1", "'\r=1"), ("＝1", "'＝1"), ("-1.5", "-1.5"), ("+3e-7", "+3e-7"), ("-.5", "-.5"),
     ("a=b", "a=b"), ("", ""), ("-", "'-")],
)  # fmt: skip
def test_cells_that_a_spreadsheet_would_run(cell, written):
    assert neutral(cell) == written
