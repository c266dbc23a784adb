"""The text that explains a difference between two functions: element, device, contributions."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from xdsl.dialects.func import FuncOp

from collir.dialects.operation import value_text
from collir.dialects.tensor import dist_type
from collir.layout import DistType, Mesh
from collir.semantics.reference.devices import holder_of
from collir.semantics.symbolic.expressions import Input
from collir.semantics.symbolic.provenance import Atom, Miscount, ProvenDifference
from collir.semantics.symbolic.values import Computations, coordinate_variable, position_variable

_TIMES = {Fraction(1): "once", Fraction(2): "twice"}


def explain_difference(
    difference: ProvenDifference,
    function: FuncOp,
    mesh: Mesh,
    x: DistType,
    computations: Computations,
    shape: Sequence[int],
    known: Mapping[str, int],
) -> str:
    """Return a sentence on the wrong element of a result of type ``x``.

    Args:
        shape: the shape of the device's buffer.
        known: the coordinates of the device that are no variables.
    """
    point = difference.point
    at = [point.get(position_variable(dim, size), 0) for dim, size in enumerate(shape)]
    where = [
        f"{axis}={known.get(axis, point.get(coordinate_variable(mesh, axis), 0))}"
        for axis in mesh.by_name
        if axis not in x.partial
    ]
    on = f" on {', '.join(where)}" if where else ""
    element = f"element {at}{on}" if at else f"the value{on}"
    return f"{element} {_wrong(difference, _Names(function, mesh, computations))}"


def _wrong(difference: ProvenDifference, names: "_Names") -> str:
    """Return the predicate of the sentence: the first element that counts wrongly, and how."""
    if difference.atom is None:
        constants = _number(difference.actual), _number(difference.expected)
        return f"has the constant {constants[0]} in it, and not {constants[1]}"
    atom, more = names.atom(difference.atom), difference.more
    if difference.alone and not difference.actual:
        actual = names.atom(more.atom) if more else _number(difference.constants[1])
        return f"is {actual} where {atom} should be"
    if difference.alone and not difference.expected:
        return f"is {atom} where {_number(difference.constants[0])} should be"
    if not difference.actual:
        text = f"lacks the contribution of {atom}"
        return f"{text}, and {_miscounted(names.atom(more.atom), more)}" if more else text
    return _miscounted(atom, Miscount(difference.atom, difference.expected, difference.actual))


def _miscounted(atom: str, miscount: Miscount) -> str:
    """Return the predicate for an input that contributes, but not as often as it should."""
    if not miscount.expected:
        return f"has a contribution of {atom} that should not be there"
    if miscount.actual == 2 * miscount.expected:
        return f"counts {atom} twice"
    return f"counts {atom} {_times(miscount.actual)}, and not {_times(miscount.expected)}"


def _times(number: Fraction) -> str:
    return _TIMES.get(number, f"{_number(number)} times")


def _number(number: Fraction) -> str:
    return str(number) if number.denominator < 1000 else f"{float(number):.6g}"


class _Names:
    """The texts for elements of inputs and of computations."""

    def __init__(self, function: FuncOp, mesh: Mesh, computations: Computations):
        self.function, self.mesh, self.computations = function, mesh, computations

    def atom(self, atom: Atom) -> str:
        """Return the name of an element: its tensor, its global position, and its devices."""
        numbers = [index.offset for index in atom.at]
        if isinstance(atom, Input):
            return self._element_of_argument(atom.argument, numbers)
        named = list(zip(self.computations.variables[atom.number], numbers, strict=True))
        at = [n for var, n in named if var.kind == "index"]
        of = [f"{var.name}={n}" for var, n in named if var.kind == "device"]
        return f"{self.computations.names[atom.number]}{_listed(at)}{_on(of)}"

    def _element_of_argument(self, argument: int, numbers: Sequence[int]) -> str:
        arg = self.function.args[argument]
        x = dist_type(arg)
        at, partial = numbers[: len(x.dims)], numbers[len(x.dims) :]
        of: list[str] = []
        for dim, position in zip(x.dims, at, strict=True):
            coordinates = holder_of(self.mesh, dim, position)
            of += [f"{axis}={coordinate}" for axis, coordinate in coordinates]
        partial_axes = self.mesh.ordered(x.partial)
        of += [f"{axis}={n}" for axis, n in zip(partial_axes, partial, strict=True)]
        return f"{value_text(arg, f'argument {argument}')}{_listed(at)}{_on(of)}"


def _listed(at: Sequence[int]) -> str:
    return str(list(at)) if at else ""


def _on(of: Sequence[str]) -> str:
    return f" of {', '.join(of)}" if of else ""
