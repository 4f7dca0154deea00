"""SIGTERM and Ctrl-C end every command within 5 seconds, even if it is stuck."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trust_chaos as chaos

from labelsieve import stopping

SECONDS = 5.0
AT_MOST = 60.0  # a stuck command never ends by itself, and on a busy machine the end of a process takes seconds


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    before = Path.cwd()
    chaos.load_everything()
    chaos.prepare(tmp_path_factory.mktemp("ending"))
    quick = "--model nearest --iterations 1 --network small-cnn --train-epochs 1 --device cpu"
    child = chaos.fork(f"run shapes --out done {quick}")
    assert child.wait() == 0, child.stderr
    yield Path.cwd()
    os.chdir(before)


def stuck_in(name: str) -> Callable[[], None]:
    """A prelude: a function never returns and lets no Python code run, as a library on a disk that does not answer."""

    def install() -> None:
        module, _, attribute = name.partition(":")
        *owner, function = attribute.split(".")
        target = importlib.import_module(module)
        for part in owner:
            target = getattr(target, part)

        def stuck(*args: object, **kwargs: object) -> None:
            os.write(2, b"STUCK\n")
            mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
            libc.pthread_mutex_lock(mutex)
            libc.pthread_mutex_lock(mutex)  # not interrupted by signals

        setattr(target, function, stuck)

    return install


# The command, and the function in which it is stuck.
STUCK = {
    "reading a table": ("select t.csv --out r1 --model nearest", "labelsieve.data.table_file:read_arrow"),
    "opening a file": ("plan t.csv", "labelsieve.csv_files:open_file"),
    "decoding": ("select shapes --out r2 --model nearest", "labelsieve.data.pictures:PictureFiles.decode"),
    "embedding": ("select shapes --out r5 --model nearest --embed trust_models:embed", "trust_models:embed"),
    "fitting": ("select t.csv --out r3 --model logistic", "labelsieve.execute.sklearn_trainer:fit"),
    "an epoch": ("train done --method standard --out r4", "labelsieve.engine.lockstep:Lockstep.run"),
    "reporting": ("report done", "labelsieve.report:render_report"),
    "exporting": ("export done --what cleaned --to exported", "labelsieve.export.class_folders:copy_file"),
    "predicting": ("predict done shapes --to p.csv", "labelsieve.workflow.model_file:load"),
    "starting a review": ("review done --port 0", "labelsieve.review.review_session:ReviewSession.__init__"),
}


def test_a_stuck_command_ends(here: Path) -> None:
    """All at once, because each takes the whole time that it has."""
    assert stopping.GRACE_SECONDS <= SECONDS - 1
    children = {name: chaos.fork(line, prelude=stuck_in(place)) for name, (line, place) in STUCK.items()}
    for name, child in children.items():
        end = time.monotonic() + AT_MOST
        while not (child.said.exists() and "STUCK" in child.stderr):
            assert time.monotonic() < end, f"{name}: {child.stderr}"
            time.sleep(0.02)
    for i, child in enumerate(children.values()):
        child.send((signal.SIGINT, signal.SIGTERM)[i % 2])
    for i, (name, child) in enumerate(children.items()):
        ended = child.wait_at_most(AT_MOST)
        assert ended == (130, 143)[i % 2], f"{name} {ended}: {child.stderr}"
        assert "Traceback" not in child.stderr and "resume" in child.stderr.splitlines()[-1], child.stderr
    assert not list(here.glob("exported/*")) and not (here / "p.csv").exists()


def test_a_review_with_an_open_connection_ends(here: Path) -> None:
    import socket

    child = chaos.fork("review done --port 0 --json")
    end = time.monotonic() + AT_MOST
    while not (child.said.exists() and "address" in child.stderr):
        assert time.monotonic() < end, child.stderr
        time.sleep(0.02)
    port = int(child.stderr.split("127.0.0.1:")[1].split("/")[0])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET /?token=x HTTP/1.1\r\nHost: ")  # the request never ends
        child.send(signal.SIGTERM)
        assert child.wait_at_most(AT_MOST) == 143, child.stderr


def test_a_worker_that_is_terminated_does_not_end_its_parent(here: Path) -> None:
    """The workers of a pool are ended with SIGTERM, which must not count as a signal to the command."""
    pid = os.fork()
    if pid == 0:
        stopping.GRACE_SECONDS = 0.2
        with stopping.handled():
            worker = os.fork()
            if worker == 0:
                signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
                time.sleep(30)
                os._exit(1)
            time.sleep(0.2)
            os.kill(worker, signal.SIGTERM)
            code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
            time.sleep(0.5)
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
