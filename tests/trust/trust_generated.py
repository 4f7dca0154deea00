"""Random names, trees and tables through `select`, `export` and `predict`, in a process that is not root.

Each attack starts from a seed, so that a failure can be repeated: `attack("trees", seed)`. An AssertionError says what
was lost, written outside the target, too slow or not a one-line message.
"""

from __future__ import annotations

import codecs
import csv
import faulthandler
import io
import json
import os
import random
import shutil
import signal
import socket
import tempfile
import time
import traceback
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 5.0
WATCHDOG_SECONDS = 300  # ends a process whose library does not return, in which Python cannot raise an exception
NOBODY = 65534
limit_seconds = LIMIT_SECONDS
STRINGS = 2000  # in one table
MEMORY_FOLDER = Path("/dev/shm")  # its files need no disk, which would take a third of the time
QUICK = ["--model", "nearest", "--iterations", "1"]
PIECES = (
    *("=1+1", "=cmd|' /C calc'!A0", "@SUM(1)", "+1", "-1", "-", "'", "''", '"', '""', "=", "\uff1d1"),
    *("\r", "\n", "\r\n", "\t", "\0", "\x0b", "\x0c", "\x1b[31m", "\x7f", "\x85", "\u2028", "\u202e", "\ufeff"),
    *(
        ",",
        ";",
        "|",
        "\t",
        " ",
        "\u00a0",
        "\\",
        "/",
        "..",
        "../",
        "~",
        "$(touch marker)",
        "`id`",
        "%s",
        "{0}",
        "*",
        "?",
    ),
    *("Caf\u00e9", "Cafe\u0301", "CAT", "cat", "\u0130", "\u00df", "SS", "\u212a", "\U0001f600", "\u200d", "\u0639"),
    *("</script>", '"><img src=x onerror=alert(1)>', "&amp;", "NA", "nan", "null", "True", "1e999", "-0", "0x1", "con"),
    *(".", ".hidden", "a.png", "x" * 300, "1,5", "12:30", "2024-01-01", "a", "b", "label", "id", "path"),
)
LETTERS = "abcXYZ019_- .\u00e4\u4e2d"


def random_string(rng: random.Random) -> str:
    """Pieces that were a problem for some program once, letters, and any characters but surrogates."""
    parts = []
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        kind = rng.random()
        if kind < 0.6:
            parts.append(rng.choice(PIECES))
        elif kind < 0.9:
            parts.append("".join(rng.choices(LETTERS, k=rng.randint(1, 8))))
        else:
            parts.append("".join(chr(rng.choice((rng.randrange(0xD800), rng.randrange(0xE000, 0x110000))))))
    text = "".join(parts)
    return unicodedata.normalize(rng.choice(("NFC", "NFD")), text) if rng.random() < 0.2 else text


def file_name(rng: random.Random, suffix: str = "") -> str:
    """A random string that Linux accepts as a name."""
    name = random_string(rng).replace("/", "_").replace("\0", "_").strip(".") or "_"
    while len((name + suffix).encode()) > 255:
        name = name[: len(name) // 2]
    return name + suffix


# ---------------------------------------------------------------- commands


@dataclass
class Output:
    code: int
    text: str


class TooSlowError(AssertionError):
    pass


def waited() -> float:
    """Seconds that this thread waited for a processor: on a busy machine they are not the command's."""
    path = Path("/proc/thread-self/schedstat")
    return int(path.read_text().split()[1]) / 1e9 if path.exists() else 0.0


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TooSlowError after this time, without the time that the thread waited for a processor."""
    began, late = time.monotonic() - waited(), False

    def check(*_: object) -> None:
        nonlocal late
        if (left := began + seconds - (time.monotonic() - waited())) > 0:
            signal.setitimer(signal.ITIMER_REAL, max(left, 0.1))
            return
        late = True
        raise TooSlowError(f"not done after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(WATCHDOG_SECONDS, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if late:  # Python ignores an exception in a destructor
        raise TooSlowError(f"not done after {seconds} seconds")


def command(*tokens: str, codes: tuple[int, ...] = (0,)) -> Output:
    """Run a command in this process. It must end in time with one of the codes, and fail with one line."""
    from labelsieve.cli.app import run

    said = io.StringIO()
    with limited(limit_seconds), redirect_stdout(said), redirect_stderr(said):
        code = run(list(tokens))
    text = said.getvalue()
    assert code in codes and "Traceback" not in text, f"{tokens} ended with {code}: {text[-2000:]}"
    assert code == 0 or text.splitlines()[-1].startswith("labelsieve: "), text[-2000:]
    return Output(code, text)


def rows_of(path: Path) -> list[dict[str, str]]:
    """A CSV file as another program reads it."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def snapshot(folder: Path) -> dict[str, Any]:
    """Everything below a folder: contents, links and kinds of files."""
    found: dict[str, Any] = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            status = path.lstat()
            content: Any = status.st_mode
            if path.is_symlink():
                content = os.readlink(path)
            elif path.is_file() and os.access(path, os.R_OK):
                content = (path.read_bytes(), status.st_mtime_ns, status.st_ino)
            found[str(path)] = content
    return found


# ---------------------------------------------------------------- families


@dataclass
class Tally:
    attacks: int = 0
    items: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    problems: dict[str, str] = field(default_factory=dict)


def strings(rng: random.Random, work: Path, count: int = STRINGS) -> int:
    """Random ids, labels and cells of one CSV file come out of every command as they went in.

    Without cells in which an apostrophe stands before a formula: they are read without it, because exports add one.
    """
    from labelsieve.csv_files import FORMULA_STARTS, SEPARATORS, missing_values, restore

    def cell() -> str:
        text = random_string(rng)
        return text if restore(text) == text else cell()

    ids = list(dict.fromkeys(cell() for _ in range(2 * count)))
    ids = [id for id in ids if id.strip() and not id.endswith("\0")][:count]  # numpy cannot keep a final NUL: refused
    classes: list[str] = []
    while len(classes) < 4:
        name = random_string(rng).strip()
        refused = not name or name in missing_values() or name in classes or name.endswith("\0")
        if not refused and restore(name) == name:
            classes.append(name)
    notes = [cell() for _ in ids]
    given = [rng.choice(classes) for _ in ids]
    with (work / "t.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["id", "x", "z", "label", "note"])
        rows = zip(ids, given, notes, strict=True)
        writer.writerows([id, f"{rng.gauss(classes.index(y), 0.3):.4f}", rng.randint(0, 9), y, n] for id, y, n in rows)
    source = ["t.csv", "--ignore-columns", "note", "--id-column", "id", "--label-column", "label"]
    command("select", *source, "--out", "run", *QUICK)
    kept = rows_of(Path("run/labels.csv"))
    assert [row["id"] for row in kept] == ids and [row["label"] for row in kept] == given
    command("report", "run")
    command("export", "run", "--what", "cleaned", "--to", "raw.csv", "--raw")
    command("export", "run", "--what", "cleaned", "--to", "safe.csv")
    for name, undo in (("raw.csv", str), ("safe.csv", restore)):
        found = rows_of(Path(name))
        for column, expected in (("id", ids), ("label", given), ("note", notes)):
            assert [undo(row[column]) for row in found] == expected, f"{name}: {column}"
    for row in rows_of(Path("safe.csv")):
        for part in [row["id"], *row["id"].replace("\r", "\n").split("\n")]:
            assert not part.startswith(("=", "@")), part
        for separator in SEPARATORS:
            assert not any(part[:1] in FORMULA_STARTS[:1] and part for part in row["note"].split(separator)), row[
                "note"
            ]
    train()
    command("predict", "run", *source[:1], "--to", "p.csv")
    assert [row["id"] for row in rows_of(Path("p.csv"))] == ids
    return len(ids)


def train() -> None:
    command("train", "run", "--train-epochs", "1", "--device", "cpu", "--method", "standard")


def trees(rng: random.Random, work: Path) -> int:
    """A random folder of class folders: every picture is a sample or listed as skipped, and nothing else changes."""
    outside = work / "outside"
    outside.mkdir()
    (outside / "secret.png").write_bytes(picture(rng))
    root = work / "set"
    root.mkdir()
    expected = fill(rng, root, outside)
    before = snapshot(work)
    done = command("select", "set", "--out", "run", *QUICK, codes=(0, 1, 2))  # 1: a folder that may not be read
    made = {"run"}
    if done.code == 0:
        samples = {row["id"] for row in rows_of(Path("run/labels.csv"))}
        skipped = {row["id"] for row in rows_of(Path("run/skipped.csv"))} if Path("run/skipped.csv").exists() else set()
        lost = {printable(name) for name in expected} - samples - skipped
        assert not lost, f"neither a sample nor skipped: {sorted(lost)[:3]}"
        assert not [name for name in samples if Path("set", name).is_symlink()], "a link was followed"
        option = ["--link"] if rng.random() < 0.3 else []
        command("export", "run", "--what", "cleaned", "--to", "out", *option)
        made |= {"out", "out-classes.csv", "out-status.csv", "p.csv"}
        for path in filter(Path.exists, (Path("out-classes.csv"), Path("out-status.csv"))):
            cells = [cell for row in rows_of(path) for cell in row.values()]
            assert not [cell for cell in cells if cell.startswith(("=", "@"))], f"a formula in {path}"
        exported = [path for path in Path("out").rglob("*") if path.is_symlink() or path.is_file()]
        count = sum(not path.name.startswith(".labelsieve") for path in exported)
        assert count == len(samples), f"{count} files of {len(samples)} samples"
        if rng.random() < 0.2:
            command(
                "export",
                "run",
                "--what",
                "cleaned",
                "--to",
                rng.choice(("set", "run", "outside")),
                "--force",
                codes=(2,),
            )
        train()
        command("predict", "run", "set", "--to", "p.csv")
        assert {row["id"] for row in rows_of(Path("p.csv"))} >= samples
    after = {
        name: content for name, content in snapshot(work).items() if Path(name).relative_to(work).parts[0] not in made
    }
    assert after == before, f"changed: {sorted(set(after.items() ^ before.items()))[:3]}"
    return 1


def picture(rng: random.Random) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (4, 4), tuple(rng.randrange(256) for _ in range(3))).save(out, "PNG")
    return out.getvalue()


def printable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()


def fill(rng: random.Random, root: Path, outside: Path) -> list[str]:
    """Make 2 to 4 class folders; returns the ids of the readable pictures in them."""
    expected: list[str] = []
    folders = []
    while len(folders) < rng.randint(2, 4):
        folder = root / file_name(rng)
        if not folder.exists():
            folder.mkdir()
            folders.append(folder)
    for top in list(folders):
        if rng.random() < 0.4:
            below = top / file_name(rng)
            if not below.exists():
                below.mkdir()
                folders.append(below)
    for folder in folders:
        for _ in range(rng.randint(2, 6)):
            path = folder / file_name(rng, rng.choice((".png", ".PNG", ".jpg")))
            if os.path.lexists(path):
                continue
            path.write_bytes(picture(rng))
            if os.access(path, os.R_OK) and not any(p.startswith(".") for p in path.relative_to(root).parts):
                expected.append(path.relative_to(root).as_posix())
        for _ in range(rng.randint(0, 3)):
            path = folder / file_name(rng, rng.choice(("", ".png")))
            if not os.path.lexists(path):
                odd_file(rng, path, root, outside)
    if rng.random() < 0.2:
        odd_file(rng, root / file_name(rng, ".x"), root, outside)
    if rng.random() < 0.15:
        name = rng.choice(folders).relative_to(root).as_posix()
        (root / name).chmod(rng.choice((0o000, 0o300, 0o500)))
        expected = [id for id in expected if not id.startswith(f"{name}/")]
    return expected


def odd_file(rng: random.Random, path: Path, root: Path, outside: Path) -> None:
    kind = rng.randrange(10)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        with socket.socket(socket.AF_UNIX) as server, tempfile.TemporaryDirectory(dir=root.parent) as short:
            server.bind(f"{short}/s")  # the name of a socket has at most 107 bytes
            os.rename(f"{short}/s", path)
    elif kind == 2:
        path.symlink_to(path.name)
    elif kind == 3:
        path.symlink_to(
            rng.choice((root, root.parent, path.parent, Path("/"), Path("/dev/zero"), Path("/proc/self/mem")))
        )
    elif kind == 4:
        path.symlink_to(outside / rng.choice(("secret.png", "new.png")))
    elif kind == 5:
        path.symlink_to(outside)
    elif kind == 6:
        path.write_bytes(rng.randbytes(rng.choice((0, 10, 5000))))
    elif kind == 7:
        path.write_bytes(picture(rng))
        path.chmod(0)
    elif kind == 8:
        Path(os.fsdecode(os.fsencode(path)[:-8] + b"\xff\xfe.png")).write_bytes(picture(rng))
    else:
        path.mkdir()


def tables(rng: random.Random, work: Path) -> int:
    """A random table is read, or refused with one line; no row is lost without being listed."""
    count = rng.choice((0, 1, 2, 5, 30, 30, 80, 80, 80))
    names = ("a", "b", "x", "text", "id", random_string(rng), random_string(rng), "path")
    columns = rng.sample(names, k=rng.randint(1, 4)) if rng.random() < 0.9 else rng.choices(names, k=rng.randint(0, 4))
    if rng.random() < 0.9:
        columns = [column for column in columns if column != "path"] or ["a"]
    header = [*columns, rng.choice(("label", "label", "label", "Label", "y"))]
    kinds = [rng.randrange(5) for _ in header]

    def cell(kind: int, column: str, i: int) -> str:
        if column == header[-1]:
            return rng.choice(("", "NA", random_string(rng))) if rng.random() < 0.03 else "ab"[i % 2]
        if column == "id" and rng.random() < 0.95:
            return str(i)
        if rng.random() < 0.05:
            return random_string(rng)
        number, colour, day = f"{rng.gauss(i % 2, 1):.3f}", rng.choice(("red", "blue")), f"2024-01-{1 + i % 28:02d}"
        return (number, str(i), colour, day, f"{i} EUR")[kind]

    rows = [[cell(kind, column, i) for kind, column in zip(kinds, header, strict=True)] for i in range(count)]
    rows = [row[: rng.randint(0, len(row))] if rng.random() < 0.002 else row for row in rows]
    name = f"t{rng.choice(('.csv', '.csv', '.tsv', '.txt.csv', '.jsonl'))}"
    if name.endswith(".jsonl"):
        lines = (json.dumps(dict(zip(header, row, strict=False)), ensure_ascii=rng.random() < 0.5) for row in rows)
        content = "".join(line + "\n" for line in lines).encode()
    else:
        out = io.StringIO(newline="")
        style = {"delimiter": rng.choice((",", ";", "\t", "|")), "lineterminator": rng.choice(("\n", "\r\n"))}
        csv.writer(out, quoting=rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL)), **style).writerows([header, *rows])
        content = out.getvalue().encode(rng.choice(("utf-8", "utf-8", "utf-8-sig", "utf-16")))
    damaged = rng.random() < 0.1
    if damaged:
        at = rng.randrange(len(content) + 1)
        content = content[:at] + rng.choice((b'"', b"\0", b"\xff", b"\r", b"")) + content[at + rng.randint(0, 3) :]
    (work / name).write_bytes(content)
    before = snapshot(work)
    model = "tfidf" if "text" in columns else "nearest"
    source = [name, "--label-column", header[-1]]
    done = command("select", *source, "--out", "run", "--model", model, "--iterations", "1", codes=(0, 2))
    if done.code == 0:
        samples = rows_of(Path("run/labels.csv"))
        assert len({row["id"] for row in samples}) == len(samples)
        listed = rows_of(Path("run/skipped.csv")) if Path("run/skipped.csv").exists() else []
        if not damaged:  # an empty line is not a row of a CSV file
            written = count if name.endswith(".jsonl") else sum(map(bool, rows))
            assert len(samples) + len(listed) == written, f"{len(samples)} samples, {len(listed)} skipped"
        command("report", "run")
        command("export", "run", "--what", "cleaned", "--to", "out.csv", codes=(0, 2))
        trained = command(
            "train", "run", "--train-epochs", "1", "--device", "cpu", "--method", "standard", codes=(0, 1, 2)
        )
        if trained.code == 0:
            command("predict", "run", name, "--to", "p.csv")
            assert {row["id"] for row in rows_of(Path("p.csv"))} >= {row["id"] for row in samples}
    assert {key: value for key, value in snapshot(work).items() if key in before} == before
    return 1


def runs(rng: random.Random, work: Path) -> int:
    """A damaged run folder is read, or refused with one line; nothing outside of it changes."""
    import trust_runs

    return trust_runs.runs(rng, work)


def folders(name: str, rng: random.Random, work: Path, **options: Any) -> int:
    """A family of trust_folders.py."""
    import trust_folders

    return trust_folders.FAMILIES[name](rng, work, **options)


FAMILIES: dict[str, Callable[..., int]] = {"strings": strings, "trees": trees, "tables": tables, "runs": runs}
FAMILIES |= {name: partial(folders, name) for name in ("datasets", "models", "caches", "votes", "labels")}


# ---------------------------------------------------------------- running


def attack(family: str, seed: int, **options: Any) -> int:
    """Run one attack in a new folder, which is removed afterwards; returns the number of items."""
    before = Path.cwd()
    work = Path(tempfile.mkdtemp(prefix="labelsieve-attack-", dir=MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None))
    try:
        os.chdir(work)
        return FAMILIES[family](random.Random(f"{family} {seed}"), work, **options)
    finally:
        os.chdir(before)
        for parent, folders, _ in os.walk(work):
            for name in folders:
                if not Path(parent, name).is_symlink():
                    Path(parent, name).chmod(0o700)
        shutil.rmtree(work)


def warm_up() -> None:
    """Import everything that the commands import: a process that is not root may not be able to read it later."""
    import trust_chaos
    import trust_folders

    global limit_seconds
    trust_chaos.load_everything()
    for name in ("cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "latin-1"):
        codecs.lookup(name)
    limit_seconds = 300.0  # imports take their time
    for family in FAMILIES:
        for seed in (-1, -2):
            with suppress(AssertionError):
                attack(family, seed, **({"count": 50} if family == "strings" else {}))
    with suppress(ImportError):  # without the extras, there is nothing to attack
        trust_folders.warm_up(attack)
    limit_seconds = LIMIT_SECONDS


def attacks(family: str, seeds: range, tally: Tally, **options: Any) -> Tally:
    """Run attacks in a child process without rights; problems are recorded and do not stop them."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _work(family, seeds, writer, options)
    os.close(writer)
    with os.fdopen(reader) as lines:
        for line in lines:
            seed, items, seconds, problem = line.rstrip("\n").split("\t", 3)
            tally.attacks += 1
            tally.items += int(items)
            tally.seconds += float(seconds)
            tally.slowest = max(tally.slowest, float(seconds))
            if problem:
                tally.problems[f"{family} {seed}"] = problem
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status or tally.attacks < len(seeds):  # a crash, or a library that did not return
        tally.problems[f"{family} {seeds[0] + tally.attacks}"] = f"the process ended with {status}"
    return tally


def _work(family: str, seeds: range, writer: int, options: dict[str, Any]) -> None:
    code = 1
    try:
        become_nobody()
        _remember_arguments()
        os.chdir("/")
        for seed in seeds:
            os.write(writer, (_one(family, seed, options) + "\n").encode())
        code = 0
    finally:
        os._exit(code)


def become_nobody() -> None:
    """Become a user without rights and without a home; a user who is not root stays the same."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    os.environ["HOME"] = "/nonexistent"


def _remember_arguments() -> None:
    """Parse each command line once: the attacks repeat a few of them, and parsing takes a third of their time."""
    from labelsieve.cli import app

    make_app, parse = app.make_app, app.parse
    app.make_app = cache(make_app)
    parsed: dict[tuple[str, ...], Any] = {}

    def remembered(made: Any, tokens: list[str]) -> Any:
        if tuple(tokens) not in parsed:
            parsed[tuple(tokens)] = parse(made, list(tokens))
        return parsed[tuple(tokens)]

    app.parse = remembered


def _one(family: str, seed: int, options: dict[str, Any]) -> str:
    problem, items, seconds = "", 0, 0.0
    for _ in range(2):  # on a busy machine a command may be late once; one that hangs is late again
        began = time.monotonic()
        try:
            items, problem = attack(family, seed, **options), ""
            seconds = time.monotonic() - began
            break
        except TooSlowError as late:
            problem = str(late)
        except BaseException as failed:
            place = traceback.extract_tb(failed.__traceback__)[-1]
            problem = f"{type(failed).__name__} in line {place.lineno} of {Path(place.filename).name}: {failed}"
            break
    return f"{seed}\t{items}\t{seconds:.2f}\t{' '.join(problem.split())[:500]}"
