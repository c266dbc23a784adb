"""Products of matrices, attention, and convolutions."""

import math
from collections.abc import Sequence
from string import ascii_lowercase

import numpy as np

from collir.importing.models.graph import Node
from collir.importing.models.lines import Lines, Value
from collir.importing.models.rows.table import NotHere, Number, dtype_of, row, shape_of


@row("linear")
def _linear(e: Lines, node: Node, x: Value, w: Value, bias: Value | None = None) -> Value:
    outer = ascii_lowercase[: len(x.shape) - 1]
    y = e.einsum(f"{outer}y,zy->{outer}z", x, w)
    return e.map("add {}", y, bias) if bias else y


@row("matmul", "bmm", "mm", "mv", "dot")
def matmul(e: Lines, node: Node, x: Value, y: Value) -> Value:
    """The product of the last two dimensions, as numpy's ``matmul``."""
    rows, columns = "" if len(x.shape) == 1 else "x", "" if len(y.shape) == 1 else "z"
    rank = max(len(x.shape) - 2, len(y.shape) - 2, 0)
    outer = ascii_lowercase[:rank]
    left = outer[rank - max(0, len(x.shape) - 2) :] if rank else ""
    right = outer[rank - max(0, len(y.shape) - 2) :] if rank else ""
    sizes = dict(zip(right, y.shape, strict=False))
    sizes |= {c: max(n, sizes.get(c, 1)) for c, n in zip(left, x.shape, strict=False)}
    x = e.expand(x, (*(sizes[c] for c in left), *x.shape[len(left) :]))
    y = e.expand(y, (*(sizes[c] for c in right), *y.shape[len(right) :]))
    return e.einsum(f"{left}{rows}y,{right}y{columns}->{outer}{rows}{columns}", x, y)


@row("addmm", "baddbmm")
def _addmm(
    e: Lines, node: Node, c: Value, x: Value, y: Value, beta: Number = 1, alpha: Number = 1
) -> Value:
    product = e.scale(matmul(e, node, x, y), alpha)
    return e.map("add {}", e.scale(c, beta), product) if beta else product


@row("einsum")
def _einsum(
    e: Lines, node: Node, equation: str, values: Sequence[Value], *rest: object, **__: object
) -> Value:
    if "." in equation:
        raise NotHere("with an ellipsis")
    equation = equation.replace(" ", "")
    before, _, after = equation.partition("->")
    if "->" not in equation:
        letters = before.replace(",", "")
        after = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    if any(len(set(term)) < len(term) for term in before.split(",")):
        raise NotHere("with a diagonal")
    return e.einsum(f"{before}->{after}", *values)


@row("outer")
def _outer(e: Lines, node: Node, x: Value, y: Value) -> Value:
    return e.einsum("a,b->ab", x, y)


# --- attention ------------------------------------------------------------------------------------


@row("scaled_dot_product_attention")
def _attention(
    e: Lines, node: Node, query: Value, key: Value, value: Value, attn_mask: Value | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False, window: int = 0,
) -> Value:  # fmt: skip
    """A call of a generic function; heads of queries that share keys are a dimension of their own.

    Args:
        window: how many positions a query sees, its own the last; 0: all up to its own.
    """
    if dropout_p:
        raise NotHere("with dropout")
    q, k, v, mask = query, key, value, attn_mask
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    while len(q.shape) < 4:
        q, k, v = (e.view(x, (1, *x.shape)) for x in (q, k, v))
    if len(q.shape) > 4:
        raise NotHere(f"of {len(q.shape)} dimensions")
    (batch, heads, seq, width), kv, keys = q.shape, k.shape[1], k.shape[2]
    grouped = kv != heads
    if grouped:
        q = e.view(e.whole(q), (batch, kv, heads // kv, seq, width))
    masked = "" if mask is None else "seen" if mask.dtype == "bool" else "biased"
    operands = [e.scale(e.whole(q), scale), e.whole(k), e.whole(v)]
    if mask is not None:
        mask = _at_heads(e, mask, kv if grouped else 0, heads)
        operands.append(mask if masked == "seen" else e.cast(mask, q.dtype))
    name, text = _attention_text(grouped, masked, is_causal, bool(window))
    e.called[name] = text
    names = ", ".join(f"%{x.name}" for x in operands)
    sizes = f"(seq = {seq}, keys = {keys}{f', window = {window}' if window else ''})"
    shape = (*q.shape[:-1], v.shape[-1])
    called = f"call @{name}{sizes if is_causal else ''}({names}) fused"
    return e.view(e.step(called, shape, q.dtype, "mixed"), shape_of(node))


def _at_heads(e: Lines, mask: Value, groups: int, heads: int) -> Value:
    """Return a mask with a dimension for each of a score: batch, head (group and head), query,
    key."""
    mask = e.view(mask, (1,) * (4 - len(mask.shape)) + mask.shape)
    if groups:
        batch, own, *rest = mask.has
        both = (groups, heads // groups) if own == heads else (1, 1)
        mask = e.reshape(mask, (batch, *both, *rest), (mask.shape[0], groups, heads // groups,
                                                      *mask.shape[2:]))  # fmt: skip
    return mask


def _attention_text(grouped: bool, masked: str, causal: bool, window: bool) -> tuple[str, str]:
    """Return an attention as a generic function: its name and its text."""
    parts = ["windowed"] * window + ["causal"] * (causal and not window) + [masked] * bool(masked)
    name = "_".join([*parts, "attention", *["of_groups"] * grouped])
    score = "b g r q k" if grouped else "b a q k"
    query, key = ("b g r q d", "b g k d") if grouped else ("b a q d", "b a k d")
    value = key.replace("d", "e")
    mask = {"": "", "seen": ", %seen: bool[...]", "biased": ", %bias: float[...]"}[masked]
    sizes = f"(seq = 1, keys = 1{', window = 1' if window else ''})" if causal else ""
    lines = [
        f"func @{name}{sizes}(%q: float[...], %k: float[...], %v: float[...]{mask})",
        "    -> float[...] on any {",
        f'  %products = einsum "{query}, {key} -> {score}" %q, %k',
        "  %scores = cast %products to wide",
    ]
    last = "scores"
    if causal or masked == "seen":
        lines.append("  %low = constant value -1e30 to wide[]")
    if causal:
        lines += [
            "  %query = iota dim 0 to i32[seq, keys]",
            "  %key = iota dim 1 to i32[seq, keys]",
            "  %up_to = less_equal %key, %query",
            "  %before = where %up_to, %scores, %low",
        ]
        last = "before"
    if window:
        lines += [
            "  %size = constant value window to i32[]",
            "  %begin = sub %query, %size",
            "  %near = greater %key, %begin",
            "  %recent = where %near, %before, %low",
        ]
        last = "recent"
    if masked == "seen":
        lines.append(f"  %masked = where %seen, %{last}, %low")
        last = "masked"
    if masked == "biased":
        lines += ["  %wide_bias = cast %bias to wide", f"  %masked = add %{last}, %wide_bias"]
        last = "masked"
    lines += [
        f"  %weights = softmax %{last} dims [{4 if grouped else 3}]",
        "  %shares = cast %weights to float",
        f'  %y = einsum "{score}, {value} -> {query.replace("d", "e")}" %shares, %v',
        "  return %y",
        "}",
    ]
    return name, "\n".join(lines)


# --- convolutions ---------------------------------------------------------------------------------


@row("conv1d", "conv2d", "conv3d", "convolution", "conv2d.padding", "conv1d.padding")
def _conv(
    e: Lines, node: Node, x: Value, w: Value, bias: Value | None = None, stride: object = 1,
    padding: object = 0, dilation: object = 1, *rest: object,
) -> Value:  # fmt: skip
    """Channels go last, as ``conv`` has them; groups are products of their own."""
    if node.op == "convolution":
        groups = rest[2]
        if rest[0]:
            raise NotHere("transposed")
    else:
        groups = rest[0] if rest else 1
    assert isinstance(groups, int)
    sides = len(x.shape) - 2
    strides, dilations = _each(stride, sides), _each(dilation, sides)
    if padding in ("same", "valid"):
        kernel = [(n - 1) * d for n, d in zip(w.shape[2:], dilations, strict=True)]
        amounts = [(0, 0) if padding == "valid" else (n // 2, n - n // 2) for n in kernel]
    else:
        amounts = [(n, n) for n in _each(padding, sides)]
    order = [0, *range(2, sides + 2), 1]
    image = e.transpose(e.whole(x), order)
    for side, (low, high) in enumerate(amounts):
        if low != high or low >= w.shape[2 + side]:
            image, amounts[side] = e.pad(image, side + 1, low, high), (0, 0)
    filters = e.transpose(e.whole(w), [*range(2, sides + 2), 1, 0])
    for side, d in enumerate(dilations):  # zeros in between
        if d > 1:
            n = filters.shape[side]
            split = e.view(filters, (*filters.shape[: side + 1], 1, *filters.shape[side + 1 :]))
            wide = e.pad(split, side + 1, 0, d - 1)
            flat = e.view(wide, (*filters.shape[:side], n * d, *filters.shape[side + 1 :]))
            filters = e.cut(flat, side, 0, (n - 1) * d + 1)
    pads = [low for low, _ in amounts]
    if groups > 1 and groups == x.shape[1] == w.shape[0]:
        y = _depthwise(e, image, filters, strides, pads)
    else:
        y = _grouped(e, image, filters, strides, pads, groups)
    if bias:
        y = e.map("add {}", y, bias)
    return e.transpose(y, [0, sides + 1, *range(1, sides + 1)])


def _each(x: object, sides: int) -> list[int]:
    numbers: list[int] = list(x) if isinstance(x, list | tuple) else [x]  # pyright: ignore
    return numbers * sides if len(numbers) == 1 else numbers


def _sizes(
    x: Sequence[int], window: Sequence[int], strides: Sequence[int], pads: Sequence[int]
) -> list[int]:
    return [(n + 2 * p - w) // s + 1 for n, w, s, p in zip(x, window, strides, pads, strict=True)]


def _one_conv(e: Lines, x: Value, w: Value, strides: Sequence[int], pads: Sequence[int]) -> Value:
    sizes = _sizes(x.shape[1:-1], w.shape[:-2], strides, pads)
    lists = f"stride {list(strides)} padding {list(pads)}"
    shape = (x.shape[0], *sizes, w.shape[-1])
    return e.step(f"conv %{x.name}, %{w.name} {lists}", shape, x.dtype)


def _grouped(
    e: Lines, x: Value, w: Value, strides: Sequence[int], pads: Sequence[int], groups: int
) -> Value:
    channels, features = x.shape[-1] // groups, w.shape[-1] // groups
    last = len(x.shape) - 1
    parts = [
        _one_conv(
            e,
            e.cut(x, last, g * channels, channels),
            e.cut(w, last, g * features, features),
            strides,
            pads,
        )
        for g in range(groups)
    ]
    return e.concat(parts, last)


def _depthwise(e: Lines, x: Value, w: Value, strides: Sequence[int], pads: Sequence[int]) -> Value:
    """A sum over the places of the window, of shifted images times a weight for each channel."""
    for side, p in enumerate(pads):
        x = e.pad(x, side + 1, p, p)
    window = w.shape[:-2]
    sizes = _sizes(x.shape[1:-1], window, strides, [0] * len(window))
    total: Value | None = None
    for place in range(math.prod(window)):
        at = np.unravel_index(place, window)
        part, weight = x, w
        for side, (start, stride, size) in enumerate(
            zip(map(int, at), strides, sizes, strict=True)
        ):
            part = e.strided(part, side + 1, start, stride, size)
            weight = e.cut(weight, side, start, 1)
        product = e.map("mul {}", part, e.view(weight, (w.shape[-1],)))
        total = product if total is None else e.map("add {}", total, product)
    assert total is not None
    return total


@row("max_pool2d", "avg_pool2d", "max_pool1d", "avg_pool1d")
def _pool(
    e: Lines, node: Node, x: Value, window: object, stride: object = (), padding: object = 0,
    *rest: object,
) -> Value:  # fmt: skip
    sides = len(x.shape) - 2
    windows, pads = _each(window, sides), _each(padding, sides)
    strides = _each(stride, sides) if stride else windows
    kind = "max_pool" if node.op.startswith("max") else "avg_pool"
    flags = [n for n in rest if isinstance(n, bool)]
    if (
        kind == "max_pool" and any(n not in (1, False) for n in rest if not isinstance(n, list))
    ) or (kind == "avg_pool" and flags and flags[0]):
        raise NotHere("with dilation or ceil_mode")
    if kind == "avg_pool" and any(n is not None and not isinstance(n, bool) for n in rest):
        raise NotHere("with a divisor of its own")
    if kind == "avg_pool" and any(pads) and len(flags) > 1 and not flags[1]:
        raise NotHere("that does not count its padding")
    image = e.transpose(e.whole(x), [0, *range(2, sides + 2), 1])
    sizes = _sizes(x.shape[2:], windows, strides, pads)
    text = f"{kind} %{image.name} window {windows} stride {strides} padding {pads}"
    y = e.step(text, (x.shape[0], *sizes, x.shape[1]), x.dtype)
    return e.transpose(y, [0, sides + 1, *range(1, sides + 1)])


@row("adaptive_avg_pool2d", "adaptive_avg_pool1d")
def _adaptive(e: Lines, node: Node, x: Value, size: object) -> Value:
    shape = shape_of(node)
    sides = shape[2:]
    if any(n % m for n, m in zip(x.shape[2:], sides, strict=True)):
        raise NotHere("of windows that differ in size")
    split = [n for own, m in zip(x.shape[2:], sides, strict=True) for n in (m, own // m)]
    apart = e.view(x, (*x.shape[:2], *split))
    y = e.reduce("mean", apart, [3 + 2 * side for side in range(len(sides))])
    return e.cast(e.view(y, shape), dtype_of(node))
