"""Runs that are killed, stopped and refused the disk; every file is read after each of them.

The parent loads everything heavy once and forks the commands, so that the kills hit work and not importing.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import pkgutil
import random
import re
import resource
import signal
import sys
import time
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

CALLS = ("fsync", "replace", "rename", "unlink", "write", "ftruncate", "open")
LEFT_BY_KILLS = re.compile(r"\..+\.partial|run\.lock|.+\.part")


def table(path: Path, *, n: int = 90, seed: int = 0) -> None:
    """Three groups of numbers, a fifth of the labels wrong."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 3, n)
    given = np.where(rng.random(n) < 0.2, (true + 1) % 3, true)
    x = rng.normal(size=(n, 4)) + 3 * np.eye(3, 4)[true]
    rows = [f"s{i}," + ",".join(f"{v:.4f}" for v in x[i]) + f",{'abc'[given[i]]}" for i in range(n)]
    path.write_text("id,p,q,r,s,label\n" + "\n".join(rows) + "\n")


def pictures(root: Path, *, n: int = 24) -> None:
    """Dark and bright pictures, one of them unreadable."""
    from PIL import Image

    rng = np.random.default_rng(1)
    for i in range(n):
        folder = root / ("dark", "bright")[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 120, (12, 12, 3)) + 130 * (i % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i:03d}.png")
    (root / "dark" / "none.png").write_bytes(b"no picture")


NETWORK = "--model mlp --epochs 6 --iterations 2 --train-epochs 7 --network mlp --batch-size 16 --device cpu"
SCENARIOS = {
    "network": f"run t.csv {NETWORK}",
    "scikit-learn": "run t.csv --model logistic --train-epochs 8 --network mlp --batch-size 16 --device cpu",
    "pictures": "run shapes --model small-cnn --epochs 2 --iterations 1 --train-epochs 2 --network small-cnn "
    "--batch-size 16 --device cpu",
}


def prepare(folder: Path) -> None:
    """The sources of the scenarios, in a folder that becomes the working one."""
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    if not Path("t.csv").exists():
        table(Path("t.csv"))
        pictures(Path("shapes"))


def load_everything() -> None:
    """Everything that a run imports, so that a fork need not. Nothing is started: threads do not survive a fork."""
    import pyarrow.csv
    import pyarrow.parquet  # noqa: F401
    import sklearn.linear_model
    import sklearn.neighbors
    import sklearn.svm  # noqa: F401
    import torch
    from huggingface_hub import snapshot_download  # noqa: F401

    import labelsieve

    for module in pkgutil.walk_packages(labelsieve.__path__, "labelsieve."):
        if not module.name.startswith("labelsieve.models.kernels"):  # they need a GPU
            importlib.import_module(module.name)
    torch.set_num_threads(1)


@dataclass
class Child:
    pid: int
    said: Path
    began: float = field(default_factory=time.monotonic)

    def wait(self) -> int:
        """Exit code, or minus the signal."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def wait_at_most(self, seconds: float) -> int | None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        return None

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    @property
    def stderr(self) -> str:
        return self.said.read_text(errors="replace")


def fork(line: str, *, prelude: Callable[[], None] | None = None, often: bool = True) -> Child:
    """`labelsieve LINE` in a child; `often`: a checkpoint after every epoch, so that there is much to be killed."""
    said = Path(f".said-{uuid.uuid4().hex}")  # not `random`: tests start from the same seed
    pid = os.fork()
    if pid:
        return Child(pid, said)
    code = 99
    try:
        descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        warnings.resetwarnings()  # as outside of the tests
        warnings.simplefilter("ignore", DeprecationWarning)
        if often:
            checkpoint_every_epoch()
        if prelude is not None:
            prelude()
        from labelsieve.cli.app import run

        code = run(line.split())
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def checkpoint_every_epoch() -> None:
    from labelsieve.engine.lockstep import Lockstep

    inner = Lockstep.run

    def run(self: Any) -> Any:
        self.options = replace(self.options, checkpoint_seconds=0.0)
        return inner(self)

    Lockstep.run = run  # type: ignore[method-assign]


def at_call(number: int, act: Callable[[str, tuple[Any, ...]], None]) -> Callable[[], None]:
    """A prelude: before the number-th call that changes the disk, `act` happens."""

    def install() -> None:
        seen = 0

        def wrap(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                nonlocal seen
                changes = name != "open" or (len(args) > 1 and args[1] & os.O_CREAT)
                if changes and not (name == "write" and args[0] in (1, 2)):
                    seen += 1
                    if seen == number:
                        act(name, args)
                return original(*args, **kwargs)

            return call

        for name in CALLS:
            setattr(os, name, wrap(name, getattr(os, name)))

    return install


def die(name: str, args: tuple[Any, ...]) -> None:
    """Killed at a call; a line that was being written is half there."""
    if name == "write":
        os.pwrite(args[0], args[1][: len(args[1]) // 2], os.fstat(args[0]).st_size)
    os.kill(os.getpid(), signal.SIGKILL)


def full_disk(name: str, args: tuple[Any, ...]) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def limit_files(size: int) -> Callable[[], None]:
    """A prelude: no file may grow beyond `size` bytes; what fits is written, as on a disk that fills up."""

    def install() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    return install


def check(run: Path, samples: int | None = None) -> int:
    """Read every file of a run folder as its readers do; how many there were. Half a file is an error."""
    from safetensors import safe_open

    from labelsieve.engine import training
    from labelsieve.runfolder import RunFolder
    from labelsieve.selection.finalize import read_suggestions

    folder = RunFolder(run)
    count = 0
    for path in sorted(path for path in run.rglob("*") if path.is_file()):
        name = path.name
        if LEFT_BY_KILLS.fullmatch(name):
            continue
        count += 1
        if name == "run.json":
            assert all(stage["state"] in ("running", "failed", "done") for stage in folder.record()["stages"].values())
        elif name == "summary.json":
            assert folder.read_summary()["samples"] > 0
        elif name == "labels.csv":
            rows = sum(1 for _ in folder.read_labels())
            assert samples is None or rows == samples, f"{rows} rows"
        elif name == "suggestions.csv":
            assert all(0 <= likely <= 1 for likely in (read_suggestions(path) or {}).values())
        elif name == "history.jsonl":
            folder.read_history()
        elif name == "skipped.csv":
            assert path.read_text().startswith("id,reason\n")
        elif name == "report.html":
            assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
        elif name == "model.safetensors":
            with safe_open(path, framework="np") as file:
                assert all(np.isfinite(file.get_tensor(key)).all() for key in file.keys())  # noqa: SIM118
        elif path.suffix == ".safetensors":
            training.load_checkpoint(path)
        elif path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as kept:
                assert {len(kept[key]) for key in kept.files} != set()
        elif path.match("staged/pictures-*.npy"):
            np.load(path, mmap_mode="r", allow_pickle=False)
        elif path.match("staged/pictures-*.json") or path.match("staged/pictures-*/*.json"):
            json.loads(path.read_text())
        elif path.match("staged/pictures-*/shard-*.bin"):
            assert path.stat().st_size > 0
        elif path.match("staged/pictures-*.csv"):
            assert path.read_text().startswith("id,bytes,modified\n")
        else:
            raise AssertionError(f"what is {path}?")
    return count


def result(run: Path) -> dict[str, Any]:
    """What must not depend on how often a run was stopped."""
    lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    return {
        "labels": (run / "labels.csv").read_bytes(),
        "summary": (run / "summary.json").read_bytes(),
        "model": weights(run / "model.safetensors"),
        "history": [{key: value for key, value in line.items() if key != "seconds"} for line in lines],
    }


def weights(path: Path) -> dict[str, Any]:
    """The file's order of its own description varies, its contents do not."""
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        return {"": file.metadata(), **{key: file.get_tensor(key).tobytes() for key in file.keys()}}  # noqa: SIM118


@dataclass
class Tally:
    kills: int = 0
    runs: int = 0
    files: int = 0  # read after kills
    seconds: float = 0.0


def chaos(scenario: str, kills: int, *, seed: int = 0, say: Callable[[str], None] = lambda line: None) -> Tally:
    """Kill `labelsieve run` until it ends, again and again, `kills` times in all. Half at moments, half at calls."""
    began = time.monotonic()
    rng = random.Random(seed)
    line = SCENARIOS[scenario]
    whole = fork(f"{line} --out undisturbed-{scenario}")
    assert whole.wait() == 0, whole.stderr
    lasts = time.monotonic() - whole.began
    expected = result(Path(f"undisturbed-{scenario}"))
    tally = Tally()
    while tally.kills < kills:
        run = Path(f"{scenario}-{tally.runs}")
        while True:
            last = tally.kills >= kills
            at = None if last or rng.random() < 0.5 else at_call(int(rng.expovariate(1 / 40)) + 1, die)
            child = fork(f"{line} --out {run}", prelude=at)
            code = child.wait_at_most(rng.uniform(0.02, 0.8 * lasts)) if at is None and not last else child.wait()
            if code is None:
                child.send(signal.SIGKILL)
                code = child.wait()
            assert code in (0, -signal.SIGKILL), child.stderr
            child.said.unlink()
            if run.exists():
                tally.files += check(run)
            if code == 0:
                break
            tally.kills += 1
        assert result(run) == expected, f"{run} differs from the undisturbed one"
        tally.runs += 1
        say(f"{scenario}: {tally.kills} kills, {tally.runs} runs ended, all the same")
    tally.seconds = time.monotonic() - began
    return tally


def refused_writes(calls: range, *, say: Callable[[str], None] = lambda line: None) -> Tally:
    """A disk that is full at the n-th call that changes it, for every n; then the run goes on and ends the same."""
    began = time.monotonic()
    line = SCENARIOS["network"]
    assert fork(f"{line} --out undisturbed-writes").wait() == 0
    expected = result(Path("undisturbed-writes"))
    tally = Tally()
    run, new = Path("writes-0"), True
    for call in calls:
        child = fork(f"{line} --out {run}", prelude=at_call(call if new else 1 + call % 7, full_disk))
        code = child.wait()
        said = child.stderr
        assert code in (0, 1) and "Traceback" not in said, said
        assert code == 0 or "No space left on device" in said.splitlines()[-1], said
        child.said.unlink()
        tally.kills += 1
        if run.exists():
            tally.files += check(run)
        new = code == 0
        if tally.kills % 4 == 0 and not new:  # four refusals in a row, then there is room again
            child = fork(f"{line} --out {run}")
            assert child.wait() == 0, child.stderr
            child.said.unlink()
            new = True
        if new:
            assert result(run) == expected, f"{run} differs from the undisturbed one"
            tally.runs += 1
            run = Path(f"writes-{tally.runs}")
            say(f"full disk: {tally.kills} refused writes, {tally.runs} runs ended, all the same")
    tally.seconds = time.monotonic() - began
    return tally


def stops(times: int, *, seed: int = 0, say: Callable[[str], None] = lambda line: None) -> Tally:
    """Ctrl-C and SIGTERM at random moments: 130 or 143, everything kept, the same end."""
    began = time.monotonic()
    rng = random.Random(seed)
    line = SCENARIOS["network"]
    child = fork(f"{line} --out undisturbed-stops")
    assert child.wait() == 0
    lasts = time.monotonic() - child.began
    expected = result(Path("undisturbed-stops"))
    tally = Tally()
    run = Path("stops-0")
    while tally.kills < times:
        number, code = rng.choice(((signal.SIGINT, 130), (signal.SIGTERM, 143)))
        child = fork(f"{line} --out {run}", often=False)
        while child.wait_at_most(0.01) is None and not (child.said.exists() and "training" in child.stderr):
            pass
        ended = child.wait_at_most(rng.uniform(0, 0.6 * lasts)) if alive(child) else 0
        if ended is None:
            child.send(number)
            ended = child.wait_at_most(120)
            tally.kills += 1
        assert ended in (0, code) and "Traceback" not in child.stderr, child.stderr
        tally.files += check(run)
        child.said.unlink()
        if ended == 0 and (run / "report.html").exists():
            assert result(run) == expected
            tally.runs += 1
            run = Path(f"stops-{tally.runs}")
            say(f"signals: {tally.kills} stops, {tally.runs} runs ended, all the same")
    tally.seconds = time.monotonic() - began
    return tally


def alive(child: Child) -> bool:
    try:
        os.kill(child.pid, 0)
    except ProcessLookupError:
        return False
    return True
