"""Reductions that send a narrow element type and add in a wide one.

The terms of a partial value become the rows of a new dimension. An all_to_all brings the rows of
each block to one device, which adds them in the wide type. It sends as much as a reduce_scatter in
the narrow type; a following all_gather makes it an all_reduce. Over several levels, an all_to_all
over all of them sends more through the outer ports than a reduction level by level. So the first
sub-axes may be reduced in this way, and the others by a reduce_scatter of the then smaller block in
the wide type.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriterListener

from collir.cost.model import CostModel
from collir.cost.steps import seconds_of
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import dist_type, same_type
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import functions_of, meshes_of
from collir.ir.steps import step_op
from collir.layout import DistType, DType, LayoutError, Mesh, Reduction
from collir.layout.steps import Argument
from collir.synthesis.programs.fusion import only_user
from collir.synthesis.programs.rewriting import KeptCollective, erase, replace_by

Axes = tuple[str, ...]

REDUCED = {Reduction.SUM: "sum", Reduction.AVG: "mean"}
"""The operation on the rows of terms that gives a value, by the reduction of the value."""


def check_axes(module: ModuleOp, over: Sequence[str]) -> None:
    """Check that a mesh has each of some axes, or parts of axes.

    Raises:
        DiagnosticError: one diagnostic for each name that no mesh has.
    """
    meshes = [op.value() for op in meshes_of(module)]
    missing = [name for name in over if all(mesh.named(name) is None for mesh in meshes)]
    if missing:
        raise DiagnosticError(Diagnostic(f"over: no mesh has an axis '{name}'") for name in missing)


def accumulate(
    module: ModuleOp,
    dtype: DType,
    over: Sequence[str],
    model: CostModel,
    listener: PatternRewriterListener | None = None,
) -> list[KeptCollective]:
    """Rewrite the reductions of narrower element types, in place.

    Args:
        dtype: the type to add in.
        over: the axes of a reduction, or names of their parts; if there are none, any.

    Returns: the reductions that stay as they are, and why.
    """
    kept: list[KeptCollective] = []
    for function in functions_of(module):
        mesh = mesh_of(function)
        named = {part for name in over for part in mesh.named(name) or ()}
        done = set[DistOp]()
        for op in list(function.walk()):
            if not isinstance(op, DistOp) or op in done or not _is_narrow_sum(op, dtype):
                continue
            if over and not named.issuperset(op.over):
                continue
            row = _row(op, dtype)
            if (program := _cheapest(row, dtype, model)) is None:
                kept.append(_kept(op, mesh))
            else:
                program.put(row, listener)
                done.update(row)
    return kept


def _kept(op: DistOp, mesh: Mesh) -> KeptCollective:
    """Return a reduction that stays as it is, and why."""
    why = "no dimension of it divides into as many blocks"
    if left := dist_type(op.result).partial:
        rest = ", ".join(mesh.short(mesh.ordered(left)))
        why = f"it stays partial over {rest}, and terms are not rounded"
    axes = ", ".join(mesh.short(op.over))
    return KeptCollective(op, f"this {op.mnemonic} over {axes}", why)


def _row(op: DistOp, dtype: DType) -> list[DistOp]:
    """Return a reduction and the reductions behind it that reduce its result over other sub-axes.

    The terms of a value that is still partial are not rounded: one type adds them all.
    """
    row = [op]
    while dist_type(row[-1].result).partial:
        user = only_user(row[-1].result)
        if not isinstance(user, DistOp) or not _is_narrow_sum(user, dtype):
            break
        row.append(user)
    return row


def _is_narrow_sum(op: DistOp, dtype: DType) -> bool:
    """Return whether an operation adds floats narrower than ``dtype``, by any algorithm, and leaves
    the result on all devices."""
    x = dist_type(op.operands[0]) if op.operands else None
    if x is None or not op.kind.reduces or op.kind.after == "root":
        return False
    if op.properties.keys() & {"algorithm", "async", "ahead"}:
        return False
    narrow = x.dtype.is_float and dtype.holds(x.dtype) and x.dtype != dtype
    return narrow and x.reduction in REDUCED


@dataclass(frozen=True)
class _Program:
    """Steps in the place of a reduction.

    Attributes:
        ops: the steps, in order.
        wide: the value that they add up, before it is narrowed.
    """

    ops: tuple[DistOp, ...]
    wide: SSAValue

    def time(self, mesh: Mesh, model: CostModel) -> float:
        """Return the seconds of the steps."""
        return fsum(seconds_of(op, mesh, model) for op in self.ops)

    def put(self, row: Sequence[DistOp], listener: PatternRewriterListener | None) -> None:
        """Put the steps in the place of reductions behind each other.

        Casts of the result that are as wide as the sum take the sum, which is not rounded.
        """
        op, result = row[-1], self.ops[-1].result
        wide = [
            user
            for use in op.result.uses
            if isinstance(user := use.operation, DistOp) and same_type(user.result, self.wide)
            if user.kind.elementwise and user.mnemonic == "cast"
        ]
        replace_by(op, self.ops, result, listener)
        for cast in wide:
            replace_by(cast, [], self.wide, listener)
        erase(row[:-1])


def _cheapest(row: Sequence[DistOp], dtype: DType, model: CostModel) -> _Program | None:
    """Return the fastest program; None if no dimension divides."""
    mesh = mesh_of(row[0])
    programs = list(_programs(row, mesh, dtype))
    if len(programs) < 2 or not mesh.placed:
        return next(iter(programs), None)
    return min(programs, key=lambda program: program.time(mesh, model))


def _programs(row: Sequence[DistOp], mesh: Mesh, dtype: DType) -> Iterator[_Program]:
    """Yield the programs in which the terms of all sub-axes of the first reduction are sent, or of
    its first sub-axes only.

    The sub-axes of an all_reduce are taken from the innermost level outwards. The sub-axes of a
    reduce_scatter keep their order, because the blocks have it.
    """
    op = row[0]
    x, axes = dist_type(op.input), op.over
    if op.kind.shards:
        dims = [op.integer("dim")]
    else:
        axes = tuple(reversed(mesh.ordered(axes)))
        dims = list(range(len(x.dims)))
    for count in range(len(axes), 0, -1):
        for dim in dims:
            try:
                yield _program(row, mesh, dtype, (axes[:count], axes[count:]), dim)
                break
            except LayoutError:  # the dimension does not divide
                continue


def _program(
    row: Sequence[DistOp], mesh: Mesh, dtype: DType, axes: tuple[Axes, Axes], dim: int
) -> _Program:
    """Return the steps that scatter along a dimension.

    Args:
        axes: the sub-axes whose terms are sent, and the sub-axes that are reduced in ``dtype``.

    Raises:
        LayoutError: the dimension does not divide, or terms would be rounded.
    """
    (op, *behind), (first, rest) = row, axes
    x = dist_type(op.input)
    assert x.reduction is not None
    steps = _Steps(mesh, op.input, [])
    steps.then("terms", axes=first, dim=0)
    steps.then("all_to_all", axes=first, source=0, target=dim + 1)
    steps.then("cast", dtype=dtype.value)
    steps.then(REDUCED[x.reduction], dims=(0,))
    if rest:
        steps.then("reduce_scatter", axes=rest, dim=dim)
    for later in behind:
        steps.then(later.mnemonic, **later.arguments)
    wide = steps.value
    steps.then("cast", dtype=x.dtype.value)
    if not op.kind.shards:
        steps.then("all_gather", axes=(*first, *rest), dim=dim)
    if not steps.type.agrees(dist_type(row[-1].result)):
        raise LayoutError(f"the steps lead to {steps.type}")
    return _Program(tuple(steps.ops), wide)


@dataclass
class _Steps:
    """Operations on one value, typed as they are added."""

    mesh: Mesh
    value: SSAValue
    ops: list[DistOp]

    def then(self, name: str, **arguments: Argument) -> None:
        """Add an operation on the value.

        Raises:
            LayoutError: it is not well typed.
        """
        op = step_op(self.mesh, OPERATIONS[name].KIND, [self.value], **arguments)
        self.ops.append(op)
        self.value = op.result

    @property
    def type(self) -> DistType:
        """The type of the value now."""
        return dist_type(self.value)
