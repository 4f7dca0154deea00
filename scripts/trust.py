"""Run the long tests of kills, failed writes, hostile files, generated attacks and fuzzing, and write docs/trust.md.

    python scripts/trust.py                     all tests (about 25 minutes on 2 cores)
    python scripts/trust.py --resume            skip the units that passed on the same code
    python scripts/trust.py --only trees,fuzz   some parts; the others keep their last numbers
    python scripts/trust.py --only none         write the page again
    python scripts/trust.py --fuzz              only the parsers, without writing the page (`make fuzz`)

The work is divided into units. Each unit runs in its own process, one process per core; very large inputs follow one
after another, because their time and memory are measured. docs/trust.json is written after every unit. A result belongs
to the code that it tested: the sources of the package, of these tests and their fixed versions. A commit that changes
only documentation keeps all results.

The script exits with 1 if a test fails. Inputs that fail in the fuzzer are stored in tests/fuzz/; a test replays them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "trust"
RECORD = ROOT / "docs" / "trust.json"
PAGE = ROOT / "docs" / "trust.md"
FAILING_INPUTS = ROOT / "tests" / "fuzz"
sys.path.insert(0, str(TESTS))
os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

UNIT_SECONDS = 1200  # a unit that takes longer hangs: each takes at most 5 minutes on an idle machine
# Generated attacks: 10 to 30 seconds.
PER_UNIT = {"strings": 2, "trees": 100, "tables": 100, "runs": 100}
PER_UNIT |= {"datasets": 250, "models": 250, "labels": 250, "caches": 25, "votes": 25}
STRINGS_PER_ATTACK = 2000
MEMORY_FOLDER = "/dev/shm"  # kills and failed writes do not depend on the disk; without it they take twice the time
TEST_FILES = ("ending", "faults", "findings", "numbers", "open_calls", "pages", "supply")
SHARES = {"network": 0.5, "scikit-learn": 0.3, "pictures": 0.2}  # of the kills


@dataclass(frozen=True)
class Unit:
    part: str
    name: str
    work: partial[dict[str, Any]]
    alone: bool = False

    @property
    def key(self) -> str:
        return f"{self.part}/{self.name}"


@contextmanager
def chaos_folder() -> Iterator[Any]:
    """The sources of the killed and stopped runs, in a new working folder."""
    import trust_chaos

    place = MEMORY_FOLDER if Path(MEMORY_FOLDER).is_dir() else None
    with tempfile.TemporaryDirectory(prefix="labelsieve-trust-", dir=place) as folder:
        trust_chaos.prepare(Path(folder))
        yield trust_chaos
        os.chdir(ROOT)


def kills(scenario: str, wanted: int) -> dict[str, Any]:
    with chaos_folder() as chaos:
        return asdict(chaos.chaos(scenario, round(wanted * SHARES[scenario]), seed=time.time_ns() % 2**32))


def writes(wanted: int) -> dict[str, Any]:
    with chaos_folder() as chaos:
        return asdict(chaos.refused_writes(range(1, wanted + 1)))


def stops(wanted: int) -> dict[str, Any]:
    with chaos_folder() as chaos:
        return asdict(chaos.stops(wanted, seed=time.time_ns() % 2**32))


def hostile(kind: str) -> dict[str, Any]:
    """Run the cases of a kind, each in its own process."""
    import trust_hostile

    cases = [case for case in trust_hostile.CASES if case.kind == kind]
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="labelsieve-trust-") as folder:
            pid = os.fork()
            if pid == 0:
                _survive(case, Path(folder))
            _, status = os.waitpid(pid, 0)
            if os.waitstatus_to_exitcode(status) != 0:
                raise AssertionError(f"{case.name}: {(Path(folder) / 'problem').read_text()}")
    return {"cases": [case.name for case in cases]}


def _survive(case: Any, folder: Path) -> None:
    import trust_hostile

    code = 1
    try:
        work = folder / "work"
        work.mkdir()
        os.chdir(work)
        sys.path.insert(0, str(work))
        log = folder / "said"
        descriptor = os.open(log, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)

        def said() -> str:
            sys.stderr.flush()
            text = log.read_text(errors="replace")
            os.ftruncate(descriptor, 0)
            return text

        trust_hostile.survive(case, work, said)
        code = 0
    except BaseException:
        (folder / "problem").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def generated(family: str, seeds: range) -> dict[str, Any]:
    import trust_generated

    return asdict(trust_generated.attacks(family, seeds, trust_generated.Tally()))


def fuzz(name: str, inputs: int) -> dict[str, Any]:
    import trust_fuzz

    return asdict(trust_fuzz.forked(name, inputs, keep=FAILING_INPUTS))


def limits(name: str) -> dict[str, Any]:
    import trust_limits

    return {"result": trust_limits.run(name)}


def large(name: str) -> dict[str, Any]:
    import trust_large

    return asdict(trust_large.measure(name))


def tests(name: str) -> dict[str, Any]:
    """Run a file of tests, the slow ones included."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "slow or not slow", "-rs"]
    done = subprocess.run([*command, f"tests/trust/test_{name}.py"], cwd=ROOT, capture_output=True, text=True)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout)}
    assert done.returncode == 0, f"test_{name}.py: {done.stdout[-3000:]}"
    return {"passed": counts["passed"], "skipped": counts.get("skipped", 0)}


def audit() -> dict[str, Any]:
    """Run pip-audit on the constraints."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(ROOT / "constraints.txt"), "--no-deps",
               "--disable-pip", "--progress-spinner", "off", "--format", "json"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return {"reached": False}
    skipped = [p["name"] for p in packages if "skip_reason" in p]
    known = {p["name"]: [v["id"] for v in p.get("vulns", [])] for p in packages if p.get("vulns")}
    return {"reached": len(skipped) < len(packages), "packages": len(packages) - len(skipped), "known": known}


def all_units(args: argparse.Namespace) -> list[Unit]:
    """Long units first, so that all processes end at about the same time."""
    import trust_fuzz
    import trust_hostile
    import trust_large
    import trust_limits

    units = [Unit("kills", name, partial(kills, name, args.kills)) for name in SHARES]
    units += [Unit("writes", "all", partial(writes, args.writes)), Unit("stops", "all", partial(stops, args.stops))]
    units += [Unit("tests", name, partial(tests, name)) for name in TEST_FILES]
    units += [
        Unit("hostile", kind, partial(hostile, kind)) for kind in dict.fromkeys(c.kind for c in trust_hostile.CASES)
    ]
    units += [Unit("limits", name, partial(limits, name)) for name in trust_limits.CASES]
    units += [
        Unit("fuzz", name, partial(fuzz, name, int(args.inputs * parser.share)))
        for name, parser in trust_fuzz.PARSERS.items()
    ]
    attacks = {"strings": -(-args.strings // STRINGS_PER_ATTACK), "trees": args.trees, "tables": args.tables}
    attacks |= {"runs": args.runs, "datasets": args.folders, "models": args.folders, "labels": args.folders}
    attacks |= {"caches": args.folders // 10, "votes": args.folders // 10}
    for family, wanted in attacks.items():
        starts = range(0, wanted, PER_UNIT[family])
        ranges = [range(start, min(start + PER_UNIT[family], wanted)) for start in starts]
        units += [Unit(family, f"{r.start} to {r.stop - 1}", partial(generated, family, r)) for r in ranges]
    units.append(Unit("audit", "all", partial(audit)))
    return units + [Unit("large", name, partial(large, name), alone=True) for name in trust_large.CASES]


@dataclass
class Process:
    """A unit in a process group of its own, so that its children end with it."""

    unit: Unit
    pid: int
    answer: Path
    began: float

    @classmethod
    def start(cls, unit: Unit, folder: Path) -> Process:
        answer = folder / f"{time.monotonic_ns()}.json"
        pid = os.fork()
        if pid:
            return cls(unit, pid, answer, time.monotonic())
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            log = os.open(answer.with_suffix(".log"), os.O_WRONLY | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            result = {"problems": {}, **unit.work()}
        except BaseException:
            result = {"problems": {unit.key: traceback.format_exc()[-3000:]}}
        answer.write_text(json.dumps(result))
        os._exit(0)

    def result(self) -> dict[str, Any] | None:
        """The answer of the process; None while it works."""
        late = time.monotonic() - self.began > UNIT_SECONDS
        if late:
            os.killpg(self.pid, signal.SIGKILL)
        pid, status = os.waitpid(self.pid, 0 if late else os.WNOHANG)
        if not pid:
            return None
        result = {"problems": {self.unit.key: f"the process ended with status {status}"}}
        if self.answer.exists():
            result = json.loads(self.answer.read_text())
        return {**result, "wall_seconds": round(time.monotonic() - self.began, 1)}


def run_units(units: list[Unit], workers: int, finish: Callable[[Unit, dict[str, Any]], None]) -> None:
    waiting, running = list(units), []
    with tempfile.TemporaryDirectory(prefix="labelsieve-trust-") as folder:
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    running.append(Process.start(waiting.pop(0), Path(folder)))
                for process in list(running):
                    if (result := process.result()) is not None:
                        running.remove(process)
                        finish(process.unit, result)
                time.sleep(0.05)
        finally:
            for process in running:
                os.killpg(process.pid, signal.SIGKILL)
                os.waitpid(process.pid, 0)


@cache
def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


@cache
def sources() -> str:
    """Hash of everything that the results depend on."""
    digest = hashlib.sha256()
    files = [*(ROOT / "labelsieve").rglob("*"), *TESTS.rglob("*"), Path(__file__), ROOT / "constraints.txt"]
    for path in sorted(path for path in files if path.is_file() and path.suffix != ".pyc"):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def seconds_left(waiting: list[Unit], before: dict[str, Any], measured: dict[str, float], workers: int) -> float:
    """Estimate from the time of each unit in the last record; the mean of this run for units without one."""
    mean = sum(measured.values()) / max(len(measured), 1)
    times = [(unit.alone, before.get(unit.key, {}).get("wall_seconds", mean)) for unit in waiting]
    return sum(seconds / (1 if alone else workers) for alone, seconds in times)


def has_passed(unit: Unit, result: dict[str, Any] | None) -> bool:
    """Whether this unit, with these amounts, passed on this code."""
    expected = {"sources": sources(), "arguments": repr(unit.work.args), "problems": {}}
    return result is not None and expected.items() <= result.items()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="comma-separated parts, for example kills,trees,fuzz; or none")
    parser.add_argument("--resume", action="store_true", help="skip the units that passed on the same code")
    parser.add_argument("--fuzz", action="store_true", help="only the parsers; do not write the page")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes (one per core)")
    for name, amount in (("kills", 210), ("writes", 120), ("stops", 40), ("strings", 100_000), ("trees", 2_000),
                         ("tables", 2_000), ("runs", 1_000), ("folders", 500), ("inputs", 10_000)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=amount)
    args = parser.parse_args()
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    results: dict[str, Any] = record.get("units", {})
    units = all_units(args)
    keys = {unit.key for unit in units}
    only = ["fuzz"] if args.fuzz else args.only.split(",") if args.only else None
    wanted = [unit for unit in units if only is None or unit.part in only]
    if args.resume:
        wanted = [unit for unit in wanted if not has_passed(unit, results.get(unit.key))]
    began, failed = time.monotonic(), 0
    before, measured = dict(results), dict[str, float]()

    def finish(unit: Unit, result: dict[str, Any]) -> None:
        nonlocal failed
        failed += bool(result["problems"])
        measured[unit.key] = result["wall_seconds"]
        results[unit.key] = {**result, "sources": sources(), "commit": commit(), "arguments": repr(unit.work.args)}
        left = seconds_left([unit for unit in wanted if unit.key not in measured], before, measured, args.workers)
        print(
            f"{len(measured)} of {len(wanted)}, {time.monotonic() - began:.0f} s, about {left:.0f} s left: "
            f"{unit.key}, {result['wall_seconds']} s",
            flush=True,
        )
        for name, problem in result["problems"].items():
            print(f"  {name}: {problem}", flush=True)
        if not args.fuzz:
            machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
            kept = {key: value for key, value in sorted(results.items()) if key in keys}
            content = {"machine": machine, "cores": args.workers, "units": kept}
            partial_record = RECORD.with_suffix(".partial")
            partial_record.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
            partial_record.replace(RECORD)

    print(f"{len(wanted)} of {len(units)} units, {args.workers} processes", flush=True)
    if wanted:
        import trust_generated

        trust_generated.warm_up()  # once, for all processes
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the processes of the units, as Ctrl-C does
    run_units([unit for unit in wanted if not unit.alone], args.workers, finish)
    run_units([unit for unit in wanted if unit.alone], 1, finish)
    if not args.fuzz:
        from trust_page import page

        PAGE.write_text(page(json.loads(RECORD.read_text())))
        print(f"{PAGE.relative_to(ROOT)} written after {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
