"""The examples of the README run, and its links exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets

from labelsieve.cli.app import make_app, run

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(<!-- tested -->\n)?```(python|console)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for _, kind, text in BLOCKS
    if kind == "console"
    for line in text.splitlines()
    if line.startswith("labelsieve ")
]
PYTHON = [text for _, kind, text in BLOCKS if kind == "python"]


def execute(code: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    return names


@pytest.mark.parametrize("code", PYTHON)
def test_python_examples(code: str) -> None:
    execute(code)


def test_first_example_with_random_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example works if the noise cannot be estimated."""
    rng = np.random.default_rng(0)
    random = rng.normal(size=(200, 3)), rng.integers(0, 3, 200)
    monkeypatch.setattr(sklearn.datasets, "load_wine", lambda return_X_y: random)
    (code,) = (code for code in PYTHON if "load_wine" in code)
    assert not execute(code)["incv"].noise_known_  # type: ignore[attr-defined]


def test_tested_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (commands,) = (text for tested, kind, text in BLOCKS if tested and kind == "console")
    for line in commands.splitlines():
        assert run(shlex.split(line)[1:]) == 0, capsys.readouterr().err
    assert (tmp_path / "run" / "labels.csv").exists()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_can_be_parsed(command: list[str]) -> None:
    make_app().parse_args(command, exit_on_error=False, print_error=False)


def test_setup_is_on_the_first_screen() -> None:
    for needed in ("make demo", "make test", "docs/demo.png", "pip install"):
        assert needed in README[:2600]


def test_links_exist() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
