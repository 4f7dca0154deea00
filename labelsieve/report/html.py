"""HTML elements as Python calls, and charts as SVG without scripts. Every string is escaped unless it was made here.

Colours are style classes (`d0`..`d10` for right labels, `h0`..`h10` for wrong ones, `s0`..`s7` for lines): dark mode
and print only change the style sheet.
"""

from __future__ import annotations

import math
import os
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from labelsieve.progress import format_share
from labelsieve.types import FloatArray


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Escape `value`. Control characters, which HTML forbids, become a replacement character."""
    if isinstance(value, Markup):
        return value
    shown = "".join(ch if (ch >= " " and ch != "\x7f") or ch in "\n\t" else "\ufffd" for ch in str(value))
    shown = shown.encode("utf-8", "replace").decode("utf-8")
    return Markup(escape(shown, quote=True))


def join(parts: Any, separator: str = "") -> Markup:
    """Concatenate `parts`; text is escaped."""
    return Markup(text(separator).join(text(part) for part in parts))


VOID = frozenset({"meta", "img", "br", "hr", "link"})


def el(name: str, /, *children: object, **attributes: object) -> Markup:
    """<name attributes>children</name>. `cls` means class, `_` in names becomes `-`, None and False are omitted."""
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = "class" if key == "cls" else key.rstrip("_").replace("_", "-")
        written.append(f" {key}" if value is True else f' {key}="{text(str(value))}"')
    opening = f"<{name}{''.join(written)}>"
    if name in VOID:
        return Markup(opening)
    return Markup(f"{opening}{join(children)}</{name}>")


def breakable(name: str) -> Markup:
    """A name that breaks after its separators, not in the middle of a word."""
    return join(re.split(r"(?<=[_\-/.])", name), Markup("<wbr>"))


def shorten_middle(name: str, limit: int) -> str:
    """Cut the middle of a long name: names of classes often differ in their last letters."""
    keep = limit - 1
    return name if len(name) <= limit else f"{name[: keep - keep // 3]}\u2026{name[-(keep // 3) :]}"


def shorten_names(names: Sequence[str], limit: int) -> list[str]:
    """Short forms of names. Names that would get the same form show the part in which they differ, between two ends."""
    alike: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        alike.setdefault(shorten_middle(name, limit), []).append(name)
    ends, shown = limit // 4, {}
    for form, group in alike.items():
        start = len(os.path.commonprefix(group))  # noqa: RUF071 - letters, not folders
        part = slice(start, start + limit - 2 * ends - 2)
        for name in group:
            shown[name] = form if len(group) == 1 else f"{name[:ends]}\u2026{name[part]}\u2026{name[-ends:]}"
    return [shown[name] for name in names]


def shorten(value: str, limit: int) -> str:
    """Cut to `limit` characters, with an ellipsis."""
    return value if len(value) <= limit else value[: max(limit - 1, 1)].rstrip() + "\u2026"


def percent(value: float | None, digits: int | None = None) -> str:
    """0.384 as "38 %". Values near 0 and 1 keep a decimal, so that they do not read as 0 or 100."""
    if value is None or value != value:
        return "unknown"
    if digits is None:
        digits = 1 if 0 < value < 0.0995 or 0.985 <= value < 1 else 0
    return format_share(value, digits, space="\u202f")


def count(value: int) -> str:
    """1234567 as "1,234,567"."""
    return f"{value:,}"


LINE_STYLES = 8  # colours and dashes in the style sheet
MAX_POINTS = 400  # per line
NAME_SIZE = 12.5  # font size of class names
MAX_NAME = 44  # letters beside a bar
LEAST_SHOWN = 0.005  # share of a row that reads as 1 %; smaller ones have no number and no colour
AXIS_TITLE = 150  # pixels that a vertical title needs


def heat_map(names: Sequence[str], matrix: FloatArray, *, title: str, description: str) -> Markup:
    """A transition matrix. Rows are true classes, columns given labels; the diagonal holds the right labels."""
    n = len(names)
    cell = 58 if n <= 6 else 44 if n <= 12 else 32 if n <= 20 else 25
    letters = 28 if n <= 20 else 22
    size = 12.5 if n <= 12 else 10.5 if n <= 20 else 8.5
    shown = shorten_names(names, letters)
    widest = max(map(_text_width, shown), default=0.0)
    left = 28 + int(widest) + 8
    slant = int(widest / math.sqrt(2)) + 10
    top = 28 + slant
    mistakes = max((float(matrix[i, j]) for i in range(n) for j in range(n) if i != j), default=0.0) or 1.0
    parts: list[Markup] = []
    for i in range(n):
        y = top + i * cell
        parts.append(_label(left - 8, y + cell / 2 + 4, shown[i], names[i], anchor="end"))
        x = left + i * cell + cell / 2
        parts.append(_label(x + 2, top - 8, shown[i], names[i], transform=f"rotate(-45 {x + 2} {top - 8})"))
        for j in range(n):
            value = float(matrix[i, j])
            if value != value:
                continue
            level = round(10 * value)
            if i != j:
                level = math.ceil(10 * value / mistakes - 1e-9) if value >= LEAST_SHOWN else 0
            kind = f"{'d' if i == j else 'h'}{min(max(level, 0), 10)}"
            label = f"{names[i]} labelled {names[j]}: {percent(value, 1)}"
            box = el("rect", x=left + j * cell, y=y, width=cell - 1, height=cell - 1, rx=2, cls=f"cell {kind}")
            number = Markup("")
            if value >= LEAST_SHOWN or i == j:
                middle, base = left + j * cell + (cell - 1) / 2, y + (cell - 1) / 2 + size * 0.36
                number = el(
                    "text", f"{100 * value:.0f}", x=_n(middle), y=_n(base), text_anchor="middle", font_size=size,
                    cls=f"on {kind}",
                )  # fmt: skip
            parts.append(el("g", el("title", label), box, number))
    parts.append(_axis(left + n * cell / 2, 16, "given label"))
    width, height = left + n * cell + slant, max(top + n * cell + 6, AXIS_TITLE)
    middle = min(max(top + n * cell / 2, AXIS_TITLE / 2), height - AXIS_TITLE / 2)
    parts.append(_axis(14, middle, "true class (estimated)", turned=True))
    return _svg(parts, width, height, title=title, description=description, ident="heat", cls="heat")


def stacked_bars(
    names: Sequence[str], parts_of: Sequence[Sequence[int]], kinds: Sequence[str], *, title: str
) -> Markup:
    """One horizontal bar per class, its parts in the order of `kinds` (style classes)."""
    row = 26
    shown = shorten_names(names, MAX_NAME)
    left = 16 + int(max(map(_text_width, shown), default=0.0))
    right, width = 64, max(720, left + 400)
    most = max((sum(parts) for parts in parts_of), default=1) or 1
    drawn: list[Markup] = []
    for i, (name, parts) in enumerate(zip(names, parts_of, strict=True)):
        y, x = 4 + i * row, float(left)
        drawn.append(_label(left - 8, y + row / 2 + 3, shown[i], name, anchor="end"))
        for kind, value in zip(kinds, parts, strict=True):
            length = (width - left - right) * value / most
            if value:
                title_of = el("title", f"{name}: {value:,} {kind}")
                size = {"width": _n(max(length - 1, 0.5)), "height": row - 8}
                drawn.append(el("rect", title_of, x=_n(x), y=y + 3, rx=2, cls=kind, **size))
            x += length
        drawn.append(el("text", f"{sum(parts):,}", x=_n(x + 6), y=y + row / 2 + 3, cls="quiet", font_size=12))
    described = "; ".join(
        f"{name}: " + ", ".join(f"{value} {kind}" for kind, value in zip(kinds, parts, strict=True))
        for name, parts in list(zip(names, parts_of, strict=True))[:10]
    )
    return _svg(drawn, width, 8 + row * len(names), title=title, description=described, ident="bars", cls="bars")


@dataclass(frozen=True)
class Line:
    name: str
    x: list[float]
    y: list[float]
    style: int = 0


def line_chart(lines: Sequence[Line], *, title: str, ident: str) -> Markup:
    """Curves over epochs; `style` sets colour and dashes."""
    width, height, left, right, top, bottom = 460, 250, 52, 14, 14, 40
    points = [(x, y) for line in lines for x, y in zip(line.x, line.y, strict=True) if math.isfinite(y)]
    low_x, high_x = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    ticks = _ticks(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    span_x, span = (high_x - low_x) or 1.0, (high - low) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            left + (width - left - right) * (x - low_x) / span_x,
            top + (height - top - bottom) * (1 - (y - low) / span),
        )

    drawn: list[Markup] = []
    for tick in ticks:
        _, y = place(low_x, tick)
        drawn.append(el("line", x1=left, x2=width - right, y1=_n(y), y2=_n(y), cls="grid"))
        drawn.append(el("text", f"{tick:g}", x=left - 8, y=_n(y + 4), text_anchor="end", font_size=11.5, cls="quiet"))
    for tick in _whole_ticks(low_x, high_x):
        x, _ = place(tick, low)
        drawn.append(
            el("text", f"{tick:g}", x=_n(x), y=height - bottom + 18, text_anchor="middle", font_size=11.5, cls="quiet")
        )
    drawn.append(_axis((left + width - right) / 2, height - 4, "epoch"))
    for line in lines:
        path = [place(x, y) for x, y in _thinned(line) if math.isfinite(y)]
        style = f"s{line.style % LINE_STYLES}"
        if len(path) == 1:
            drawn.append(
                el("circle", el("title", line.name), cx=_n(path[0][0]), cy=_n(path[0][1]), r=3, cls=f"dot {style}")
            )
        elif path:
            points_of = " ".join(f"{_n(x)},{_n(y)}" for x, y in path)
            drawn.append(el("polyline", el("title", line.name), points=points_of, cls=f"line {style}"))
    last = "; ".join(f"{line.name} ends at {line.y[-1]:.3g}" for line in lines[:12])
    return _svg(drawn, width, height, title=title, description=last, ident=ident, cls="curve")


def swatch(kind: str) -> Markup:
    """The small square of a legend."""
    return el(
        "svg", el("rect", width=12, height=12, rx=2, cls=kind), width=12, height=12, aria_hidden="true", cls="swatch"
    )


def dash(style: int) -> Markup:
    """The small line of a legend."""
    line = el("polyline", points="1,6 27,6", cls=f"line s{style % LINE_STYLES}")
    return el("svg", line, width=28, height=12, aria_hidden="true", cls="swatch")


def _svg(
    parts: Sequence[Markup], width: float, height: float, *, title: str, description: str, ident: str, cls: str
) -> Markup:
    named = [el("title", title, id=f"{ident}-t"), el("desc", description, id=f"{ident}-d")]
    return el(
        "svg", join([*named, *parts]), viewBox=f"0 0 {_n(width)} {_n(height)}", width=_n(width), height=_n(height),
        role="img", aria_labelledby=f"{ident}-t {ident}-d", cls=cls,
    )  # fmt: skip


def _label(
    x: float, y: float, shown: str, whole: str, *, anchor: str = "start", transform: str | None = None
) -> Markup:
    full = el("title", whole) if whole != shown else Markup("")
    return el(
        "text", full, shown, x=_n(x), y=_n(y), text_anchor=anchor, transform=transform, font_size=NAME_SIZE, cls="name"
    )


def _text_width(text: str) -> float:
    """Width of a class name in pixels, estimated for DejaVu Sans, one of the widest fonts that browsers use."""

    def em(letter: str) -> float:
        if letter in "mwMW@%…" or unicodedata.east_asian_width(letter) in "WF":
            return 1.0
        if letter.isupper():
            return 0.75
        return 0.4 if letter in "ijlrtf .,:;'|!()-" else 0.63

    return NAME_SIZE * sum(map(em, text))


def _axis(x: float, y: float, name: str, *, turned: bool = False) -> Markup:
    transform = f"rotate(-90 {_n(x)} {_n(y)})" if turned else None
    return el("text", name, x=_n(x), y=_n(y), text_anchor="middle", font_size=12, transform=transform, cls="quiet")


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers between `low` and `high`."""
    span = high - low
    if span <= 0:
        return [low - 0.5, low, low + 0.5]
    raw = span / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(i * step, 10) for i in range(first, last + 1)]


def _whole_ticks(low: float, high: float) -> list[float]:
    inside = [tick for tick in _ticks(low, high) if low <= tick <= high and float(tick).is_integer()]
    return inside or sorted({low, high})


def _thinned(line: Line) -> list[tuple[float, float]]:
    pairs = list(zip(line.x, line.y, strict=True))
    step = max(1, math.ceil(len(pairs) / MAX_POINTS))
    return [*pairs[:-1:step], *pairs[-1:]]


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
