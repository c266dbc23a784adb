"""The memory of this computer, and the functions that need more of it."""

import os
from pathlib import Path

from xdsl.dialects.func import FuncOp

from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position


def _available_memory() -> int:
    """Return the available memory of this computer and this container, in bytes."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit, used = (_lines(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if limit and used and limit[0].isdecimal():
        free = min(free, int(limit[0]) - int(used[0]))
    return free


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="ascii").splitlines()
    except OSError:
        return []


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**28 else f"{size / 2**20:.1f} MiB"


def check_available(needed: int, function: FuncOp, purpose: str) -> None:
    """Check that the bytes that a function needs for a purpose are available.

    Raises:
        DiagnosticError: there are fewer.
    """
    available = _available_memory()
    if needed > available:
        raise DiagnosticError(
            Diagnostic(
                f"@{function.sym_name.data} needs {_gib(needed)} for {purpose}, and "
                f"{_gib(available)} are available: try --set-size",
                Position.of(function),
            )
        )
