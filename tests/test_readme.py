"""What the README shows runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets

from labelsieve.cli.app import make_app, run

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(<!-- tested -->\n)?```(python|console)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for _, kind, text in BLOCKS
    if kind == "console"
    for line in text.splitlines()
    if line.startswith("labelsieve ")
]


@pytest.mark.parametrize("code", [text for _, kind, text in BLOCKS if kind == "python"])
def test_python_examples(code: str) -> None:
    exec(compile(code, "README.md", "exec"), {})


def test_the_first_example_calls_no_number_what_is_not_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    random = rng.normal(size=(200, 3)), rng.integers(0, 3, 200)
    monkeypatch.setattr(sklearn.datasets, "load_wine", lambda return_X_y: random)
    code = next(text for _, kind, text in BLOCKS if kind == "python" and "load_wine" in text)
    exec(compile(code, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert "noise ratio not known" in said and "%" not in said


def test_the_first_example_says_how_far_to_trust_its_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Clean labels of classes that are hard to tell apart: a third of them is read as wrong, and that is doubted."""
    x, y = sklearn.datasets.make_classification(
        2000, 20, n_informative=8, n_classes=6, class_sep=0.3, flip_y=0, random_state=0
    )
    monkeypatch.setattr(sklearn.datasets, "load_wine", lambda return_X_y: (x[:800], y[:800]))
    code = next(text for _, kind, text in BLOCKS if kind == "python" and "load_wine" in text)
    exec(compile(code, "README.md", "exec"), {})
    assert "the classifier is weak" in capsys.readouterr().out


def test_tested_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    tested = [text for mark, kind, text in BLOCKS if mark and kind == "console"]
    assert len(tested) == 1
    for line in tested[0].splitlines():
        assert run(shlex.split(line)[1:]) == 0, capsys.readouterr().err
    assert "label precision" in capsys.readouterr().out
    assert (tmp_path / "run" / "labels.csv").exists()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_shown_can_be_parsed(command: list[str]) -> None:
    make_app().parse_args(command, exit_on_error=False, print_error=False)


def test_first_screen() -> None:
    top = README[:2600]
    for needed in ("make demo", "make test", "docs/demo.png", "pip install"):
        assert needed in top
    assert (Path(__file__).parent.parent / "docs" / "demo.png").exists()


def test_every_command_of_the_readme_exists_and_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (Path(__file__).parent.parent / target).exists(), target
