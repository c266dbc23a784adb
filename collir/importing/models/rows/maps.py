"""Functions of the elements of values."""

import math

from collir.importing.models.graph import ModelNode
from collir.importing.models.lines import FLOATS, Lines, LineValue
from collir.importing.models.rows.table import (
    NotHere,
    Number,
    dtype_of,
    joined_dtype,
    row,
    value_of,
)

_SAME = (
    "neg",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "tanh",
    "sigmoid",
    "sin",
    "cos",
    "silu",
    "relu",
    "erf",
)


def _map(text: str) -> None:
    @row(text)
    def made(e: Lines, node: ModelNode, x: LineValue, **_: object) -> LineValue:
        return e.map(f"{text} {{}}", e.cast(x, dtype_of(node)))


for _name in _SAME:
    _map(_name)


def _two(op: str, *names: str) -> None:
    @row(*names)
    def made(
        e: Lines, node: ModelNode, x: LineValue | Number, y: LineValue | Number, alpha: Number = 1
    ) -> LineValue:
        dtype = dtype_of(node)
        if dtype == "bool":
            return _truth(e, op, value_of(e, x, "bool"), value_of(e, y, "bool"))
        if not isinstance(y, LineValue) and isinstance(x, LineValue) and op == "mul":
            return e.scale(e.cast(x, dtype), float(y))
        if (
            not isinstance(y, LineValue)
            and isinstance(x, LineValue)
            and op == "div"
            and dtype in FLOATS
        ):
            return e.scale(e.cast(x, dtype), 1 / float(y))
        left, right = value_of(e, x, dtype), value_of(e, y, dtype)
        return e.map(f"{op} {{}}", left, e.scale(right, alpha))


def _truth(e: Lines, op: str, x: LineValue, y: LineValue) -> LineValue:
    """Return whether both are true, or one of them."""
    if op not in ("add", "mul", "maximum", "minimum"):
        raise NotHere("of truth values")
    if op in ("mul", "minimum"):
        return e.map("where {}", x, y, e.number(0, "bool"))
    return e.map("where {}", x, e.number(1, "bool"), y)


_two("add", "add.Tensor", "add.Scalar")
_two("sub", "sub.Tensor", "sub.Scalar")
_two("mul", "mul.Tensor", "mul.Scalar", "multiply.Tensor")
_two("div", "div.Tensor", "div.Scalar")
_two("maximum", "maximum", "max.other")
_two("minimum", "minimum", "min.other")


@row("rsub.Scalar", "rsub.Tensor")
def _rsub(
    e: Lines, node: ModelNode, x: LineValue, y: LineValue | Number, alpha: Number = 1
) -> LineValue:
    dtype = dtype_of(node)
    return e.map("sub {}", value_of(e, y, dtype), e.scale(e.cast(x, dtype), alpha))


def _compare(op: str, *names: str) -> None:
    @row(*names)
    def made(e: Lines, node: ModelNode, x: LineValue, y: LineValue | Number) -> LineValue:
        dtype = joined_dtype(x, y)
        return e.map(f"{op} {{}}", e.cast(x, dtype), value_of(e, y, dtype), dtype="bool")


for _op, _short in (
    ("greater", "gt"), ("greater_equal", "ge"), ("less", "lt"), ("less_equal", "le"),
    ("equal", "eq"), ("not_equal", "ne"),
):  # fmt: skip
    _compare(_op, f"{_short}.Tensor", f"{_short}.Scalar")


@row("__and__.Tensor", "logical_and", "bitwise_and.Tensor", "__and__.Scalar")
def _and(e: Lines, node: ModelNode, x: LineValue, y: LineValue | Number) -> LineValue:
    _check_truth(node)
    other = value_of(e, y, "bool")
    return e.map("where {}", e.cast(x, "bool"), other, e.number(0, "bool"))


@row("__or__.Tensor", "logical_or", "bitwise_or.Tensor")
def _or(e: Lines, node: ModelNode, x: LineValue, y: LineValue) -> LineValue:
    _check_truth(node)
    return e.map("where {}", x, e.number(1, "bool"), y)


@row("bitwise_not", "logical_not")
def _not(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    _check_truth(node)
    return e.map("where {}", x, e.number(0, "bool"), e.number(1, "bool"))


def _check_truth(node: ModelNode) -> None:
    if dtype_of(node) != "bool":
        raise NotHere("of bits")


@row("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(
    e: Lines, node: ModelNode, x: LineValue, y: LineValue | Number, z: LineValue | Number
) -> LineValue:
    dtype = dtype_of(node)
    return e.map("where {}", x, value_of(e, y, dtype), value_of(e, z, dtype))


@row("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(
    e: Lines, node: ModelNode, x: LineValue, mask: LineValue, y: LineValue | Number
) -> LineValue:
    return e.map("where {}", mask, value_of(e, y, x.dtype), x)


@row("detach", "detach_")
def _detach(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    return e.map("stop_gradient {}", x)


@row("_to_copy", "to.dtype", "to.dtype_layout", "to.device")
def _to(e: Lines, node: ModelNode, x: LineValue, *_: object, **__: object) -> LineValue:
    if x.dtype != "bool" and dtype_of(node) == "bool":
        return e.map("not_equal {}", x, e.number(0, x.dtype), dtype="bool")
    return e.cast(x, dtype_of(node))


@row("type_as")
def _type_as(e: Lines, node: ModelNode, x: LineValue, _: LineValue) -> LineValue:
    return e.cast(x, dtype_of(node))


# --- powers ---------------------------------------------------------------------------------------


@row("pow.Tensor_Scalar")
def _power(e: Lines, node: ModelNode, x: LineValue, power: Number) -> LineValue:
    x = e.cast(x, dtype_of(node))
    if power == 0.5:
        return e.map("sqrt {}", x)
    if power == -0.5:
        return e.map("rsqrt {}", x)
    if not float(power).is_integer() or abs(power) > 2**20:
        logs = e.scale(e.map("log {}", x), power)
        return e.map("exp {}", logs)
    if power == 0:
        return e.expand(e.number(1, x.dtype), x.shape)
    made = _multiplied(e, x, abs(int(power)))
    return made if power > 0 else e.map("div {}", e.number(1, x.dtype), made)


def _multiplied(e: Lines, x: LineValue, times: int) -> LineValue:
    """Return the product of a value with itself."""
    if times <= _FEW:
        made = x
        for _ in range(times - 1):
            made = e.map("mul {}", made, x)
        return made
    half = _multiplied(e, x, times // 2)
    made = e.map("mul {}", half, half)
    return e.map("mul {}", made, x) if times % 2 else made


_FEW = 4
"""The most factors that are multiplied one by one."""


@row("pow.Scalar")
def _power_of_number(e: Lines, node: ModelNode, base: Number, x: LineValue) -> LineValue:
    return e.map("exp {}", e.scale(e.cast(x, dtype_of(node)), math.log(base)))


@row("pow.Tensor_Tensor")
def _power_of_values(e: Lines, node: ModelNode, x: LineValue, y: LineValue) -> LineValue:
    dtype = dtype_of(node)
    logs = e.map("log {}", e.cast(x, dtype))
    return e.map("exp {}", e.map("mul {}", e.cast(y, dtype), logs))


@row("square")
def _square(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    return e.map("mul {}", x, x)


@row("reciprocal")
def _reciprocal(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    x = e.cast(x, dtype_of(node))
    return e.map("div {}", e.number(1, x.dtype), x)


# --- activations ----------------------------------------------------------------------------------


@row("gelu")
def _gelu(e: Lines, node: ModelNode, x: LineValue, approximate: str = "none") -> LineValue:
    if approximate == "tanh":
        return e.map("gelu {}", x)
    t = e.map("erf {}", e.scale(x, math.sqrt(0.5)))
    return e.map("mul {}", e.scale(x, 0.5), e.map("add {}", t, e.number(1, x.dtype)))


@row("abs")
def absolute(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    """The absolute value."""
    return e.map("maximum {}", x, e.map("neg {}", x))


@row("log1p")
def _log1p(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    return e.map("log {}", e.map("add {}", x, e.number(1, x.dtype)))


@row("softplus")
def _softplus(
    e: Lines, node: ModelNode, x: LineValue, beta: Number = 1, threshold: Number = 20
) -> LineValue:
    """max(x, 0) + log(1 + exp(-|x|)): no number is large."""
    y = e.scale(x, beta)
    small = e.map("exp {}", e.map("neg {}", absolute(e, node, y)))
    logs = e.map("log {}", e.map("add {}", small, e.number(1, x.dtype)))
    return e.scale(e.map("add {}", e.map("relu {}", y), logs), 1 / beta)


@row("log_sigmoid", "log_sigmoid_forward")
def _log_sigmoid(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    return e.map("neg {}", _softplus(e, node, e.map("neg {}", x)))


@row("clamp.Tensor", "clamp_min.Tensor", "clamp_max.Tensor")
def _clamp_values(
    e: Lines,
    node: ModelNode,
    x: LineValue,
    min: LineValue | None = None,
    max: LineValue | None = None,
) -> LineValue:
    if node.op == "clamp_max.Tensor":
        min, max = None, min
    if min is not None:
        x = e.map("maximum {}", x, e.cast(min, x.dtype))
    return x if max is None else e.map("minimum {}", x, e.cast(max, x.dtype))


@row("clamp", "clamp_min", "clamp_max", "hardtanh")
def clamp(
    e: Lines, node: ModelNode, x: LineValue, min: Number | None = None, max: Number | None = None
) -> LineValue:
    """Elements within bounds."""
    if node.op == "clamp_max":
        min, max = None, min
    if node.op == "hardtanh" and min is None:
        min, max = -1.0, 1.0
    x = e.cast(x, dtype_of(node))
    if min is not None:
        x = e.map("maximum {}", x, e.number(min, x.dtype))
    return x if max is None else e.map("minimum {}", x, e.number(max, x.dtype))


@row("hardsigmoid", "hardswish")
def _hard(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    bounded = clamp(e, node, e.map("add {}", x, e.number(3, x.dtype)), 0, 6)
    gate = e.scale(bounded, 1 / 6)
    return gate if node.op == "hardsigmoid" else e.map("mul {}", x, gate)


@row("leaky_relu")
def _leaky(e: Lines, node: ModelNode, x: LineValue, slope: Number = 0.01) -> LineValue:
    kept = e.map("greater {}", x, e.number(0, x.dtype), dtype="bool")
    return e.map("where {}", kept, x, e.scale(x, slope))


@row("elu")
def _elu(
    e: Lines, node: ModelNode, x: LineValue, alpha: Number = 1, scale: Number = 1, inner: Number = 1
) -> LineValue:
    """x above 0, and alpha (e^(inner x) - 1) below, times a scale."""
    below = e.scale(e.map("minimum {}", x, e.number(0, x.dtype)), inner)
    less = e.map("sub {}", e.map("exp {}", below), e.number(1, x.dtype))
    kept = e.map("greater {}", x, e.number(0, x.dtype), dtype="bool")
    return e.map("where {}", kept, e.scale(x, scale), e.scale(less, alpha * scale))


@row("xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other")
def _xlogy(e: Lines, node: ModelNode, x: LineValue | Number, y: LineValue | Number) -> LineValue:
    """x log(y), and 0 where x is 0."""
    dtype = dtype_of(node)
    x, y = value_of(e, x, dtype), value_of(e, y, dtype)
    is_zero = e.map("equal {}", x, e.number(0, dtype), dtype="bool")
    safe = e.map("where {}", is_zero, e.number(1, dtype), y)
    return e.map("mul {}", x, e.map("log {}", safe))


@row("logaddexp")
def _logaddexp(e: Lines, node: ModelNode, x: LineValue, y: LineValue) -> LineValue:
    """The larger one, and the logarithm of 1 + e^(smaller less larger)."""
    most, least = e.map("maximum {}", x, y), e.map("minimum {}", x, y)
    rest = e.map("exp {}", e.map("sub {}", least, most))
    return e.map("add {}", most, _log1p(e, node, rest))


@row("hypot")
def _hypot(e: Lines, node: ModelNode, x: LineValue, y: LineValue) -> LineValue:
    squares = (e.map("mul {}", v, v) for v in (x, y))
    return e.map("sqrt {}", e.map("add {}", *squares))
