"""Run the long tests of kills, failed writes, hostile files and fuzzing, and write docs/trust.md.

    python scripts/trust.py                     all tests (about an hour on 2 cores)
    python scripts/trust.py --resume            continue the tests of this commit that were stopped
    python scripts/trust.py --only fuzz         some tests; the others keep their last numbers
    python scripts/trust.py --only generated --resume --seconds 600
                                                continue the generated attacks of this commit for 10 minutes
    python scripts/trust.py --only none         write the page again
    python scripts/trust.py --fuzz              only the parsers, without writing the page (`make fuzz`)

The script exits with 1 if a test fails. Failing inputs are stored in tests/fuzz/, and a test replays them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "trust"
RECORD = ROOT / "docs" / "trust.json"
PAGE = ROOT / "docs" / "trust.md"
KEPT = ROOT / "tests" / "fuzz"
sys.path.insert(0, str(TESTS))
os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

PARTS = ("kills", "writes", "stops", "hostile", "large", "generated", "fuzz", "audit")
CHUNKS = {"strings": 2, "trees": 40, "tables": 40}  # generated attacks between two writes of the record
WORKERS = len(os.sched_getaffinity(0))


def say(line: str) -> None:
    print(line, flush=True)


def kills(wanted: int) -> dict[str, Any]:
    import trust_chaos as chaos

    chaos.load_everything()
    found = {}
    with tempfile.TemporaryDirectory(prefix="labelsieve-trust-") as folder:
        chaos.prepare(Path(folder))
        for scenario, share in (("network", 0.5), ("scikit-learn", 0.3), ("pictures", 0.2)):
            tally = chaos.chaos(scenario, round(wanted * share), seed=time.time_ns() % 2**32, say=say)
            found[scenario] = asdict(tally)
        os.chdir(ROOT)
    return found


def writes(wanted: int) -> dict[str, Any]:
    import trust_chaos as chaos

    chaos.load_everything()
    with tempfile.TemporaryDirectory(prefix="labelsieve-trust-") as folder:
        chaos.prepare(Path(folder))
        tally = chaos.refused_writes(range(1, wanted + 1), say=say)
        os.chdir(ROOT)
    return asdict(tally)


def stops(wanted: int) -> dict[str, Any]:
    import trust_chaos as chaos

    chaos.load_everything()
    with tempfile.TemporaryDirectory(prefix="labelsieve-trust-") as folder:
        chaos.prepare(Path(folder))
        tally = chaos.stops(wanted, seed=time.time_ns() % 2**32, say=say)
        os.chdir(ROOT)
    return asdict(tally)


def hostile() -> dict[str, Any]:
    """Run each case in its own process."""
    import trust_hostile

    import labelsieve.cli.app  # noqa: F401

    counts: dict[str, list[str]] = {}
    for case in trust_hostile.CASES:
        with tempfile.TemporaryDirectory(prefix="labelsieve-trust-") as folder:
            pid = os.fork()
            if pid == 0:
                _survive(case, Path(folder))
            _, status = os.waitpid(pid, 0)
            if os.waitstatus_to_exitcode(status) != 0:
                raise AssertionError(f"{case.name}: {(Path(folder) / 'problem').read_text()}")
        counts.setdefault(case.kind, []).append(case.name)
        say(f"hostile: {case.name}: survived")
    return counts


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
        import traceback

        (folder / "problem").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def fuzz(inputs: int, names: list[str] | None = None) -> dict[str, Any]:
    import trust_fuzz

    found = {}
    for name in names or list(trust_fuzz.PARSERS):
        tally = trust_fuzz.forked(name, inputs, keep=KEPT)
        found[name] = asdict(tally)
        say(f"fuzz: {name}: {tally.tried:,} inputs in {tally.seconds:.0f} s, {len(tally.problems)} problems")
        for file, problem in tally.problems.items():
            say(f"  {file}: {problem}")
    return found


def large() -> dict[str, Any]:
    import trust_large

    found = {}
    for name in trust_large.CASES:
        found[name] = asdict(trust_large.measure(name))
        say(f"large: {name}: {found[name]}")
    return found


def generated(record: dict[str, Any], wanted: dict[str, int], *, resume: bool, seconds: float) -> dict[str, Any]:
    """Generated strings, trees and tables. The record is written after every chunk, so that `resume` continues it."""
    import trust_generated

    same_commit = record.get("commits", {}).get("generated") == commit()
    before = record.get("generated", {}) if resume and same_commit else {}
    found = {name: trust_generated.Tally(**before.get(name, {})) for name in wanted}
    end = time.monotonic() + seconds
    trust_generated.warm_up()
    while time.monotonic() < end:
        left = {name: tally for name, tally in found.items() if tally.items < wanted[name]}
        if not left:
            break
        for name, tally in left.items():
            seeds = range(tally.next_seed, tally.next_seed + CHUNKS[name])
            trust_generated.attacks(name, seeds, tally, workers=WORKERS)
            say(f"{name}: {tally.items:,} of {wanted[name]:,}, {len(tally.problems)} problems")
        record["generated"] = {name: asdict(tally) for name, tally in found.items()}
        write_record(record, "generated")
    for tally in found.values():
        for name, problem in tally.problems.items():
            say(f"{name}: {problem}")
    return {name: asdict(tally) for name, tally in found.items()}


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def write_record(record: dict[str, Any], part: str) -> None:
    record.setdefault("commits", {})[part] = commit()
    record["machine"] = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


def audit() -> dict[str, Any]:
    """Run pip-audit on the constraints."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(ROOT / "constraints.txt"), "--no-deps",
               "--disable-pip", "--progress-spinner", "off", "--format", "json"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return {"reached": False, "reason": "connection" if "onnect" in reason or "Max retries" in reason else "failed"}
    skipped = [p["name"] for p in packages if "skip_reason" in p]
    if len(skipped) == len(packages):
        return {"reached": False, "reason": f"its database knew none of the {len(packages)} packages"}
    known = {p["name"]: [v["id"] for v in p.get("vulns", [])] for p in packages if p.get("vulns")}
    return {"reached": True, "packages": len(packages), "known": known, "skipped": skipped}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help=f"comma-separated list of {', '.join(PARTS)}, or none")
    parser.add_argument("--kills", type=int, default=210)
    parser.add_argument("--writes", type=int, default=120)
    parser.add_argument("--stops", type=int, default=40)
    parser.add_argument("--strings", type=int, default=100_000)
    parser.add_argument("--trees", type=int, default=2_000)
    parser.add_argument("--tables", type=int, default=2_000)
    parser.add_argument("--resume", action="store_true", help="continue the tests of this commit that were stopped")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end the generated attacks after this time")
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--parsers", default="", help="parsers to fuzz; the others keep their numbers")
    parser.add_argument("--fuzz", action="store_true", help="only the parsers; do not write the page")
    args = parser.parse_args()
    if args.fuzz:
        return 1 if any(tally["problems"] for tally in fuzz(args.inputs).values()) else 0
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    work = {
        "kills": lambda: kills(args.kills),
        "writes": lambda: writes(args.writes),
        "stops": lambda: stops(args.stops),
        "hostile": hostile,
        "large": large,
        "generated": lambda: generated(
            record,
            {"strings": args.strings, "trees": args.trees, "tables": args.tables},
            resume=args.resume,
            seconds=args.seconds,
        ),
        "fuzz": lambda: {**record.get("fuzz", {}), **fuzz(args.inputs, list(filter(None, args.parsers.split(","))))},
        "audit": audit,
    }
    for part in args.only.split(","):
        done = args.resume and part != "generated" and record.get("commits", {}).get(part) == commit()
        if part != "none" and not done:
            record[part] = work[part]()
            write_record(record, part)
    from trust_page import page

    PAGE.write_text(page(record))
    say(f"{PAGE.relative_to(ROOT)} written")
    tallies = (*record.get("fuzz", {}).values(), *record.get("generated", {}).values())
    broken = any(tally["problems"] for tally in tallies)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
