"""A method's settings as they are written on a command line: NAME=VALUE, read, checked and written again."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from labelsieve.engine.method import Method
from labelsieve.errors import InputError
from labelsieve.import_name import imported
from labelsieve.methods import METHODS, create

PYTHON = {"None": None, "True": True, "False": False}  # what messages and pages call them, beside JSON's own words


def read_setting(text: str, *, form: str = "NAME=VALUE, e.g. estimate_epochs=50") -> tuple[str, Any]:
    """`estimate_epochs=50`; `form` is the notation that an error message recommends."""
    name, _, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not name or not value:
        raise InputError(f"cannot read --set {text!r}: write {form}")
    return name, read_value(value)


def read_value(text: str) -> Any:
    """As JSON or Python writes it; what is neither is a text."""
    if text in PYTHON:
        return PYTHON[text]
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError):
        return text


def _finite(text: str) -> float:
    """NaN and what is too large are no numbers: a record could not give them back."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not finite")
    return number


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """All that --set was told, in the order of their names: a record is the same in whatever order they came."""
    found: dict[str, Any] = {}
    for name, value in map(read_setting, texts):
        if name in found:
            raise InputError(f"--set {name} is given twice: give it once")
        found[name] = value
    return dict(sorted(found.items()))


def written(settings: Mapping[str, Any]) -> str:
    """`estimate_epochs=50 percentile=90`: what `read_settings` reads as these."""
    return " ".join(f"{name}={_shown(value)}" for name, value in settings.items())


def _shown(value: Any) -> str:
    as_it_is = isinstance(value, str) and read_value(value) == value  # no quotes unless it would be a number without
    return str(value) if as_it_is else json.dumps(value)


def made(method: str, settings: Mapping[str, Any]) -> Method:
    """The method with what --set was told; an InputError says which name or value it does not take."""
    if settings:
        check_settings(method, settings)
    try:
        return create(method, **settings)
    except InputError:
        raise
    except ValueError as problem:  # how a class of the user's own refuses a value
        raise InputError(
            f"method {method} cannot be made with {written(settings) or 'its defaults'}: {problem}"
        ) from None


def check_settings(method: str, settings: Mapping[str, Any]) -> None:
    """Refuse unknown names, all at once, and texts for numbers, before any code is called with them."""
    kind = imported(method, what="method") if ":" in method else METHODS.get(method)
    if isinstance(kind, Method):
        raise InputError(f"--set {', '.join(settings)}: the method {method} is made already: name its class instead")
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        return  # no method at all: `create` says so
    known = inspect.signature(kind).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        unknown = [name for name in settings if name not in known]
        if unknown:
            there = f"choose from {', '.join(known)}" if known else "it has none"
            raise InputError(f"--set {', '.join(unknown)}: no setting of {method}: {there}")
    for name, value in settings.items() if ":" in method else ():  # ours say it themselves, and what else they take
        usual = known[name].default if name in known else None
        if _is_number(usual) and isinstance(value, str | list | dict):
            raise InputError(f"--set {name}={_shown(value)}: a number is needed, such as {usual}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
