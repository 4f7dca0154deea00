"""history.jsonl as curves: one chart a quantity, one line a training, lines of a stage alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labelsieve.report.charts import LINES, Line
from labelsieve.report.facts import number

# What tells trainings apart, in the order it is shown; everything else that is a number is a quantity.
WHO = ("stage", "method", "iteration", "name", "training", "job", "half", "network")
NOT_CURVES = frozenset({"epoch", "epochs", "step", "steps", "time", "seconds", "seed", "lr", "learning_rate", *WHO})
FIRST = ("loss", "accuracy", "agreement")
MOST_CHARTS = 6


def curves(history: Sequence[Mapping[str, Any]]) -> dict[str, list[Line]]:
    """{quantity: lines}. A line needs an epoch; short lists (one number a network) and maps are opened."""
    found: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    styles: dict[str, int] = {}
    for entry in history:
        epoch = number(entry.get("epoch"))
        if epoch is None:
            continue
        who = _who(entry)
        styles.setdefault(who, len(styles))
        for quantity, suffix, value in _quantities(entry):
            x, y = found.setdefault(quantity, {}).setdefault(who + suffix, ([], []))
            styles.setdefault(who + suffix, styles[who] if not suffix else len(styles))
            x.append(epoch)
            y.append(value)
    ordered = sorted(
        found, key=lambda name: (min((FIRST.index(f) for f in FIRST if f in name), default=len(FIRST)), name)
    )
    charts: dict[str, list[Line]] = {}
    for quantity in ordered[:MOST_CHARTS]:
        lines = [Line(who, x, y, styles[who] % LINES) for who, (x, y) in found[quantity].items()]
        if any(len(set(line.x)) > 1 for line in lines):
            charts[quantity] = lines
    return charts


def _who(entry: Mapping[str, Any]) -> str:
    parts = []
    for key in WHO:
        value = entry.get(key)
        if isinstance(value, str) and value:
            parts.append(value)
        elif number(value) is not None:
            parts.append(f"{key} {value}")
    return ", ".join(parts) or "training"


def _quantities(entry: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """(quantity, suffix of the line's name, value) for every number of an entry."""
    found: list[tuple[str, str, float]] = []
    for key, value in entry.items():
        if key in NOT_CURVES:
            continue
        single = number(value)
        if single is not None:
            found.append((key, "", single))
        elif isinstance(value, list) and 0 < len(value) <= 2:
            inner = [number(v) for v in value]
            found += [(key, f" ({i + 1})" if len(value) > 1 else "", v) for i, v in enumerate(inner) if v is not None]
        elif isinstance(value, Mapping):
            found += [(f"{key} {name}", "", v) for name, raw in value.items() if (v := number(raw)) is not None]
    return found
