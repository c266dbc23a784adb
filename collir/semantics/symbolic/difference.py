"""A difference between two functions in words: which element, on which device, made of what."""

from collections.abc import Sequence
from fractions import Fraction

from xdsl.dialects.func import FuncOp

from collir.dialects.operation import value_text
from collir.dialects.tensor import dist_type
from collir.layout import DistType, Mesh
from collir.semantics.symbolic.execution import Computations, device, place
from collir.semantics.symbolic.expressions import Input
from collir.semantics.symbolic.provenance import Atom, Count, Difference

_TIMES = {Fraction(1): "once", Fraction(2): "twice"}


def explain_difference(
    difference: Difference, function: FuncOp, mesh: Mesh, x: DistType, computations: Computations
) -> str:
    """What is wrong with an element of a result of type ``x`` of a function."""
    point = difference.point
    shape = x.local_shape(mesh)
    at = [point.get(place(dim, size), 0) for dim, size in enumerate(shape)]
    where = [
        f"{axis}={point.get(device(mesh, axis), 0)}"
        for axis in mesh.by_name
        if axis not in x.partial
    ]
    on = f" on {', '.join(where)}" if where else ""
    element = f"element {at}{on}" if at else f"the value{on}"
    return f"{element} {_wrong(difference, _Names(function, mesh, computations))}"


def _wrong(found: Difference, names: "_Names") -> str:
    if found.atom is None:
        return f"has the constant {_number(found.found)} in it, and not {_number(found.expected)}"
    atom, should, does = names.atom(found.atom), found.expected, found.found
    more = found.more
    if found.alone and not does:
        there = names.atom(more.atom) if more else _number(found.constants[1])
        return f"is {there} where {atom} should be"
    if found.alone and not should:
        return f"is {atom} where {_number(found.constants[0])} should be"
    if not does:
        text = f"lacks the contribution of {atom}"
        return f"{text}, and {_too_much(names.atom(more.atom), more)}" if more else text
    return _too_much(atom, Count(found.atom, should, does))


def _too_much(atom: str, one: Count) -> str:
    """What is wrong with an input that does contribute."""
    if not one.expected:
        return f"has a contribution of {atom} that should not be there"
    if one.found == 2 * one.expected:
        return f"counts {atom} twice"
    return f"counts {atom} {_times(one.found)}, and not {_times(one.expected)}"


def _times(number: Fraction) -> str:
    return _TIMES.get(number, f"{_number(number)} times")


def _number(number: Fraction) -> str:
    return str(number) if number.denominator < 1000 else f"{float(number):.6g}"


class _Names:
    """What inputs of a function are called."""

    def __init__(self, function: FuncOp, mesh: Mesh, computations: Computations):
        self.function, self.mesh, self.computations = function, mesh, computations

    def atom(self, atom: Atom) -> str:
        """An element: of which input, where in the whole, and on which devices that is."""
        numbers = [index.offset for index in atom.at]
        if not isinstance(atom, Input):
            variables = self.computations.variables[atom.number]
            named = zip(variables, numbers, strict=True)
            at = [n for var, n in named if var.kind == "index"]
            named = zip(variables, numbers, strict=True)
            of = [f"{var.name}={n}" for var, n in named if var.kind == "device"]
            return f"{self.computations.names[atom.number]}{_listed(at)}{_on(of)}"
        arg = self.function.args[atom.argument]
        x = dist_type(arg)
        rank = len(x.dims)
        of: list[str] = []
        for dim, local, number in zip(
            x.dims, x.local_shape(self.mesh), numbers[:rank], strict=True
        ):
            index = number // local
            digits: list[str] = []
            for axis in reversed(dim.axes):
                index, digit = divmod(index, self.mesh.by_name[axis].size)
                digits.append(f"{axis}={digit}")
            of += digits[::-1]
        partial = self.mesh.ordered(x.partial)
        of += [f"{axis}={n}" for axis, n in zip(partial, numbers[rank:], strict=True)]
        name = value_text(arg, f"argument {atom.argument}")
        return f"{name}{_listed(numbers[:rank])}{_on(of)}"


def _listed(at: Sequence[int]) -> str:
    return str(list(at)) if at else ""


def _on(of: Sequence[str]) -> str:
    return f" of {', '.join(of)}" if of else ""
