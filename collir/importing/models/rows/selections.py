"""Elements that are chosen by numbers: tables, routes, sorted values."""

import math
from collections.abc import Sequence

from collir.importing.models.graph import Node
from collir.importing.models.lines import Lines, Value
from collir.importing.models.rows.table import NotHere, Number, dims_of, row, shape_of


@row("embedding")
def _embedding(
    e: Lines, node: Node, table: Value, places: Value, padding: int = -1, *_: object
) -> Value:
    x = take(e, table, places, 0)
    if padding < 0:
        return x
    # No gradient goes to the row of the padding.
    kept = e.map("not_equal {}", places, e.number(padding, places.dtype), dtype="bool")
    fixed = e.map("stop_gradient {}", x)
    return e.map("where {}", e.view(kept, (*kept.shape, 1)), x, fixed)


def take(e: Lines, table: Value, places: Value, dim: int) -> Value:
    """Return the slices of a dimension at places, whose dimensions take its place."""
    table, places = e.whole(table), e.whole(places)
    shape = (*table.shape[:dim], *places.shape, *table.shape[dim + 1 :])
    return e.step(f"take %{table.name}, %{places.name} dim {dim}", shape, table.dtype)


@row("index_select")
def _index_select(e: Lines, node: Node, x: Value, dim: int, places: Value) -> Value:
    return take(e, x, places, dims_of(x, dim)[0])


@row("index.Tensor")
def _index(e: Lines, node: Node, x: Value, places: Sequence[Value | None]) -> Value:
    """Neighbouring dimensions at places: their places as numbers in all of them."""
    dims = [d for d, place in enumerate(places) if place is not None]
    listed = [place for place in places if place is not None]
    if any(place.dtype == "bool" for place in listed):
        raise NotHere("by truth values: the size depends on data")
    if dims != list(range(dims[0], dims[0] + len(dims))):
        raise NotHere("of dimensions that are not neighbours")
    sizes = [x.shape[d] for d in dims]
    number: Value | None = None
    for size, place in zip(sizes, listed, strict=True):
        place = _from_start(e, place, size)
        number = place if number is None else e.map("add {}", e.scale(number, size), place)
    assert number is not None
    rest = x.shape[dims[-1] + 1 :]
    table = e.view(e.whole(x), (*x.shape[: dims[0]], math.prod(sizes), *rest))
    return take(e, table, number, dims[0])


def _from_start(e: Lines, place: Value, size: int) -> Value:
    """Return places, of which negative ones count from the end."""
    below = e.map("less {}", place, e.number(0, place.dtype), dtype="bool")
    later = e.map("add {}", place, e.number(size, place.dtype))
    return e.map("where {}", below, later, place)


@row("one_hot")
def _one_hot(e: Lines, node: Node, x: Value, classes: int = -1) -> Value:
    return e.cast(one_hot(e, x, shape_of(node)[-1], "f32"), "i64")


def one_hot(e: Lines, x: Value, classes: int, dtype: str) -> Value:
    """Return 1 where the last dimension has the number of an element, and 0 elsewhere."""
    same = e.map("equal {}", e.view(x, (*x.shape, 1)), e.iota(classes, x.dtype), dtype="bool")
    return e.cast(same, dtype)


@row("gather")
def _gather(e: Lines, node: Node, x: Value, dim: int, places: Value, **_: object) -> Value:
    """A sum over the dimension: of an element for each place, and zeros."""
    [dim] = dims_of(x, dim)
    if any(n > m for d, (n, m) in enumerate(zip(places.shape, x.shape, strict=True)) if d != dim):
        raise NotHere("of more elements than there are")
    for d, (n, m) in enumerate(zip(places.shape, x.shape, strict=True)):
        if d != dim and n != m:
            x = e.cut(x, d, 0, n)
    floats = x if x.is_float else e.cast(x, "f64")
    chosen = one_hot(e, places, x.shape[dim], floats.dtype)
    letters = "abcdefgh"[: len(x.shape)]
    other = letters[:dim] + "z" + letters[dim + 1 :]
    y = e.einsum(f"{letters}z,{other}->{letters}", chosen, floats)
    return e.cast(y, x.dtype)


@row("scatter.value", "scatter.src", "scatter_add", "index_add")
def _scatter(
    e: Lines, node: Node, x: Value, dim: int, places: Value, source: Value | Number, **_: object
) -> Value:
    """Find of each place whether it is named, and the sum of what is brought there."""
    [dim] = dims_of(x, dim)
    added = node.op in ("scatter_add", "index_add")
    if node.op == "index_add":
        places = e.expand(
            e.view(places, [n if d == dim else 1 for d, n in
                            enumerate((*x.shape[:dim], *places.shape, *x.shape[dim + 1 :]))]),
            source.shape if isinstance(source, Value) else (),
        )  # fmt: skip
    others = [n for d, n in enumerate(x.shape) if d != dim]
    if [n for d, n in enumerate(places.shape) if d != dim] != others:
        raise NotHere("of fewer elements than there are")
    dtype = x.dtype if x.is_float else "f64"
    chosen = one_hot(e, places, x.shape[dim], dtype)
    letters = "abcdefgh"[: len(x.shape)]
    there = letters[:dim] + "z" + letters[dim + 1 :]
    brought = e.cast(source, dtype) if isinstance(source, Value) else e.number(source, dtype)
    if isinstance(source, Value):
        for d, n in enumerate(places.shape):
            if source.shape[d] != n:
                brought = e.cut(brought, d, 0, n)
        total = e.einsum(f"{letters}z,{letters}->{there}", chosen, brought)
    else:
        total = brought
    if added:
        return e.map("add {}", x, e.cast(total, x.dtype))
    named = e.einsum(f"{letters}z->{there}", chosen)
    is_named = e.map("greater {}", named, e.number(0, dtype), dtype="bool")
    return e.map("where {}", is_named, e.cast(total, x.dtype), x)


@row("topk")
def _topk(
    e: Lines, node: Node, x: Value, k: int, dim: int = -1, largest: bool = True, *_: object
) -> tuple[Value, ...]:
    [dim] = dims_of(x, dim)
    x = e.whole(x if largest else e.map("neg {}", x))
    shape = shape_of(node)
    best = e.step(f"top_k %{x.name} k {k} dim {dim}", shape, x.dtype, "best")
    places = e.step(f"top_k_indices %{x.name} k {k} dim {dim}", shape, "i32", "places")
    return (best if largest else e.map("neg {}", best)), e.cast(places, "i64")


@row("sort", "argsort")
def _sort(
    e: Lines, node: Node, x: Value, dim: int = -1, descending: bool = False
) -> Value | tuple[Value, ...]:
    best, places = _topk(e, node, x, x.shape[dims_of(x, dim)[0]], dim, descending)
    return places if node.op == "argsort" else (best, places)
