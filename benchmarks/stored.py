"""Results of a benchmark in a JSON file, so that a stopped benchmark continues.

A result belongs to the code of the package that gave it. Results of other code are measured again, unless they are
kept on request; the page says which commits the results come from.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def package_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted((ROOT / "labelsieve").rglob("*.py")):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


@dataclass
class Stored:
    """Results by name, with the code that gave each of them."""

    path: Path
    keep: bool = False  # results of other code too
    code: str = field(default_factory=package_hash)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path.is_file():
            self.results = json.loads(self.path.read_text())

    def has(self, name: str) -> bool:
        return name in self.results and (self.keep or self.results[name].get("code") == self.code)

    def measure(self, name: str, work: Callable[[], dict[str, Any]]) -> None:
        """Measure and store a result, unless it is known."""
        if self.has(name):
            return
        began = time.monotonic()
        found = work()
        seconds = time.monotonic() - began
        self.results[name] = found | {"seconds": seconds, "commit": commit(), "code": self.code}
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(self.results, indent=1) + "\n")
        partial.replace(self.path)
        print(f"{name}: {seconds:.0f} s", flush=True)

    def commits(self, groups: dict[str, str]) -> str:
        """Which commits the results come from; `groups` has the name of each result on the page."""
        by_commit: dict[str, list[str]] = {}
        for name, group in groups.items():
            by_commit.setdefault(self.results[name].get("commit", ""), []).append(group)
        named = {commit: f"commit {commit}" if commit else "an earlier commit" for commit in by_commit}
        parts = (f"{named[commit]} ({'; '.join(dict.fromkeys(names))})" for commit, names in by_commit.items())
        return (
            f"Measured on {', and on '.join(parts)}."
            if len(by_commit) > 1
            else f"Measured on {next(iter(named.values()))}."
        )
