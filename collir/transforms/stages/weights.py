"""The weights of the axis of a pipeline: how many layers each of its places has."""

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.traits import SymbolTable

from collir.dialects.machine import MESH_ATTRIBUTE, AxisAttr, MeshOp, module_of
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.steps import first_use
from collir.layout.cuts import pieces
from collir.transforms.stages.outlining import PipelineAxis


def shares_on(axis: PipelineAxis) -> tuple[int, ...]:
    """Return the shares of the places of an axis, without a common divisor."""
    shares = pieces(axis.mesh, (), axis.subs)
    assert shares is not None
    return shares


def with_shares(function: FuncOp, axis: PipelineAxis, shares: Sequence[int]) -> PipelineAxis:
    """Give the axis of a pipeline the weights of its places in the mesh, and return the new axis.

    Raises:
        DiagnosticError: another function uses the axis, and would be cut otherwise.
    """
    if tuple(shares) == shares_on(axis):
        return axis
    own = function.attributes[MESH_ATTRIBUTE]
    assert isinstance(own, SymbolRefAttr)
    mesh = SymbolTable.lookup_symbol(function, own)
    assert isinstance(mesh, MeshOp)
    name, listed = axis.mesh.by_name[axis.subs[0]].axis, ", ".join(map(str, shares))
    if axis.subs != tuple(axis.mesh.of_axis[name]):
        raise DiagnosticError.at(
            mesh,
            f"places with {listed} shares of the layers need an axis of their own, and "
            f"{', '.join(axis.subs)} is a part of axis '{name}': make it an axis",
        )
    for user in functions_of(module_of(function)):
        if user is function or user.attributes.get(MESH_ATTRIBUTE) != own:
            continue
        if (op := first_use(user, axis.subs)) is not None:
            raise DiagnosticError.at(
                op,
                f"@{user.sym_name.data} uses axis '{name}', which gets the weights {listed} for "
                f"the layers of @{function.sym_name.data}: give the pipeline a mesh of its own, or "
                f"write weights [{listed}] in the mesh",
            )
    axes = [attr.value() for attr in mesh.axes]
    axes = [axis.weighted(shares) if axis.name == name else axis for axis in axes]
    mesh.properties["axes"] = ArrayAttr(map(AxisAttr.of, axes))
    return PipelineAxis(mesh.value(), axis.subs)
