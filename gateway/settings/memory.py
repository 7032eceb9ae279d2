"""How much memory this process may have."""

import os
from pathlib import Path

CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def memory_bytes(container_limit: Path = CONTAINER_LIMIT) -> int:
    """The memory of this machine, or of the container if that may use less."""
    machine: int = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(machine, int(container_limit.read_text()))
    except (OSError, ValueError):  # no such file, or "max"
        return machine
