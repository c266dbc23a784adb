"""The expression of numpy for every computation, on the block of a rank.

Numbers of 16 bits are computed in f32 where an operation is more than one function of numpy.
"""

from typing import ClassVar

from collir.layout import DType, Reduction
from collir.layout.operation_table import OperationTable
from collir.targets.code.forms import Expression, form, gains, maps, reduction
from collir.targets.code.python_text import number_text
from collir.targets.code.rank_forms import ON_RANKS, RankStep, max_pool
from collir.targets.code.subscripts import subscripts


class NumpyStep(RankStep):
    """An operation of a model in numpy; operands of 16 bits are in f32 where it needs that."""

    LIBRARY: ClassVar[str] = "xp"

    def products(self, equation: str, *arrays: str) -> str:
        return self.call("einsum", f'"{equation}"', *arrays, "optimize=True")


# ---------------------------------------------------------------------------------------------
# Maps
# ---------------------------------------------------------------------------------------------

MAPS: dict[str, str] = {**maps("xp"), "stop_gradient": "xp.positive({0})"}
"""The form of each elementwise operation that is one function of numpy."""

WIDE_MAPS: dict[str, str] = {
    "rsqrt": "1 / xp.sqrt({0})",
    "relu": "xp.maximum({0}, 0)",
}
"""The form of the others, which compute numbers of 16 bits in f32."""


def _by_method(name: str) -> Expression[NumpyStep]:
    """Return the expression of an operation that a method of its name does."""
    return lambda s: s.method(name, *s.inputs)


def _scale(s: NumpyStep) -> str:
    factor = number_text(s.op.number("factor"), s.dtype)
    # A number beside an array takes its type, but in types that are not numpy's own.
    return f"{s.x} * {f'{s.dtype_text}({factor})' if s.dtype is DType.BF16 else factor}"


def _cast(s: NumpyStep) -> str:
    return s.call("astype", s.x, s.dtype_text)


def _mask(s: NumpyStep) -> str:
    ones = Reduction(s.op.word("reduction")) is Reduction.PROD
    s.needs.add("packed")
    kept, like = f"self._packed({s.x})", s.call("ones_like" if ones else "zeros_like", s.x)
    return f"{kept} if {s.starts[0]} == 0 else {like}"


# ---------------------------------------------------------------------------------------------
# Products, and reductions over dimensions
# ---------------------------------------------------------------------------------------------


def _einsum(s: NumpyStep) -> str:
    equation = subscripts(s.op.word("equation"))
    if len(s.inputs) == 2 and (product := _batched(s, equation, *s.inputs)):
        return product
    fast = ["optimize=True"] if len(s.inputs) > 1 else []
    return s.call("einsum", f'"{equation}"', *s.inputs, *fast)


def _batched(s: NumpyStep, equation: str, x: str, y: str) -> str:
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
    product = f"xp.matmul({s.ordered(x, left, first)}, {s.ordered(y, right, second)})"
    return s.ordered(product, [*batch, *rows, *columns], result)


def _along(name: str) -> Expression[NumpyStep]:
    """Return the expression of a method along dimensions."""
    return lambda s: s.method(name, s.x, s.along(s.dims))


def _normalisation(name: str) -> Expression[NumpyStep]:
    """Return the expression of a normalisation, by a method of the same name."""
    return lambda s: s.method(name, s.x, *gains(s), s.along(s.dims), f"eps={s.op.number('eps')!r}")


def _cumsum(s: NumpyStep) -> str:
    axis = s.along([s.dim])
    if "reverse" in s.op.properties:
        sums = s.call("cumsum", s.call("flip", s.x, axis), axis, *s.same_integers)
        return s.call("flip", sums, axis)
    return s.call("cumsum", s.x, axis, *s.same_integers)


# ---------------------------------------------------------------------------------------------
# Selections
# ---------------------------------------------------------------------------------------------


def _argmax(s: NumpyStep) -> str:
    return f"xp.asarray(xp.argmax({s.x}, axis={s.dim}), dtype=xp.int32)"


def _top_k_indices(s: NumpyStep) -> str:
    return s.method("top_k_indices", s.x, f"k={s.op.integer('k')}", f"axis={s.dim}")


def _top_k(s: NumpyStep) -> str:
    return f"xp.take_along_axis({s.x}, {_top_k_indices(s)}, axis={s.dim})"


# ---------------------------------------------------------------------------------------------
# The table
# ---------------------------------------------------------------------------------------------

EXPRESSIONS: OperationTable[Expression[NumpyStep]] = OperationTable(
    "EXPRESSIONS",
    __name__,
    {
        **ON_RANKS,
        **{name: form(text) for name, text in (MAPS | WIDE_MAPS).items()},
        "scale": _scale,
        "cast": _cast,
        "mask": _mask,
        "erf": _by_method("erf"),
        "sigmoid": _by_method("sigmoid"),
        "silu": _by_method("silu"),
        "gelu": _by_method("gelu"),
        "einsum": _einsum,
        "max": reduction("max"),
        "min": reduction("min"),
        "softmax": _along("softmax"),
        "log_softmax": _along("log_softmax"),
        "layer_norm": _normalisation("layer_norm"),
        "rms_norm": _normalisation("rms_norm"),
        "cumsum": _cumsum,
        "argmax": _argmax,
        "top_k": _top_k,
        "top_k_indices": _top_k_indices,
        "max_pool": max_pool("max"),
    },
    row="its expression in numpy on the block of a rank",
)
"""The expression of each operation of models, by its name."""

NATIVE = frozenset(MAPS) | {
    "add",
    "scale",
    "cast",
    "mask",
    "max",
    "min",
    "constant",
    "argmax",
    "top_k",
    "top_k_indices",
    "take",
    "take_along_dim",
    "one_hot",
}
"""The operations that numpy computes in types of 16 bits as well as in f32."""

VIEWS = frozenset(["einsum"])
"""The operations whose results may share the memory of their only operand."""

OUT_OF_ORDER = frozenset(
    ["einsum", "cumsum", "top_k", "conv", "conv_filter", "max_pool", "avg_pool"]
)
"""The operations whose expressions may be arrays with their elements in another order."""
