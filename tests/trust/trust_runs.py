"""Random damage to a finished run folder, as it may come from another person.

A run of texts with embeddings, a model and the decisions of two people is copied, a few of its files are damaged or
replaced with links and special files, and every command that reads a run reads it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trust_bend import bend_file
from trust_generated import TooSlowError, command, limit_seconds, limited, snapshot

TOKENS = [b'"', b",", b"\n", b"\r", b"\0", b"nan", b"-1", b"1e999", b"[", b"{", b"null", b"=cmd", b"../", b"\xff"]
CODES = (0, 1, 2)
SELECT = ("select", "t.csv", "--out", "run", "--embed", "trust_models:embed", "--iterations", "1")
templates: dict[int, Path] = {}  # by process


def make_template() -> Path:
    """A source and its finished run, once per process."""
    folder = Path(f"/tmp/labelsieve-runs-{os.getpid()}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    before = Path.cwd()
    os.chdir(folder)
    try:
        rows = (
            f"t{i},{'good fine nice' if i % 2 else 'bad poor'} {i},{'ab'[i % 2 if i % 7 else 0]}" for i in range(60)
        )
        Path("t.csv").write_text("id,text,label\n" + "\n".join(rows) + "\n")
        command(*SELECT)
        command("train", "run", "--train-epochs", "1", "--device", "cpu", "--method", "standard")
        command("report", "run")
        decided = "t1,keep,,ann,2026-01-01T00:00:00.000+00:00\nt1,drop,,bob,2026-01-01T00:00:01.000+00:00\n"
        Path("run/decisions.csv").write_text(f"id,decision,label,reviewer,time\n{decided}t2,relabel,b,ann,\n")
    finally:
        os.chdir(before)
    return folder


def damage(rng: random.Random, path: Path, outside: Path) -> None:
    kind = rng.randrange(10)
    if kind <= 5:
        bend_file(path, rng, TOKENS)
        return
    path.unlink()
    if kind == 6:
        path.symlink_to(outside / rng.choice(("secret", "new")))
    elif kind == 7:
        os.mkfifo(path)
    elif kind == 8:
        path.mkdir()


def review() -> None:
    """What the page asks for, without a server."""
    from labelsieve.errors import InputError
    from labelsieve.review.review_session import Filter, ReviewSession
    from labelsieve.runfolder import RunFolder

    with limited(limit_seconds):
        try:
            session = ReviewSession(RunFolder.existing("run"))
            answers: list[Callable[[], Any]] = [
                session.start,
                lambda: session.items(Filter(), 0, 8, "ann"),
                session.matrix,
                lambda: session.check(0.9),
                lambda: session.neighbours(3),
                lambda: session.decide([(3, 0)], "drop", None, window="w", reviewer="bob"),
                lambda: session.undo("w", "bob"),
            ]
            for answer in answers:
                try:
                    json.dumps(answer())
                except (InputError, OSError):
                    continue
        except TooSlowError:
            raise
        except (InputError, OSError):
            return


def runs(rng: random.Random, work: Path) -> int:
    template = templates.get(os.getpid()) or templates.setdefault(os.getpid(), make_template())
    shutil.copytree(template, work, dirs_exist_ok=True)
    outside = work / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret\n")
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        files = sorted(path for path in Path("run").rglob("*") if path.is_file() and not path.is_symlink())
        damage(rng, rng.choice(files), outside)
    if rng.random() < 0.1:
        folder = rng.choice(sorted(path for path in Path("run").rglob("*") if path.is_dir()))
        shutil.rmtree(folder)
        folder.symlink_to(outside)
    before = {name: content for name, content in snapshot(work).items() if not name.startswith(str(work / "run"))}
    what = rng.choice(("cleaned", "suspects", "selected", "decisions"))
    export = ("export", "run", "--what", what, "--to", "out.csv")
    read = [
        lambda: command(*export, codes=CODES),
        lambda: command(*export[:3], "cleaned", "--apply", "suggested", "--to", "out2.csv", "--force", codes=CODES),
        lambda: command("predict", "run", "t.csv", "--embed", "trust_models:embed", "--to", "p.csv", codes=CODES),
        review,
        lambda: command("report", "run", codes=CODES),
        lambda: command(*SELECT, codes=CODES),
    ]  # fmt: skip
    rng.shuffle(read)
    for one in read:
        one()
    made = {str(work / name) for name in ("out.csv", "out2.csv", "p.csv")}
    after = {n: c for n, c in snapshot(work).items() if not n.startswith(str(work / "run")) and n not in made}
    assert after == before, f"changed: {sorted(set(after) ^ set(before))[:3]}"
    return 1
