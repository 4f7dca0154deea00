"""Runs to review, servers as processes of their own, a real browser."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import tarfile
from pathlib import Path
from time import monotonic, sleep

import pytest

_spec = importlib.util.spec_from_file_location("review_runs", Path(__file__).parents[1] / "report" / "runs.py")
assert _spec is not None and _spec.loader is not None
_runs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_runs)


@pytest.fixture(scope="session")
def runs():
    """The builders of tests/report/runs.py."""
    return _runs


@pytest.fixture(scope="session")
def million_run(tmp_path_factory):
    return _runs.million(tmp_path_factory.mktemp("million"))


# A process that has imported everything forks the servers: importing takes longer than starting one.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["labelsieve.review.app", "uvicorn.main"])
SERVE = """
import os, sys
written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
os.dup2(written, 1)
os.dup2(written, 2)
sys.stdout.reconfigure(line_buffering=True)
from labelsieve.review import serve
serve(run, port=port, host=host, token="secret-token")
"""


class Server:
    """`labelsieve review` in a process that can be killed."""

    def __init__(self, run: Path, log: Path, port: int = 0, host: str = "127.0.0.1") -> None:
        self.log = log
        log.write_text("")
        names = {"run": str(run), "log": str(log), "port": port, "host": host}
        self.process = FORKS.Process(target=exec, args=(SERVE, names), daemon=True)
        self.process.start()
        self.address = self._address()
        self.port = int(re.search(r":(\d+)/", self.address).group(1))

    def _address(self) -> str:
        end = monotonic() + 60
        while monotonic() < end:
            found = re.search(r"http://\S+", self.log.read_text())
            if found:
                return found.group(0)
            if not self.process.is_alive():
                break
            sleep(0.05)
        raise AssertionError(f"the server did not start: {self.log.read_text()}")

    def processor_seconds(self) -> float:
        """The processor time that the server has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        self.process.kill()
        self.process.join(60)

    def stop(self) -> int | None:
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGINT)
        self.process.join(120)
        return self.process.exitcode


@pytest.fixture
def serve(tmp_path):
    started = []

    def start(run, port=0, host="127.0.0.1"):
        server = Server(run.path, tmp_path / f"server-{len(started)}.log", port, host)
        started.append(server)
        return server

    yield start
    for server in started:
        if server.process.is_alive():
            server.kill()


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """axe-core's script, from the npm registry or from an earlier fetch."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "labelsieve-tests"
    kept = cache / "axe.min.js"
    if not kept.exists():
        if shutil.which("npm") is None:
            pytest.skip("axe-core is not cached and npm is not here to fetch it")
        folder = tmp_path_factory.mktemp("axe")
        fetched = subprocess.run(["npm", "pack", "axe-core"], cwd=folder, capture_output=True, timeout=120)
        packed = list(folder.glob("axe-core-*.tgz"))
        if fetched.returncode != 0 or not packed:
            pytest.skip("axe-core cannot be fetched: the npm registry does not answer")
        with tarfile.open(packed[0]) as archive:
            script = archive.extractfile("package/axe.min.js").read()
        cache.mkdir(parents=True, exist_ok=True)
        partial = cache / f"axe.{os.getpid()}"
        partial.write_bytes(script)
        partial.replace(kept)
    return kept.read_text(encoding="utf-8")


@pytest.fixture
def accessible(axe):
    """Asserts that axe finds nothing critical or serious on a page as it stands."""

    def check(page):
        session = page.context.new_cdp_session(page)
        # In a world of its own: the page's policy, which forbids foreign scripts, stays as it is.
        tree = session.send("Page.getFrameTree")
        world = session.send(
            "Page.createIsolatedWorld", {"frameId": tree["frameTree"]["frame"]["id"], "worldName": "axe"}
        )
        where = {"contextId": world["executionContextId"]}
        session.send("Runtime.evaluate", {"expression": axe, **where})
        asked = "axe.run(document, {iframes: false}).then(r => JSON.stringify(r.violations))"
        answer = session.send("Runtime.evaluate", {"expression": asked, "awaitPromise": True, **where})
        import json

        assert "value" in answer["result"], answer
        found = json.loads(answer["result"]["value"])
        bad = [(v["id"], v["impact"], v["nodes"][0]["html"][:200], v["nodes"][0].get("failureSummary", "")[:300])
               for v in found if v["impact"] in ("critical", "serious")]  # fmt: skip
        assert bad == []

    return check
