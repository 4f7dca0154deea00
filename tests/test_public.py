"""Public names, their docstring examples and the cost of importing them."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import labelsieve

PUBLIC = {
    "CleanClassifier", "INCV", "InputError", "NCV", "RobustClassifier", "__version__", "embed", "find_wrong_labels",
    "label_suspicion", "metrics", "noise", "run", "select_clean", "theory",
}  # fmt: skip
THEORY = [
    "symmetric",
    "pair",
    "cifar10_map",
    "test_accuracy",
    "label_precision",
    "label_recall",
    "class_test_accuracy",
    "class_label_precision",
    "class_label_recall",
    "label_precision_bounds",
    "noise_ratio",
]


def test_public_names() -> None:
    assert set(labelsieve.__all__) == PUBLIC
    for name in PUBLIC:
        assert getattr(labelsieve, name) is not None
    assert dir(labelsieve) == sorted(dir(labelsieve)) and set(dir(labelsieve)) >= PUBLIC
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        labelsieve.nothing  # noqa: B018


def test_names_of_the_modules() -> None:
    for name in THEORY:
        assert callable(getattr(labelsieve.theory, name))
    assert callable(labelsieve.noise.corrupt)
    for name in ("label_precision", "label_recall", "confusion"):
        assert callable(getattr(labelsieve.metrics, name))


def public_objects() -> dict[str, Any]:
    """Return the public functions and classes, including the functions of the public modules."""
    objects = {}
    for name in labelsieve.__all__:
        value = getattr(labelsieve, name)
        if isinstance(value, ModuleType):
            functions = inspect.getmembers(value, inspect.isfunction)
            objects |= {f"{name}.{f}": v for f, v in functions if v.__module__ == value.__name__ and f[0] != "_"}
        elif callable(value):
            objects[name] = value
    return objects


@pytest.mark.parametrize("name", sorted(public_objects()))
def test_examples_in_docstrings(name: str) -> None:
    value = public_objects()[name]
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    runner = doctest.DocTestRunner(optionflags=options)
    examples = 0
    for test in doctest.DocTestFinder(exclude_empty=True).find(value, name, globs={}):
        examples += len(test.examples)
        assert runner.run(test).failed == 0
    assert examples > 0


def imported(code: str) -> set[str]:
    """Return the packages that a new interpreter has imported after running `code`."""
    program = f"import sys\n{code}\nprint('MODULES', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return {name.split(".")[0] for name in done.stdout.split("MODULES")[1].split()}


def test_import_is_lazy() -> None:
    assert not imported("import labelsieve") & {"numpy", "torch", "sklearn", "matplotlib", "cyclopts", "rich"}


@pytest.mark.parametrize("arguments", [["--help"], ["select", "--help"], ["--version"]])
def test_help_imports_no_heavy_package(arguments: list[str]) -> None:
    code = f"from labelsieve.cli.app import run\nassert run({arguments!r}) == 0"
    assert not imported(code) & {"torch", "sklearn", "scipy", "matplotlib", "pyarrow", "PIL", "pandas", "ray"}


def test_theory_imports_only_numpy() -> None:
    heavy = {"torch", "sklearn", "scipy", "matplotlib", "pyarrow"}
    assert not imported("from labelsieve.cli.app import run\nassert run(['theory', '--json']) == 0") & heavy


def test_version_equals_the_installed_one() -> None:
    from importlib.metadata import version

    assert version("labelsieve") == labelsieve.__version__
