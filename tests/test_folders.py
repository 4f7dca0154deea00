"""Where a command may put its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from labelsieve.errors import InputError
from labelsieve.folders import check_free, contents


def test_hidden_files_and_litter_make_a_folder_nobodys(tmp_path: Path) -> None:
    for name in (".DS_Store", ".gitkeep", "Thumbs.db", "desktop.ini"):
        (tmp_path / name).write_text("")
    (tmp_path / ".git").mkdir()
    assert contents(tmp_path) == [] == contents(tmp_path / "nowhere")
    check_free(tmp_path, "--out", lacking="run")


def test_a_few_of_the_files_are_named(tmp_path: Path) -> None:
    for name in "abcde":
        (tmp_path / name).mkdir()
    check_free(tmp_path, "--out", own="abcde")
    with pytest.raises(InputError, match=r"holds a, b, c and 2 more and no run: give --out a new or an empty folder$"):
        check_free(tmp_path, "--out", lacking="run")
    with pytest.raises(InputError, match=r"holds e: give --to a new or an empty folder$"):
        check_free(tmp_path, "--to", own=("a", "b", "c", "d"))
