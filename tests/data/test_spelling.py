from __future__ import annotations

import shlex

import pytest

from labelsieve.data.label_notes import about_spelling, fold_name, placeholders, same_spelling
from labelsieve.data.read_options import ReadOptions


@pytest.mark.parametrize(
    ("one", "other"),
    [("Not Spam", "not_spam"), ("not-spam", "notspam"), ("CAF\u00c9", "cafe\u0301"), ("e.mail", "E mail"), (" a", "A")],
)
def test_variants_of_one_word(one: str, other: str) -> None:
    assert fold_name(one) == fold_name(other)


@pytest.mark.parametrize(("one", "other"), [("c++", "c"), ("c#", "c++"), ("-1", "1"), ("1.0", "10"), ("v1", "v2")])
def test_signs_and_numbers_separate_classes(one: str, other: str) -> None:
    assert fold_name(one) != fold_name(other)


def test_the_more_frequent_spelling_is_used() -> None:
    assert same_spelling({"Yes": 3, "yes": 40, "YES": 2, "no": 50}) == {"Yes": "yes", "YES": "yes"}
    assert same_spelling({"b": 1, "a": 2}) == {}


def test_placeholders_for_missing_labels() -> None:
    counts = {"yes": 9, "N/A": 3, "?": 2, "-": 1, "NULL": 1, "-1": 4}
    assert placeholders(counts) == ["N/A", "?", "-", "NULL"]
    note = about_spelling(counts, "t.csv", ReadOptions())
    assert note is not None and "'N/A' (3), '?' (2), " in note


def test_the_note_has_examples_and_the_command() -> None:
    assert about_spelling({"a": 1, "b": 2}, "t.csv", ReadOptions()) is None
    counts = {f"word{letter} x": 9 for letter in "abcdefg"} | {f"Word{letter} X": 1 for letter in "abcdefg"}
    note = about_spelling(counts, "my t.csv", ReadOptions())
    assert note is not None and "`labelsieve data classes 'my t.csv'`" in note
    assert "'Worda X' (1) and 'worda x' (9)" in note and "wordf x" not in note and "2 more" in note
    note = about_spelling(counts, "t.csv", ReadOptions(label_column="Diagnose 2"))
    assert note is not None and "`labelsieve data classes t.csv --label-column 'Diagnose 2'`" in note


def test_the_command_reads_the_same_samples() -> None:
    options = ReadOptions(header=("a, b", "label"), split="train", ignore_columns=("c",), group_column="g")
    note = about_spelling({"a": 1, "A": 2}, "t.csv", options)
    assert note is not None
    words = shlex.split(note[note.index("`") + 1 : note.rindex("`")])
    settings = dict(zip(words[4::2], words[5::2], strict=True))
    assert settings == {
        "--header": '"a, b",label', "--split": "train", "--ignore-columns": "c", "--group-column": "g"
    }  # fmt: skip
