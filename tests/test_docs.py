"""The documentation builds without warnings and network access, and agrees with the commands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import labelsieve
from labelsieve.cli.app import COMMANDS, make_app
from labelsieve.decisions import Decision
from labelsieve.methods import METHODS
from labelsieve.models.choose import CLASSIFIERS, NETWORKS
from labelsieve.runfolder import LabelRow

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(page for page in DOCS.glob("**/*.md") if "_build" not in page.parts)


def text(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    # All network requests fail with a proxy that does not exist.
    offline = {**os.environ, "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(out / "html"),
         "-d", str(out / "doctrees")],
        capture_output=True, text=True, env=offline, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_all_pages_are_built(site: Path) -> None:
    for page in PAGES:
        assert (site / page.relative_to(DOCS).with_suffix(".html")).exists(), page


def test_pages_load_nothing_from_other_servers(site: Path) -> None:
    for page in site.glob("**/*.html"):
        loaded = re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="(https?://[^"]+)"', page.read_text("utf-8"))
        assert loaded == [], page


def test_formulas_are_mathml(site: Path) -> None:
    page = (site / "theory.html").read_text(encoding="utf-8")
    assert page.count("<math") > 20
    assert "\\frac" not in page


def test_reference_contains_all_commands_and_options(site: Path) -> None:
    page = re.sub(r"<[^>]+>", "", (site / "command-line.html").read_text(encoding="utf-8"))
    assert "-m sphinx" not in page
    for name in COMMANDS:
        app = make_app()[name]
        assert f"labelsieve {name}" in page
        if app.default_command is not None:
            for argument in app.assemble_argument_collection():
                if argument.parameter.show is not False and argument.name.startswith("--"):
                    assert argument.name in page, (name, argument.name)


def test_reference_contains_all_public_names(site: Path) -> None:
    page = (site / "api.html").read_text(encoding="utf-8")
    for name in set(labelsieve.__all__) - {"__version__"}:
        assert f"labelsieve.{name}" in page, name
    for name in ("theory", "noise", "metrics"):
        module = getattr(labelsieve, name)
        for member, value in vars(module).items():
            if callable(value) and value.__module__ == module.__name__ and not member.startswith("_"):
                assert f'id="labelsieve.{name}.{member}"' in page, member


def test_run_folder_page_contains_all_columns() -> None:
    page = text("run-folder")
    for name in (*LabelRow._fields, *Decision._fields):
        assert f"`{name}`" in page, name


def test_all_methods_and_models_are_described() -> None:
    methods, models = text("methods"), text("models")
    for name in METHODS:
        assert f"## {name}\n" in methods
    for name in (*CLASSIFIERS, *(n for n in NETWORKS if not n.startswith("resnet"))):
        assert f"`{name}`" in models, name


def commands() -> list[str]:
    """Return the labelsieve commands of all console and shell blocks."""
    lines = []
    for page in PAGES:
        for block in re.findall(r"^```(?:console|shell)\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            lines += [line.split("#")[0].strip() for line in block.splitlines()]
    return sorted({line for line in lines if line.startswith("labelsieve ")})


@pytest.mark.parametrize("line", commands())
def test_commands_can_be_parsed(line: str) -> None:
    make_app().parse_args(shlex.split(line)[1:], exit_on_error=False, print_error=False)


def test_python_examples_run_from_top_to_bottom() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", text("api"), re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "api.md", "exec"), names)
    assert len(blocks) >= 2


def test_numbers_quoted_from_a_benchmark_are_current() -> None:
    detection = (DOCS.parent / "benchmarks" / "detection.md").read_text(encoding="utf-8")
    overview = next(line for line in detection.splitlines() if line.startswith("| all |"))
    for number in re.findall(r"0\.\d{3}", text("faq")):
        assert number in overview, number


def test_files_named_in_pages_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"`((?:benchmarks|scripts|tests)/[\w./-]+\.\w+)`", page.read_text(encoding="utf-8")):
            assert (DOCS.parent / name).exists(), (page.name, name)


def test_images_are_small_and_used() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for picture in (DOCS / "images").glob("*.png"):
        assert picture.stat().st_size < 150_000
        assert f"images/{picture.name}" in pages, picture.name
