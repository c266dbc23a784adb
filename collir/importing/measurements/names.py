"""Collectives by the names of programs and of files.

A name stands for a collective of ``KINDS``. An empty one stands for a benchmark whose times are not
read as times of a collective.
"""

import re

from collir.cost.collectives.table import COSTS

PROGRAMS: dict[str, str] = {
    **{entry.perf: kind for kind, entry in reversed(COSTS.items()) if entry.perf},
    **dict.fromkeys(("sendrecv", "hypercube", "alltoallv", "all_reduce_bias", "bisection"), ""),
    "allreduce_test": "all_reduce",
    "allgather_test": "all_gather",
    "alltoall_test": "all_to_all",
    "alltoallv_test": "",
    "sendrecv_test": "",
}
"""Name of a program of nccl-tests, rccl-tests or MSCCL++, without ``_perf`` -> its collective."""

_PROGRAM = re.compile(r"(?<![A-Za-z_])([a-z_]+)_perf(?:_mpi)?\b")
_BUILD = re.compile(r"\b(?:Compiling|Linking)\b|\.(?:o|cu|cpp)\b")

_WORDS = {
    "all reduce": "all_reduce",
    "all gather": "all_gather",
    "reduce scatter block": "reduce_scatter",
    "reduce scatter": "reduce_scatter",
    "all to all v": "",
    "all to all": "all_to_all",
    "send recv": "",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
_IN_NAMES = re.compile(
    r"(?<![a-z])(?:nccl|rccl|osu|imb|mpi)?("
    + "|".join(words.replace(" ", "[-_. ]?") for words in _WORDS)
    + r")(?![a-z])"
)


def kind_of_program(line: str) -> str | None:
    """Return the collective of the program that a line names; None if it names none, or several.

    Lines of a build, which name all programs one after the other, name none.
    """
    if "_perf" not in line or _BUILD.search(line):
        return None
    kinds = {PROGRAMS[name] for name in _PROGRAM.findall(line) if name in PROGRAMS}
    return kinds.pop() if len(kinds) == 1 else None


def kind_of_file(file: str) -> str | None:
    """Return the collective in the name of a file; None if it has none, or several."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", file.rpartition("/")[2]).lower()
    found = {re.sub(r"[-_. ]", "", word) for word in _IN_NAMES.findall(name)}
    kinds = {kind for words, kind in _WORDS.items() if words.replace(" ", "") in found}
    return kinds.pop() if len(kinds) == 1 else None
