# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false
"""Operations of the language, written in jax and in torch by hand from the documentation.

Nothing here is collir's: a form has the text of a step, the index of each dimension, and the same
function of whole arrays in jax.numpy and in torch.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")

FLOATS = ("f64", "f32", "bf16", "f16")
NUMBERS = (*FLOATS, "i8", "i32", "i64")
ANY = (*NUMBERS, "bool")


Function = (
    Callable[[Any], Any] | Callable[[Any, Any], Any] | Callable[[Any, Any, Any], Any]
    | Callable[[], Any]
)  # fmt: skip
"""A function of up to three arrays."""


@dataclass
class Form:
    """A step with random arguments, and what it means.

    Attributes:
        text: the step; ``{0}`` is its first operand, and ``{to}`` the type of its result.
        operands: the index of each dimension of the operands; "1" is a dimension of size 1 that is
            repeated.
        result: the indices of the result; "1" is a new dimension of size 1.
        jax, torch: the function of whole arrays.
        sizes: the sizes of some indices; others are random.
        blocked: indices that are not sharded.
        reduced: the reduction over indices that the result lacks.
        linear: whether partial sums pass through "all" operands or through "each" alone.
        dtypes: the element types of the operands.
        out: the element type of the result, if it is another.
        positions: the operand of integers that select, and the index that they select from.
        condition: the first operand is a truth value.
        values: what operands hold: "any" number, "positive", or "separate" numbers without ties.
        gradient: whether it has a gradient; it is of each operand that holds no integers.
        special: whether the result is known where operands are infinite or NaN.
    """

    text: str
    operands: list[list[str]]
    result: list[str]
    jax: Function
    torch: Function
    sizes: dict[str, int] = field(default_factory=dict)
    blocked: set[str] = field(default_factory=set)
    reduced: str = "sum"
    linear: str = ""
    dtypes: tuple[str, ...] = FLOATS
    out: str = ""
    positions: tuple[int, str] | None = None
    condition: bool = False
    values: str = "any"
    gradient: bool = True
    special: bool = True


def sizes_text(values: list[int]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _rank(rng: random.Random) -> list[str]:
    return list("abc"[: rng.randint(1, 3)])


# ---------------------------------------------------------------------------------------------
# Products and maps
# ---------------------------------------------------------------------------------------------


def einsum_form(rng: random.Random) -> Form:
    known = "abcd"[: rng.randint(1, 4)]
    operands = [
        rng.sample(known, rng.randint(0, min(3, len(known)))) for _ in range(rng.randint(1, 3))
    ]
    used = sorted({i for over in operands for i in over})
    result = rng.sample(used, rng.randint(0, min(3, len(used))))
    plain = f"{','.join(''.join(over) for over in operands)}->{''.join(result)}"
    spaced = f"{', '.join(' '.join(over) for over in operands)} -> {' '.join(result)}"
    slots = ", ".join(f"{{{n}}}" for n in range(len(operands)))

    def in_torch(*xs: Any) -> Any:  # which sums short integers as long ones, at some places
        dtype = xs[0].dtype
        wide = xs if dtype.is_floating_point else [x.long() for x in xs]
        return torch.einsum(plain, *wide).to(dtype)

    return Form(
        f'einsum "{spaced}" {slots}',
        operands,
        result,
        lambda *xs: jnp.einsum(plain, *xs),
        in_torch,
        linear="each" if len(operands) > 1 else "all",
        dtypes=NUMBERS,
    )


def _gelu(x: Any) -> Any:
    return F.gelu(x, approximate="tanh")


MAPS: dict[str, tuple[Any, Any, tuple[str, ...], str]] = {
    "neg": (jnp.negative, torch.neg, NUMBERS, "any"),
    "relu": (jax.nn.relu, torch.relu, NUMBERS, "any"),
    "exp": (jnp.exp, torch.exp, FLOATS, "any"),
    "log": (jnp.log, torch.log, FLOATS, "positive"),
    "sqrt": (jnp.sqrt, torch.sqrt, FLOATS, "positive"),
    "rsqrt": (jax.lax.rsqrt, torch.rsqrt, FLOATS, "positive"),
    "tanh": (jnp.tanh, torch.tanh, FLOATS, "any"),
    "erf": (jax.lax.erf, torch.erf, FLOATS, "any"),
    "sigmoid": (jax.nn.sigmoid, torch.sigmoid, FLOATS, "any"),
    "sin": (jnp.sin, torch.sin, FLOATS, "any"),
    "cos": (jnp.cos, torch.cos, FLOATS, "any"),
    "silu": (jax.nn.silu, F.silu, FLOATS, "any"),
    "gelu": (jax.nn.gelu, _gelu, FLOATS, "any"),
    "stop_gradient": (jax.lax.stop_gradient, lambda x: x.detach(), NUMBERS, "any"),
}
PAIRS: dict[str, tuple[Any, Any, tuple[str, ...], str]] = {
    "add": (jnp.add, torch.add, NUMBERS, "all"),
    "sub": (jnp.subtract, torch.sub, NUMBERS, "all"),
    "mul": (jnp.multiply, torch.mul, NUMBERS, "each"),
    "div": (jnp.divide, torch.div, FLOATS, ""),
    "maximum": (jnp.maximum, torch.maximum, NUMBERS, ""),
    "minimum": (jnp.minimum, torch.minimum, NUMBERS, ""),
    "greater": (jnp.greater, torch.gt, NUMBERS, ""),
    "greater_equal": (jnp.greater_equal, torch.ge, NUMBERS, ""),
    "less": (jnp.less, torch.lt, NUMBERS, ""),
    "less_equal": (jnp.less_equal, torch.le, NUMBERS, ""),
    "equal": (jnp.equal, torch.eq, NUMBERS, ""),
    "not_equal": (jnp.not_equal, torch.ne, NUMBERS, ""),
}


def map_form(name: str, rng: random.Random) -> Form:
    in_jax, in_torch, dtypes, values = MAPS[name]
    over = list("abc"[: rng.randint(0, 3)])
    linear = "all" if name in ("neg", "stop_gradient") else ""
    return Form(
        f"{name} {{0}}", [over], over, in_jax, in_torch, dtypes=dtypes, values=values, linear=linear
    )


def _aligned(rng: random.Random, count: int) -> tuple[list[list[str]], list[str]]:
    """Return operands that numpy would broadcast, and the indices of their result."""
    over = list("abc"[: rng.randint(0, 3)])
    operands = [over]
    for _ in range(count - 1):
        own = over[rng.randint(0, len(over)) if rng.random() < 0.4 else 0 :]
        operands.append([i if rng.random() < 0.8 else "1" for i in own])
    rng.shuffle(operands)
    return operands, over


def pair_form(name: str, rng: random.Random) -> Form:
    in_jax, in_torch, dtypes, linear = PAIRS[name]
    operands, over = _aligned(rng, 2)
    truth = name.startswith(("greater", "less", "equal", "not"))
    return Form(
        f"{name} {{0}}, {{1}}",
        operands,
        over,
        in_jax,
        in_torch,
        dtypes=dtypes,
        linear=linear,
        out="bool" if truth else "",
        gradient=not truth,
    )


def where_form(rng: random.Random) -> Form:
    operands, over = _aligned(rng, 3)
    return Form(
        "where {0}, {1}, {2}", operands, over, jnp.where, torch.where, dtypes=ANY, condition=True
    )


# ---------------------------------------------------------------------------------------------
# Reductions, and what needs whole dimensions
# ---------------------------------------------------------------------------------------------


def _dims(rng: random.Random) -> tuple[list[str], list[int], str]:
    over = _rank(rng)
    dims = rng.sample(range(len(over)), rng.randint(1, len(over)))
    return over, dims, f"dims {sizes_text(dims)}"


def reduction_form(name: str, rng: random.Random) -> Form:
    over, dims, text = _dims(rng)
    keep = rng.random() < 0.5
    at = tuple(dims)

    def in_jax(x: Any) -> Any:
        if name == "sum":
            return jnp.sum(x, at, dtype=x.dtype, keepdims=keep)
        return getattr(jnp, name)(x, at, keepdims=keep)

    def in_torch(x: Any) -> Any:
        if name == "sum":
            return x.sum(at, keepdim=keep, dtype=x.dtype)
        form = {"mean": torch.mean, "max": torch.amax, "min": torch.amin}[name]
        return form(x, at, keepdim=keep)

    result = ["1" if d in dims else i for d, i in enumerate(over)]
    return Form(
        f"{name} {{0}} {text}" + " keepdims" * keep,
        [over],
        result if keep else [i for i in result if i != "1"],
        in_jax,
        in_torch,
        reduced={"mean": "avg"}.get(name, name),
        linear="all" if name in ("sum", "mean") else "",
        dtypes=FLOATS if name == "mean" else NUMBERS,
    )


def softmax_form(name: str, rng: random.Random) -> Form:
    over, dims, text = _dims(rng)

    def in_torch(x: Any) -> Any:
        behind = list(range(-len(dims), 0))
        moved = torch.movedim(x, dims, behind)
        flat = moved.reshape([*moved.shape[: moved.ndim - len(dims)], -1])
        out = getattr(torch, name)(flat, -1).reshape(moved.shape)
        return torch.movedim(out, behind, dims)

    return Form(
        f"{name} {{0}} {text}",
        [over],
        over,
        lambda x: getattr(jax.nn, name)(x, axis=tuple(dims)),
        in_torch,
        blocked={over[d] for d in dims},
    )


def norm_form(name: str, rng: random.Random) -> Form:
    over, dims, text = _dims(rng)
    eps, own = rng.choice([0.125, 1e-5]), [over[d] for d in dims]
    behind = tuple(range(-len(dims), 0))

    def in_jax(x: Any, gain: Any, *bias: Any) -> Any:
        moved = jnp.moveaxis(x, dims, behind)
        if name == "layer_norm":
            moved = moved - moved.mean(behind, keepdims=True)
        moved = moved * jax.lax.rsqrt((moved**2).mean(behind, keepdims=True) + eps) * gain
        return jnp.moveaxis(moved + bias[0] if bias else moved, behind, dims)

    def in_torch(x: Any, gain: Any, *bias: Any) -> Any:
        moved = torch.movedim(x, dims, behind)
        function = getattr(F, name)
        return torch.movedim(function(moved, gain.shape, gain, *bias, eps=eps), behind, dims)

    count = 2 if name == "layer_norm" else 1
    slots = ", ".join(f"{{{n}}}" for n in range(count + 1))
    return Form(
        f"{name} {slots} {text} eps {eps}",
        [over, *[own] * count],
        over,
        in_jax,
        in_torch,
        blocked=set(own),
        special=False,
    )


def cumsum_form(rng: random.Random) -> Form:
    over, dim, back = _rank(rng), 0, rng.random() < 0.5
    dim = rng.randrange(len(over))

    def in_torch(x: Any) -> Any:
        y = x.flip(dim) if back else x
        y = y.cumsum(dim, dtype=x.dtype)
        return y.flip(dim) if back else y

    return Form(
        f"cumsum {{0}} dim {dim}" + " reverse" * back,
        [over],
        over,
        lambda x: jax.lax.cumsum(x, dim, reverse=back),
        in_torch,
        blocked={over[dim]},
        dtypes=NUMBERS,
        linear="all",
    )


# ---------------------------------------------------------------------------------------------
# Selections
# ---------------------------------------------------------------------------------------------


def argmax_form(rng: random.Random) -> Form:
    over = _rank(rng)
    dim = rng.randrange(len(over))
    return Form(
        f"argmax {{0}} dim {dim}",
        [over],
        over[:dim] + over[dim + 1 :],
        lambda x: jnp.argmax(x, dim).astype(jnp.int32),
        lambda x: torch.argmax(x, dim).int(),
        blocked={over[dim]},
        dtypes=NUMBERS,
        out="i32",
        gradient=False,
    )


def top_k_form(name: str, rng: random.Random) -> Form:
    over = _rank(rng)
    dim = rng.randrange(len(over))
    size = rng.randint(1, 6)
    k, found = rng.randint(1, size), name == "top_k_indices"

    def in_jax(x: Any) -> Any:
        order = jnp.argsort(x, axis=dim, stable=True, descending=True)
        order = jax.lax.slice_in_dim(order, 0, k, axis=dim)
        return order.astype(jnp.int32) if found else jnp.take_along_axis(x, order, dim)

    def in_torch(x: Any) -> Any:
        values, order = torch.sort(x, dim=dim, descending=True, stable=True)
        return (order.int() if found else values).narrow(dim, 0, k)

    return Form(
        f"{name} {{0}} k {k} dim {dim}",
        [over],
        [*over[:dim], "k", *over[dim + 1 :]],
        in_jax,
        in_torch,
        sizes={over[dim]: size, "k": k},
        blocked={over[dim], "k"},
        dtypes=NUMBERS,
        out="i32" if found else "",
        gradient=not found,
    )


def _table(rng: random.Random) -> tuple[list[str], list[str], list[str]]:
    return rng.choice([[], ["a"]]), rng.choice([[], ["b"]]), rng.choice([[], ["i"], ["i", "j"]])


def _at(n: int, i: Any, like: Any) -> Any:
    """Return rows with a 1 at a position, and without where it is out of range."""
    positions = torch.arange(n) if isinstance(i, torch.Tensor) else jnp.arange(n)
    rows: Any = i[..., None] == positions
    return rows.to(like.dtype) if isinstance(i, torch.Tensor) else rows.astype(like.dtype)


def take_form(rng: random.Random) -> Form:
    before, behind, chosen = _table(rng)
    dim = len(before)

    def in_jax(table: Any, i: Any) -> Any:
        known = jnp.where((i >= 0) & (i < table.shape[dim]), i, table.shape[dim])
        return jnp.take(table, known, dim, mode="fill", fill_value=0)

    def in_torch(table: Any, i: Any) -> Any:
        inside = (i >= 0) & (i < table.shape[dim])
        flat = torch.where(inside, i, 0).reshape(-1).long()
        out = table.index_select(dim, flat)
        out = out.reshape([*table.shape[:dim], *i.shape, *table.shape[dim + 1 :]])
        mask = inside.reshape([*i.shape, *(1,) * (table.ndim - dim - 1)])
        return torch.where(mask, out, torch.zeros((), dtype=out.dtype))

    return Form(
        f"take {{0}}, {{1}} dim {dim}",
        [[*before, "v", *behind], chosen],
        [*before, *chosen, *behind],
        in_jax,
        in_torch,
        dtypes=NUMBERS,
        positions=(1, "v"),
    )


def take_transpose_form(rng: random.Random) -> Form:
    before, behind, chosen = _table(rng)
    dim, size = len(before), rng.randint(1, 5)

    def in_jax(g: Any, i: Any) -> Any:
        flat = g.reshape([*g.shape[:dim], -1, *g.shape[dim + i.ndim :]])
        at = jnp.where((i >= 0) & (i < size), i, size).reshape(-1)
        zeros = jnp.zeros((*g.shape[:dim], size, *g.shape[dim + i.ndim :]), g.dtype)
        return zeros.at[(*(slice(None),) * dim, at)].add(flat, mode="drop")

    def in_torch(g: Any, i: Any) -> Any:
        flat = g.reshape([*g.shape[:dim], i.numel(), *g.shape[dim + i.ndim :]])
        at = torch.where((i >= 0) & (i < size), i, size).reshape(-1)
        zeros = torch.zeros((*g.shape[:dim], size + 1, *g.shape[dim + i.ndim :]), dtype=g.dtype)
        return zeros.index_add(dim, at.long(), flat).narrow(dim, 0, size)

    return Form(
        f"take_transpose {{0}}, {{1}} dim {dim} to {{to}}",
        [[*before, *chosen, *behind], chosen],
        [*before, "v", *behind],
        in_jax,
        in_torch,
        sizes={"v": size},
        dtypes=NUMBERS,
        positions=(1, "v"),
    )


def linear_scan_form(rng: random.Random) -> Form:
    over, back = _rank(rng), rng.random() < 0.5
    dim = rng.randrange(len(over))

    def scanned(x: Any, a: Any, stack: Any) -> Any:
        count = x.shape[dim]
        rows: list[Any] = [None] * count
        state: Any = None
        for n in reversed(range(count)) if back else range(count):
            at = (*(slice(None),) * dim, n)
            state = x[at] if state is None else x[at] + a[at] * state
            rows[n] = state
        return stack(rows, dim)

    return Form(
        f"linear_scan {{0}}, {{1}} dim {dim}" + " reverse" * back,
        [over, over],
        over,
        lambda x, a: scanned(x, a, jnp.stack),
        lambda x, a: scanned(x, a, torch.stack),
        blocked={over[dim]},
        dtypes=NUMBERS,
        special=False,
    )


def take_along_form(rng: random.Random) -> Form:
    over = _rank(rng)
    dim = rng.randrange(len(over))
    chosen = ["i" if d == dim else index for d, index in enumerate(over)]

    def in_jax(x: Any, i: Any) -> Any:
        inside = (i >= 0) & (i < x.shape[dim])
        taken = jnp.take_along_axis(x, jnp.where(inside, i, 0).astype(jnp.int32), dim)
        return jnp.where(inside, taken, jnp.zeros((), x.dtype))

    def in_torch(x: Any, i: Any) -> Any:
        inside = (i >= 0) & (i < x.shape[dim])
        taken = torch.take_along_dim(x, torch.where(inside, i, 0).long(), dim)
        return torch.where(inside, taken, torch.zeros((), dtype=x.dtype))

    return Form(
        f"take_along_dim {{0}}, {{1}} dim {dim}",
        [over, chosen],
        chosen,
        in_jax,
        in_torch,
        dtypes=NUMBERS,
        positions=(1, over[dim]),
    )


def take_along_transpose_form(rng: random.Random) -> Form:
    form = take_along_form(rng)
    over, chosen = form.operands
    dim, size = chosen.index("i"), rng.randint(1, 5)

    def in_jax(g: Any, i: Any) -> Any:
        wanted = i[..., None] == jnp.arange(size, dtype=jnp.int64)
        return jnp.moveaxis(jnp.where(wanted, g[..., None], 0).sum(dim, dtype=g.dtype), -1, dim)

    def in_torch(g: Any, i: Any) -> Any:
        at = torch.where((i >= 0) & (i < size), i, size).long()
        shape = [size + 1 if d == dim else n for d, n in enumerate(g.shape)]
        return torch.zeros(shape, dtype=g.dtype).scatter_add(dim, at, g).narrow(dim, 0, size)

    return Form(
        f"take_along_dim_transpose {{0}}, {{1}} dim {dim} to {{to}}",
        [chosen, chosen],
        over,
        in_jax,
        in_torch,
        sizes={over[dim]: size},
        dtypes=NUMBERS,
        positions=(1, over[dim]),
    )


def grouped_matmul_form(rng: random.Random) -> Form:
    rows, turned = rng.choice([[], ["a"], ["a"], ["a", "b"]]), rng.random() < 0.5
    matrix = ["o", "i"] if turned else ["i", "o"]

    def in_jax(x: Any, w: Any, e: Any) -> Any:
        own = w[jnp.clip(e, 0, w.shape[0] - 1).astype(jnp.int32)]
        made = jnp.einsum("...i,...oi->...o" if turned else "...i,...io->...o", x, own)
        return jnp.where(((e >= 0) & (e < w.shape[0]))[..., None], made, 0)

    def in_torch(x: Any, w: Any, e: Any) -> Any:
        own = w[e.clamp(0, w.shape[0] - 1).long()]
        made = torch.einsum("...i,...oi->...o" if turned else "...i,...io->...o", x, own)
        return made.masked_fill(~((e >= 0) & (e < w.shape[0]))[..., None], 0)

    return Form(
        f"grouped_matmul {{0}}, {{1}}, {{2}}{' transposed' * turned}",
        [[*rows, "i"], ["v", *matrix], rows],
        [*rows, "o"],
        in_jax,
        in_torch,
        linear="each",
        dtypes=NUMBERS,
        positions=(2, "v"),
    )


def grouped_matmul_transpose_form(rng: random.Random) -> Form:
    rows, size = rng.choice([[], ["a"], ["a"], ["a", "b"]]), rng.randint(1, 5)
    dims = [*range(len(rows))]

    # A row of another group adds 0, not 0 times its product, which may be infinite.
    def in_jax(x: Any, y: Any, e: Any) -> Any:
        own = e[..., None] == jnp.arange(size, dtype=jnp.int64)
        products = (x[..., :, None] * y[..., None, :])[..., None, :, :]
        return jnp.where(own[..., None, None], products, 0).sum(dims, dtype=x.dtype)

    def in_torch(x: Any, y: Any, e: Any) -> Any:
        own = e[..., None] == torch.arange(size)
        products = (x[..., :, None] * y[..., None, :])[..., None, :, :]
        made = torch.where(own[..., None, None], products, torch.zeros((), dtype=x.dtype))
        return made.sum(dims, dtype=x.dtype) if dims else made

    return Form(
        "grouped_matmul_transpose {0}, {1}, {2} to {to}",
        [[*rows, "i"], [*rows, "o"], rows],
        ["v", "i", "o"],
        in_jax,
        in_torch,
        sizes={"v": size},
        linear="each",
        dtypes=NUMBERS,
        positions=(2, "v"),
    )


def one_hot_form(rng: random.Random) -> Form:
    over, size = list("ab"[: rng.randint(0, 2)]), rng.randint(1, 6)
    return Form(
        "one_hot {0} to {to}",
        [over],
        [*over, "v"],
        lambda i: jax.nn.one_hot(i, size),
        lambda i: _at(size, i, torch.zeros(())),
        sizes={"v": size},
        out=rng.choice(NUMBERS),
        positions=(0, "v"),
        gradient=False,
    )


def cross_entropy_form(rng: random.Random) -> Form:
    over = _rank(rng)
    dim = rng.randrange(len(over))
    rest = over[:dim] + over[dim + 1 :]

    def in_jax(x: Any, labels: Any) -> Any:
        known = (labels >= 0) & (labels < x.shape[dim])
        at = jnp.expand_dims(jnp.where(known, labels, 0), dim)
        losses = -jnp.take_along_axis(jax.nn.log_softmax(x, dim), at, dim).squeeze(dim)
        return jnp.where(known, losses, 0)

    def in_torch(x: Any, labels: Any) -> Any:
        known = (labels >= 0) & (labels < x.shape[dim])
        rows = x.movedim(dim, -1).reshape(-1, x.shape[dim])
        at = torch.where(known, labels, -100).reshape(-1).long()
        return F.cross_entropy(rows, at, reduction="none").reshape(labels.shape)

    return Form(
        f"cross_entropy {{0}}, {{1}} dim {dim}",
        [over, rest],
        rest,
        in_jax,
        in_torch,
        blocked={over[dim]},
        positions=(1, over[dim]),
    )
