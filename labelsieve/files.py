"""Reading and writing files safely: regular files only, atomic replacement, synced appends and a lock.

A file written here is either the old one or the new one, never a part of it. `open_file` is the way to open a file that
a user, or the author of a run folder, may have put there.
"""

from __future__ import annotations

import codecs
import errno
import json
import os
import shutil
import socket
import stat
import sys
import time
import zipfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, BinaryIO

from labelsieve.errors import InputError
from labelsieve.progress import join_names

RELEASE_SECONDS = 5.0  # the lock of a process that died is free by then
WAIT_OR_STOP = "wait for it, stop it or give another --out"
# A run folder may come from another person: opening a link in it must not write to another file.
NO_FOLLOW = os.O_NOFOLLOW
NO_BLOCK = os.O_NONBLOCK
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk took only a part of the file
SYSTEM_FILES = ("thumbs.db", "desktop.ini", ".ds_store")  # that systems write into folders that were viewed
MAX_NAMES = 3  # file names in one message
BYTES_AT_ONCE = 2**20  # of an archive entry that is unpacked to count its bytes
# An archive may be this many times larger when it is unpacked, as Apache POI allows: XML is a tenth when it is packed.
# What unpacks to less than the second number is read in a second.
MAX_UNPACKED_SHARE, SMALL_ARCHIVE = 100, 10_000_000
OWN_LINKS: set[Path] = set()  # links that this process made in a scratch run folder


class WriteError(OSError):
    """The system refused to write a file; its name is the one that the user knows."""


class SpecialFileError(OSError, InputError):
    """A pipe, socket, device or folder was given as a file."""


def open_file(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a regular file for reading. A pipe or device is refused instead of waiting for its other end."""
    descriptor = os.open(path, os.O_RDONLY | NO_BLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SpecialFileError("not a regular file: pipes, sockets, devices and folders cannot be read")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    with open_file(path) as file:
        return file.read()


def read_text(path: str | os.PathLike[str]) -> str:
    return read_bytes(path).decode("utf-8")


def regular_file(path: Path) -> Path:
    """Check a file that a library opens by its name, and return this name."""
    open_file(path).close()
    return path


def copy_file(source: Path, target: Path) -> None:
    """Copy a regular file to a name that does not exist."""
    with open_file(source) as original, target.open("xb") as copy:
        shutil.copyfileobj(original, copy)


def open_archive(file: BinaryIO, limit: int, *, count: bool = False) -> zipfile.ZipFile:
    """Open a zip archive that has at most `limit` bytes when it is unpacked, else raise ValueError.

    `zipfile` reads at most the size that the archive declares for an entry. Libraries that ignore this size need
    `count`: every entry is unpacked piece by piece, and its bytes are counted. Afterwards the file is at its start.
    """
    archive = zipfile.ZipFile(file)
    check_unpacked((entry.file_size for entry in archive.infolist()), limit)
    if count:
        check_unpacked(_real_sizes(archive), limit)
    file.seek(0)
    return archive


def _real_sizes(archive: zipfile.ZipFile) -> Iterator[int]:
    for entry in archive.infolist():
        entry.file_size = sys.maxsize  # read to the real end
        with archive.open(entry) as content:
            yield from piece_sizes(content)


def piece_sizes(content: IO[bytes]) -> Iterator[int]:
    """Yield the sizes of the pieces in which a file is read."""
    while piece := content.read(BYTES_AT_ONCE):
        yield len(piece)


def unpacked_limit(packed: int) -> int:
    """Return the most bytes that an archive of this size may have when it is unpacked."""
    return max(SMALL_ARCHIVE, MAX_UNPACKED_SHARE * packed)


def check_unpacked(sizes: Iterable[int], limit: int) -> None:
    """Raise ValueError as soon as these sizes are more than `limit` together."""
    total = 0
    for size in sizes:
        total += size
        if total > limit:
            raise ValueError(f"more than {limit / 1e6:,.0f} MB when it is unpacked")


def open_to_append(path: Path) -> BinaryIO:
    """Open a regular file to read it and to append to it; a new one if it does not exist. Links are not followed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | NO_FOLLOW | NO_BLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SpecialFileError(f"{path} is not a regular file")
    return os.fdopen(descriptor, "r+b")


def share_file(source: Path, target: Path) -> None:
    """Give a file that does not change a second name, or copy it if the file system has no links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        copy_file(source, target)


def free_disk(path: Path) -> int:
    """Return the free bytes on the volume of a path, which may not exist yet."""
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    return shutil.disk_usage(existing).free


def visible_names(folder: Path) -> list[str]:
    """Names in a folder, without hidden files (.DS_Store, .gitkeep); empty if the folder does not exist."""
    if not folder.is_dir():
        return []
    names = (entry.name for entry in folder.iterdir())
    return sorted(name for name in names if not name.startswith(".") and name.lower() not in SYSTEM_FILES)


def check_free(folder: Path, option: str, *, missing: str = "", own: Collection[str] = ()) -> None:
    """Raise InputError if a folder holds other files than `own`; `missing` is the file that would make it ours."""
    others = [name for name in visible_names(folder) if name not in own]
    if others:
        listed = join_names(others, MAX_NAMES)
        listed += f" but no {missing}" if missing else ""
        raise InputError(f"{folder} contains {listed}: give {option} a new or empty folder")


def link_on_way(root: Path, path: Path) -> Path | None:
    """The first symbolic link among `path` and the folders between `root` and it; None if there is none."""
    for part in reversed((path, *path.parents[: len(path.relative_to(root).parts) - 1])):
        if os.path.islink(part) and part not in OWN_LINKS:  # noqa: PTH114 - Path.is_symlink can raise
            return part
    return None


def safe_path(root: Path, name: str) -> Path | None:
    """The absolute path of a file that is named below `root`; None if it is outside or is reached through a link."""
    path = Path(os.path.abspath(root / name))  # noqa: PTH100 - without following links
    for base in (Path(os.path.abspath(root)), root.resolve()):  # noqa: PTH100
        if path.is_relative_to(base) and "\0" not in name:
            return path if link_on_way(base, path) is None else None
    return None


def content_folders(folder: Path) -> tuple[Path, ...]:
    """Return a folder and, if the cache of Hugging Face has this layout, the folder with the contents of its files."""
    snapshots = folder.absolute().parent
    return (folder, snapshots.parent / "blobs") if snapshots.name == "snapshots" else (folder,)


def leads_outside(path: Path, homes: Iterable[Path]) -> bool:
    """Whether a file is a link to a place that is in none of these folders."""
    if not path.is_symlink():
        return False
    target = Path(os.path.realpath(path))  # Path.resolve raises an error in a loop of links
    return not any(target.is_relative_to(home.resolve()) for home in homes)


def check_entries(folder: Path, where: str, homes: tuple[Path, ...], endings: tuple[str, ...] = ("",)) -> list[Path]:
    """Return all files and folders below a folder.

    Raise InputError if a link leads to none of the `homes`, and for a pipe, a device or a broken link whose name ends
    with one of `endings`: a library would wait for the other end of a pipe.
    """
    paths = sorted(folder.rglob("*"))
    for path in paths:
        if leads_outside(path, homes):
            raise InputError(f"{where}: {path.name} is a link that leads outside the folder; copy the file instead")
        if path.name.endswith(endings) and not path.is_dir() and not path.is_file():
            raise InputError(f"{where}: {path.name} is a pipe, a device or a broken link")
    return paths


def first_link(root: Path) -> Path | None:
    """The first symbolic link below `root`; None if there is none."""
    for parent, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(parent, name)
            if path.is_symlink() and path not in OWN_LINKS:
                return path
    return None


@contextmanager
def written_as(partial: Path, path: Path) -> Iterator[None]:
    """Report a failure to write the temporary file `partial` with the name `path`."""
    try:
        yield
    except OSError as problem:
        names = (problem.filename, problem.filename2, problem)  # Arrow has the name in its message only
        unnamed = problem.filename is None and problem.errno in FULL  # as for an open file
        if not unnamed and not any(partial.name in str(name) for name in names):
            raise
        reason = os.strerror(problem.errno) if problem.errno else problem.strerror
        raise WriteError(problem.errno, reason, str(path)) from problem


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`. On success the file is synced and renamed to `path`, else removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with written_as(partial, path):
        partial.unlink(missing_ok=True)  # it could be a link to another file
        try:
            yield partial
            with partial.open("r+b") as written:
                os.fsync(written.fileno())
            partial.replace(path)
            sync_folder(path.parent)
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A binary file that replaces `path` when it is complete."""
    with atomic_path(path) as partial, partial.open("xb") as file:
        yield file


@contextmanager
def atomic_writer(path: Path, encoding: str = "utf-8") -> Iterator[IO[str]]:
    """A text file that replaces `path` when it is complete."""
    with atomic_path(path) as partial, partial.open("x", encoding=encoding, newline="") as file:
        yield file


def write_text(path: Path, text: str) -> None:
    with atomic_writer(path) as file:
        file.write(text)


def write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def sweep(folder: Path, pattern: str) -> None:
    """Remove temporary files and folders of processes that were killed."""
    for partial in folder.glob(pattern):
        if _writer_alive(partial):
            continue
        if partial.is_dir() and not partial.is_symlink():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)


def _writer_alive(partial: Path) -> bool:
    """Whether the process whose number ends the name still runs.

    Our own number belonged to an earlier process, as happens in containers: this process has only just started.
    """
    number = partial.stem.rpartition(".")[2]
    return number.isdecimal() and len(number) <= 9 and int(number) != os.getpid() and alive(int(number))


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power failure; some systems cannot sync a folder."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def append_line(path: Path, line: str) -> None:
    """Append one line and sync it, or change nothing. An incomplete last line of a crash is removed first."""
    with open_to_append(path) as file:
        descriptor, size = file.fileno(), file.seek(0, os.SEEK_END)
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            size = read_bytes(path).rfind(b"\n") + 1
            os.ftruncate(descriptor, size)
            file.seek(size)
        rest = line.encode() + b"\n"
        try:
            while rest:  # a disk that fills up accepts a part and refuses only the next write
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        except OSError as problem:
            os.ftruncate(descriptor, size)
            raise WriteError(problem.errno, problem.strerror, str(path)) from problem


def read_lines(path: Path) -> tuple[list[str], str]:
    """The complete lines of a file that grows, and the text after the last line break."""
    if not path.exists():
        return [], ""
    content = read_bytes(path)
    if content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or b"\0" in content[:2]:
        raise InputError(f"{path} is in UTF-16: save it as UTF-8")
    # Only \n ends a line: a class name may contain other characters at which str.splitlines splits.
    *lines, rest = content.decode("utf-8", "replace").split("\n")
    return lines, rest


@contextmanager
def locked(path: Path, *, what: str, used: str = "in use", hint: str = WAIT_OR_STOP) -> Iterator[None]:
    """Hold the lock file `path`, which names its owner. The operating system releases it when the owner dies.

    A second process gets the error "`what` is `used` by OWNER: `hint`".
    """
    descriptor = _acquire(path, f"{what} is {used}", hint)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(path: Path, taken: str, hint: str) -> int:
    me = {"pid": os.getpid(), "host": socket.gethostname()}
    deadline = time.monotonic() + RELEASE_SECONDS
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | NO_FOLLOW | NO_BLOCK, 0o644)
        owner = _owner(descriptor)
        # The system's lock may not work across machines, so the name of another machine in the file counts.
        elsewhere = owner is not None and owner["host"] != me["host"]
        if elsewhere or not _try_lock(descriptor):
            os.close(descriptor)
            # The children of a process that was killed hold its lock for a moment.
            if not elsewhere and owner and not alive(owner["pid"]) and time.monotonic() < deadline:
                time.sleep(0.02)
                continue
            who = f"process {owner['pid']} on {owner['host']}" if owner else "another process"
            delete = f"; if that process is gone, delete {path}" if elsewhere else ""
            raise InputError(f"{taken} by {who}: {hint}{delete}")
        try:
            current = path.stat().st_ino == os.fstat(descriptor).st_ino
        except FileNotFoundError:
            current = False
        if current:
            try:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, json.dumps(me).encode(), 0)
            except OSError as problem:
                path.unlink(missing_ok=True)
                os.close(descriptor)
                raise WriteError(problem.errno, problem.strerror, str(path)) from problem
            return descriptor
        os.close(descriptor)  # the owner removed the file between our open and our lock: start again


def _owner(descriptor: int) -> dict[str, Any] | None:
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
        return {"pid": int(owner["pid"]), "host": str(owner["host"])}
    except (ValueError, KeyError, TypeError, OSError):
        return None


def _try_lock(descriptor: int) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def alive(pid: int) -> bool:
    """Whether a process with this number runs on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
