"""Names of folders and files: one harmless part of a path each, and each given once."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from labelsieve.export_folder import Names, safe_name


@given(st.text())
def test_any_name_is_one_harmless_part_of_a_path(name):
    safe = safe_name(name)
    assert safe and safe not in (".", "..") and not set(safe) & set('/\\:*?"<>|\0\n\r\t') and not safe.startswith(".")
    assert len(safe.encode()) <= 151 and Path("x", safe).name == safe
    assert safe_name("con.txt") == "_con.txt" and safe_name("NUL") == "_NUL"


@given(st.lists(st.sampled_from(["a.png", "A.PNG", "a/.png", "b", "B", "b-2", ""]), max_size=12))
def test_names_are_given_once_whatever_the_case(wanted):
    names = Names()
    taken = [names.take(name).casefold() for name in wanted]
    assert len(set(taken)) == len(taken)
