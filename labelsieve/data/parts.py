"""Splits of a source: train, validation and test, as first-level folders or in a column `split`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labelsieve.csv_files import parse_names
from labelsieve.data.read_options import ReadOptions
from labelsieve.errors import InputError
from labelsieve.progress import Note, NoteKind, Progress

SPLIT_NAMES = frozenset(("train", "val", "validation", "valid", "dev", "test"))
SPLIT_COLUMN = "split"
ALL_SPLITS = "all"
OTHER_SPLIT = "in another split"


def are_splits(names: Sequence[Any]) -> bool:
    """Whether all names are names of splits."""
    return bool(names) and all(str(name).strip().casefold() in SPLIT_NAMES for name in names)


def choose_splits(present: Sequence[str], options: ReadOptions, where: str, progress: Progress) -> list[str]:
    """Return the splits to read.

    By default these are the test splits to score a model, all splits to predict, else all but the test splits.
    """
    test = [name for name in present if name.strip().casefold() == "test"]
    others = [name for name in present if name not in test]
    if options.split is not None:
        wanted = parse_names(options.split, "--split")
        unknown = [name for name in wanted if name not in present and name != ALL_SPLITS]
        if unknown:
            raise InputError(f"--split {', '.join(unknown)}: {where} has the splits {', '.join(present)}")
        used = list(present) if ALL_SPLITS in wanted else [name for name in present if name in wanted]
    elif not options.labelled:
        used = list(present)
    else:
        used = (test if options.allow_one_class else others) or list(present)
    unused = ", ".join(name for name in present if name not in used) or "none"
    progress.note(Note.of(NoteKind.SPLITS, used=", ".join(used), unused=unused))
    return used


def check_no_split(options: ReadOptions, where: str) -> None:
    """Raise InputError if --split is given for a source without splits."""
    if options.split is not None:
        raise InputError(
            f"--split {options.split}: {where} has no splits, which are folders such as train and test with class "
            f"folders in them, or a column {SPLIT_COLUMN!r}"
        )
