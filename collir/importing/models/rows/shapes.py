"""Other shapes of the same elements, parts and joins of them."""

import math
from collections.abc import Sequence

from collir.importing.models.graph import ModelNode
from collir.importing.models.lines import Lines, LineValue
from collir.importing.models.rows.table import NotHere, Number, dtype_of, row, shape_of


@row(
    *("view", "reshape", "_unsafe_view", "flatten.using_ints", "reshape_as"),
    *("squeeze", "squeeze.dim", "squeeze.dims", "unsqueeze", "view_as"),
    *("unflatten.int", "ravel", "atleast_1d", "atleast_2d", "atleast_3d"),
)
def _view(e: Lines, node: ModelNode, x: LineValue, *_: object) -> LineValue:
    return e.view(x, shape_of(node))


@row("expand", "expand_as", "broadcast_to")
def _expand(e: Lines, node: ModelNode, x: LineValue, *_: object, **__: object) -> LineValue:
    return e.expand(x, shape_of(node))


@row("broadcast_tensors")
def _broadcast_tensors(
    e: Lines, node: ModelNode, values: Sequence[LineValue]
) -> tuple[LineValue, ...]:
    shapes = [result.shape for result in node.results if result is not None]
    return tuple(e.expand(x, shape) for x, shape in zip(values, shapes, strict=True))


@row("transpose.int")
def _transpose(e: Lines, node: ModelNode, x: LineValue, first: int, second: int) -> LineValue:
    order = list(range(len(x.shape)))
    order[first], order[second] = order[second], order[first]
    return e.transpose(x, order)


@row("permute")
def _permute(e: Lines, node: ModelNode, x: LineValue, order: Sequence[int]) -> LineValue:
    return e.transpose(x, [d % len(x.shape) for d in order])


@row("t", "numpy_T")
def _reverse(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    return e.transpose(x, list(range(len(x.shape)))[::-1])


@row("slice.Tensor")
def _slice(
    e: Lines, node: ModelNode, x: LineValue, dim: int = 0, start: int | None = None,
    end: int | None = None, step: int = 1,
) -> LineValue:  # fmt: skip
    dim %= len(x.shape)
    first, _, _ = slice(start, end).indices(x.shape[dim])
    return e.strided(x, dim, first, step, shape_of(node)[dim])


@row("select.int")
def _select(e: Lines, node: ModelNode, x: LineValue, dim: int, index: int) -> LineValue:
    dim %= len(x.shape)
    return e.view(e.cut(x, dim, index % x.shape[dim], 1), shape_of(node))


@row("narrow")
def _narrow(e: Lines, node: ModelNode, x: LineValue, dim: int, start: int, size: int) -> LineValue:
    return e.cut(x, dim % len(x.shape), start % x.shape[dim], size)


@row("chunk", "split.Tensor", "split_with_sizes", "unbind.int", "split.sizes")
def _parts(
    e: Lines, node: ModelNode, x: LineValue, *args: object, **kwargs: object
) -> tuple[LineValue, ...]:
    last = args[-1] if node.op == "unbind.int" and args else args[1] if len(args) > 1 else 0
    dim = kwargs.get("dim", last)
    assert isinstance(dim, int)
    dim %= len(x.shape)
    parts: list[LineValue] = []
    start = 0
    for result in node.results:
        assert result is not None
        size = 1 if node.op == "unbind.int" else result.shape[dim]
        parts.append(e.view(e.cut(x, dim, start, size), result.shape))
        start += size
    return tuple(parts)


@row("cat", "concat", "concatenate")
def _cat(e: Lines, node: ModelNode, parts: Sequence[LineValue], dim: int = 0) -> LineValue:
    rank = len(shape_of(node))
    some = [x for x in parts if math.prod(x.shape)]
    return e.concat([e.cast(x, dtype_of(node)) for x in some], dim % rank)


@row("stack")
def _stack(e: Lines, node: ModelNode, parts: Sequence[LineValue], dim: int = 0) -> LineValue:
    shape = shape_of(node)
    dim %= len(shape)
    one = (*shape[:dim], 1, *shape[dim + 1 :])
    return e.concat([e.view(x, one) for x in parts], dim)


@row("repeat")
def _repeat(e: Lines, node: ModelNode, x: LineValue, times: Sequence[int]) -> LineValue:
    x = e.view(x, (1,) * (len(times) - len(x.shape)) + x.shape)
    between = [size for own in x.shape for size in (1, own)]
    repeated = [size for n, own in zip(times, x.shape, strict=True) for size in (n, own)]
    return e.view(e.expand(e.view(x, between), repeated), shape_of(node))


@row("repeat_interleave.self_int")
def _interleave(
    e: Lines, node: ModelNode, x: LineValue, times: int, dim: int | None = None, **_: object
) -> LineValue:
    if dim is None:
        x, dim = e.view(x, (math.prod(x.shape),)), 0
    dim %= len(x.shape)
    x = e.view(x, (*x.shape[: dim + 1], 1, *x.shape[dim + 1 :]))
    shape = (*x.shape[: dim + 1], times, *x.shape[dim + 2 :])
    return e.view(e.expand(x, shape), shape_of(node))


@row("pad", "constant_pad_nd")
def _pad(
    e: Lines, node: ModelNode, x: LineValue, amounts: Sequence[int],
    mode: str | Number = "constant",
    value: Number | None = None,
) -> LineValue:  # fmt: skip
    if not isinstance(mode, str):
        mode, value = "constant", mode
    if mode != "constant":
        return _pad_from_own(e, x, amounts, mode)
    for place, (low, high) in enumerate(zip(amounts[::2], amounts[1::2], strict=True)):
        x = e.pad(x, len(x.shape) - 1 - place, low, high, value or 0)
    return x


def _pad_from_own(e: Lines, x: LineValue, amounts: Sequence[int], mode: str) -> LineValue:
    """Return a value with elements of its own added: of the other end, or of this one."""
    for place, (low, high) in enumerate(zip(amounts[::2], amounts[1::2], strict=True)):
        dim = len(x.shape) - 1 - place
        n = x.shape[dim]
        if low < 0 or high < 0 or (mode == "circular" and max(low, high) > n):
            raise NotHere(f"mode {mode} with these amounts")
        if mode == "circular":
            before, after = e.cut(x, dim, n - low, low), e.cut(x, dim, 0, high)
        elif mode == "reflect":
            before = _reversed(e, e.cut(x, dim, 1, low), dim)
            after = _reversed(e, e.cut(x, dim, n - 1 - high, high), dim)
        elif mode == "replicate":
            before, after = (
                e.expand(e.cut(x, dim, at, 1), (*x.shape[:dim], count, *x.shape[dim + 1 :]))
                for at, count in ((0, low), (n - 1, high))
            )
        else:
            raise NotHere(f"mode {mode}")
        parts = [before] * (low > 0) + [x] + [after] * (high > 0)
        x = e.concat(parts, dim)
    return x


@row("roll")
def _roll(
    e: Lines, node: ModelNode, x: LineValue, shifts: Sequence[int], dims: Sequence[int] = ()
) -> LineValue:
    if not dims:
        flat = e.view(x, (math.prod(x.shape),))
        return e.view(_roll(e, node, flat, shifts, [0]), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        dim %= len(x.shape)
        size = x.shape[dim]
        at = -shift % size
        if at:
            parts = [e.cut(x, dim, at, size - at), e.cut(x, dim, 0, at)]
            x = e.concat(parts, dim)
    return x


@row("flip")
def _flip(e: Lines, node: ModelNode, x: LineValue, dims: Sequence[int]) -> LineValue:
    for dim in dims:
        x = _reversed(e, x, dim % len(x.shape))
    return x


def _reversed(e: Lines, x: LineValue, dim: int) -> LineValue:
    """Return a value whose elements along a dimension stand the other way."""
    size = x.shape[dim]
    if size <= _FEW:
        return e.concat([e.cut(x, dim, at, 1) for at in range(size)][::-1], dim) if size else x
    last = e.number(size - 1, "i64")
    at, x = e.map("sub {}", last, e.iota(size)), e.whole(x)
    return e.step(f"take %{x.name}, %{at.name} dim {dim}", x.shape, x.dtype)


_FEW = 32
"""The most elements that are written one by one."""


@row("diagonal")
def _diagonal(
    e: Lines, node: ModelNode, x: LineValue, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> LineValue:
    return diagonal(e, x, offset, dim1, dim2)


def diagonal(e: Lines, x: LineValue, offset: int, dim1: int, dim2: int) -> LineValue:
    """Return a diagonal as a last dimension: a column, in rows that are one longer."""
    rank = len(x.shape)
    rows, columns = dim1 % rank, dim2 % rank
    others = [d for d in range(rank) if d not in (rows, columns)]
    x = e.transpose(e.whole(x), [*others, rows, columns])
    height, width = x.shape[-2:]
    count = min(height, width - offset) if offset >= 0 else min(height + offset, width)
    start = offset if offset >= 0 else -offset * width
    flat = e.view(x, (*x.shape[:-2], height * width))
    return e.strided(flat, rank - 2, start, width + 1, count)


@row("getitem")
def _getitem(e: Lines, node: ModelNode, parts: tuple[LineValue, ...], number: int) -> LineValue:
    if number >= len(parts):
        raise NotHere("of a result that is not made here")
    return parts[number]


# --- numbers --------------------------------------------------------------------------------------


def _full(value: float | None, *names: str) -> None:
    @row(*names)
    def made(e: Lines, node: ModelNode, *args: object, **_: object) -> LineValue:
        result = node.result
        number = args[1] if value is None else value
        if isinstance(number, LineValue):
            return e.expand(e.cast(number, result.dtype), result.shape)
        assert isinstance(number, int | float)
        return e.number(float(number), result.dtype, result.shape)


_full(1, "ones", "ones_like", "new_ones")
_full(0, "zeros", "zeros_like", "new_zeros", "empty_like", "new_empty", "empty.memory_format")
_full(None, "full", "full_like", "fill.Tensor", "fill.Scalar")


@row("new_full")
def _new_full(
    e: Lines, node: ModelNode, _: LineValue, size: Sequence[int], value: Number, **__: object
) -> LineValue:
    result = node.result
    return e.number(float(value), result.dtype, result.shape)


@row("scalar_tensor")
def _scalar(e: Lines, node: ModelNode, value: Number, **_: object) -> LineValue:
    result = node.result
    return e.number(float(value), result.dtype)


@row("arange", "arange.start", "arange.start_step")
def _arange(e: Lines, node: ModelNode, *args: Number, **_: object) -> LineValue:
    result = node.result
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)
    x = e.iota(result.shape[0], result.dtype)
    x = e.scale(x, step)
    return e.map("add {}", x, e.number(start, x.dtype)) if start else x


@row("tril", "triu")
def _triangle(e: Lines, node: ModelNode, x: LineValue, diagonal: int = 0) -> LineValue:
    rows, columns = x.shape[-2:]
    i = e.view(e.iota(rows), (rows, 1))
    below = e.map("sub {}", e.iota(columns), i)
    kind = "less_equal" if node.op == "tril" else "greater_equal"
    seen = e.map(f"{kind} {{}}", below, e.number(diagonal, "i64"), dtype="bool")
    return e.map("where {}", seen, x, e.number(0, x.dtype))


@row("eye", "eye.m")
def _eye(
    e: Lines, node: ModelNode, rows: int, columns: int | None = None, **_: object
) -> LineValue:
    result = node.result
    i = e.view(e.iota(rows), (rows, 1))
    same = e.map("equal {}", e.iota(result.shape[1]), i, dtype="bool")
    return e.cast(same, result.dtype)


@row("copy")
def _copy(e: Lines, node: ModelNode, x: LineValue, y: LineValue, *_: object) -> LineValue:
    return e.expand(e.cast(y, x.dtype), x.shape)


@row("slice_scatter")
def _slice_scatter(
    e: Lines, node: ModelNode, x: LineValue, y: LineValue, dim: int = 0, start: int | None = None,
    end: int | None = None, step: int = 1,
) -> LineValue:  # fmt: skip
    dim %= len(x.shape)
    first, last, _ = slice(start, end).indices(x.shape[dim])
    if step != 1:
        return _with_every(e, x, e.cast(y, x.dtype), dim, first, step)
    parts = [e.cut(x, dim, 0, first)] if first else []
    parts.append(e.cast(y, x.dtype))
    if last < x.shape[dim]:
        parts.append(e.cut(x, dim, last, x.shape[dim] - last))
    return e.concat(parts, dim)


def _with_every(e: Lines, x: LineValue, y: LineValue, dim: int, first: int, step: int) -> LineValue:
    """Return a value with others in some of its places, as many apart each."""
    size = x.shape[dim]
    taken = e.map("sub {}", e.iota(size), e.number(first, "i64"))
    count = y.shape[dim]
    places = e.scale(e.iota(count), step)
    same = e.map("equal {}", e.view(taken, (size, 1)), places, dtype="bool")
    chosen = e.reduce("max", e.cast(same, "i32"), [1])
    shape = [size if d == dim else 1 for d in range(len(x.shape))]
    is_chosen = e.map("greater {}", e.view(chosen, shape), e.number(0, "i32"), dtype="bool")
    apart = e.view(y, (*y.shape[: dim + 1], 1, *y.shape[dim + 1 :]))
    wide = e.pad(apart, dim + 1, 0, step - 1)
    flat = e.view(wide, (*y.shape[:dim], count * step, *y.shape[dim + 1 :]))
    return e.map("where {}", is_chosen, e.pad(flat, dim, first, size - first - count * step), x)


@row("select_scatter")
def _select_scatter(
    e: Lines, node: ModelNode, x: LineValue, y: LineValue, dim: int, index: int
) -> LineValue:
    dim %= len(x.shape)
    index %= x.shape[dim]
    one = (*x.shape[:dim], 1, *x.shape[dim + 1 :])
    return _slice_scatter(e, node, x, e.view(y, one), dim, index, index + 1)


@row("as_strided")
def _refused(e: Lines, node: ModelNode, x: LineValue, *_: object) -> LineValue:
    raise NotHere("which looks at memory")
