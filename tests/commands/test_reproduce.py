"""The command around the runner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from labelsieve.commands.reproduce import reproduce
from labelsieve.errors import InputError


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce("list") == 0
    assert "transition-matrices" in capsys.readouterr().out
    assert reproduce("list", json=True) == 0
    assert json.loads(capsys.readouterr().out)[1]["item"] == "theory"


def test_an_item_as_words_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce("transition-matrices", results=tmp_path) == 0
    files = capsys.readouterr().out.split()
    assert len(files) == 3 and all(Path(file).is_file() for file in files)
    arguments = {"results": tmp_path, "scale": "smoke", "commit": "a" * 40, "device": "cpu"}
    assert reproduce("confusion", settings="pair-0.4", json=True, **arguments) == 0  # type: ignore[arg-type]
    answer = capsys.readouterr()
    assert json.loads(answer.out)["finished"] == 1 and answer.err == ""
    assert (tmp_path / "theory" / "standard-pair-0.4-seed0.json").is_file()


def test_mistakes_reach_the_command_line_as_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no item"):
        reproduce("nothing", results=tmp_path)
