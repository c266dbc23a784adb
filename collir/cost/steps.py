"""The time of a step that runs alone, as a simulation of it alone would take.

Searches compare programs with it: steps that send or compute, built or only planned. Costs of where
a value lies, such as the copy of a returned result that lies in another buffer, need the whole
function (``collir.cost.programs.simulate``).
"""

from collections.abc import Iterable, Mapping, Sequence
from math import fsum

from xdsl.ir import Attribute, Block

from collir.cost.collectives.phases import Phase
from collir.cost.model import CostModel, StepCost
from collir.cost.network.group import CostError
from collir.cost.programs.collectives import op_cost
from collir.cost.programs.local_steps import COPY, LocalStep, local_phases, sent_phases
from collir.cost.programs.operations import local_step
from collir.dialects.operation import DistOp, is_collective
from collir.dialects.tensor import DistTensorType
from collir.ir.diagnostics import DiagnosticError
from collir.layout import DistType, Mesh


def seconds_of(op: DistOp, mesh: Mesh, model: CostModel) -> float:
    """Return the seconds of an operation that runs alone, on the slowest devices of a mesh.

    Raises:
        CostError: it has no cost, as on a mesh on no levels or on a device without a rate.
    """
    try:
        if is_collective(op):
            return seconds_sent(op_cost(op, mesh, model))
        return seconds_local(local_step(op, mesh), mesh)
    except DiagnosticError as error:
        raise CostError(str(error)) from error


def seconds_sent(cost: StepCost) -> float:
    """Return the seconds of a collective that runs alone."""
    return _seconds(sent_phases(cost))


def seconds_local(does: LocalStep, mesh: Mesh) -> float:
    """Return the seconds of a local step that runs alone, on the slowest devices of a mesh."""
    return _seconds(local_phases(does, mesh.machine.slowest))


def local_seconds(steps: Iterable[DistOp], mesh: Mesh, scale: float = 1.0) -> float:
    """Return the total seconds of the steps of a plan that send nothing.

    Args:
        scale: the factor by which the sizes of values are multiplied.

    Raises:
        CostError: see ``seconds_of``.
    """
    local = (local_step(op, mesh).scaled(scale) for op in steps if op.kind.local)
    return fsum(seconds_local(does, mesh) for does in local)


def copy_seconds(size: float, mesh: Mesh) -> float:
    """Return the seconds in which a device of a mesh reads some bytes and writes as many."""
    return seconds_local(LocalStep(COPY, 2 * size), mesh)


def standing_alone(
    kind: type[DistOp],
    properties: Mapping[str, Attribute],
    operands: Sequence[DistType],
    result: DistType,
) -> DistOp:
    """Return an operation on values that nothing makes, to be priced."""
    return kind.create(
        operands=Block(arg_types=[DistTensorType(x) for x in operands]).args,
        properties=dict(properties),
        result_types=[DistTensorType(result)],
    )


def _seconds(phases: Iterable[Phase]) -> float:
    return fsum(phase.time for phase in phases)
