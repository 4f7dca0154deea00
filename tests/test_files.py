"""Where a command may put its files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from labelsieve.errors import InputError
from labelsieve.files import check_free, open_archive, open_file, visible_names


def test_hidden_files_and_litter_make_a_folder_nobodys(tmp_path: Path) -> None:
    for name in (".DS_Store", ".gitkeep", "Thumbs.db", "desktop.ini"):
        (tmp_path / name).write_text("")
    (tmp_path / ".git").mkdir()
    assert visible_names(tmp_path) == [] == visible_names(tmp_path / "nowhere")
    check_free(tmp_path, "--out", missing="run.json")


def test_a_few_of_the_files_are_named(tmp_path: Path) -> None:
    for name in "abcde":
        (tmp_path / name).mkdir()
    check_free(tmp_path, "--out", own="abcde")
    with pytest.raises(InputError, match=r"a, b, c and 2 more but no run.json: give --out "):
        check_free(tmp_path, "--out", missing="run.json")
    with pytest.raises(InputError, match=r"contains e: give --to "):
        check_free(tmp_path, "--to", own=("a", "b", "c", "d"))


def test_a_checked_archive_is_at_its_start(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", "content")
    with open_file(tmp_path / "a.zip") as file:
        open_archive(file, 10)
        assert file.tell() == 0
