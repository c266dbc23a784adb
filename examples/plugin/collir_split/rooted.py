"""A dialect with one collective, ``rooted_all_reduce %x over data``: its row in every table.

It is an all_reduce by way of a root: a reduce, and a broadcast of its result, as one step.
"""

from collections.abc import Iterator
from dataclasses import replace

from xdsl.ir import Dialect

from collir.algorithms.binomial import broadcast, reduce
from collir.algorithms.moves import Algorithm, Round
from collir.algorithms.patterns import GroupShape
from collir.cost.collectives import mpich
from collir.cost.collectives.rounds import ByRounds
from collir.cost.collectives.table import COSTS, NcclKind
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp, operations
from collir.dialects.tensor import dist_type
from collir.layout import DistType, Mesh, rules
from collir.layout.operation_table import OperationTable
from collir.layout.steps import OVER, USING, StepKind, rows_in
from collir.semantics.local.groups import GROUPS, GroupMeaning, combined
from collir.semantics.reference import collectives
from collir.semantics.reference.collectives import Buffers
from collir.semantics.reference.steps import MEANINGS, Args, Meaning
from collir.semantics.symbolic.execution import RULES
from collir.targets.code import c_file, jax_ops
from collir.targets.code.c_collectives import CallArguments
from collir.targets.code.mpi4py import Mpi4pyMethod
from collir.targets.code.mpi_method import ARGUMENTS
from collir.targets.code.nccl_method import CALLS
from collir.targets.code.rank_method import CollectiveCall
from collir.targets.code.torch import TorchMethod

# The typing rule and the row, and the dialect that is made of it.
ROWS: OperationTable[StepKind] = OperationTable("ROWS", __name__)
row = rows_in(ROWS, StepKind)


def _rule(mesh: Mesh, x: DistType, axes: tuple[str, ...]) -> DistType:
    """partial -> replicated, by way of the root."""
    return rules.broadcast(mesh, rules.reduce(mesh, x, axes), axes)


row(
    name="rooted_all_reduce",
    rule=_rule,
    parameters=(OVER, USING),
    before="partial",
    after="replicated",
    sends=True,
    algorithms=("binomial",),
)

Rooted = Dialect("rooted", [*operations("rooted", ROWS).values()])


# Its cost: that of an all_reduce, with an algorithm and runtimes of its own.
def _trees(shape: GroupShape) -> Iterator[Round]:
    """Yield the rounds of a tree to the root, and back: 2 ceil(lg p) (a + n b) + ceil(lg p) n g."""
    yield from reduce(shape)
    yield from broadcast(shape)


_binomial = ByRounds(Algorithm("binomial", "rooted_all_reduce", _trees, blocks=lambda _: 1))


COSTS["rooted_all_reduce"] = replace(
    COSTS["all_reduce"],
    algorithms={"binomial": _binomial},
    perf=None,
    mpich=mpich.rooted,
    p2=("binomial", _binomial),
    nccl=NcclKind(steps=lambda ranks: 2 * ranks, tree=False),
)


# What it does to the buffers of all devices, to symbolic values, and to those of a group.
def _run(op: DistOp, args: Args) -> Buffers:
    mesh, reduction = mesh_of(op), dist_type(op.input).reduction
    assert reduction is not None
    reduced = collectives.reduce(mesh, args[0], op.over, reduction)
    return collectives.broadcast(mesh, reduced, op.over)


MEANINGS["rooted_all_reduce"] = Meaning(_run)
RULES["rooted_all_reduce"] = lambda run, op, xs: run.reduce(op, xs[0], op.over)
GROUPS["rooted_all_reduce"] = GroupMeaning(lambda op, parts, _: [combined(op, parts)] * len(parts))


# Its code in C for MPI, C++ for NCCL, Python for mpi4py, torch and jax.
ARGUMENTS["rooted_all_reduce"] = CallArguments("{x}, {y}, {n}, {type}, {op}")
c_file.sections("mpi_runtime.c")["rooted_all_reduce"] = (
    ("reduce", "broadcast"),
    """\
static int rooted_all_reduce(const void *in, void *out, size_t n, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm, MPI_Request *request)
{
  int err = reduce(in, out, n, type, op, 0, comm, NULL);
  return err != MPI_SUCCESS ? err : broadcast(out, out, n, type, 0, comm, request);
}
""",
)


def _on_mpi4py(self: Mpi4pyMethod, s: CollectiveCall) -> list[str]:
    arrays = [self.bits(s, s.source), self.bits(s, s.out)]
    reduced = self.called(s, "Reduce", *arrays, self.operator(s))
    return [*s.new, reduced, self.called(s, "Bcast", arrays[1]), *self.average(s)]


def _on_torch(self: TorchMethod, s: CollectiveCall) -> list[str]:
    reduced = self.called(s, "reduce", s.out, "group_dst=0", self.operator(s))
    sent = self.called(s, "broadcast", s.out, "group_src=0")
    return [self.result_is(s, s.source), reduced, sent, *self.average(s)]


CALLS["rooted_all_reduce"] = CallArguments(
    "ncclReduce({x}, {y}, {n}, {type}, {op}, 0; ncclBroadcast({y}, {y}, {n}, {type}, 0"
)
Mpi4pyMethod.COLLECTIVES["rooted_all_reduce"] = _on_mpi4py
TorchMethod.COLLECTIVES["rooted_all_reduce"] = _on_torch
jax_ops.EXPRESSIONS["rooted_all_reduce"] = jax_ops.EXPRESSIONS["all_reduce"]
