"""The expression of jax for every step of the coll dialect, on the blocks of a device.

Where a device holds nothing of a value, it computes on numbers that no other step uses.
"""

from collections.abc import Sequence

from collir.layout import DType, Reduction
from collir.layout.cuts import places
from collir.layout.mesh import digits_over, index_over
from collir.localize.places import root_place
from collir.targets.code.forms import Expression
from collir.targets.code.jax_step import JaxStep, literal
from collir.targets.code.python_text import tuple_text

# ---------------------------------------------------------------------------------------------
# Collectives
# ---------------------------------------------------------------------------------------------

_SUMS = {
    Reduction.SUM: "lax.psum",
    Reduction.AVG: "lax.pmean",
    Reduction.MAX: "lax.pmax",
    Reduction.MIN: "lax.pmin",
}
_FOLDS = {Reduction.MAX: "max", Reduction.MIN: "min", Reduction.PROD: "prod"}


def _all_reduce(s: JaxStep) -> str:
    reduction = s.operand.reduction
    assert reduction is not None
    if reduction in _SUMS:
        return f"{_SUMS[reduction]}({s.x}, {s.over})"
    gathered = f"lax.all_gather({s.x}, {s.over})"
    return s.call("prod", gathered, "axis=0", *s.same_integers)


def _broadcast(s: JaxStep) -> str:
    at = f"{s.index(s.op.over)} == {_root(s)}"
    if s.result.dtype is DType.BOOL:
        return f"lax.pmax(jnp.where({at}, {s.x}, False), {s.over})"
    return f"lax.psum(jnp.where({at}, {s.x}, 0), {s.over})"


def _root(s: JaxStep) -> int:
    return index_over(s.mesh, s.op.over, dict(root_place(s.op)))


def _exchanged(s: JaxStep) -> str:
    """Return the blocks of a dimension that all devices have for this one, stacked in front of the
    block's own dimension."""
    dim, shape = s.dim, s.before
    stacked = (*shape[:dim], s.group, shape[dim] // s.group, *shape[dim + 1 :])
    return f"lax.all_to_all({s.reshaped(s.x, stacked)}, {s.over}, {dim}, {dim})"


def _reduce_scatter(s: JaxStep) -> str:
    reduction = s.operand.reduction
    assert reduction is not None
    if not reduction.linear:
        same = s.same_integers if reduction is Reduction.PROD else []
        return s.call(_FOLDS[reduction], _exchanged(s), f"axis={s.dim}", *same)
    scattered = f"lax.psum_scatter({s.x}, {s.over}, scatter_dimension={s.dim}, tiled=True)"
    return f"{scattered} / {s.group}" if reduction is Reduction.AVG else scattered


def _scatter(s: JaxStep) -> str:
    return f"lax.index_in_dim({_exchanged(s)}, {_root(s)}, {s.dim}, keepdims=False)"


def _all_gather(s: JaxStep) -> str:
    return f"lax.all_gather({s.x}, {s.over}, axis={s.dim}, tiled=True)"


def _all_to_all(s: JaxStep) -> str:
    source, target = s.op.integer("source"), s.op.integer("target")
    return f"lax.all_to_all({s.x}, {s.over}, {target}, {source}, tiled=True)"


def _sent(s: JaxStep, pairs: Sequence[tuple[int, int]], form: str = "") -> str:
    """Return a permute over the sub-axes of a step, of pairs of indices over them.

    A ``ppermute`` counts in the order of the mesh, whatever the order of the names is.

    Args:
        form: the pairs as a comprehension, if the order is the same.
    """
    axes, mesh = s.op.over, s.mesh
    ordered = mesh.ordered(axes)

    def place(index: int) -> int:
        return index_over(mesh, ordered, digits_over(mesh, axes, index))

    if ordered != axes or not form:
        form = str(sorted((place(source), place(target)) for source, target in pairs))
    return f"lax.ppermute({s.x}, {s.names(ordered)}, {form})"


def _send(s: JaxStep) -> str:
    return _sent(s, [(s.op.integer("sender"), s.op.integer("receiver"))])


def _shift(s: JaxStep) -> str:
    by, count, is_open = s.op.integer("distance"), s.group, "open" in s.op.properties
    if by % count == 0 and not is_open:
        return s.x
    if is_open:
        pairs = [(i, i + by) for i in range(count) if i + by in range(count)]
        ends = ("i", f"i + {by}") if by > 0 else (f"i + {-by}", "i")
        return _sent(s, pairs, f"[({', '.join(ends)}) for i in range({len(pairs)})]")
    pairs = [(i, (i + by) % count) for i in range(count)]
    form = f"[(i, (i + {by % count}) % {count}) for i in range({count})]"
    return _sent(s, pairs, form)


def _permute(s: JaxStep) -> str:
    """Send every block to the device whose place in the new layout is this device's in the old.

    Coordinates on sub-axes that shard neither layout stay. The r-th device that holds a block in
    one layout sends it to the r-th device that holds it in the other.
    """
    x, y, mesh = s.operand, s.result, s.mesh
    sharded = {axis for z in (x, y) for dim in z.dims for axis in dim.axes}
    moving = [sub.name for sub in mesh.sub_axes if sub.name in sharded]
    lists = [(a.axes, b.axes) for a, b in zip(x.dims, y.dims, strict=True)]
    copies = [tuple(a for a in moving if z.dim_of(a) is None) for z in (x, y)]
    lists.append((copies[0], copies[1]))
    pairs: list[tuple[int, int]] = []
    for number, at in enumerate(places(mesh, moving)):
        there: dict[str, int] = {}
        for source, target in lists:
            there |= digits_over(mesh, target, index_over(mesh, source, at))
        pairs.append((number, index_over(mesh, moving, there)))
    if all(source == target for source, target in pairs):
        return s.x
    return f"lax.ppermute({s.x}, {s.names(moving)}, {pairs})"


# ---------------------------------------------------------------------------------------------
# Steps that send nothing
# ---------------------------------------------------------------------------------------------


def _same(s: JaxStep) -> str:
    return s.x


def _slice(s: JaxStep) -> str:
    size = s.after[s.dim]
    start = f"{s.index(s.op.over)} * {size}"
    return f"lax.dynamic_slice_in_dim({s.x}, {start}, {size}, axis={s.dim})"


def _mask(s: JaxStep) -> str:
    neutral = s.number(s.op.word("reduction") == Reduction.PROD)
    neutral = neutral.removesuffix(".0")
    return f"jnp.where({s.index(s.op.over)} == 0, {s.x}, {neutral})"


def _assemble(s: JaxStep) -> str:
    return f"lax.select_n({s.index(s.op.over)}, {', '.join(s.inputs)})"


def _compute(s: JaxStep) -> str:
    if len(s.inputs) == 1:
        return s.x
    return f"lax.optimization_barrier({tuple_text(s.inputs)})[0]"


def _reshape(s: JaxStep) -> str:
    return s.reshaped(s.x, s.after)


def _transpose(s: JaxStep) -> str:
    order = s.op.sizes("order")
    return f"{s.x}.T" if order == (1, 0) else s.permuted(s.x, order)


def _pad(s: JaxStep) -> str:
    dim, low, high = (s.op.integer(name) for name in ("dim", "low", "high"))
    size, x = s.before[dim], s.x
    first, last = max(-low, 0), size + min(high, 0)
    if first or last != size:
        cut = f"{first or ''}:{last if last != size else ''}"
        x = f"{x}[{':, ' * dim}{cut}]"
    if low <= 0 and high <= 0:
        return x
    widths = ["(0, 0)"] * len(s.before)
    widths[dim] = f"({max(low, 0)}, {max(high, 0)})"
    value = s.number(s.op.number("value"))
    rest = "" if s.op.number("value") == 0 else f", constant_values={value}"
    return f"jnp.pad({x}, {tuple_text(widths)}{rest})"


def _scale(s: JaxStep) -> str:
    return f"{s.x} * {literal(s.op.number('factor'), s.operand.dtype)}"


def _cast(s: JaxStep) -> str:
    return f"{s.x}.astype({s.dtype})"


def _concat(s: JaxStep) -> str:
    if len(s.inputs) == 1:
        return s.x
    return s.call("concatenate", tuple_text(s.inputs), f"axis={s.dim}")


STEPS: dict[str, Expression[JaxStep]] = {
    "all_reduce": _all_reduce,
    "reduce": _all_reduce,
    "broadcast": _broadcast,
    "reduce_scatter": _reduce_scatter,
    "scatter": _scatter,
    "all_gather": _all_gather,
    "gather": _all_gather,
    "all_to_all": _all_to_all,
    "send": _send,
    "shift": _shift,
    "permute": _permute,
    "slice": _slice,
    "keep_root": _same,
    "keep": _same,
    "part": _same,
    "assemble": _assemble,
    "mask": _mask,
    "terms": _reshape,
    "split": _reshape,
    "merge": _reshape,
    "reshape": _reshape,
    "transpose": _transpose,
    "pad": _pad,
    "scale": _scale,
    "cast": _cast,
    "concat": _concat,
    "compute": _compute,
    "reinterpret": lambda s: s.x,
    "barrier": lambda s: f"lax.optimization_barrier({s.x})",
}
"""The expression of each step of the coll dialect that is no map."""
