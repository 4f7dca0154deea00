"""Class names that look like different spellings of one class. They stay separate classes; the user gets a note."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterator, Mapping

import numpy as np

from labelsieve.data.read_options import ReadOptions
from labelsieve.types import LabelledData

TYPO_RATIO = 20  # a typo is at least this many times rarer than the class that was meant; more often it is a class
SHORTEST_WORD = 5  # letters; in shorter words one letter often makes another word (cat, cut)
EXAMPLES = 5  # shown in one note
DEFAULTS = ReadOptions()
SHOWN_OPTIONS = ("root", "label_column", "text_column", "id_column")
PLACEHOLDERS = frozenset(("na", "n/a", "#n/a", "nan", "null", "none", "missing", "?", "-", "--", ".", "tbd"))


def fold_name(name: str) -> str:
    """A name in lower case, without spaces, dots, hyphens and underscores between its words."""
    folded = unicodedata.normalize("NFKC", name).casefold().strip()
    if not any(letter.isalpha() for letter in folded):  # -1 is not 1, and 1.0 is not 10
        return folded
    return re.sub(r"(?<=\w)[\s._-]+(?=\w)|_", "", folded)


def same_spelling(counts: Mapping[str, int]) -> dict[str, str]:
    """Names that differ from a more frequent name only in case or in the characters between words."""
    groups: dict[str, list[str]] = {}
    for name in counts:
        groups.setdefault(fold_name(name), []).append(name)
    found = {}
    for names in groups.values():
        usual = max(names, key=lambda name: counts[name])
        found.update({name: usual for name in names if name != usual})
    return found


def possible_typos(counts: Mapping[str, int]) -> dict[str, str]:
    """Names that may be a typo of a more frequent name, or its first letter, and that name."""
    variants = same_spelling(counts)
    counts = {name: count for name, count in counts.items() if name not in variants}
    typos = _typos(counts)
    return typos | _initials([name for name in counts if name not in typos])


def placeholders(counts: Mapping[str, int]) -> list[str]:
    """Names that people write if a label is missing."""
    return [name for name in counts if name.casefold() in PLACEHOLDERS]


def class_counts(data: LabelledData) -> dict[str, int]:
    """Number of samples per class, the largest class first."""
    codes, counts = np.unique(data.y, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {str(data.classes[codes[i]]): int(counts[i]) for i in order}


def about_spelling(counts: Mapping[str, int], source: str, options: ReadOptions) -> str | None:
    """A note about names that may be one class, with the command that merges them; None if there are none."""
    variants, typos, missing = same_spelling(counts), possible_typos(counts), placeholders(counts)
    parts = []
    if missing:
        listed = ", ".join(f"{name!r} ({counts[name]:,})" for name in missing[:EXAMPLES])
        parts.append(f"classes that look like missing labels: {listed}")
    if variants:
        parts.append(f"classes that differ only in case or between words: {_pairs(variants, counts)}")
    if typos:
        parts.append(f"classes that may be typos or abbreviations: {_pairs(typos, counts)}")
    if not parts:
        return None
    command = ["labelsieve", "data", "classes", source]
    for name in SHOWN_OPTIONS:
        if (value := getattr(options, name)) != getattr(DEFAULTS, name):
            command += [f"--{name.replace('_', '-')}", str(value)]
    return f"{'; '.join(parts)}. They are separate classes; see `{shlex.join(command)}` to merge them"


def _pairs(found: Mapping[str, str], counts: Mapping[str, int]) -> str:
    pairs = [f"{name!r} ({counts[name]:,}) and {usual!r} ({counts[usual]:,})" for name, usual in found.items()]
    return ", ".join(pairs[:EXAMPLES]) + (f" and {len(pairs) - EXAMPLES:,} more" if len(pairs) > EXAMPLES else "")


def _typos(counts: Mapping[str, int]) -> dict[str, str]:
    words = {name: folded for name in counts if len(folded := fold_name(name)) >= SHORTEST_WORD}
    # Two words that are one typo apart are equal after removing one letter from each, or from one of them.
    # Looking these up takes linear time; comparing all pairs does not.
    shortened: dict[str, list[str]] = {}
    for name, letters in words.items():
        for key in {letters, *_without_one_letter(letters)}:
            shortened.setdefault(key, []).append(name)
    found = {}
    for name, letters in words.items():
        near = {other for key in {letters, *_without_one_letter(letters)} for other in shortened[key]}
        meant = [o for o in near if counts[o] >= TYPO_RATIO * counts[name] and _is_one_typo(letters, words[o])]
        if meant:
            found[name] = max(meant, key=lambda other: (counts[other], other))
    return found


def _without_one_letter(letters: str) -> Iterator[str]:
    return (letters[:i] + letters[i + 1 :] for i in range(len(letters)))


def _is_one_typo(a: str, b: str) -> bool:
    """One letter wrong, missing or extra, or two letters swapped. Different digits are different classes."""
    while a and b and a[0] == b[0]:
        a, b = a[1:], b[1:]
    while a and b and a[-1] == b[-1]:
        a, b = a[:-1], b[:-1]
    swapped = len(a) == 2 and a == b[::-1]
    return (swapped or max(len(a), len(b)) == 1) and (a + b).isalpha()


def _initials(names: list[str]) -> dict[str, str]:
    """Y for yes and N for no: only if every class of one letter is the first letter of exactly one other class."""
    letters = [name for name in names if len(fold_name(name)) == 1 and name.isalpha()]
    words = [name for name in names if len(fold_name(name)) > 1]
    meant = {letter: [word for word in words if fold_name(word)[0] == fold_name(letter)] for letter in letters}
    if any(len(others) != 1 for others in meant.values()):
        return {}
    return {letter: others[0] for letter, others in meant.items()}
