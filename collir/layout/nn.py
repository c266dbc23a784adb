"""The rows of the nn dialect that multiply, map, reduce, or make tensors.

Operands of maps align as in numpy: from the last dimension, and a dimension of size 1 is repeated.
"""

import math
from collections.abc import Sequence

from collir.layout import expansions
from collir.layout import nn_gradients as gradients
from collir.layout.dtypes import DType, Reduction
from collir.layout.errors import LayoutError
from collir.layout.expansions import Expansion
from collir.layout.gradients import Gradient, Reverse, Term, nothing, same
from collir.layout.mesh import Mesh
from collir.layout.nn_rows import (
    DIMS,
    EPS,
    EQUATION,
    KEEPDIMS,
    REVERSE,
    VALUE,
    check_numbers,
    check_rank,
    dim_of,
    dims_of,
    model_row,
    named_type,
    row,
)
from collir.layout.sizes import same_size
from collir.layout.steps import DIM, TO, Arguments, StepKind
from collir.layout.structure import (
    REPEATED,
    Linear,
    Structure,
    dim_indices,
    index_text,
    map_structure,
    sizes_of,
)
from collir.layout.types import MAX_DIMS, DistType, check_type

# ---------------------------------------------------------------------------------------------
# einsum
# ---------------------------------------------------------------------------------------------


MAX_INDICES = 52
"""The most indices of an einsum: numpy, jax and torch name each of them by a letter."""


def equation_indices(equation: str) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Return the indices of the operands and of the result of ``b s h, h f -> b s f``.

    Raises:
        LayoutError: it is no equation or too long, an index is twice in one operand or in the
            result, or only in the result.
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
    if len(operands) > MAX_DIMS:
        raise error(f"has {len(operands)} operands; at most {MAX_DIMS} are possible")
    if len(known) > MAX_INDICES:
        raise error(f"has {len(known)} indices; at most {MAX_INDICES} are possible")
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


EINSUM = model_row(
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
    expansion: Expansion | None = None,
    aliases: tuple[str, ...] = (),
) -> StepKind:
    """Add the row of an elementwise operation.

    Args:
        floats: whether it is of floating-point numbers only.
        conditions: the number of operands in front that are truth values.
    """

    def structure(xs: Sequence[DistType], arguments: Arguments) -> Structure:
        if floats or not conditions:
            check_numbers(name, xs[0], floats)
        return map_structure(name, xs, linear, flops)

    return model_row(
        name,
        doc,
        structure,
        operands,
        result=result,
        conditions=conditions,
        gradient=gradient,
        expansion=expansion,
        aliases=aliases,
    )


_map("neg", "Change the sign of every element.", linear=Linear.ALL, gradient=lambda r, _: -r.g)
_map(
    "stop_gradient",
    "Return every element as it is; gradients are 0 from here.",
    linear=Linear.ALL,
    flops=0,
    gradient=nothing,
    aliases=("detach",),
)
_map("mul", "Multiply elementwise.", 2, linear=Linear.EACH, gradient=lambda r, i: r.g * r.x[1 - i])
_map("sub", "Subtract elementwise.", 2, linear=Linear.ALL, gradient=lambda r, i: -r.g if i else r.g)
DIV = _map(
    "div",
    "Divide elementwise.",
    2,
    floats=True,
    linear=Linear.FIRST,
    gradient=lambda r, i: -(r.g * r.y / r.x[1]) if i else r.g / r.x[1],
)
_map(
    "maximum",
    "Return the larger element of two.",
    2,
    gradient=lambda r, i: gradients.chosen(r, i, "greater"),
)
_map(
    "minimum",
    "Return the smaller element of two.",
    2,
    gradient=lambda r, i: gradients.chosen(r, i, "less"),
)
_map("greater", "Return where elements are larger.", 2, result=DType.BOOL)
_map("greater_equal", "Return where none is smaller.", 2, result=DType.BOOL)
_map("less", "Return where elements are smaller.", 2, result=DType.BOOL)
_map("less_equal", "Return where none is larger.", 2, result=DType.BOOL)
_map("equal", "Return where elements are equal.", 2, result=DType.BOOL)
_map("not_equal", "Return where elements differ.", 2, result=DType.BOOL)
_map(
    "where",
    "Choose between two elements by a truth value.",
    3,
    conditions=1,
    gradient=gradients.where,
)
_map("exp", "Return e to the power of every element.", floats=True, gradient=lambda r, _: r.g * r.y)
_map(
    "log",
    "Return the natural logarithm of every element.",
    floats=True,
    gradient=lambda r, _: r.g / r.x[0],
)
_map(
    "sqrt",
    "Return the square root of every element.",
    floats=True,
    gradient=lambda r, _: (r.g / r.y).step("scale", factor=0.5),
)
_map(
    "rsqrt",
    "Return the reciprocal of the square root of every element.",
    floats=True,
    gradient=lambda r, _: (r.g * r.y * r.y * r.y).step("scale", factor=-0.5),
)
_map(
    "tanh",
    "Return the hyperbolic tangent of every element.",
    floats=True,
    gradient=lambda r, _: r.g - r.g * r.y * r.y,
)
_map(
    "erf",
    "Return 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to every element.",
    floats=True,
    gradient=lambda r, _: (r.g * (-(r.x[0] * r.x[0])).step("exp")).step(
        "scale", factor=2 / math.sqrt(math.pi)
    ),
)
_map(
    "sigmoid",
    "Return 1 / (1 + e^-x) for every element x.",
    floats=True,
    flops=3,
    gradient=lambda r, _: r.g * r.y * (r.y.full(1) - r.y),
)
_map(
    "sin",
    "Return the sine of every element.",
    floats=True,
    gradient=lambda r, _: r.g * r.x[0].step("cos"),
)
_map(
    "cos",
    "Return the cosine of every element.",
    floats=True,
    gradient=lambda r, _: -(r.g * r.x[0].step("sin")),
)
_map(
    "relu",
    "Return every element, or 0 where it is negative.",
    gradient=lambda r, _: r.y.step("greater", r.y.full(0)).step("where", r.g, r.g.full(0)),
)
_map(
    "silu",
    "Return x / (1 + e^-x) for every element x.",
    floats=True,
    flops=4,
    gradient=gradients.silu,
    expansion=expansions.silu,
)
_map(
    "gelu",
    "Return x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 for every element x.",
    floats=True,
    flops=8,
    gradient=gradients.gelu,
    expansion=expansions.gelu,
)

# ---------------------------------------------------------------------------------------------
# Reductions over dimensions
# ---------------------------------------------------------------------------------------------


def _reduction(
    name: str,
    doc: str,
    reduction: Reduction,
    linear: Linear,
    gradient: Gradient,
    floats: bool = False,
    expansion: Expansion | None = None,
) -> StepKind:
    """Add the row of a reduction over dimensions."""

    def structure(xs: Sequence[DistType], arguments: Arguments) -> Structure:
        (x,) = xs
        dims = dims_of(name, x, arguments, floats)
        indices = dim_indices(x)
        kept = [REPEATED if d in dims else str(d) for d in range(len(x.dims))]
        result = tuple(i for i in kept if i != REPEATED or KEEPDIMS.name in arguments)
        return Structure((indices,), result, sizes_of(name, xs, [indices]), reduction, linear)

    parameters = (DIMS, KEEPDIMS)
    return model_row(name, doc, structure, 1, parameters, gradient=gradient, expansion=expansion)


_reduction(
    "sum",
    "Sum over dimensions.",
    Reduction.SUM,
    Linear.ALL,
    lambda r, _: gradients.kept(r, r.g).repeated(r.types[0]),
)
_reduction(
    "mean",
    "Average over dimensions.",
    Reduction.AVG,
    Linear.ALL,
    gradients.mean,
    floats=True,
    expansion=expansions.mean,
)
_reduction(
    "max",
    "Return the largest element over dimensions.",
    Reduction.MAX,
    Linear.NOT,
    gradients.extreme,
)
_reduction(
    "min",
    "Return the smallest element over dimensions.",
    Reduction.MIN,
    Linear.NOT,
    gradients.extreme,
)

# ---------------------------------------------------------------------------------------------
# Maps of whole dimensions
# ---------------------------------------------------------------------------------------------


def _along(name: str, doc: str, flops: int, gradient: Gradient, expansion: Expansion) -> StepKind:
    """Add the row of an operation that needs the whole of some dimensions on every device."""

    def structure(xs: Sequence[DistType], arguments: Arguments) -> Structure:
        (x,) = xs
        dims = dims_of(name, x, arguments, floats=True)
        indices = dim_indices(x)
        blocked = frozenset(map(str, dims))
        sizes = sizes_of(name, xs, [indices])
        return Structure((indices,), indices, sizes, blocked=blocked, flops=flops)

    return model_row(name, doc, structure, 1, (DIMS,), gradient=gradient, expansion=expansion)


SOFTMAX = _along(
    "softmax",
    "Return e^x divided by its sum over dimensions.",
    5,
    lambda r, _: r.y * (r.g - gradients.sum_over(r, r.g * r.y)),
    expansions.softmax,
)
_along(
    "log_softmax",
    "Return x less the logarithm of the sum of e^x.",
    5,
    lambda r, _: r.g - r.y.step("exp") * gradients.sum_over(r, r.g),
    expansions.log_softmax,
)


def _normalisation(
    name: str, doc: str, operands: int, flops: int, gradient: Gradient, expansion: Expansion
) -> StepKind:
    """Add the row of a normalisation over dimensions, with a gain for each of their positions."""

    def structure(xs: Sequence[DistType], arguments: Arguments) -> Structure:
        dims = dims_of(name, xs[0], arguments, floats=True)
        eps = arguments[EPS.name]
        assert isinstance(eps, int | float)
        if eps < 0:
            raise LayoutError("eps is a number from 0", parameter=EPS.name)
        indices = dim_indices(xs[0])
        own = tuple(map(str, dims))
        for number, x in enumerate(xs[1:], 1):
            check_rank(name, x, number, own)
        every = [indices, *[own] * (operands - 1)]
        sizes = sizes_of(name, xs, every)
        return Structure(tuple(every), indices, sizes, blocked=frozenset(own), flops=flops)

    parameters = (DIMS, EPS)
    return model_row(
        name, doc, structure, operands, parameters, gradient=gradient, expansion=expansion
    )


_normalisation(
    "layer_norm",
    "Return (x - mean) / sqrt(variance + eps) over dimensions, times a gain, plus a bias.",
    3,
    8,
    gradients.layer_norm,
    expansions.layer_norm,
)
_normalisation(
    "rms_norm",
    "Return x / sqrt(mean of squares + eps) over dimensions, times a gain.",
    2,
    5,
    gradients.rms_norm,
    expansions.rms_norm,
)


def _cumsum(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    (x,) = xs
    check_numbers("cumsum", x)
    blocked = frozenset([str(dim_of(x, arguments))])
    indices = dim_indices(x)
    sizes = sizes_of("cumsum", xs, [indices])
    return Structure((indices,), indices, sizes, linear=Linear.ALL, blocked=blocked)


model_row(
    "cumsum",
    "Return the sums of all elements up to each, along a dimension.",
    _cumsum,
    1,
    (DIM, REVERSE),
    aliases=("scan", "prefix_sum"),
    gradient=gradients.cumsum,
)


def _linear_scan(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    x, factor = xs
    check_numbers("linear_scan", x)
    blocked = frozenset([str(dim_of(x, arguments))])
    indices = dim_indices(x)
    check_rank("linear_scan", factor, 1, indices)
    sizes = sizes_of("linear_scan", xs, [indices, indices])
    return Structure(
        (indices, indices), indices, sizes, linear=Linear.FIRST, blocked=blocked, flops=2
    )


model_row(
    "linear_scan",
    "Return each element plus a factor times the result before, along a dimension.",
    _linear_scan,
    2,
    (DIM, REVERSE),
    aliases=("associative_scan", "linear_recurrence", "selective_scan"),
    gradient=gradients.linear_scan,
)


# ---------------------------------------------------------------------------------------------
# Tensors of a given type
# ---------------------------------------------------------------------------------------------


def _new_structure(operands: Sequence[DistType], arguments: Arguments) -> Structure:
    """Return the structure of an operation without operands, every dimension of which is new."""
    sizes = {str(d): dim.size for d, dim in enumerate(named_type(arguments).dims)}
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
    if not to.dtype.may_be(value):
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
        wider = DType.I32 if DType.I32.represents(last) else DType.I64
        cast = " and cast it" if to.dtype.is_float or to.dtype is DType.BOOL else ""
        raise LayoutError(
            f"iota counts to {last}, and {to.dtype} does not hold all numbers up to it: make an "
            f"iota of {wider}{cast}",
            parameter=TO.name,
        )
    return to


CONSTANT = row(
    name="constant",
    rule=_constant,
    parameters=(VALUE, TO),
    operands=0,
    structure=_new_structure,
    aliases=("full", "zeros", "ones", "splat", "fill"),
)
IOTA = row(
    name="iota",
    rule=_iota,
    parameters=(DIM, TO),
    operands=0,
    structure=_new_structure,
    aliases=("arange", "range", "broadcasted_iota"),
)


def _uniform(operands: Sequence[DistType], arguments: Arguments) -> Structure:
    (seed,), to = operands, named_type(arguments)
    if seed.dims:
        raise LayoutError(
            f"uniform takes one integer as its seed, and {{0}} has the shape "
            f"{list(map(int, seed.shape))}",
            operand=0,
        )
    if not to.dtype.is_float:
        raise LayoutError(
            f"uniform makes floating-point numbers, not {to.dtype}", parameter=TO.name
        )
    sizes = {str(d): dim.size for d, dim in enumerate(to.dims)}
    return Structure(((),), tuple(sizes), sizes, flops=10)


model_row(
    "uniform",
    "Return random numbers from 0 to below 1, each by a seed and its position alone.",
    _uniform,
    1,
    (TO,),
    integers=0,
    gradient=nothing,
    aliases=("random", "rand", "random_uniform", "dropout"),
)


def _broadcast_structure(operands: Sequence[DistType], arguments: Arguments) -> Structure:
    (x,), to = operands, named_type(arguments)
    before = len(to.dims) - len(x.dims)
    for d, dim in enumerate(x.dims):
        if before < 0 or not (
            same_size(dim.size, 1) or same_size(dim.size, to.dims[before + d].size)
        ):
            raise LayoutError(
                f"broadcast_to repeats dimensions of size 1 and adds dimensions in front: {{0}} "
                f"is {list(map(int, x.shape))}, which does not fit {list(map(int, to.shape))}",
                operand=0,
                parameter=TO.name,
            )
    sizes = {str(d): dim.size for d, dim in enumerate(to.dims)}
    indices = tuple(
        REPEATED if same_size(dim.size, 1) and to.dims[d].size > 1 else str(d)
        for d, dim in enumerate(x.dims, before)
    )
    return Structure((indices,), tuple(sizes), sizes, linear=Linear.ALL, flops=0)


model_row(
    "broadcast_to",
    "Repeat a tensor along new dimensions, and along those of size 1.",
    _broadcast_structure,
    1,
    (TO,),
    aliases=("expand", "repeat", "tile", "broadcast_in_dim"),
    gradient=same,
)
