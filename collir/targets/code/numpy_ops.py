"""The expression of numpy for every operation of models, on the block of a rank.

Expressions that need more than a line call methods, which are printed where they are used. Numbers
of 16 bits are computed in f32 where an operation is more than one function of numpy.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, DType, Mesh
from collir.layout.cuts import cuts, is_even, places
from collir.targets.code.python_text import axis_text, table_text, tuple_text
from collir.targets.code.ranks import RankText
from collir.targets.code.subscripts import subscripts

DTYPES = {
    DType.F16: "float16",
    DType.F32: "float32",
    DType.F64: "float64",
    DType.I8: "int8",
    DType.I32: "int32",
    DType.I64: "int64",
    DType.BOOL: "bool",
}
"""The element types of numpy, which does not know bf16."""


def is_short(dtype: DType) -> bool:
    """Return whether numbers of a type are computed in f32."""
    return dtype.is_float and dtype.bytes < 4


@dataclass(frozen=True)
class Step:
    """An operation of a model on the blocks of a rank.

    Attributes:
        inputs: the operands as expressions, those of 16 bits in f32 where the operation needs it.
        dtype: the element type in which it computes.
        dtype_text: the same as text.
        ranks: the coordinates of the rank.
        needs: the methods that expressions call, to which it adds.
    """

    op: DistOp
    mesh: Mesh
    inputs: list[str]
    dtype: DType
    dtype_text: str
    ranks: RankText
    needs: set[str]

    @property
    def x(self) -> str:
        """The first operand."""
        return self.inputs[0]

    @property
    def result(self) -> DistType:
        """The type of the result."""
        return dist_type(self.op.result)

    @property
    def before(self) -> tuple[int, ...]:
        """The shape of a block of the first operand."""
        return dist_type(self.op.input).local_shape(self.mesh)

    @property
    def after(self) -> tuple[int, ...]:
        """The shape of a block of the result."""
        return self.result.local_shape(self.mesh)

    @property
    def dim(self) -> int:
        """The dimension that the operation names."""
        return self.op.integer("dim")

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions that the operation names."""
        return self.op.sizes("dims")

    def method(self, name: str, *arguments: object) -> str:
        """Return a call of a method, which is printed."""
        self.needs.add(name)
        return f"self._{name}({', '.join(map(str, arguments))})"

    def start(self, x: DistType, dim: int) -> str:
        """Return where the block of a dimension begins."""
        axes = x.dims[dim].axes
        if is_even(self.mesh, axes):
            size = int(x.local_shape(self.mesh)[dim])
            return f"{self.ranks.factor_over(axes)} * {size}" if axes else "0"
        size = int(x.dims[dim].size)
        begins = [cuts(self.mesh, size, axes, at)[0] for at in places(self.mesh, axes)]
        return f"{table_text(begins)}[{self.ranks.index_over(axes)}]"


Expression = Callable[[Step], str]


# ---------------------------------------------------------------------------------------------
# Maps
# ---------------------------------------------------------------------------------------------

MAPS: dict[str, str] = {
    "neg": "-{0}",
    "mul": "{0} * {1}",
    "sub": "{0} - {1}",
    "div": "{0} / {1}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "stop_gradient": "xp.positive({0})",
    "maximum": "xp.maximum({0}, {1})",
    "minimum": "xp.minimum({0}, {1})",
    "where": "xp.where({0}, {1}, {2})",
    "exp": "xp.exp({0})",
    "log": "xp.log({0})",
    "sqrt": "xp.sqrt({0})",
    "tanh": "xp.tanh({0})",
    "sin": "xp.sin({0})",
    "cos": "xp.cos({0})",
}
"""The form of each elementwise operation that is one function of numpy."""

WIDE_MAPS: dict[str, str] = {
    "rsqrt": "1 / xp.sqrt({0})",
    "relu": "xp.maximum({0}, 0)",
}
"""The form of the others, which compute numbers of 16 bits in f32."""


def _form(form: str) -> Expression:
    return lambda s: form.format(*s.inputs)


def _by_method(name: str) -> Expression:
    """Return the expression of an operation that a method of its name does."""
    return lambda s: s.method(name, *s.inputs)


# ---------------------------------------------------------------------------------------------
# Products, and reductions over dimensions
# ---------------------------------------------------------------------------------------------


def _einsum(s: Step) -> str:
    equation = subscripts(s.op.word("equation"))
    if len(s.inputs) == 2 and (product := _batched(equation, *s.inputs)):
        return product
    fast = ", optimize=True" if len(s.inputs) > 1 else ""
    return f'xp.einsum("{equation}", {", ".join(s.inputs)}{fast})'


def _batched(equation: str, x: str, y: str) -> str:
    """Return products of matrices, one for each index of a batch, for which an einsum of numpy is
    slow; empty for another einsum."""
    terms, result = equation.split("->")
    left, right = terms.split(",")
    batch = [i for i in result if i in left and i in right]
    rows = [i for i in result if i in left and i not in right]
    columns = [i for i in result if i in right and i not in left]
    summed = [i for i in left if i in right and i not in result]
    first, second = [*batch, *rows, *summed], [*batch, *summed, *columns]
    whole = len(first) == len(left) and len(second) == len(right)
    if not batch or not whole or {len(rows), len(columns), len(summed)} != {1}:
        return ""
    product = f"xp.matmul({_ordered(x, left, first)}, {_ordered(y, right, second)})"
    return _ordered(product, [*batch, *rows, *columns], result)


def _ordered(x: str, indices: Sequence[str], wanted: Sequence[str]) -> str:
    """Return an array with its dimensions in another order."""
    order = [indices.index(index) for index in wanted]
    if order == sorted(order):
        return x
    return f"xp.permute_dims({x}, {tuple_text(order)})"


def _reduction(function: str, adds: bool = False) -> Expression:
    """Return the expression of a reduction."""

    def expression(s: Step) -> str:
        keep = ", keepdims=True" if "keepdims" in s.op.properties else ""
        same = _same_integers(s) if adds else ""
        return f"xp.{function}({s.x}, {axis_text(s.dims)}{keep}{same})"

    return expression


def _dtype(s: Step) -> str:
    return f", dtype={s.dtype_text}"


def _same_integers(s: Step) -> str:
    """Return that integers keep their type, as an argument: numpy adds in wider ones otherwise."""
    return "" if s.dtype.is_float else _dtype(s)


def _along(name: str) -> Expression:
    """Return the expression of a method along dimensions."""
    return lambda s: s.method(name, s.x, axis_text(s.dims))


def _normalisation(name: str) -> Expression:
    """Return the expression of a normalisation, by a method of the same name."""

    def expression(s: Step) -> str:
        gains = [_aligned(s, gain) for gain in s.inputs[1:]]
        return s.method(name, s.x, *gains, axis_text(s.dims), f"eps={s.op.number('eps')!r}")

    return expression


def _aligned(s: Step, gain: str) -> str:
    """Return a gain with its dimensions at their places among those of the operand."""
    dims, ascending = s.dims, sorted(s.dims)
    if list(dims) != ascending:
        order = tuple_text([dims.index(dim) for dim in ascending])
        gain = f"xp.permute_dims({gain}, {order})"
    if ascending != list(range(ascending[0], len(s.before))):
        shape = [n if dim in dims else 1 for dim, n in enumerate(s.before)][ascending[0] :]
        gain = f"xp.reshape({gain}, {tuple_text(shape)})"
    return gain


def _cumsum(s: Step) -> str:
    if "reverse" in s.op.properties:
        back = f"xp.flip({s.x}, axis={s.dim})"
        return f"xp.flip(xp.cumsum({back}, axis={s.dim}{_same_integers(s)}), axis={s.dim})"
    return f"xp.cumsum({s.x}, axis={s.dim}{_same_integers(s)})"


# ---------------------------------------------------------------------------------------------
# Tensors of a given type
# ---------------------------------------------------------------------------------------------


def _constant(s: Step) -> str:
    shape, value = tuple_text(s.after), s.op.number("value")
    if value in (0, 1) and math.copysign(1, value) > 0:
        return f"xp.{'ones' if value else 'zeros'}({shape}{_dtype(s)})"
    return f"xp.full({shape}, {_number(value, s.dtype)}{_dtype(s)})"


def _number(value: float, dtype: DType) -> str:
    if dtype is DType.BOOL:
        return str(bool(value))
    if not dtype.is_float:
        return str(int(value))
    if not math.isfinite(value):
        return f'float("{value}")'
    return repr(float(value)).replace("e+", "e")


def _iota(s: Step) -> str:
    start, size = s.start(s.result, s.dim), s.after[s.dim]
    if len(s.after) == 1:
        ends = f"{size}" if start == "0" else f"{start}, {start} + {size}"
        return f"xp.arange({ends}{_dtype(s)})"
    shape = tuple_text(s.after)
    return s.method("iota", shape, s.dtype_text, f"axis={s.dim}", f"start={start}")


def _uniform(s: Step) -> str:
    starts = [s.start(s.result, dim) for dim in range(len(s.after))]
    bits = min(32, s.dtype.mantissa)
    shape = tuple_text(s.after)
    return s.method("uniform", s.x, tuple_text(starts), shape, s.dtype_text, f"bits={bits}")


def _broadcast_to(s: Step) -> str:
    return f"xp.broadcast_to({s.x}, {tuple_text(s.after)})"


# ---------------------------------------------------------------------------------------------
# Selections
# ---------------------------------------------------------------------------------------------


def _take(s: Step) -> str:
    start = s.start(dist_type(s.op.input), s.dim)
    return s.method("take", *s.inputs, f"axis={s.dim}", f"start={start}")


def _take_transpose(s: Step) -> str:
    start, size = s.start(s.result, s.dim), s.after[s.dim]
    return s.method("take_transpose", *s.inputs, f"axis={s.dim}", f"start={start}", f"size={size}")


def _one_hot(s: Step) -> str:
    last = len(s.after) - 1
    start = s.start(s.result, last)
    return s.method("one_hot", s.x, s.after[last], s.dtype_text, f"start={start}")


def _argmax(s: Step) -> str:
    return f"xp.asarray(xp.argmax({s.x}, axis={s.dim}), dtype=xp.int32)"


def _top_k_indices(s: Step) -> str:
    return s.method("top_k_indices", s.x, f"k={s.op.integer('k')}", f"axis={s.dim}")


def _top_k(s: Step) -> str:
    return f"xp.take_along_axis({s.x}, {_top_k_indices(s)}, axis={s.dim})"


def _cross_entropy(s: Step) -> str:
    return s.method("cross_entropy", *s.inputs, f"axis={s.dim}")


# ---------------------------------------------------------------------------------------------
# Windows
# ---------------------------------------------------------------------------------------------


def _letters(spatial: int) -> tuple[str, str]:
    """Return a letter for each windowed dimension, and for each dimension of a window."""
    return "yxzuvw"[:spatial], "ijklpq"[:spatial]


def _steps(s: Step) -> list[str]:
    """Return the arguments that say where windows are."""
    return [tuple_text(s.op.sizes("stride")), tuple_text(s.op.sizes("padding"))]


def _windows(s: Step, x: str, window: Sequence[int], outside: str = "") -> str:
    more = [f"outside={outside}"] if outside else []
    return s.method("windows", x, tuple_text(window), *_steps(s), *more)


def _sum_of_products(terms: str, *arrays: str) -> str:
    return f'xp.einsum("{terms}", {", ".join(arrays)}, optimize=True)'


def _conv(s: Step) -> str:
    window = dist_type(s.op.operands[1]).shape[:-2]
    at, own = _letters(len(window))
    parts = _windows(s, s.x, window)
    return _sum_of_products(f"n{at}c{own},{own}cf->n{at}f", parts, s.inputs[1])


def _conv_transpose(s: Step) -> str:
    at, own = _letters(len(s.after) - 2)
    parts = _sum_of_products(f"n{at}f,{own}cf->n{at}c{own}", *s.inputs)
    return s.method("added_windows", parts, tuple_text(s.after), *_steps(s))


def _conv_filter(s: Step) -> str:
    window = s.after[:-2]
    at, own = _letters(len(window))
    parts = _windows(s, s.x, window)
    return _sum_of_products(f"n{at}c{own},n{at}f->{own}cf", parts, s.inputs[1])


def _lowest(s: Step, number: int) -> str:
    """Return the number below all others of the type of an operand."""
    dtype = dist_type(s.op.operands[number]).dtype
    return "-xp.inf" if dtype.is_float else f"xp.iinfo(xp.{DTYPES[dtype]}).min"


def _last(s: Step) -> str:
    """Return the dimensions of a window behind those of the operand."""
    return axis_text(range(-len(s.op.sizes("window")), 0))


def _max_pool(s: Step) -> str:
    return f"xp.max({_windows(s, s.x, s.op.sizes('window'), _lowest(s, 0))}, {_last(s)})"


def _avg_pool(s: Step) -> str:
    return f"xp.mean({_windows(s, s.x, s.op.sizes('window'))}, {_last(s)})"


def _max_pool_transpose(s: Step) -> str:
    window = s.op.sizes("window")
    parts = s.method("largest", s.x, _windows(s, s.inputs[1], window, _lowest(s, 1)))
    return s.method("added_windows", parts, tuple_text(s.after), *_steps(s))


def _avg_pool_transpose(s: Step) -> str:
    window = s.op.sizes("window")
    own = (
        f"xp.reshape({s.x} / {math.prod(window)}, {tuple_text((*s.before, *(1 for _ in window)))})"
    )
    parts = f"xp.broadcast_to({own}, {tuple_text((*s.before, *window))})"
    return s.method("added_windows", parts, tuple_text(s.after), *_steps(s))


# ---------------------------------------------------------------------------------------------
# The table
# ---------------------------------------------------------------------------------------------

EXPRESSIONS: dict[str, Expression] = {
    **{name: _form(form) for name, form in MAPS.items()},
    **{name: _form(form) for name, form in WIDE_MAPS.items()},
    "sigmoid": _by_method("sigmoid"),
    "silu": _by_method("silu"),
    "gelu": _by_method("gelu"),
    "einsum": _einsum,
    "sum": _reduction("sum", adds=True),
    "mean": _reduction("mean"),
    "max": _reduction("max"),
    "min": _reduction("min"),
    "softmax": _along("softmax"),
    "log_softmax": _along("log_softmax"),
    "layer_norm": _normalisation("layer_norm"),
    "rms_norm": _normalisation("rms_norm"),
    "cumsum": _cumsum,
    "constant": _constant,
    "iota": _iota,
    "uniform": _uniform,
    "broadcast_to": _broadcast_to,
    "argmax": _argmax,
    "top_k": _top_k,
    "top_k_indices": _top_k_indices,
    "take": _take,
    "take_transpose": _take_transpose,
    "one_hot": _one_hot,
    "cross_entropy": _cross_entropy,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "conv_filter": _conv_filter,
    "max_pool": _max_pool,
    "max_pool_transpose": _max_pool_transpose,
    "avg_pool": _avg_pool,
    "avg_pool_transpose": _avg_pool_transpose,
}
"""The expression of each operation of models, by its name."""

NATIVE = frozenset(MAPS) | {
    "max",
    "min",
    "broadcast_to",
    "constant",
    "argmax",
    "top_k",
    "top_k_indices",
    "take",
    "one_hot",
}
"""The operations that numpy computes in types of 16 bits as well as in f32."""

VIEWS = frozenset(["broadcast_to", "einsum"])
"""The operations whose expressions may be the memory of their operand, if that is the only one."""

OUT_OF_ORDER = frozenset(
    ["einsum", "cumsum", "top_k", "conv", "conv_filter", "max_pool", "avg_pool"]
)
"""The operations whose expressions may be arrays with their elements in another order."""
