"""Find wrong labels in your data and train models that are robust to them.

    import labelsieve
    from labelsieve import INCV, NCV, CleanClassifier, RobustClassifier
    from labelsieve import find_wrong_labels, select_clean, label_suspicion
    from labelsieve import theory, noise, metrics

    labelsieve.run("photos/")

Each name is imported when it is first used, so that `import labelsieve` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "CleanClassifier": "labelsieve.selection.estimators",
    "INCV": "labelsieve.selection.estimators",
    "NCV": "labelsieve.selection.estimators",
    "RobustClassifier": "labelsieve.workflow.robust_classifier",
    "embed": "labelsieve.execute.embed_samples",
    "find_wrong_labels": "labelsieve.selection.stored",
    "select_clean": "labelsieve.scoring",
    "label_suspicion": "labelsieve.scoring",
    "InputError": "labelsieve.errors",
    "run": "labelsieve.workflow.run",
}
_MODULES = ("metrics", "noise", "theory")

__all__ = [
    "INCV",
    "NCV",
    "CleanClassifier",
    "InputError",
    "RobustClassifier",
    "__version__",
    "embed",
    "find_wrong_labels",
    "label_suspicion",
    "metrics",
    "noise",
    "run",
    "select_clean",
    "theory",
]

if TYPE_CHECKING:
    from labelsieve import metrics, noise, theory
    from labelsieve.errors import InputError
    from labelsieve.execute.embed_samples import embed
    from labelsieve.scoring import label_suspicion, select_clean
    from labelsieve.selection.estimators import INCV, NCV, CleanClassifier
    from labelsieve.selection.stored import find_wrong_labels
    from labelsieve.workflow.robust_classifier import RobustClassifier
    from labelsieve.workflow.run import run


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"labelsieve.{name}")
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'labelsieve' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
