"""What stands after the ? of a source: `name=value`, joined by &, %xx for what has another meaning there."""

from __future__ import annotations

from urllib.parse import parse_qsl


def options_of(query: str) -> dict[str, str]:
    """By name. A + is one, as folders and columns have it, and no blank."""
    return dict(parse_qsl(query.replace("+", "%2B"), keep_blank_values=True))
