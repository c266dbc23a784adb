"""Products of matrices, attention, and convolutions."""

import math
from collections.abc import Sequence
from string import ascii_lowercase

import numpy as np

from collir.importing.models.graph import ModelNode
from collir.importing.models.lines import Lines, LineValue, type_text
from collir.importing.models.rows.shapes import diagonal
from collir.importing.models.rows.table import NotHere, Number, row, shape_of
from collir.importing.models.rows.windows import each, sizes_of, spread


@row("linear")
def _linear(
    e: Lines, node: ModelNode, x: LineValue, w: LineValue, bias: LineValue | None = None
) -> LineValue:
    if x.dtype != w.dtype:
        raise NotHere(f"of {x.dtype} by {w.dtype}")
    outer = ascii_lowercase[: len(x.shape) - 1]
    y = e.einsum(f"{outer}y,zy->{outer}z", x, w)
    return e.map("add {}", y, bias) if bias else y


@row("matmul", "bmm", "mm", "mv", "dot")
def matmul(e: Lines, node: ModelNode, x: LineValue, y: LineValue) -> LineValue:
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


@row("addmm", "baddbmm", "addmv", "addbmm")
def _addmm(
    e: Lines,
    node: ModelNode,
    c: LineValue,
    x: LineValue,
    y: LineValue,
    beta: Number = 1,
    alpha: Number = 1,
) -> LineValue:
    product = matmul(e, node, x, y)
    if node.op == "addbmm":
        product = e.reduce("sum", product, [0])
    product = e.scale(product, alpha)
    return e.map("add {}", e.scale(c, beta), product) if beta else product


@row("einsum")
def _einsum(
    e: Lines,
    node: ModelNode,
    equation: str,
    values: Sequence[LineValue],
    *rest: object,
    **__: object,
) -> LineValue:
    equation = _without_ellipsis(equation.replace(" ", ""), [len(x.shape) for x in values])
    before, _, after = equation.partition("->")
    if "->" not in equation:
        letters = before.replace(",", "")
        after = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    terms = before.split(",")
    for number, term in enumerate(terms):
        terms[number], values = _without_diagonals(e, term, values, number)
    return e.einsum(f"{','.join(terms)}->{after}", *values)


def _without_diagonals(
    e: Lines, term: str, values: Sequence[LineValue], number: int
) -> tuple[str, list[LineValue]]:
    """Return a term without repeated indices, and values with one replaced by its diagonal."""
    made = list(values)
    for letter in sorted({c for c in term if term.count(c) > 1}):
        while term.count(letter) > 1:
            first, second = term.index(letter), term.rindex(letter)
            made[number] = diagonal(e, made[number], 0, first, second)
            term = "".join(c for d, c in enumerate(term) if d not in (first, second)) + letter
    return term, made


def _without_ellipsis(equation: str, ranks: Sequence[int]) -> str:
    """Return an equation with letters for the dimensions that stand in front of the others."""
    if "..." not in equation:
        return equation
    before, arrow, after = equation.partition("->")
    free = [c for c in "ABCDEFGH" if c not in equation]
    terms = before.split(",")
    counts = [rank - len(term) + 3 for term, rank in zip(terms, ranks, strict=True)]
    most = max(n for n, term in zip(counts, terms, strict=True) if "..." in term)
    outer = free[:most]
    made = [term.replace("...", "".join(outer[most - n :] if n else ""))
            for n, term in zip(counts, terms, strict=True)]  # fmt: skip
    if not arrow:
        letters = before.replace("...", "").replace(",", "")
        after = "..." + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    return f"{','.join(made)}->{after.replace('...', ''.join(outer))}"


@row("_trilinear")
def _trilinear(
    e: Lines,
    node: ModelNode,
    x: LineValue,
    y: LineValue,
    z: LineValue,
    *lists: Sequence[int],
    **_: object,
) -> LineValue:
    """The sum of products of three values, each with dimensions of 1 at some places."""
    shapes = [list(v.shape) for v in (x, y, z)]
    for own, added in zip(shapes, lists, strict=False):
        for d in sorted(added):
            own.insert(d, 1)
    made = [e.view(v, own) for v, own in zip((x, y, z), shapes, strict=True)]
    rank = len(shapes[0])
    letters = ascii_lowercase[:rank]
    after = "".join(c for d, c in enumerate(letters) if d not in lists[3])
    sizes = [max(own[d] for own in shapes) for d in range(rank)]
    return e.einsum(f"{letters},{letters},{letters}->{after}",
                    *(e.expand(v, sizes) for v in made))  # fmt: skip


@row("outer")
def _outer(e: Lines, node: ModelNode, x: LineValue, y: LineValue) -> LineValue:
    return e.einsum("a,b->ab", x, y)


# --- attention ------------------------------------------------------------------------------------


@row("scaled_dot_product_attention")
def _attention(
    e: Lines, node: ModelNode, query: LineValue, key: LineValue, value: LineValue,
    attn_mask: LineValue | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False, window: int = 0,
) -> LineValue:  # fmt: skip
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
        if mask is not None:
            raise NotHere(f"of {len(q.shape)} dimensions with a mask")
        q, k, v = (e.view(x, (math.prod(x.shape[:-3]), *x.shape[-3:])) for x in (q, k, v))
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


def _at_heads(e: Lines, mask: LineValue, groups: int, heads: int) -> LineValue:
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
    e: Lines, node: ModelNode, x: LineValue, w: LineValue, bias: LineValue | None = None,
    stride: object = 1,
    padding: object = 0, dilation: object = 1, *rest: object,
) -> LineValue:  # fmt: skip
    """Channels go last, as ``conv`` has them; groups are products of their own."""
    groups = rest[0] if rest else 1
    if node.op == "convolution":
        if rest[0]:
            return _transposed(e, node, x, w, bias, stride, padding, dilation, rest[2])
        groups = rest[2]
    assert isinstance(groups, int)
    sides = len(w.shape) - 2
    strides, dilations = each(stride, sides), each(dilation, sides)
    if padding in ("same", "valid"):
        kernel = [(n - 1) * d for n, d in zip(w.shape[2:], dilations, strict=True)]
        amounts = [(0, 0) if padding == "valid" else (n // 2, n - n // 2) for n in kernel]
    else:
        amounts = [(n, n) for n in each(padding, sides)]
    x = e.view(x, (1, *x.shape)) if len(x.shape) == sides + 1 else x
    order = [0, *range(2, sides + 2), 1]
    image = e.transpose(e.whole(x), order)
    for side, (low, high) in enumerate(amounts):
        if low != high or low >= w.shape[2 + side]:
            image, amounts[side] = e.pad(image, side + 1, low, high), (0, 0)
    filters = e.transpose(e.whole(w), [*range(2, sides + 2), 1, 0])
    for side, d in enumerate(dilations):
        filters = spread(e, filters, side, d)
    pads = [low for low, _ in amounts]
    y = grouped_conv(e, image, filters, strides, pads, groups)
    if bias:
        y = e.map("add {}", y, bias)
    return e.view(e.transpose(y, [0, sides + 1, *range(1, sides + 1)]), shape_of(node))


def _transposed(
    e: Lines, node: ModelNode, x: LineValue, w: LineValue, bias: LineValue | None, stride: object,
    padding: object,
    dilation: object, groups: object,
) -> LineValue:  # fmt: skip
    """The gradient of a convolution in its input."""
    shape, sides = shape_of(node), len(w.shape) - 2
    assert isinstance(groups, int)
    strides, pads = each(stride, sides), each(padding, sides)
    x = e.view(x, (1, *x.shape)) if len(x.shape) == sides + 1 else x
    y = e.transpose(e.whole(x), [0, *range(2, sides + 2), 1])
    filters = e.transpose(e.whole(w), [*range(2, sides + 2), 1, 0])
    for side, d in enumerate(each(dilation, sides)):
        filters = spread(e, filters, side, d)
    # Padding of the whole window is cut off behind; what is left may be longer than the windows.
    sizes = [n + 2 * p for n, p in zip(shape[-sides:], pads, strict=True)]
    reached = [(n - 1) * s + k for n, s, k in
               zip(y.shape[1:-1], strides, filters.shape[:-2], strict=True)]  # fmt: skip
    features = w.shape[1]
    full = (x.shape[0], *reached, features)
    lists = f"stride {strides} padding {[0] * sides}"
    parts: list[LineValue] = []
    for g in range(groups):
        own = e.cut(y, sides + 1, g * (x.shape[1] // groups), x.shape[1] // groups)
        own_filters = e.cut(filters, sides + 1, g * (w.shape[0] // groups), w.shape[0] // groups)
        text = f"conv_transpose %{own.name}, %{own_filters.name} {lists}"
        parts.append(e.step(f"{text} to {type_text(full, x.dtype)}", full, x.dtype))
    made = e.concat(parts, sides + 1)
    for side, (n, had, p) in enumerate(zip(sizes, reached, pads, strict=True), 1):
        made = e.pad(made, side, -p, n - had - p)
    made = e.map("add {}", made, bias) if bias else made
    return e.view(e.transpose(made, [0, sides + 1, *range(1, sides + 1)]), shape)


def _one_conv(
    e: Lines, x: LineValue, w: LineValue, strides: Sequence[int], pads: Sequence[int]
) -> LineValue:
    sizes = sizes_of(x.shape[1:-1], w.shape[:-2], strides, pads)
    lists = f"stride {list(strides)} padding {list(pads)}"
    shape = (x.shape[0], *sizes, w.shape[-1])
    return e.step(f"conv %{x.name}, %{w.name} {lists}", shape, x.dtype)


def grouped_conv(
    e: Lines, x: LineValue, w: LineValue, strides: Sequence[int], pads: Sequence[int], groups: int
) -> LineValue:
    """Return a convolution of images with channels last; groups have filters of their own."""
    if groups > 1 and groups == x.shape[-1] == w.shape[-1]:
        return _depthwise(e, x, w, strides, pads)
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


def _depthwise(
    e: Lines, x: LineValue, w: LineValue, strides: Sequence[int], pads: Sequence[int]
) -> LineValue:
    """A sum over the places of the window, of shifted images times a weight for each channel."""
    for side, p in enumerate(pads):
        x = e.pad(x, side + 1, p, p)
    window = w.shape[:-2]
    sizes = sizes_of(x.shape[1:-1], window, strides, [0] * len(window))
    total: LineValue | None = None
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
