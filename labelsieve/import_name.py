"""Import an object by package.module:Name: the user's own classifier, network or method."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from labelsieve.errors import InputError


def imported(name: str, *, what: str) -> Any:
    """Return the object; `what` names it in messages. Modules in the current folder are found, as with `python -m`."""
    module, _, attribute = name.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError, SyntaxError) as problem:
        raise InputError(f"{what} {name}: {problem}") from None
