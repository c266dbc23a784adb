"""Elements that are chosen by numbers: tables, routes, sorted values."""

import math
from collections.abc import Sequence

from collir.importing.models.graph import ModelNode
from collir.importing.models.lines import Lines, LineValue, type_text
from collir.importing.models.rows.table import NotHere, Number, dims_of, row, shape_of


@row("embedding")
def _embedding(
    e: Lines, node: ModelNode, table: LineValue, places: LineValue, padding: int = -1, *_: object
) -> LineValue:
    x = take(e, table, places, 0)
    if padding < 0:
        return x
    # No gradient goes to the row of the padding.
    kept = e.map("not_equal {}", places, e.number(padding, places.dtype), dtype="bool")
    fixed = e.map("stop_gradient {}", x)
    return e.map("where {}", e.view(kept, (*kept.shape, 1)), x, fixed)


def take(e: Lines, table: LineValue, places: LineValue, dim: int) -> LineValue:
    """Return the slices of a dimension at places, whose dimensions take its place."""
    table, places = e.whole(table), e.whole(places)
    shape = (*table.shape[:dim], *places.shape, *table.shape[dim + 1 :])
    return e.step(f"take %{table.name}, %{places.name} dim {dim}", shape, table.dtype)


@row("index_select")
def _index_select(
    e: Lines, node: ModelNode, x: LineValue, dim: int, places: LineValue
) -> LineValue:
    return take(e, x, places, dims_of(x, dim)[0])


@row("index.Tensor", "_unsafe_index.Tensor")
def _index(
    e: Lines, node: ModelNode, x: LineValue, places: Sequence[LineValue | None]
) -> LineValue:
    """Neighbouring dimensions at places: their places as numbers in all of them."""
    dims = [d for d, place in enumerate(places) if place is not None]
    listed = [place for place in places if place is not None]
    if any(place.dtype == "bool" for place in listed):
        raise NotHere("by truth values: the size depends on data")
    if dims != list(range(dims[0], dims[0] + len(dims))):  # they come first then
        x = e.transpose(x, [*dims, *(d for d in range(len(x.shape)) if d not in dims)])
        dims = list(range(len(dims)))
    number, sizes = _numbered(e, x, dims, listed)
    rest = x.shape[dims[-1] + 1 :]
    table = e.view(e.whole(x), (*x.shape[: dims[0]], math.prod(sizes), *rest))
    return take(e, table, number, dims[0])


def _numbered(
    e: Lines, x: LineValue, dims: Sequence[int], places: Sequence[LineValue]
) -> tuple[LineValue, list[int]]:
    """Return places in neighbouring dimensions as numbers in all of them, and their sizes."""
    sizes = [x.shape[d] for d in dims]
    number: LineValue | None = None
    for size, place in zip(sizes, places, strict=True):
        place = _from_start(e, place, size)
        number = place if number is None else e.map("add {}", e.scale(number, size), place)
    assert number is not None
    return number, sizes


@row("index_put", "_unsafe_index_put")
def _index_put(
    e: Lines, node: ModelNode, x: LineValue, places: Sequence[LineValue | None], values: LineValue,
    accumulate: bool = False, *_: object,
) -> LineValue:  # fmt: skip
    """Values at places of the first dimensions; those of one place are added."""
    listed = [place for place in places if place is not None]
    if len(listed) == 1 and listed[0].dtype == "bool":
        return _put_where(e, x, places, listed[0], values, accumulate)
    order = [d for d, place in enumerate(places) if place is not None]
    is_near = order == list(range(order[0], order[0] + len(order)))
    others = [d for d in range(len(x.shape)) if d not in order]
    front = e.transpose(e.whole(x), [*order, *others])
    number, sizes = _numbered(e, front, range(len(order)), listed)
    number = e.whole(number)
    rest = front.shape[len(order) :]
    values = e.cast(values, x.dtype)
    if is_near and order[0]:  # the dimensions of the places stand where those of the values do
        ahead, rank = order[0], len(number.shape)
        whole = (*(x.shape[d] for d in others[:ahead]), *number.shape,
                 *(x.shape[d] for d in others[ahead:]))  # fmt: skip
        values = e.expand(values, whole)
        moved = [*range(ahead, ahead + rank), *range(ahead), *range(ahead + rank, len(whole))]
        values = e.transpose(values, moved)
    values = e.whole(e.expand(values, (*number.shape, *rest)))
    flat = (math.prod(sizes), *rest)
    total = _brought(e, values, number, flat)
    if accumulate:
        made = e.map("add {}", e.view(front, flat), total)
    else:
        ones = e.whole(e.number(1, "f32", (*number.shape, *(1 for _ in rest))))
        named = _brought(e, ones, number, (flat[0], *(1 for _ in rest)))
        is_named = e.map("greater {}", named, e.number(0, "f32"), dtype="bool")
        made = e.map("where {}", is_named, total, e.view(front, flat))
    made = e.view(made, front.shape)
    back = [[*order, *others].index(d) for d in range(len(x.shape))]
    return e.transpose(made, back)


def _brought(e: Lines, values: LineValue, places: LineValue, shape: Sequence[int]) -> LineValue:
    """Return zeros, with values added at places of the first dimension."""
    text = f"take_transpose %{values.name}, %{places.name} dim 0 to"
    return e.step(f"{text} {type_text(shape, values.dtype)}", shape, values.dtype)


def _put_where(
    e: Lines, x: LineValue, places: Sequence[LineValue | None], mask: LineValue, values: LineValue,
    accumulate: bool,
) -> LineValue:  # fmt: skip
    """Return a value with one number where a mask is true."""
    if math.prod(values.shape) != 1 or places[0] is None:
        raise NotHere("of as many values as a mask has")
    rest = len(x.shape) - len(mask.shape)
    mask = e.view(mask, (*mask.shape, *(1 for _ in range(rest))))
    value = e.cast(e.view(values, ()), x.dtype)
    return e.map("where {}", mask, e.map("add {}", x, value) if accumulate else value, x)


@row("masked_scatter")
def _masked_scatter(
    e: Lines, node: ModelNode, x: LineValue, mask: LineValue, source: LineValue
) -> LineValue:
    """Take the next element of a source wherever a mask is true."""
    shape = shape_of(node)
    count = (math.prod(shape),)
    flat = e.view(e.whole(e.expand(mask, shape)), count)
    whole = e.cast(flat, "i64")
    before = e.step(f"cumsum %{whole.name} dim 0", count, "i64")
    at = e.map("sub {}", before, e.number(1, "i64"))
    taken = take(e, e.view(e.whole(source), (math.prod(source.shape),)), at, 0)
    own = e.view(e.whole(e.expand(x, shape)), count)
    return e.view(e.map("where {}", flat, e.cast(taken, x.dtype), own), shape)


@row("scatter_reduce.two")
def _scatter_reduce(
    e: Lines, node: ModelNode, x: LineValue, dim: int, places: LineValue, source: LineValue,
    reduce: str, *,
    include_self: bool = True,
) -> LineValue:  # fmt: skip
    """The least or largest of all that is brought to a place; sums and means by products."""
    [dim] = dims_of(x, dim)
    for d, n in enumerate(places.shape):
        if d != dim and n != x.shape[d]:
            raise NotHere("of fewer elements than there are")
        source = e.cut(source, d, 0, n)
    if reduce not in ("sum", "mean", "amin", "amax"):
        raise NotHere(f"of {reduce}")
    wide = x.dtype if x.is_float else "f64"
    own, brought, places = e.cast(x, wide), e.cast(source, wide), e.whole(places)
    count = _added_along(e, e.whole(e.number(1, wide, places.shape)), places, dim, x.shape)
    is_named = e.map("greater {}", count, e.number(0, wide), dtype="bool")
    if reduce in ("sum", "mean"):
        made = _added_along(e, e.whole(brought), places, dim, x.shape)
        made = e.map("add {}", made, own) if include_self else made
        count = e.map("add {}", count, e.number(1, wide)) if include_self else count
        count = e.map("maximum {}", count, e.number(1, wide))
        made = e.map("div {}", made, count) if reduce == "mean" else made
    else:
        low = e.number(math.inf if reduce == "amin" else -math.inf, wide)
        chosen = one_hot(e, places, x.shape[dim], wide)
        is_own = e.map("greater {}", chosen, e.number(0, wide), dtype="bool")
        brought_own = e.map("where {}", is_own, e.view(brought, (*brought.shape, 1)), low)
        least = e.reduce(reduce[1:], brought_own, [dim])  # the place is the last dimension
        rank = len(x.shape)
        made = e.transpose(least, [*range(dim), rank - 1, *range(dim, rank - 1)])
        if include_self:
            made = e.map(f"{reduce[1:]}imum {{}}", made, own)
    return e.cast(e.map("where {}", is_named, made, own), x.dtype)


def _from_start(e: Lines, place: LineValue, size: int) -> LineValue:
    """Return places, of which negative ones count from the end."""
    below = e.map("less {}", place, e.number(0, place.dtype), dtype="bool")
    later = e.map("add {}", place, e.number(size, place.dtype))
    return e.map("where {}", below, later, place)


@row("one_hot")
def _one_hot(e: Lines, node: ModelNode, x: LineValue, classes: int = -1) -> LineValue:
    return e.cast(one_hot(e, x, shape_of(node)[-1], "f32"), "i64")


def one_hot(e: Lines, x: LineValue, classes: int, dtype: str) -> LineValue:
    """Return 1 where the last dimension has the number of an element, and 0 elsewhere."""
    same = e.map("equal {}", e.view(x, (*x.shape, 1)), e.iota(classes, x.dtype), dtype="bool")
    return e.cast(same, dtype)


@row("gather")
def _gather(
    e: Lines, node: ModelNode, x: LineValue, dim: int, places: LineValue, **_: object
) -> LineValue:
    [dim] = dims_of(x, dim)
    if any(n > m for d, (n, m) in enumerate(zip(places.shape, x.shape, strict=True)) if d != dim):
        raise NotHere("of more elements than there are")
    for d, (n, m) in enumerate(zip(places.shape, x.shape, strict=True)):
        if d != dim and n != m:
            x = e.cut(x, d, 0, n)
    x, places = e.whole(x), e.whole(places)
    return e.step(f"take_along_dim %{x.name}, %{places.name} dim {dim}", places.shape, x.dtype)


@row("scatter.value", "scatter.src", "scatter_add", "index_add", "index_copy")
def _scatter(
    e: Lines,
    node: ModelNode,
    x: LineValue,
    dim: int,
    places: LineValue,
    source: LineValue | Number,
    **_: object,
) -> LineValue:
    """Find of each place whether it is named, and the sum of what is brought there."""
    [dim] = dims_of(x, dim)
    added = node.op in ("scatter_add", "index_add")
    if node.op in ("index_add", "index_copy"):
        places = e.expand(
            e.view(places, [n if d == dim else 1 for d, n in
                            enumerate((*x.shape[:dim], *places.shape, *x.shape[dim + 1 :]))]),
            source.shape if isinstance(source, LineValue) else (),
        )  # fmt: skip
    others = [n for d, n in enumerate(x.shape) if d != dim]
    if [n for d, n in enumerate(places.shape) if d != dim] != others:
        raise NotHere("of fewer elements than there are")
    places = e.whole(places)
    if isinstance(source, LineValue):
        for d, n in enumerate(places.shape):
            source = e.cut(source, d, 0, n) if source.shape[d] != n else source
        total = _added_along(e, e.whole(source), places, dim, x.shape)
    else:
        total = e.number(source, x.dtype)
    if added:
        return e.map("add {}", x, total)
    ones = e.whole(e.number(1, "i32", places.shape))
    named = _added_along(e, ones, places, dim, x.shape)
    is_named = e.map("greater {}", named, e.number(0, "i32"), dtype="bool")
    return e.map("where {}", is_named, total, x)


def _added_along(
    e: Lines, source: LineValue, places: LineValue, dim: int, shape: Sequence[int]
) -> LineValue:
    """Return the sum of what is brought to each place of a dimension, of a value of some shape."""
    to = type_text(shape, source.dtype)
    operands = f"%{source.name}, %{places.name}"
    text = f"take_along_dim_transpose {operands} dim {dim} to {to}"
    return e.step(text, shape, source.dtype)


@row("topk")
def _topk(
    e: Lines, node: ModelNode, x: LineValue, k: int, dim: int = -1, largest: bool = True, *_: object
) -> tuple[LineValue, ...]:
    [dim] = dims_of(x, dim)
    x = e.whole(x if largest else e.map("neg {}", x))
    shape = shape_of(node)
    best = e.step(f"top_k %{x.name} k {k} dim {dim}", shape, x.dtype, "best")
    places = e.step(f"top_k_indices %{x.name} k {k} dim {dim}", shape, "i32", "places")
    return (best if largest else e.map("neg {}", best)), e.cast(places, "i64")


@row("sort", "argsort")
def _sort(
    e: Lines, node: ModelNode, x: LineValue, dim: int = -1, descending: bool = False
) -> LineValue | tuple[LineValue, ...]:
    best, places = _topk(e, node, x, x.shape[dims_of(x, dim)[0]], dim, descending)
    return places if node.op == "argsort" else (best, places)


@row("median.dim", "kthvalue")
def _ranked(
    e: Lines, node: ModelNode, x: LineValue, *args: int, **kwargs: int
) -> tuple[LineValue, ...]:
    """The last of the smallest elements; of two medians the smaller one."""
    given = dict(zip(("k", "dim", "keepdim"), args, strict=False)) | kwargs
    if node.op == "median.dim":
        given = dict(zip(("dim", "keepdim"), args, strict=False)) | kwargs
    [dim] = dims_of(x, given.get("dim", -1))
    k = given.get("k", (x.shape[dim] + 1) // 2)
    x = e.whole(e.map("neg {}", x))
    shape = [k if d == dim else n for d, n in enumerate(x.shape)]
    best = e.step(f"top_k %{x.name} k {k} dim {dim}", shape, x.dtype, "best")
    places = e.step(f"top_k_indices %{x.name} k {k} dim {dim}", shape, "i32", "places")
    best, places = (e.view(e.cut(v, dim, k - 1, 1), shape_of(node)) for v in (best, places))
    return e.map("neg {}", best), e.cast(places, "i64")
