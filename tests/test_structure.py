"""The structure that CONTRIBUTING.md promises: no import cycles, imports run downwards, short signatures, one map."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_spec = importlib.util.spec_from_file_location("structure", ROOT / "scripts" / "structure.py")
assert _spec is not None and _spec.loader is not None
structure = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(structure)


def test_no_module_imports_itself_through_others() -> None:
    assert structure.import_cycles() == []


def test_imports_run_downwards() -> None:
    assert structure.upward_imports() == []


def test_functions_have_at_most_eight_parameters() -> None:
    assert structure.long_signatures() == []


def test_every_constant_has_a_reason_and_names_existing_pages() -> None:
    assert structure.constants_without_a_reason() == []
    assert structure.missing_pages() == []


def test_every_file_and_folder_on_the_map_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawn = text[text.index("    labelsieve/\n") : text.index("## Layers")]
    files = {file.name for file in structure.PACKAGE.rglob("*.py")}
    folders = {folder.name for folder in structure.PACKAGE.rglob("*") if folder.is_dir()}
    assert set(re.findall(r"\b(\w+\.py)\b", drawn)) <= files
    assert set(re.findall(r"^      (\w+)/", drawn, re.MULTILINE)) <= folders


def test_the_layers_are_those_of_the_map() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    line = re.search(r"^    (data, runfolder <- .* <- cli)$", text, re.MULTILINE)
    assert line is not None
    named = [{room.strip() for room in level.split(",")} for level in line[1].split(" <- ")]
    assert named == [set(rooms) for rooms in structure.LAYERS[1:]]
