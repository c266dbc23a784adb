"""Files of Nsight Systems: what ``nsys export --type sqlite`` and ``nsys stats`` write."""

from collections.abc import Sequence
from pathlib import Path

from collir.importing.traces.nsys_csv import is_nsys_csv, read_nsys_csv
from collir.importing.traces.nsys_sqlite import is_nsys_sqlite, read_nsys_sqlite
from collir.importing.traces.profile import TraceProfile, joined
from collir.importing.traces.ranks import reading
from collir.importing.traces.trace import Trace


def is_nsys(path: Path, head: str) -> bool:
    """Return whether this is the beginning of such a file."""
    return is_nsys_sqlite(path, head) or is_nsys_csv(head)


def read_nsys_files(paths: Sequence[Path]) -> Trace:
    """Return the trace of a job, of the profiles of its computers or ranks.

    Raises:
        ReadError: a file is no such profile.
        OSError: a file cannot be read.
    """
    profiles: list[TraceProfile] = []
    for path in paths:
        with reading(path):
            profiles.append(read_nsys_sqlite(path) if _is_database(path) else read_nsys_csv(path))
    return joined("Nsight Systems", profiles)


def _is_database(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(6) == b"SQLite"
