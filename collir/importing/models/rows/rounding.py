"""Rounded numbers, and computations on whole numbers."""

import math

from collir.importing.models.graph import ModelNode
from collir.importing.models.lines import Lines, LineValue
from collir.importing.models.rows.table import NotHere, Number, dtype_of, row, value_of


@row("trunc", "fix")
def truncated(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    """Numbers without what is behind the point."""
    return e.cast(e.cast(x, "i64"), x.dtype)


@row("floor")
def floor(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    """The largest whole numbers that are not larger."""
    if not x.is_float:
        return x
    whole = truncated(e, node, x)
    above = e.map("greater {}", whole, x, dtype="bool")
    return e.map("sub {}", whole, e.cast(above, x.dtype))


@row("ceil")
def _ceil(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    return e.map("neg {}", floor(e, node, e.map("neg {}", x))) if x.is_float else x


@row("round")
def _round(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    """Round to the nearest whole number, and to the even one of two."""
    if not x.is_float:
        return x
    below = floor(e, node, x)
    rest = e.map("sub {}", x, below)
    half = e.number(0.5, x.dtype)
    is_odd = e.map("sub {}", below, e.scale(floor(e, node, e.scale(below, 0.5)), 2))
    over = e.cast(e.map("greater {}", rest, half, dtype="bool"), x.dtype)
    same = e.cast(e.map("equal {}", rest, half, dtype="bool"), x.dtype)
    return e.map("add {}", below, e.map("add {}", over, e.map("mul {}", same, is_odd)))


@row("frac")
def _frac(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    return e.map("sub {}", x, truncated(e, node, x))


@row("sign", "sgn")
def sign(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    """1 for positive numbers, -1 for negative ones, and 0."""
    zero = e.number(0, x.dtype)
    above, below = (e.map(f"{kind} {{}}", x, zero, dtype="bool") for kind in ("greater", "less"))
    return e.map("sub {}", e.cast(above, x.dtype), e.cast(below, x.dtype))


@row("div.Tensor_mode", "div.Scalar_mode", "floor_divide", "floor_divide.Scalar")
def _whole_quotient(
    e: Lines,
    node: ModelNode,
    x: LineValue | Number,
    y: LineValue | Number,
    rounding_mode: str | None = "floor",
) -> LineValue:
    dtype = dtype_of(node)
    wide = dtype if dtype[0] in "fb" and dtype != "bool" else "f64"
    quotient = e.map("div {}", value_of(e, x, wide), value_of(e, y, wide))
    if rounding_mode is not None:
        quotient = (floor if rounding_mode == "floor" else truncated)(e, node, quotient)
    return e.cast(quotient, dtype)


@row("remainder.Scalar", "remainder.Tensor", "fmod.Scalar", "fmod.Tensor")
def _remainder(
    e: Lines, node: ModelNode, x: LineValue | Number, y: LineValue | Number
) -> LineValue:
    """Return what whole multiples of y leave of x, with the sign of y, or of x for ``fmod``."""
    dtype = dtype_of(node)
    wide = dtype if dtype[0] in "fb" and dtype != "bool" else "f64"
    x, y = value_of(e, x, wide), value_of(e, y, wide)
    rounded = truncated if node.op.startswith("fmod") else floor
    whole = rounded(e, node, e.map("div {}", x, y))
    return e.cast(e.map("sub {}", x, e.map("mul {}", whole, y)), dtype)


@row("expm1")
def _expm1(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    """tanh(x / 2) (e^x + 1): no small number is lost beside 1."""
    x = e.cast(x, dtype_of(node))
    more = e.map("add {}", e.map("exp {}", x), e.number(1, x.dtype))
    return e.map("mul {}", e.map("tanh {}", e.scale(x, 0.5)), more)


@row("log2", "log10")
def _log(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    base = 2 if node.op == "log2" else 10
    return e.scale(e.map("log {}", e.cast(x, dtype_of(node))), 1 / math.log(base))


@row("exp2")
def _exp2(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    return e.map("exp {}", e.scale(e.cast(x, dtype_of(node)), math.log(2)))


@row("cosh", "sinh")
def _hyperbolic(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    up, down = e.map("exp {}", x), e.map("exp {}", e.map("neg {}", x))
    return e.scale(e.map(f"{'add' if node.op == 'cosh' else 'sub'} {{}}", up, down), 0.5)


@row("tan")
def _tan(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    return e.map("div {}", e.map("sin {}", x), e.map("cos {}", x))


@row("erfc")
def _erfc(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    return e.map("sub {}", e.number(1, x.dtype), e.map("erf {}", x))


@row("isnan")
def _is_nan(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    return e.map("not_equal {}", x, x, dtype="bool")


@row("isinf")
def _is_infinite(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    size = e.map("maximum {}", x, e.map("neg {}", x))
    return e.map("equal {}", size, e.number(math.inf, x.dtype), dtype="bool")


@row("logical_xor", "bitwise_xor.Tensor", "__xor__.Tensor")
def _xor(e: Lines, node: ModelNode, x: LineValue, y: LineValue) -> LineValue:
    if dtype_of(node) != "bool":
        raise NotHere("of bits")
    x, y = (e.cast(v, "i32") for v in (x, y))
    return e.map("not_equal {}", x, y, dtype="bool")


@row("bucketize.Tensor", "searchsorted.Tensor")
def _bucketize(
    e: Lines, node: ModelNode, x: LineValue, limits: LineValue, *, out_int32: bool = False,
    right: bool = False, **rest: object,
) -> LineValue:  # fmt: skip
    """Count the limits below each element; for ``searchsorted`` the limits come first."""
    if node.op.startswith("searchsorted"):
        x, limits = limits, x
    if len(limits.shape) != 1 or any(v is not None for v in rest.values()):
        raise NotHere("of limits that differ")
    kind = "greater_equal" if right else "greater"
    apart = e.view(x, (*x.shape, 1))
    over = e.map(f"{kind} {{}}", apart, e.cast(limits, x.dtype), dtype="bool")
    return e.reduce("sum", e.cast(over, dtype_of(node)), [len(x.shape)])
