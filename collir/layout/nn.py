"""The table of the operations of models: one row for each, with its index structure.

The typing rule of a row, its work and its gradient follow from the structure. Operands of maps
align as in numpy: from the last dimension, and a dimension of size 1 is repeated.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from collir.layout.dtypes import DType, Reduction
from collir.layout.errors import LayoutError
from collir.layout.gradients import Gradient, Reverse, Term, nothing, same
from collir.layout.mesh import Mesh
from collir.layout.steps import (
    DIM,
    TO,
    Argument,
    ArgumentKind,
    Arguments,
    Parameter,
    StepKind,
    row,
)
from collir.layout.structure import (
    REPEATED,
    Linear,
    Structure,
    index_text,
    map_structure,
    sizes_of,
    typed,
)
from collir.layout.types import Dim, DistType, check_type

NN: dict[str, StepKind] = {}
"""The rows of the nn dialect by name, in the order in which they are listed to users."""

DIMS = Parameter("dims", "dims", ArgumentKind.SIZES)
KEEPDIMS = Parameter("keepdims", "keepdims", ArgumentKind.FLAG)
VALUE = Parameter("value", "value", ArgumentKind.NUMBER)
EQUATION = Parameter("", "equation", ArgumentKind.TEXT)

StructureOf = Callable[[Sequence[DistType], Arguments], Structure]


def _row(
    name: str,
    doc: str,
    structure: StructureOf,
    operands: int | None,
    parameters: tuple[Parameter, ...] = (),
    result: DType | None = None,
    aliases: tuple[str, ...] = (),
    conditions: int = 0,
    gradient: Gradient | None = None,
) -> StepKind:
    """Add a row whose rule follows from its structure.

    Args:
        doc: the first line of the operation's documentation.
        result: the dtype of the result, if it is not that of the operands.
        conditions: the number of operands in front that are truth values.
    """

    def rule(mesh: Mesh, *values: Any) -> DistType:
        count = 1 if operands is None else operands
        xs: Sequence[DistType] = values[0] if operands is None else values[:count]
        given: Iterable[tuple[Parameter, Argument]] = zip(parameters, values[count:], strict=True)
        arguments = {x.name: value for x, value in given if value is not False}  # False: no flag
        _check_dtypes(name, xs, conditions)
        return typed(name, mesh, structure(xs, arguments), xs, result or xs[-1].dtype)

    rule.__doc__ = doc
    kind = StepKind(
        name=name,
        rule=rule,
        parameters=parameters,
        operands=operands,
        structure=structure,
        gradient=gradient,
        aliases=aliases,
    )
    return row(kind, NN)


def _check_dtypes(name: str, operands: Sequence[DistType], conditions: int) -> None:
    for number, x in enumerate(operands):
        if number < conditions and x.dtype is not DType.BOOL:
            raise LayoutError(
                f"{name} chooses by truth values, and {{{number}}} is {x.dtype}: compare it",
                operand=number,
            )
        if number > conditions and x.dtype is not operands[conditions].dtype:
            raise LayoutError(
                f"{name} needs one dtype: {{{conditions}}} is {operands[conditions].dtype} and "
                f"{{{number}}} is {x.dtype}: cast one of them",
                operand=number,
            )


# ---------------------------------------------------------------------------------------------
# einsum
# ---------------------------------------------------------------------------------------------


def equation_indices(equation: str) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Return the indices of the operands and of the result of ``b s h, h f -> b s f``.

    Raises:
        LayoutError: it is no equation, an index is twice in one operand or in the result, or only
            in the result.
    """

    def error(problem: str) -> LayoutError:
        return LayoutError(f'"{equation}" {problem}', parameter=EQUATION.name)

    if equation.count("->") != 1:
        raise error('needs one arrow, as in "b s h, h f -> b s f"')
    left, right = equation.split("->")
    operands = [tuple(part.split()) for part in left.split(",")]
    result = tuple(right.split())
    for indices in (*operands, result):
        for index in indices:
            if not (index.isascii() and index.isidentifier()):
                raise error(
                    f"has `{index}`: indices are names with spaces between them, as in "
                    '"b s h, h f -> b s f"'
                )
            if indices.count(index) > 1:
                raise error(f"has {index_text(index)} twice in `{' '.join(indices)}`")
    known = {index for indices in operands for index in indices}
    for index in result:
        if index not in known:
            raise error(f"has {index_text(index)} in the result only: no operand gives its size")
    return operands, result


def _einsum(operands: Sequence[DistType], arguments: Arguments) -> Structure:
    equation = arguments[EQUATION.name]
    assert isinstance(equation, str)
    indices, result = equation_indices(equation)
    if len(indices) != len(operands):
        raise LayoutError(
            f'"{equation}" has {len(indices)} operands, and {len(operands)} are given',
            parameter=EQUATION.name,
        )
    for number, (x, over) in enumerate(zip(operands, indices, strict=True)):
        if x.dtype is DType.BOOL:
            raise LayoutError(
                "values of bool have no product: cast them to a number first", operand=number
            )
        if len(over) != len(x.dims):
            raise LayoutError(
                f"{{{number}}} has {len(x.dims)} dimensions, but `{' '.join(over)}` has "
                f"{len(over)}",
                operand=number,
            )
    sizes = sizes_of("einsum", operands, indices)
    contracted = any(index not in result for index in sizes)
    return Structure(
        tuple(indices),
        result,
        sizes,
        linear=Linear.EACH if len(operands) > 1 else Linear.ALL,
        flops=len(operands) - 1 + contracted,
    )


def _einsum_gradient(r: Reverse, operand: int) -> Term:
    """Return the sum of products of the cotangent and the other operands.

    An index that this operand alone has was summed over, so the cotangent is repeated along it.
    """
    indices, result = equation_indices(r.arguments[EQUATION.name])
    others = [n for n in range(len(indices)) if n != operand]
    known = {index for n in others for index in indices[n]}.union(result)
    there = [index for index in indices[operand] if index in known]
    terms = ", ".join(" ".join(part) for part in (result, *(indices[n] for n in others)))
    equation = f"{terms} -> {' '.join(there)}"
    cotangent = r.g.step("einsum", *(r.x[n] for n in others), equation=equation)
    if len(there) == len(indices[operand]):
        return cotangent
    shape = [
        size if index in known else 1
        for index, size in zip(indices[operand], r.types[operand].shape, strict=True)
    ]
    return cotangent.step("reshape", shape=tuple(shape)).repeated(r.types[operand])


EINSUM = _row(
    "einsum",
    "Multiply operands and sum over the indices that the result lacks.",
    _einsum,
    None,
    (EQUATION,),
    aliases=("matmul", "dot", "bmm", "tensordot"),
    gradient=_einsum_gradient,
)

# ---------------------------------------------------------------------------------------------
# Maps
# ---------------------------------------------------------------------------------------------


def _map(
    name: str,
    doc: str,
    operands: int = 1,
    linear: Linear = Linear.NOT,
    flops: int = 1,
    result: DType | None = None,
    floats: bool = False,
    conditions: int = 0,
    gradient: Gradient | None = None,
    aliases: tuple[str, ...] = (),
) -> StepKind:
    """Add the row of an elementwise operation.

    Args:
        floats: whether it is of floating-point numbers only.
        conditions: the number of operands in front that are truth values.
    """

    def structure(xs: Sequence[DistType], arguments: Arguments) -> Structure:
        dtype = xs[conditions].dtype
        if (dtype is DType.BOOL and not conditions) or (floats and not dtype.is_float):
            raise LayoutError(
                f"{name} is of {'floating-point ' * floats}numbers, and {{0}} is {dtype}: cast it",
                operand=0,
            )
        return map_structure(name, xs, linear, flops)

    return _row(
        name,
        doc,
        structure,
        operands,
        result=result,
        aliases=aliases,
        conditions=conditions,
        gradient=gradient,
    )


def _chosen(r: Reverse, operand: int, choice: str) -> Term:
    """Return the cotangent where a comparison of this operand with the other holds, and half of it
    where they are equal (as jax and torch do)."""
    x, other, zero = r.x[operand], r.x[1 - operand], r.g.full(0)
    half = r.g.step("scale", factor=0.5)
    tie = x.step("equal", other).step("where", half, zero)
    return x.step(choice, other).step("where", r.g, tie)


def _where_gradient(r: Reverse, operand: int) -> Term | None:
    """Return the cotangent where the operand was chosen."""
    if operand == 0:
        return None
    zero = r.g.full(0)
    return r.x[0].step("where", *((r.g, zero) if operand == 1 else (zero, r.g)))


def _silu_gradient(r: Reverse, operand: int) -> Term:
    (x,) = r.x
    s = x.step("sigmoid")
    g = r.g * s
    return g + g * x - g * x * s


def _gelu_gradient(r: Reverse, operand: int) -> Term:
    """Return g (1 + t + x (1 - t^2) u') / 2, where t = tanh(u) and u' = k (1 + 3 c x^2)."""
    (x,) = r.x
    k, c = math.sqrt(2 / math.pi), 0.044715
    square = x * x
    inner = (x + (square * x).step("scale", factor=c)).step("scale", factor=k)
    t = inner.step("tanh")
    slope = x.step("scale", factor=k) + (square * x).step("scale", factor=3 * c * k)
    half = r.g.step("scale", factor=0.5)
    return half + half * t + half * slope * (t.full(1) - t * t)


NEG = _map(
    "neg", "Change the sign of every element.", linear=Linear.ALL, gradient=lambda r, _: -r.g
)
STOP_GRADIENT = _map(
    "stop_gradient",
    "Return every element as it is; gradients are 0 from here.",
    linear=Linear.ALL,
    flops=0,
    gradient=nothing,
    aliases=("detach",),
)
MUL = _map(
    "mul", "Multiply elementwise.", 2, linear=Linear.EACH, gradient=lambda r, i: r.g * r.x[1 - i]
)
SUB = _map(
    "sub", "Subtract elementwise.", 2, linear=Linear.ALL, gradient=lambda r, i: -r.g if i else r.g
)
DIV = _map(
    "div",
    "Divide elementwise.",
    2,
    floats=True,
    gradient=lambda r, i: -(r.g * r.y / r.x[1]) if i else r.g / r.x[1],
)
MAXIMUM = _map(
    "maximum",
    "Return the larger element of two.",
    2,
    gradient=lambda r, i: _chosen(r, i, "greater"),
)
MINIMUM = _map(
    "minimum", "Return the smaller element of two.", 2, gradient=lambda r, i: _chosen(r, i, "less")
)
GREATER = _map("greater", "Return where elements are larger.", 2, result=DType.BOOL)
GREATER_EQUAL = _map("greater_equal", "Return where none is smaller.", 2, result=DType.BOOL)
LESS = _map("less", "Return where elements are smaller.", 2, result=DType.BOOL)
LESS_EQUAL = _map("less_equal", "Return where none is larger.", 2, result=DType.BOOL)
EQUAL = _map("equal", "Return where elements are equal.", 2, result=DType.BOOL)
NOT_EQUAL = _map("not_equal", "Return where elements differ.", 2, result=DType.BOOL)
WHERE = _map(
    "where",
    "Choose between two elements by a truth value.",
    3,
    conditions=1,
    gradient=_where_gradient,
)
EXP = _map(
    "exp", "Return e to the power of every element.", floats=True, gradient=lambda r, _: r.g * r.y
)
LOG = _map(
    "log",
    "Return the natural logarithm of every element.",
    floats=True,
    gradient=lambda r, _: r.g / r.x[0],
)
SQRT = _map(
    "sqrt",
    "Return the square root of every element.",
    floats=True,
    gradient=lambda r, _: (r.g / r.y).step("scale", factor=0.5),
)
RSQRT = _map(
    "rsqrt",
    "Return the reciprocal of the square root of every element.",
    floats=True,
    gradient=lambda r, _: (r.g * r.y * r.y * r.y).step("scale", factor=-0.5),
)
TANH = _map(
    "tanh",
    "Return the hyperbolic tangent of every element.",
    floats=True,
    gradient=lambda r, _: r.g - r.g * r.y * r.y,
)
SIGMOID = _map(
    "sigmoid",
    "Return 1 / (1 + e^-x) for every element x.",
    floats=True,
    flops=3,
    gradient=lambda r, _: r.g * r.y - r.g * r.y * r.y,
)
SIN = _map(
    "sin",
    "Return the sine of every element.",
    floats=True,
    gradient=lambda r, _: r.g * r.x[0].step("cos"),
)
COS = _map(
    "cos",
    "Return the cosine of every element.",
    floats=True,
    gradient=lambda r, _: -(r.g * r.x[0].step("sin")),
)
RELU = _map(
    "relu",
    "Return every element, or 0 where it is negative.",
    gradient=lambda r, _: r.y.step("greater", r.y.full(0)).step("where", r.g, r.g.full(0)),
)
SILU = _map(
    "silu",
    "Return x / (1 + e^-x) for every element x.",
    floats=True,
    flops=4,
    gradient=_silu_gradient,
)
GELU = _map(
    "gelu",
    "Return x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 for every element x.",
    floats=True,
    flops=8,
    gradient=_gelu_gradient,
)

# ---------------------------------------------------------------------------------------------
# Reductions over dimensions
# ---------------------------------------------------------------------------------------------


def _dims_of(name: str, x: DistType, arguments: Arguments, floats: bool = False) -> tuple[int, ...]:
    """Return the dimensions that an operation names.

    Raises:
        LayoutError: one does not exist or is given twice, none is given, or the dtype is wrong.
    """
    dims = arguments[DIMS.name]
    assert isinstance(dims, tuple)
    if x.dtype is DType.BOOL or (floats and not x.dtype.is_float):
        raise LayoutError(
            f"{name} is of {'floating-point ' * floats}numbers, and {{0}} is {x.dtype}: cast it",
            operand=0,
        )
    numbers = [dim for dim in dims if isinstance(dim, int)]
    for dim in numbers:
        if dim not in range(len(x.dims)) or numbers.count(dim) > 1:
            what = "is given twice" if numbers.count(dim) > 1 else "does not exist"
            raise LayoutError(
                f"dimension {dim} {what}: {{0}} has {len(x.dims)} dimensions, from 0",
                operand=0,
                parameter=DIMS.name,
            )
    if not numbers:
        raise LayoutError(f"{name} needs a dimension", parameter=DIMS.name)
    return tuple(numbers)


def _kept(r: Reverse, x: Term) -> Term:
    """Return a value that was reduced over dimensions with these dimensions, of size 1."""
    dims = r.arguments[DIMS.name]
    shape = tuple(1 if d in dims else n for d, n in enumerate(r.types[0].shape))
    return x.step("reshape", shape=shape)


def _extreme_gradient(r: Reverse, operand: int) -> Term:
    """Return the cotangent divided evenly among the elements that are extreme (as in jax)."""
    (x,) = r.x
    there = x.step("equal", _kept(r, r.y)).step("where", x.full(1), x.full(0))
    count = there.step("sum", dims=r.arguments[DIMS.name], keepdims=True).whole()
    return there * (_kept(r, r.g) / count)


def _sum_over(r: Reverse, x: Term) -> Term:
    return x.step("sum", dims=r.arguments[DIMS.name], keepdims=True)


def _reduction(
    name: str, doc: str, reduction: Reduction, linear: Linear, gradient: Gradient
) -> StepKind:
    """Add the row of a reduction over dimensions."""

    def structure(xs: Sequence[DistType], arguments: Arguments) -> Structure:
        (x,) = xs
        dims = _dims_of(name, x, arguments)
        indices = tuple(map(str, range(len(x.dims))))
        kept = [REPEATED if d in dims else str(d) for d in range(len(x.dims))]
        result = tuple(i for i in kept if i != REPEATED or KEEPDIMS.name in arguments)
        return Structure((indices,), result, sizes_of(name, xs, [indices]), reduction, linear)

    return _row(name, doc, structure, 1, (DIMS, KEEPDIMS), gradient=gradient)


SUM = _reduction(
    "sum",
    "Sum over dimensions.",
    Reduction.SUM,
    Linear.ALL,
    lambda r, _: _kept(r, r.g).repeated(r.types[0]),
)
MAX = _reduction(
    "max",
    "Return the largest element over dimensions.",
    Reduction.MAX,
    Linear.NOT,
    _extreme_gradient,
)
MIN = _reduction(
    "min",
    "Return the smallest element over dimensions.",
    Reduction.MIN,
    Linear.NOT,
    _extreme_gradient,
)

# ---------------------------------------------------------------------------------------------
# Maps of whole dimensions
# ---------------------------------------------------------------------------------------------


def _along(name: str, doc: str, flops: int, gradient: Gradient) -> StepKind:
    """Add the row of an operation that needs the whole of some dimensions on every device."""

    def structure(xs: Sequence[DistType], arguments: Arguments) -> Structure:
        (x,) = xs
        dims = _dims_of(name, x, arguments, floats=True)
        indices = tuple(map(str, range(len(x.dims))))
        blocked = frozenset(map(str, dims))
        sizes = sizes_of(name, xs, [indices])
        return Structure((indices,), indices, sizes, blocked=blocked, flops=flops)

    return _row(name, doc, structure, 1, (DIMS,), gradient=gradient)


SOFTMAX = _along(
    "softmax",
    "Return e^x divided by its sum over dimensions.",
    5,
    lambda r, _: r.y * (r.g - _sum_over(r, r.g * r.y)),
)
LOG_SOFTMAX = _along(
    "log_softmax",
    "Return x less the logarithm of the sum of e^x.",
    5,
    lambda r, _: r.g - r.y.step("exp") * _sum_over(r, r.g),
)

# ---------------------------------------------------------------------------------------------
# Tensors of a given type
# ---------------------------------------------------------------------------------------------


def _to(arguments: Arguments) -> DistType:
    """Return the type that an operation names for its result."""
    to = arguments[TO.name]
    assert isinstance(to, DistType)
    return to


def _new_structure(operands: Sequence[DistType], arguments: Arguments) -> Structure:
    """Return the structure of an operation without operands, every dimension of which is new."""
    sizes = {str(d): dim.size for d, dim in enumerate(_to(arguments).dims)}
    return Structure((), tuple(sizes), sizes, flops=0)


def _check_new(name: str, mesh: Mesh, to: DistType) -> None:
    """Check the type of a tensor that every device makes by itself.

    Raises:
        LayoutError: it cannot exist on the mesh, or is partial.
    """
    check_type(mesh, to)
    if to.partial:
        axes = mesh.ordered(to.partial)
        where = ", ".join(mesh.short(axes))
        masks = to.reduction in (Reduction.SUM, Reduction.PROD)
        then = f", and mask the result over {where}" if masks else ""
        raise LayoutError(
            f"{name} makes whole values, not partial ones: leave out partial({to.reduction}: "
            f"{where}){then}",
            axes=axes,
            parameter=TO.name,
        )


def _constant(mesh: Mesh, value: float, to: DistType) -> DistType:
    """Return a tensor of a type, all of whose elements are one number."""
    _check_new("constant", mesh, to)
    if not to.dtype.represents(value):
        shown = repr(float(value)).removesuffix(".0")
        raise LayoutError(f"{shown} is not a value of {to.dtype}", parameter=VALUE.name)
    return to


def _iota(mesh: Mesh, dim: int, to: DistType) -> DistType:
    """Return a tensor of a type, each of whose elements is its position in a dimension."""
    _check_new("iota", mesh, to)
    if dim not in range(len(to.dims)):
        raise LayoutError(
            f"dimension {dim} does not exist: {to.text(mesh)} has {len(to.dims)} dimensions, "
            "from 0",
            parameter=DIM.name,
        )
    last = to.dims[dim].size - 1
    exact = last <= 2**to.dtype.mantissa if to.dtype.is_float else to.dtype.represents(last)
    if not exact or to.dtype is DType.BOOL:
        raise LayoutError(
            f"iota counts to {last}, and {to.dtype} does not hold all numbers up to it: make an "
            "iota of i32 and cast it",
            parameter=TO.name,
        )
    return to


CONSTANT = row(
    StepKind(
        name="constant",
        rule=_constant,
        parameters=(VALUE, TO),
        operands=0,
        structure=_new_structure,
        aliases=("full", "zeros", "ones", "splat", "fill"),
    ),
    NN,
)
IOTA = row(
    StepKind(
        name="iota",
        rule=_iota,
        parameters=(DIM, TO),
        operands=0,
        structure=_new_structure,
        aliases=("arange", "range", "broadcasted_iota"),
    ),
    NN,
)


def _broadcast_structure(operands: Sequence[DistType], arguments: Arguments) -> Structure:
    (x,), to = operands, _to(arguments)
    before = len(to.dims) - len(x.dims)
    for d, dim in enumerate(x.dims):
        if before < 0 or dim.size not in (1, to.dims[before + d].size):
            raise LayoutError(
                f"broadcast_to repeats dimensions of size 1 and adds dimensions in front: {{0}} "
                f"is {list(map(int, x.shape))}, which does not fit {list(map(int, to.shape))}",
                operand=0,
                parameter=TO.name,
            )
    sizes = {str(d): dim.size for d, dim in enumerate(to.dims)}
    indices = tuple(
        REPEATED if dim.size == 1 < to.dims[d].size else str(d)
        for d, dim in enumerate(x.dims, before)
    )
    return Structure((indices,), tuple(sizes), sizes, linear=Linear.ALL, flops=0)


def _broadcast_to(mesh: Mesh, x: DistType, to: DistType) -> DistType:
    """Repeat a tensor along new dimensions, and along those of size 1."""
    check_type(mesh, to)
    structure = _broadcast_structure([x], {TO.name: to})
    known = {index: dim.axes for index, dim in zip(structure.operands[0], x.dims, strict=True)}
    dims = (
        Dim(dim.size, known.get(index, tuple(a for a in dim.axes if a not in x.axes)))
        for index, dim in zip(structure.result, to.dims, strict=True)
    )
    kept = DistType(x.dtype, tuple(dims), x.partial, x.reduction, x.place)
    if kept != to:
        differing = [
            axis
            for axis in mesh.by_name
            if kept.state_of(axis) != to.state_of(axis) or kept.dim_of(axis) != to.dim_of(axis)
        ]
        what = "cast it first" if x.dtype is not to.dtype else "redistribute the result"
        raise LayoutError(
            "broadcast_to shards no dimension but new and repeated ones, and changes nothing "
            f"else: {{0}} is {x.text(mesh)}, so the type is {kept.text(mesh)}: {what}",
            operand=0,
            axes=differing,
            parameter=TO.name,
        )
    return to


BROADCAST_TO = row(
    StepKind(
        name="broadcast_to",
        rule=_broadcast_to,
        parameters=(TO,),
        structure=_broadcast_structure,
        gradient=same,
        aliases=("expand", "repeat", "tile", "broadcast_in_dim"),
    ),
    NN,
)
