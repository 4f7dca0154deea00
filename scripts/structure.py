"""Print figures about the package: size, import cycles, layers, long signatures, constants and call depth.

    python scripts/structure.py [--calls]

`--calls` also runs a small selection with a network and counts the calls between `labelsieve select` and the loss.
`tests/test_structure.py` checks the import cycles, the layers, the signatures and the constants.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "labelsieve"

# Layers from bottom to top: a module may import modules of its own layer and of the layers below.
LAYERS = (
    ("theory", "noise", "metrics", "types", "errors", "files", "progress", "stopping", "checks"),
    ("data", "runfolder"),
    ("models",),
    ("engine",),
    ("methods",),
    ("execute",),
    ("selection",),
    ("report", "review", "export"),
    ("workflow",),
    ("experiments", "bench"),
    ("cli",),
)
MAX_PARAMETERS = 8


@cache
def modules() -> dict[str, ast.Module]:
    """Parse every module of the package, keyed by its dotted name without the package."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(file.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(file.read_text(encoding="utf-8"))
    return found


def code_lines(file: Path) -> int:
    """Count the lines that are not blank, comments or docstrings."""
    text = file.read_text(encoding="utf-8")
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(1 for i, line in lines if line.strip() and not line.strip().startswith("#") and i not in docstrings)


def imports(tree: ast.Module, names: set[str], *, top_level: bool = False) -> set[str]:
    """Return the modules of the package that a module imports; `top_level` leaves out imports inside functions."""
    found = set()
    for node in _top_level(tree) if top_level else ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "labelsieve":
            base = (node.module or "").removeprefix("labelsieve").removeprefix(".")
            for alias in node.names:
                full = f"{base}.{alias.name}".removeprefix(".")
                found.add(full if full in names else base)
        elif isinstance(node, ast.Import):
            found |= {a.name.removeprefix("labelsieve.") for a in node.names if a.name.startswith("labelsieve.")}
    return found - {""}


def _top_level(tree: ast.Module) -> Iterator[ast.AST]:
    """Walk the statements that run on import; blocks under TYPE_CHECKING do not."""
    stack: list[ast.AST] = list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        stack += ast.iter_child_nodes(node)


def import_cycles() -> list[list[str]]:
    """Return groups of modules that import each other, anywhere in their code (Tarjan's algorithm)."""
    trees = modules()
    graph = {name: imports(tree, set(trees)) & set(trees) - {name} for name, tree in trees.items()}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    cycles: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph[node]:
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group = [stack.pop()]
            while group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                cycles.append(sorted(group))

    for name in graph:
        if name not in index:
            visit(name)
    return cycles


def layer_of(module: str) -> int:
    """Return the layer of a module; modules at the top of the package that no layer names are in the lowest one."""
    room = module.split(".")[0]
    return next((level for level, rooms in enumerate(LAYERS) if room in rooms), 0)


def upward_imports() -> list[str]:
    """Return the imports that go from a layer to a higher one."""
    trees = modules()
    found = []
    for name, tree in trees.items():
        if name in ("__init__", "__main__"):
            continue
        found += [f"{name} -> {to}" for to in imports(tree, set(trees)) if layer_of(to) > layer_of(name)]
    return sorted(found)


def long_signatures() -> list[str]:
    """Return the functions outside the kernels with more than eight parameters (`self` and `cls` do not count)."""
    found = []
    for name, tree in modules().items():
        if name.startswith("models.kernels"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = len([a for a in arguments if a.arg not in ("self", "cls")])
                if count > MAX_PARAMETERS:
                    found.append(f"{name}.{node.name}: {count}")
    return sorted(found)


def attribute_probes() -> list[str]:
    """Return the uses of `hasattr` and `getattr` with a literal name."""
    found = []
    for name, tree in modules().items():
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) > 1]
        probes = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "getattr")]
        literal = [node for node in probes if isinstance(node.args[1], ast.Constant)]
        found += [f"{name}:{node.lineno} {ast.unparse(node)}" for node in literal]
    return found


def constants_without_a_reason() -> list[str]:
    """Return the numbers at the top of modules without a comment beside them or above their group of lines."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        lines = file.read_text(encoding="utf-8").splitlines()
        explained = 0  # the last line that a comment covers
        for node in ast.parse("\n".join(lines)).body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            first, last = node.lineno, node.end_lineno or node.lineno
            if lines[first - 2].startswith("#") or first == explained + 1:
                explained = last
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
            without = explained != last and "#" not in "".join(lines[first - 1 : last])
            if without and all(name.isupper() for name in names) and _is_numeric(node.value):
                found.append(f"{file.relative_to(PACKAGE)}:{first} {lines[first - 1]}")
    return found


def _is_numeric(value: ast.expr) -> bool:
    """Whether an expression consists of numbers only: no calls, no texts."""
    parts = list(ast.walk(value))
    numbers = [part for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, int | float)]
    other = [
        part
        for part in parts
        if isinstance(part, ast.Call) or (isinstance(part, ast.Constant) and isinstance(part.value, str | bytes))
    ]
    return bool(numbers) and not other


def missing_pages() -> list[str]:
    """Return the pages of benchmarks/ that the package names but that do not exist."""
    named = {
        (page, str(file.relative_to(PACKAGE)))
        for file in PACKAGE.rglob("*.py")
        for page in re.findall(r"benchmarks/[\w.-]+\.(?:md|py)", file.read_text(encoding="utf-8"))
    }
    return sorted(f"{page} in {file}" for page, file in named if not (PACKAGE.parent / page).exists())


def calls_to_the_loss() -> list[str]:
    """Run `labelsieve select` with a small network and return the calls of the package down to the loss."""
    import tempfile

    from labelsieve.cli.app import run
    from labelsieve.methods.standard import Standard

    seen: list[list[str]] = []
    original = Standard.loss

    def loss(self, *arguments, **options):
        frames = [f for f in traceback.extract_stack() if str(PACKAGE) in f.filename]
        seen.append([f"{Path(f.filename).relative_to(PACKAGE)}:{f.name}" for f in frames])
        return original(self, *arguments, **options)

    Standard.loss = loss
    try:
        with tempfile.TemporaryDirectory() as folder:
            run([*"select digits --model mlp --epochs 1 --iterations 1 --out".split(), f"{folder}/run"])
    finally:
        Standard.loss = original
    calls = seen[0]
    start = next(i for i, call in enumerate(calls) if call.startswith("cli/runs.py"))
    return [*calls[start:], "methods/standard.py:loss"]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--calls", action="store_true", help="also count the calls from `labelsieve select` to the loss"
    )
    options = parser.parse_args()
    files = list(PACKAGE.rglob("*.py"))
    print(f"modules: {len(files)}")
    print(f"lines of code: {sum(map(code_lines, files)):,}")
    for title, found in (
        ("import cycles", [" <-> ".join(cycle) for cycle in import_cycles()]),
        ("imports of a higher layer", upward_imports()),
        ("functions with more than eight parameters outside the kernels", long_signatures()),
        ("hasattr/getattr with a literal name", attribute_probes()),
        ("constants without a reason", constants_without_a_reason()),
        ("benchmark pages that do not exist", missing_pages()),
    ):
        print(f"{title}: {len(found)}", *found, sep="\n  ")
    if options.calls:
        calls = calls_to_the_loss()
        print(f"calls from `labelsieve select` to the loss: {len(calls)}", *calls, sep="\n  ")


if __name__ == "__main__":
    sys.path.insert(0, str(PACKAGE.parent))
    main()
