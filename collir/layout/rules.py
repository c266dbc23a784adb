"""The typing rules: which step leads from which layout to which.

Every rule takes a mesh, the operand types and the parameters of the step, and returns the type of
the result or raises ``LayoutError``. A function whose body type-checks implements the collective
its signature promises. The rules look at sub-axes and sizes only, never at devices, so checking a
step costs the same on 8 devices and on 100,000. The docstring of the rule of a step from one layout
to another gives the states of its sub-axes before and after.

Operand types are expected to be valid on the mesh (``check_type``). Every listed sub-axis must be
in the state a step needs; all other sub-axes pass unchanged. Over no sub-axes at all, a rule checks
its other parameters and returns its operand. The rules ignore integer overflow,
although with it some are wrong: scaling a partial max, for example, is then not monotone.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from collir.layout.cuts import group_shares, is_even, same_cut, units
from collir.layout.dtypes import DType, Reduction
from collir.layout.errors import LayoutError
from collir.layout.mesh import Mesh, digits_over, index_over
from collir.layout.sizes import explained
from collir.layout.structure import Linear, map_structure, typed
from collir.layout.types import (
    MAX_DIMS,
    Dim,
    DistType,
    Place,
    at_root,
    check_coordinate,
    check_cut,
    check_type,
    place_at,
    place_text,
    unknown_axis_message,
)

Axes = tuple[str, ...]


# ---------------------------------------------------------------------------------------------
# Preconditions
# ---------------------------------------------------------------------------------------------

_ADVICE = {
    ("partial", "sharded"): "nothing is left to reduce",
    ("partial", "root"): "it was reduced already: broadcast or scatter it",
    ("partial", "replicated"): "nothing is left to reduce",
    ("sharded", "partial"): "reduce_scatter it first",
    ("sharded", "root"): "scatter it first",
    ("sharded", "replicated"): "every device holds the whole already",
    ("root", "partial"): "reduce it first",
    ("root", "sharded"): "gather it first",
    ("root", "replicated"): "keep_root it first, or drop this step",
    ("replicated", "partial"): "all_reduce it first",
    ("replicated", "sharded"): "all_gather it first",
    ("replicated", "root"): "broadcast it first",
}

_INSTEAD = {
    ("reduce", "replicated"): "nothing is left to reduce: keep_root it instead",
    ("reduce_scatter", "replicated"): "nothing is left to reduce: slice it instead",
    ("reduce_scatter", "root"): "it was reduced already: scatter it instead",
    ("all_to_all", "replicated"): "every device holds the whole already: slice it instead",
    ("gather", "replicated"): "every device holds the whole already: keep_root it instead",
    ("scatter", "replicated"): "every device holds the whole already: slice it instead",
    ("broadcast", "replicated"): "every device holds the whole already: drop this step",
    ("slice", "partial"): "reduce_scatter it instead",
    ("slice", "root"): "scatter it instead",
    ("send", "partial"): "reduce it first",
    ("send", "sharded"): "take its part at one coordinate, or gather it first",
    ("send", "replicated"): "every coordinate holds it already: drop this step",
    ("shift", "replicated"): "every device holds the whole already: slice it first",
    ("part", "replicated"): "every device holds the whole already: slice it, or keep it there",
    ("assemble", "replicated"): "every coordinate holds the whole of it: keep it at one",
    ("terms", "replicated"): "nothing is left to reduce",
    ("terms", "sharded"): "nothing is left to reduce: all_to_all it to another dimension",
    ("keep_root", "partial"): "reduce it instead",
    ("keep_root", "sharded"): "gather it instead",
    ("keep", "partial"): "all_reduce it first, or reduce it and send the result",
    ("keep", "sharded"): "all_gather it first, or take its part there",
    ("keep", "root"): "it is held at one coordinate already: send it there",
}
"""Advice, by step and state of its operand, where one other step does the whole job."""

_WISHES: dict[str, str] = dict.fromkeys(("send", "assemble"), "it at one coordinate there")
"""The words for the state root where it is not that of a collective."""

_STATES = {"partial": "partial over", "sharded": "sharded over", "replicated": "replicated over"}


def _require(op: str, mesh: Mesh, x: DistType, axes: Axes, state: str) -> None:
    """Check that all of ``axes`` exist, are distinct, and are in ``state`` in ``x``."""
    for axis in axes:
        if axis not in mesh.by_name:
            raise LayoutError(unknown_axis_message(mesh, axis), axes=(axis,))
        if axes.count(axis) > 1:
            raise LayoutError(f"{op} names sub-axis {axis} twice", axes=(axis,))
    states = [x.state_of(axis) for axis in axes]
    for actual in ("partial", "sharded", "root", "replicated"):
        if actual in states and actual != state:
            wrong = tuple(axis for axis in axes if x.state_of(axis) == actual)
            wish = _WISHES.get(op, "it at root there") if state == "root" else f"it {state}"
            found = _held_at(mesh, x, wrong) if actual == "root" else _STATES[actual]
            raise LayoutError(
                f"{{0}} is {found} {_listed(mesh, wrong)} here; {op} needs {wish}: "
                f"{_INSTEAD.get((op, actual), _ADVICE[state, actual])}",
                operand=0,
                axes=wrong,
            )


def _held_at(mesh: Mesh, x: DistType, axes: Axes) -> str:
    """Return where a value is that is held at one coordinate of sub-axes, as a message says it."""
    coordinate = index_over(mesh, axes, dict(x.place))
    return f"at {coordinate} on" if coordinate else "at root on"


def _listed(mesh: Mesh, axes: Sequence[str]) -> str:
    """Return sub-axes as a message lists them."""
    return ", ".join(mesh.short(axes)) or "an axis of size 1"


def _shown(number: float) -> str:
    return repr(number).removesuffix(".0")


def _plural(count: int) -> str:
    return "s" * (count != 1)


def _partial_error(mesh: Mesh, x: DistType, problem: str, operand: int = 0) -> LayoutError:
    """Return the error that an operand is partial, and the problem with that."""
    axes = mesh.ordered(x.partial)
    return LayoutError(
        f"{{{operand}}} is partial({x.reduction}) over {_listed(mesh, axes)} here{problem}",
        operand=operand,
        axes=axes,
    )


def _sharded_error(
    mesh: Mesh, x: DistType, dim: int, op: str, advice: str, operand: int = 0
) -> LayoutError:
    """Return the error that a dimension is sharded that ``op`` needs unsharded."""
    axes = x.dims[dim].axes
    return LayoutError(
        f"{{{operand}}} is sharded over {_listed(mesh, axes)} on dimension {dim} here; {op} needs "
        f"that dimension whole on every device: {advice}",
        operand=operand,
        axes=axes,
    )


def _require_shape(x: DistType, to: DistType, rule: str) -> None:
    """Check that a target type has the dtype and the shape of the operand, as a rule says."""
    if (x.dtype, x.shape) != (to.dtype, to.shape):
        raise LayoutError(
            f"{rule}: {{0}} is {x.dtype}{list(x.shape)}, the target is {to.dtype}{list(to.shape)}",
            parameter="to",
        )


def _require_dim(op: str, x: DistType, dim: int, parameter: str = "dim") -> None:
    if not 0 <= dim < len(x.dims):
        rank = f"{len(x.dims)} dimension{_plural(len(x.dims))}"
        counted = ", counted from 0" if 0 < dim == len(x.dims) else ""
        raise LayoutError(
            f"{op} has no dimension {dim} to work on: {{0}} has {rank}{counted}",
            operand=0,
            parameter=parameter,
        )


def _require_suffix(
    op: str, mesh: Mesh, x: DistType, axes: Axes, dim: int, parameter: str = "dim"
) -> None:
    """Check that ``axes`` are, in this order, the minor-most sub-axes that shard ``dim``."""
    _require_dim(op, x, dim, parameter)
    _require(op, mesh, x, axes, "sharded")
    for axis in axes:
        if (sharded := x.dim_of(axis)) != dim:
            raise LayoutError(
                f"{{0}} is sharded over {axis} on dimension {sharded}, not {dim}: "
                f"write `dim {sharded}`",
                operand=0,
                axes=(axis,),
                parameter=parameter,
            )
    have = x.dims[dim].axes
    if have[max(0, len(have) - len(axes)) :] != axes:
        raise LayoutError(
            f"{{0}} is sharded over ({', '.join(have)}) on dimension {dim}, major to minor; "
            f"{op} takes the last of these in this order, "
            f"such as ({', '.join(have[-len(axes) :])}), or its blocks would be out of order",
            operand=0,
            axes=axes,
            parameter="axes",
        )


def _require_divides(
    op: str, mesh: Mesh, x: DistType, axes: Axes, dim: int, parameter: str = "dim"
) -> None:
    """Check that the group divides the local part of ``dim`` into blocks, one for each rank."""
    _require_dim(op, x, dim, parameter)
    if mesh.uneven and not mesh.uneven.keys().isdisjoint(x.dims[dim].axes + axes):
        _require_units(op, mesh, x, axes, dim, parameter)
        return
    local = int(x.dims[dim].size) // units(mesh, x.dims[dim].axes)
    group = mesh.group_size(axes)
    if local % group:
        size = x.dims[dim].size
        part = "" if local == size else f" (the local part of {explained(size)})"
        shown = explained(size) if local == size else str(local)
        raise LayoutError(
            f"{op} over {_listed(mesh, axes)} cuts dimension {dim} into {group} blocks, "
            f"but {{0}} has {shown} there{part}, which {group} does not divide: "
            "pick another dimension, or pad this one",
            operand=0,
            parameter=parameter,
        )


def _require_units(op: str, mesh: Mesh, x: DistType, axes: Axes, dim: int, parameter: str) -> None:
    """Check that the weights of ``axes`` cut ``dim``, as it is sharded, at integers."""
    together = x.dims[dim].axes + axes
    check_cut(mesh, together, dim)
    size, parts = x.dims[dim].size, units(mesh, together)
    if size % parts:
        raise LayoutError(
            f"{op} over {_listed(mesh, axes)} cuts dimension {dim} of {{0}} by weights into "
            f"{parts} units of {_listed(mesh, together)}, but {{0}} has {size} there, which "
            f"{parts} does not divide: pick another dimension, or pad this one",
            operand=0,
            parameter=parameter,
        )


def _require_equal_blocks(op: str, mesh: Mesh, dim: Dim, axes: Axes, index: int) -> None:
    """Check that a dimension is cut into blocks of one size, if the step is over any sub-axis."""
    if axes and not is_even(mesh, dim.axes):
        raise LayoutError(
            f"{op} needs blocks of one size: the weights cut dimension {index} over "
            f"{_listed(mesh, dim.axes)} into blocks that differ: use axes without weights there",
            axes=axes,
            parameter="axes",
        )


def _require_sizes(op: str, sizes: Sequence[int], parameter: str) -> None:
    if len(sizes) > MAX_DIMS:
        raise LayoutError(
            f"{op} makes {len(sizes)} dimensions; at most {MAX_DIMS} are possible",
            parameter=parameter,
        )
    if any(size < 1 for size in sizes):
        raise LayoutError(
            f"{op} to sizes {list(sizes)} is not possible: sizes are at least 1",
            parameter=parameter,
        )


def _require_same(
    op: str,
    mesh: Mesh,
    x: DistType,
    y: DistType,
    index: int,
    shown: tuple[DistType, DistType] | None = None,
) -> None:
    """Check that two operands have one dtype, shape and layout; messages print ``shown``."""
    if x.dtype != y.dtype:
        raise LayoutError(
            f"{op} needs one dtype: {{0}} is {x.dtype} and {{{index}}} is {y.dtype}: "
            "cast one of them",
            operand=index,
        )
    if x.shape != y.shape:
        raise LayoutError(
            f"{op} needs one shape: {{0}} is {list(x.shape)} and {{{index}}} is {list(y.shape)}",
            operand=index,
        )
    _require_one_place(op, mesh, x, y, index)
    if x != y:
        differing = [
            axis
            for axis in mesh.by_name
            if x.state_of(axis) != y.state_of(axis) or x.dim_of(axis) != y.dim_of(axis)
        ]
        first, second = (z.text(mesh) for z in shown or (x, y))
        where = f" (they differ over {_listed(mesh, differing)})" if differing else ""
        raise LayoutError(
            f"{op} needs operands of one layout: {{0}} is {first} and {{{index}}} is "
            f"{second}{where}",
            operand=index,
            axes=differing,
        )


def _require_one_place(op: str, mesh: Mesh, x: DistType, y: DistType, index: int) -> None:
    """Check that two operands are at one place, where one is at another coordinate than 0."""
    differing = {axis for axis, _ in {*x.place} ^ {*y.place}}
    if not any(coordinate for axis, coordinate in (*x.place, *y.place) if axis in differing):
        return
    both = mesh.ordered(differing & x.placed & y.placed)
    if both:
        start, end = (index_over(mesh, both, dict(z.place)) for z in (y, x))
        advice = f"send {{{index}}} over {_listed(mesh, both)} from {start} to {end}"
    else:
        ahead = differing <= x.placed
        there, other = (0, index) if ahead else (index, 0)
        axes = differing & (x if ahead else y).placed
        place = (item for item in (x if ahead else y).place if item[0] in axes)
        advice = f"keep {{{other}}} at {place_text(tuple(place), mesh)}"
        if any((y if ahead else x).state_of(axis) != "replicated" for axis in axes):
            advice = f"broadcast {{{there}}} over {_listed(mesh, mesh.ordered(axes))}"
    raise LayoutError(
        f"{op} runs where its operands are: {{0}} is {_place_shown(mesh, x)} and {{{index}}} is "
        f"{_place_shown(mesh, y)}: {advice} first",
        operand=index,
        axes=mesh.ordered(differing),
    )


def _place_shown(mesh: Mesh, x: DistType) -> str:
    """Return the place of a value as a message says it."""
    return f"at {place_text(x.place, mesh)}" if x.place else "at no one place"


# ---------------------------------------------------------------------------------------------
# Building results
# ---------------------------------------------------------------------------------------------


def _without_partial(x: DistType, axes: Axes) -> DistType:
    partial = x.partial - frozenset(axes)
    return replace(x, partial=partial, reduction=x.reduction if partial else None)


def _without_root(x: DistType, axes: Axes) -> DistType:
    return x.without_place(axes)


def _with_root(x: DistType, axes: Axes) -> DistType:
    return x.with_place(at_root(axes))


def _with_dim(x: DistType, index: int, *dims: Dim) -> DistType:
    """Return ``x`` with ``dims`` (none, one or several) in place of dimension ``index``."""
    return replace(x, dims=(*x.dims[:index], *dims, *x.dims[index + 1 :]))


def _append(x: DistType, axes: Axes, index: int) -> DistType:
    dim = x.dims[index]
    return _with_dim(x, index, Dim(dim.size, dim.axes + axes))


def _drop(x: DistType, axes: Axes, index: int) -> DistType:
    dim = x.dims[index]
    return _with_dim(x, index, Dim(dim.size, dim.axes[: len(dim.axes) - len(axes)]))


def _checked(mesh: Mesh, x: DistType) -> DistType:
    """Check a type that a step enlarged or gave another dtype, and return it."""
    check_type(mesh, x)
    return x


# ---------------------------------------------------------------------------------------------
# Collectives (design: the table of states)
# ---------------------------------------------------------------------------------------------


def all_reduce(mesh: Mesh, x: DistType, axes: Axes) -> DistType:
    """partial -> replicated."""
    _require("all_reduce", mesh, x, axes, "partial")
    return _without_partial(x, axes)


def reduce_scatter(mesh: Mesh, x: DistType, axes: Axes, dim: int) -> DistType:
    """partial -> sharded on ``dim``, appended minor-most in the written order."""
    _require("reduce_scatter", mesh, x, axes, "partial")
    _require_divides("reduce_scatter", mesh, x, axes, dim)
    return _append(_without_partial(x, axes), axes, dim)


def all_gather(mesh: Mesh, x: DistType, axes: Axes, dim: int) -> DistType:
    """sharded, as the exact minor-most suffix of ``dim`` -> replicated."""
    _require_suffix("all_gather", mesh, x, axes, dim)
    return _drop(x, axes, dim)


def reduce(mesh: Mesh, x: DistType, axes: Axes) -> DistType:
    """partial -> root."""
    _require("reduce", mesh, x, axes, "partial")
    return _with_root(_without_partial(x, axes), axes)


def broadcast(mesh: Mesh, x: DistType, axes: Axes) -> DistType:
    """root -> replicated."""
    _require("broadcast", mesh, x, axes, "root")
    return _without_root(x, axes)


def scatter(mesh: Mesh, x: DistType, axes: Axes, dim: int) -> DistType:
    """root -> sharded on ``dim``, appended minor-most in the written order."""
    _require("scatter", mesh, x, axes, "root")
    _require_divides("scatter", mesh, x, axes, dim)
    start = index_over(mesh, axes, dict(x.place))
    if start and group_shares(mesh, x.dims[dim].axes, axes) is not None:
        over = _listed(mesh, axes)
        raise LayoutError(
            f"{{0}} is at {start} on {over} here; scatter into blocks that differ in size starts "
            f"at root: send {{0}} over {over} from {start} to 0 first",
            operand=0,
            axes=axes,
        )
    return _append(_without_root(x, axes), axes, dim)


def gather(mesh: Mesh, x: DistType, axes: Axes, dim: int) -> DistType:
    """sharded, as the exact minor-most suffix of ``dim`` -> root."""
    _require_suffix("gather", mesh, x, axes, dim)
    return _with_root(_drop(x, axes, dim), axes)


def all_to_all(mesh: Mesh, x: DistType, axes: Axes, source: int, target: int) -> DistType:
    """sharded, as the exact minor-most suffix of ``source`` -> sharded, appended to ``target``."""
    if source == target:
        raise LayoutError(
            "all_to_all moves shards from one dimension to another: give two different ones",
            parameter="target",
        )
    _require_suffix("all_to_all", mesh, x, axes, source, "source")
    _require_divides("all_to_all", mesh, x, axes, target, "target")
    return _append(_drop(x, axes, source), axes, target)


def send(mesh: Mesh, x: DistType, axes: Axes, sender: int, receiver: int) -> DistType:
    """root, at one coordinate -> root, at another."""
    _require("send", mesh, x, axes, "root")
    check_coordinate(mesh, axes, sender, "sender")
    check_coordinate(mesh, axes, receiver, "receiver")
    here = index_over(mesh, axes, dict(x.place))
    if here != sender:
        raise LayoutError(
            f"{{0}} is at {here} on {_listed(mesh, axes)} here, not at {sender}: "
            f"write `from {here}`",
            operand=0,
            axes=axes,
            parameter="sender",
        )
    if receiver == sender:
        raise LayoutError(
            f"{{0}} is at {receiver} on {_listed(mesh, axes)} already: drop this step, or send it "
            "to another coordinate",
            operand=0,
            axes=axes,
            parameter="receiver",
        )
    return x.with_place(digits_over(mesh, axes, receiver))


def shift(mesh: Mesh, x: DistType, axes: Axes, distance: int, is_open: bool) -> DistType:
    """Move the blocks of a sharded dimension along a ring: coordinate i gets that of i - distance.

    With ``is_open`` the ring does not close, and coordinates that get nothing hold zeros. A zero
    on every device is a zero, whatever the reduction of a partial value is.
    """
    _require("shift", mesh, x, axes, "sharded")
    size = mesh.group_size(axes)
    if distance == 0 or (is_open and abs(distance) >= size):
        left = "every block stays where it is" if distance == 0 else "no block is left"
        raise LayoutError(
            f"shift by {distance} over the {size} coordinates of {_listed(mesh, axes)}: {left}",
            parameter="distance",
        )
    if not axes:
        return x
    dims = [dim for axis in axes if (dim := x.dim_of(axis)) is not None]
    if len(set(dims)) > 1:
        raise LayoutError(
            f"{{0}} is sharded over {axes[0]} on dimension {dims[0]} and over "
            f"{axes[dims.index(next(dim for dim in dims if dim != dims[0]))]} on another: shift "
            "moves the blocks of one dimension",
            operand=0,
            axes=axes,
            parameter="axes",
        )
    _require_suffix("shift", mesh, x, axes, dims[0], "axes")
    _require_equal_blocks("shift", mesh, x.dims[dims[0]], axes, dims[0])
    return x


def permute(mesh: Mesh, x: DistType, to: DistType) -> DistType:
    """Any replicated/sharded layout -> another with equal shard counts in every dimension."""
    check_type(mesh, to)
    _require_shape(x, to, "permute moves blocks and changes nothing else")
    if (x.partial, x.reduction, x.place) != (to.partial, to.reduction, to.place):
        raise LayoutError(
            "permute changes sharded and replicated sub-axes only: what is partial or at root "
            f"stays, but {{0}} is {x.text(mesh)} and the target is {to.text(mesh)}",
            operand=0,
            parameter="to",
            axes=mesh.ordered(
                x.partial ^ to.partial | {axis for axis, _ in {*x.place} ^ {*to.place}}
            ),
        )
    for index, (dim, want) in enumerate(zip(x.dims, to.dims, strict=True)):
        have, need = mesh.group_size(dim.axes), mesh.group_size(want.axes)
        if have != need:
            raise LayoutError(
                f"permute keeps the number of shards of every dimension: dimension {index} of "
                f"{{0}} has {have}, and {need} in the target",
                operand=0,
                axes=dim.axes,
                parameter="to",
            )
        if not same_cut(mesh, dim.axes, want.axes):
            raise LayoutError(
                f"permute moves whole blocks: the weights cut dimension {index} of {{0}}, sharded "
                f"over {_listed(mesh, dim.axes)}, into other blocks than the target over "
                f"{_listed(mesh, want.axes)}: all_gather it and slice it instead",
                operand=0,
                axes=dim.axes,
                parameter="to",
            )
    return to


def redistribute(mesh: Mesh, x: DistType, to: DistType) -> DistType:
    """Any layout -> any other, by steps that a search finds.

    A sub-axis on which only the target is partial needs a mask.
    """
    check_type(mesh, to)
    _require_shape(x, to, "redistribute changes the layout and nothing else")
    new = mesh.ordered(to.partial - x.partial)
    if new and to.reduction not in (Reduction.SUM, Reduction.PROD):
        raise LayoutError(
            f"no step makes a value partial({to.reduction}) over {_listed(mesh, new)}: "
            "mask makes partial(sum) or partial(prod) only",
            parameter="to",
        )
    if away := unreached(x, to):
        _refuse_place(mesh, x, to, mesh.ordered(away))
    kept = mesh.ordered(x.partial & to.partial)
    if kept and x.reduction != to.reduction:
        raise LayoutError(
            f"{{0}} is partial({x.reduction}) over {_listed(mesh, kept)} and the target "
            f"partial({to.reduction}): no step leads from one to the other but by way of the "
            "reduced value, so redistribute to that first",
            operand=0,
            axes=kept,
            parameter="to",
        )
    return to


def unreached(x: DistType, to: DistType) -> list[str]:
    """Return the sub-axes on which the target is at a coordinate that no redistribution leads to.

    Steps that search find end at the coordinate where the value was, or at coordinate 0.
    """
    at = dict(x.place)
    return [axis for axis, coordinate in to.place if at.get(axis, 0) != coordinate]


def _refuse_place(mesh: Mesh, x: DistType, to: DistType, axes: Axes) -> None:
    """Refuse to redistribute to a place.

    Raises:
        LayoutError: always.
    """
    names = {mesh.by_name[axis].axis for axis in axes}
    axes = mesh.ordered(axis for axis in to.placed if mesh.by_name[axis].axis in names)
    end = index_over(mesh, axes, dict(to.place))
    held = all(axis in x.placed for axis in axes)
    start = index_over(mesh, axes, dict(x.place)) if held else 0
    raise LayoutError(
        f"redistribute takes a value to coordinate {end} of {_listed(mesh, axes)} only if it is "
        f"there before: redistribute it to {'the place where it is' if held else 'root'}, and send "
        f"it over {_listed(mesh, axes)} from {start} to {end}",
        operand=0,
        axes=axes,
        parameter="to",
    )


# ---------------------------------------------------------------------------------------------
# Local operations: nothing is sent
# ---------------------------------------------------------------------------------------------


def slice(mesh: Mesh, x: DistType, axes: Axes, dim: int) -> DistType:
    """replicated -> sharded on ``dim``, appended minor-most in the written order."""
    _require("slice", mesh, x, axes, "replicated")
    _require_divides("slice", mesh, x, axes, dim)
    return _append(x, axes, dim)


def keep_root(mesh: Mesh, x: DistType, axes: Axes) -> DistType:
    """replicated -> root."""
    _require("keep_root", mesh, x, axes, "replicated")
    return _with_root(x, axes)


def keep(mesh: Mesh, x: DistType, place: Place) -> DistType:
    """replicated -> root, at any coordinate."""
    _require("keep", mesh, x, mesh.ordered(dict(place)) or tuple(dict(place)), "replicated")
    for axis, coordinate in place:
        check_coordinate(mesh, (axis,), coordinate, "place")
    return x.with_place(place)


def part(mesh: Mesh, x: DistType, axes: Axes, coordinate: int, dim: int) -> DistType:
    """Return the piece of a sharded dimension that one coordinate of its sub-axes holds.

    The sub-axes are the exact minor-most suffix of the dimension; the piece is at the coordinate.
    """
    _require_suffix("part", mesh, x, axes, dim)
    _require_equal_blocks("part", mesh, x.dims[dim], axes, dim)
    check_coordinate(mesh, axes, coordinate, "coordinate")
    have = x.dims[dim]
    piece = Dim(have.size // mesh.group_size(axes), have.axes[: len(have.axes) - len(axes)])
    return _with_dim(x, dim, piece).with_place(digits_over(mesh, axes, coordinate))


def assemble(mesh: Mesh, pieces: Sequence[DistType], axes: Axes, dim: int) -> DistType:
    """Return the dimension whose pieces are at the coordinates of sub-axes, in order.

    It is sharded over the sub-axes, minor-most in the written order.
    """
    _require("assemble", mesh, pieces[0], axes, "root")
    size = mesh.group_size(axes)
    if len(pieces) != size:
        raise LayoutError(
            f"assemble over {_listed(mesh, axes)} takes the pieces of all {size} coordinates, in "
            f"order; there are {len(pieces)}",
            parameter="axes",
        )
    first = pieces[0].without_place(axes)
    _require_dim("assemble", first, dim)
    for index, piece in enumerate(pieces):
        here = index_over(mesh, axes, dict(piece.place)) if piece.placed.issuperset(axes) else None
        if here != index:
            place = f"at {here} on" if here is not None else "at no one coordinate of"
            advice = (
                f"keep it at {place_text(place_at(digits_over(mesh, axes, index)), mesh)}"
                if here is None
                else f"send it over {_listed(mesh, axes)} from {here} to {index}"
            )
            raise LayoutError(
                f"{{{index}}} is {place} {_listed(mesh, axes)} here; assemble takes the pieces in "
                f"the order of their coordinates, and this is number {index}: {advice} first, or "
                "give the operands in order",
                operand=index,
                axes=axes,
            )
        whole = piece.without_place(axes)
        _require_same("assemble", mesh, first, whole, index, shown=(pieces[0], piece))
    whole = Dim(first.dims[dim].size * size, first.dims[dim].axes + axes)
    _require_equal_blocks("assemble", mesh, whole, axes, dim)
    return _checked(mesh, _with_dim(first, dim, whole))


def mask(mesh: Mesh, x: DistType, axes: Axes, reduction: str) -> DistType:
    """replicated -> partial(sum) or partial(prod): coordinates other than 0 hold the identity."""
    if reduction not in list(Reduction):
        raise LayoutError(
            f"'{reduction}' is not a reduction: use {', '.join(Reduction)}", parameter="reduction"
        )
    if reduction not in (Reduction.SUM, Reduction.PROD):
        raise LayoutError(
            f"mask makes partial(sum) or partial(prod), not partial({reduction}): "
            f"the {reduction} of equal copies is the copy itself, so there is nothing to mask",
            parameter="reduction",
        )
    _require("mask", mesh, x, axes, "replicated")
    if axes and x.reduction not in (None, reduction):
        raise LayoutError(
            f"{{0}} is partial({x.reduction}) already: a value has one reduction on all its "
            f"sub-axes, so it cannot become partial({reduction}) as well",
            operand=0,
            axes=mesh.ordered(x.partial),
        )
    partial = x.partial | frozenset(axes)
    reduced = Reduction(reduction) if axes else x.reduction
    return _checked(mesh, replace(x, partial=partial, reduction=reduced))


def terms(mesh: Mesh, x: DistType, axes: Axes, dim: int) -> DistType:
    """partial -> sharded on a new dimension ``dim``, which has a row for the term of each device.

    The sum, or the average, of the rows is the value. Rows are in the written order of sub-axes.
    """
    _require("terms", mesh, x, axes, "partial")
    if x.reduction not in (Reduction.SUM, Reduction.AVG):
        problem = ", and terms are those of a sum or avg: reduce it, which rounds nothing"
        raise _partial_error(mesh, x, problem)
    if not 0 <= dim <= len(x.dims):
        raise LayoutError(
            f"terms makes a new dimension, which is 0 to {len(x.dims)} here", parameter="dim"
        )
    _require_sizes("terms", [*x.shape, mesh.group_size(axes)], "dim")
    rows = Dim(mesh.group_size(axes), axes)
    _require_equal_blocks("terms", mesh, rows, axes, dim)
    bare = _without_partial(x, axes)
    return _checked(mesh, replace(bare, dims=(*bare.dims[:dim], rows, *bare.dims[dim:])))


def split(mesh: Mesh, x: DistType, dim: int, sizes: tuple[int, ...]) -> DistType:
    """N on L1+L2 -> m on L1, k on L2: a view.

    Allowed iff L2 is empty and the shards of L1 divide m, or the shards of L1 are exactly m and
    those of L2 divide k. Of an uneven cut the units count as its shards; m shards of one row are
    even.
    """
    if len(sizes) != 2:
        raise LayoutError(
            f"split makes two dimensions out of one, not {len(sizes)}", parameter="sizes"
        )
    _require_dim("split", x, dim)
    size, axes = x.dims[dim].size, x.dims[dim].axes
    outer, inner = sizes
    _require_sizes("split", sizes, "sizes")
    if outer * inner != size:
        raise LayoutError(
            f"split into [{outer}, {inner}] does not fit dimension {dim} of {{0}}: "
            f"{outer} * {inner} is not {size}",
            parameter="sizes",
        )
    for cut in range(len(axes), -1, -1):
        major, minor = axes[:cut], axes[cut:]
        shards = units(mesh, major)
        fits = outer % shards == 0 if not minor else mesh.group_size(major) == shards == outer
        if fits and inner % units(mesh, minor) == 0:
            return _checked(mesh, _with_dim(x, dim, Dim(outer, major), Dim(inner, minor)))
    parts = "shards" if is_even(mesh, axes) else "units"
    raise LayoutError(
        f"dimension {dim} of {{0}} is sharded over {_listed(mesh, axes)} "
        f"({units(mesh, axes)} {parts}); split into [{outer}, {inner}] would cut across its "
        f"blocks: let the first size be a multiple of the {parts}, or be exactly the shards of a "
        "major part of these sub-axes",
        operand=0,
        axes=axes,
        parameter="sizes",
    )


def merge(mesh: Mesh, x: DistType, dim: int) -> DistType:
    """m on L1, k on L2 -> m*k on L1+L2: the view that undoes ``split``."""
    _require_dim("merge", x, dim)
    if dim + 1 == len(x.dims):
        raise LayoutError(
            f"merge joins a dimension and the one behind it; dimension {dim} is the last of {{0}}",
            parameter="dim",
        )
    outer, inner = x.dims[dim], x.dims[dim + 1]
    shards = mesh.group_size(outer.axes)
    if inner.axes and not shards == units(mesh, outer.axes) == outer.size:
        raise LayoutError(
            f"dimension {dim + 1} of {{0}} is sharded over {_listed(mesh, inner.axes)}, "
            f"so dimension {dim} must have exactly one row per shard to merge them, but it has "
            f"{outer.size} rows in {shards} shard{_plural(shards)}: all_gather dimension "
            f"{dim + 1} first",
            operand=0,
            axes=inner.axes,
        )
    merged = Dim(outer.size * inner.size, outer.axes + inner.axes)
    return replace(x, dims=(*x.dims[:dim], merged, *x.dims[dim + 2 :]))


def reshape(mesh: Mesh, x: DistType, shape: tuple[int, ...]) -> DistType:
    """Return a view under another global shape: merges and splits, which move nothing."""
    _require_sizes("reshape", shape, "shape")
    if math.prod(shape) != x.elements:
        raise LayoutError(
            f"reshape to {list(shape)} does not fit {{0}} of shape {list(x.shape)}: "
            "the number of elements differs",
            parameter="shape",
        )
    result = replace(x, dims=())
    for sources, targets in _reshape_groups(x.shape, shape):
        part = replace(x, dims=tuple(x.dims[i] for i in sources) or (Dim(1),))
        try:
            while len(part.dims) > 1:
                part = merge(mesh, part, 0)
            for index, target in enumerate(targets[:-1]):
                rest = part.dims[index].size // target
                part = split(mesh, part, index, (target, rest))
        except LayoutError as error:
            raise LayoutError(
                f"reshape to {list(shape)} would move data of {{0}}, which is {x.text(mesh)}: "
                "all_gather the sharded dimension first, or keep its shards together",
                operand=0,
                parameter="shape",
                axes=error.axes,
            ) from error
        result = replace(result, dims=result.dims + (part.dims if targets else ()))
    dims = (Dim(size, dim.axes) for size, dim in zip(shape, result.dims, strict=True))
    return replace(result, dims=tuple(dims))  # sizes as they are written, with their formulas


def _reshape_groups(
    source: tuple[int, ...], target: tuple[int, ...]
) -> list[tuple[list[int], list[int]]]:
    """Return the finest groups (source indices, target sizes) of equal products of a reshape."""
    groups: list[tuple[list[int], list[int]]] = [([], [])]
    i = j = 0
    while i < len(source) and j < len(target):
        have, want = source[i], target[j]
        sources, targets = [i], [want]
        i, j = i + 1, j + 1
        while have != want:  # the totals are equal, so the smaller side has more dimensions
            if have < want or j == len(target):
                have *= source[i]
                sources.append(i)
                i += 1
            else:
                want *= target[j]
                targets.append(target[j])
                j += 1
        groups.append((sources, targets))
    groups[-1][0].extend(range(i, len(source)))  # the dimensions left have size 1
    groups[-1][1].extend(target[j:])
    return [group for group in groups if group != ([], [])]


def transpose(mesh: Mesh, x: DistType, order: tuple[int, ...]) -> DistType:
    """Put the dimensions in another order; each keeps its shards."""
    if sorted(order) != list(range(len(x.dims))):
        raise LayoutError(
            f"transpose needs each dimension of {{0}} once: "
            f"{list(order)} is not a permutation of {list(range(len(x.dims)))}",
            parameter="order",
        )
    return replace(x, dims=tuple(x.dims[i] for i in order))


def concat(mesh: Mesh, parts: Sequence[DistType], dim: int) -> DistType:
    """Concatenate operands of one layout along an unsharded dimension."""
    first = parts[0]
    _require_dim("concat", first, dim)
    for index, part in enumerate(parts):
        if dim < len(part.dims) and part.dims[dim].axes:
            raise _sharded_error(mesh, part, dim, "concat", "all_gather it first", index)
        if len(part.dims) == len(first.dims):
            aligned = _with_dim(part, dim, first.dims[dim])
        else:
            aligned = part
        _require_same("concat", mesh, first, aligned, index, shown=(first, part))
    total = sum(part.dims[dim].size for part in parts)
    return _checked(mesh, _with_dim(first, dim, Dim(total)))


_IDEMPOTENT = {Reduction.SUM: (0.0,), Reduction.PROD: (0.0, 1.0)}
"""Constants that a reduction of equal copies leaves unchanged; for other reductions, any."""


def pad(mesh: Mesh, x: DistType, dim: int, low: int, high: int, value: float) -> DistType:
    """Add ``low`` elements in front and ``high`` behind, or cut off negative ones (as in XLA).

    The dimension must be whole on every device. A partial value may only be padded with a value
    whose copies reduce to itself: 0 for sum, 0 or 1 for prod, any value for avg, max and min.
    """
    _require_dim("pad", x, dim)
    if axes := x.dims[dim].axes:
        shards = units(mesh, axes)
        advice = (
            f"split it into [{shards}, {x.dims[dim].size // shards}] and pad the second part, or "
            "all_gather it first"
        )
        raise _sharded_error(mesh, x, dim, "pad", advice)
    size = x.dims[dim].size
    if min(low, 0) + min(high, 0) + size < 1:
        raise LayoutError(
            f"pad cuts {-min(low, 0) - min(high, 0)} elements off dimension {dim} of {{0}}, "
            f"which has {size}: nothing would be left",
            operand=0,
        )
    grows = low > 0 or high > 0
    if grows and not x.dtype.represents(value):
        raise LayoutError(
            f"pad value {_shown(value)} is not a value of {x.dtype}", parameter="value"
        )
    idempotent = _IDEMPOTENT.get(x.reduction) if x.reduction else None
    if grows and idempotent is not None and value not in idempotent:
        allowed = " or ".join(_shown(v) for v in idempotent)
        problem = (
            f", and every device would bring in its own {_shown(value)}: "
            f"pad it with {allowed}, or all_reduce it first"
        )
        raise _partial_error(mesh, x, problem)
    return _checked(mesh, _with_dim(x, dim, Dim(size + low + high)))


_SHIFTED = (Reduction.AVG, Reduction.MAX, Reduction.MIN)
"""The reductions of values, to all of which the same is added, that equal the sum."""


def add(mesh: Mesh, x: DistType, y: DistType) -> DistType:
    """Add two operands elementwise, with numpy's broadcasting.

    Partial values add if both are partial(sum) or partial(avg) over the same sub-axes. To a value
    that is partial(avg), partial(max) or partial(min), a value that is replicated there adds too.
    """
    if DType.BOOL in (x.dtype, y.dtype):
        raise LayoutError("values of bool have no sum: cast them to a number first", operand=0)
    if x.shape != y.shape:
        return _add_repeated(mesh, x, y)
    for index, (partial, other) in enumerate(((x, y), (y, x))):
        if partial.reduction in _SHIFTED and not other.partial:
            bare = replace(partial, partial=frozenset[str](), reduction=None)
            if bare == other:
                return partial
            pair = (bare, other) if index == 0 else (other, bare)
            _require_same("add", mesh, *pair, 1, shown=(x, y))
    for operand, (partial, other) in enumerate(((x, y), (y, x))):
        if partial.reduction is Reduction.SUM and not other.partial:
            where = _listed(mesh, mesh.ordered(partial.partial))
            problem = (
                f" and {{{1 - operand}}} is not: every device would add the whole of "
                f"{{{1 - operand}}}: all_reduce {{{operand}}} first, or mask {{{1 - operand}}} "
                f"over {where}"
            )
            raise _partial_error(mesh, partial, problem, operand)
    _require_same("add", mesh, x, y, 1)
    if x.reduction and not x.reduction.linear:
        raise LayoutError(
            f"both operands are partial({x.reduction}): the {x.reduction} of a sum is not the sum "
            f"of two: all_reduce one of them first",
            operand=0,
            axes=mesh.ordered(x.partial),
        )
    return x


def _add_repeated(mesh: Mesh, x: DistType, y: DistType) -> DistType:
    """Return the type of a sum of operands of different shapes, by its index structure."""
    pairs = zip(reversed(x.shape), reversed(y.shape), strict=False)
    if x.dtype is not y.dtype or any(a != b and 1 not in (a, b) for a, b in pairs):
        _require_same("add", mesh, x, y, 1)
    structure = map_structure("add", [x, y], Linear.ALL)
    for partial, other in ((x, y), (y, x)):
        if partial.reduction in _SHIFTED and not other.partial:
            bare = [_without_partial(z, tuple(z.partial)) for z in (x, y)]
            whole = typed("add", mesh, structure, bare, x.dtype)
            result = replace(whole, partial=partial.partial, reduction=partial.reduction)
            return _checked(mesh, result)
    return typed("add", mesh, structure, [x, y], x.dtype)


def scale(mesh: Mesh, x: DistType, factor: float) -> DistType:
    """Multiply every element by a constant; a negative one turns a partial max into a min."""
    if x.dtype is DType.BOOL:
        raise LayoutError("values of bool have no product: cast them to a number first", operand=0)
    if not x.dtype.represents(factor):
        raise LayoutError(
            f"factor {_shown(factor)} is not a value of {x.dtype}", parameter="factor"
        )
    swap: dict[Reduction | None, Reduction] = {
        Reduction.MAX: Reduction.MIN,
        Reduction.MIN: Reduction.MAX,
    }
    if x.reduction is Reduction.PROD:
        problem = ", and every device would bring the factor in once: all_reduce it first"
        raise _partial_error(mesh, x, problem)
    if factor < 0 and x.reduction in swap:
        return replace(x, reduction=swap[x.reduction])
    return x


def cast(mesh: Mesh, x: DistType, dtype: str) -> DistType:
    """Convert every element to the named dtype.

    A partial sum, avg or prod may only be widened: rounding each part is not rounding the whole.
    A partial max or min takes every nondecreasing cast: all but those between integers that wrap
    around, and those to bool, of which every number but 0 is true.
    """
    if dtype not in list(DType):
        raise LayoutError(f"'{dtype}' is not a dtype: use {', '.join(DType)}", parameter="dtype")
    target = DType(dtype)
    result = replace(x, dtype=target)
    if x.reduction is None or target.holds(x.dtype):
        return _checked(mesh, result)
    wraps = not target.is_float and not x.dtype.is_float
    if x.reduction not in (Reduction.MAX, Reduction.MIN) or wraps or target is DType.BOOL:
        problem = (
            f", and {dtype} does not hold every {x.dtype}: narrowing the parts is not narrowing "
            f"the {x.reduction}: all_reduce it first"
        )
        raise _partial_error(mesh, x, problem)
    return result


def compute(mesh: Mesh, operands: Sequence[DistType], flops: float) -> DistType:
    """Return the first operand, after ``flops`` operations on each device that holds it."""
    first = operands[0]
    for index, x in enumerate(operands):
        away = mesh.ordered(axis for axis, n in x.place if dict(first.place).get(axis, n) != n)
        if away:
            start, end = (index_over(mesh, away, dict(z.place)) for z in (x, first))
            raise LayoutError(
                f"compute runs where its operands are: {{0}} is {_place_shown(mesh, first)} and "
                f"{{{index}}} is {_place_shown(mesh, x)}: send {{{index}}} over "
                f"{_listed(mesh, away)} from {start} to {end} first",
                operand=index,
                axes=away,
            )
    if not 0 <= flops < math.inf:
        raise LayoutError("flops is a number of operations, 0 or more", parameter="flops")
    return operands[0]


def barrier(mesh: Mesh, x: DistType) -> DistType:
    """Return the operand; no pass merges the step with another, or moves a step through it."""
    return x
