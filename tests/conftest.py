"""What tests of several rooms share."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--no-first-run"]  # fmt: skip


@pytest.fixture(scope="session")
def browser():
    if not Path(CHROMIUM).exists():
        pytest.skip("no Chromium here: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def alone_with_ray():
    """A script of Ray's in a process of its own: Ray keeps threads, and writes into HOME. Gives the script's folder."""

    @contextmanager
    def ran(script):
        # Ray's sockets lie below this folder, and their names must stay short.
        with tempfile.TemporaryDirectory(prefix="ls") as home:
            folder = Path(home) / "run"
            folder.mkdir()
            environment = {**os.environ, "HOME": home, "TMPDIR": home, "RAY_TMPDIR": home, "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-c", script, str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400)
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
            yield folder

    return ran
