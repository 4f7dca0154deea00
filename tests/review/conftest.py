"""Runs to review, servers as processes of their own, a real browser."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
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


class Server:
    """`labelsieve review` in a process that can be killed."""

    def __init__(self, run: Path, log: Path, port: int = 0, host: str = "127.0.0.1") -> None:
        code = "import sys; from labelsieve.review import serve; "
        code += "serve(sys.argv[1], port=int(sys.argv[2]), host=sys.argv[3], token='secret-token')"
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-c", code, str(run), str(port), host],
                stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        self.address = self._address()
        self.port = int(re.search(r":(\d+)/", self.address).group(1))

    def _address(self) -> str:
        end = monotonic() + 60
        while monotonic() < end:
            found = re.search(r"http://\S+", self.log.read_text())
            if found:
                return found.group(0)
            if self.process.poll() is not None:
                break
            sleep(0.05)
        raise AssertionError(f"the server did not start: {self.log.read_text()}")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(120)


@pytest.fixture
def serve(tmp_path):
    started = []

    def start(run, port=0, host="127.0.0.1"):
        server = Server(run.path, tmp_path / f"server-{len(started)}.log", port, host)
        started.append(server)
        return server

    yield start
    for server in started:
        if server.process.poll() is None:
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
