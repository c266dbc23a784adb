"""Steps of programs that send, as the cost models see them."""

from dataclasses import replace
from math import prod

from collir.algorithms.table import reason_for_library
from collir.cost.collectives.collective import (
    Collective,
    LayoutChange,
    RingShift,
    Route,
    SentBy,
)
from collir.cost.collectives.uneven import uneven_sizes
from collir.cost.model import CostModel, StepCost, is_grouped, step_cost
from collir.cost.network.group import CostError
from collir.dialects.operation import DistOp
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.remarks import remark
from collir.layout import DistType, DType, Mesh, Place
from collir.layout.sizes import as_number
from collir.layout.steps import ASYNC, OVER, Arguments, StepKind

_NO_ARGUMENTS: Arguments = {}


def op_cost(op: DistOp, mesh: Mesh, model: CostModel, place: Place = ()) -> StepCost:
    """Return the cost of a collective operation.

    Args:
        place: the coordinates of the devices that run it apart from others.

    Raises:
        DiagnosticError: the mesh is not placed on levels, or an algorithm does not fit its group;
            with its position.
    """
    collective = _at(collective_of(op, mesh), place)
    try:
        cost = step_cost(collective, model)
    except CostError as error:
        raise DiagnosticError.at(op, str(error)) from error
    if collective.library_reason and model.of(collective).model == "alpha-beta":
        name, reason = collective.algorithm, collective.library_reason
        remark(op, f"priced as a library runs `using {name}`, not as code: {reason}")
    return cost


def stream_of(collective: Collective) -> int:
    """Return the stream of a collective: the outermost level that it goes through."""
    digits = collective.group().digits
    return min((digit.level for digit in digits), default=0)


def _at(collective: Collective, place: Place) -> Collective:
    """Return a collective of the devices at a place alone."""
    new = {axis: n for axis, n in place if axis not in collective.at_root}
    strides = collective.mesh.by_name
    return replace(
        collective,
        at_root=collective.at_root.union(new),
        replicated=collective.replicated.difference(new),
        base=collective.base + sum(n * strides[axis].stride for axis, n in new.items()),
    )


def runs_grouped(op: DistOp, mesh: Mesh) -> bool:
    """Return whether NCCL is faster with one rooted collective a block than with padding, for
    blocks that differ in size; True where no time is known."""
    try:
        return is_grouped(step_cost(collective_of(op, mesh), CostModel("nccl")))
    except CostError:  # the mesh is on no levels
        return True


def collective_of(step: DistOp, mesh: Mesh) -> Collective:
    """Return a collective step as the cost models see it."""
    axes = step.over if OVER in step.kind.parameters else None
    x, y = dist_type(step.operands[0]), dist_type(step.result)
    return collective_between(step.mnemonic, mesh, x, y, axes, step.arguments)


def collective_between(
    kind: str,
    mesh: Mesh,
    x: DistType,
    y: DistType,
    axes: tuple[str, ...] | None,
    arguments: Arguments = _NO_ARGUMENTS,
) -> Collective:
    """Return the collective from one layout to another; ``axes`` is None for a permute."""
    algorithm = arguments.get("algorithm")
    uneven = uneven_sizes(mesh, x, y, axes)
    size = uneven.size if uneven else max(x.local_bytes(mesh), y.local_bytes(mesh))
    sent_by = _sent_by(arguments)
    if axes is None:
        axes = mesh.ordered({axis for z in (x, y) for dim in z.dims for axis in dim.axes})
        sent_by = LayoutChange(x, y)
    operation, reason = OPERATIONS[kind].KIND, ""
    if algorithm:
        reason = reason_for_library(
            mesh.group_size(axes),
            is_async=ASYNC.name in arguments,
            is_uneven=uneven is not None,
            joins_booleans=operation.reduces and x.dtype is DType.BOOL,
        )
    return Collective(
        kind,
        mesh,
        axes,
        as_number(size),
        at_root=x.placed - frozenset(axes),
        replicated=frozenset(mesh.by_name) - frozenset(x.axes) - frozenset(axes),
        algorithm=algorithm if isinstance(algorithm, str) else None,
        library_reason=reason,
        root=tuple((axis, n) for axis, n in x.place if axis in axes and n and not sent_by),
        sent_by=sent_by,
        base=sum(n * mesh.by_name[axis].stride for axis, n in x.place if axis not in axes),
        uneven=uneven,
        rows=_rows(operation, mesh, x, y),
    )


def _sent_by(arguments: Arguments) -> SentBy | None:
    """Return who sends to whom, if the arguments of a step say so."""
    match arguments:
        case {"sender": int(sender), "receiver": int(receiver)}:
            return Route(sender, receiver)
        case {"distance": int(distance)}:
            return RingShift(distance, "open" in arguments)
        case _:
            return None


def packs(kind: StepKind, mesh: Mesh, x: DistType, y: DistType) -> tuple[bool, bool]:
    """Return whether a device packs the blocks of a step before it sends them, and whether it
    unpacks them after."""
    before, after = _rows(kind, mesh, x, y)
    return before != 1, after != 1


def _ends(kind: StepKind, x: DistType, y: DistType) -> tuple[int, int]:
    """Return the dimension in which a step cuts its operand into blocks, and the dimension in which
    it joins blocks to its result; 0 without such blocks."""
    if not (kind.shards or kind.gathers or kind.exchanges):
        return 0, 0
    more = [len(b.axes) - len(a.axes) for a, b in zip(x.dims, y.dims, strict=True)]
    cut = next((dim for dim, count in enumerate(more) if count > 0), 0)
    return cut, next((dim for dim, count in enumerate(more) if count < 0), 0)


def _rows(kind: StepKind, mesh: Mesh, x: DistType, y: DistType) -> tuple[float, float]:
    """Return the numbers of rows over which blocks are spread: blocks cut out of an operand, and
    blocks joined to the result."""
    cut, joined = _ends(kind, x, y)
    if not (cut or joined):
        return 1, 1
    block = list(map(min, x.local_shape(mesh), y.local_shape(mesh)))
    return as_number(prod(block[:cut])), as_number(prod(block[:joined]))
