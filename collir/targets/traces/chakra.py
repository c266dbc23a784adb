"""Execution traces of Chakra, which ASTRA-sim replays: a graph of nodes for each rank.

The nodes are the steps of a simulation, as each rank runs them. A computation is a node with its
operations, the bytes that it reads and writes, and its time in the simulation. A collective is a
node with the bytes that a rank gives to it, and a number of its group. A step that sends messages
from rank to rank is two nodes: one for the message that a rank sends, and one for the message that
it receives.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel
from collir.cost.network.group import CostError
from collir.cost.options import CostOptions
from collir.cost.programs.communicators import coordinate, members
from collir.cost.programs.simulate import (
    functions_that_run,
    simulate_function,
)
from collir.cost.programs.unfolded import (
    MOST,
    ActivityRole,
    RankActivity,
    RankPrograms,
    UnfoldedError,
)
from collir.dialects.machine import meshes_remembered
from collir.dialects.tables import OPERATIONS
from collir.ir.diagnostics import DiagnosticError
from collir.ir.remarks import remark
from collir.layout.mesh import index_over
from collir.syntax.chakra.messages import VERSION, ChakraNode, CommType, NodeType, Value

_COLLECTIVES: Mapping[tuple[str | None, str | None], CommType] = {
    ("partial", "replicated"): CommType.ALL_REDUCE,
    ("partial", "root"): CommType.REDUCE,
    ("sharded", "replicated"): CommType.ALL_GATHER,
    ("sharded", "root"): CommType.GATHER,
    ("root", "sharded"): CommType.SCATTER,
    ("root", "replicated"): CommType.BROADCAST,
    ("sharded", "sharded"): CommType.ALL_TO_ALL,
    ("partial", "sharded"): CommType.REDUCE_SCATTER,
}
"""The collectives of Chakra, by the states of sub-axes before and after."""

_FROM_ROOT = (CommType.BROADCAST, CommType.SCATTER)
_TO_ROOT = (CommType.REDUCE, CommType.GATHER)

NOT_SIMULATED = (CommType.REDUCE, CommType.GATHER, CommType.SCATTER)
"""The collectives at which ASTRA-sim stops."""

_US = 1e6

_LARGEST = 2**63 - 1
"""The largest number that is written; it also replaces larger ones."""


@dataclass
class ExecutionTraces:
    """The traces of the ranks of a function.

    Attributes:
        groups: the ranks of each group in order, by its number, of the ranks whose nodes were
            asked for.
    """

    programs: RankPrograms
    groups: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.programs.simulation.name

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.programs.ranks

    def nodes(self, rank: int) -> Iterator[ChakraNode]:
        """Yield the nodes of a rank, in the order of the program.

        Times are whole microseconds, rounded so that the sum of all computations of a rank is kept.
        """
        elapsed, given = 0.0, 0
        for number, part in enumerate(self.programs.parts(rank)):
            if part.role is ActivityRole.LOCAL:
                elapsed += part.seconds * _US
                duration = round(elapsed) - given
                given += duration
            else:
                duration = round(part.seconds * _US)
            for kind, attributes in self._described(part, rank):
                yield ChakraNode(
                    number,
                    self._title(part),
                    kind,
                    part.control,
                    part.data,
                    0,
                    min(duration, _LARGEST),
                    {"is_cpu_op": False, **attributes},
                )

    def _title(self, part: RankActivity) -> str:
        over = part.step.over(self.programs.mesh) if part.role is not ActivityRole.LOCAL else ""
        kind = getattr(part.does, "kind", part.step.kind)
        return f"%{part.step.result} = {kind}{f' over {over}' if over else ''}"

    def _described(
        self, part: RankActivity, rank: int
    ) -> Iterator[tuple[NodeType, dict[str, Value]]]:
        """Yield the type of the node of a part, and the attributes that ASTRA-sim reads."""
        match part.role:
            case ActivityRole.LOCAL:
                yield NodeType.COMP, _computation(part)
            case ActivityRole.COLLECTIVE:
                yield NodeType.COMM_COLL, self._collective(part.collective, rank)
            case ActivityRole.SEND:
                [target] = self.programs.peers(part.collective, rank)[0]
                yield NodeType.COMM_SEND, _message(part, rank, target)
            case ActivityRole.RECEIVE:
                [source] = self.programs.peers(part.collective, rank)[1]
                yield NodeType.COMM_RECV, _message(part, source, rank)

    def _collective(self, collective: Collective, rank: int) -> dict[str, Value]:
        number, kind = self._number(collective, rank), comm_type(collective)
        group = self.groups.setdefault(number, members(collective, rank))
        attributes: dict[str, Value] = {
            "comm_type": int(kind),
            "comm_size": given_bytes(collective),
            "pg_name": str(number),
        }
        if kind in _FROM_ROOT:
            attributes["comm_src"] = group[0]
        elif kind in _TO_ROOT:
            attributes["comm_dst"] = group[0]
        return attributes

    def _number(self, collective: Collective, rank: int) -> int:
        """Return the number of the group of a rank: those over the same sub-axes follow each other,
        from 1 on, as 0 stands for all ranks in ASTRA-sim."""
        mesh, axes = collective.mesh, collective.axes
        others = [axis for axis in mesh.by_name if axis not in axes]
        at = {axis: coordinate(mesh, rank, axis) for axis in others}
        return self._first[axes] + index_over(mesh, others, at)

    @cached_property
    def _first(self) -> Mapping[tuple[str, ...], int]:
        """The number of the first group over each list of sub-axes."""
        first: dict[tuple[str, ...], int] = {}
        following = 1
        for collective in self.programs.collectives:
            if collective.axes not in first:
                first[collective.axes] = following
                following += self.ranks // collective.ranks
        return first

    def group_table(self) -> dict[str, list[int]]:
        """Return the groups that were needed so far, by their numbers, as ASTRA-sim reads them."""
        return {str(number): list(group) for number, group in sorted(self.groups.items())}


def comm_type(collective: Collective) -> CommType:
    """Return what Chakra calls a collective."""
    kind = OPERATIONS[collective.kind].KIND
    return _COLLECTIVES[kind.before, kind.after]


def given_bytes(collective: Collective) -> int:
    """Return the bytes that a rank gives to a collective, as ASTRA-sim counts its size; of blocks
    that differ in size, the largest counts."""
    size = collective.padded
    if comm_type(collective) in (CommType.ALL_GATHER, CommType.GATHER):
        size /= collective.ranks
    return _whole(size)


def _whole(number: float) -> int:
    """Return a number rounded up, at least 1 and at most the largest."""
    return min(max(1, math.ceil(number)), _LARGEST)


def _computation(part: RankActivity) -> dict[str, Value]:
    """Return operations and bytes: at least one each, as ASTRA-sim divides by them."""
    work = sum(count for _, count in getattr(part.does, "work", ()))
    size = getattr(part.does, "size", 0)
    return {"num_ops": _whole(work), "tensor_size": _whole(size)}


def _message(part: RankActivity, source: int, target: int) -> dict[str, Value]:
    return {
        "comm_src": source,
        "comm_dst": target,
        "comm_tag": part.serial,
        "comm_size": _whole(part.collective.padded),
    }


def traces_of(module: ModuleOp, model: CostModel) -> Sequence[ExecutionTraces]:
    """Return the traces of all functions of a module.

    Raises:
        DiagnosticError: see ``simulate``; the ranks run too many steps to list them.
    """
    traces: list[ExecutionTraces] = []
    with meshes_remembered():
        for function in functions_that_run(module):
            try:
                simulation = simulate_function(function, model)
                programs = RankPrograms(simulation)
                programs.check()
            except UnfoldedError:
                message = (
                    f"the ranks of @{function.sym_name.data} run more than {MOST} steps, with those"
                    " of all iterations, and a trace lists them: let fewer iterations run, or "
                    "place the mesh on fewer devices"
                )
                raise DiagnosticError.at(function, message) from None
            except CostError as error:
                raise DiagnosticError.at(function, str(error)) from error
            left = (x.kind for x in programs.collectives if comm_type(x) in NOT_SIMULATED)
            if names := ", ".join(dict.fromkeys(left)):
                remark(function, f"ASTRA-sim stops at a {names}, which it does not simulate")
            traces.append(ExecutionTraces(programs))
    return traces


@dataclass(frozen=True)
class ChakraTarget(CostOptions, Target):
    """The execution trace of one rank in Chakra's form, as JSON, a node each line.

    `collir export chakra FILE -o FOLDER` writes the traces of all ranks as ASTRA-sim reads them.
    The first line has the groups of this rank's collectives. Loops and pipelines are unfolded.
    """

    name = "chakra"

    rank: int = 0
    """The rank whose trace is printed."""

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        for traces in traces_of(module, self.cost_model()):
            if not 0 <= self.rank < traces.ranks:
                raise DiagnosticError.at(
                    module, f"@{traces.name} has the ranks 0 to {traces.ranks - 1}, and the "
                    f"option rank is {self.rank}"
                )  # fmt: skip
            nodes = [*traces.nodes(self.rank)]
            head = {"version": VERSION, "function": traces.name, "rank": self.rank,
                    "groups": traces.group_table()}  # fmt: skip
            output.write("".join(f"{json.dumps(x)}\n" for x in (head, *map(_as_json, nodes))))


def _as_json(node: ChakraNode) -> dict[str, object]:
    return {
        "id": node.id,
        "name": node.name,
        "type": node.type.title,
        "ctrl_deps": node.control,
        "data_deps": node.data,
        "duration_micros": node.duration,
        "attr": dict(node.attributes),
    }
