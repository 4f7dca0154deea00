"""CONTRIBUTING.md's map: the files it names are there, and imports run the way it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "labelsieve"
MAP = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
ENTRIES = ("__init__", "__main__")  # they name things of every room


def order() -> dict[str, int]:
    """Each room, and how high it stands."""
    told = re.search(r"^Imports run one way: (.*?)\.$", MAP, re.DOTALL | re.MULTILINE)
    assert told is not None
    levels = re.sub(r"\s+", " ", told[1]).split(" <- ")
    return {room.strip(): level for level, rooms in enumerate(levels) for room in rooms.split(",")}


def room_of(module: str, rooms: dict[str, int]) -> str:
    """`methods/standard` lies in `methods`, unless the map names the file itself."""
    return module if module in rooms else module.split("/")[0]


def imported(file: Path) -> set[str]:
    """What a file imports of the package, anywhere in it, as paths without .py."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "labelsieve":
            inside = (node.module or "").split(".")[1:]
            names = ["/".join([*inside, alias.name]) for alias in node.names]
            found |= {name if (PACKAGE / f"{name}.py").is_file() else "/".join(inside) for name in names}
    return found - {""}  # `from labelsieve import __version__`


def test_imports_run_one_way() -> None:
    rooms = order()
    against = []
    for file in sorted(PACKAGE.rglob("*.py")):
        module = file.relative_to(PACKAGE).with_suffix("").as_posix()
        if module in ENTRIES:
            continue
        level = rooms[room_of(module, rooms)]
        against += [f"{module} <- {name}" for name in imported(file) if rooms[room_of(name, rooms)] > level]
    assert against == []


def test_every_file_on_the_map_is_there() -> None:
    names = {file.name for file in PACKAGE.rglob("*.py")}
    drawn = MAP[MAP.index("labelsieve/\n") : MAP.index("Imports run one way")]
    told = set(re.findall(r"\b(\w+\.py)\b", drawn))
    assert told <= names, told - names


def test_every_file_of_the_small_rooms_is_on_the_map() -> None:
    """The rooms whose files are not all of one kind (a source, a model, a command, a figure)."""
    drawn = MAP[MAP.index("labelsieve/\n") : MAP.index("Imports run one way")]
    files = [*(PACKAGE / "selection").glob("*.py"), *PACKAGE.glob("*.py")]
    for name in {file.name for file in files} - {f"{entry}.py" for entry in ENTRIES}:
        assert name in drawn or name.startswith("bench_"), name
