"""Sums and products, windows, and what is ordered along a dimension."""

import math
from collections.abc import Sequence
from string import ascii_letters
from typing import Any

from collir.importing.models.graph import ModelNode
from collir.importing.models.jax_rows.maps import as_torch
from collir.importing.models.jax_rows.shapes import positions, spread
from collir.importing.models.jax_rows.table import jax_row
from collir.importing.models.lines import Lines, LineValue
from collir.importing.models.rows.products import grouped_conv
from collir.importing.models.rows.table import JAX, NotHere, dtype_of, shape_of


def _reduce(name: str, kind: str) -> None:
    @jax_row(name)
    def made(
        e: Lines, node: ModelNode, x: LineValue, *, axes: Sequence[int], **_: object
    ) -> LineValue:
        return e.reduce(kind, x, axes) if axes else x


_reduce("reduce_sum", "sum")
_reduce("reduce_max", "max")
_reduce("reduce_min", "min")


def _reduce_truth(name: str, kind: str) -> None:
    @jax_row(name)
    def made(
        e: Lines, node: ModelNode, x: LineValue, *, axes: Sequence[int], **_: object
    ) -> LineValue:
        if x.dtype != "bool":
            raise NotHere("of bits")
        found = e.reduce(kind, e.cast(x, "i32"), axes)
        return e.map("not_equal {}", found, e.number(0, "i32"), dtype="bool")


_reduce_truth("reduce_and", "min")
_reduce_truth("reduce_or", "max")


@jax_row("reduce_prod")
def _product(
    e: Lines, node: ModelNode, x: LineValue, *, axes: Sequence[int], **_: object
) -> LineValue:
    row = as_torch("prod")
    for axis in sorted(axes, reverse=True):
        shape = tuple(n for d, n in enumerate(x.shape) if d != axis)
        of = ModelNode(
            "", "prod", (), {}, (type(node.result)(shape, x.dtype),), node.path, node.line
        )
        made = row(e, of, x, axis)
        assert isinstance(made, LineValue)
        x = made
    return x


@jax_row("argmax", "argmin")
def _best_place(
    e: Lines, node: ModelNode, x: LineValue, *, axes: Sequence[int], **_: object
) -> LineValue:
    [dim] = axes
    x = e.whole(x if node.op.endswith("max") else e.map("neg {}", x))
    shape = [n for d, n in enumerate(x.shape) if d != dim]
    return e.cast(e.step(f"argmax %{x.name} dim {dim}", shape, "i32"), dtype_of(node))


@jax_row("cumsum")
def _cumsum(
    e: Lines, node: ModelNode, x: LineValue, *, axis: int, reverse: bool = False
) -> LineValue:
    x = e.whole(x)
    back = " reverse" if reverse else ""
    return e.step(f"cumsum %{x.name} dim {axis}{back}", x.shape, x.dtype)


@jax_row("cumprod", "cumlogsumexp", "cummax", "cummin")
def _cumulated(
    e: Lines, node: ModelNode, x: LineValue, *, axis: int, reverse: bool = False
) -> LineValue:
    """Combine each element with all elements before it."""
    kind, reach = node.op.removeprefix(JAX), 1
    x = e.whole(x)
    while reach < x.shape[axis]:
        size = x.shape[axis] - reach
        kept = e.cut(x, axis, size if reverse else 0, reach)
        later, before = e.cut(x, axis, reach, size), e.cut(x, axis, 0, size)
        made = _joined(e, node, kind, later, before)
        x = e.concat([made, kept] if reverse else [kept, made], axis)
        reach *= 2
    return x


def _joined(e: Lines, node: ModelNode, kind: str, x: LineValue, y: LineValue) -> LineValue:
    if kind == "cumlogsumexp":
        made = as_torch("logaddexp")(e, node, x, y)
        assert isinstance(made, LineValue)
        return made
    op = {"cumprod": "mul", "cummax": "maximum", "cummin": "minimum"}[kind]
    return e.map(f"{op} {{}}", x, y)


@jax_row("sort")
def _sort(
    e: Lines, node: ModelNode, *values: LineValue, dimension: int, num_keys: int = 1, **_: object
) -> tuple[LineValue, ...] | LineValue:
    """The keys from the least on, and others in the same order."""
    if num_keys != 1:
        raise NotHere("by several keys")
    key = values[0]
    wide = e.whole(key if key.is_float else e.cast(key, "f64"))
    wide = e.map("neg {}", wide)
    k = f"k {key.shape[dimension]} dim {dimension}"
    places = e.step(f"top_k_indices %{wide.name} {k}", key.shape, "i32", "places")
    made = [
        e.cast(places, x.dtype)
        if _is_positions(e, x, dimension)
        else e.step(
            f"take_along_dim %{x.name}, %{places.name} dim {dimension}", x.shape, x.dtype, "sorted"
        )
        for x in map(e.whole, values)
    ]
    return tuple(made) if len(made) > 1 else made[0]


def _is_positions(e: Lines, x: LineValue, dim: int) -> bool:
    return x.name == e.whole(positions_along(e, x.shape, dim, x.dtype)).name if _ints(x) else False


def _ints(x: LineValue) -> bool:
    return x.dtype in ("i32", "i64")


def positions_along(e: Lines, shape: Sequence[int], dim: int, dtype: str) -> LineValue:
    """Return the position of each element along a dimension."""
    own = positions(e, shape[dim], dtype)
    return e.expand(e.view(own, [n if d == dim else 1 for d, n in enumerate(shape)]), shape)


@jax_row("top_k", "approx_top_k")
def _top_k(
    e: Lines, node: ModelNode, x: LineValue, *, k: int, axis: int = -1, **_: object
) -> tuple[LineValue, ...]:
    x, dim = e.whole(x), axis % len(x.shape)
    shape = shape_of(node)
    best = e.step(f"top_k %{x.name} k {k} dim {dim}", shape, x.dtype, "best")
    places = e.step(f"top_k_indices %{x.name} k {k} dim {dim}", shape, "i32", "places")
    wanted = node.results[1]
    return best, e.cast(places, wanted.dtype if wanted else "i32")


# --- products -------------------------------------------------------------------------------------


@jax_row("dot_general")
def _dot(
    e: Lines, node: ModelNode, x: LineValue, y: LineValue, *, dimension_numbers: Any, **_: object
) -> LineValue:
    """An einsum in the dtype of the operands; a wider result is cast."""
    (left_sums, right_sums), (left_batch, right_batch) = dimension_numbers
    letters = iter(ascii_letters)
    left = [next(letters) for _ in x.shape]
    right = [next(letters) for _ in y.shape]
    for a, b in (
        *zip(left_sums, right_sums, strict=True),
        *zip(left_batch, right_batch, strict=True),
    ):
        right[b] = left[a]
    result: list[str] = [left[d] for d in left_batch]
    result += [c for d, c in enumerate(left) if d not in left_batch and d not in left_sums]
    result += [c for d, c in enumerate(right) if d not in right_batch and d not in right_sums]
    made = e.einsum(f"{''.join(left)},{''.join(right)}->{''.join(result)}", x, e.cast(y, x.dtype))
    return e.cast(made, dtype_of(node))


@jax_row("ragged_dot", "ragged_dot_general")
def _ragged(
    e: Lines, node: ModelNode, x: LineValue, y: LineValue, sizes: LineValue, **_: object
) -> LineValue:
    """The product of each row with the matrix of its group; groups are neighbours."""
    if len(x.shape) != 2 or len(y.shape) != 3 or shape_of(node) != (x.shape[0], y.shape[2]):
        raise NotHere("of other forms than rows by matrices")
    whole = e.whole(e.cast(sizes, "i32"))
    ends = e.step(f"cumsum %{whole.name} dim 0", whole.shape, "i32")
    rows = e.view(positions(e, x.shape[0], "i32"), (x.shape[0], 1))
    behind = e.map("greater_equal {}", rows, ends, dtype="bool")
    group = e.reduce("sum", e.cast(behind, "i32"), [1])
    x, y, group = e.whole(x), e.whole(e.cast(y, x.dtype)), e.whole(group)
    text = f"grouped_matmul %{x.name}, %{y.name}, %{group.name}"
    return e.cast(e.step(text, shape_of(node), x.dtype), dtype_of(node))


@jax_row("conv_general_dilated")
def _conv(
    e: Lines, node: ModelNode, x: LineValue, w: LineValue, *, dimension_numbers: Any,
    window_strides: Sequence[int], padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int], rhs_dilation: Sequence[int], feature_group_count: int = 1,
    batch_group_count: int = 1, **_: object,
) -> LineValue:  # fmt: skip
    """Images with channels last; what dilates them stands apart, with zeros between."""
    if batch_group_count != 1:
        raise NotHere("with groups of the batch")
    batch, channels, *sides = dimension_numbers.lhs_spec
    features, inputs, *places = dimension_numbers.rhs_spec
    image = e.transpose(e.whole(x), [batch, *sides, channels])
    filters = e.transpose(e.whole(e.cast(w, x.dtype)), [*places, inputs, features])
    pads: list[int] = []
    for side, (low, high) in enumerate(padding):
        image = spread(e, image, side + 1, lhs_dilation[side])
        filters = spread(e, filters, side, rhs_dilation[side])
        window = filters.shape[side]
        if low == high and 0 <= low < window:
            pads.append(low)
            continue
        image = e.pad(image, side + 1, min(low, 0), min(high, 0))
        image = e.pad(image, side + 1, max(low, 0), max(high, 0))
        pads.append(0)
    y = grouped_conv(e, image, filters, list(window_strides), pads, feature_group_count)
    first, last, *out = dimension_numbers.out_spec
    order = [first, *out, last]
    return e.cast(e.transpose(y, [order.index(d) for d in range(len(order))]), dtype_of(node))


# --- windows --------------------------------------------------------------------------------------


def _windowed(window: Sequence[int], strides: Sequence[int]) -> list[int]:
    return [d for d, (n, s) in enumerate(zip(window, strides, strict=True)) if n != 1 or s != 1]


def _as_images(e: Lines, x: LineValue, sides: Sequence[int]) -> tuple[LineValue, list[int]]:
    """Return a value with a batch, the dimensions of windows, and channels; and their order."""
    others = [d for d in range(len(x.shape)) if d not in sides]
    channels = [others[-1]] if others and others[-1] == len(x.shape) - 1 else []
    outer = [d for d in others if d not in channels]
    order = [*outer, *sides, *channels]
    made = e.transpose(e.whole(x), order)
    front, inner = math.prod(x.shape[d] for d in outer), math.prod(x.shape[d] for d in channels)
    return e.view(made, (front, *(x.shape[d] for d in sides), inner)), order


def _from_images(e: Lines, y: LineValue, order: Sequence[int], shape: Sequence[int]) -> LineValue:
    made = e.view(y, [shape[d] for d in order])
    return e.transpose(made, [order.index(d) for d in range(len(order))])


@jax_row("reduce_window_max", "reduce_window_sum", "reduce_window_min")
def _pool(
    e: Lines, node: ModelNode, x: LineValue, *, window_dimensions: Sequence[int],
    window_strides: Sequence[int], padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int] = (), window_dilation: Sequence[int] = (), **_: object,
) -> LineValue:  # fmt: skip
    if {*base_dilation, *window_dilation} - {1}:
        raise NotHere("with dilation")
    kind, shape = node.op.rpartition("_")[2], shape_of(node)
    if kind == "min":
        x = e.map("neg {}", x)
    sides = _windowed(window_dimensions, window_strides)
    if not sides:
        return x
    images, order = _as_images(e, x, sides)
    images, pads = _padded(e, images, [padding[d] for d in sides],
                           [window_dimensions[d] for d in sides],
                           0 if kind == "sum" else -math.inf)  # fmt: skip
    window = [window_dimensions[d] for d in sides]
    lists = f"window {window} stride {[window_strides[d] for d in sides]} padding {pads}"
    sizes = (images.shape[0], *(shape[d] for d in sides), images.shape[-1])
    op = "avg_pool" if kind == "sum" else "max_pool"
    y = e.step(f"{op} %{images.name} {lists}", sizes, x.dtype)
    y = e.scale(y, math.prod(window)) if kind == "sum" else y
    made = _from_images(e, y, order, shape)
    return e.map("neg {}", made) if kind == "min" else made


def _padded(
    e: Lines, x: LineValue, padding: Sequence[tuple[int, int]], window: Sequence[int], value: float
) -> tuple[LineValue, list[int]]:
    """Return images with the padding that a pool cannot do itself, and the padding that it can."""
    pads: list[int] = []
    for side, (low, high) in enumerate(padding):
        if low == high and low < window[side]:
            pads.append(low)
        else:
            x = e.pad(x, side + 1, low, high, value)
            pads.append(0)
    return x, pads


@jax_row("select_and_scatter_add")
def _pool_gradient(
    e: Lines, node: ModelNode, g: LineValue, x: LineValue, *, window_dimensions: Sequence[int],
    window_strides: Sequence[int], padding: Sequence[tuple[int, int]], **_: object,
) -> LineValue:  # fmt: skip
    """The gradient of the largest elements of windows."""
    sides = _windowed(window_dimensions, window_strides)
    images, order = _as_images(e, x, sides)
    given, _same = _as_images(e, g, sides)
    window = [window_dimensions[d] for d in sides]
    own = [padding[d] for d in sides]
    wide, pads = _padded(e, images, own, window, -math.inf)
    lists = f"window {window} stride {[window_strides[d] for d in sides]} padding {pads}"
    y = e.step(f"max_pool_transpose %{given.name}, %{wide.name} {lists}", wide.shape, x.dtype)
    for side, (low, high) in enumerate(own):
        if wide.shape[side + 1] != images.shape[side + 1]:
            y = e.pad(y, side + 1, -low, -high)
    return _from_images(e, y, order, shape_of(node))
