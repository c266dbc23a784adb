"""Windows of images: pools, patches, and images of another size."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from collir.importing.models.graph import ModelNode
from collir.importing.models.lines import Lines, LineValue
from collir.importing.models.rows.table import NotHere, dtype_of, row, shape_of


def each(x: object, sides: int) -> list[int]:
    """Return a number for each side."""
    numbers: list[int] = list(x) if isinstance(x, list | tuple) else [x]  # pyright: ignore
    return numbers * sides if len(numbers) == 1 else numbers


def sizes_of(
    x: Sequence[int], window: Sequence[int], strides: Sequence[int], pads: Sequence[int]
) -> list[int]:
    """Return the number of windows along each side."""
    return [(n + 2 * p - w) // s + 1 for n, w, s, p in zip(x, window, strides, pads, strict=True)]


# --- pools ----------------------------------------------------------------------------------------


@row("max_pool1d", "max_pool2d", "max_pool3d")
def _max_pool(
    e: Lines, node: ModelNode, x: LineValue, window: object, stride: object = (),
    padding: object = 0,
    dilation: object = 1, ceil_mode: bool = False,
) -> LineValue:  # fmt: skip
    sides = int(node.op[-2])
    windows, pads = each(window, sides), each(padding, sides)
    strides = each(stride, sides) if stride else windows
    if set(each(dilation, sides)) != {1}:
        raise NotHere("with dilation")
    shape = shape_of(node)
    image = _channels_last(e, x, sides)
    more = _missing(image, shape, windows, strides, pads)
    if any(more):
        for side, (pad, last) in enumerate(zip(pads, more, strict=True)):
            image = e.pad(image, side + 1, pad, pad + last, -math.inf)
        pads = [0] * sides
    return _channels_first(e, _pooled(e, "max_pool", image, windows, strides, pads), shape)


@row("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(
    e: Lines, node: ModelNode, x: LineValue, window: object, stride: object = (),
    padding: object = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor: int | None = None,
) -> LineValue:  # fmt: skip
    """Average windows; if they count different numbers of elements, divide by the mean of ones."""
    sides = int(node.op[-2])
    windows, pads = each(window, sides), each(padding, sides)
    strides = each(stride, sides) if stride else windows
    if divisor is not None:
        raise NotHere("with a divisor of its own")
    shape = shape_of(node)
    image = _channels_last(e, x, sides)
    more = _missing(image, shape, windows, strides, pads)
    if not any(more) and (count_include_pad or not any(pads)):
        y = _pooled(e, "avg_pool", image, windows, strides, pads)
        return _channels_first(e, y, shape)
    counted = [n + (2 * p if count_include_pad else 0)
               for n, p in zip(image.shape[1:-1], pads, strict=True)]  # fmt: skip
    ones = e.whole(e.number(1, x.dtype, (1, *counted, 1)))
    for side, (pad, last) in enumerate(zip(pads, more, strict=True)):
        image = e.pad(image, side + 1, pad, pad + last)
        own = 0 if count_include_pad else pad
        ones = e.pad(ones, side + 1, own, own + last)
    total, part = (_pooled(e, "avg_pool", v, windows, strides, [0] * sides) for v in (image, ones))
    return _channels_first(e, e.map("div {}", total, part), shape)


def _missing(
    image: LineValue, shape: Sequence[int], windows: Sequence[int], strides: Sequence[int],
    pads: Sequence[int],
) -> list[int]:  # fmt: skip
    """Return how many elements the last windows need behind the padding of each side."""
    sides = len(windows)
    given = zip(image.shape[1:-1], shape[-sides:], windows, strides, pads, strict=True)
    return [max(0, (m - 1) * s + w - n - 2 * p) for n, m, w, s, p in given]


def _channels_last(e: Lines, x: LineValue, sides: int) -> LineValue:
    """Return images with channels last; images without channels get one."""
    x = e.whole(x)
    x = e.view(x, (1, *x.shape)) if len(x.shape) == sides + 1 else x
    return e.transpose(x, [0, *range(2, sides + 2), 1])


def _channels_first(e: Lines, y: LineValue, shape: Sequence[int]) -> LineValue:
    last = len(y.shape) - 1
    return e.view(e.transpose(y, [0, last, *range(1, last)]), shape)


def _pooled(
    e: Lines, kind: str, x: LineValue, windows: Sequence[int], strides: Sequence[int],
    pads: Sequence[int],
) -> LineValue:  # fmt: skip
    sizes = sizes_of(x.shape[1:-1], windows, strides, pads)
    lists = f"window {list(windows)} stride {list(strides)} padding {list(pads)}"
    return e.step(f"{kind} %{x.name} {lists}", (x.shape[0], *sizes, x.shape[-1]), x.dtype)


@row("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def _adaptive(e: Lines, node: ModelNode, x: LineValue, size: object) -> LineValue:
    """Means of windows; where these differ in size, products with the shares of elements."""
    shape = shape_of(node)
    sides = int(node.op[-2])
    outer = len(shape) - sides
    for side in range(outer, len(shape)):
        n, m = x.shape[side], shape[side]
        if n % m == 0:
            apart = e.view(x, (*x.shape[:side], m, n // m, *x.shape[side + 1 :]))
            x = e.reduce("mean", apart, [side + 1])
        else:
            x = _along(e, x, side, _shares(e, n, m, x.dtype))
    return e.cast(x, dtype_of(node))


def _shares(e: Lines, n: int, m: int, dtype: str) -> LineValue:
    """Return the share that each of m windows has of each of n elements."""
    i, o = _places(e, n, m)
    ahead = e.map("less {}", e.scale(o, n), e.scale(_plus(e, i, 1), m), dtype="bool")
    before = e.map("less {}", e.scale(i, m), e.scale(_plus(e, o, 1), n), dtype="bool")
    inside = e.map("where {}", ahead, before, e.number(0, "bool"))
    inside = e.cast(inside, dtype)
    return e.map("div {}", inside, e.reduce("sum", inside, [1], keep=True))


@row("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_max(e: Lines, node: ModelNode, x: LineValue, size: object) -> tuple[LineValue, ...]:
    shape = shape_of(node)
    sides = int(node.op[-2])
    if any(n % m for n, m in zip(x.shape[-sides:], shape[-sides:], strict=True)):
        raise NotHere("of windows that differ in size")
    windows = [n // m for n, m in zip(x.shape[-sides:], shape[-sides:], strict=True)]
    image = _channels_last(e, x, sides)
    y = _pooled(e, "max_pool", image, windows, windows, [0] * sides)
    return (_channels_first(e, y, shape),)


# --- other sizes ----------------------------------------------------------------------------------


def _places(e: Lines, n: int, m: int) -> tuple[LineValue, LineValue]:
    """Return the numbers of n elements, as a row, and those of m results, as a column."""
    return e.view(e.iota(n), (1, n)), e.view(e.iota(m), (m, 1))


def _plus(e: Lines, x: LineValue, number: float) -> LineValue:
    return e.map("add {}", x, e.number(number, x.dtype))


def _along(e: Lines, x: LineValue, dim: int, matrix: LineValue) -> LineValue:
    """Return a value with a dimension that a matrix makes of one: [new, old]."""
    letters = "abcdefgh"[: len(x.shape)]
    made = letters[:dim] + "z" + letters[dim + 1 :]
    return e.einsum(f"{letters},z{letters[dim]}->{made}", x, e.cast(matrix, x.dtype))


@row(
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
    *("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec"),
)
def _nearest(e: Lines, node: ModelNode, x: LineValue, size: object, *scales: object) -> LineValue:
    shape = shape_of(node)
    for side, scale in enumerate(_scales(scales, len(shape) - 2), 2):
        n, m = x.shape[side], shape[side]
        if m == n:
            continue
        if m % n == 0 and scale in (None, m / n):
            apart = e.view(x, (*x.shape[: side + 1], 1, *x.shape[side + 1 :]))
            wide = e.expand(apart, (*x.shape[: side + 1], m // n, *x.shape[side + 1 :]))
            x = e.view(wide, (*x.shape[:side], m, *x.shape[side + 1 :]))
            continue
        ratio = np.float32(1 / scale if scale else n / m)
        exact = [min(n - 1, o * n // m) for o in range(m)]
        if exact != [min(n - 1, int(np.floor(np.float32(o) * ratio))) for o in range(m)]:
            raise NotHere("to a size whose places torch rounds")
        i, o = _places(e, n, m)
        ahead = e.map("less_equal {}", e.scale(i, m), e.scale(o, n), dtype="bool")
        before = e.map("less {}", e.scale(o, n), e.scale(_plus(e, i, 1), m), dtype="bool")
        chosen = e.map("where {}", ahead, before, e.number(0, "bool"))
        x = _along(e, x, side, e.cast(chosen, x.dtype))
    return x


@row(
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"),
    *("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec"),
)
def _linear(
    e: Lines, node: ModelNode, x: LineValue, size: object, align_corners: bool, *scales: object
) -> LineValue:
    """Products with shares of elements: 1 less the distance, and 0 from a distance of 1 on."""
    shape = shape_of(node)
    wide = "f64" if x.dtype == "f64" else "f32"
    for side, scale in enumerate(_scales(scales, len(shape) - 2), 2):
        n, m = x.shape[side], shape[side]
        if m == n and scale in (None, 1):
            continue
        i, o = (e.cast(v, wide) for v in _places(e, n, m))
        if align_corners:
            at = e.scale(o, (n - 1) / (m - 1)) if m > 1 else e.scale(o, 0)
        else:
            at = _plus(e, e.scale(_plus(e, o, 0.5), 1 / scale if scale else n / m), -0.5)
            at = e.map("maximum {}", at, e.number(0, wide))
            at = e.map("minimum {}", at, e.number(n - 1, wide))
        apart = e.map("sub {}", at, i)
        distance = e.map("maximum {}", apart, e.map("neg {}", apart))
        shares = e.map("relu {}", e.map("sub {}", e.number(1, wide), distance))
        x = _along(e, x, side, shares)
    return x


@row(
    *("_upsample_bilinear2d_aa", "_upsample_bilinear2d_aa.vec"),
    *("_upsample_bicubic2d_aa", "_upsample_bicubic2d_aa.vec"),
)
def _filtered(
    e: Lines, node: ModelNode, x: LineValue, size: object, align_corners: bool, *scales: object
) -> LineValue:
    """Products with shares of all elements that a wider filter reaches."""
    if align_corners:
        raise NotHere("with aligned corners")
    shape = shape_of(node)
    wide = "f64" if x.dtype == "f64" else "f32"
    for side, scale in enumerate(_scales(scales, len(shape) - 2), 2):
        n, m = x.shape[side], shape[side]
        ratio = 1 / scale if scale else n / m
        i, o = (_plus(e, e.cast(v, wide), 0.5) for v in _places(e, n, m))
        apart = e.scale(e.map("sub {}", i, e.scale(o, ratio)), 1 / max(1.0, ratio))
        distance = e.map("maximum {}", apart, e.map("neg {}", apart))
        if "bilinear" in node.op:
            weights = e.map("relu {}", e.map("sub {}", e.number(1, wide), distance))
        else:
            weights = _cubic(e, distance, -0.5)
        total = e.reduce("sum", weights, [1], keep=True)
        x = _along(e, x, side, e.map("div {}", weights, total))
    return x


def _cubic(e: Lines, t: LineValue, a: float) -> LineValue:
    """Return the weights of a cubic filter at some distances."""

    def polynomial(*factors: float) -> LineValue:
        made = e.number(factors[0], t.dtype)
        for factor in factors[1:]:
            made = _plus(e, e.map("mul {}", made, t), factor)
        return made

    near, far = polynomial(a + 2, -(a + 3), 0, 1), polynomial(a, -5 * a, 8 * a, -4 * a)
    is_near, is_far = (
        e.map("less {}", t, e.number(limit, t.dtype), dtype="bool") for limit in (1, 2)
    )
    return e.map("where {}", is_near, near, e.map("where {}", is_far, far, e.number(0, t.dtype)))


def _scales(given: Sequence[Any], sides: int) -> list[float | None]:
    """Return the factor of each side where one is given, of the arguments behind the sizes."""
    numbers: list[Any] = [*given]
    if len(numbers) == 1 and isinstance(numbers[0], list | tuple):
        numbers = list(numbers[0])  # pyright: ignore
    listed = [float(x) if isinstance(x, int | float) else None for x in numbers]
    return [*listed, *[None] * sides][:sides]


# --- patches --------------------------------------------------------------------------------------


@row("im2col")
def _im2col(
    e: Lines, node: ModelNode, x: LineValue, window: list[int], dilation: list[int],
    padding: list[int],
    stride: list[int],
) -> LineValue:  # fmt: skip
    """The elements at each place of the windows, one behind the other."""
    batch, channels = x.shape[:2] if len(x.shape) == 4 else (1, x.shape[0])
    image = e.view(x, (batch, channels, *x.shape[-2:]))
    for side, pad in enumerate(each(padding, 2), 2):
        image = e.pad(image, side, pad, pad)
    windows, dilations, strides = (each(v, 2) for v in (window, dilation, stride))
    whole = [(w - 1) * d + 1 for w, d in zip(windows, dilations, strict=True)]
    counts = sizes_of(image.shape[2:], whole, strides, [0, 0])
    parts: list[LineValue] = []
    for place in np.ndindex(*windows):
        part = image
        for side in (0, 1):
            start = int(place[side]) * dilations[side]
            part = e.strided(part, side + 2, start, strides[side], counts[side])
        parts.append(e.view(part, (batch, channels, 1, math.prod(counts))))
    return e.view(e.concat(parts, 2), shape_of(node))


@row("col2im")
def _col2im(
    e: Lines, node: ModelNode, x: LineValue, size: list[int], window: list[int],
    dilation: list[int],
    padding: list[int], stride: list[int],
) -> LineValue:  # fmt: skip
    """Add the elements of each place of the windows where they stand in the image."""
    shape = shape_of(node)
    windows, dilations, strides, pads = (each(v, 2) for v in (window, dilation, stride, padding))
    whole = [(w - 1) * d + 1 for w, d in zip(windows, dilations, strict=True)]
    counts = sizes_of(shape[-2:], whole, strides, pads)
    batch, channels = shape[:2] if len(shape) == 4 else (1, shape[0])
    apart = e.view(x, (batch, channels, math.prod(windows), *counts))
    if strides == windows and dilations == [1, 1] and pads == [0, 0] and all(
        n == c * s for n, c, s in zip(shape[-2:], counts, strides, strict=True)
    ):  # fmt: skip
        places = e.view(apart, (batch, channels, *windows, *counts))
        return e.view(e.transpose(places, [0, 1, 4, 2, 5, 3]), shape)
    total: LineValue | None = None
    for number, place in enumerate(np.ndindex(*windows)):
        part = e.view(e.cut(apart, 2, number, 1), (batch, channels, *counts))
        for side in (0, 1):
            part = spread(e, part, side + 2, strides[side])
            start = int(place[side]) * dilations[side]
            end = shape[len(shape) - 2 + side] + 2 * pads[side] - start - part.shape[side + 2]
            part = e.pad(part, side + 2, start - pads[side], end - pads[side])
        total = part if total is None else e.map("add {}", total, part)
    assert total is not None
    return e.view(total, shape)


def spread(e: Lines, x: LineValue, dim: int, stride: int) -> LineValue:
    """Return a value with zeros between its elements."""
    if stride == 1:
        return x
    n = x.shape[dim]
    apart = e.view(x, (*x.shape[: dim + 1], 1, *x.shape[dim + 1 :]))
    wide = e.pad(apart, dim + 1, 0, stride - 1)
    return e.cut(e.view(wide, (*x.shape[:dim], n * stride, *x.shape[dim + 1 :])), dim, 0,
                 (n - 1) * stride + 1)  # fmt: skip


@row("unfold")
def _unfold(e: Lines, node: ModelNode, x: LineValue, dim: int, size: int, step: int) -> LineValue:
    """Windows of a dimension, whose elements are a new last one."""
    dim %= len(x.shape)
    count = shape_of(node)[dim]
    if size == step:
        flat = e.cut(x, dim, 0, count * size)
        apart = e.view(flat, (*x.shape[:dim], count, size, *x.shape[dim + 1 :]))
        order = [d for d in range(len(x.shape) + 1) if d != dim + 1]
        return e.transpose(apart, [*order, dim + 1])
    if count <= size:
        cuts = [e.cut(x, dim, at * step, size) for at in range(count)]
        windows = e.concat([e.view(v, (*x.shape[:dim], 1, *v.shape[dim:])) for v in cuts], dim)
        order = [d for d in range(len(x.shape) + 1) if d != dim + 1]
        return e.transpose(windows, [*order, dim + 1])
    parts = [e.strided(x, dim, at, step, count) for at in range(size)]
    return e.concat([e.view(v, (*v.shape, 1)) for v in parts], len(x.shape))
