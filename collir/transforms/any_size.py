"""Functions for values of any size: size parameters become arguments of the code.

A function without size parameters gets ``width``, the size of a new last dimension of every value:
each element becomes a row of ``width`` elements.

Each step is typed again with open sizes, which are equal only if their formulas are. So code that
does not look at the values is right for all of them, except where a step needs more than equal
sizes: sizes that divide, or a ``pad`` that still adds or cuts off. These are the conditions, which
the code has to check.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from collir.dialects.machine import NumberAttr, mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, SizeAttr, SizesAttr, dist_type
from collir.ir.alternatives import alternatives
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, note
from collir.ir.functions import functions_of
from collir.ir.parameters import parameters_of, set_parameters
from collir.ir.renaming import map_attributes
from collir.ir.retyping import retype
from collir.ir.verification import verify
from collir.layout import Dim, DistType
from collir.layout.coll import PAD
from collir.layout.formulas import Formula
from collir.layout.sizes import LIMIT, OpenSize, Size, formula_of
from collir.layout.steps import ArgumentKind

WIDTH = "width"
"""The parameter of functions that have none of their own."""

Naming = Callable[[Sequence[str]], Sequence[str]]
"""A function from names, those of functions first, to distinct names in another language."""


def open_sizes(
    module: ModuleOp, written: ModuleOp, naming: Naming, widths: bool = True
) -> set[FuncOp]:
    """Give every function of a module size parameters, and open its sizes, in place; return the
    functions that got a width.

    Args:
        module: the module, without calls.
        written: the module before its calls and loops were prepared for code.
        naming: the new names of parameters in formulas.
        widths: whether functions without parameters get a width; else they stay as they are.

    Raises:
        DiagnosticError: a step is not well typed for all values, a parameter cannot be open, or
            code cannot compare values to choose between functions.
    """
    functions = functions_of(module)
    _check_kept(functions, written)
    _check_choices(module)
    taken = [function.sym_name.data for function in functions]
    if not widths:
        functions = [function for function in functions if parameters_of(function)]
    wide = {function for function in functions if not parameters_of(function)}
    for function in functions:
        parameters = parameters_of(function)
        if function in wide:
            _add_width(function)
            parameters = parameters_of(function)
        # Numbers of ranks are formulas over parameters and sub-axes, whose names differ.
        axes = [axis for axis in mesh_of(function).by_name if axis in parameters]
        names = naming([*taken, *axes, *parameters])[len(taken) + len(axes) :]
        renamed = dict(zip(parameters, map(Formula.parameter, names), strict=True))
        try:
            retype(function, partial(_opened, names=renamed))
        except DiagnosticError as error:
            raise _for_any(names, error) from error
        set_parameters(function, dict(zip(names, parameters.values(), strict=True)))
    try:
        verify(module)
    except DiagnosticError as error:
        names = dict.fromkeys(name for f in functions for name in parameters_of(f))
        raise _for_any(list(names), error) from error
    return wide


def _opened(size: int, names: Mapping[str, Formula]) -> int:
    return OpenSize(int(size), formula_of(size).substituted(names))


def _for_any(names: Sequence[str], error: DiagnosticError) -> DiagnosticError:
    """Return an error whose messages begin with the parameters that may have any value."""
    listed = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
    return DiagnosticError(
        replace(diagnostic, message=f"for any {listed}, {diagnostic.message}")
        for diagnostic in error.diagnostics
    )


def _check_kept(functions: Iterable[FuncOp], written: ModuleOp) -> None:
    """Check that no parameter was fixed while loops were prepared.

    Raises:
        DiagnosticError: one has.
    """
    before = {f.sym_name.data: parameters_of(f) for f in functions_of(written)}
    for function in functions:
        name = function.sym_name.data
        if fixed := [p for p in before.get(name, {}) if p not in parameters_of(function)]:
            raise DiagnosticError.at(
                function,
                f"'{fixed[0]}' counts the iterations of a loop with steps that are ahead, and so "
                "cannot be an argument of the code: leave out ahead, or fix it by -p unroll",
            )


def _check_choices(module: ModuleOp) -> None:
    """Check that a function and its replacements for larger values have the same parameter.

    Raises:
        DiagnosticError: one diagnostic for each function that has other parameters, or several.
    """
    functions = {function.sym_name.data: function for function in functions_of(module)}
    errors: list[Diagnostic] = []
    for name, others in alternatives(module).items():
        parameters = parameters_of(functions[name])
        for _, function in others:
            if parameters_of(function) != parameters:
                problem = f"the parameters of @{function.sym_name.data} are not those of @{name}"
            elif len(parameters) > 1:
                listed = ", ".join(parameters)
                problem = (
                    f"@{name} has several size parameters ({listed}), and code for any size "
                    "compares one to choose a function for larger values: leave those functions out"
                )
            else:
                continue
            where = note(f"@{name} is defined here", Position.of(functions[name]))
            errors.append(Diagnostic(problem, Position.of(function), (where,)))
    if errors:
        raise DiagnosticError(errors)


# ---------------------------------------------------------------------------------------------
# The width
# ---------------------------------------------------------------------------------------------


def _add_width(function: FuncOp) -> None:
    """Add a dimension of size ``width`` behind the others of all values of a function, in place.

    Raises:
        DiagnosticError: a computation has too many operations.
    """
    width = Size(1, Formula.parameter(WIDTH))
    set_parameters(function, {WIDTH: 1})

    def widened(attribute: Attribute) -> Attribute:
        if not isinstance(attribute, DistTensorType):
            return attribute
        x = attribute.data
        return DistTensorType(replace(x, dims=(*x.dims, Dim(width))))

    for op in function.walk():
        if isinstance(op, DistOp):
            _widen_arguments(op, width)
    map_attributes(function, widened)


def _widen_arguments(op: DistOp, width: Size) -> None:
    """Change the arguments of a step that depend on the number or the size of dimensions."""
    for parameter in op.kind.parameters:
        old = op.properties.get(parameter.name)
        if parameter.of_dims and isinstance(old, SizesAttr):
            last = width if parameter.of_dims == "size" else len(old.data)
            op.properties[parameter.name] = SizesAttr((*old.data, last))
        elif op.kind.computes and isinstance(old, NumberAttr):
            if old.data >= LIMIT:
                raise DiagnosticError.at(op, "for any width, flops are below 2^63")
            if old.data:
                op.properties[parameter.name] = SizeAttr(math.ceil(old.data) * width)


# ---------------------------------------------------------------------------------------------
# The conditions
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    """A condition on the values of parameters: a formula is an integer from ``least``, and the
    terms above and below its fraction bar are below 2^63."""

    formula: Formula
    least: int = 1

    @property
    def problem(self) -> str:
        """The words for values that break it."""
        if is_product(self.formula):
            return f"{self.formula} is {'0' if self.least else 'too large'}"
        return f"{self.formula} is no size"


def conditions(function: FuncOp) -> list[Condition]:
    """Return the conditions under which the code of a function with open sizes is right.

    Conditions that follow from others are left out.
    """
    needed = [c for c in dict.fromkeys(_needed(function)) if not is_product(c.formula)]
    bounds = [Condition(x, 0) for x in _largest(list(_bounds(function)))]
    names = parameters_of(function)
    positive = [name for name in names if not any(_implies(c, name) for c in needed)]
    first = [Condition(Formula.parameter(name)) for name in positive]
    return list(dict.fromkeys([*first, *needed, *bounds]))


def _implies(condition: Condition, name: str) -> bool:
    """Return whether a condition multiplies or divides all by a parameter, which then is not 0."""
    above, below = condition.formula.fraction()
    products = [above, below] if condition.least else [below]
    return any(len(x.terms) == 1 and name in x.parameters for x in products)


def _needed(function: FuncOp) -> Iterator[Condition]:
    mesh = mesh_of(function)
    for value in _values(function):
        for size in dist_type(value).local_shape(mesh):
            yield from _of_size(function, size)
    for op in function.walk():
        if isinstance(op, RepeatOp):
            yield from _of_size(op, op.times)
        elif isinstance(op, DistOp):
            yield from _of_arguments(op)


def _of_size(op: Operation, size: int, least: int = 1) -> Iterator[Condition]:
    """Yield the condition that a size is an integer.

    Raises:
        DiagnosticError: it divides by a difference, which could be negative.
    """
    if not isinstance(size, OpenSize):
        return
    _, below = size.formula.fraction()
    if any(number < 0 for _, number in below.terms):
        raise DiagnosticError.at(
            op, f"{size} divides by a difference: code for any size can divide by products and sums"
        )
    yield Condition(size.formula, least)


def _of_arguments(op: DistOp) -> Iterator[Condition]:
    """Yield the conditions on the arguments of a step: they keep the signs of the defaults.

    Raises:
        DiagnosticError: an argument has to be a number.
    """
    for parameter in op.kind.parameters:
        value = op.arguments.get(parameter.name)
        if not isinstance(value, OpenSize):
            continue
        amount = parameter.kind is ArgumentKind.INTEGER and not parameter.required
        if not (amount or op.kind.computes):
            raise DiagnosticError.at(
                op, f"{parameter.keyword} is {value} here: code for any size needs a number"
            )
        yield from _of_size(op, value if value > 0 else -value, 0)
    if op.kind is PAD:
        before = dist_type(op.input).shape[op.integer("dim")]
        kept = before + min(op.integer("low"), 0) + min(op.integer("high"), 0)
        yield from _of_size(op, kept)


def _values(function: FuncOp) -> Iterator[SSAValue]:
    """Yield the values of a function, those in the bodies of loops too."""
    for op in function.walk():
        yield from op.results
        for region in op.regions:
            for block in region.blocks:
                yield from block.args


def _bounds(function: FuncOp) -> Iterator[Formula]:
    """Yield sums of products at least as large as all numbers that lead to a value's bytes."""
    mesh = mesh_of(function)
    for value in _values(function):
        x: DistType = dist_type(value)
        count = math.prod(x.local_shape(mesh)) * x.dtype.bytes
        if isinstance(count, OpenSize):
            for part in count.formula.fraction():
                if part.parameters:
                    yield Formula(tuple((powers, abs(number)) for powers, number in part.terms))


def is_product(formula: Formula) -> bool:
    """Return whether a formula is a product, or a sum of products, of parameters and positive
    integers. It is then an integer from 1 for all positive values that are small enough."""
    above, below = formula.fraction()
    positive = all(number > 0 for _, number in above.terms)
    return below == Formula.constant(1) and positive and bool(above.terms)


def _largest(formulas: Sequence[Formula]) -> list[Formula]:
    """Return sums of products, without those whose terms all occur at least as often in another."""
    kept: list[Formula] = []
    for formula in formulas:
        if not any(is_product(other - formula) or other == formula for other in kept):
            kept = [other for other in kept if not is_product(formula - other)]
            kept.append(formula)
    return kept
