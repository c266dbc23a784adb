"""The gradients of operations of models that have several steps.

Those of one line stand in their rows.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from collir.layout.dtypes import Reduction
from collir.layout.gradients import Reverse, Term
from collir.layout.sizes import same_size
from collir.layout.types import Dim, DistType


def chosen(r: Reverse, operand: int, choice: str) -> Term:
    """Return the cotangent where this operand is chosen; at ties each operand gets half.

    jax and torch do the same.
    """
    x, other, zero = r.x[operand], r.x[1 - operand], r.g.full(0)
    half = r.g.step("scale", factor=0.5)
    tie = x.step("equal", other).step("where", half, zero)
    return x.step(choice, other).step("where", r.g, tie)


def where(r: Reverse, operand: int) -> Term | None:
    """Return the cotangent where the operand was chosen."""
    if operand == 0:
        return None
    zero = r.g.full(0)
    return r.x[0].step("where", *((r.g, zero) if operand == 1 else (zero, r.g)))


def silu(r: Reverse, operand: int) -> Term:
    """Return g s (1 + x (1 - s)), where s = sigmoid(x): nothing large is subtracted."""
    (x,) = r.x
    s = x.step("sigmoid")
    g = r.g * s
    return g + g * (x * (s.full(1) - s))


def gelu(r: Reverse, operand: int) -> Term:
    """Return g (1 + t + x (1 - t^2) u') / 2, where t = tanh(u) and u' = k (1 + 3 c x^2)."""
    (x,) = r.x
    k, c = math.sqrt(2 / math.pi), 0.044715
    square = x * x
    inner = (x + (square * x).step("scale", factor=c)).step("scale", factor=k)
    t = inner.step("tanh")
    slope = x.step("scale", factor=k) + (square * x).step("scale", factor=3 * c * k)
    half = r.g.step("scale", factor=0.5)
    return half + half * t + half * slope * (t.full(1) - t * t)


def kept(r: Reverse, x: Term) -> Term:
    """Return a value that was reduced over dimensions with these dimensions, of size 1."""
    dims = r.arguments["dims"]
    shape = tuple(1 if d in dims else n for d, n in enumerate(r.types[0].shape))
    return x.step("reshape", shape=shape)


def extreme(r: Reverse, operand: int) -> Term:
    """Return the cotangent divided evenly among the elements that are extreme (as in jax)."""
    (x,) = r.x
    there = x.step("equal", kept(r, r.y)).step("where", x.full(1), x.full(0))
    count = there.step("sum", dims=r.arguments["dims"], keepdims=True).whole()
    return there * (kept(r, r.g) / count)


def mean(r: Reverse, operand: int) -> Term:
    """Return the cotangent divided by the number of elements of a mean."""
    return (kept(r, r.g) / r.g.full(_count(r))).repeated(r.types[0])


def _count(r: Reverse) -> int:
    """Return the number of elements over which a step reduces the first operand."""
    dims: Sequence[int] = r.arguments["dims"]
    return math.prod(r.types[0].shape[d] for d in dims)


def sum_over(r: Reverse, x: Term) -> Term:
    return x.step("sum", dims=r.arguments["dims"], keepdims=True)


# ---------------------------------------------------------------------------------------------
# Normalisations
# ---------------------------------------------------------------------------------------------


def layer_norm(r: Reverse, operand: int) -> Term:
    """Return the cotangent of the operand, the gain or the bias of a layer norm.

    With n = (x - mean) s and s = 1 / sqrt(variance + eps), that of x is s (h - mean(h) - n
    mean(h n)), where h = g gain (Ba et al., arXiv 1607.06450).
    """
    x = r.x[0]
    if operand == 2:
        return _over_rows(r, r.g)
    centred = x - _mean_over(r, x)
    root = _inverse_root(r, centred)
    n = centred * root
    if operand == 1:
        return _over_rows(r, r.g, n)
    h = _with_gain(r)
    return root * (h - _mean_over(r, h) - n * _mean_over(r, h * n))


def rms_norm(r: Reverse, operand: int) -> Term:
    """Return the cotangent of the operand or the gain: that of a layer norm without means."""
    x = r.x[0]
    root = _inverse_root(r, x)
    n = x * root
    if operand == 1:
        return _over_rows(r, r.g, n)
    h = _with_gain(r)
    return root * (h - n * _mean_over(r, h * n))


def _mean_over(r: Reverse, x: Term) -> Term:
    return x.step("mean", dims=r.arguments["dims"], keepdims=True)


def _inverse_root(r: Reverse, x: Term) -> Term:
    mean = _mean_over(r, x * x)
    return (mean + mean.full(r.arguments["eps"])).step("rsqrt")


def _names(r: Reverse) -> tuple[str, str]:
    """Return the indices of the operand, and those of its gain."""
    every = [f"i{d}" for d in range(len(r.types[0].dims))]
    dims: Sequence[int] = r.arguments["dims"]
    return " ".join(every), " ".join(every[d] for d in dims)


def _over_rows(r: Reverse, *factors: Term) -> Term:
    """Return the sum of products over the dimensions that a gain lacks."""
    every, own = _names(r)
    equation = f"{', '.join([every] * len(factors))} -> {own}"
    return factors[0].step("einsum", *factors[1:], equation=equation)


def _with_gain(r: Reverse) -> Term:
    every, own = _names(r)
    return r.g.step("einsum", r.x[1], equation=f"{every}, {own} -> {every}")


# ---------------------------------------------------------------------------------------------
# Sums along a dimension, and selections
# ---------------------------------------------------------------------------------------------


def cumsum(r: Reverse, operand: int) -> Term:
    """Return the sums of the cotangent in the other direction."""
    return r.g.step("cumsum", dim=r.arguments["dim"], reverse="reverse" not in r.arguments)


def linear_scan(r: Reverse, operand: int) -> Term | None:
    """Return the cotangents summed from the other end, each g + the next factor times the next sum
    (operand 0); or this times the result before (operand 1)."""
    dim: int = r.arguments["dim"]
    if same_size(r.types[0].shape[dim], 1):  # there is no result before
        return None if operand else r.g
    back = "reverse" in r.arguments
    ahead, behind = (1, -1) if back else (-1, 1)
    factor = r.x[1].step("pad", dim=dim, low=ahead, high=behind)
    flag = {} if back else {"reverse": True}
    total = r.g.step("linear_scan", factor, dim=dim, **flag)
    return total if operand == 0 else total * r.y.step("pad", dim=dim, low=behind, high=ahead)


def take(r: Reverse, operand: int) -> Term | None:
    """Return the cotangent added up at the positions that were taken."""
    if operand:
        return None
    table, chosen = r.types
    axes = frozenset(axis for dim in chosen.dims for axis in dim.axes)
    to = replace(table, partial=axes, reduction=Reduction.SUM if axes else None)
    return r.g.step("take_transpose", r.x[1], dim=r.arguments["dim"], to=to)


def take_transpose(r: Reverse, operand: int) -> Term | None:
    """Return the cotangent at the positions at which slices were added."""
    return None if operand else r.g.step("take", r.x[1], dim=r.arguments["dim"])


def top_k(r: Reverse, operand: int) -> Term:
    """Return the cotangent at the positions of the largest elements, and 0 elsewhere."""
    x, dim = r.types[0], r.arguments["dim"]
    positions = r.x[0].step("top_k_indices", k=r.arguments["k"], dim=dim)
    return r.g.step("take_along_dim_transpose", positions, dim=dim, to=_of(x, x.dims))


def take_along_dim(r: Reverse, operand: int) -> Term | None:
    """Return the cotangent added up at the positions that were taken."""
    if operand:
        return None
    x, chosen = r.types
    dim: int = r.arguments["dim"]
    axes: frozenset[str] = frozenset(chosen.dims[dim].axes)
    to = replace(x, partial=axes, reduction=Reduction.SUM if axes else None)
    return r.g.step("take_along_dim_transpose", r.x[1], dim=dim, to=to)


def take_along_dim_transpose(r: Reverse, operand: int) -> Term | None:
    """Return the cotangent at the positions at which elements were added."""
    return None if operand else r.g.step("take_along_dim", r.x[1], dim=r.arguments["dim"])


# ---------------------------------------------------------------------------------------------
# Products of groups
# ---------------------------------------------------------------------------------------------


def grouped_matmul(r: Reverse, operand: int) -> Term | None:
    """Return the product with the matrices transposed, or the sums of products for each group."""
    if operand == 2:
        return None
    x, w, groups = r.x[0].whole(), *r.x[1:]
    transposed = "transposed" in r.arguments
    if operand == 0:
        return r.g.step("grouped_matmul", w, groups, **_flag(not transposed))
    axes = frozenset(axis for dim in r.types[2].dims for axis in dim.axes)
    to = replace(r.types[1], partial=axes, reduction=Reduction.SUM if axes else None)
    pair = (r.g, x) if transposed else (x, r.g)
    return pair[0].step("grouped_matmul_transpose", pair[1], groups, to=to)


def grouped_matmul_transpose(r: Reverse, operand: int) -> Term | None:
    """Return the product of the other rows with the cotangent's matrix of their group."""
    if operand == 2:
        return None
    other = r.x[1 - operand]
    return other.step("grouped_matmul", r.g, r.x[2], **_flag(operand == 0))


def _flag(transposed: bool) -> dict[str, bool]:
    return {"transposed": True} if transposed else {}


def cross_entropy(r: Reverse, operand: int) -> Term | None:
    """Return g (softmax(x) - one_hot(label)), and 0 where a label is out of range."""
    if operand:
        return None
    x = r.types[0]
    dim: int = r.arguments["dim"]
    rank = len(x.dims)
    rest = [*x.dims[:dim], *x.dims[dim + 1 :]]
    label = r.x[1].step("one_hot", to=_of(x, [*rest, x.dims[dim]]))
    if dim != rank - 1:
        order = (*range(dim), rank - 1, *range(dim, rank - 1))
        label = label.step("transpose", order=order)
    known = label.step("sum", dims=(dim,), keepdims=True)
    g = r.g.step("reshape", shape=tuple(1 if d == dim else n for d, n in enumerate(x.shape)))
    return g * (r.x[0].step("softmax", dims=(dim,)) * known - label)


def _of(x: DistType, dims: Sequence[Dim]) -> DistType:
    return DistType(x.dtype, tuple(dims), place=x.place)


# ---------------------------------------------------------------------------------------------
# Windows
# ---------------------------------------------------------------------------------------------


def _steps_of(r: Reverse) -> dict[str, Any]:
    """Return the arguments that say where windows are."""
    names = ("window", "stride", "padding")
    return {name: r.arguments[name] for name in names if name in r.arguments}


def _summed_over(x: DistType, dim: Dim) -> DistType:
    """Return the type of what is summed over a dimension of another operand."""
    axes = frozenset(dim.axes)
    return replace(x, partial=axes, reduction=Reduction.SUM if axes else None)


def conv(r: Reverse, operand: int) -> Term:
    x, w = r.types
    if operand:
        to = _summed_over(w, x.dims[0])
        return r.x[0].whole().step("conv_filter", r.g, **_steps_of(r), to=to)
    to = _summed_over(x, w.dims[-1])
    return r.g.step("conv_transpose", r.x[1].whole(), **_steps_of(r), to=to)


def conv_transpose(r: Reverse, operand: int) -> Term:
    g, w = r.types
    if operand == 0:
        return r.g.step("conv", r.x[1].whole(), **_steps_of(r))
    to = _summed_over(w, g.dims[0])
    return r.g.step("conv_filter", r.x[0].whole(), **_steps_of(r), to=to)


def conv_filter(r: Reverse, operand: int) -> Term:
    x, g = r.types
    if operand:
        return r.x[0].whole().step("conv", r.g, **_steps_of(r))
    to = _summed_over(x, g.dims[-1])
    return r.x[1].whole().step("conv_transpose", r.g, **_steps_of(r), to=to)


def max_pool(r: Reverse, operand: int) -> Term:
    """Return the cotangent at the first largest element of every window."""
    return r.g.step("max_pool_transpose", r.x[0].whole(), **_steps_of(r))


def avg_pool(r: Reverse, operand: int) -> Term:
    """Return the cotangent divided among the elements of every window."""
    return r.g.step("avg_pool_transpose", **_steps_of(r), to=r.types[0].whole)


def avg_pool_transpose(r: Reverse, operand: int) -> Term:
    """Return the average of the cotangent in every window."""
    return r.g.step("avg_pool", **_steps_of(r))
