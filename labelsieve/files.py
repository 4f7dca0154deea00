"""Files that are old or new but never half, and a lock that its owner's death releases."""

from __future__ import annotations

import codecs
import errno
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from labelsieve.errors import InputError

LET_GO = 5.0  # seconds in which a dead owner's lock should be free
WAIT = "wait for it, stop it or give another --out"
# A run folder may come from somebody else: a link in it must not lead our writing to another file.
NO_LINKS = getattr(os, "O_NOFOLLOW", 0)


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what was begun could not be written to its end


class WriteError(OSError):
    """What the system refused to write, by the name that somebody asked for."""


@contextmanager
def written_as(partial: Path, path: Path) -> Iterator[None]:
    """Whatever fails with `partial`, a name that nobody gave, is told of `path`; other failures stay as they are."""
    try:
        yield
    except OSError as problem:
        named = (problem.filename, problem.filename2, problem)  # Arrow says it in words alone
        nameless = problem.filename is None and problem.errno in FULL  # as the system tells it of an open file
        if not nameless and not any(partial.name in str(name) for name in named):
            raise
        reason = os.strerror(problem.errno) if problem.errno else problem.strerror
        raise WriteError(problem.errno, reason, str(path)) from problem


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; on success it is synced and renamed over `path`, otherwise removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with written_as(partial, path):
        partial.unlink(missing_ok=True)  # a link of that name would lead our writing elsewhere
        try:
            yield partial
            with partial.open("r+b") as written:
                os.fsync(written.fileno())
            partial.replace(path)
            sync_folder(path.parent)
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def atomic_writer(path: Path) -> Iterator[IO[str]]:
    """A text file that takes its name only when it is whole."""
    with atomic_path(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        yield file


def sweep(folder: Path, pattern: str) -> None:
    """Remove what writers left that were killed: files, or folders that were being filled."""
    for partial in folder.glob(pattern):
        if not _left_by_a_crash(partial):
            continue
        if partial.is_dir() and not partial.is_symlink():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)


def _left_by_a_crash(partial: Path) -> bool:
    """Whether nobody writes this any more: its name ends in its writer's number (`atomic_path`).

    Our own number is one that a process before us had, as happens in containers: we have only just come.
    """
    number = partial.stem.rpartition(".")[2]
    if not number.isdecimal() or len(number) > 9:
        return True
    return int(number) == os.getpid() or not alive(int(number))


def write_text(path: Path, text: str) -> None:
    with atomic_writer(path) as file:
        file.write(text)


def write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut; not every system lets a folder be synced."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def append_line(path: Path, line: str) -> None:
    """Append one line, synced, or nothing. Half a line left by a crash is cut off first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | NO_LINKS, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            size = len(_whole_lines(path.read_bytes()))
            os.ftruncate(descriptor, size)
        left = line.encode() + b"\n"
        try:
            while left:  # a disk that fills up takes a part and refuses the rest only when asked again
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        except OSError as problem:
            os.ftruncate(descriptor, size)
            raise WriteError(problem.errno, problem.strerror, str(path)) from problem
    finally:
        os.close(descriptor)


def lines_of(path: Path) -> list[str]:
    """The whole lines of a file that grows, without half a line at its end; none where it is not there."""
    if not path.is_file():
        return []
    # Only \n ends a line here: a class name may hold any of the characters str.splitlines would cut at.
    return _whole_lines(path.read_bytes()).decode("utf-8", "replace").split("\n")[:-1]


def unended_line(path: Path) -> str:
    """What stands after the last line break: half a line that a crash left, or one that an editor did not end."""
    if not path.is_file():
        return ""
    content = path.read_bytes()
    return content[len(_whole_lines(content)) :].decode("utf-8", "replace")


def is_wide(path: Path) -> bool:
    """Is this text in UTF-16, as some programs save it, with its mark or without?"""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.read(2)
    return first in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or b"\0" in first


def _whole_lines(content: bytes) -> bytes:
    return content[: content.rfind(b"\n") + 1]


@contextmanager
def locked(path: Path, *, what: str, used: str = "in use", way: str = WAIT) -> Iterator[None]:
    """Hold the lock file `path`, which names its owner. The operating system releases it when the owner dies.

    Who comes second is told that `what` is `used` by the owner, and the `way` out.
    """
    descriptor = _acquire(path, f"{what} is {used}", way)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(path: Path, taken: str, way: str) -> int:
    me = {"pid": os.getpid(), "host": socket.gethostname()}
    patience = time.monotonic() + LET_GO
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINKS, 0o644)
        owner = _owner(descriptor)
        # On another machine the system's lock may not reach us, so a lock that names one is believed.
        elsewhere = owner is not None and owner["host"] != me["host"]
        if elsewhere or not _try_lock(descriptor):
            os.close(descriptor)
            # A process that was killed while it started another leaves its lock to that one for a moment.
            if not elsewhere and owner and not alive(owner["pid"]) and time.monotonic() < patience:
                time.sleep(0.02)
                continue
            who = f"process {owner['pid']} on {owner['host']}" if owner else "another process"
            hint = f"; if that process is gone, delete {path}" if elsewhere else ""
            raise InputError(f"{taken} by {who}: {way}{hint}")
        try:
            still_there = path.stat().st_ino == os.fstat(descriptor).st_ino
        except FileNotFoundError:
            still_there = False
        if still_there:
            try:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, json.dumps(me).encode(), 0)
            except OSError as problem:
                path.unlink(missing_ok=True)
                os.close(descriptor)
                raise WriteError(problem.errno, problem.strerror, str(path)) from problem
            return descriptor
        os.close(descriptor)  # its owner let go and removed it between our open and our lock: begin again


def _owner(descriptor: int) -> dict[str, Any] | None:
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
        return {"pid": int(owner["pid"]), "host": str(owner["host"])}
    except (ValueError, KeyError, TypeError):
        return None


def _try_lock(descriptor: int) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def alive(pid: int) -> bool:
    """Is there a process of this number on this machine?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
