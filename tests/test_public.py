"""The names people rely on, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import labelsieve

PUBLIC = {
    "INCV", "InputError", "NCV", "RobustClassifier", "__version__", "find_wrong_labels", "label_suspicion", "metrics",
    "noise", "select_clean", "theory",
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


def imported(code: str) -> set[str]:
    """Modules that a fresh interpreter has loaded after `code`."""
    program = f"import sys\n{code}\nprint('MODULES', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return {name.split(".")[0] for name in done.stdout.split("MODULES")[1].split()}


def test_importing_costs_nothing() -> None:
    assert not imported("import labelsieve") & {"numpy", "torch", "sklearn", "matplotlib", "cyclopts", "rich"}


@pytest.mark.parametrize("arguments", [["--help"], ["select", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = f"from labelsieve.cli.app import run\nassert run({arguments!r}) == 0"
    assert not imported(code) & {"torch", "sklearn", "scipy", "matplotlib", "pyarrow", "PIL", "pandas", "ray"}


def test_theory_needs_numpy_alone() -> None:
    heavy = {"torch", "sklearn", "scipy", "matplotlib", "pyarrow"}
    assert not imported("from labelsieve.cli.app import run\nassert run(['theory', '--json']) == 0") & heavy


def test_version_is_the_packages() -> None:
    from importlib.metadata import version

    assert version("labelsieve") == labelsieve.__version__
