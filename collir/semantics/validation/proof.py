"""Proofs that two functions compute the same, or do not, by symbolic execution.

Both functions are executed on expressions (``semantics.symbolic``), and the expressions of their
results are compared. Equal expressions prove that the functions compute the same. If the
expressions differ, the search is for an input element that counts another number of times in some
result element, which proves that the functions differ. In this search casts count as if they
changed nothing. Expressions that differ without such an element prove nothing.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.tensor import DistTensorType
from collir.layout import DistType, Mesh
from collir.machine.counts import devices_text
from collir.semantics.symbolic.algebra import reduced, substituted
from collir.semantics.symbolic.difference import explain_difference
from collir.semantics.symbolic.execution import results_of
from collir.semantics.symbolic.expressions import (
    Expr,
    Opaque,
    UnprovenError,
)
from collir.semantics.symbolic.indices import constant
from collir.semantics.symbolic.numbering import new_numbers
from collir.semantics.symbolic.provenance import (
    ProvenDifference,
    expressions_equal,
    first_difference,
)
from collir.semantics.symbolic.uneven import (
    UnevenBuffers,
    coordinates_in,
    execution_on,
    logical_values,
    results_by_class,
)
from collir.semantics.symbolic.values import (
    Casts,
    Computations,
    ImpossibleError,
    SymbolicValue,
    UnknownComputation,
    comparable,
    coordinate_variable,
    position_variable,
)
from collir.semantics.symbolic.written_out import equal_written_out
from collir.semantics.validation.verdict import Outcome, Verdict

_FORMS = "its sums have other forms"
"""The reason why nothing is proven of functions without loops."""


def proven(before: FuncOp, after: FuncOp, bodies: dict[RepeatOp, int] | None = None) -> Verdict:
    """Return the verdict on two functions of one mesh that is proven without running them.

    Where nothing is proven, the outcome is unknown and the explanation says why.

    Args:
        bodies: the numbers of the bodies of loops (see ``loops``), if there are loops. No
            difference is proven then, and none of functions with operations of models: these may be
            equal where their forms differ.
    """
    first = Computations(bodies=bodies or {})
    verdict = _proven(before, after, first, loops=bodies is not None)
    if verdict.outcome is Outcome.UNKNOWN and first.of_models:
        second = Computations(bodies=bodies or {}, as_atoms=True)
        whole = _proven(before, after, second, loops=bodies is not None)
        return whole if whole.outcome is Outcome.SAME else verdict
    return verdict


@new_numbers()
def _proven(before: FuncOp, after: FuncOp, computations: Computations, loops: bool) -> Verdict:
    """Return the verdict on two functions, with or without loops, by one way of computing."""
    mesh = mesh_of(before)
    try:
        sides = [results_by_class(function, computations) for function in (before, after)]
        if loops or computations.of_models:
            checked = _equal_or_unknown(before, sides, "its loops differ" if loops else _FORMS)
        else:
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


def mean_the_same(before: FuncOp, after: FuncOp, bodies: dict[RepeatOp, int]) -> bool:
    """Return whether it is proven that two functions of equal tensors return equal tensors.

    Their types may have different layouts, on one mesh. The tensors count that buffers stand for.
    """
    ways = (Computations(bodies=bodies), Computations(bodies=bodies, as_atoms=True))
    return any(_mean_the_same(before, after, computations) for computations in ways)


@new_numbers()
def _mean_the_same(before: FuncOp, after: FuncOp, computations: Computations) -> bool:
    mesh = mesh_of(before)
    sides: list[list[tuple[SymbolicValue, ...]]] = []
    try:
        for function in (before, after):
            run = execution_on(mesh, computations)
            results = zip(result_types(function), results_of(function, run), strict=True)
            sides.append([run.parts(run.whole(x, value)) for x, value in results])
        return all(
            old.shape == new.shape and expressions_equal(old.expr, new.expr, Fraction(0))
            for olds, news in zip(*sides, strict=True)
            for old, new in zip(olds, news, strict=True)
        )
    except (UnprovenError, ImpossibleError, RecursionError):
        return False


def _equal_or_unknown(
    before: FuncOp, sides: Sequence[Sequence[UnevenBuffers]], reason: str
) -> Verdict | None:
    """Return the first result that is not proven to be equal, with a reason; None if all are."""
    mesh = mesh_of(before)
    types = result_types(before)
    for index, (x, old, new) in enumerate(zip(types, *sides, strict=True)):
        olds, news = (logical_values(mesh, x, side) for side in (old, new))
        if olds.keys() != news.keys() or not all(
            _is_proven_equal(mesh, x, value, news[of]) for of, value in olds.items()
        ):
            return Verdict(Outcome.UNKNOWN, "none", reason, index)
    return None


def _is_proven_equal(mesh: Mesh, x: DistType, old: SymbolicValue, new: SymbolicValue) -> bool:
    same = (old.shape, old.place) == (new.shape, new.place)
    a, b = (logical_value(mesh, x, value) for value in (old, new))
    tolerance = tolerance_of(x)
    return same and (expressions_equal(a, b, tolerance) or equal_written_out(a, b, tolerance))


def _impossible(error: ImpossibleError) -> str:
    name = error.op.result.name_hint
    step = f"%{name} = {error.op.mnemonic}" if name else error.op.mnemonic
    return f"{step} cannot be carried out: {error}"


def _results_compared(
    before: FuncOp, after: FuncOp, sides: Sequence[Sequence[UnevenBuffers]]
) -> Verdict | None:
    """Return the first proven difference, else the first unknown result; None if all are equal."""
    erased = _Erased(before, after)
    unknown: Verdict | None = None
    types = result_types(before)
    for index, (x, old, new) in enumerate(zip(types, *sides, strict=True)):
        verdict = _result_compared(erased, index, x, (old, new))
        if verdict is not None and verdict.outcome is Outcome.DIFFERENT:
            return verdict
        unknown = unknown or verdict
    return unknown


class _Erased:
    """Two functions and their results without casts, which are computed when they are needed."""

    def __init__(self, before: FuncOp, after: FuncOp):
        self.before, self.after = before, after
        self.computations = Computations()

    @cached_property
    def results(self) -> list[list[UnevenBuffers]]:
        """The results of both functions."""
        functions = (self.before, self.after)
        return [results_by_class(f, self.computations, Casts.ERASED) for f in functions]


def _result_compared(
    erased: _Erased, index: int, x: DistType, pair: tuple[UnevenBuffers, UnevenBuffers]
) -> Verdict | None:
    """Return the verdict on one result; None if it is equal on all classes of devices."""
    mesh = mesh_of(erased.before)
    unknown: Verdict | None = None
    olds, news = (logical_values(mesh, x, side) for side in pair)
    if olds.keys() != news.keys():
        first = [next(iter(side.values.values())) for side in pair]
        return Verdict(Outcome.DIFFERENT, "proof", _held(mesh, first[0], first[1]), index)
    for of, old in olds.items():
        new = news[of]
        if (old.shape, old.place) != (new.shape, new.place):
            return Verdict(Outcome.DIFFERENT, "proof", _held(mesh, old, new), index)
        if _is_proven_equal(mesh, x, old, new):
            continue
        exprs = [
            logical_value(mesh, x, logical_values(mesh, x, side[index])[of])
            for side in erased.results
        ]
        known = coordinates_in(mesh, of)
        free = [
            coordinate_variable(mesh, axis)
            for axis in mesh.by_name
            if axis not in x.partial | old.placed | known.keys()
        ]
        free += [position_variable(dim, size) for dim, size in enumerate(old.shape) if size > 1]
        difference = first_difference(exprs[0], exprs[1], free, tolerance_of(x))
        if difference is not None and not _doubtful(difference, erased.computations):
            text = explain_difference(
                difference, erased.before, mesh, x, erased.computations, old.shape, known
            )
            return Verdict(Outcome.DIFFERENT, "proof", text, index)
        unknown = unknown or Verdict(Outcome.UNKNOWN, "none", _FORMS, index)
    return unknown


def _doubtful(difference: ProvenDifference, computations: Computations) -> bool:
    """Return whether a difference is between computations that may be equal after all."""
    atoms = [difference.atom, difference.more.atom if difference.more else None]
    for number in [atom.number for atom in atoms if isinstance(atom, Opaque)]:
        computation = computations.known[number]
        for known in computations.known:
            similar = known is not computation and comparable(computation, known)
            if similar and not _differ(computation, known):
                return True
    return False


def _differ(a: UnknownComputation, b: UnknownComputation) -> bool:
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


def logical_value(mesh: Mesh, x: DistType, value: SymbolicValue) -> Expr:
    """Return the logical value of a result: reduced if partial.

    Over axes with weights it was reduced before (``logical_values``).
    """
    at = {coordinate_variable(mesh, axis): constant(n) for axis, n in value.place}
    expr = substituted(value.expr, at)
    for axis in mesh.ordered(x.partial - mesh.uneven.keys()):
        assert x.reduction is not None
        expr = reduced(expr, coordinate_variable(mesh, axis), x.reduction)
    return expr


def _held(mesh: Mesh, old: SymbolicValue, new: SymbolicValue) -> str:
    def text(x: SymbolicValue) -> str:
        by_coordinate: dict[int, list[str]] = {}
        for axis, coordinate in x.place:
            by_coordinate.setdefault(coordinate, []).append(axis)
        where = " and".join(
            f" at coordinate {coordinate} of {', '.join(mesh.ordered(axes))}"
            for coordinate, axes in sorted(by_coordinate.items())
        )
        return f"{list(x.shape)} per device{where or ' everywhere'}"

    return f"it is {text(new)} where it should be {text(old)}"


def result_types(function: FuncOp) -> list[DistType]:
    """Return the types of the results of a function."""
    return list(map(type_of_attribute, function.function_type.outputs))


def type_of_attribute(attribute: Attribute) -> DistType:
    """Return the distributed type that an attribute holds."""
    assert isinstance(attribute, DistTensorType)
    return attribute.data
