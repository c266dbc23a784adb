"""The memory that processes hold."""

import os
import resource
import sys
from collections.abc import Iterable
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(pids: Iterable[int] = ()) -> int:
    """Return the bytes of memory that this process and ``pids`` hold together.

    On a system without /proc, return the peak memory of this process instead.
    """
    try:
        return sum(_of(pid) for pid in ("self", *pids))
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def _of(pid: int | str) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except FileNotFoundError:
        if pid == "self":
            raise
        return 0  # it has just ended
