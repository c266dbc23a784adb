"""Sums, means and extremes over dimensions, norms, and losses."""

import math
from collections.abc import Sequence

from collir.importing.models.graph import Node
from collir.importing.models.lines import Lines, Value
from collir.importing.models.rows.table import NotHere, Number, dims_of, dtype_of, row, shape_of


@row("sum.dim_IntList", "sum", "mean.dim", "mean", "amax", "amin")
def _reduce(
    e: Lines, node: Node, x: Value, dims: object = None, keep: bool = False, **_: object
) -> Value:
    kind = {"amax": "max", "amin": "min"}.get(node.op, node.op.partition(".")[0])
    return e.reduce(kind, e.cast(x, dtype_of(node)), dims_of(x, dims), keep)


@row("max.dim", "min.dim")
def _extreme(e: Lines, node: Node, x: Value, dim: int, keep: bool = False) -> tuple[Value, ...]:
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
def _whole_extreme(e: Lines, node: Node, x: Value) -> Value:
    return e.reduce(node.op, x, dims_of(x, None))


@row("argmax")
def _argmax(e: Lines, node: Node, x: Value, dim: int | None = None, keep: bool = False) -> Value:
    if dim is None:
        raise NotHere("over all dimensions")
    [dim] = dims_of(x, dim)
    x = e.whole(x)
    place = e.step(f"argmax %{x.name} dim {dim}", _without(x.shape, dim), "i32")
    return e.view(e.cast(place, "i64"), shape_of(node))


@row("var.correction", "var.dim", "var", "std.correction", "std.dim")
def _variance(
    e: Lines, node: Node, x: Value, dims: object = None, *rest: bool, correction: Number = 1,
    keepdim: bool = False, unbiased: bool = True,
) -> Value:  # fmt: skip
    listed = dims_of(x, dims)
    if rest:
        unbiased, keepdim = rest[0], (rest[1] if len(rest) > 1 else keepdim)
    count = math.prod(x.shape[d] for d in listed)
    left = count - (correction if node.op.endswith("correction") else int(unbiased))
    centred = e.map("sub {}", x, e.reduce("mean", x, listed, keep=True))
    total = e.reduce("sum", e.map("mul {}", centred, centred), listed, keepdim)
    made = e.scale(total, 1 / left)
    return e.map("sqrt {}", made) if node.op.startswith("std") else made


@row("softmax.int", "log_softmax.int", "_softmax", "_log_softmax")
def softmax(e: Lines, node: Node, x: Value, dim: int, *_: object, **__: object) -> Value:
    """The softmax over a dimension, or its logarithm."""
    kind = "log_softmax" if "log" in node.op else "softmax"
    [dim] = dims_of(x, dim)
    x = e.whole(e.cast(x, dtype_of(node)))
    return e.step(f"{kind} %{x.name} dims [{dim}]", x.shape, x.dtype)


@row("cumsum")
def cumsum(e: Lines, node: Node, x: Value, dim: int, **_: object) -> Value:
    """The sums up to each element of a dimension."""
    [dim] = dims_of(x, dim)
    x = e.whole(e.cast(x, dtype_of(node)))
    return e.step(f"cumsum %{x.name} dim {dim}", x.shape, x.dtype)


# --- norms ----------------------------------------------------------------------------------------


@row("layer_norm")
def _layer_norm(
    e: Lines, node: Node, x: Value, shape: Sequence[int], gain: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, *_: object,
) -> Value:  # fmt: skip
    dims = list(range(len(x.shape) - len(shape), len(x.shape)))
    return normed(e, x, dims, gain, bias, eps)


def normed(
    e: Lines, x: Value, dims: list[int], gain: Value | None, bias: Value | None, eps: float
) -> Value:
    """Return a value of mean 0 and variance 1 over dimensions, times a gain, plus a bias."""
    x = e.whole(x)
    shape = [x.shape[d] for d in dims]
    g = e.repeated(gain, shape) if gain else e.step(
        f"constant value 1 to {x.dtype}[{', '.join(map(str, shape))}]", shape, x.dtype, "ones"
    )  # fmt: skip
    b = e.repeated(bias, shape) if bias else e.step(
        f"constant value 0 to {x.dtype}[{', '.join(map(str, shape))}]", shape, x.dtype, "zeros"
    )  # fmt: skip
    listed = ", ".join(map(str, dims))
    text = f"layer_norm %{x.name}, %{g.name}, %{b.name} dims [{listed}] eps {eps!r}"
    return e.step(text, x.shape, x.dtype)


@row("rms_norm")
def _rms_norm(
    e: Lines, node: Node, x: Value, shape: Sequence[int], gain: Value | None = None,
    eps: float | None = None,
) -> Value:  # fmt: skip
    x = e.whole(x)
    g = gain or e.step(
        f"constant value 1 to {x.dtype}[{', '.join(map(str, shape))}]", shape, x.dtype, "ones"
    )
    dims = ", ".join(str(d) for d in range(len(x.shape) - len(shape), len(x.shape)))
    small = {"f64": 2.220446049250313e-16, "f32": 1.1920928955078125e-07}
    eps = small.get(x.dtype, 1e-6) if eps is None else eps
    text = f"rms_norm %{x.name}, %{g.name} dims [{dims}] eps {eps!r}"
    return e.step(text, x.shape, x.dtype)


@row("group_norm")
def _group_norm(
    e: Lines, node: Node, x: Value, groups: int, gain: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, *_: object,
) -> Value:  # fmt: skip
    batch, channels, *sides = x.shape
    grouped = e.view(x, (batch, groups, channels // groups * math.prod(sides)))
    centred = e.map("sub {}", grouped, e.reduce("mean", grouped, [2], keep=True))
    variance = e.reduce("mean", e.map("mul {}", centred, centred), [2], keep=True)
    factor = e.map("rsqrt {}", e.map("add {}", variance, e.number(eps, x.dtype)))
    y = e.view(e.map("mul {}", centred, factor), x.shape)
    per_channel = (channels, *(1 for _ in sides))
    y = e.map("mul {}", y, e.view(gain, per_channel)) if gain else y
    return e.map("add {}", y, e.view(bias, per_channel)) if bias else y


@row("batch_norm", "_native_batch_norm_legit_no_training", "native_batch_norm")
def _batch_norm(
    e: Lines, node: Node, x: Value, gain: Value | None, bias: Value | None, mean: Value | None,
    variance: Value | None, *rest: object,
) -> Value | tuple[Value, ...]:  # fmt: skip
    numbers = [n for n in rest if isinstance(n, float)]
    training = any(n is True for n in rest[:1])
    shape = (x.shape[1], *(1 for _ in x.shape[2:]))
    if training or mean is None or variance is None:
        dims = [d for d in range(len(x.shape)) if d != 1]
        average = e.reduce("mean", x, dims, keep=True)
        centred = e.map("sub {}", x, average)
        spread = e.reduce("mean", e.map("mul {}", centred, centred), dims, keep=True)
    else:
        centred = e.map("sub {}", x, e.view(mean, shape))
        spread = e.view(variance, shape)
    eps = e.number(numbers[-1], x.dtype)
    y = e.map("mul {}", centred, e.map("rsqrt {}", e.map("add {}", spread, eps)))
    y = e.map("mul {}", y, e.view(gain, shape)) if gain else y
    y = e.map("add {}", y, e.view(bias, shape)) if bias else y
    return y if len(node.results) == 1 else (y,)


# --- losses ---------------------------------------------------------------------------------------


@row("cross_entropy_loss")
def _cross_entropy(
    e: Lines, node: Node, x: Value, labels: Value, weight: Value | None = None, reduction: int = 1,
    ignored: int = -100, smoothing: float = 0.0,
) -> Value:  # fmt: skip
    """The mean over labels that are not left out; a label that is out of range has a loss of 0."""
    if weight is not None or smoothing or labels.is_float:
        raise NotHere("with weights, smoothing or shares of classes")
    dim = 1 if len(x.shape) > 1 else 0
    x, labels = e.whole(x), e.whole(labels)
    shape = _without(x.shape, dim)
    counted = e.map("not_equal {}", labels, e.number(ignored, labels.dtype), dtype="bool")
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


@row("mse_loss")
def _mse(e: Lines, node: Node, x: Value, y: Value, reduction: int = 1) -> Value:
    difference = e.map("sub {}", x, y)
    squares = e.map("mul {}", difference, difference)
    if reduction == 0:
        return squares
    return e.reduce("mean" if reduction == 1 else "sum", squares, range(len(squares.shape)))
