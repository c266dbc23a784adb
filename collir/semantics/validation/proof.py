"""Whether two functions compute the same, from what every element of a result is made of.

Both are run on expressions (symbolic.py), and the forms of their results are compared. Where they
differ, an element is looked for of which an input counts another number of times: with it, the
difference is certain. In that search casts count as if they changed nothing. Forms that differ
without such an element prove nothing.
"""

from collections.abc import Sequence
from fractions import Fraction

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from collir.dialects.machine import mesh_of
from collir.dialects.tensor import DistTensorType
from collir.layout import DistType, Mesh
from collir.machine.model import devices_text
from collir.semantics.symbolic.algebra import reduced, replaced
from collir.semantics.symbolic.difference import explain_difference
from collir.semantics.symbolic.execution import (
    Casts,
    Computation,
    Computations,
    ImpossibleError,
    Value,
    alike,
    device,
    place,
    results,
)
from collir.semantics.symbolic.expressions import Expr, Opaque, UnprovenError, forget_branches
from collir.semantics.symbolic.indices import ZERO
from collir.semantics.symbolic.provenance import Difference, equal, first_difference
from collir.semantics.validation.verdict import Outcome, Verdict


def proven(before: FuncOp, after: FuncOp) -> Verdict:
    """What can be told of two functions on one mesh without running them.

    Where that is nothing, the explanation says why.
    """
    mesh = mesh_of(before)
    forget_branches()
    try:
        computations = Computations()
        sides = [results(function, computations) for function in (before, after)]
        checked = _results_compared(before, after, sides)
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


def _impossible(error: ImpossibleError) -> str:
    name = error.op.result.name_hint
    step = f"%{name} = {error.op.mnemonic}" if name else error.op.mnemonic
    return f"{step} cannot be carried out: {error}"


def _results_compared(
    before: FuncOp, after: FuncOp, sides: Sequence[Sequence[Value]]
) -> Verdict | None:
    """The first result that is not the same; None if all are."""
    mesh = mesh_of(before)
    erased: list[list[Value]] | None = None
    computations = Computations()  # of the two without casts
    unknown: Verdict | None = None
    types = [of_attribute(output) for output in before.function_type.outputs]
    for index, (x, old, new) in enumerate(zip(types, *sides, strict=True)):
        if (old.shape, old.roots) != (new.shape, new.roots):
            return Verdict(Outcome.DIFFERENT, "proof", _held(mesh, old, new), index)
        tolerance = min(4 * Fraction(x.dtype.epsilon or 0), _CONSTANTS)
        if equal(meant(mesh, x, old), meant(mesh, x, new), tolerance):
            continue
        if erased is None:
            erased = [results(f, computations, Casts.ERASED) for f in (before, after)]
        pair = [meant(mesh, x, side[index]) for side in erased]
        axes = [axis for axis in mesh.by_name if axis not in x.partial | old.roots]
        free = [device(mesh, axis) for axis in axes]
        free += [place(dim, size) for dim, size in enumerate(old.shape) if size > 1]
        found = first_difference(pair[0], pair[1], free, tolerance)
        if found is not None and not _doubtful(found, computations):
            text = explain_difference(found, before, mesh, x, computations)
            return Verdict(Outcome.DIFFERENT, "proof", text, index)
        unknown = unknown or Verdict(Outcome.UNKNOWN, "none", "its sums have other forms", index)
    return unknown


def _doubtful(found: Difference, computations: Computations) -> bool:
    """Whether a difference is one of computations that may yet be the same."""
    atoms = [found.atom, found.more.atom if found.more else None]
    for number in [atom.number for atom in atoms if isinstance(atom, Opaque)]:
        one = computations.known[number]
        for other in computations.known:
            if other is not one and alike(one, other) and not _differ(one, other):
                return True
    return False


def _differ(one: Computation, other: Computation) -> bool:
    """Whether some operand of two computations is not the same for certain."""
    for mine, theirs in zip(one.operands, other.operands, strict=True):
        free = sorted(mine.expr.free | theirs.expr.free, key=str)
        if first_difference(mine.expr, theirs.expr, free, _CONSTANTS) is not None:
            return True
    return False


_CONSTANTS = Fraction(1, 2**21)
"""By how much factors may differ at most, as a part of them: one may be 0.3333333, one a third."""


def meant(mesh: Mesh, x: DistType, value: Value) -> Expr:
    """What a result stands for: where it is partial, the reduction; at root, what is there."""
    expr = replaced(value.expr, {device(mesh, axis): ZERO for axis in value.roots})
    for axis in mesh.ordered(x.partial):
        assert x.reduction is not None
        expr = reduced(expr, device(mesh, axis), x.reduction)
    return expr


def _held(mesh: Mesh, old: Value, new: Value) -> str:
    def text(x: Value) -> str:
        where = f" at coordinate 0 of {', '.join(mesh.ordered(x.roots))}" if x.roots else ""
        return f"{list(x.shape)} per device{where or ' everywhere'}"

    return f"it is {text(new)} where it should be {text(old)}"


def of_attribute(attribute: Attribute) -> DistType:
    """The distributed type that an attribute is."""
    assert isinstance(attribute, DistTensorType)
    return attribute.data
