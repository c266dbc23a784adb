"""Products of rows with the matrix of their group, counts, and recurrences."""

import math

from collir.importing.models.graph import ModelNode
from collir.importing.models.lines import Lines, LineValue, type_text
from collir.importing.models.rows.products import matmul
from collir.importing.models.rows.table import NotHere, Number, row


@row("collir.grouped_matmul")
def _grouped_matmul(
    e: Lines, node: ModelNode, x: LineValue, w: LineValue, groups: LineValue, is_turned: bool
) -> LineValue:
    x, w, groups = e.whole(x), e.whole(w), e.whole(groups)
    shape = (*x.shape[:-1], w.shape[1 if is_turned else 2])
    operands = f"%{x.name}, %{w.name}, %{groups.name}"
    text = f"grouped_matmul {operands}{' transposed' * is_turned}"
    return e.step(text, shape, x.dtype, "experts")


@row("_grouped_mm", "transformers.grouped_mm_fallback")
def _of_neighbours(
    e: Lines, node: ModelNode, x: LineValue, w: LineValue, ends: LineValue | None = None,
    bias: LineValue | None = None,
    *_: object, **__: object,
) -> LineValue:  # fmt: skip
    """Rows of a group that are neighbours: its number is how many groups end ahead of a row."""
    if ends is None and len(x.shape) == len(w.shape) == 3:
        return matmul(e, node, x, w)
    if ends is None or bias is not None or (len(x.shape), len(w.shape)) != (2, 3):
        raise NotHere("of other matrices than one for each group of rows, or with a bias")
    row_number = e.view(e.iota(x.shape[0], "i64"), (x.shape[0], 1))
    is_behind = e.map("less_equal {}", e.cast(ends, "i64"), row_number, dtype="bool")
    group = e.reduce("sum", e.cast(is_behind, "i64"), [1])
    return _grouped_matmul(e, node, x, w, group, False)


@row("histc")
def _histc(
    e: Lines, node: ModelNode, x: LineValue, bins: int = 100, min: Number = 0, max: Number = 0
) -> LineValue:
    """Count the elements in each of some ranges of equal width; the last range includes its end."""
    if min == max:
        raise NotHere("between the least and the largest element")
    flat = e.view(e.whole(x), (math.prod(x.shape),))
    wide = flat if flat.dtype == "f64" else e.cast(flat, "f32")
    place = e.map("sub {}", wide, e.number(min, wide.dtype))
    place = e.cast(e.scale(place, bins / (max - min)), "i64")
    at_end = e.map("equal {}", wide, e.number(max, wide.dtype), dtype="bool")
    place = e.map("where {}", at_end, e.number(bins - 1, "i64"), place)
    below = e.map("less {}", wide, e.number(min, wide.dtype), dtype="bool")
    place = e.whole(e.map("where {}", below, e.number(-1, "i64"), place))
    ones = e.whole(e.number(1, x.dtype, flat.shape))
    text = f"take_transpose %{ones.name}, %{place.name} dim 0 to {type_text((bins,), x.dtype)}"
    return e.step(text, (bins,), x.dtype)


@row("collir.linear_scan")
def _linear_scan(e: Lines, node: ModelNode, x: LineValue, factors: LineValue) -> LineValue:
    x, factors = e.whole(x), e.whole(factors)
    return e.step(f"linear_scan %{x.name}, %{factors.name} dim 0", x.shape, x.dtype, "states")
