"""Programs for an ``all_reduce`` over an axis with weights.

Searches for programs know equal blocks only. Over an axis with weights, an all_reduce is split into
reduce_scatters and all_gathers, in one step or level by level, along each dimension that divides.
"""

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriterListener

from collir.cost.model import CostModel, step_cost
from collir.cost.network.group import CostError
from collir.cost.programs.cost import collective_between, collective_of
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import AxesAttr, dist_type
from collir.layout import DistType, LayoutError, Mesh
from collir.layout.coll import step_between
from collir.layout.steps import StepKind
from collir.synthesis.programs.choices import TIE, needs_search
from collir.synthesis.programs.rewriting import KeptCollective, replace_by
from collir.synthesis.programs.strategies import axes_by_level

Axes = tuple[str, ...]
_Step = tuple[StepKind, Axes]


def split_all_reduces(
    function: FuncOp, model: CostModel, listener: PatternRewriterListener | None = None
) -> list[KeptCollective]:
    """Rewrite every all_reduce of a function that is faster in several steps, in place.

    Returns: what stays as it is written.
    """
    name = function.sym_name.data
    ends = ("partial", "replicated")
    steps = [op for op in function.body.ops if isinstance(op, DistOp) and needs_search(op)]
    placed = mesh_of(function).placed
    found = [op for op in steps if placed and (op.kind.before, op.kind.after) == ends]
    if not found:
        why = "it names an axis with weights, and only all_reduces over such axes are split"
        return [KeptCollective(function, f"@{name}", why)]
    return [
        KeptCollective(op, f"this {op.mnemonic}", "no reduce_scatter and all_gather are faster")
        for op in found
        if not _split(op, model, listener)
    ]


def _split(op: DistOp, model: CostModel, listener: PatternRewriterListener | None) -> bool:
    """Put the fastest program in the place of an all_reduce, if it is faster."""
    mesh, x = mesh_of(op), dist_type(op.input)
    try:
        least = step_cost(collective_of(op, mesh), model).time * (1 - TIE)
    except CostError:
        return False
    best: tuple[list[_Step], int] | None = None
    for steps in _programs(mesh, op):
        for dim in range(len(x.dims)):
            time = _time(mesh, x, steps, dim, model)
            if time is not None and time < least:
                least, best = time, (steps, dim)
    if best is None:
        return False
    ops = _built(mesh, op.input, *best)
    for step in ops:
        step.properties |= op.timing
    replace_by(op, ops, ops[-1].result, listener)
    return True


def _programs(mesh: Mesh, op: DistOp) -> Iterator[list[_Step]]:
    """Yield the programs to try: at once, and level by level inwards and outwards; the last level
    may be reduced as a whole."""
    scatters, gathers = step_between("partial", "sharded"), step_between("sharded", "replicated")
    assert scatters is not None and gathers is not None
    levels = axes_by_level(mesh, op.over)
    for order in dict.fromkeys([(op.over,), tuple(levels), tuple(reversed(levels))]):
        for scattered in {len(order), max(1, len(order) - 1)}:
            inwards = [(scatters, part) for part in order[:scattered]]
            between = [(op.kind, part) for part in order[scattered:]]
            outwards = [(gathers, part) for part in reversed(order[:scattered])]
            yield [*inwards, *between, *outwards]


def _time(
    mesh: Mesh, x: DistType, steps: Sequence[_Step], dim: int, model: CostModel
) -> float | None:
    """Return the seconds of a program along a dimension; None if it is not possible."""
    total = 0.0
    for kind, axes in steps:
        try:
            y = kind.result_type(mesh, [x], {"axes": axes, "dim": dim})
            total += step_cost(collective_between(kind.name, mesh, x, y, axes), model).time
        except (LayoutError, CostError):
            return None
        x = y
    return total


def _built(mesh: Mesh, value: SSAValue, steps: Sequence[_Step], dim: int) -> list[DistOp]:
    """Return the operations of a program on a value."""
    ops: list[DistOp] = []
    for kind, axes in steps:
        where = {"dim": IntegerAttr(dim, i64)} if kind.ordered else {}
        ops.append(OPERATIONS[kind.name].make(mesh, value, axes=AxesAttr(axes), **where))
        value = ops[-1].result
    return ops
