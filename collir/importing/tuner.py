"""Reader of the files of NCCL's example tuner plugin (NVIDIA/nccl, ext-tuner/example and
plugins/tuner/example): which algorithm and protocol a range of message sizes takes.

A line has 8 to 10 fields: ``collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,
nRanks,numPipeOps,regBuff``. Bytes are those of the larger of the buffers for sending and for
receiving, both ends included, and -1 stands for any number. The first line that matches is taken.
``#`` in the first column starts a comment.

The plugin reads an unknown collective as all_reduce, an unknown algorithm as ring, an unknown
protocol as simple and other text as 0, and passes over lines with fewer fields: all these are
errors here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from collir.cost.collectives import nccl
from collir.cost.collectives.tuning import KINDS
from collir.importing.numbers import integer
from collir.importing.values import ReadError, TextPlace, shown

FIELDS = (
    "collective", "min_bytes", "max_bytes", "algorithm", "protocol",
    "channels", "nNodes", "nRanks", "numPipeOps", "regBuff",
)  # fmt: skip
REQUIRED = 8
"""The number of fields that every line has."""

COLLECTIVES = {kind.replace("_", ""): kind for kind in KINDS}
ALGORITHMS = {
    "ring": nccl.RING,
    "tree": nccl.TREE,
    "nvls": nccl.NVLS,
    "nvls_tree": nccl.NVLS_TREE,
    **{name: name for name in ("collnet_direct", "collnet_chain", "pat")},
}
PROTOCOLS = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}
"""The file's names -> those of ``collir.cost.collectives.nccl``, where it has them."""

MAX_SIZE = 2**64 - 1
MAX_LINE = 254
"""The most characters of a line: the plugin splits longer ones."""


@dataclass(frozen=True)
class TunerLine:
    """A line of the file.

    Attributes:
        kind: the collective.
        first, last: the smallest and the largest size in bytes.
        choice: the algorithm and protocol, as in ``NcclEstimate``.
        channels: their number; 0 leaves it to NCCL, and the plugin makes one of -1.
        nodes, ranks, pipe_ops, registered: what a call must have; -1 is any.
    """

    kind: str
    first: int
    last: int
    choice: str
    channels: int
    nodes: int
    ranks: int
    pipe_ops: int
    registered: int
    place: TextPlace

    def is_for(self, kind: str, nodes: int, ranks: int) -> bool:
        """Return whether a communicator's collective matches, for some size."""
        return self.kind == kind and self.nodes in (-1, nodes) and self.ranks in (-1, ranks)


def read_tuner(text: str) -> list[TunerLine]:
    """Return the lines of a file, without comments and empty lines.

    Raises:
        ReadError: the plugin would read a line as another one, or pass over it.
    """
    lines: list[TunerLine] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip(" \t") and not line.startswith("#"):
            lines.append(_line(line, number))
    return lines


def _line(line: str, number: int) -> TunerLine:
    if len(line) > MAX_LINE:
        raise ReadError(
            f"a line has at most {MAX_LINE} characters", TextPlace(number, MAX_LINE + 1)
        )
    if line.lstrip().startswith("#"):
        raise ReadError(
            "a comment starts in the first column", TextPlace(number, line.index("#") + 1)
        )
    fields = [
        (match[0].strip(" \t"), TextPlace(number, match.start() + _indent(match[0]) + 1))
        for match in re.finditer(r"(?:(?<=,)|^)[^,]*", line)
    ]
    if not REQUIRED <= len(fields) <= len(FIELDS):
        known = ",".join(FIELDS)
        raise ReadError(
            f"a line has {REQUIRED} to {len(FIELDS)} fields, not {len(fields)}: {known}",
            TextPlace(number),
        )
    for name, (field, place) in zip(FIELDS, fields, strict=False):
        if not field:
            raise ReadError(f"{name} is empty", place)
    first = _number(fields, 1, 0, MAX_SIZE)
    last = _number(fields, 2, 0, MAX_SIZE)
    if first > last:
        raise ReadError(f"max_bytes is less than min_bytes, which is {first}", fields[2][1])
    kind = _name(fields, 0, COLLECTIVES)
    choice = f"{_name(fields, 3, ALGORITHMS)}/{_name(fields, 4, PROTOCOLS)}"
    conditions = [_number(fields, at, -1) for at in range(6, len(FIELDS))]
    for at in (6, 7):
        if conditions[at - 6] == 0:
            raise ReadError(f"{FIELDS[at]} is -1 (any) or at least 1, not 0", fields[at][1])
    if conditions[3] > 1:
        raise ReadError("regBuff is 0 (no), 1 (yes) or -1 (any)", fields[9][1])
    return TunerLine(
        kind, first, last, choice, _number(fields, 5, -1), *conditions, place=TextPlace(number)
    )


def _indent(field: str) -> int:
    return len(field) - len(field.lstrip(" \t"))


def _name(fields: Sequence[tuple[str, TextPlace]], at: int, known: dict[str, str]) -> str:
    name, place = fields[at]
    if name not in known:
        message = f"there is no {FIELDS[at]} '{shown(name)}': there is {', '.join(known)}"
        raise ReadError(message, place)
    return known[name]


def _number(
    fields: Sequence[tuple[str, TextPlace]], at: int, least: int, most: int = 2**31 - 1
) -> int:
    """Return a field's number, or -1 if the line ends before it."""
    if at >= len(fields):
        return -1
    return integer(fields[at][0], FIELDS[at], fields[at][1], least, most)
