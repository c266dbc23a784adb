"""Sums, means and extremes over dimensions, norms, and losses."""

import math
from collections.abc import Sequence
from typing import Any

from collir.importing.models.graph import ModelNode
from collir.importing.models.lines import Lines, LineValue
from collir.importing.models.rows.table import NotHere, Number, dims_of, dtype_of, row, shape_of


@row("sum.dim_IntList", "sum", "mean.dim", "mean", "amax", "amin")
def _reduce(
    e: Lines, node: ModelNode, x: LineValue, dims: object = None, keep: bool = False, **_: object
) -> LineValue:
    kind = {"amax": "max", "amin": "min"}.get(node.op, node.op.partition(".")[0])
    return e.reduce(kind, e.cast(x, dtype_of(node)), dims_of(x, dims), keep)


@row("max.dim", "min.dim")
def _extreme(
    e: Lines, node: ModelNode, x: LineValue, dim: int, keep: bool = False
) -> tuple[LineValue, ...]:
    [dim] = dims_of(x, dim)
    kind = node.op.partition(".")[0]
    best = e.reduce(kind, x, [dim], keep)
    whole = e.whole(x) if kind == "max" else e.map("neg {}", e.whole(x))
    place = e.step(f"argmax %{whole.name} dim {dim}", _without(x.shape, dim), "i32")
    place = e.cast(place, "i64")
    return best, e.view(place, best.shape)


def _without(shape: Sequence[int], dim: int) -> list[int]:
    return [n for d, n in enumerate(shape) if d != dim]


@row("max", "min")
def _whole_extreme(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    return e.reduce(node.op, x, dims_of(x, None))


@row("argmax")
def _argmax(
    e: Lines, node: ModelNode, x: LineValue, dim: int | None = None, keep: bool = False
) -> LineValue:
    if dim is None:
        raise NotHere("over all dimensions")
    [dim] = dims_of(x, dim)
    x = e.whole(x)
    place = e.step(f"argmax %{x.name} dim {dim}", _without(x.shape, dim), "i32")
    return e.view(e.cast(place, "i64"), shape_of(node))


@row("var.correction", "var.dim", "var", "std.correction", "std.dim")
def _variance(
    e: Lines, node: ModelNode, x: LineValue, dims: object = None, *rest: bool,
    correction: Number | None = 1,
    keepdim: bool = False, unbiased: bool = True,
) -> LineValue:  # fmt: skip
    listed = dims_of(x, dims)
    if rest:
        unbiased, keepdim = rest[0], (rest[1] if len(rest) > 1 else keepdim)
    less = correction if node.op.endswith("correction") else int(unbiased)
    return _spread(e, node.op, x, listed, 1 if less is None else less, keepdim)


def _spread(
    e: Lines, kind: str, x: LineValue, dims: Sequence[int], less: Number, keep: bool
) -> LineValue:
    """Return a variance, or its root.

    Args:
        less: how much less than the number of elements the sum of squares is divided by.
    """
    count = math.prod(x.shape[d] for d in dims)
    centred = e.map("sub {}", x, e.reduce("mean", x, dims, keep=True))
    total = e.reduce("sum", e.map("mul {}", centred, centred), dims, keep)
    made = e.scale(total, 1 / (count - less))
    return e.map("sqrt {}", made) if kind.startswith("std") else made


@row("softmax.int", "log_softmax.int", "_softmax", "_log_softmax")
def softmax(
    e: Lines, node: ModelNode, x: LineValue, dim: int, *_: object, **__: object
) -> LineValue:
    """The softmax over a dimension, or its logarithm."""
    kind = "log_softmax" if "log" in node.op else "softmax"
    [dim] = dims_of(x, dim)
    x = e.whole(e.cast(x, dtype_of(node)))
    return e.step(f"{kind} %{x.name} dims [{dim}]", x.shape, x.dtype)


@row("cumsum")
def cumsum(e: Lines, node: ModelNode, x: LineValue, dim: int, **_: object) -> LineValue:
    """The sums up to each element of a dimension."""
    [dim] = dims_of(x, dim)
    x = e.whole(e.cast(x, dtype_of(node)))
    return e.step(f"cumsum %{x.name} dim {dim}", x.shape, x.dtype)


@row("linalg_vector_norm")
def _vector_norm(
    e: Lines, node: ModelNode, x: LineValue, order: Number = 2, dims: object = None,
    keep: bool = False,
    **_: object,
) -> LineValue:  # fmt: skip
    """The root of a sum of powers; no gradient goes to a vector of zeros."""
    x, listed = e.cast(x, dtype_of(node)), dims_of(x, dims)
    if order != 2:
        size = e.map("maximum {}", x, e.map("neg {}", x))
        if order in (1, math.inf, -math.inf):
            kind = {1: "sum", math.inf: "max"}.get(order, "min")
            return e.reduce(kind, size, listed, keep)
        if order < 1:
            raise NotHere(f"of order {order}")
        is_zero = e.map("equal {}", size, e.number(0, x.dtype), dtype="bool")
        safe = e.map("where {}", is_zero, e.number(1, x.dtype), size)
        power = e.map("exp {}", e.scale(e.map("log {}", safe), order))
        power = e.map("where {}", is_zero, e.number(0, x.dtype), power)
        total = e.reduce("sum", power, listed, keep)
        is_zero = e.map("equal {}", total, e.number(0, x.dtype), dtype="bool")
        total = e.map("where {}", is_zero, e.number(1, x.dtype), total)
        root = e.map("exp {}", e.scale(e.map("log {}", total), 1 / order))
        return e.map("where {}", is_zero, e.number(0, x.dtype), root)
    total = e.reduce("sum", e.map("mul {}", x, x), listed, keep)
    is_zero = e.map("equal {}", total, e.number(0, x.dtype), dtype="bool")
    root = e.map("sqrt {}", e.map("where {}", is_zero, e.number(1, x.dtype), total))
    return e.map("where {}", is_zero, e.number(0, x.dtype), root)


@row("_cdist_forward")
def _distances(
    e: Lines, node: ModelNode, x: LineValue, y: LineValue, order: Number = 2, *_: object
) -> LineValue:
    """The norm of the difference of every two rows."""
    left = e.view(x, (*x.shape[:-1], 1, x.shape[-1]))
    right = e.view(y, (*y.shape[:-2], 1, *y.shape[-2:]))
    apart = e.map("sub {}", left, right)
    return _vector_norm(e, node, apart, order, [len(apart.shape) - 1])


@row("logcumsumexp")
def _log_cumsum(e: Lines, node: ModelNode, x: LineValue, dim: int) -> LineValue:
    """The logarithms of sums of ever more neighbours."""
    dim, reach = dim % len(x.shape), 1
    while reach < x.shape[dim]:
        size = x.shape[dim] - reach
        first, last = e.cut(x, dim, 0, reach), e.cut(x, dim, reach, size)
        before = e.cut(x, dim, 0, size)
        most = e.map("maximum {}", last, before)
        least = e.map("minimum {}", last, before)
        rest = e.map("exp {}", e.map("sub {}", least, most))
        more = e.map("log {}", e.map("add {}", rest, e.number(1, x.dtype)))
        x = e.concat([first, e.map("add {}", most, more)], dim)
        reach *= 2
    return x


@row("any", "any.dim", "any.dims", "all", "all.dim", "all.dims")
def _any(
    e: Lines, node: ModelNode, x: LineValue, dims: object = None, keep: bool = False
) -> LineValue:
    kind = "max" if node.op.startswith("any") else "min"
    if x.dtype != "bool":
        x = e.map("not_equal {}", x, e.number(0, x.dtype), dtype="bool")
    found = e.reduce(kind, e.cast(x, "i32"), dims_of(x, dims), keep)
    return e.map("not_equal {}", found, e.number(0, "i32"), dtype="bool")


@row("prod", "prod.dim_int")
def _product(
    e: Lines, node: ModelNode, x: LineValue, dim: int | None = None, keep: bool = False, **_: object
) -> LineValue:
    """The first half times the second one, until one is left."""
    x = e.cast(x, dtype_of(node))
    if dim is None:
        x, dim = e.view(x, (math.prod(x.shape),)), 0
    dim %= len(x.shape)
    while (size := x.shape[dim]) > 1:
        half = (size + 1) // 2
        first, second = e.cut(x, dim, 0, half), e.cut(x, dim, half, size - half)
        x = e.map("mul {}", first, e.pad(second, dim, 0, 2 * half - size, 1))
    return e.view(x, shape_of(node))


@row("cumprod")
def _cumprod(e: Lines, node: ModelNode, x: LineValue, dim: int, **_: object) -> LineValue:
    """A scan that begins with the first element, and adds nothing to it."""
    x, [dim] = e.whole(e.cast(x, dtype_of(node))), dims_of(x, dim)
    first = e.pad(e.cut(x, dim, 0, 1), dim, 0, x.shape[dim] - 1)
    return e.step(f"linear_scan %{first.name}, %{x.name} dim {dim}", x.shape, x.dtype)


@row("argmin")
def _argmin(
    e: Lines, node: ModelNode, x: LineValue, dim: int | None = None, keep: bool = False
) -> LineValue:
    return _argmax(e, node, e.map("neg {}", x), dim, keep)


@row("var_mean.correction", "std_mean.correction", "aminmax")
def _pairs(
    e: Lines, node: ModelNode, x: LineValue, dims: object = None, *, correction: Number | None = 1,
    keepdim: bool = False, dim: object = None,
) -> tuple[LineValue, ...]:  # fmt: skip
    dims = dims if dim is None else dim
    if node.op == "aminmax":
        return tuple(e.reduce(kind, x, dims_of(x, dims), keepdim) for kind in ("min", "max"))
    correction = 1 if correction is None else correction
    first = node.op.replace("_mean", "")
    spread = _spread(e, first, x, dims_of(x, dims), correction, keepdim)
    return spread, e.reduce("mean", x, dims_of(x, dims), keepdim)


# --- norms ----------------------------------------------------------------------------------------


@row("layer_norm")
def _layer_norm(
    e: Lines, node: ModelNode, x: LineValue, shape: Sequence[int], gain: LineValue | None = None,
    bias: LineValue | None = None, eps: float = 1e-5, *_: object,
) -> LineValue:  # fmt: skip
    dims = list(range(len(x.shape) - len(shape), len(x.shape)))
    return normed(e, x, dims, gain, bias, eps)


def normed(
    e: Lines,
    x: LineValue,
    dims: list[int],
    gain: LineValue | None,
    bias: LineValue | None,
    eps: float,
) -> LineValue:
    """Return a value of mean 0 and variance 1 over dimensions, times a gain, plus a bias."""
    x = e.whole(x)
    shape = [x.shape[d] for d in dims]
    g = e.repeated(gain, shape) if gain else e.step(
        f"constant value 1 to {x.dtype}[{', '.join(map(str, shape))}]", shape, x.dtype, "ones"
    )  # fmt: skip
    b = e.repeated(bias, shape) if bias else e.step(
        f"constant value 0 to {x.dtype}[{', '.join(map(str, shape))}]", shape, x.dtype, "zeros"
    )  # fmt: skip
    g, b = e.cast(g, x.dtype), e.cast(b, x.dtype)
    listed = ", ".join(map(str, dims))
    text = f"layer_norm %{x.name}, %{g.name}, %{b.name} dims [{listed}] eps {eps!r}"
    return e.step(text, x.shape, x.dtype)


@row("rms_norm")
def _rms_norm(
    e: Lines, node: ModelNode, x: LineValue, shape: Sequence[int], gain: LineValue | None = None,
    eps: float | None = None,
) -> LineValue:  # fmt: skip
    x = e.whole(x)
    g = gain or e.step(
        f"constant value 1 to {x.dtype}[{', '.join(map(str, shape))}]", shape, x.dtype, "ones"
    )
    g = e.cast(g, x.dtype)
    dims = ", ".join(str(d) for d in range(len(x.shape) - len(shape), len(x.shape)))
    small = {"f64": 2.220446049250313e-16, "f32": 1.1920928955078125e-07}
    eps = small.get(x.dtype, 1e-6) if eps is None else eps
    text = f"rms_norm %{x.name}, %{g.name} dims [{dims}] eps {eps!r}"
    return e.step(text, x.shape, x.dtype)


@row("group_norm")
def _group_norm(
    e: Lines, node: ModelNode, x: LineValue, groups: int, gain: LineValue | None = None,
    bias: LineValue | None = None, eps: float = 1e-5, *_: object,
) -> LineValue:  # fmt: skip
    batch, channels, *sides = x.shape
    grouped = e.view(x, (batch, groups, channels // groups * math.prod(sides)))
    centred = e.map("sub {}", grouped, e.reduce("mean", grouped, [2], keep=True))
    variance = e.reduce("mean", e.map("mul {}", centred, centred), [2], keep=True)
    factor = e.map("rsqrt {}", e.map("add {}", variance, e.number(eps, x.dtype)))
    y = e.view(e.map("mul {}", centred, factor), x.shape)
    per_channel = (channels, *(1 for _ in sides))
    y = e.map("mul {}", y, e.view(gain, per_channel)) if gain else y
    return e.map("add {}", y, e.view(bias, per_channel)) if bias else y


@row("batch_norm", "_native_batch_norm_legit_no_training", "native_batch_norm",
     "_native_batch_norm_legit.no_stats", "_native_batch_norm_legit_functional")  # fmt: skip
def _batch_norm(
    e: Lines,
    node: ModelNode,
    x: LineValue,
    gain: LineValue | None,
    bias: LineValue | None,
    *rest: Any,
) -> LineValue | tuple[LineValue, ...]:
    """Normalise by the statistics that the model keeps, or by statistics of the batch."""
    numbers = [n for n in rest if isinstance(n, float)]
    mean, variance = ([*rest, None, None])[:2] if "no_stats" not in node.op else (None, None)
    is_trained = any(n is True for n in rest[:3])
    shape = (x.shape[1], *(1 for _ in x.shape[2:]))
    if is_trained or mean is None or variance is None:
        dims = [d for d in range(len(x.shape)) if d != 1]
        average = e.reduce("mean", x, dims, keep=True)
        centred = e.map("sub {}", x, average)
        spread = e.reduce("mean", e.map("mul {}", centred, centred), dims, keep=True)
    else:
        average = e.view(mean, shape)
        centred = e.map("sub {}", x, average)
        spread = e.view(variance, shape)
    eps = e.number(numbers[-1], x.dtype)
    factor = e.map("rsqrt {}", e.map("add {}", spread, eps))
    y = e.map("mul {}", centred, factor)
    y = e.map("mul {}", y, e.view(gain, shape)) if gain else y
    y = e.map("add {}", y, e.view(bias, shape)) if bias else y
    return y if len(node.results) == 1 else (y,)  # nothing reads the statistics


# --- losses ---------------------------------------------------------------------------------------


@row("cross_entropy_loss")
def _cross_entropy(
    e: Lines, node: ModelNode, x: LineValue, labels: LineValue, weight: LineValue | None = None,
    reduction: int = 1,
    ignored: int = -100, smoothing: float = 0.0,
) -> LineValue:  # fmt: skip
    """The mean over labels that are not left out; a label that is out of range has a loss of 0."""
    dim = 1 if len(x.shape) > 1 else 0
    if labels.is_float:
        return _by_shares(e, x, labels, weight, dim, reduction, smoothing)
    x, labels = e.whole(x), e.whole(labels)
    shape = _without(x.shape, dim)
    counted = e.map("not_equal {}", labels, e.number(ignored, labels.dtype), dtype="bool")
    if weight is not None or smoothing:
        return _weighted(e, x, labels, weight, dim, reduction, smoothing, counted)
    if 0 <= ignored < x.shape[dim]:
        labels = e.whole(e.map("where {}", counted, labels, e.number(-1, labels.dtype)))
    losses = e.step(f"cross_entropy %{x.name}, %{labels.name} dim {dim}", shape, x.dtype, "losses")
    if reduction == 0:
        return losses
    total = e.reduce("sum", losses, range(len(shape)))
    if reduction == 2:
        return total
    count = e.reduce("sum", e.cast(counted, x.dtype), range(len(shape)))
    return e.map("div {}", total, count)


def _by_shares(
    e: Lines, x: LineValue, shares: LineValue, weight: LineValue | None, dim: int, reduction: int,
    smoothing: float,
) -> LineValue:  # fmt: skip
    """Return the cross entropy of shares of classes."""
    classes = x.shape[dim]
    if smoothing:
        shares = e.map("add {}", e.scale(shares, 1 - smoothing),
                       e.number(smoothing / classes, x.dtype))  # fmt: skip
    losses = e.map("mul {}", _logarithms(e, x, dim), e.cast(shares, x.dtype))
    if weight is not None:
        losses = e.map(
            "mul {}", losses, e.view(weight, [classes, *(1 for _ in x.shape[dim + 1 :])])
        )
    negated = e.map("neg {}", e.reduce("sum", losses, [dim]))
    return _reduced(e, negated, reduction, None)


def _weighted(
    e: Lines, x: LineValue, labels: LineValue, weight: LineValue | None, dim: int, reduction: int,
    smoothing: float, counted: LineValue,
) -> LineValue:  # fmt: skip
    """Return the cross entropy of labels whose classes have weights, or are one of some."""
    classes, rank = x.shape[dim], len(x.shape)
    logs = _logarithms(e, x, dim)
    shape = [n if d == dim else 1 for d, n in enumerate(x.shape)]
    if weight is not None:
        weights = e.view(weight, shape)
        logs = e.map("mul {}", logs, weights)
    at = e.view(e.iota(classes, labels.dtype), shape)
    apart = e.view(labels, (*labels.shape[:dim], 1, *labels.shape[dim:]))
    own = e.cast(e.map("equal {}", apart, at, dtype="bool"), x.dtype)
    shares = e.scale(own, 1 - smoothing)
    if smoothing:
        shares = e.map("add {}", shares, e.number(smoothing / classes, x.dtype))
    negated = e.map("neg {}", e.reduce("sum", e.map("mul {}", logs, shares), [dim]))
    negated = e.map("where {}", counted, negated, e.number(0, x.dtype))
    count = e.cast(counted, x.dtype)
    if weight is not None:
        letters = "abcdefgh"[:rank]
        of = e.einsum(f"{letters},{letters[dim]}->{letters[:dim]}{letters[dim + 1 :]}", own, weight)
        count = e.map("where {}", counted, of, e.number(0, x.dtype))
    return _reduced(e, negated, reduction, count)


def _logarithms(e: Lines, x: LineValue, dim: int) -> LineValue:
    x = e.whole(x)
    return e.step(f"log_softmax %{x.name} dims [{dim}]", x.shape, x.dtype)


def _reduced(e: Lines, losses: LineValue, reduction: int, weights: LineValue | None) -> LineValue:
    """Return losses, their mean over weights or over the batch, or their sum."""
    if reduction == 0:
        return losses
    dims = range(len(losses.shape))
    total = e.reduce("sum", losses, dims)
    if reduction == 2:
        return total
    if weights is None:
        return e.scale(total, 1 / max(1, math.prod(losses.shape)))
    return e.map("div {}", total, e.reduce("sum", weights, dims))


@row("mse_loss")
def _mse(e: Lines, node: ModelNode, x: LineValue, y: LineValue, reduction: int = 1) -> LineValue:
    difference = e.map("sub {}", x, y)
    squares = e.map("mul {}", difference, difference)
    if reduction == 0:
        return squares
    return e.reduce("mean" if reduction == 1 else "sum", squares, range(len(squares.shape)))
