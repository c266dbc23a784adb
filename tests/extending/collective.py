"""A collective as an extension: a reduce and a broadcast as one step, partial -> replicated.

In collir itself each part is an entry of the table that it is added to here. docs/extending.md
quotes this file, cases.py tests it, and test_extending.py counts its parts.
"""

from collections.abc import Iterator
from dataclasses import replace

from collir.algorithms.binomial import broadcast, reduce
from collir.algorithms.moves import Algorithm, Round
from collir.algorithms.patterns import GroupShape
from collir.cost.collectives import mpich
from collir.cost.collectives.rounds import ByRounds
from collir.cost.collectives.table import COSTS, NcclKind
from collir.layout import DistType, Mesh, rules
from collir.layout.coll import row
from collir.layout.steps import OVER, USING


# 1. The typing rule, and the row.
def reduce_broadcast(mesh: Mesh, x: DistType, axes: tuple[str, ...]) -> DistType:
    """partial -> replicated, by way of the root."""
    return rules.broadcast(mesh, rules.reduce(mesh, x, axes), axes)


row(
    name="reduce_broadcast",
    rule=reduce_broadcast,
    parameters=(OVER, USING),
    before="partial",
    after="replicated",
    sends=True,
    algorithms=("binomial",),
)


# 2. The cost entry: that of an all_reduce, but with other algorithms and runtimes.
def trees(shape: GroupShape) -> Iterator[Round]:
    """Yield the rounds of a tree to the root, and back: 2 ceil(lg p) (a + n b) + ceil(lg p) n g."""
    yield from reduce(shape)
    yield from broadcast(shape)


binomial = ByRounds(Algorithm("binomial", "reduce_broadcast", trees, blocks=lambda _: 1))

COSTS["reduce_broadcast"] = replace(
    COSTS["all_reduce"],
    algorithms={"binomial": binomial},
    mpich=mpich.rooted,
    p2=("binomial", binomial),
    nccl=NcclKind(steps=lambda ranks: 2 * ranks, tree=False),
)

# The rest of collir is imported only now, because it makes its operations from the table.

from collir.dialects.machine import mesh_of  # noqa: E402
from collir.dialects.operation import DistOp  # noqa: E402
from collir.dialects.tensor import dist_type  # noqa: E402
from collir.semantics.local.groups import GROUPS, GroupMeaning, combined  # noqa: E402
from collir.semantics.reference import collectives  # noqa: E402
from collir.semantics.reference.collectives import Buffers  # noqa: E402
from collir.semantics.reference.steps import MEANINGS, Args, Meaning  # noqa: E402
from collir.semantics.symbolic import execution  # noqa: E402
from collir.targets.code import (  # noqa: E402
    c_collectives,
    c_file,
    jax_ops,
    mpi4py,
    nccl_method,
    rank_method,
    torch,
)
from collir.targets.code import mpi_method as mpi  # noqa: E402


# 3. The rules of the oracles: on buffers, and on expressions.
def run(op: DistOp, args: Args) -> Buffers:
    """Return the buffers after a reduce and a broadcast of its result."""
    mesh, reduction = mesh_of(op), dist_type(op.input).reduction
    assert reduction is not None
    reduced = collectives.reduce(mesh, args[0], op.over, reduction)
    return collectives.broadcast(mesh, reduced, op.over)


MEANINGS["reduce_broadcast"] = Meaning(run)
execution.RULES["reduce_broadcast"] = lambda run, op, xs: run.reduce(op, xs[0], op.over)
GROUPS["reduce_broadcast"] = GroupMeaning(lambda op, parts, _: [combined(op, parts)] * len(parts))

# 4. The line of each code target: a section of a runtime, or a method.
mpi.ARGUMENTS["reduce_broadcast"] = c_collectives.CallArguments("{x}, {y}, {n}, {type}, {op}")
c_file.sections("mpi_runtime.c")["reduce_broadcast"] = (
    ("reduce", "broadcast"),
    """\
static int reduce_broadcast(const void *in, void *out, size_t n, MPI_Datatype type, MPI_Op op,
                            MPI_Comm comm, MPI_Request *request)
{
  int err = reduce(in, out, n, type, op, 0, comm, NULL);
  return err != MPI_SUCCESS ? err : broadcast(out, out, n, type, 0, comm, request);
}
""",
)


def on_mpi4py(self: mpi4py.Mpi4pyMethod, s: rank_method.CollectiveCall) -> list[str]:
    """Return the statements in Python, on numpy."""
    arrays = [self.bits(s, s.source), self.bits(s, s.out)]
    reduced = self.called(s, "Reduce", *arrays, self.operator(s))
    return [*s.new, reduced, self.called(s, "Bcast", arrays[1]), *self.average(s)]


def on_torch(self: torch.TorchMethod, s: rank_method.CollectiveCall) -> list[str]:
    """Return the statements in Python, on torch."""
    reduced = self.called(s, "reduce", s.out, "group_dst=0", self.operator(s))
    sent = self.called(s, "broadcast", s.out, "group_src=0")
    return [self.result_is(s, s.source), reduced, sent, *self.average(s)]


nccl_method.CALLS["reduce_broadcast"] = c_collectives.CallArguments(
    "ncclReduce({x}, {y}, {n}, {type}, {op}, 0; ncclBroadcast({y}, {y}, {n}, {type}, 0"
)
mpi4py.Mpi4pyMethod.COLLECTIVES["reduce_broadcast"] = on_mpi4py
torch.TorchMethod.COLLECTIVES["reduce_broadcast"] = on_torch
jax_ops.EXPRESSIONS["reduce_broadcast"] = jax_ops.EXPRESSIONS["all_reduce"]
