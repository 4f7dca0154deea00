"""Cells that a spreadsheet would run as formulas, made harmless on the way out and told again on the way in."""

from __future__ import annotations

from labelsieve.data.cells import NUMBER

RISKY = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"


def neutral(cell: str) -> str:
    """A cell that a spreadsheet would take for a formula gets an apostrophe in front; numbers stay numbers."""
    if cell and cell[0] in RISKY and not NUMBER.fullmatch(cell):
        return "'" + cell
    return cell


def plain(cell: str) -> str:
    """The cell that `neutral` wrote so; one that it would not have written stays as it is."""
    before = cell.removeprefix("'")
    return before if before != cell and neutral(before) == cell else cell
