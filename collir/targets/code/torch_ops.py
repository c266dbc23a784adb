"""The expression of torch for every computation, on the block of a rank.

Functions of torch take numbers of 16 bits, and add in f32.
"""

from collections.abc import Sequence
from typing import ClassVar

from collir.layout import Reduction
from collir.layout.operation_table import OperationTable
from collir.targets.code.forms import Expression, einsum, form, maps, reduction
from collir.targets.code.python_text import number_text, tuple_text
from collir.targets.code.rank_forms import (
    ON_RANKS,
    RankStep,
    conv,
    conv_filter,
    conv_transpose,
    max_pool,
)
from collir.targets.code.subscripts import subscripts


class TorchStep(RankStep):
    """An operation of a model in torch."""

    LIBRARY: ClassVar[str] = "torch"
    AXIS: ClassVar[str] = "dim"
    KEEP: ClassVar[str] = "keepdim"

    @property
    def options(self) -> str:
        return f"dtype={self.dtype_text}, device=self.device"

    def permuted(self, x: str, order: Sequence[int]) -> str:
        return self.call("permute", x, tuple_text(order))

    def functional(self, name: str, *arguments: object) -> str:
        """Return a call of a function of ``torch.nn.functional``."""
        self.needs.add("F")
        return f"F.{name}({', '.join(map(str, arguments))})"


MAPS: dict[str, str] = {
    **maps("torch"),
    "stop_gradient": "{0}.clone()",
    "rsqrt": "torch.rsqrt({0})",
    "erf": "torch.erf({0})",
    "sigmoid": "torch.sigmoid({0})",
    "relu": "torch.relu({0})",
}
"""The form of each elementwise operation that is one function of torch."""


def _scale(s: TorchStep) -> str:
    return f"{s.x} * {number_text(s.op.number('factor'), s.dtype)}"


def _cast(s: TorchStep) -> str:
    same = s.operand.dtype is s.dtype
    return f"{s.x}.clone()" if same else f"{s.x}.to({s.dtype_text})"


def _mask(s: TorchStep) -> str:
    ones = Reduction(s.op.word("reduction")) is Reduction.PROD
    like = s.call("ones_like" if ones else "zeros_like", s.x)
    return f"{s.x}.clone() if {s.starts[0]} == 0 else {like}"


def _einsum(s: TorchStep) -> str:
    if product := _summed_product(s):
        return product
    # Some sums of integers are in wider ones.
    return einsum(s) if s.dtype.is_float else f"{einsum(s)}.to({s.dtype_text})"


def _summed_product(s: TorchStep) -> str:
    """Return an einsum without rows and columns as a map and a sum, as torch is slow at products of
    a row and a column; empty for another einsum."""
    terms, result = subscripts(s.op.word("equation")).split("->")
    left, *others = terms.split(",")
    summed = [dim for dim, index in enumerate(left) if index not in result]
    if len(others) != 1 or sorted(left) != sorted(others[0]) or not summed:
        return ""
    x = f"{s.x}.to(torch.float32)" if s.dtype.is_short else s.x
    product = f"{x} * {s.ordered(s.inputs[1], others[0], left)}"
    total = s.call("sum", product, s.along(summed), *s.same_integers)
    total = s.ordered(total, [index for index in left if index in result], result)
    return f"{total}.to({s.dtype_text})" if s.dtype.is_short else total


def _softmax(name: str) -> Expression[TorchStep]:
    """Return the expression of a function along one dimension, or along several as one."""

    def expression(s: TorchStep) -> str:
        if len(s.dims) == 1:
            return s.call(name, s.x, s.along(s.dims))
        return s.method("as_one_dim", f"torch.{name}", s.x, f"dim={s.dims}")

    return expression


def _normalisation(name: str) -> Expression[TorchStep]:
    """Return the expression of a normalisation, which torch has for the last dimensions."""

    def expression(s: TorchStep) -> str:
        eps = f"eps={s.op.number('eps')!r}"
        shape = tuple_text([s.before[dim] for dim in s.dims])
        last = range(len(s.before) - len(s.dims), len(s.before))
        if s.dims == tuple(last):
            return s.functional(name, s.x, shape, *s.inputs[1:], eps)
        s.needs.add("F")
        rest = [f"F.{name}", *s.inputs, f"dim={tuple_text(s.dims)}", f"shape={shape}", eps]
        return s.method("normalised", *rest)

    return expression


def _cumsum(s: TorchStep) -> str:
    dim = s.along([s.dim])
    if "reverse" in s.op.properties:
        back = f"({s.dim},)"
        sums = s.call("cumsum", s.call("flip", s.x, back), dim, *s.same_integers)
        return s.call("flip", sums, back)
    return s.call("cumsum", s.x, dim, *s.same_integers)


def _argmax(s: TorchStep) -> str:
    return f"torch.argmax({s.x}, {s.along([s.dim])}).to(torch.int32)"


def _top_k(number: int) -> Expression[TorchStep]:
    """Return the expression of the largest elements (0), or of their positions (1)."""

    def expression(s: TorchStep) -> str:
        return f"{s.method('top_k', s.x, s.op.integer('k'), s.along([s.dim]))}[{number}]"

    return expression


# --- windows ------------------------------------------------------------------------------------

_MOST_SPATIAL = 3
"""The most windowed dimensions of a convolution of torch."""


def _is_native(s: TorchStep) -> bool:
    """Return whether torch has a convolution and its gradients of these operands."""
    return s.dtype.is_float and len(s.op.sizes("stride")) <= _MOST_SPATIAL


def _steps(s: TorchStep) -> list[str]:
    return [tuple_text(s.op.sizes("stride")), tuple_text(s.op.sizes("padding"))]


def _conv(s: TorchStep) -> str:
    return s.method("conv", *s.inputs, *_steps(s)) if _is_native(s) else conv(s)


def _conv_transpose(s: TorchStep) -> str:
    if not _is_native(s):
        return conv_transpose(s)
    return s.method("conv_transpose", *s.inputs, tuple_text(s.after), *_steps(s))


def _conv_filter(s: TorchStep) -> str:
    if not _is_native(s):
        return conv_filter(s)
    return s.method("conv_filter", *s.inputs, tuple_text(s.after), *_steps(s))


EXPRESSIONS: OperationTable[Expression[TorchStep]] = OperationTable(
    "EXPRESSIONS",
    __name__,
    {
        **ON_RANKS,
        **{name: form(text) for name, text in MAPS.items()},
        "scale": _scale,
        "cast": _cast,
        "mask": _mask,
        "silu": lambda s: s.functional("silu", s.x),
        "gelu": lambda s: s.functional("gelu", s.x, 'approximate="tanh"'),
        "einsum": _einsum,
        "max": reduction("amax"),
        "min": reduction("amin"),
        "softmax": _softmax("softmax"),
        "log_softmax": _softmax("log_softmax"),
        "layer_norm": _normalisation("layer_norm"),
        "rms_norm": _normalisation("rms_norm"),
        "cumsum": _cumsum,
        "argmax": _argmax,
        "top_k": _top_k(0),
        "top_k_indices": _top_k(1),
        "conv": _conv,
        "conv_transpose": _conv_transpose,
        "conv_filter": _conv_filter,
        "max_pool": max_pool("amax"),
    },
    row="its expression in torch on the block of a rank",
)
"""The expression of each operation of models, by its name."""

NATIVE = frozenset(EXPRESSIONS) - {"log_softmax", "cross_entropy"}
"""The operations that functions of torch compute in f32 for 16-bit numbers; for the logarithm of a
softmax they subtract rounded numbers."""

OUT_OF_ORDER = frozenset(["einsum"])
"""The operations whose expressions may be tensors with their elements in another order."""
