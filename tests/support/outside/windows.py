# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false
"""Windows, views and tensors of a type in jax and torch, as in ``forms``."""

import math
import random
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from support.outside.forms import ANY, NUMBERS, Form, sizes_text

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")


def _windows(rng: random.Random, count: int) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return windows, strides, paddings and sizes of windowed dimensions."""
    window = [rng.randint(1, 3) for _ in range(count)]
    stride = [rng.randint(1, 3) for _ in range(count)]
    padding = [rng.randrange(w) for w in window]
    size = [rng.randint(max(1, w - 2 * p), 6) for w, p in zip(window, padding, strict=True)]
    return window, stride, padding, size


def _made(size: list[int], window: list[int], stride: list[int], padding: list[int]) -> list[int]:
    every = zip(size, window, stride, padding, strict=True)
    return [(n + 2 * p - w) // s + 1 for n, w, s, p in every]


def _conv_jax(stride: list[int], padding: list[int]) -> Any:
    letters = "XY"[: len(stride)]
    names = (f"N{letters}C", f"{letters}IO", f"N{letters}C")

    def run(x: Any, w: Any) -> Any:
        pads = [(p, p) for p in padding]
        return jax.lax.conv_general_dilated(x, w, stride, pads, dimension_numbers=names)

    return run


def _conv_torch(stride: list[int], padding: list[int]) -> Any:
    function = F.conv1d if len(stride) == 1 else F.conv2d

    def run(x: Any, w: Any) -> Any:
        channels, filters = x.movedim(-1, 1), w.movedim((-1, -2), (0, 1))
        out = function(channels.contiguous(), filters.contiguous(), None, stride, padding)
        return out.movedim(1, -1)

    return run


def conv_form(name: str, rng: random.Random) -> Form:
    count = rng.choice([1, 2])
    window, stride, padding, size = _windows(rng, count)
    made = _made(size, window, stride, padding)
    space, opened = [f"s{d}" for d in range(count)], [f"o{d}" for d in range(count)]
    cut = [f"w{d}" for d in range(count)]
    sizes = {
        **dict(zip(space, size, strict=True)),
        **dict(zip(opened, made, strict=True)),
        **dict(zip(cut, window, strict=True)),
    }
    x, w, y = ["n", *space, "c"], [*cut, "c", "f"], ["n", *opened, "f"]
    in_jax, in_torch = _conv_jax(stride, padding), _conv_torch(stride, padding)
    steps = f"stride {sizes_text(stride)} padding {sizes_text(padding)}"
    text = {
        "conv": f"conv {{0}}, {{1}} {steps}",
        "conv_transpose": f"conv_transpose {{0}}, {{1}} {steps} to {{to}}",
        "conv_filter": f"conv_filter {{0}}, {{1}} {steps} to {{to}}",
    }[name]

    def shape(over: list[str], arrays: Any, indices: list[list[str]]) -> list[int]:
        known = dict(sizes)
        for array, own in zip(arrays, indices, strict=True):
            known |= dict(zip(own, array.shape, strict=True))
        return [known[i] for i in over]

    if name == "conv":
        operands, result, own_jax, own_torch = [x, w], y, in_jax, in_torch
    elif name == "conv_transpose":
        operands, result = [y, w], x

        def input_jax(g: Any, k: Any) -> Any:
            start = jnp.zeros(shape(x, (g, k), operands), g.dtype)
            return jax.vjp(lambda z: in_jax(z, k), start)[1](g)[0]

        def input_torch(g: Any, k: Any) -> Any:
            start = torch.zeros(shape(x, (g, k), operands), dtype=g.dtype, requires_grad=True)
            return torch.autograd.grad(in_torch(start, k), start, g, create_graph=True)[0]

        own_jax, own_torch = input_jax, input_torch
    else:
        operands, result = [x, y], w

        def filter_jax(z: Any, g: Any) -> Any:
            start = jnp.zeros(shape(w, (z, g), operands), g.dtype)
            return jax.vjp(lambda k: in_jax(z, k), start)[1](g)[0]

        def filter_torch(z: Any, g: Any) -> Any:
            start = torch.zeros(shape(w, (z, g), operands), dtype=g.dtype, requires_grad=True)
            return torch.autograd.grad(in_torch(z, start), start, g, create_graph=True)[0]

        own_jax, own_torch = filter_jax, filter_torch

    return Form(
        text,
        operands,
        result,
        own_jax,
        own_torch,
        sizes=sizes,
        blocked={*space, *opened, *cut},
        linear="each",
        special=False,
    )


def pool_form(name: str, rng: random.Random) -> Form:
    count = rng.choice([1, 2])
    window, stride, padding, size = _windows(rng, count)
    made = _made(size, window, stride, padding)
    space, opened = [f"s{d}" for d in range(count)], [f"o{d}" for d in range(count)]
    sizes = {**dict(zip(space, size, strict=True)), **dict(zip(opened, made, strict=True))}
    x, y = ["n", *space, "c"], ["n", *opened, "c"]
    parts = math.prod(window)
    largest = name.startswith("max")

    def in_jax(v: Any) -> Any:
        pads = [(0, 0), *((p, p) for p in padding), (0, 0)]
        dims, steps = (1, *window, 1), (1, *stride, 1)
        if largest:
            low = -jnp.inf if v.dtype.kind == "f" else int(jnp.iinfo(v.dtype).min)
            return jax.lax.reduce_window(
                v, jnp.asarray(low, v.dtype), jax.lax.max, dims, steps, pads
            )
        return jax.lax.reduce_window(v, 0.0, jax.lax.add, dims, steps, pads) / parts

    def in_torch(v: Any) -> Any:
        pads = [p for n in reversed(padding) for p in (n, n)]
        lowest = -math.inf if v.is_floating_point() else torch.iinfo(v.dtype).min
        moved = F.pad(v.movedim(-1, 1), pads, value=lowest if largest else 0.0)
        kind = {(True, 1): F.max_pool1d, (True, 2): F.max_pool2d}
        kind |= {(False, 1): F.avg_pool1d, (False, 2): F.avg_pool2d}
        return kind[largest, count](moved, window, stride).movedim(1, -1)

    steps = f"window {sizes_text(window)} stride {sizes_text(stride)} padding {sizes_text(padding)}"
    common: dict[str, Any] = {"sizes": sizes, "blocked": {*space, *opened}}
    if name in ("max_pool", "avg_pool"):
        return Form(
            f"{name} {{0}} {steps}",
            [x],
            y,
            in_jax,
            in_torch,
            dtypes=NUMBERS if largest else Form.dtypes,
            linear="" if largest else "all",
            **common,
        )
    if largest:
        return Form(
            f"{name} {{0}}, {{1}} {steps}",
            [y, x],
            x,
            lambda g, v: jax.vjp(in_jax, v)[1](g)[0],
            lambda g, v: _torch_vjp(in_torch, v, g),
            gradient=False,
            special=False,  # in a window with NaN no element is the largest; in torch the NaN is
            **common,
        )

    def j(g: Any) -> Any:
        start = jnp.zeros((g.shape[0], *size, g.shape[-1]), g.dtype)
        return jax.vjp(in_jax, start)[1](g)[0]

    def t(g: Any) -> Any:
        start = torch.zeros((g.shape[0], *size, g.shape[-1]), dtype=g.dtype)
        return _torch_vjp(in_torch, start, g)

    text = f"{name} {{0}} {steps} to {{to}}"
    return Form(text, [y], x, j, t, linear="all", **common)


def _torch_vjp(function: Any, at: Any, g: Any) -> Any:
    start = at.detach().clone().requires_grad_()
    return torch.autograd.grad(function(start), start, g, create_graph=True)[0]


# ---------------------------------------------------------------------------------------------
# Tensors of a type, and views
# ---------------------------------------------------------------------------------------------


def constant_form(rng: random.Random) -> Form:
    over, dtype = list("abc"[: rng.randint(0, 3)]), rng.choice(NUMBERS)
    value = rng.choice([0, 1, -2, 3]) if dtype.startswith("i") else rng.choice([0, 0.5, -1.25, 3])
    shape: dict[str, int] = {i: rng.randint(1, 3) * 4 for i in over}
    whole = [shape[i] for i in over]
    return Form(
        f"constant value {value} to {{to}}",
        [],
        over,
        lambda: jnp.full(whole, value),
        lambda: torch.full(whole, value),
        sizes=shape,
        out=dtype,
        gradient=False,
    )


def iota_form(rng: random.Random) -> Form:
    over, dtype = list("abc"[: rng.randint(1, 3)]), rng.choice(NUMBERS)
    shape: dict[str, int] = {i: rng.randint(1, 3) * 4 for i in over}
    whole, dim = [shape[i] for i in over], rng.randrange(len(over))
    along = [-1 if d == dim else 1 for d in range(len(over))]
    return Form(
        f"iota dim {dim} to {{to}}",
        [],
        over,
        lambda: jax.lax.broadcasted_iota(jnp.int64, whole, dim),
        lambda: torch.arange(whole[dim]).reshape(along).expand(whole),
        sizes=shape,
        out=dtype,
        gradient=False,
    )


def broadcast_to_form(rng: random.Random) -> Form:
    result = list("abc"[: rng.randint(1, 3)])
    shape = {i: rng.randint(1, 2) * 4 for i in result}
    whole = [shape[i] for i in result]
    own = [i if rng.random() < 0.6 else "1" for i in result[rng.randint(0, len(result)) :]]
    return Form(
        "broadcast_to {0} to {to}",
        [own],
        result,
        lambda x: jnp.broadcast_to(x, whole),
        lambda x: x.expand(whole),
        sizes=shape,
        linear="all",
        dtypes=ANY,
    )


def scale_form(rng: random.Random) -> Form:
    over = list("abc"[: rng.randint(0, 3)])
    dtypes, by = rng.choice([(NUMBERS, rng.choice([-3, 0, 2])), (Form.dtypes, 0.25)])
    return Form(
        f"scale {{0}} by {by}", [over], over, lambda x: x * by, lambda x: x * by,
        dtypes=dtypes, linear="all",
    )  # fmt: skip


def cast_form(rng: random.Random) -> Form:
    over, out = list("abc"[: rng.randint(0, 3)]), rng.choice(ANY)
    source = rng.choice(ANY)
    whole = source in Form.dtypes and out in Form.dtypes
    names = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i8": "int8"}
    names |= {"i32": "int32", "i64": "int64", "bool": "bool"}

    def in_jax(x: Any) -> Any:
        return x if whole else x.astype(names[out])

    def in_torch(x: Any) -> Any:
        return x if whole else x.to(getattr(torch, names[out]))

    return Form(
        f"cast {{0}} to {out}", [over], over, in_jax, in_torch, dtypes=(source,), out=out,
        gradient=whole, values="small",
        special=not out.startswith("i"),
    )  # fmt: skip


def pad_form(rng: random.Random) -> Form:
    over = list("abc"[: rng.randint(1, 3)])
    dim, size = rng.randrange(len(over)), rng.randint(1, 6)
    low, high = rng.randint(-size + 1, 3), 0
    high = rng.randint(-(size + min(low, 0)) + 1, 3)
    value = rng.choice([0, 0, 1, -2])

    def in_jax(x: Any) -> Any:
        config = [(low, high, 0) if d == dim else (0, 0, 0) for d in range(x.ndim)]
        return jax.lax.pad(x, jnp.asarray(value, x.dtype), config)

    def in_torch(x: Any) -> Any:
        pads = [0] * (2 * (x.ndim - dim - 1)) + [low, high]
        return F.pad(x, pads, value=value)

    words = [f"low {low}"] * (low != 0 or rng.random() < 0.5)
    words += [f"high {high}"] * (high != 0 or rng.random() < 0.5)
    words += [f"value {value}"] * (value != 0)
    result = list(over)
    result[dim] = "made"
    return Form(
        " ".join([f"pad {{0}} dim {dim}", *words]),
        [over],
        result,
        in_jax,
        in_torch,
        sizes={over[dim]: size, "made": size + low + high},
        blocked={over[dim], "made"},
        linear="" if value else "all",
        dtypes=NUMBERS,
    )


def concat_form(rng: random.Random) -> Form:
    over = list("abc"[: rng.randint(1, 3)])
    dim, sizes = rng.randrange(len(over)), [rng.randint(1, 3) for _ in range(rng.randint(1, 3))]
    operands = [[f"p{n}" if d == dim else i for d, i in enumerate(over)] for n in range(len(sizes))]
    known = {f"p{n}": size for n, size in enumerate(sizes)} | {"made": sum(sizes)}
    slots = ", ".join(f"{{{n}}}" for n in range(len(sizes)))
    return Form(
        f"concat {slots} dim {dim}",
        operands,
        ["made" if d == dim else i for d, i in enumerate(over)],
        lambda *xs: jnp.concatenate(xs, dim),
        lambda *xs: torch.cat(xs, dim),
        sizes=known,
        blocked={*known},
        linear="all",
        dtypes=ANY,
    )


def view_form(name: str, rng: random.Random) -> Form:
    """Return a view: a sharded dimension that is split or merged keeps its shards in front."""
    front, inner, rest = 4 * rng.randint(1, 2), rng.randint(1, 4), rng.randint(1, 4)
    whole, parts = [front * inner, rest], [front, inner, rest]
    sizes = {"ab": front * inner, "a": front, "b": inner, "c": rest}
    split, shape = name == "split", parts
    if name == "reshape":
        split = rng.random() < 0.5
    source, result = (["ab", "c"], ["a", "b", "c"]) if split else (["a", "b", "c"], ["ab", "c"])
    shape = parts if split else whole
    text = {
        "split": f"split {{0}} dim 0 into {sizes_text(parts[:2])}",
        "merge": "merge {0} dim 0",
        "reshape": f"reshape {{0}} to {sizes_text(shape)}",
    }[name]
    return Form(
        text, [source], result, lambda x: x.reshape(shape), lambda x: x.reshape(shape),
        sizes=sizes, blocked={"ab", "a", "b"}, linear="all", dtypes=ANY,
    )  # fmt: skip


def transpose_form(rng: random.Random) -> Form:
    over = list("abc"[: rng.randint(1, 3)])
    order = rng.sample(range(len(over)), len(over))
    return Form(
        f"transpose {{0}} order {sizes_text(order)}",
        [over],
        [over[d] for d in order],
        lambda x: jnp.transpose(x, order),
        lambda x: x.permute(order),
        linear="all",
        dtypes=ANY,
    )
