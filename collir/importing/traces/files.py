"""Files of traces, told apart by what is in them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from collir.importing.traces.chrome import opened, read_up_to
from collir.importing.traces.flight_recorder import is_flight_recorder, read_flight_recorders
from collir.importing.traces.kineto_files import is_kineto, read_kineto_files
from collir.importing.traces.nsys import is_nsys, read_nsys_files
from collir.importing.traces.ranks import align, check_ranks, check_sizes
from collir.importing.traces.trace import Trace
from collir.importing.traces.xla import is_xla, read_xla_files
from collir.importing.values import ReadError, TextPlace

_HEAD = 2**16
"""The bytes at the beginning of a file that tell what it is."""


class TraceFormat(NamedTuple):
    """A kind of traces.

    Attributes:
        tool: what records them.
        fits: whether a file is one, by its beginning.
        read: reads such files.
        has_ends: whether it says when collectives ended, by which clocks are brought together.
    """

    tool: str
    fits: Callable[[Path, str], bool]
    read: Callable[[Sequence[Path]], Trace]
    has_ends: bool = True


FORMATS = [
    TraceFormat("torch's profiler", is_kineto, read_kineto_files),
    TraceFormat("XLA's profiler", is_xla, read_xla_files),
    TraceFormat(
        "torch's flight recorder", is_flight_recorder, read_flight_recorders, has_ends=False
    ),
    TraceFormat("Nsight Systems", is_nsys, read_nsys_files),
]
"""The kinds of traces that are known."""


def is_trace(path: Path) -> bool:
    """Return whether a file is a trace that is read here, by its beginning."""
    return _format(path) is not None


def read_traces(paths: Sequence[Path]) -> Trace:
    """Return the trace of a job, of files of one or all ranks.

    Raises:
        ReadError: a file is no trace, or the files do not fit together; its message names the file.
        OSError: a file cannot be read.
    """
    formats = [_format(path) for path in paths]
    for path, form in zip(paths, formats, strict=True):
        if form is None:
            path.open("rb").close()  # it may not be there
            known = ", ".join(x.tool for x in FORMATS)
            raise ReadError(f"{path} is no trace that is known: there are those of {known}",
                            TextPlace(1))  # fmt: skip
    tools = dict.fromkeys(x.tool for x in formats if x)
    if len(tools) > 1:
        raise ReadError(f"the files are traces of {' and of '.join(tools)}", TextPlace(1))
    if not formats or not (chosen := formats[0]):
        raise ReadError("there are no files", TextPlace(1))
    trace = chosen.read(paths)
    check_ranks(trace)
    check_sizes(trace)
    if chosen.has_ends:
        align(trace)
    return trace


def _format(path: Path) -> TraceFormat | None:
    try:
        with opened(path) as stream:
            data, _ = read_up_to(stream, _HEAD)
    except OSError:
        return None
    head = data.decode("utf-8", "replace")
    return next((x for x in FORMATS if x.fits(path, head)), None)
