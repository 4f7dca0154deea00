"""What this machine offers: processor cores, worker processes and memory."""

from __future__ import annotations

import os
import sys
from concurrent.futures import Executor
from pathlib import Path
from typing import cast

from labelsieve.errors import InputError

UNKNOWN_MEMORY = 4 * 2**30  # assumed if the system does not report its memory
CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def worker_processes(workers: int) -> Executor:
    """Return a pool of `workers` processes. If one of them is killed, the pool raises BrokenProcessPool.

    The pool is loky's, which comes with scikit-learn: its processes start without running the caller's script again.
    """
    from joblib.externals.loky import ProcessPoolExecutor

    return cast("Executor", ProcessPoolExecutor(workers))


def peak_memory() -> int:
    """Return the most bytes of memory that this process has used so far; 0 if this is unknown."""
    found = read_bytes_of("VmHWM")  # the system's own maximum starts at the size of the parent process
    if found is None and sys.platform != "win32":
        import resource

        found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return found or 0


def read_bytes_of(field: str, file: str = "/proc/self/status") -> int | None:
    """Return a field of a file of Linux, such as "VmRSS:  1234 kB", in bytes; None if there is none."""
    try:
        lines = dict(line.split(":", 1) for line in Path(file).read_text(encoding="utf-8").splitlines())
        return int(lines[field].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        return None


def available_memory() -> int:
    """Return the bytes of memory that can be allocated without swapping, within the limit of a container."""
    return min(_system_memory(), _container_memory())


def check_memory(path: Path, needed: int) -> int:
    """Raise InputError if the content of a file needs more memory than is available; return what is available."""
    free = available_memory()
    if needed > free:
        raise InputError(f"{path} needs {needed / 1e9:,.1f} GB of memory, and {free / 1e9:.1f} GB are available")
    return free


def _system_memory() -> int:
    found = read_bytes_of("MemAvailable", "/proc/meminfo")
    if found is None and sys.platform != "win32" and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return UNKNOWN_MEMORY if found is None else found


def _container_memory() -> int:
    """Return the free memory of this control group (version 2); without a limit, a number that limits nothing."""
    try:
        limit, used = ((CGROUP / name).read_text(encoding="ascii") for name in ("memory.max", "memory.current"))
        return max(0, int(limit) - int(used))
    except (OSError, ValueError):  # no control groups, or the limit is "max"
        return 2**63
