"""The program of execution traces, if all ranks run the same: computations as ``compute``.

A collective of all ranks is a step over sub-axes if these have its groups. A trace has bytes and no
types: a collective takes an argument of as many bytes, after the nodes that it waits for.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from collir.importing.chakra.traces import (
    ChakraTrace,
    Traces,
    comm_type_of,
    number_of,
)
from collir.importing.hlo.devices import machine_of
from collir.importing.hlo.groups import Digits, GroupsError, of_lists
from collir.importing.hlo.mesh import MeshPieces, mesh_of
from collir.ir.diagnostics import Position
from collir.machine import Device
from collir.syntax.chakra.messages import ChakraNode, CommType, NodeType

_US = 1e-6

_RATE = 1e12
"""The operations per second that are written, where the machine has no rate."""

_EMPTY = (NodeType.METADATA, NodeType.INVALID)
"""The nodes that take no time."""


@dataclass
class ImportedChakra:
    """Execution traces as a program.

    Attributes:
        text: the program, in ``.coll``.
        collectives: the number of its collectives.
        computations: the number of its computations.
        remarks: what is not as it was.
    """

    text: str
    collectives: int
    computations: int
    remarks: tuple[str, ...]

    def __repr__(self) -> str:
        return (
            f"<ImportedChakra: {len(self.text.splitlines())} lines, {self.collectives} "
            f"collectives, {self.computations} computations>"
        )


def program_of(
    traces: Traces,
    name: str = "step",
    *,
    machine: str = "",
    axes: Mapping[str, int] | None = None,
    comment: str = "",
) -> ImportedChakra:
    """Return the program of traces.

    Args:
        machine: a reference to a machine, such as ``@dgx_h100(nodes = 2)``; by default hosts of 8
            H100.
        axes: those of the mesh in order, with their sizes; by default the coarsest ones that
            explain all groups, called a, b, c and so on.

    Raises:
        DiagnosticError: ranks run different nodes, or send messages; groups are of no mesh; the
            machine or the axes have another number of devices.
    """
    first, count = traces.ranks[0], len(traces.ranks)
    if count < 2:
        raise first.fault("these are the traces of one rank, which sends nothing")
    _check_alike(traces)
    digits = [*_groups(traces)]
    declared = machine_of(machine, count, Position(first.file, 1, 1))
    try:
        pieces = mesh_of((x for own in digits for x in own), count, axes or {}, declared.levels)
        over = [pieces.of(own) for own in digits]
    except GroupsError as error:
        raise first.fault(str(error)) from error
    writer = _Writer(first, pieces, declared.device)
    function = writer.function(name, over)
    head = [f"// {line}".rstrip() for line in comment.splitlines()]
    lines = [*head, declared.text, f"mesh @m on @cluster {{ {pieces.text} }}", "", function]
    return ImportedChakra("\n".join(lines), len(over), writer.computations, writer.remarks())


def _check_alike(traces: Traces) -> None:
    """Check that all ranks run the same, and send no messages from rank to rank.

    Raises:
        DiagnosticError: they do not.
    """
    first = traces.ranks[0]
    for rank, trace in enumerate(traces.ranks):
        if len(trace.nodes) != len(first.nodes):
            raise trace.fault(
                f"rank {rank} has {len(trace.nodes)} nodes, and rank 0 {len(first.nodes)}: a "
                "program is made of ranks that run the same, and not of stages"
            )
        for x, y in zip(trace.nodes, first.nodes, strict=True):
            if x.type in (NodeType.COMM_SEND, NodeType.COMM_RECV):
                raise trace.fault(
                    f"node {x.id} is a {x.type.title}: messages from rank to rank are not imported"
                )
            if _form(x, trace) != _form(y, first):
                raise trace.fault(
                    f"node {x.id} of rank {rank} is another one than node {y.id} of rank 0: a "
                    "program is made of ranks that run the same, and not of stages"
                )


def _form(node: ChakraNode, trace: ChakraTrace) -> object:
    """Return the part of a node that is the same on all ranks that run the same program."""
    sends = node.type is NodeType.COMM_COLL
    size = number_of(node, "comm_size", trace) if sends else 0
    return node.type, len(node.needed), comm_type_of(node, trace) if sends else None, size


def _groups(traces: Traces) -> Iterator[Digits]:
    """Yield what the groups of each collective run over.

    Raises:
        DiagnosticError: they are no translates of each other, or not all ranks are in one.
    """
    known: dict[tuple[int, ...], Digits] = {}
    collectives = [[*traces.collectives(rank)] for rank in range(len(traces.ranks))]
    for number, (_, node) in enumerate(collectives[0]):
        numbers = tuple(dict.fromkeys(own[number][0] for own in collectives))
        if numbers not in known:
            try:
                lists = [traces.members(group) for group in numbers]
                known[numbers] = of_lists(lists, len(traces.ranks))
            except GroupsError as error:
                raise traces.ranks[0].fault(f"collective {node.id}: {error}") from error
        yield known[numbers]


@dataclass
class _Writer:
    """The writer of the function of a rank's trace.

    Attributes:
        done: for each node, the values that exist when it has ended.
        types: the type of each value that is made; ``used``: the values that others wait for.
    """

    trace: ChakraTrace
    pieces: MeshPieces
    device: Device | None
    arguments: list[str] = field(default_factory=lambda: ["%t: f32[1]"])
    lines: list[str] = field(default_factory=list[str])
    types: dict[str, str] = field(default_factory=dict[str, str])
    used: set[str] = field(default_factory=set[str])
    done: dict[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])
    computations: int = 0
    collectives: int = 0
    notes: Counter[str] = field(default_factory=Counter[str])

    def function(self, name: str, over: Sequence[tuple[int, ...]]) -> str:
        """Return the function; ``over`` has the pieces of the mesh of each collective."""
        left = iter(over)
        for node in self.trace.nodes:
            needed = [value for number in node.needed for value in self.done[number]]
            before = [*dict.fromkeys(needed)]
            self.used.update(before)
            if node.type is NodeType.COMM_COLL:
                self.done[node.id] = self._collective(node, before, next(left))
            elif node.type is NodeType.COMP:
                self.done[node.id] = self._computation(node, before)
            else:
                self.done[node.id] = tuple(before)
                self.notes["nodes of memory take no time"] += node.type not in _EMPTY
        results = [item for item in self.types.items() if item[0] not in self.used]
        results = results or [("%t", "f32[1]")]
        arguments = ",\n    ".join(self.arguments)
        types = ",\n    ".join(kind for _, kind in results)
        return (
            f"func @{name}(\n    {arguments})\n    -> ({types}) on @m {{\n"
            + "".join(f"  {line}\n" for line in self.lines)
            + f"  return {', '.join(value for value, _ in results)}\n}}\n"
        )

    def _computation(self, node: ChakraNode, before: Sequence[str]) -> tuple[str, ...]:
        if node.attributes.get("is_cpu_op") is True:
            self.notes["nodes of hosts run on the devices"] += 1
        self.computations += 1
        flops = self._seconds(node) * self._rate
        name = f"%c{self.computations}"
        operands = ", ".join(["%t", *before])
        self.lines.append(f"{name} = compute {operands} flops {flops:.6g}")
        self.types[name] = "f32[1]"
        return (name,)

    @property
    def _rate(self) -> float:
        """The operations per second of the element type of what is written."""
        rates = dict(self.device.compute) if self.device else {}
        return rates.get("f32", _RATE)

    def _seconds(self, node: ChakraNode) -> float:
        """Return the seconds of a computation: from the trace, or from its operations and bytes if
        the trace names none."""
        if node.duration:
            return node.duration * _US
        if "num_ops" not in node.attributes or "tensor_size" not in node.attributes:
            return 0.0
        operations, size = (number_of(node, x, self.trace) for x in ("num_ops", "tensor_size"))
        speed = self.device.memory_bandwidth if self.device else None
        return max(operations / self._rate, size / speed if speed else 0.0)

    def _collective(
        self, node: ChakraNode, before: Sequence[str], over: Sequence[int]
    ) -> tuple[str, ...]:
        kind = comm_type_of(node, self.trace)
        size = number_of(node, "comm_size", self.trace)
        count = math.prod(self.pieces.pieces[n].digit.size for n in over)
        if count == 1:
            return tuple(before)
        self.collectives += 1
        number = self.collectives
        types = _types(kind, size, count, self.pieces.listed(over))
        if types is None:
            raise self.trace.fault(f"node {node.id} is a {kind.name}, which is not imported")
        taken, given, rest = types
        self.arguments.append(f"%x{number}: {taken}")
        operand = f"%x{number}"
        if before:
            self.lines.append(f"%p{number} = compute {', '.join([operand, *before])} flops 0")
            operand = f"%p{number}"
        step = "reduce_scatter" if kind is CommType.REDUCE_SCATTER_BLOCK else kind.name.lower()
        listed = self.pieces.listed(over)
        self.lines.append(f"%r{number} = {step} {operand} over {listed}{rest} async")
        self.types[f"%r{number}"] = given
        return (f"%r{number}",)

    def remarks(self) -> tuple[str, ...]:
        """Return what is not as in the trace."""
        return tuple(f"{count} {note}" for note, count in self.notes.items() if count)


def _types(kind: CommType, size: int, count: int, over: str) -> tuple[str, str, str] | None:
    """Return the types of the operand and the result of a collective, and what is written behind
    its axes; None if there is no such step.

    Args:
        size: the bytes that a rank gives; blocks that it is cut into are rounded up to a byte.
    """
    dtype, width = ("f32", 4) if size and size % (4 * count) == 0 else ("i8", 1)
    own, inside = max(1, size // width), f"@({over})" if "," in over else f"@{over}"
    block = max(1, -(-size // width // count))
    cut, whole = block * count, own * count
    match kind:
        case CommType.ALL_REDUCE:
            return f"{dtype}[{own}] partial(sum: {over})", f"{dtype}[{own}]", ""
        case CommType.REDUCE:
            return f"{dtype}[{own}] partial(sum: {over})", f"{dtype}[{own}] root({over})", ""
        case CommType.REDUCE_SCATTER | CommType.REDUCE_SCATTER_BLOCK:
            return f"{dtype}[{cut}] partial(sum: {over})", f"{dtype}[{cut}{inside}]", " dim 0"
        case CommType.ALL_GATHER:
            return f"{dtype}[{whole}{inside}]", f"{dtype}[{whole}]", " dim 0"
        case CommType.GATHER:
            return f"{dtype}[{whole}{inside}]", f"{dtype}[{whole}] root({over})", " dim 0"
        case CommType.SCATTER:
            return f"{dtype}[{cut}] root({over})", f"{dtype}[{cut}{inside}]", " dim 0"
        case CommType.BROADCAST:
            return f"{dtype}[{own}] root({over})", f"{dtype}[{own}]", ""
        case CommType.ALL_TO_ALL:
            rows = f"{dtype}[{count}{inside}, {cut}]", f"{dtype}[{count}, {cut}{inside}]"
            return *rows, " dim 0 to 1"
        case CommType.BARRIER:
            return None
