"""Class names that people wrote in more than one way. They count apart; here is who notices."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterator, Mapping

import numpy as np

from labelsieve.data.read_options import ReadOptions
from labelsieve.types import LabelledData

RARE = 20  # a misspelling is so many times rarer than what was meant
LONG = 5  # letters of a name in which one slip leaves no doubt about the word
FEW = 5  # examples in one line
DEFAULTS = ReadOptions()
SHOWN_OPTIONS = ("root", "label_column", "text_column", "id_column")
COUNTED = "They count as they are"
NO_LABELS = frozenset(("na", "n/a", "#n/a", "nan", "null", "none", "missing", "?", "-", "--", ".", "tbd"))


def bare(name: str) -> str:
    """A name without case, and without the blanks, dots, dashes and underscores between its words."""
    folded = unicodedata.normalize("NFKC", name).casefold().strip()
    if not any(letter.isalpha() for letter in folded):  # -1 is not 1, nor 1.0 ten
        return folded
    return re.sub(r"(?<=\w)[\s._-]+(?=\w)|_", "", folded)


def alike(counts: Mapping[str, int]) -> dict[str, str]:
    """Names that only case and what stands between words tell from a more frequent one, and that one."""
    groups: dict[str, list[str]] = {}
    for name in counts:
        groups.setdefault(bare(name), []).append(name)
    found = {}
    for names in groups.values():
        usual = max(names, key=lambda name: counts[name])
        found.update({name: usual for name in names if name != usual})
    return found


def perhaps(counts: Mapping[str, int]) -> dict[str, str]:
    """Names that may be a slip of the pen for a more frequent one, or its first letter alone, and that one."""
    counts = {name: count for name, count in counts.items() if name not in alike(counts)}
    misspelt = _misspelt(counts)
    return misspelt | _first_letters([name for name in counts if name not in misspelt])


def no_labels(counts: Mapping[str, int]) -> list[str]:
    """Names with which people say that a label is missing."""
    return [name for name in counts if name.casefold() in NO_LABELS]


def class_counts(data: LabelledData) -> dict[str, int]:
    """Samples of each class that has some, the most frequent first."""
    codes, counts = np.unique(data.y, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {str(data.classes[codes[i]]): int(counts[i]) for i in order}


def about_spelling(counts: Mapping[str, int], source: str, options: ReadOptions) -> str | None:
    """A word on names that may be one class; nothing is changed by it. `reading`: how the source is read, whose options
    the command that changes them needs too."""
    sure, unsure, missing = alike(counts), perhaps(counts), no_labels(counts)
    if not sure and not unsure and not missing:
        return None
    parts = []
    if missing:
        listed = ", ".join(f"{name!r} ({counts[name]:,})" for name in missing[:FEW])
        parts.append(f"classes that look like missing labels: {listed}")
    if sure:
        parts.append(f"classes that differ only in case or between their words: {_pairs(sure, counts)}")
    if unsure:
        parts.append(f"classes that may be another one, misspelt or shortened: {_pairs(unsure, counts)}")
    told = "; ".join(parts)
    words = ["labelsieve", "data", "classes", source]
    for name in SHOWN_OPTIONS:
        if (value := getattr(options, name)) != getattr(DEFAULTS, name):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return f"{told}. {COUNTED}: `{shlex.join(words)}` says how to change that"


def _pairs(found: Mapping[str, str], counts: Mapping[str, int]) -> str:
    pairs = [f"{name!r} ({counts[name]:,}) and {usual!r} ({counts[usual]:,})" for name, usual in found.items()]
    return ", ".join(pairs[:FEW]) + (f" and {len(pairs) - FEW:,} more" if len(pairs) > FEW else "")


def _misspelt(counts: Mapping[str, int]) -> dict[str, str]:
    long = {name: bare(name) for name in counts if len(bare(name)) >= LONG}
    # Two names one slip apart are the same with one letter less of each, or of one: nobody compares all with all.
    shortened: dict[str, list[str]] = {}
    for name, letters in long.items():
        for key in {letters, *_one_less(letters)}:
            shortened.setdefault(key, []).append(name)
    found = {}
    for name, letters in long.items():
        near = {other for key in {letters, *_one_less(letters)} for other in shortened[key]}
        meant = [o for o in near if counts[o] >= RARE * counts[name] and _one_slip(letters, long[o])]
        if meant:
            found[name] = max(meant, key=lambda other: (counts[other], other))
    return found


def _one_less(letters: str) -> Iterator[str]:
    return (letters[:i] + letters[i + 1 :] for i in range(len(letters)))


def _one_slip(a: str, b: str) -> bool:
    """One letter wrong, missing or too many, or two neighbours exchanged. Numbers tell classes apart on purpose."""
    while a and b and a[0] == b[0]:
        a, b = a[1:], b[1:]
    while a and b and a[-1] == b[-1]:
        a, b = a[:-1], b[:-1]
    exchanged = len(a) == 2 and a == b[::-1]
    return (exchanged or max(len(a), len(b)) == 1) and (a + b).isalpha()


def _first_letters(names: list[str]) -> dict[str, str]:
    """Y for yes and N for no: only where each class of a single letter begins one other, or they are just letters."""
    letters = [name for name in names if len(bare(name)) == 1 and name.isalpha()]
    meant = {letter: [o for o in names if len(bare(o)) > 1 and bare(o)[0] == bare(letter)] for letter in letters}
    if any(len(others) != 1 for others in meant.values()):
        return {}
    return {letter: others[0] for letter, others in meant.items()}
