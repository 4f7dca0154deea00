"""Settings of a method as text, NAME=VALUE, as `--set` and records have them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from labelsieve.errors import InputError

PYTHON_CONSTANTS = {"None": None, "True": True, "False": False}  # accepted in addition to JSON's null, true and false


def read_setting(text: str, *, form: str = "NAME=VALUE, e.g. estimate_epochs=50") -> tuple[str, Any]:
    """Parse `estimate_epochs=50`; an error message recommends `form`."""
    name, _, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not name or not value:
        raise InputError(f"cannot read --set {text!r}: write {form}")
    return name, read_value(value)


def read_value(text: str) -> Any:
    """Parse a JSON or Python literal; anything else is a string."""
    if text in PYTHON_CONSTANTS:
        return PYTHON_CONSTANTS[text]
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError):
        return text


def _finite(text: str) -> float:
    """Refuse NaN and infinity, which JSON records cannot store."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not finite")
    return number


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Parse all `--set` options, sorted by name so that their order does not matter."""
    settings: dict[str, Any] = {}
    for name, value in map(read_setting, texts):
        if name in settings:
            raise InputError(f"--set {name} is given twice: give it once")
        settings[name] = value
    return dict(sorted(settings.items()))


def format_settings(settings: Mapping[str, Any]) -> str:
    """Return text such as `estimate_epochs=50 percentile=90`, which `read_settings` reads."""
    return " ".join(f"{name}={_format_value(value)}" for name, value in settings.items())


def _format_value(value: Any) -> str:
    needs_no_quotes = isinstance(value, str) and read_value(value) == value
    return str(value) if needs_no_quotes else json.dumps(value)
