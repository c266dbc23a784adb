"""The table of the operations of models: one row for each, with its index structure.

The typing rule of a row, its work and its gradient follow from the structure. Operands of maps
align as in numpy: from the last dimension, and a dimension of size 1 is repeated.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from collir.layout import nn_gradients as gradients
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
    reads_all,
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
EPS = Parameter("eps", "eps", ArgumentKind.NUMBER)
COUNT = Parameter("k", "k", ArgumentKind.INTEGER)
WINDOW = Parameter("window", "window", ArgumentKind.SIZES)
STRIDE = Parameter("stride", "stride", ArgumentKind.SIZES)
PADDING = Parameter("padding", "padding", ArgumentKind.SIZES)
REVERSE = Parameter("reverse", "reverse", ArgumentKind.FLAG)
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
    integers: int | None = None,
    moved: Callable[[Sequence[int], int], int] = reads_all,
) -> StepKind:
    """Add a row whose rule follows from its structure.

    Args:
        doc: the first line of the operation's documentation.
        result: the dtype of the result, if it is not that of the operands.
        conditions: the number of operands in front that are truth values.
        integers: the number of the operand that holds integers, if one does; the dtype of the
            result is that of the first operand then, or of the type that the operation names.
        moved: the bytes that it reads and writes.
    """

    def rule(mesh: Mesh, *values: Any) -> DistType:
        count = 1 if operands is None else operands
        xs: Sequence[DistType] = values[0] if operands is None else values[:count]
        given: Iterable[tuple[Parameter, Argument]] = zip(parameters, values[count:], strict=True)
        arguments = {x.name: value for x, value in given if value is not False}  # False: no flag
        if integers is None:
            _check_dtypes(name, xs, conditions)
        else:
            _check_integers(name, xs[integers], integers)
        dtype = result or xs[-1 if integers is None else 0].dtype
        if TO.name in arguments:
            to = _to(arguments)
            dtype = dtype if integers != 0 else to.dtype
            return _given(name, mesh, structure(xs, arguments), xs, dtype, to)
        return typed(name, mesh, structure(xs, arguments), xs, dtype)

    rule.__doc__ = doc
    kind = StepKind(
        name=name,
        rule=rule,
        parameters=parameters,
        operands=operands,
        structure=structure,
        gradient=gradient,
        aliases=aliases,
        moved=moved,
    )
    return row(kind, NN)


def _to(arguments: Arguments) -> DistType:
    """Return the type that an operation names for its result."""
    to = arguments[TO.name]
    assert isinstance(to, DistType)
    return to


def _given(
    name: str,
    mesh: Mesh,
    structure: Structure,
    operands: Sequence[DistType],
    dtype: DType,
    to: DistType,
) -> DistType:
    """Return the type that an operation names for its result.

    The dimensions that operands lack may be sharded in it, since every device makes its own block;
    all else is as the structure says.

    Raises:
        LayoutError: the type says something else.
    """
    check_type(mesh, to)
    plain = typed(name, mesh, structure, operands, dtype)
    known = {index for indices in structure.operands for index in indices}
    for number, (index, wanted) in enumerate(zip(structure.result, to.dims, strict=True)):
        if wanted.axes and index in structure.blocked:
            raise LayoutError(
                f"{name} makes the whole of dimension {number} on every device: slice the result",
                axes=wanted.axes,
                parameter=TO.name,
            )
    dims = (
        dim
        if index in known or index == REPEATED or index in structure.blocked
        else Dim(dim.size, tuple(axis for axis in wanted.axes if axis not in plain.axes))
        for index, dim, wanted in zip(structure.result, plain.dims, to.dims, strict=True)
    )
    kept = DistType(dtype, tuple(dims), plain.partial, plain.reduction, plain.place)
    if kept != to:
        advice = "redistribute" if kept.dtype is to.dtype else "cast"
        raise LayoutError(
            f"{name} may shard the dimensions that it makes, and the rest follows from its "
            f"operands: with {{0}} the type is {kept.text(mesh)}, not {to.text(mesh)}: {advice} "
            "the result",
            operand=0,
            parameter=TO.name,
        )
    return to


def _check_numbers(name: str, x: DistType, floats: bool = False) -> None:
    if x.dtype is DType.BOOL or (floats and not x.dtype.is_float):
        raise LayoutError(
            f"{name} is of {'floating-point ' * floats}numbers, and {{0}} is {x.dtype}: cast it",
            operand=0,
        )


def _check_integers(name: str, x: DistType, number: int) -> None:
    if x.dtype.is_float or x.dtype is DType.BOOL:
        raise LayoutError(
            f"{name} selects by integers, and {{{number}}} is {x.dtype}: cast it", operand=number
        )


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
        if floats or not conditions:
            _check_numbers(name, xs[0], floats)
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
    gradient=lambda r, i: gradients.chosen(r, i, "greater"),
)
MINIMUM = _map(
    "minimum",
    "Return the smaller element of two.",
    2,
    gradient=lambda r, i: gradients.chosen(r, i, "less"),
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
    gradient=gradients.where,
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
    gradient=gradients.silu,
)
GELU = _map(
    "gelu",
    "Return x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 for every element x.",
    floats=True,
    flops=8,
    gradient=gradients.gelu,
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
    _check_numbers(name, x, floats)
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


def _reduction(
    name: str,
    doc: str,
    reduction: Reduction,
    linear: Linear,
    gradient: Gradient,
    floats: bool = False,
) -> StepKind:
    """Add the row of a reduction over dimensions."""

    def structure(xs: Sequence[DistType], arguments: Arguments) -> Structure:
        (x,) = xs
        dims = _dims_of(name, x, arguments, floats)
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
    lambda r, _: gradients.kept(r, r.g).repeated(r.types[0]),
)
MEAN = _reduction(
    "mean",
    "Average over dimensions.",
    Reduction.AVG,
    Linear.ALL,
    gradients.mean,
    floats=True,
)
MAX = _reduction(
    "max",
    "Return the largest element over dimensions.",
    Reduction.MAX,
    Linear.NOT,
    gradients.extreme,
)
MIN = _reduction(
    "min",
    "Return the smallest element over dimensions.",
    Reduction.MIN,
    Linear.NOT,
    gradients.extreme,
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
    lambda r, _: r.y * (r.g - gradients.sum_over(r, r.g * r.y)),
)
LOG_SOFTMAX = _along(
    "log_softmax",
    "Return x less the logarithm of the sum of e^x.",
    5,
    lambda r, _: r.g - r.y.step("exp") * gradients.sum_over(r, r.g),
)


def _normalisation(name: str, doc: str, operands: int, flops: int, gradient: Gradient) -> StepKind:
    """Add the row of a normalisation over dimensions, with a gain for each of their positions."""

    def structure(xs: Sequence[DistType], arguments: Arguments) -> Structure:
        dims = _dims_of(name, xs[0], arguments, floats=True)
        eps = arguments[EPS.name]
        assert isinstance(eps, int | float)
        if eps < 0:
            raise LayoutError("eps is a number from 0", parameter=EPS.name)
        indices = tuple(map(str, range(len(xs[0].dims))))
        own = tuple(map(str, dims))
        for number, x in enumerate(xs[1:], 1):
            _check_rank(name, x, number, own)
        every = [indices, *[own] * (operands - 1)]
        sizes = sizes_of(name, xs, every)
        return Structure(tuple(every), indices, sizes, blocked=frozenset(own), flops=flops)

    return _row(name, doc, structure, operands, (DIMS, EPS), gradient=gradient)


def _check_rank(name: str, x: DistType, number: int, indices: Sequence[str]) -> None:
    """Check that an operand has a dimension for each index.

    Raises:
        LayoutError: it has not.
    """
    if len(x.dims) != len(indices):
        listed = ", ".join(map(index_text, indices)) or "nothing"
        raise LayoutError(
            f"{name} needs {{{number}}} over {listed} of {{0}}, and it is "
            f"{list(map(int, x.shape))}",
            operand=number,
        )


LAYER_NORM = _normalisation(
    "layer_norm",
    "Return (x - mean) / sqrt(variance + eps) over dimensions, times a gain, plus a bias.",
    3,
    8,
    gradients.layer_norm,
)
RMS_NORM = _normalisation(
    "rms_norm",
    "Return x / sqrt(mean of squares + eps) over dimensions, times a gain.",
    2,
    5,
    gradients.rms_norm,
)


def _dim_of(name: str, x: DistType, arguments: Arguments) -> int:
    """Return the dimension that an operation names.

    Raises:
        LayoutError: it does not exist.
    """
    dim = arguments[DIM.name]
    assert isinstance(dim, int)
    if dim not in range(len(x.dims)):
        raise LayoutError(
            f"dimension {dim} does not exist: {{0}} has {len(x.dims)} dimensions, from 0",
            operand=0,
            parameter=DIM.name,
        )
    return dim


def _cumsum(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    (x,) = xs
    _check_numbers("cumsum", x)
    blocked = frozenset([str(_dim_of("cumsum", x, arguments))])
    indices = tuple(map(str, range(len(x.dims))))
    sizes = sizes_of("cumsum", xs, [indices])
    return Structure((indices,), indices, sizes, linear=Linear.ALL, blocked=blocked)


CUMSUM = _row(
    "cumsum",
    "Return the sums of all elements up to each, along a dimension.",
    _cumsum,
    1,
    (DIM, REVERSE),
    aliases=("scan", "prefix_sum"),
    gradient=gradients.cumsum,
)


def _selection(
    name: str,
    doc: str,
    parameters: tuple[Parameter, ...] = (),
    result: DType | None = None,
    gradient: Gradient | None = None,
) -> StepKind:
    """Add the row of an operation that selects elements of a dimension by their size."""

    def structure(xs: Sequence[DistType], arguments: Arguments) -> Structure:
        (x,) = xs
        _check_numbers(name, x)
        dim = _dim_of(name, x, arguments)
        size, count = x.dims[dim].size, arguments.get(COUNT.name, 0)
        assert isinstance(count, int)
        if result and not result.represents(int(size) - 1):
            raise LayoutError(f"{result} does not count to {size - 1}", operand=0)
        if COUNT.name in arguments and not 1 <= count <= size:
            raise LayoutError(
                f"{name} takes 1 to {size} elements of dimension {dim}, not {count}",
                operand=0,
                parameter=COUNT.name,
            )
        indices = tuple(map(str, range(len(x.dims))))
        sizes = sizes_of(name, xs, [indices])
        new = ("k",) if COUNT.name in arguments else ()
        kept = (*indices[:dim], *new, *indices[dim + 1 :])
        sizes |= dict.fromkeys(new, count)
        blocked = frozenset([str(dim)])
        return Structure((indices,), kept, sizes, blocked=blocked)

    return _row(name, doc, structure, 1, (*parameters, DIM), result, gradient=gradient)


ARGMAX = _selection(
    "argmax", "Return the first position of the largest element of a dimension.", (), DType.I32
)
TOP_K = _selection(
    "top_k",
    "Return the largest elements of a dimension, the largest first.",
    (COUNT,),
    gradient=gradients.top_k,
)
TOP_K_INDICES = _selection(
    "top_k_indices",
    "Return the positions of the largest elements of a dimension, the largest first.",
    (COUNT,),
    DType.I32,
)

# ---------------------------------------------------------------------------------------------
# Selections by integers; one that is out of range selects 0
# ---------------------------------------------------------------------------------------------


def _own(x: DistType, number: int) -> tuple[str, ...]:
    """Return indices of dimensions that no other operand has."""
    return tuple(f"{number}.{d}" for d in range(len(x.dims)))


def _take(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    table, chosen = xs
    dim = _dim_of("take", table, arguments)
    indices = [_own(table, 0), _own(chosen, 1)]
    result = (*indices[0][:dim], *indices[1], *indices[0][dim + 1 :])
    sizes = sizes_of("take", xs, indices)
    selected = frozenset([indices[0][dim]])
    return Structure(tuple(indices), result, sizes, linear=Linear.FIRST, flops=0, selected=selected)


TAKE = _row(
    "take",
    "Return the slices of a dimension at some positions.",
    _take,
    2,
    (DIM,),
    integers=1,
    moved=lambda operands, written: 2 * written + operands[1],
    aliases=("embedding", "gather_rows", "index_select", "lookup"),
    gradient=gradients.take,
)


def _take_transpose(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    (g, chosen), to = xs, _to(arguments)
    name, before, behind = "take_transpose", len(to.dims), len(chosen.dims)
    dim = arguments[DIM.name]
    assert isinstance(dim, int)
    _check_numbers(name, g)
    if dim not in range(before):
        raise LayoutError(
            f"dimension {dim} does not exist: the type has {before} dimensions, from 0",
            parameter=DIM.name,
        )
    every = _own(g, 0)
    if len(every) != before - 1 + behind:
        raise LayoutError(
            f"{name} needs {{0}} with the dimensions of {{1}} in the place of dimension {dim} of "
            f"{list(map(int, to.shape))}: {before - 1 + behind} dimensions, not {len(every)}",
            operand=0,
            parameter=TO.name,
        )
    shared = every[dim : dim + behind]
    result = (*every[:dim], "to", *every[dim + behind :])
    sizes = sizes_of(name, xs, [every, shared])
    for index, wanted in zip(result, to.dims, strict=True):
        if sizes.setdefault(index, wanted.size) != wanted.size:
            raise LayoutError(
                f"{name} needs one size of {index_text(index)}: it is {sizes[index]} in {{0}} and "
                f"{wanted.size} in the type",
                operand=0,
                parameter=TO.name,
            )
    selected = frozenset(["to"])
    return Structure((every, shared), result, sizes, linear=Linear.FIRST, selected=selected)


TAKE_TRANSPOSE = _row(
    "take_transpose",
    "Add slices to a tensor of zeros, at some positions of a dimension.",
    _take_transpose,
    2,
    (DIM, TO),
    integers=1,
    aliases=("scatter_add", "index_add", "segment_sum"),
    gradient=gradients.take_transpose,
)


def _one_hot(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    (x,), to = xs, _to(arguments)
    indices = tuple(map(str, range(len(x.dims))))
    if to.shape[:-1] != x.shape or not to.dims:
        raise LayoutError(
            f"one_hot adds a dimension behind those of {{0}}, which is {list(map(int, x.shape))}: "
            f"{list(map(int, to.shape))} does not fit",
            operand=0,
            parameter=TO.name,
        )
    sizes = {**sizes_of("one_hot", xs, [indices]), "to": to.dims[-1].size}
    return Structure((indices,), (*indices, "to"), sizes, flops=0)


ONE_HOT = _row(
    "one_hot",
    "Return 1 at the position that an integer names in a new last dimension, and 0 elsewhere.",
    _one_hot,
    1,
    (TO,),
    integers=0,
)


def _cross_entropy(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    logits, labels = xs
    name = "cross_entropy"
    _check_numbers(name, logits, floats=True)
    dim = _dim_of(name, logits, arguments)
    indices = tuple(map(str, range(len(logits.dims))))
    kept = (*indices[:dim], *indices[dim + 1 :])
    _check_rank(name, labels, 1, kept)
    sizes = sizes_of(name, xs, [indices, kept])
    return Structure((indices, kept), kept, sizes, blocked=frozenset([str(dim)]), flops=5)


CROSS_ENTROPY = _row(
    "cross_entropy",
    "Return the logarithm of the sum of e^x over a dimension, less the x of a label.",
    _cross_entropy,
    2,
    (DIM,),
    integers=1,
    gradient=gradients.cross_entropy,
)

# ---------------------------------------------------------------------------------------------
# Windows: over all dimensions between the first, the batch, and the last, the channels
# ---------------------------------------------------------------------------------------------


def _listed(name: str, arguments: Arguments, parameter: Parameter, least: int) -> list[int]:
    """Return an argument that has an integer for each windowed dimension.

    Raises:
        LayoutError: one is too small.
    """
    values = arguments[parameter.name]
    assert isinstance(values, tuple)
    numbers = [value for value in values if isinstance(value, int)]
    if any(number < least for number in numbers):
        raise LayoutError(
            f"{name} needs numbers from {least} in {parameter.keyword}", parameter=parameter.name
        )
    return numbers


def _windows(
    name: str, x: DistType, window: Sequence[int], arguments: Arguments, fault: str
) -> list[int]:
    """Return the number of windows in each windowed dimension of the first operand, or of the type
    of the result.

    Args:
        fault: the parameter that gives the window or the type, if an argument does.

    Raises:
        LayoutError: the windows do not fit.
    """
    of = "the type" if fault == TO.name else "{0}"
    if len(x.dims) != len(window) + 2:
        raise LayoutError(
            f"{name} with a window of {list(map(int, window))} needs {of} with {len(window) + 2} "
            f"dimensions: the batch, the windowed ones, and the channels; it has {len(x.dims)}",
            operand=0,
            parameter=fault,
        )
    stride, padding = _listed(name, arguments, STRIDE, 1), _listed(name, arguments, PADDING, 0)
    for parameter, numbers in ((STRIDE, stride), (PADDING, padding)):
        if len(numbers) != len(window):
            raise LayoutError(
                f"{name} needs {len(window)} numbers in {parameter.keyword}, one for each windowed "
                f"dimension, not {len(numbers)}",
                parameter=parameter.name,
            )
    counts: list[int] = []
    for d, (width, step, more) in enumerate(zip(window, stride, padding, strict=True), 1):
        room = x.dims[d].size + 2 * more - width
        if more >= width or room < 0:
            problem = "is all padding somewhere" if more >= width else "does not fit"
            raise LayoutError(
                f"{name} has a window of {width} over dimension {d} of {of}, of size "
                f"{x.dims[d].size} and a padding of {more} at both ends: it {problem}",
                operand=0,
                parameter=fault or PADDING.name,
            )
        counts.append(room // step + 1)
    return counts


def _conv(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    x, w = xs
    spatial = len(w.dims) - 2
    _check_numbers("conv", x)
    if spatial < 1:
        raise LayoutError(
            "conv needs {1} with a window, the channels of {0} and those of the result: at least "
            f"3 dimensions, not {len(w.dims)}",
            operand=1,
        )
    counts = _windows("conv", x, w.shape[:spatial], arguments, "")
    whole, window = _own(x, 0)[1:-1], _own(w, 1)[:spatial]
    indices = [("0", *whole, "channels"), (*window, "channels", "features")]
    sizes: dict[str, int] = sizes_of("conv", xs, indices)
    made = [f"{d}" for d in range(1, spatial + 1)]
    sizes |= dict(zip(made, counts, strict=True))
    return Structure(
        tuple(indices),
        ("0", *made, "features"),
        sizes,
        linear=Linear.EACH,
        blocked=frozenset([*whole, *window]),
        flops=2,
        selected=frozenset(whole),
    )


CONV = _row(
    "conv",
    "Multiply windows of dimensions with a filter and sum over them and the channels.",
    _conv,
    2,
    (STRIDE, PADDING),
    aliases=("conv2d", "convolution"),
    gradient=gradients.conv,
)


def _check_windows(
    name: str, x: DistType, number: int, shape: Sequence[int], arguments: Arguments
) -> None:
    """Check that an operand has the windows of a larger one.

    Raises:
        LayoutError: it has not.
    """
    if list(x.shape[1:-1]) != list(shape):
        raise LayoutError(
            f"{name} needs {{{number}}} with {list(map(int, shape))} windows, and it is "
            f"{list(map(int, x.shape))}",
            operand=number,
        )


def _conv_transpose(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    (g, w), to, name = xs, _to(arguments), "conv_transpose"
    spatial = len(w.dims) - 2
    _check_numbers(name, g)
    if spatial < 1 or len(to.dims) != len(w.dims):
        raise LayoutError(
            f"{name} needs {{1}} and the type with one number of dimensions, at least 3: they have "
            f"{len(w.dims)} and {len(to.dims)}",
            operand=1,
        )
    counts = _windows(name, to, w.shape[:spatial], arguments, TO.name)
    _check_windows(name, g, 0, counts, arguments)
    made = tuple(f"{d}" for d in range(1, spatial + 1))
    window, whole = _own(w, 1)[:spatial], _own(to, 2)[1:-1]
    indices = [("0", *made, "features"), (*window, "channels", "features")]
    sizes: dict[str, int] = sizes_of(name, xs, indices)
    sizes |= dict(zip(whole, to.shape[1:-1], strict=True))
    return Structure(
        tuple(indices),
        ("0", *whole, "channels"),
        sizes,
        linear=Linear.EACH,
        blocked=frozenset([*made, *window, *whole]),
        flops=2,
        selected=frozenset(whole),
    )


CONV_TRANSPOSE = _row(
    "conv_transpose",
    "Add products with a filter to the windows of zeros: the transpose of a conv in its input.",
    _conv_transpose,
    2,
    (STRIDE, PADDING, TO),
    aliases=("conv2d_transpose", "deconv"),
    gradient=gradients.conv_transpose,
)


def _conv_filter(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    (x, g), to, name = xs, _to(arguments), "conv_filter"
    spatial = len(to.dims) - 2
    _check_numbers(name, x)
    if spatial < 1 or not len(x.dims) == len(g.dims) == len(to.dims):
        raise LayoutError(
            f"{name} needs {{0}}, {{1}} and the type with one number of dimensions, at least 3: "
            f"they have {len(x.dims)}, {len(g.dims)} and {len(to.dims)}",
            operand=1,
        )
    counts = _windows(name, x, to.shape[:spatial], arguments, "")
    _check_windows(name, g, 1, counts, arguments)
    made = tuple(f"{d}" for d in range(1, spatial + 1))
    whole, window = _own(x, 0)[1:-1], _own(to, 2)[:spatial]
    indices = [("0", *whole, "channels"), ("0", *made, "features")]
    sizes: dict[str, int] = sizes_of(name, xs, indices)
    sizes |= dict(zip(window, to.shape[:spatial], strict=True))
    return Structure(
        tuple(indices),
        (*window, "channels", "features"),
        sizes,
        linear=Linear.EACH,
        blocked=frozenset([*made, *whole, *window]),
        flops=2,
        selected=frozenset(whole),
    )


CONV_FILTER = _row(
    "conv_filter",
    "Sum products of windows with another operand: the transpose of a conv in its filter.",
    _conv_filter,
    2,
    (STRIDE, PADDING, TO),
    gradient=gradients.conv_filter,
)


def _pool(
    name: str,
    doc: str,
    reduction: Reduction,
    linear: Linear,
    gradient: Gradient,
    floats: bool = False,
) -> StepKind:
    """Add the row of a reduction over windows."""

    def structure(xs: Sequence[DistType], arguments: Arguments) -> Structure:
        (x,) = xs
        _check_numbers(name, x, floats)
        window = _listed(name, arguments, WINDOW, 1)
        counts = _windows(name, x, window, arguments, WINDOW.name)
        whole = _own(x, 0)[1:-1]
        made = [f"{d}" for d in range(1, len(window) + 1)]
        indices = ("0", *whole, "channels")
        sizes: dict[str, int] = sizes_of(name, xs, [indices])
        sizes |= dict(zip(made, counts, strict=True))
        return Structure(
            (indices,),
            ("0", *made, "channels"),
            sizes,
            reduction,
            linear,
            frozenset(whole),
            math.prod(window),
            frozenset(whole),
        )

    return _row(name, doc, structure, 1, (WINDOW, STRIDE, PADDING), gradient=gradient)


MAX_POOL = _pool(
    "max_pool",
    "Return the largest element of every window.",
    Reduction.MAX,
    Linear.NOT,
    gradients.max_pool,
)
AVG_POOL = _pool(
    "avg_pool",
    "Return the average of every window, in which the padding counts as zeros.",
    Reduction.SUM,
    Linear.ALL,
    gradients.avg_pool,
    floats=True,
)


def _pool_transpose(name: str, xs: Sequence[DistType], arguments: Arguments) -> Structure:
    """Return the structure of what adds to the windows of a second operand, or of a type."""
    g, to = xs[0], xs[1] if len(xs) > 1 else _to(arguments)
    _check_numbers(name, g, floats=len(xs) == 1)
    window = _listed(name, arguments, WINDOW, 1)
    counts = _windows(name, to, window, arguments, TO.name)
    _check_windows(name, g, 0, counts, arguments)
    made = tuple(f"{d}" for d in range(1, len(window) + 1))
    whole = _own(to, 1)[1:-1]
    indices = [("0", *made, "channels"), ("0", *whole, "channels")]
    sizes: dict[str, int] = sizes_of(name, [g, to], indices)
    return Structure(
        tuple(indices[: len(xs)]),
        indices[1],
        sizes,
        linear=Linear.FIRST if len(xs) > 1 else Linear.ALL,
        blocked=frozenset([*made, *whole]),
        flops=math.prod(window),
        selected=frozenset(whole),
    )


MAX_POOL_TRANSPOSE = _row(
    "max_pool_transpose",
    "Add to zeros at the first largest element of every window: the gradient of max_pool.",
    partial(_pool_transpose, "max_pool_transpose"),
    2,
    (WINDOW, STRIDE, PADDING),
)
AVG_POOL_TRANSPOSE = _row(
    "avg_pool_transpose",
    "Add to the windows of zeros, divided by their size: the transpose of avg_pool.",
    partial(_pool_transpose, "avg_pool_transpose"),
    1,
    (WINDOW, STRIDE, PADDING, TO),
    gradient=gradients.avg_pool_transpose,
)

# ---------------------------------------------------------------------------------------------
# Tensors of a given type
# ---------------------------------------------------------------------------------------------


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
    last = int(to.dims[dim].size) - 1
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


BROADCAST_TO = _row(
    "broadcast_to",
    "Repeat a tensor along new dimensions, and along those of size 1.",
    _broadcast_structure,
    1,
    (TO,),
    aliases=("expand", "repeat", "tile", "broadcast_in_dim"),
    gradient=same,
)
