"""Proofs that two functions compute the same, or do not, by symbolic execution.

Both functions are executed on expressions (``semantics.symbolic``), and the expressions of their
results are compared. Equal expressions prove that the functions compute the same. If the
expressions differ, an input element is searched for that counts another number of times in some
result element: that proves that they do not compute the same. In this search casts count as if
they changed nothing. Expressions that differ without such an element prove nothing.
"""

from collections.abc import Sequence
from fractions import Fraction

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.tensor import DistTensorType
from collir.layout import DistType, Mesh
from collir.machine.model import devices_text
from collir.semantics.symbolic.algebra import reduced, substituted
from collir.semantics.symbolic.difference import explain_difference
from collir.semantics.symbolic.execution import (
    Casts,
    Computation,
    Computations,
    ImpossibleError,
    Value,
    comparable,
    coordinate_variable,
    position_variable,
    symbolic_results,
)
from collir.semantics.symbolic.expressions import (
    Expr,
    Opaque,
    UnprovenError,
    forget_interval_variables,
)
from collir.semantics.symbolic.indices import ZERO_INDEX
from collir.semantics.symbolic.provenance import Difference, expressions_equal, first_difference
from collir.semantics.validation.verdict import Outcome, Verdict


def proven(before: FuncOp, after: FuncOp, bodies: dict[RepeatOp, int] | None = None) -> Verdict:
    """Return the verdict on two functions of one mesh that is proven without running them.

    Where nothing is proven, the outcome is unknown and the explanation says why.

    Args:
        bodies: the numbers of the bodies of loops (see ``loops``), if there are loops. No
            difference is proven then.
    """
    mesh = mesh_of(before)
    forget_interval_variables()
    try:
        computations = Computations(bodies=bodies or {})
        sides = [symbolic_results(function, computations) for function in (before, after)]
        if bodies is None:
            checked = _results_compared(before, after, sides)
        else:
            checked = _with_loops(before, sides)
    except UnprovenError as error:
        return Verdict(Outcome.UNKNOWN, "none", str(error))
    except RecursionError:
        return Verdict(Outcome.UNKNOWN, "none", "casts or maxima are nested too deeply")
    except ImpossibleError as error:
        return Verdict(Outcome.DIFFERENT, "proof", _impossible(error))
    if checked is None:
        text = f"the same for all inputs, proven for {devices_text(mesh.devices)}"
        return Verdict(Outcome.SAME, "proof", text)
    return checked


def _with_loops(before: FuncOp, sides: Sequence[Sequence[Value]]) -> Verdict | None:
    """Return the first result that is not proven to be equal; None if all are."""
    mesh = mesh_of(before)
    types = [type_of_attribute(output) for output in before.function_type.outputs]
    for index, (x, old, new) in enumerate(zip(types, *sides, strict=True)):
        same = (old.shape, old.roots) == (new.shape, new.roots)
        pair = [logical_value(mesh, x, value) for value in (old, new)]
        if not (same and expressions_equal(pair[0], pair[1], tolerance_of(x))):
            return Verdict(Outcome.UNKNOWN, "none", "its loops differ", index)
    return None


def _impossible(error: ImpossibleError) -> str:
    name = error.op.result.name_hint
    step = f"%{name} = {error.op.mnemonic}" if name else error.op.mnemonic
    return f"{step} cannot be carried out: {error}"


def _results_compared(
    before: FuncOp, after: FuncOp, sides: Sequence[Sequence[Value]]
) -> Verdict | None:
    """Return the first proven difference, else the first unknown result; None if all are equal."""
    mesh = mesh_of(before)
    erased: list[list[Value]] | None = None
    computations = Computations()  # of both functions without casts
    unknown: Verdict | None = None
    types = [type_of_attribute(output) for output in before.function_type.outputs]
    for index, (x, old, new) in enumerate(zip(types, *sides, strict=True)):
        if (old.shape, old.roots) != (new.shape, new.roots):
            return Verdict(Outcome.DIFFERENT, "proof", _held(mesh, old, new), index)
        tolerance = tolerance_of(x)
        if expressions_equal(logical_value(mesh, x, old), logical_value(mesh, x, new), tolerance):
            continue
        if erased is None:
            erased = [symbolic_results(f, computations, Casts.ERASED) for f in (before, after)]
        pair = [logical_value(mesh, x, side[index]) for side in erased]
        axes = [axis for axis in mesh.by_name if axis not in x.partial | old.roots]
        free = [coordinate_variable(mesh, axis) for axis in axes]
        free += [position_variable(dim, size) for dim, size in enumerate(old.shape) if size > 1]
        difference = first_difference(pair[0], pair[1], free, tolerance)
        if difference is not None and not _doubtful(difference, computations):
            text = explain_difference(difference, before, mesh, x, computations)
            return Verdict(Outcome.DIFFERENT, "proof", text, index)
        unknown = unknown or Verdict(Outcome.UNKNOWN, "none", "its sums have other forms", index)
    return unknown


def _doubtful(difference: Difference, computations: Computations) -> bool:
    """Return whether a difference is between computations that may be equal after all."""
    atoms = [difference.atom, difference.more.atom if difference.more else None]
    for number in [atom.number for atom in atoms if isinstance(atom, Opaque)]:
        computation = computations.known[number]
        for other in computations.known:
            similar = other is not computation and comparable(computation, other)
            if similar and not _differ(computation, other):
                return True
    return False


def _differ(a: Computation, b: Computation) -> bool:
    """Return whether some operand of two computations is proven to differ."""
    for x, y in zip(a.operands, b.operands, strict=True):
        free = sorted(x.expr.free | y.expr.free, key=str)
        if first_difference(x.expr, y.expr, free, _FACTOR_TOLERANCE) is not None:
            return True
    return False


_FACTOR_TOLERANCE = Fraction(1, 2**21)
"""The relative difference that factors may have: 0.3333333 is accepted for a third."""


def tolerance_of(x: DistType) -> Fraction:
    """Return the relative difference that factors in a result of a type may have."""
    return min(4 * Fraction(x.dtype.epsilon or 0), _FACTOR_TOLERANCE)


def logical_value(mesh: Mesh, x: DistType, value: Value) -> Expr:
    """Return the logical value of a result: reduced if partial, coordinate 0 if at root."""
    expr = substituted(
        value.expr, {coordinate_variable(mesh, axis): ZERO_INDEX for axis in value.roots}
    )
    for axis in mesh.ordered(x.partial):
        assert x.reduction is not None
        expr = reduced(expr, coordinate_variable(mesh, axis), x.reduction)
    return expr


def _held(mesh: Mesh, old: Value, new: Value) -> str:
    def text(x: Value) -> str:
        where = f" at coordinate 0 of {', '.join(mesh.ordered(x.roots))}" if x.roots else ""
        return f"{list(x.shape)} per device{where or ' everywhere'}"

    return f"it is {text(new)} where it should be {text(old)}"


def type_of_attribute(attribute: Attribute) -> DistType:
    """Return the distributed type that an attribute holds."""
    assert isinstance(attribute, DistTensorType)
    return attribute.data
