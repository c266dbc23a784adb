"""The expression of jax for every step, on the blocks of a device inside of a ``shard_map``.

Where a device holds nothing of a value, it computes on numbers that no other step uses.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.layout import DistType, DType, Mesh, Reduction
from collir.layout.cuts import places
from collir.layout.mesh import digits_over, index_over
from collir.targets.code.emitters import root_place
from collir.targets.code.python_text import axis_text, tuple_text
from collir.targets.code.subscripts import subscripts

DTYPES = {
    DType.F16: "jnp.float16",
    DType.BF16: "jnp.bfloat16",
    DType.F32: "jnp.float32",
    DType.F64: "jnp.float64",
    DType.I8: "jnp.int8",
    DType.I32: "jnp.int32",
    DType.I64: "jnp.int64",
    DType.BOOL: "jnp.bool_",
}


def names_text(names: Sequence[str]) -> str:
    """Return the names of axes as collectives take them: one, or a tuple in their order."""
    quoted = [f'"{name}"' for name in names]
    return quoted[0] if len(quoted) == 1 else tuple_text(quoted)


def literal(value: float, dtype: DType) -> str:
    """Return a number that takes the dtype of an array beside it."""
    if dtype is DType.BOOL:
        return str(bool(value))
    if not dtype.is_float:
        return str(int(value))
    if math.isnan(value):
        return "jnp.nan"
    return repr(float(value)).replace("inf", "jnp.inf")


@dataclass(frozen=True)
class Local:
    """A step on the blocks of a device.

    Attributes:
        inputs: the variables of the operands, or numbers.
        axis: the name of each sub-axis in the mesh of jax.
        needs: the helpers that the expression calls, to which it adds.
    """

    op: DistOp
    mesh: Mesh
    inputs: list[str]
    axis: dict[str, str]
    needs: set[str]

    @property
    def x(self) -> str:
        """The first operand."""
        return self.inputs[0]

    @property
    def operand(self) -> DistType:
        """The type of the first operand."""
        return dist_type(self.op.input)

    @property
    def result(self) -> DistType:
        """The type of the result."""
        return dist_type(self.op.result)

    @property
    def before(self) -> tuple[int, ...]:
        """The shape of a block of the first operand."""
        return tuple(map(int, self.operand.local_shape(self.mesh)))

    @property
    def after(self) -> tuple[int, ...]:
        """The shape of a block of the result."""
        return tuple(map(int, self.result.local_shape(self.mesh)))

    @property
    def dtype(self) -> str:
        """The element type of the result."""
        return DTYPES[self.result.dtype]

    @property
    def over(self) -> str:
        """The sub-axes that the step names, as jax takes them."""
        return self.names(self.op.over)

    @property
    def group(self) -> int:
        """The number of devices along the sub-axes that the step names."""
        return self.mesh.group_size(self.op.over)

    @property
    def dim(self) -> int:
        """The dimension that the step names."""
        return self.op.integer("dim")

    def names(self, axes: Sequence[str]) -> str:
        """Return sub-axes as jax takes them."""
        return names_text([self.axis[axis] for axis in axes])

    def index(self, axes: Sequence[str]) -> str:
        """Return the index of the device over sub-axes, the first most significant."""
        return f"lax.axis_index({self.names(axes)})"

    def start(self, x: DistType, dim: int) -> str:
        """Return where the block of a dimension begins, as a term to subtract; empty for 0."""
        axes = x.dims[dim].axes
        size = int(x.local_shape(self.mesh)[dim])
        return f"{self.index(axes)} * {size}" if axes else ""


Expression = Callable[[Local], str]


# ---------------------------------------------------------------------------------------------
# Collectives
# ---------------------------------------------------------------------------------------------

_SUMS = {
    Reduction.SUM: "lax.psum",
    Reduction.AVG: "lax.pmean",
    Reduction.MAX: "lax.pmax",
    Reduction.MIN: "lax.pmin",
}
_FOLDS = {Reduction.MAX: "jnp.max", Reduction.MIN: "jnp.min", Reduction.PROD: "jnp.prod"}


def _whole(s: Local) -> str:
    """Return that an integer keeps its type in a fold, as an argument."""
    return "" if s.result.dtype.is_float or s.operand.dtype is DType.BOOL else _SAME_INTEGERS


_SAME_INTEGERS = ", promote_integers=False"


def _all_reduce(s: Local) -> str:
    reduction = s.operand.reduction
    assert reduction is not None
    if reduction in _SUMS:
        return f"{_SUMS[reduction]}({s.x}, {s.over})"
    return f"jnp.prod(lax.all_gather({s.x}, {s.over}), axis=0{_whole(s)})"


def _broadcast(s: Local) -> str:
    at = f"{s.index(s.op.over)} == {_root(s)}"
    if s.result.dtype is DType.BOOL:
        return f"lax.pmax(jnp.where({at}, {s.x}, False), {s.over})"
    return f"lax.psum(jnp.where({at}, {s.x}, 0), {s.over})"


def _root(s: Local) -> int:
    return index_over(s.mesh, s.op.over, dict(root_place(s.op)))


def _exchanged(s: Local) -> str:
    """Return the blocks of a dimension that all devices have for this one, stacked in front of the
    block's own dimension."""
    dim, shape = s.dim, s.before
    stacked = (*shape[:dim], s.group, shape[dim] // s.group, *shape[dim + 1 :])
    blocks = f"{s.x}.reshape({', '.join(map(str, stacked))})"
    return f"lax.all_to_all({blocks}, {s.over}, {dim}, {dim})"


def _reduce_scatter(s: Local) -> str:
    reduction = s.operand.reduction
    assert reduction is not None
    if not reduction.linear:
        fold = _FOLDS[reduction]
        return f"{fold}({_exchanged(s)}, axis={s.dim}{_whole(s) * (fold == 'jnp.prod')})"
    scattered = f"lax.psum_scatter({s.x}, {s.over}, scatter_dimension={s.dim}, tiled=True)"
    return f"{scattered} / {s.group}" if reduction is Reduction.AVG else scattered


def _scatter(s: Local) -> str:
    return f"lax.index_in_dim({_exchanged(s)}, {_root(s)}, {s.dim}, keepdims=False)"


def _all_gather(s: Local) -> str:
    return f"lax.all_gather({s.x}, {s.over}, axis={s.dim}, tiled=True)"


def _all_to_all(s: Local) -> str:
    source, target = s.op.integer("source"), s.op.integer("target")
    return f"lax.all_to_all({s.x}, {s.over}, {target}, {source}, tiled=True)"


def _sent(s: Local, pairs: Sequence[tuple[int, int]], form: str = "") -> str:
    """Return a permute over the sub-axes of a step, of pairs of indices over them.

    A ``ppermute`` counts in the order of the mesh, whatever the order of the names is.

    Args:
        form: the pairs as a comprehension, if the order is the same.
    """
    axes, mesh = s.op.over, s.mesh
    ordered = mesh.ordered(axes)

    def place(index: int) -> int:
        return index_over(mesh, ordered, digits_over(mesh, axes, index))

    if ordered != axes or not form:
        form = str(sorted((place(source), place(target)) for source, target in pairs))
    return f"lax.ppermute({s.x}, {s.names(ordered)}, {form})"


def _send(s: Local) -> str:
    return _sent(s, [(s.op.integer("sender"), s.op.integer("receiver"))])


def _shift(s: Local) -> str:
    by, count, is_open = s.op.integer("distance"), s.group, "open" in s.op.properties
    if by % count == 0 and not is_open:
        return s.x
    if is_open:
        pairs = [(i, i + by) for i in range(count) if i + by in range(count)]
        ends = ("i", f"i + {by}") if by > 0 else (f"i + {-by}", "i")
        return _sent(s, pairs, f"[({', '.join(ends)}) for i in range({len(pairs)})]")
    pairs = [(i, (i + by) % count) for i in range(count)]
    form = f"[(i, (i + {by % count}) % {count}) for i in range({count})]"
    return _sent(s, pairs, form)


def _permute(s: Local) -> str:
    """Send every block to the device whose place in the new layout is this device's in the old.

    Among sub-axes that neither layout is sharded over, a coordinate stays. The r-th device that
    holds a block in one layout sends it to the r-th that holds it in the other.
    """
    x, y, mesh = s.operand, s.result, s.mesh
    sharded = {axis for z in (x, y) for dim in z.dims for axis in dim.axes}
    moving = [sub.name for sub in mesh.sub_axes if sub.name in sharded]
    lists = [(a.axes, b.axes) for a, b in zip(x.dims, y.dims, strict=True)]
    copies = [tuple(a for a in moving if z.dim_of(a) is None) for z in (x, y)]
    lists.append((copies[0], copies[1]))
    pairs: list[tuple[int, int]] = []
    for number, at in enumerate(places(mesh, moving)):
        there: dict[str, int] = {}
        for source, target in lists:
            there |= digits_over(mesh, target, index_over(mesh, source, at))
        pairs.append((number, index_over(mesh, moving, there)))
    if all(source == target for source, target in pairs):
        return s.x
    return f"lax.ppermute({s.x}, {s.names(moving)}, {pairs})"


# ---------------------------------------------------------------------------------------------
# Steps that send nothing
# ---------------------------------------------------------------------------------------------


def _same(s: Local) -> str:
    return s.x


def _slice(s: Local) -> str:
    size = s.after[s.dim]
    start = f"{s.index(s.op.over)} * {size}"
    return f"lax.dynamic_slice_in_dim({s.x}, {start}, {size}, axis={s.dim})"


def _mask(s: Local) -> str:
    neutral = literal(s.op.word("reduction") == Reduction.PROD, s.result.dtype)
    neutral = neutral.removesuffix(".0")
    return f"jnp.where({s.index(s.op.over)} == 0, {s.x}, {neutral})"


def _assemble(s: Local) -> str:
    return f"lax.select_n({s.index(s.op.over)}, {', '.join(s.inputs)})"


def _compute(s: Local) -> str:
    if len(s.inputs) == 1:
        return s.x
    return f"lax.optimization_barrier({tuple_text(s.inputs)})[0]"


def _reshape(s: Local) -> str:
    return f"{s.x}.reshape({', '.join(map(str, s.after)) or '()'})"


def _transpose(s: Local) -> str:
    order = s.op.sizes("order")
    return f"{s.x}.T" if order == (1, 0) else f"{s.x}.transpose({', '.join(map(str, order))})"


def _pad(s: Local) -> str:
    dim, low, high = (s.op.integer(name) for name in ("dim", "low", "high"))
    size, x = s.before[dim], s.x
    first, last = max(-low, 0), size + min(high, 0)
    if first or last != size:
        cut = f"{first or ''}:{last if last != size else ''}"
        x = f"{x}[{':, ' * dim}{cut}]"
    if low <= 0 and high <= 0:
        return x
    widths = ["(0, 0)"] * len(s.before)
    widths[dim] = f"({max(low, 0)}, {max(high, 0)})"
    value = literal(s.op.number("value"), s.result.dtype)
    rest = "" if s.op.number("value") == 0 else f", constant_values={value}"
    return f"jnp.pad({x}, {tuple_text(widths)}{rest})"


def _scale(s: Local) -> str:
    return f"{s.x} * {literal(s.op.number('factor'), s.operand.dtype)}"


def _cast(s: Local) -> str:
    return f"{s.x}.astype({s.dtype})"


def _concat(s: Local) -> str:
    if len(s.inputs) == 1:
        return s.x
    return f"jnp.concatenate({tuple_text(s.inputs)}, axis={s.dim})"


STEPS: dict[str, Expression] = {
    "all_reduce": _all_reduce,
    "reduce": _all_reduce,
    "broadcast": _broadcast,
    "reduce_scatter": _reduce_scatter,
    "scatter": _scatter,
    "all_gather": _all_gather,
    "gather": _all_gather,
    "all_to_all": _all_to_all,
    "send": _send,
    "shift": _shift,
    "permute": _permute,
    "slice": _slice,
    "keep_root": _same,
    "keep": _same,
    "part": _same,
    "assemble": _assemble,
    "mask": _mask,
    "terms": _reshape,
    "split": _reshape,
    "merge": _reshape,
    "reshape": _reshape,
    "transpose": _transpose,
    "pad": _pad,
    "scale": _scale,
    "cast": _cast,
    "concat": _concat,
    "compute": _compute,
    "barrier": lambda s: f"lax.optimization_barrier({s.x})",
}
"""The expression of each step of the coll dialect that is no map."""


# ---------------------------------------------------------------------------------------------
# Operations of models
# ---------------------------------------------------------------------------------------------

MAPS: dict[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "maximum": "jnp.maximum({0}, {1})",
    "minimum": "jnp.minimum({0}, {1})",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "where": "jnp.where({0}, {1}, {2})",
    "stop_gradient": "lax.stop_gradient({0})",
    "exp": "jnp.exp({0})",
    "log": "jnp.log({0})",
    "sqrt": "jnp.sqrt({0})",
    "rsqrt": "lax.rsqrt({0})",
    "tanh": "jnp.tanh({0})",
    "sigmoid": "jax.nn.sigmoid({0})",
    "sin": "jnp.sin({0})",
    "cos": "jnp.cos({0})",
    "relu": "jnp.maximum({0}, 0)",
    "silu": "jax.nn.silu({0})",
    "gelu": "jax.nn.gelu({0})",
}
"""The form of each elementwise operation; an operand may be a number, which takes the dtype of an
array beside it."""


def _einsum(s: Local) -> str:
    return f'jnp.einsum("{subscripts(s.op.word("equation"))}", {", ".join(s.inputs)})'


def _reduction(function: str, sums: bool = False) -> Expression:
    def expression(s: Local) -> str:
        keep = ", keepdims=True" if "keepdims" in s.op.properties else ""
        whole = _whole(s) if sums else ""
        return f"{function}({s.x}, {axis_text(s.op.sizes('dims'))}{keep}{whole})"

    return expression


def _softmax(function: str) -> Expression:
    return lambda s: f"jax.nn.{function}({s.x}, {axis_text(s.op.sizes('dims'))})"


def _normalisation(name: str) -> Expression:
    """Return the expression of a normalisation, by a helper of the same name."""

    def expression(s: Local) -> str:
        s.needs.add(name)
        dims = s.op.sizes("dims")
        gains = [_aligned(s, gain, dims) for gain in s.inputs[1:]]
        axis = axis_text(dims).removeprefix("axis=")
        return f"{name}({', '.join([s.x, *gains, axis, repr(s.op.number('eps'))])})"

    return expression


def _aligned(s: Local, gain: str, dims: Sequence[int]) -> str:
    """Return a gain with its dimensions at their places among those of the operand."""
    ascending = sorted(dims)
    if list(dims) != ascending:
        gain += f".transpose({', '.join(str(dims.index(dim)) for dim in ascending)})"
    rank = len(s.before)
    if ascending != list(range(ascending[0], rank)):
        shape = [n if dim in dims else 1 for dim, n in enumerate(s.before)][ascending[0] :]
        gain += f".reshape({', '.join(map(str, shape))})"
    return gain


def _cumsum(s: Local) -> str:
    back = ", reverse=True" if "reverse" in s.op.properties else ""
    return f"lax.cumsum({s.x}, axis={s.dim}{back})"


def _constant(s: Local) -> str:
    value, shape = s.op.number("value"), s.after
    if not shape:
        return f"{s.dtype}({literal(value, s.result.dtype)})"
    if value in (0, 1) and math.copysign(1, value) > 0:
        return f"jnp.{'ones' if value else 'zeros'}({tuple_text(shape)}, {s.dtype})"
    return f"jnp.full({tuple_text(shape)}, {literal(value, s.result.dtype)}, {s.dtype})"


def _iota(s: Local) -> str:
    start = s.start(s.result, s.dim)
    dtype = "jnp.int32" if start else s.dtype
    if len(s.after) == 1:
        numbers = f"jnp.arange({s.after[0]}, dtype={dtype})"
    else:
        numbers = f"lax.broadcasted_iota({dtype}, {tuple_text(s.after)}, {s.dim})"
    if not start:
        return numbers
    return (
        f"{numbers} + {start}" if s.dtype == dtype else f"({numbers} + {start}).astype({s.dtype})"
    )


def _uniform(s: Local) -> str:
    s.needs.add("uniform")
    starts = [s.start(s.result, dim) or "0" for dim in range(len(s.after))]
    return f"uniform({s.x}, {tuple_text(starts)}, {tuple_text(s.after)}, {s.dtype})"


def _broadcast_to(s: Local) -> str:
    return f"jnp.broadcast_to({s.x}, {tuple_text(s.after)})"


# --- selections ---------------------------------------------------------------------------------


def _positions(s: Local, number: int, start: str = "") -> str:
    """Return integers as positions in a block that begins at a start."""
    x = s.inputs[number]
    if start:
        return f"{x} - {start}"
    # Bounds are compared in the type of the integers, which may not hold them.
    short = dist_type(s.op.operands[number]).dtype is DType.I8
    return f"{x}.astype(jnp.int32)" if short else x


def _take(s: Local) -> str:
    at = _positions(s, 1, s.start(s.operand, s.dim))
    fill = literal(0, s.result.dtype).removesuffix(".0")
    mode = f'mode="fill", fill_value={fill}, wrap_negative_indices=False'
    return f"{s.x}.at[{':, ' * s.dim}{at}].get({mode})"


def _take_transpose(s: Local) -> str:
    at = _positions(s, 1, s.start(s.result, s.dim))
    zeros = f"jnp.zeros({tuple_text(s.after)}, {s.dtype})"
    mode = 'mode="drop", wrap_negative_indices=False'
    return f"{zeros}.at[{':, ' * s.dim}{at}].add({s.x}, {mode})"


def _one_hot(s: Local) -> str:
    last = len(s.after) - 1
    at = _positions(s, 0, s.start(s.result, last))
    return f"jax.nn.one_hot({at}, {s.after[last]}, dtype={s.dtype})"


def _cross_entropy(s: Local) -> str:
    own = f"jax.nn.one_hot({_positions(s, 1)}, {s.before[s.dim]}, axis={s.dim}, dtype=bool)"
    return f"-jnp.sum(jax.nn.log_softmax({s.x}, axis={s.dim}), axis={s.dim}, where={own})"


def _top_k(number: int) -> Expression:
    return lambda s: f"lax.top_k({s.x}, {s.op.integer('k')}, axis={s.dim})[{number}]"


# --- windows ------------------------------------------------------------------------------------

_SPACE = "HWDXYZABEFGJKLMPQRSTUV"
"""Letters for windowed dimensions; N, C, I and O are those of the others."""


def _conv(s: Local) -> str:
    stride, padding = s.op.sizes("stride"), s.op.sizes("padding")
    pads = tuple_text([(p, p) for p in padding])
    space = _SPACE[: len(stride)]
    numbers = f'("N{space}C", "{space}IO", "N{space}C")'
    arguments = f"{tuple_text(stride)}, {pads}, dimension_numbers={numbers}"
    return f"lax.conv_general_dilated({', '.join(s.inputs)}, {arguments})"


def _around(s: Local, window: Sequence[int], whole: Sequence[int]) -> list[tuple[int, int]]:
    """Return the padding with which windows of stride 1 over dilated elements give the whole."""
    strides, paddings = s.op.sizes("stride"), s.op.sizes("padding")
    counts = s.before[1:-1]
    return [
        (width - 1 - p, size - 1 + p - (count - 1) * step)
        for width, size, count, step, p in zip(
            window, whole, counts, strides, paddings, strict=True
        )
    ]


def _conv_transpose(s: Local) -> str:
    stride = s.op.sizes("stride")
    window = dist_type(s.op.operands[1]).shape[:-2]
    pads = tuple_text(_around(s, list(map(int, window)), s.after[1:-1]))
    space, ones = _SPACE[: len(stride)], tuple_text([1] * len(stride))
    flipped = f"jnp.flip({s.inputs[1]}, {tuple_text(range(len(stride)))})"
    numbers = f'("N{space}C", "{space}OI", "N{space}C")'
    rest = f"lhs_dilation={tuple_text(stride)}, dimension_numbers={numbers}"
    return f"lax.conv_general_dilated({s.x}, {flipped}, {ones}, {pads}, {rest})"


def _conv_filter(s: Local) -> str:
    stride, padding = s.op.sizes("stride"), s.op.sizes("padding")
    counts = dist_type(s.op.operands[1]).shape[1:-1]
    pads = [
        (p, width + (int(count) - 1) * step - size - p)
        for p, width, count, step, size in zip(
            padding, s.after[:-2], counts, stride, s.before[1:-1], strict=True
        )
    ]
    space, ones = _SPACE[: len(stride)], tuple_text([1] * len(stride))
    numbers = f'("C{space}N", "I{space}O", "{space}NC")'
    rest = f"rhs_dilation={tuple_text(stride)}, dimension_numbers={numbers}"
    return f"lax.conv_general_dilated({', '.join(s.inputs)}, {ones}, {tuple_text(pads)}, {rest})"


def _windows(
    s: Local,
    x: str,
    function: str,
    stride: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilation: Sequence[int] = (),
) -> str:
    """Return a reduction over windows, with the element that changes nothing as padding."""
    dtype, initial = s.operand.dtype, "0"
    if function == "lax.max":
        initial = "-jnp.inf" if dtype.is_float else f"jnp.iinfo({DTYPES[dtype]}).min"
    if not dtype.is_float:
        initial = f"{DTYPES[dtype]}({initial})"
    elif initial == "0":
        initial = "0.0"
    every = [(0, 0), *pads, (0, 0)]
    texts = [(1, *s.op.sizes("window"), 1), (1, *stride, 1), tuple(every)]
    more = f", base_dilation={(1, *dilation, 1)}" if any(n > 1 for n in dilation) else ""
    return f"lax.reduce_window({x}, {initial}, {function}, {', '.join(map(str, texts))}{more})"


def _max_pool(s: Local) -> str:
    pads = [(p, p) for p in s.op.sizes("padding")]
    return _windows(s, s.x, "lax.max", s.op.sizes("stride"), pads)


def _avg_pool(s: Local) -> str:
    pads = [(p, p) for p in s.op.sizes("padding")]
    total = _windows(s, s.x, "lax.add", s.op.sizes("stride"), pads)
    return f"{total} / {math.prod(s.op.sizes('window'))}"


def _avg_pool_transpose(s: Local) -> str:
    window, stride = s.op.sizes("window"), s.op.sizes("stride")
    pads = _around(s, window, s.after[1:-1])
    total = _windows(s, s.x, "lax.add", [1] * len(window), pads, stride)
    return f"{total} / {math.prod(window)}"


def _max_pool_transpose(s: Local) -> str:
    if not s.operand.dtype.is_float:
        raise DiagnosticError.at(
            s.op, f"max_pool_transpose of {s.operand.dtype} has no form in jax: cast it to f32"
        )
    pads = [(p, p) for p in s.op.sizes("padding")]
    pool = _windows(s, "x", "lax.max", s.op.sizes("stride"), pads)
    return f"jax.vjp(lambda x: {pool}, {s.inputs[1]})[1]({s.x})[0]"


NUMBERS = frozenset(["constant"])
"""The operations that make tensors of one number."""

MODELS: dict[str, Expression] = {
    "einsum": _einsum,
    "sum": _reduction("jnp.sum", sums=True),
    "mean": _reduction("jnp.mean"),
    "max": _reduction("jnp.max"),
    "min": _reduction("jnp.min"),
    "softmax": _softmax("softmax"),
    "log_softmax": _softmax("log_softmax"),
    "layer_norm": _normalisation("layer_norm"),
    "rms_norm": _normalisation("rms_norm"),
    "cumsum": _cumsum,
    "constant": _constant,
    "iota": _iota,
    "uniform": _uniform,
    "broadcast_to": _broadcast_to,
    "argmax": lambda s: f"lax.argmax({s.x}, {s.dim}, jnp.int32)",
    "top_k": _top_k(0),
    "top_k_indices": _top_k(1),
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
"""The expression of each operation of models that is no map."""

EXPRESSIONS: dict[str, Expression] = {
    **STEPS,
    **{name: lambda s, form=form: form.format(*s.inputs) for name, form in MAPS.items()},
    **MODELS,
}
"""The expression of each step, by its name."""

HELPERS: dict[str, str] = {
    "layer_norm": '''\
def layer_norm(x, gain, bias, axis, eps):
    """Return x with mean 0 and variance 1 over axes, times a gain, plus a bias."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    centred = wide - jnp.mean(wide, axis, keepdims=True)
    scale = lax.rsqrt(jnp.mean(centred * centred, axis, keepdims=True) + eps)
    return (centred * scale * gain + bias).astype(x.dtype)
''',
    "rms_norm": '''\
def rms_norm(x, gain, axis, eps):
    """Return x over the root of its mean square over axes, times a gain."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    scale = lax.rsqrt(jnp.mean(wide * wide, axis, keepdims=True) + eps)
    return (wide * scale * gain).astype(x.dtype)
''',
    "uniform": '''\
def uniform(seed, starts, shape, dtype):
    """Return numbers from 0 to below 1, each by the seed and its position in the whole tensor."""

    def mixed(x):
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            x = (x ^ (x >> shift)) * jnp.uint32(factor)
        return x ^ (x >> 16)

    drawn = mixed(seed.astype(jnp.int32).astype(jnp.uint32))
    for dim, (start, size) in enumerate(zip(starts, shape)):
        own = jnp.arange(size, dtype=jnp.uint32) + jnp.asarray(start).astype(jnp.uint32)
        own = own.reshape((-1,) + (1,) * (len(shape) - dim - 1))
        drawn = mixed((drawn ^ own) * jnp.uint32(0x9E3779B1) + jnp.uint32(dim))
    bits = min(32, jnp.finfo(dtype).nmant + 1)
    return jnp.broadcast_to((drawn >> (32 - bits)).astype(dtype) * 2.0**-bits, shape)
''',
}
"""The functions that expressions call, by their names."""
