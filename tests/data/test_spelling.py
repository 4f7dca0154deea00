from __future__ import annotations

import pytest

from labelsieve.data.read_options import ReadOptions
from labelsieve.data.spelling import about_spelling, alike, bare, no_labels, perhaps


@pytest.mark.parametrize(
    ("one", "other"),
    [("Not Spam", "not_spam"), ("not-spam", "notspam"), ("CAF\u00c9", "cafe\u0301"), ("e.mail", "E mail"), (" a", "A")],
)
def test_the_same_word_written_otherwise(one: str, other: str) -> None:
    assert bare(one) == bare(other)


@pytest.mark.parametrize(("one", "other"), [("c++", "c"), ("c#", "c++"), ("-1", "1"), ("1.0", "10"), ("v1", "v2")])
def test_signs_and_numbers_tell_classes_apart(one: str, other: str) -> None:
    assert bare(one) != bare(other)


def test_the_more_frequent_spelling_counts() -> None:
    assert alike({"Yes": 3, "yes": 40, "YES": 2, "no": 50}) == {"Yes": "yes", "YES": "yes"}
    assert alike({"b": 1, "a": 2}) == {}


@pytest.mark.parametrize("slip", ["refnud", "refun", "refundd", "rafund", "REFUNS"])
def test_a_rare_name_one_slip_from_a_frequent_one(slip: str) -> None:
    assert perhaps({"refund": 60, slip: 3, "billing": 70}) == {slip: "refund"}
    assert perhaps({"refund": 60, slip: 4, "billing": 70}) == {}  # not rare enough: a class of its own


def test_no_slips_among_short_or_numbered_names_or_two_apart() -> None:
    assert perhaps({"cat": 600, "car": 3, "type1": 600, "type2": 3, "refund": 600, "rfeudn": 3}) == {}


def test_first_letters_where_each_begins_one_class() -> None:
    assert perhaps({"yes": 9, "no": 8, "Y": 7, "n": 2}) == {"Y": "yes", "n": "no"}
    assert perhaps({"billing": 90, "biling": 2, "other": 50, "B": 7}) == {"biling": "billing", "B": "billing"}
    assert perhaps({"a": 9, "b": 8, "apple": 7}) == {}  # b begins none: these are letters
    assert perhaps({"no": 9, "never": 8, "N": 7}) == {}  # which one?


def test_names_that_say_that_there_is_no_label() -> None:
    counts = {"yes": 9, "N/A": 3, "?": 2, "-": 1, "NULL": 1, "-1": 4}
    assert no_labels(counts) == ["N/A", "?", "-", "NULL"]
    told = about_spelling(counts, "t.csv", ReadOptions())
    assert told is not None and told.startswith("classes that look like missing labels: 'N/A' (3), '?' (2), ")


def test_what_is_told_names_a_few_and_counts_the_rest() -> None:
    assert about_spelling({"a": 1, "b": 2}, "t.csv", ReadOptions()) is None
    counts = {f"word{letter} x": 9 for letter in "abcdefg"} | {f"Word{letter} X": 1 for letter in "abcdefg"}
    told = about_spelling(counts, "my t.csv", ReadOptions())
    assert told is not None
    assert "'Worda X' (1) and 'worda x' (9)" in told and "wordf x" not in told and "and 2 more." in told
    assert told.endswith("`labelsieve data classes 'my t.csv'` says how to change that")
    told = about_spelling(counts, "t.csv", ReadOptions(label_column="Diagnose 2"))
    assert told is not None
    assert told.endswith("`labelsieve data classes t.csv --label-column 'Diagnose 2'` says how to change that")
