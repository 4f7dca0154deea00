"""Records: a finished cell is one JSON file, with its predictions in an .npz file of the same name.

A record without the commit, or without the hashes of the training labels, the predictions and all stored arrays, is
refused. So is one whose .npz file does not have the stored hashes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.errors import InputError
from labelsieve.files import atomic_file, open_file, read_bytes, read_text, write_text
from labelsieve.runfolder import plain

SCHEMA = 1  # increased if the fields of a record change
Record = dict[str, Any]

_FIELDS: dict[str, type | tuple[type, ...]] = {"schema": int, "seconds": (int, float)}
_FIELDS |= dict.fromkeys(("id", "kind", "device", "commit", "source"), str)
_FIELDS |= dict.fromkeys(("cell", "noise", "method", "schedule", "versions", "lockstep", "hashes", "results"), dict)
_HASHES = ("data", "train_labels", "predictions", "arrays")
_SHA256, _COMMIT = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")


def digest(*arrays: NDArray[Any]) -> str:
    """Return the SHA-256 of arrays: type, shape and contents."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def check(record: Any, arrays: dict[str, NDArray[Any]] | None = None) -> None:
    """Raise InputError if a record is incomplete or its arrays do not have the stored hashes."""

    def require(correct: Any, problem: str) -> None:
        if not correct:
            name = record.get("id", "a record without id") if isinstance(record, dict) else "a record"
            raise InputError(f"{name}: {problem}")

    require(isinstance(record, dict), "it must be a JSON object")
    for field, kind in _FIELDS.items():
        require(field in record, f"the record has no {field!r}, so no run wrote it")
        right_type = isinstance(record[field], kind) and not isinstance(record[field], bool)
        require(right_type, f"{field!r} has the wrong type")
    require(record["schema"] == SCHEMA, f"record schema {record['schema']}, this version reads {SCHEMA}")
    commit, source = record["commit"], record["source"]
    require(_COMMIT.fullmatch(commit), f"'commit' must be the 40 digits of a commit, not {commit!r}")
    require(_SHA256.fullmatch(source), "'source' must be the SHA-256 of the code")
    for field in _HASHES:
        found = _SHA256.fullmatch(str(record["hashes"].get(field, "")))
        require(found, f"'hashes' has no SHA-256 of the {field.replace('_', ' ')}")
    for field in ("convention", "pattern", "ratio", "measured_ratio"):
        require(field in record["noise"], f"'noise' has no {field!r}")
    seconds = record["seconds"]
    require(seconds >= 0 and math.isfinite(seconds), f"'seconds' is {seconds}")
    require(record["results"], "the record has no results")
    for field, hashed in array_hashes(arrays).items() if arrays is not None else ():
        stored = record["hashes"][field]
        require(hashed == stored, f"the {field} in the .npz file do not match the hash in the record")


def array_hashes(arrays: dict[str, NDArray[Any]]) -> dict[str, str]:
    """Hash the predictions, and all arrays with their names: later cells start from some of them."""
    keys = sorted(arrays)
    return {
        "predictions": digest(*(arrays[key] for key in keys if key.startswith("predicted"))),
        "arrays": digest(np.array(keys), *(arrays[key] for key in keys)),
    }


def path_of(results: Path, id: str) -> Path:
    return results / f"{id}.json"


def save(results: Path, record: Record, arrays: dict[str, NDArray[Any]]) -> Path:
    """Write the arrays, then the record, so that an existing record is complete."""
    check(record, arrays)
    path = path_of(results, record["id"])
    with atomic_file(path.with_suffix(".npz")) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    write_text(path, to_json(record))
    return path


def load(results: Path, id: str) -> Record | None:
    """Return the checked record of a cell, or None if the cell is not finished."""
    path = path_of(results, id)
    if not path.is_file():
        return None
    try:
        record: Record = json.loads(read_text(path))
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}): remove it to run the cell again") from error
    check(record)
    if record["id"] != id:
        raise InputError(f"{path} is the record of {record['id']}, not of {id}: it was moved or copied; remove it")
    return record


def load_arrays(results: Path, record: Record) -> dict[str, NDArray[Any]]:
    """Return the arrays stored with a record, after checking their hashes."""
    path = path_of(results, record["id"]).with_suffix(".npz")
    if not path.is_file():
        raise InputError(f"{path} is missing: remove {path.with_suffix('.json')} to run the cell again")
    with open_file(path) as file, np.load(file, allow_pickle=False) as stored:
        arrays = {key: stored[key] for key in stored.files}
    check(record, arrays)
    return arrays


def read_all(results: Path, kind: str, *, scale: str = "paper") -> list[Record]:
    """Return the records of a kind and scale, sorted by name."""
    return [record for record in walk(results, kind) if record["cell"]["scale"] == scale]


def to_json(record: Record) -> str:
    """Format as indented JSON with lists of numbers on one line; NaN and infinity become null."""
    # Significant digits, not decimals: a learning rate of 5e-7 must not become 0.
    text = json.dumps(plain(record, digits=10), indent=1, ensure_ascii=False, allow_nan=False)
    numbers = re.compile(r"\[\s*(?:-?[\d.e+-]+|null)(?:,\s*(?:-?[\d.e+-]+|null))*\s*\]")
    return numbers.sub(lambda m: re.sub(r"\s+", "", m.group()).replace(",", ", "), text) + "\n"


# ---------------------------------------------------------------- the origin of a record


def commit(given: str | None = None) -> str:
    """Return the commit of the running code: as given, from LABELSIEVE_COMMIT, or from git."""
    found = given or os.environ.get("LABELSIEVE_COMMIT", "")
    if not found:
        command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        try:
            found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            found = ""
    if not _COMMIT.fullmatch(found):
        raise InputError(
            "records need the commit of the code, and git could not report it: give --commit (40 digits) or set "
            "LABELSIEVE_COMMIT"
        )
    return found


def source_digest() -> str:
    """Hash the package's source files; shows later if the code differed from its commit."""
    root = Path(__file__).parent.parent
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(path.relative_to(root).as_posix().encode() + read_bytes(path))
    return found.hexdigest()


def versions() -> dict[str, str]:
    import torch

    found = {"python": platform.python_version(), "numpy": np.__version__, "torch": str(torch.__version__)}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found


def environment() -> dict[str, str]:
    """Return the environment variables that change how the code runs."""
    return {k: v for k, v in sorted(os.environ.items()) if k.startswith("LABELSIEVE_") and k != "LABELSIEVE_COMMIT"}


def device_name(device: str) -> str:
    import torch

    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name(device))
    return f"{device} ({platform.machine()}, {torch.get_num_threads()} threads)"


def walk(results: Path, kind: str = "*") -> Iterator[Record]:
    """Yield the records of a kind, or all records, sorted by name."""
    for path in sorted(results.glob(f"{kind}/*.json")):
        record = load(results, f"{path.parent.name}/{path.stem}")
        if record is not None:
            yield record
