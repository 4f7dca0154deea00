"""Where a command may put files of its own: a folder that is new or empty, never one with somebody's files in it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from labelsieve.errors import InputError

LITTER = ("thumbs.db", "desktop.ini")  # what Windows leaves in folders that somebody looked at
FEW = 3  # names in one line


def contents(folder: Path) -> list[str]:
    """What somebody put into a folder. Hidden files (.DS_Store, .gitkeep) make it nobody's; one that is not there is
    empty."""
    if not folder.is_dir():
        return []
    names = (entry.name for entry in folder.iterdir())
    return sorted(name for name in names if not name.startswith(".") and name.lower() not in LITTER)


def check_free(folder: Path, option: str, *, lacking: str = "", own: Collection[str] = ()) -> None:
    """Raise InputError where a folder holds more than `own`; `lacking` names what would make it one of ours."""
    others = [name for name in contents(folder) if name not in own]
    if others:
        some = ", ".join(others[:FEW]) + (f" and {len(others) - FEW:,} more" if len(others) > FEW else "")
        told = f"{some} and no {lacking}" if lacking else some
        raise InputError(f"{folder} holds {told}: give {option} a new or an empty folder")
