"""HTML elements as Python calls: every string is escaped unless it was made here."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from html import escape
from typing import Any


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
    """Short forms of names that stay different: if needed, without the letters that all names begin with."""
    shown = [shorten_middle(name, limit) for name in names]
    if len(set(shown)) == len(set(names)):
        return shown
    start = len(os.path.commonprefix(list(names)))  # noqa: RUF071 - letters, not folders
    return [shorten(f"\u2026{name[start:]}", limit) for name in names]


def shorten(value: str, limit: int) -> str:
    """Cut to `limit` characters, with an ellipsis."""
    return value if len(value) <= limit else value[: max(limit - 1, 1)].rstrip() + "\u2026"


def percent(value: float | None, digits: int | None = None) -> str:
    """0.384 as "38 %". Values near 0 and 1 keep a decimal, so that they do not read as 0 or 100."""
    if value is None or value != value:
        return "unknown"
    if digits is None:
        digits = 1 if 0 < value < 0.0995 or 0.985 <= value < 1 else 0
    return f"{100 * value:.{digits}f}\u202f%"


def count(value: int) -> str:
    """1234567 as "1,234,567"."""
    return f"{value:,}"


def plural(value: int, one: str, many: str | None = None) -> str:
    return f"{count(value)} {one if value == 1 else many or one + 's'}"
