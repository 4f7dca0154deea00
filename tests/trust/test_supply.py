"""Nothing goes to the network but the explicit fetch, and the constraints name one version of everything."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trust_chaos as chaos

ROOT = Path(__file__).parents[2]


def cut_the_network() -> None:
    """Every way to an address ends in a loud death, also where somebody would swallow an exception."""

    def refuse(*args, **kwargs):
        os.write(2, f"NETWORK {args!r}\n".encode())
        os._exit(77)

    for name in ("getaddrinfo", "create_connection", "gethostbyname"):
        setattr(socket, name, refuse)
    for name in ("connect", "connect_ex", "sendto", "bind"):
        setattr(socket.socket, name, refuse)


@pytest.mark.parametrize(
    "lines",
    [
        (
            "run t.csv --out run --model nearest --iterations 1 --train-epochs 1",
            "train run --train-epochs 1",
            "predict run t.csv --to p.csv",
            "report run",
            "export run --what suspects --to s.csv",
            "corrupt t.csv --ratio 0.2 --out noisy.csv",
            "theory --classes 4",
            "version",
        ),
        ("select shapes --out pictures --model nearest --iterations 1", "report pictures"),
        ("select text.csv --out text --iterations 1", "report text"),
        ("select digits --out of-digits --model nearest --iterations 1", "report of-digits"),
    ],
    ids=["table", "pictures", "text", "digits"],
)
def test_with_the_network_cut_everything_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines) -> None:
    monkeypatch.chdir(tmp_path)
    chaos.load_everything()
    chaos.prepare(tmp_path)
    rows = [f"{word} number {i},{label}" for i in range(10) for word, label in (("late", "a"), ("good", "b"))]
    Path("text.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    for line in lines:
        child = chaos.fork(line, prelude=cut_the_network)
        assert child.wait() == 0, f"{line}: {child.stderr}"


def test_only_the_fetch_asks_for_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    chaos.load_everything()
    child = chaos.fork("data fetch cifar10 --to here", prelude=cut_the_network)
    assert child.wait() == 77 and "NETWORK" in child.stderr


def test_in_a_namespace_without_network_too(tmp_path: Path) -> None:
    """By the kernel's word, where it lets us ask; a Python that is not ours could not cheat here."""
    if subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine does not allow a namespace without network")
    chaos.table(tmp_path / "t.csv")
    line = f"select {tmp_path}/t.csv --out {tmp_path}/run --model nearest --iterations 1"
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-m", "labelsieve", *line.split()], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def test_nothing_in_the_package_reports_home() -> None:
    """No address in the code but the ones that are named as such, and no client of a service that counts users."""
    found = {}
    for path in (ROOT / "labelsieve").rglob("*"):
        if path.suffix in (".py", ".js", ".html", ".css"):
            text = path.read_text(encoding="utf-8")
            addresses = set(re.findall(r"https?://[^\s\"'`)>{]+", text)) - {"http://"}
            if addresses:
                found[str(path.relative_to(ROOT / "labelsieve"))] = addresses
            assert not re.search(r"import (sentry_sdk|posthog|segment|mixpanel|analytics)", text), path
    known = ("http://www.w3.org/", "https://www.cs.toronto.edu/~kriz/", "https://arxiv.org/", "https://github.com/")
    for file, addresses in found.items():
        assert all(address.startswith(known) for address in addresses), (file, addresses)


def test_every_constraint_is_one_version() -> None:
    lines = [line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    names = []
    for line in filter(None, lines):
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+( ?;.*)?", line), line
        names.append(line.split("==")[0].lower().replace("_", "-"))
    assert len(names) == len(set(names)) > 50
