"""The table of the operations of models: one row for each, with its index structure.

The typing rule of a row, its work and its gradient follow from the structure. Operands of maps
align as in numpy: from the last dimension, and a dimension of size 1 is repeated.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from collir.layout.dtypes import DType, Reduction
from collir.layout.errors import LayoutError
from collir.layout.mesh import Mesh
from collir.layout.steps import Argument, ArgumentKind, Arguments, Parameter, StepKind, row
from collir.layout.structure import REPEATED, Linear, Structure, index_text, sizes_of, typed
from collir.layout.types import DistType

NN: dict[str, StepKind] = {}
"""The rows of the nn dialect by name, in the order in which they are listed to users."""

DIMS = Parameter("dims", "dims", ArgumentKind.SIZES)
KEEPDIMS = Parameter("keepdims", "keepdims", ArgumentKind.FLAG)
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


EINSUM = _row(
    "einsum",
    "Multiply operands and sum over the indices that the result lacks.",
    _einsum,
    None,
    (EQUATION,),
    aliases=("matmul", "dot", "bmm", "tensordot"),
)

# ---------------------------------------------------------------------------------------------
# Maps
# ---------------------------------------------------------------------------------------------


def map_structure(
    name: str, operands: Sequence[DistType], linear: Linear = Linear.NOT, flops: int = 1
) -> Structure:
    """Return the structure of an elementwise operation, with numpy's broadcasting.

    Raises:
        LayoutError: two sizes of a dimension, neither of them 1.
    """
    rank = max(len(x.dims) for x in operands)
    largest = [
        max(x.shape[d - rank + len(x.dims)] for x in operands if d >= rank - len(x.dims))
        for d in range(rank)
    ]
    indices = [
        tuple(
            REPEATED if dim.size == 1 < largest[d] else str(d)
            for d, dim in enumerate(x.dims, rank - len(x.dims))
        )
        for x in operands
    ]
    sizes = sizes_of(name, operands, indices)
    return Structure(
        tuple(indices), tuple(map(str, range(rank))), sizes, linear=linear, flops=flops
    )


def _map(
    name: str,
    doc: str,
    operands: int = 1,
    linear: Linear = Linear.NOT,
    flops: int = 1,
    result: DType | None = None,
    floats: bool = False,
    conditions: int = 0,
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

    return _row(name, doc, structure, operands, result=result, conditions=conditions)


NEG = _map("neg", "Change the sign of every element.", linear=Linear.ALL)
MUL = _map("mul", "Multiply elementwise.", 2, linear=Linear.EACH)
SUB = _map("sub", "Subtract elementwise.", 2, linear=Linear.ALL)
DIV = _map("div", "Divide elementwise.", 2, floats=True)
MAXIMUM = _map("maximum", "Return the larger element of two.", 2)
MINIMUM = _map("minimum", "Return the smaller element of two.", 2)
GREATER = _map("greater", "Return where elements are larger.", 2, result=DType.BOOL)
GREATER_EQUAL = _map("greater_equal", "Return where none is smaller.", 2, result=DType.BOOL)
LESS = _map("less", "Return where elements are smaller.", 2, result=DType.BOOL)
LESS_EQUAL = _map("less_equal", "Return where none is larger.", 2, result=DType.BOOL)
EQUAL = _map("equal", "Return where elements are equal.", 2, result=DType.BOOL)
NOT_EQUAL = _map("not_equal", "Return where elements differ.", 2, result=DType.BOOL)
WHERE = _map("where", "Choose between two elements by a truth value.", 3, conditions=1)
EXP = _map("exp", "Return e to the power of every element.", floats=True)
LOG = _map("log", "Return the natural logarithm of every element.", floats=True)
SQRT = _map("sqrt", "Return the square root of every element.", floats=True)
RSQRT = _map("rsqrt", "Return the reciprocal of the square root of every element.", floats=True)
TANH = _map("tanh", "Return the hyperbolic tangent of every element.", floats=True)
SIGMOID = _map("sigmoid", "Return 1 / (1 + e^-x) for every element x.", floats=True, flops=3)
SIN = _map("sin", "Return the sine of every element.", floats=True)
COS = _map("cos", "Return the cosine of every element.", floats=True)
RELU = _map("relu", "Return every element, or 0 where it is negative.")
SILU = _map("silu", "Return x / (1 + e^-x) for every element x.", floats=True, flops=4)
GELU = _map(
    "gelu",
    "Return x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 for every element x.",
    floats=True,
    flops=8,
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


def _reduction(name: str, doc: str, reduction: Reduction, linear: Linear) -> StepKind:
    """Add the row of a reduction over dimensions."""

    def structure(xs: Sequence[DistType], arguments: Arguments) -> Structure:
        (x,) = xs
        dims = _dims_of(name, x, arguments)
        indices = tuple(map(str, range(len(x.dims))))
        kept = [REPEATED if d in dims else str(d) for d in range(len(x.dims))]
        result = tuple(i for i in kept if i != REPEATED or KEEPDIMS.name in arguments)
        return Structure((indices,), result, sizes_of(name, xs, [indices]), reduction, linear)

    return _row(name, doc, structure, 1, (DIMS, KEEPDIMS))


SUM = _reduction("sum", "Sum over dimensions.", Reduction.SUM, Linear.ALL)
MAX = _reduction("max", "Return the largest element over dimensions.", Reduction.MAX, Linear.NOT)
MIN = _reduction("min", "Return the smallest element over dimensions.", Reduction.MIN, Linear.NOT)

# ---------------------------------------------------------------------------------------------
# Maps of whole dimensions
# ---------------------------------------------------------------------------------------------


def _along(name: str, doc: str, flops: int) -> StepKind:
    """Add the row of an operation that needs the whole of some dimensions on every device."""

    def structure(xs: Sequence[DistType], arguments: Arguments) -> Structure:
        (x,) = xs
        dims = _dims_of(name, x, arguments, floats=True)
        indices = tuple(map(str, range(len(x.dims))))
        blocked = frozenset(map(str, dims))
        sizes = sizes_of(name, xs, [indices])
        return Structure((indices,), indices, sizes, blocked=blocked, flops=flops)

    return _row(name, doc, structure, 1, (DIMS,))


SOFTMAX = _along("softmax", "Return e^x divided by its sum over dimensions.", 5)
LOG_SOFTMAX = _along("log_softmax", "Return x less the logarithm of the sum of e^x.", 5)
