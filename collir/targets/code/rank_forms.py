"""Forms of operations of models that numpy and torch share: expressions on the block of a rank.

What takes several lines is a method of the class of a mesh, which is printed where it is used. Both
libraries have methods of the same names, in ``numpy_methods`` and ``torch_methods``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from collir.dialects.tensor import dist_type
from collir.layout import DType
from collir.targets.code.forms import SHARED, Expression, ModelStep
from collir.targets.code.python_text import tuple_text


@dataclass(frozen=True)
class RankStep(ModelStep):
    """An operation of a model on the blocks of a rank.

    Attributes:
        dtype: the element type in which it computes.
        dtype_text: the same as text.
        starts: where the block that it depends on begins in each dimension, as expressions.
    """

    dtype: DType
    dtype_text: str
    starts: list[str]

    @property
    def options(self) -> str:
        return f"dtype={self.dtype_text}"

    @property
    def same_integers(self) -> list[str]:
        return [] if self.dtype.is_float else [f"dtype={self.dtype_text}"]

    def number(self, value: float) -> str:
        if self.dtype is DType.BOOL:
            return str(bool(value))
        if not self.dtype.is_float:
            return str(int(value))
        if not math.isfinite(value):
            return f'float("{value}")'
        return repr(float(value)).replace("e+", "e")

    def permuted(self, x: str, order: Sequence[int]) -> str:
        return self.call("permute_dims", x, tuple_text(order))

    def reshaped(self, x: str, shape: Sequence[int]) -> str:
        return self.call("reshape", x, tuple_text(shape))

    def ordered(self, x: str, indices: Sequence[str], wanted: Sequence[str]) -> str:
        """Return an array with the dimensions of some indices in the order of the wanted ones."""
        order = [indices.index(index) for index in wanted]
        return x if order == sorted(order) else self.permuted(x, order)

    def products(self, equation: str, *arrays: str) -> str:
        """Return a sum of products over windows."""
        return self.call("einsum", f'"{equation}"', *arrays)

    def method(self, name: str, *arguments: object) -> str:
        """Return a call of a method, which is printed."""
        self.needs.add(name)
        return f"self._{name}({', '.join(map(str, arguments))})"


# ---------------------------------------------------------------------------------------------
# Tensors of a given type, and selections
# ---------------------------------------------------------------------------------------------


def iota(s: RankStep) -> str:
    """Return the positions along a dimension."""
    start, size = s.starts[s.dim], s.after[s.dim]
    if len(s.after) == 1:
        ends = f"{size}" if start == "0" else f"{start}, {start} + {size}"
        return s.call("arange", ends, s.options)
    shape = tuple_text(s.after)
    return s.method("iota", shape, s.dtype_text, s.along([s.dim]), f"start={start}")


def uniform(s: RankStep) -> str:
    """Return random numbers by position."""
    bits = min(32, s.result.dtype.mantissa)
    shape = tuple_text(s.after)
    return s.method("uniform", s.x, tuple_text(s.starts), shape, s.dtype_text, f"bits={bits}")


def take(s: RankStep) -> str:
    """Return the slices at positions of a dimension."""
    return s.method("take", *s.inputs, s.along([s.dim]), f"start={s.starts[s.dim]}")


def take_transpose(s: RankStep) -> str:
    """Return zeros with slices added at positions of a dimension."""
    start, size = s.starts[s.dim], f"size={s.after[s.dim]}"
    return s.method("take_transpose", *s.inputs, s.along([s.dim]), f"start={start}", size)


def take_along_dim(s: RankStep) -> str:
    """Return the elements at positions of a dimension, others for each row."""
    return s.method("take_along", *s.inputs, s.along([s.dim]), f"start={s.starts[s.dim]}")


def take_along_dim_transpose(s: RankStep) -> str:
    """Return zeros with elements added at positions of a dimension, others for each row."""
    start, size = s.starts[s.dim], f"size={s.after[s.dim]}"
    return s.method("take_along_transpose", *s.inputs, s.along([s.dim]), f"start={start}", size)


def grouped_matmul(s: RankStep) -> str:
    """Return the product of each row with the matrix of its group."""
    more = ["transposed=True"] if "transposed" in s.op.properties else []
    return s.method("grouped_matmul", *s.inputs, f"start={s.starts[0]}", *more)


def grouped_matmul_transpose(s: RankStep) -> str:
    """Return the products of the elements of rows, added up for each group."""
    start, size = s.starts[0], f"size={s.after[0]}"
    return s.method("grouped_matmul_transpose", *s.inputs, f"start={start}", size)


def linear_scan(s: RankStep) -> str:
    """Return each element plus a factor times the result before."""
    more = ["back=True"] if "reverse" in s.op.properties else []
    return s.method("linear_scan", *s.inputs, s.along([s.dim]), *more)


def one_hot(s: RankStep) -> str:
    """Return 1 at positions of a new dimension, else 0."""
    last = len(s.after) - 1
    return s.method("one_hot", s.x, s.after[last], s.dtype_text, f"start={s.starts[last]}")


def cross_entropy(s: RankStep) -> str:
    """Return the losses of labels along a dimension."""
    return s.method("cross_entropy", *s.inputs, s.along([s.dim]))


# ---------------------------------------------------------------------------------------------
# Windows
# ---------------------------------------------------------------------------------------------


def _letters(spatial: int) -> tuple[str, str]:
    """Return a letter for each windowed dimension, and for each dimension of a window."""
    return "yxzuvw"[:spatial], "ijklpq"[:spatial]


def _steps(s: RankStep) -> list[str]:
    """Return the arguments that say where windows are."""
    return [tuple_text(s.op.sizes("stride")), tuple_text(s.op.sizes("padding"))]


def _windows(s: RankStep, x: str, window: Sequence[int], outside: str = "") -> str:
    more = [f"outside={outside}"] if outside else []
    return s.method("windows", x, tuple_text(window), *_steps(s), *more)


def conv(s: RankStep) -> str:
    """Return the products of windows with a filter."""
    window = dist_type(s.op.operands[1]).shape[:-2]
    at, own = _letters(len(window))
    parts = _windows(s, s.x, window)
    return s.products(f"n{at}c{own},{own}cf->n{at}f", parts, s.inputs[1])


def conv_transpose(s: RankStep) -> str:
    """Return the gradient of a convolution by its first operand."""
    at, own = _letters(len(s.after) - 2)
    parts = s.products(f"n{at}f,{own}cf->n{at}c{own}", *s.inputs)
    return s.method("added_windows", parts, tuple_text(s.after), *_steps(s))


def conv_filter(s: RankStep) -> str:
    """Return the gradient of a convolution by its filter."""
    window = s.after[:-2]
    at, own = _letters(len(window))
    parts = _windows(s, s.x, window)
    return s.products(f"n{at}c{own},n{at}f->{own}cf", parts, s.inputs[1])


def _lowest(s: RankStep, number: int) -> str:
    """Return the number below all others of the type of an operand."""
    dtype = dist_type(s.op.operands[number]).dtype
    if dtype.is_float:
        return f"-{s.LIBRARY}.inf"
    return f"{s.call('iinfo', f'{s.LIBRARY}.{DTYPES[dtype]}')}.min"


def _last(s: RankStep) -> str:
    """Return the dimensions of a window behind those of the operand."""
    return s.along(range(-len(s.op.sizes("window")), 0))


def max_pool(function: str) -> Expression[RankStep]:
    """Return the expression of the maximum of windows, by the library's maximum of dimensions."""
    return lambda s: s.call(
        function, _windows(s, s.x, s.op.sizes("window"), _lowest(s, 0)), _last(s)
    )


def avg_pool(s: RankStep) -> str:
    """Return the means of windows."""
    return s.call("mean", _windows(s, s.x, s.op.sizes("window")), _last(s))


def max_pool_transpose(s: RankStep) -> str:
    """Return the gradient of the maximum of windows."""
    window = s.op.sizes("window")
    parts = s.method("largest", s.x, _windows(s, s.inputs[1], window, _lowest(s, 1)))
    return s.method("added_windows", parts, tuple_text(s.after), *_steps(s))


def avg_pool_transpose(s: RankStep) -> str:
    """Return the gradient of the means of windows."""
    window = s.op.sizes("window")
    own = s.reshaped(f"{s.x} / {math.prod(window)}", (*s.before, *(1 for _ in window)))
    parts = s.call("broadcast_to", own, tuple_text((*s.before, *window)))
    return s.method("added_windows", parts, tuple_text(s.after), *_steps(s))


DTYPES = {
    DType.F16: "float16",
    DType.BF16: "bfloat16",
    DType.F32: "float32",
    DType.F64: "float64",
    DType.I8: "int8",
    DType.I32: "int32",
    DType.I64: "int64",
    DType.BOOL: "bool",
}
"""The names of element types; numpy does not know bf16."""


def add(s: RankStep) -> str:
    """Return a sum of arrays."""
    return " + ".join(s.inputs)


ON_RANKS: dict[str, Expression[RankStep]] = {
    **SHARED,
    "add": add,
    "iota": iota,
    "uniform": uniform,
    "take": take,
    "take_transpose": take_transpose,
    "linear_scan": linear_scan,
    "take_along_dim": take_along_dim,
    "take_along_dim_transpose": take_along_dim_transpose,
    "grouped_matmul": grouped_matmul,
    "grouped_matmul_transpose": grouped_matmul_transpose,
    "one_hot": one_hot,
    "cross_entropy": cross_entropy,
    "conv": conv,
    "conv_transpose": conv_transpose,
    "conv_filter": conv_filter,
    "avg_pool": avg_pool,
    "max_pool_transpose": max_pool_transpose,
    "avg_pool_transpose": avg_pool_transpose,
}
"""The expressions that numpy and torch share."""
