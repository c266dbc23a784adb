"""Measured times as files have them, before the machine is known that they were made on."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from collir.cost.collectives.collective import Collective, Route
from collir.cost.collectives.table import COSTS
from collir.importing.values import ReadError, Remark, TextPlace, shown
from collir.layout import Axis, Factor, Mesh
from collir.machine import Machine, MachineError

MAX_SIZE = 2**63 - 1
"""The largest size of a buffer, in bytes."""

KINDS = tuple(kind for kind, entry in COSTS.items() if not entry.listed)
"""The names of the collectives whose times are read."""


@dataclass(frozen=True)
class MeasuredRow:
    """A measured time.

    ``kind`` is a collective, or ``send`` for a message from the first rank to the second. ``size``
    is the size in bytes of the full buffer (see ``Collective``), or with ``per_rank`` of the part
    of a rank.
    """

    kind: str
    size: int
    seconds: float
    place: TextPlace
    per_rank: bool = False


@dataclass(frozen=True)
class LevelExtent:
    """The part of a level that a group takes: ``size`` children, or all children if 0.

    ``beside`` is the number of groups side by side.
    """

    level: str
    size: int
    beside: int = 1


@dataclass(frozen=True)
class MeasuredTable:
    """Times that were measured on one group of ranks.

    ``over`` are the levels of the group, ``hosts`` the numbers of ranks on each host, and ``ranks``
    the number of all ranks; they are empty or 0 if the file does not say it. ``beside`` groups of
    that size ran at the same time.
    """

    rows: tuple[MeasuredRow, ...]
    place: TextPlace
    over: tuple[LevelExtent, ...] = ()
    hosts: tuple[int, ...] = ()
    ranks: int = 0
    beside: int = 1


@dataclass(frozen=True)
class MeasuredTables:
    """The tables of a file; ``about`` is a sentence on it, ``remarks`` are on what is left out."""

    about: str
    tables: tuple[MeasuredTable, ...]
    remarks: tuple[Remark, ...] = ()


_LEFT_OUT = re.compile(r": (?:(?:it is|they are|this line is|this time is) )?left out$")


def nothing_left(remarks: Sequence[Remark], place: TextPlace) -> ReadError:
    """Return the error of a text of whose times none is left, with the first reason."""
    if not remarks:
        return ReadError("there are no times that can be used here", place)
    reason = _LEFT_OUT.sub("", remarks[0].message)
    return ReadError(f"there are no times that can be used: {reason}", remarks[0].place)


_NUMBER = re.compile(r"[0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,3})?")


def is_time(text: str) -> bool:
    """Return whether a text is a number of microseconds above 0, in seconds too."""
    return bool(_NUMBER.fullmatch(text)) and 0 < float(text) * 1e-6 < math.inf


def read_seconds(text: str, place: TextPlace, remarks: list[Remark]) -> float:
    """Return the seconds of a number of microseconds; 0, with a remark, if it is no time."""
    if is_time(text):
        return float(text) * 1e-6
    message = f"'{shown(text)}' is not a time above 0 us: this line is left out"
    remarks.append(Remark(message, place))
    return 0.0


def check_asked(own: str, kind: str | None, place: TextPlace, noun: str = "table") -> None:
    """Check that the times of a table are of the collective that is asked for, if one is.

    Raises:
        ReadError: another collective is asked for.
    """
    if kind not in (None, own):
        raise ReadError(f"this {noun} is of {own}, but {kind} is asked for", place)


@dataclass
class TablesRead:
    """The tables of a text, while it is read."""

    tables: list[MeasuredTable] = field(default_factory=list[MeasuredTable])
    remarks: list[Remark] = field(default_factory=list[Remark])

    def add(self, table: MeasuredTable) -> None:
        """Add a table, or a remark if it has no times."""
        if table.rows:
            self.tables.append(table)
        else:
            message = "this table has no times: the file may be cut off"
            self.remarks.append(Remark(message, table.place))

    def leave_out(self, own: str, place: TextPlace) -> None:
        """Add a remark on a table that is of no collective whose times are read."""
        message = f"'{shown(own)}' is no collective whose times are read: it is left out"
        self.remarks.append(Remark(message, place))

    def all(self, about: str, place: TextPlace) -> MeasuredTables:
        """Return the tables, of a text that begins at a place.

        Raises:
            ReadError: there is none.
        """
        if not self.tables:
            raise nothing_left(self.remarks, place)
        return MeasuredTables(about, tuple(self.tables), tuple(self.remarks))


_EXTENT = re.compile(r"\s*([A-Za-z_]\w*)\s*(?::\s*([0-9]{1,10})\s*(?:\+\s*([0-9]{1,10})\s*)?)?")


def extents(text: str, place: TextPlace) -> tuple[LevelExtent, ...]:
    """Return the extents of a text such as ``node:2 * gpu:4``.

    A level without a number is all of the level; ``gpu:4+2`` has two groups side by side.

    Raises:
        ReadError: the text is no list of levels.
    """
    result: list[LevelExtent] = []
    for piece in text.split("*"):
        match = _EXTENT.fullmatch(piece)
        if not match:
            raise ReadError(f"'{shown(text)}' is not levels such as node:2*gpu:8", place)
        result.append(LevelExtent(match[1], int(match[2] or 0), int(match[3] or 1)))
    return tuple(result)


def mesh_over(machine: Machine, over: Sequence[LevelExtent], place: TextPlace) -> Mesh:
    """Return a mesh with three axes: the group, the groups beside it, and the idle devices.

    The ranks of a group are neighbours on each level. A level whose size is not a multiple of
    the group is cut to the children that take part.

    Raises:
        ReadError: the machine has no such group; the message names what the machine has.
    """
    by_level = {extent.level: extent for extent in over}
    if len(by_level) < len(over):
        raise ReadError("a level is named twice", place)
    names = [level.name for level in machine.levels]
    for level in machine.levels:
        if level.parents and level.parents.level.name in by_level:
            raise ReadError(
                f"the children of level '{level.parents.level.name}' differ in size, so groups "
                f"are over '{level.name}', which counts all {level.size}, as in "
                f"{level.name}:{level.size}",
                place,
            )
    if unknown := [name for name in by_level if name not in names]:
        raise ReadError(
            f"machine @{machine.name} has no level '{unknown[0]}': it has {', '.join(names)}", place
        )
    factors: dict[str, list[Factor]] = {"idle": [], "beside": [], "group": []}
    sizes: list[int] = []
    for level in machine.levels:
        extent = by_level.get(level.name, LevelExtent(level.name, 1))
        size = extent.size or level.size
        used = size * extent.beside
        if not 0 < used <= level.size:
            raise ReadError(f"level '{level.name}' has {level.size} children, not {used}", place)
        sizes.append(level.size if level.size % used == 0 else used)
        for name, factor in (
            ("idle", sizes[-1] // used),
            ("beside", extent.beside),
            ("group", size),
        ):
            factors[name].append(Factor(level.name, factor))
    if math.prod(factor.size for factor in factors["group"]) < 2:
        raise ReadError("a group of one rank sends nothing", place)
    try:
        machine = machine.first(sizes)
    except MachineError as error:
        raise ReadError(str(error), place) from error
    return Mesh(
        "m",
        machine,
        tuple(Axis.placed(name, level_factors) for name, level_factors in factors.items()),
    )


def collective(mesh: Mesh, row: MeasuredRow) -> Collective:
    """Return the collective that a row measured, on a mesh of ``mesh_over``."""
    axes = tuple(sub.name for sub in mesh.sub_axes if sub.axis == "group")
    idle = frozenset(sub.name for sub in mesh.sub_axes if sub.axis == "idle")
    size = float(row.size) * (mesh.group_size(axes) if row.per_rank else 1)
    route = Route(0, 1) if row.kind == "send" else None
    return Collective(row.kind, mesh, axes, size, at_root=idle, sent_by=route)
