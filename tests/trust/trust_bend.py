"""Content bent at random: bytes, an entry of a zip archive, the header of a safetensors file, a value inside JSON."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

EXTREMES = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1]


def bend(content: bytes, rng: random.Random, tokens: list[bytes]) -> bytes:
    """A few random changes."""
    made = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        at = rng.randrange(len(made) + 1)
        if len(made) > 64 and rng.random() < 0.4:
            at = rng.randrange(min(len(made), 300))  # headers decide
        length = min(len(made) - at, int(rng.expovariate(1 / 12)) + 1)
        act = rng.randrange(8)
        if act == 0 and at < len(made):
            made[at] ^= 1 << rng.randrange(8)
        elif act == 1:
            del made[at : at + length]
        elif act == 2:
            made[at:at] = rng.choice(tokens)
        elif act == 3:
            token = rng.choice(tokens)
            made[at : at + len(token)] = token
        elif act == 4:
            piece = made[at : at + length]
            other = rng.randrange(len(made) + 1)
            made[other:other] = piece * rng.choice((1, 1, 2, 50))
        elif act == 5:
            value = rng.choice(EXTREMES)
            size, order = rng.choice((1, 2, 4, 8)), rng.choice("<>")
            field_ = struct.pack(order + "Q", value)
            made[at : at + size] = field_[:size] if order == "<" else field_[-size:]
        elif act == 6 and rng.random() < 0.3:
            del made[at:]
        elif at < len(made):
            made[at] = rng.randrange(256)
    return bytes(made)


def bend_zip(content: bytes, rng: random.Random, tokens: list[bytes]) -> bytes:
    """One entry bent, the archive whole."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        chosen = rng.choice(old.namelist())
        for name in old.namelist():
            entry = old.read(name)
            new.writestr(name, bend(entry, rng, tokens) if name == chosen else entry)
    return out.getvalue()


def bend_safetensors(content: bytes, rng: random.Random, tokens: list[bytes]) -> bytes:
    """The header bent and its length right."""
    size = struct.unpack("<Q", content[:8])[0]
    header = bend(content[8 : 8 + size], rng, tokens)
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


ODD = [
    None,
    True,
    -1,
    0,
    1e308,
    2**70,
    "",
    "x" * 300,
    "<b>",
    "../..",
    [],
    {},
    [[]],
    [None],
    {"a": {"b": []}},
    "NaN",
    1.5,
    "\ud800",
]


def bend_json(value: Any, rng: random.Random) -> Any:
    """One value somewhere inside becomes something odd, goes away or is doubled."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(sorted(value))
        act = rng.random()
        if act < 0.1:
            return {other: entry for other, entry in value.items() if other != key}
        return {**value, key: bend_json(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        act = rng.random()
        if act < 0.15:
            return value[:at] + value[at + 1 :]
        if act < 0.3:
            return value + value[at:]
        return [*value[:at], bend_json(value[at], rng), *value[at + 1 :]]
    return rng.choice(ODD)


def bend_file(path: Path, rng: random.Random, tokens: list[bytes]) -> None:
    """Bend the content of a file: a value inside JSON, the header of a safetensors file, or any bytes."""
    content = path.read_bytes()
    try:
        if path.suffix == ".json" and rng.random() < 0.7:
            content = json.dumps(bend_json(json.loads(content), rng)).encode()
        elif path.suffix == ".safetensors" and rng.random() < 0.7:
            content = bend_safetensors(content, rng, tokens)
        else:
            content = bend(content, rng, tokens)
    except (ValueError, KeyError, RecursionError, struct.error):  # an earlier change damaged its format
        content = bend(content, rng, tokens)
    path.write_bytes(content)
