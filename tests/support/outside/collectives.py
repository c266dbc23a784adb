"""Random collectives and local changes of state: what the whole is behind them, by its layout."""

import math
import random
from functools import partial
from typing import Any

import numpy as np
from support.outside.cases import Case, Result, sample, top
from support.outside.forms import FLOATS
from support.outside.layouts import Layout, Mesh, distributed

COLLECTIVES = [
    "all_reduce", "reduce", "broadcast", "reduce_scatter", "all_gather", "scatter", "gather",
    "all_to_all", "send", "shift", "slice", "keep_root", "keep", "mask", "part", "terms",
    "redistribute",
]  # fmt: skip
BEGINS = {
    "partial": ("all_reduce", "reduce", "reduce_scatter", "terms"),
    "place": ("broadcast", "scatter", "send"),
    "shards": ("all_gather", "gather", "all_to_all", "shift", "part"),
}


def _digits(mesh: Mesh, axes: list[str], number: int) -> dict[str, int]:
    """Return the coordinates of a number, the first axis most significant."""
    at: dict[str, int] = {}
    for axis in reversed(axes):
        number, at[axis] = divmod(number, mesh.axes[axis])
    return {axis: at[axis] for axis in axes}


def _others(
    rng: random.Random, mesh: Mesh, layout: Layout, left: list[str], elsewhere: bool
) -> None:
    """Give the sub-axes that a step leaves alone random states."""
    for axis in left:
        what = rng.choice([0, 1, "place", "none"])
        if isinstance(what, int):
            layout.shards[what] = (*layout.shards[what], axis)
        elif what == "place" and mesh.axes[axis] > 1:
            layout.place[axis] = rng.randrange(mesh.axes[axis]) if elsewhere else 0


def collective(rng: random.Random, mesh: Mesh, name: str, label: str) -> list[Case]:
    """Return a random collective as a function; none, if the mesh has too few devices."""
    if mesh.devices == 1 or (mesh.weights and name in ("shift", "terms", "part")):
        return []
    over = rng.sample(list(mesh.axes), rng.randint(1, len(mesh.axes)))
    if mesh.weights and len(over) > 1 and rng.random() < 0.5:
        over = over[:1]
    left = [axis for axis in mesh.axes if axis not in over]
    unit = math.prod(sum(mesh.parts(axis)) for axis in mesh.axes)
    dtype = rng.choice(["f64", "f32", "bf16", "f16", "i8", "i32", "i64", "bool"])
    source = Layout(dtype, [unit * rng.randint(1, 2), unit], [(), ()])
    _others(rng, mesh, source, left, name != "redistribute")
    size, dim = math.prod(mesh.axes[axis] for axis in over), rng.randrange(2)
    at, to = rng.randrange(size), rng.randrange(size)
    if name in BEGINS["partial"]:
        names = ["max", "min"] if dtype == "bool" else ["sum", "prod", "max", "min", "avg"]
        if name == "terms":
            names = ["sum", "avg"]
        source.partial, source.reduction = tuple(over), rng.choice(names)
        no_average = source.reduction == "avg" and dtype not in FLOATS
        if no_average or (name == "terms" and dtype == "bool"):
            source.dtype = dtype = "f32"
    elif name in BEGINS["place"]:
        if name == "scatter" and any(axis in mesh.weights for axis in over):
            at = 0
        source.place |= _digits(mesh, over, at)
    elif name in BEGINS["shards"]:
        source.shards[dim] = (*source.shards[dim], *over)
    elif name == "mask" and dtype == "bool":
        source.dtype = dtype = "i32"
    numbers = np.random.default_rng(rng.getrandbits(64))
    values = "small" if source.reduction == "prod" and dtype not in FLOATS else "any"
    draw = partial(sample, numbers, dtype, source.shape, values, False)
    whole, buffers, large = distributed(mesh, source, draw)
    if source.reduction == "avg":
        large = max(large, top(whole) * size)
    target = Layout(dtype, list(source.shape), list(source.shards), place=dict(source.place))
    text, truth = _step(rng, mesh, name, over, dim, (at, to), target, whole)
    typed = f"func @{label}(%x: {source.text()}) -> {target.text()} on @{mesh.name} {{"
    if name == "mask":
        text = f"{text}\n  %r = all_reduce %m over {', '.join(over)}"
    if name == "terms":
        text = f"{text}\n  %p = {'mean' if source.reduction == 'avg' else 'sum'} %t dims [{dim}]\n"
        text += f"  %r = all_reduce %p over {', '.join(over)}"
    case = Case(label, f"{typed}\n  {text}\n  return %r\n}}\n", mesh, [buffers], [])
    scale = max(large, top(truth), 1.0)
    if source.reduction == "prod":
        scale = max(1.0, top(truth))
    steps = 8.0 if source.partial else 1.0
    case.results = [Result(target, truth, scale, steps)]
    return [case]


def _step(
    rng: random.Random,
    mesh: Mesh,
    name: str,
    over: list[str],
    dim: int,
    ends: tuple[int, int],
    target: Layout,
    whole: Any,
) -> tuple[str, Any]:
    """Return the text of a step and the whole behind it; ``target`` becomes its type."""
    at, to = ends
    listed, size = ", ".join(over), math.prod(mesh.axes[axis] for axis in over)
    first = dict.fromkeys(over, 0)
    own = list(target.shards)
    without = tuple(axis for axis in own[dim] if axis not in over)
    added = (*without, *over)
    match name:
        case "all_reduce" | "broadcast":
            target.place = {a: n for a, n in target.place.items() if a not in over}
            return f"%r = {name} %x over {listed}", whole
        case "reduce" | "keep_root":
            target.place |= first
            return f"%r = {name} %x over {listed}", whole
        case "keep":
            target.place |= _digits(mesh, over, at)
            shown = ", ".join(f"{a} = {n}" for a, n in _digits(mesh, over, at).items())
            return f"%r = keep %x at {shown}", whole
        case "reduce_scatter" | "slice" | "scatter":
            target.place = {a: n for a, n in target.place.items() if a not in over}
            target.shards[dim] = added
            return f"%r = {name} %x over {listed} dim {dim}", whole
        case "all_gather":
            target.shards[dim] = without
            return f"%r = {name} %x over {listed} dim {dim}", whole
        case "gather":
            target.shards[dim] = without
            target.place |= first
            return f"%r = {name} %x over {listed} dim {dim}", whole
        case "all_to_all":
            target.shards[dim] = without
            target.shards[1 - dim] = (*own[1 - dim], *over)
            return f"%r = {name} %x over {listed} dim {dim} to {1 - dim}", whole
        case "send":
            to = to if to != at else (at + 1) % size
            target.place |= _digits(mesh, over, to)
            return f"%r = send %x over {listed} from {at} to {to}", whole
        case "mask":
            kind = rng.choice(["sum", "prod"])
            return f"%m = mask %x over {listed} op {kind}", whole
        case "terms":
            return f"%t = terms %x over {listed} dim {dim}", whole
        case "redistribute":
            target.shards, target.place = [(), ()], {}
            _others(rng, mesh, target, rng.sample(list(mesh.axes), len(mesh.axes)), False)
            return f"%r = redistribute %x to {target.text()}", whole
        case _:
            return _blocks(rng, mesh, name, over, dim, at, target, whole)


def _blocks(
    rng: random.Random,
    mesh: Mesh,
    name: str,
    over: list[str],
    dim: int,
    at: int,
    target: Layout,
    whole: Any,
) -> tuple[str, Any]:
    """Return a step that moves or takes blocks of a dimension, and the whole behind it."""
    size = math.prod(mesh.axes[axis] for axis in over)
    major = math.prod(mesh.axes[axis] for axis in target.shards[dim] if axis not in over)
    front = whole.shape[:dim]
    rows = whole.reshape(*front, major, size, -1, *whole.shape[dim + 1 :])
    axis = dim + 1
    if name == "part":
        target.shards[dim] = tuple(a for a in target.shards[dim] if a not in over)
        target.place |= _digits(mesh, over, at)
        target.shape[dim] //= size
        taken = np.take(rows, at, axis).reshape(target.shape)
        return f"%r = part %x over {', '.join(over)} at {at} dim {dim}", taken
    opened = rng.random() < 0.4
    most = size - 1 if opened else size + 1
    by = rng.choice([n for n in range(-most, most + 1) if n % size])
    moved = np.roll(rows, by, axis)
    if opened:
        blocks = np.arange(size).reshape(-1, *(1,) * (rows.ndim - axis - 1))
        inside = (blocks - by >= 0) & (blocks - by < size)
        moved = np.where(inside, moved, np.zeros((), moved.dtype))
    text = f"%r = shift %x over {', '.join(over)} by {by}" + " open" * opened
    return text, moved.reshape(whole.shape)
