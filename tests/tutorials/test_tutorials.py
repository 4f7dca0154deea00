"""Run all blocks of the tutorials in order, in an empty folder, with the command line."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from labelsieve.cli.app import run
from labelsieve.models.embed import DEFAULT_MODELS

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"


def blocks(page: str) -> list[tuple[str, str]]:
    text = (TUTORIALS / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(r"^```(python|console|text)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def in_python(code: str, page: str, names: dict[str, Any]) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, f"{page}.md", "exec"), names)
    return output.getvalue()


def in_console(line: str, forked: Any) -> str:
    name, *arguments = shlex.split(line)
    assert name == "labelsieve"
    if arguments[0] == "review":
        return serve_once(arguments, forked)
    output, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(error), warnings.catch_warnings():
        warnings.simplefilter("default")
        code = run(arguments)
    assert code == 0, f"{line}\n{error.getvalue()}"
    assert "Traceback" not in error.getvalue()
    return output.getvalue()


def serve_once(arguments: list[str], forked: Any) -> str:
    """Start the review page, wait for its address and stop it with SIGINT."""
    said = Path("review.txt")
    server = forked([*arguments, "--port", "0"], said)
    try:
        deadline = time.monotonic() + 60
        while "Stop with Ctrl-C" not in (output := said.read_text() if said.exists() else ""):
            assert os.waitpid(server, os.WNOHANG) == (0, 0) and time.monotonic() < deadline, output
            time.sleep(0.05)
        assert "http://127.0.0.1:" in output
    finally:
        os.kill(server, signal.SIGINT)
    assert os.waitstatus_to_exitcode(os.waitpid(server, 0)[1]) == 130
    return output


def without_numbers(text: str) -> list[str]:
    """Return the lines with all numbers replaced."""
    return [re.sub(r"[\d.,]*\d", "#", " ".join(line.split())) for line in text.splitlines() if line.strip()]


def assert_shown(shown: str, output: str) -> None:
    """Check that every line of a page was printed, in this order, ignoring numbers."""
    printed = iter(without_numbers(output))
    for line in without_numbers(shown):
        assert any(line == other for other in printed), f"the page shows {line!r}, which is not in\n{output}"


@pytest.mark.parametrize("page", ["pictures", "tables", "text"])
def test_tutorial(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked: Any) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    output = ""
    for kind, text in blocks(page):
        if kind == "text":
            assert_shown(text, output)
        elif kind == "python":
            output = in_python(text, page, names)
        else:
            output = "".join(in_console(line, forked) for line in text.splitlines())
    planted, found, suspects, truth = (names[name] for name in ("planted", "found", "suspects", "truth"))
    assert len(planted) > 0.1 * len(truth)
    assert len(found) >= 0.85 * len(planted)
    assert len(suspects - planted) <= 0.1 * len(suspects)
    assert names["right"] >= 0.95 * len(truth)


def test_comparison_with_printed_text_can_fail() -> None:
    assert_shown("300 samples: 1 selected\n", "noise\n299 samples: 22 selected\n")
    with pytest.raises(AssertionError):
        assert_shown("b 1\na 2\n", "a 1\nb 2\n")
    with pytest.raises(AssertionError):
        assert_shown("300 samples\n", "300 rows\n")


@pytest.fixture
def pretrained_models(
    dinov2: Path, static_model: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Hugging Face cache, offline, with small random models under the names of the default ones."""
    cache = tmp_path_factory.mktemp("hub")
    for name, folder in zip(DEFAULT_MODELS.values(), (dinov2, static_model), strict=True):
        home = cache / f"models--{name.replace('/', '--')}"
        shutil.copytree(folder, home / "snapshots" / "0123456789abcdef")
        (home / "refs").mkdir()
        (home / "refs" / "main").write_text("0123456789abcdef")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def write_photos(folder: Path) -> None:
    """Write photos of two classes as the tutorial has them: three splits, and new ones without a label."""
    rng = np.random.default_rng(0)
    for i in range(60):
        kind, split = ("hat", "shirt")[i % 2], ("train", "validation", "test")[i % 5 % 3]
        pixels = rng.integers(0, 100, (9, 9, 3)) + np.array([100, 0, 0] if kind == "hat" else [0, 0, 100])
        photo = Image.fromarray(pixels.astype(np.uint8)).resize((90, 90))
        for path in (folder / "photos" / split / kind / f"{i}.png", *([folder / "new-photos" / f"{i}.png"] * (i < 4))):
            path.parent.mkdir(parents=True, exist_ok=True)
            photo.save(path)


def write_sentences(folder: Path) -> None:
    rng = np.random.default_rng(0)
    words = {"lost_card": ["the", "card", "is", "lost"], "transfer": ["where", "is", "the", "money"]}
    kinds = [list(words)[i % 2] for i in range(80)]
    rows = [f"{' '.join(rng.permutation(words[kind] * 2)[:7])} {i},{kind}\n" for i, kind in enumerate(kinds)]
    (folder / "banking77.csv").write_text("text,category\n" + "".join(rows))
    (folder / "new-questions.csv").write_text("text\n" + "".join(row.split(",")[0] + "\n" for row in rows[:4]))


@pytest.mark.parametrize(
    ("page", "write", "cleaned"),
    [("photos", write_photos, "photos-cleaned/train/hat"), ("sentences", write_sentences, "banking77-cleaned.csv")],
)
def test_commands_with_a_pretrained_model(
    page: str, write: Callable[[Path], None], cleaned: str, pretrained_models: None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, forked: Any,
) -> None:  # fmt: skip
    """Every command of the page, with small random models instead of the named ones, on generated data."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    text = (TUTORIALS / f"{page}.md").read_text(encoding="utf-8")
    parts = re.findall(r"^```shell\n(.*?)^```|((?:^    [^\n]*\n)+)", text, flags=re.DOTALL | re.MULTILINE)
    output = ""
    for commands, shown in parts:
        if shown:
            assert_shown(shown, output)
        for line in commands.splitlines():
            if line.startswith(("pip install ", "git clone ", "curl ")):
                continue
            output = in_console(line, forked)
    settings = next((tmp_path / "runs").glob("*/run.json")).read_text()
    assert any(name in settings for name in DEFAULT_MODELS.values())
    assert (tmp_path / cleaned).exists()
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 5


def test_every_tutorial_is_tested() -> None:
    assert sorted(path.stem for path in TUTORIALS.glob("*.md")) == ["photos", "pictures", "sentences", "tables", "text"]
