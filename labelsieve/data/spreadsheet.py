"""Cells that a spreadsheet would run as formulas, made harmless on the way out and told again on the way in.

Numbers and telephone numbers begin as some formulas do and stay as they are, however people write them. What a cell has
to hold before it can run or fetch anything (a letter, a quote, a bar, a colon, an exclamation mark) is in none of them,
nor is a sum such as -1+1 or +1-2.
"""

from __future__ import annotations

import re

RISKY = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
BLANKS = " \u00a0\u2009\u202f"  # the last three keep groups of digits together
# A sign and no further one: -0,151, -1 234.5, +49 (170) 1, -3/4.
ONE_SIGN = re.compile(rf"[+-][{BLANKS}.,(]*[0-9][0-9{BLANKS}.,/()]*")
# The same with an exponent, a percent sign or Swiss thousands: -1,5e-3, -5 %, -1'234.
NUMBER = re.compile(rf"[+-][{BLANKS}.,]*[0-9][0-9{BLANKS}.,'\u2019]*([eE][+-]?[0-9]+)?[{BLANKS}]?%?")
# Hyphens may be minus signs: only after the code of a country, in as many digits as a telephone number has.
PHONE = re.compile(rf"\+[1-9][0-9]{{0,2}}[{BLANKS}.()/-][0-9{BLANKS}.()/-]*[0-9]")
PHONE_DIGITS = range(7, 16)  # ITU-T E.164 allows 15


def neutral(cell: str) -> str:
    """A cell that a spreadsheet would take for a formula gets an apostrophe in front; numbers stay numbers."""
    if cell and cell[0] in RISKY and cell != "-" and not is_number(cell):  # a lone dash says that there is nothing
        return "'" + cell
    return cell


def is_number(cell: str) -> bool:
    """Is a cell that begins with a sign a number, or a telephone number, and nothing to be worked out?"""
    if ONE_SIGN.fullmatch(cell) or NUMBER.fullmatch(cell):
        return True
    return PHONE.fullmatch(cell) is not None and sum(map(str.isdigit, cell)) in PHONE_DIGITS


def plain(cell: str) -> str:
    """The cell that `neutral` wrote so; one that it would not have written stays as it is."""
    before = cell.removeprefix("'")
    return before if before != cell and neutral(before) == cell else cell
