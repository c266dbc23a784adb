"""The expression of jax for every step, on the blocks of a device inside of a ``shard_map``."""

import math
from collections.abc import Sequence

from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.layout import DType
from collir.layout.operation_table import OperationTable
from collir.targets.code.forms import (
    SHARED,
    Expression,
    ModelStep,
    constant,
    einsum,
    form,
    gains,
    maps,
    reduction,
)
from collir.targets.code.jax_collectives import STEPS
from collir.targets.code.jax_step import DTYPES, JaxStep, literal
from collir.targets.code.python_text import tuple_text

# ---------------------------------------------------------------------------------------------
# Operations of models
# ---------------------------------------------------------------------------------------------

MAPS: dict[str, str] = {
    **maps("jnp"),
    "add": "{0} + {1}",
    "stop_gradient": "lax.stop_gradient({0})",
    "rsqrt": "lax.rsqrt({0})",
    "erf": "lax.erf({0})",
    "sigmoid": "jax.nn.sigmoid({0})",
    "relu": "jnp.maximum({0}, 0)",
    "silu": "jax.nn.silu({0})",
}
"""The form of each elementwise operation; an operand may be a number, which takes the dtype of an
array beside it."""


def _wide(s: JaxStep) -> str:
    """Return the first operand in a type in which sums are computed."""
    return f"{s.x}.astype(jnp.float32)" if s.operand.dtype.is_short else s.x


def _narrow(s: JaxStep, text: str) -> str:
    """Return a result in the type of the first operand."""
    short = s.operand.dtype.is_short
    return f"jnp.asarray({text}, {DTYPES[s.operand.dtype]})" if short else text


def _softmax(function: str) -> Expression[JaxStep]:
    return lambda s: _narrow(s, f"jax.nn.{function}({_wide(s)}, {s.along(s.dims)})")


def _normalisation(name: str) -> Expression[ModelStep]:
    """Return the expression of a normalisation, by a helper of the same name."""

    def expression(s: ModelStep) -> str:
        s.needs.add(name)
        axis = s.along(s.dims).removeprefix("axis=")
        return f"{name}({', '.join([s.x, *gains(s), axis, repr(s.op.number('eps'))])})"

    return expression


def _cumsum(s: JaxStep) -> str:
    back = ", reverse=True" if "reverse" in s.op.properties else ""
    return f"lax.cumsum({s.x}, axis={s.dim}{back})"


def _linear_scan(s: JaxStep) -> str:
    s.needs.add("linear_scan")
    back = ", True" if "reverse" in s.op.properties else ""
    return f"linear_scan({', '.join(s.inputs)}, {s.dim}{back})"


def _constant(s: JaxStep) -> str:
    return constant(s) if s.after else f"{s.dtype}({s.number(s.op.number('value'))})"


def _iota(s: JaxStep) -> str:
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


def _uniform(s: JaxStep) -> str:
    s.needs.add("uniform")
    starts = [s.start(s.result, dim) or "0" for dim in range(len(s.after))]
    return f"uniform({s.x}, {tuple_text(starts)}, {tuple_text(s.after)}, {s.dtype})"


# --- selections ---------------------------------------------------------------------------------


def _positions(s: JaxStep, number: int, start: str = "") -> str:
    """Return integers as positions in a block that begins at a start."""
    x = s.inputs[number]
    if start:
        return f"{x} - {start}"
    # Bounds are compared in the type of the integers, which may not hold them.
    short = dist_type(s.op.operands[number]).dtype is DType.I8
    return f"{x}.astype(jnp.int32)" if short else x


def _take(s: JaxStep) -> str:
    at = _positions(s, 1, s.start(s.operand, s.dim))
    fill = literal(0, s.result.dtype).removesuffix(".0")
    mode = f'mode="fill", fill_value={fill}, wrap_negative_indices=False'
    return f"{s.x}.at[{':, ' * s.dim}{at}].get({mode})"


def _take_transpose(s: JaxStep) -> str:
    at = _positions(s, 1, s.start(s.result, s.dim))
    return _added_at(s, f"{':, ' * s.dim}{at}")


def _added_at(s: JaxStep, place: str) -> str:
    """Return zeros with the elements of the operand added at a place."""
    short = s.operand.dtype.is_short
    dtype, back = (DTYPES[DType.F32], f".astype({s.dtype})") if short else (s.dtype, "")
    zeros = f"jnp.zeros({tuple_text(s.after)}, {dtype})"
    mode = 'mode="drop", wrap_negative_indices=False'
    return f"{zeros}.at[{place}].add({_wide(s)}, {mode}){back}"


def _take_along(s: JaxStep) -> str:
    at = _positions(s, 1, s.start(s.operand, s.dim))
    fill = literal(0, s.result.dtype).removesuffix(".0")
    s.needs.add("positions")
    mode = f'mode="fill", fill_value={fill}, wrap_negative_indices=False'
    return f"{s.x}.at[positions({at}, {s.dim})].get({mode})"


def _take_along_transpose(s: JaxStep) -> str:
    s.needs.add("positions")
    return _added_at(s, f"positions({_positions(s, 1, s.start(s.result, s.dim))}, {s.dim})")


def _grouped_matmul(s: JaxStep) -> str:
    x, w, _ = s.inputs
    at = _positions(s, 2, s.start(dist_type(s.op.operands[1]), 0))
    s.needs.add("grouped_matmul")
    turned = f"{w}.swapaxes(1, 2)" if "transposed" in s.op.properties else w
    return f"grouped_matmul({x}, {turned}, {at})"


def _grouped_matmul_transpose(s: JaxStep) -> str:
    x, y, _ = s.inputs
    at = _positions(s, 2, s.start(s.result, 0))
    s.needs.add("grouped_matmul_transpose")
    return f"grouped_matmul_transpose({x}, {y}, {at}, {s.after[0]})"


def _one_hot(s: JaxStep) -> str:
    last = len(s.after) - 1
    at = _positions(s, 0, s.start(s.result, last))
    return f"jax.nn.one_hot({at}, {s.after[last]}, dtype={s.dtype})"


def _cross_entropy(s: JaxStep) -> str:
    own = f"jax.nn.one_hot({_positions(s, 1)}, {s.before[s.dim]}, axis={s.dim}, dtype=bool)"
    logarithms = f"jax.nn.log_softmax({_wide(s)}, axis={s.dim})"
    return _narrow(s, f"-jnp.sum({logarithms}, axis={s.dim}, where={own})")


def _top_k(s: JaxStep) -> str:
    return f"lax.top_k({s.x}, {s.op.integer('k')}, axis={s.dim})[0]"


def _top_k_indices(s: JaxStep) -> str:
    # To lax.top_k, 0 is larger than -0.
    x = f"jnp.where({s.x} == 0, 0, {s.x})" if s.operand.dtype.is_float else s.x
    return f"lax.top_k({x}, {s.op.integer('k')}, axis={s.dim})[1]"


# --- windows ------------------------------------------------------------------------------------

_SPACE = "HWDXYZABEFGJKLMPQRSTUV"
"""Letters for windowed dimensions; N, C, I and O are those of the others."""


def _conv(s: JaxStep) -> str:
    stride, padding = s.op.sizes("stride"), s.op.sizes("padding")
    pads = tuple_text([(p, p) for p in padding])
    space = _SPACE[: len(stride)]
    numbers = f'("N{space}C", "{space}IO", "N{space}C")'
    arguments = f"{tuple_text(stride)}, {pads}, dimension_numbers={numbers}"
    return f"lax.conv_general_dilated({', '.join(s.inputs)}, {arguments})"


def _around(s: JaxStep, window: Sequence[int], whole: Sequence[int]) -> list[tuple[int, int]]:
    """Return the padding with which windows of stride 1 over dilated elements give the whole."""
    strides, paddings = s.op.sizes("stride"), s.op.sizes("padding")
    counts = s.before[1:-1]
    return [
        (width - 1 - p, size - 1 + p - (count - 1) * step)
        for width, size, count, step, p in zip(
            window, whole, counts, strides, paddings, strict=True
        )
    ]


def _conv_transpose(s: JaxStep) -> str:
    stride = s.op.sizes("stride")
    window = dist_type(s.op.operands[1]).shape[:-2]
    pads = tuple_text(_around(s, list(map(int, window)), s.after[1:-1]))
    space, ones = _SPACE[: len(stride)], tuple_text([1] * len(stride))
    flipped = f"jnp.flip({s.inputs[1]}, {tuple_text(range(len(stride)))})"
    numbers = f'("N{space}C", "{space}OI", "N{space}C")'
    rest = f"lhs_dilation={tuple_text(stride)}, dimension_numbers={numbers}"
    return f"lax.conv_general_dilated({s.x}, {flipped}, {ones}, {pads}, {rest})"


def _conv_filter(s: JaxStep) -> str:
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
    s: JaxStep,
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


def _max_pool(s: JaxStep) -> str:
    pads = [(p, p) for p in s.op.sizes("padding")]
    return _windows(s, s.x, "lax.max", s.op.sizes("stride"), pads)


def _avg_pool(s: JaxStep) -> str:
    pads = [(p, p) for p in s.op.sizes("padding")]
    total = _windows(s, _wide(s), "lax.add", s.op.sizes("stride"), pads)
    return _narrow(s, f"{total} / {math.prod(s.op.sizes('window'))}")


def _avg_pool_transpose(s: JaxStep) -> str:
    window, stride = s.op.sizes("window"), s.op.sizes("stride")
    pads = _around(s, window, s.after[1:-1])
    total = _windows(s, _wide(s), "lax.add", [1] * len(window), pads, stride)
    return _narrow(s, f"{total} / {math.prod(window)}")


def _max_pool_transpose(s: JaxStep) -> str:
    if not s.operand.dtype.is_float:
        raise DiagnosticError.at(
            s.op, f"max_pool_transpose of {s.operand.dtype} has no form in jax: cast it to f32"
        )
    pads = [(p, p) for p in s.op.sizes("padding")]
    pool = _windows(s, "x", "lax.max", s.op.sizes("stride"), pads)
    return f"jax.vjp(lambda x: {pool}, {s.inputs[1]})[1]({s.x})[0]"


NUMBERS = frozenset(["constant"])
"""The operations that make tensors of a single number."""

MODELS: dict[str, Expression[JaxStep]] = {
    **SHARED,
    "gelu": lambda s: _narrow(s, f"jax.nn.gelu({_wide(s)})"),
    "einsum": einsum,
    "max": reduction("max"),
    "min": reduction("min"),
    "softmax": _softmax("softmax"),
    "log_softmax": _softmax("log_softmax"),
    "layer_norm": _normalisation("layer_norm"),
    "rms_norm": _normalisation("rms_norm"),
    "cumsum": _cumsum,
    "linear_scan": _linear_scan,
    "constant": _constant,
    "iota": _iota,
    "uniform": _uniform,
    "argmax": lambda s: f"lax.argmax({s.x}, {s.dim}, jnp.int32)",
    "top_k": _top_k,
    "top_k_indices": _top_k_indices,
    "take": _take,
    "take_transpose": _take_transpose,
    "take_along_dim": _take_along,
    "take_along_dim_transpose": _take_along_transpose,
    "grouped_matmul": _grouped_matmul,
    "grouped_matmul_transpose": _grouped_matmul_transpose,
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

EXPRESSIONS = OperationTable[Expression[JaxStep]](
    "EXPRESSIONS",
    __name__,
    {**STEPS, **{name: form(text) for name, text in MAPS.items()}, **MODELS},
    row="its expression in jax on the block of a device",
)
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
    "linear_scan": '''\
def linear_scan(x, factors, dim, back=False):
    """Return each element plus a factor times the result before (or behind), along a dimension."""

    def joined(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32)) if x.dtype.kind not in "iu" else x
    pair = (factors.astype(wide.dtype), wide)
    return lax.associative_scan(joined, pair, reverse=back, axis=dim)[1].astype(x.dtype)
''',
    "positions": '''\
def positions(at, dim):
    """Return the place of each element: a number along a dimension, and its own along others."""
    own = jnp.indices(at.shape, sparse=True)
    return (*own[:dim], at, *own[dim + 1 :])
''',
    "grouped_matmul": '''\
def grouped_matmul(x, w, groups):
    """Return the product of each row of x with the matrix of its group; 0 where w has none."""
    groups = groups.reshape(-1)
    known = (groups >= 0) & (groups < w.shape[0])
    groups = jnp.where(known, groups, w.shape[0])
    order, sizes = jnp.argsort(groups), jnp.bincount(groups, length=w.shape[0] + 1)[:-1]
    products = lax.ragged_dot(x.reshape(-1, x.shape[-1])[order], w, sizes)
    products = jnp.zeros_like(products).at[order].set(products)
    return jnp.where(known[:, None], products, 0).reshape(*x.shape[:-1], -1)
''',
    "grouped_matmul_transpose": '''\
def grouped_matmul_transpose(x, y, groups, size):
    """Return the products of the elements of rows of x and y, added up for each group."""
    groups = groups.reshape(-1)
    groups = jnp.where((groups >= 0) & (groups < size), groups, size)
    order, sizes = jnp.argsort(groups), jnp.bincount(groups, length=size + 1)[:-1]
    x, y = (rows.reshape(-1, rows.shape[-1])[order] for rows in (x, y))
    return lax.ragged_dot_general(
        x, y, sizes, lax.RaggedDotDimensionNumbers((([0], [0]), ([], [])), [0], [])
    )
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
