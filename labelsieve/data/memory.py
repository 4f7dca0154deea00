"""How much memory can still be had."""

from __future__ import annotations

import os
from pathlib import Path


def available() -> int:
    """Bytes that can be had without pushing anything out; where the system does not say, all there are or 4 GB."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 4 * 2**30
