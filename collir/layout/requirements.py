"""The conditions of the typing rules, with advice where they do not hold, and parts of results."""

from collections.abc import Sequence
from dataclasses import replace

from collir.layout.cuts import is_even, pieces, units
from collir.layout.errors import LayoutError
from collir.layout.mesh import Mesh, index_over
from collir.layout.sizes import explained, same_size
from collir.layout.types import (
    MAX_DIMS,
    Dim,
    DistType,
    check_cut,
    check_type,
    place_text,
    unknown_axis_message,
    with_axes,
)

Axes = tuple[str, ...]


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


def require(op: str, mesh: Mesh, x: DistType, axes: Axes, state: str) -> None:
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
            actual_state = _held_at(mesh, x, wrong) if actual == "root" else _STATES[actual]
            raise LayoutError(
                f"{{0}} is {actual_state} {listed(mesh, wrong)} here; {op} needs {wish}: "
                f"{_INSTEAD.get((op, actual), _ADVICE[state, actual])}",
                operand=0,
                axes=wrong,
            )


def _held_at(mesh: Mesh, x: DistType, axes: Axes) -> str:
    """Return where a value is that is held at one coordinate of sub-axes, as a message says it."""
    coordinate = index_over(mesh, axes, dict(x.place))
    return f"at {coordinate} on" if coordinate else "at root on"


def listed(mesh: Mesh, axes: Sequence[str]) -> str:
    """Return sub-axes as a message lists them."""
    return ", ".join(mesh.short(axes)) or "an axis of size 1"


def number_text(number: float) -> str:
    """Return a number as a message says it."""
    return repr(number).removesuffix(".0")


def plural(count: int) -> str:
    """Return the ending of a noun behind a number."""
    return "s" * (count != 1)


def partial_error(mesh: Mesh, x: DistType, problem: str, operand: int = 0) -> LayoutError:
    """Return the error that an operand is partial, with the reason why it must not be."""
    axes = mesh.ordered(x.partial)
    return LayoutError(
        f"{{{operand}}} is partial({x.reduction}) over {listed(mesh, axes)} here{problem}",
        operand=operand,
        axes=axes,
    )


def sharded_error(
    mesh: Mesh, x: DistType, dim: int, op: str, advice: str, operand: int = 0
) -> LayoutError:
    """Return the error that a dimension is sharded which ``op`` needs unsharded."""
    axes = x.dims[dim].axes
    return LayoutError(
        f"{{{operand}}} is sharded over {listed(mesh, axes)} on dimension {dim} here; {op} needs "
        f"that dimension whole on every device: {advice}",
        operand=operand,
        axes=axes,
    )


def require_shape(x: DistType, to: DistType, rule: str) -> None:
    """Check that a target type has the dtype and the shape of the operand, as a rule says."""
    if x.dtype != to.dtype or not same_size(x.shape, to.shape):
        raise LayoutError(
            f"{rule}: {{0}} is {x.dtype}{list(x.shape)}, the target is {to.dtype}{list(to.shape)}",
            parameter="to",
        )


def require_dim(op: str, x: DistType, dim: int, parameter: str = "dim") -> None:
    """Check that an operand has a dimension."""
    if not 0 <= dim < len(x.dims):
        rank = f"{len(x.dims)} dimension{plural(len(x.dims))}"
        counted = ", counted from 0" if 0 < dim == len(x.dims) else ""
        raise LayoutError(
            f"{op} has no dimension {dim} to work on: {{0}} has {rank}{counted}",
            operand=0,
            parameter=parameter,
        )


def require_suffix(
    op: str, mesh: Mesh, x: DistType, axes: Axes, dim: int, parameter: str = "dim"
) -> None:
    """Check that ``axes`` are, in this order, the minor-most sub-axes that shard ``dim``."""
    require_dim(op, x, dim, parameter)
    require(op, mesh, x, axes, "sharded")
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


def require_divides(
    op: str, mesh: Mesh, x: DistType, axes: Axes, dim: int, parameter: str = "dim"
) -> None:
    """Check that the group divides the local part of ``dim`` into blocks, one for each rank."""
    require_dim(op, x, dim, parameter)
    if mesh.uneven and not mesh.uneven.keys().isdisjoint(x.dims[dim].axes + axes):
        _require_units(op, mesh, x, axes, dim, parameter)
        return
    local = int(x.dims[dim].size) // units(mesh, x.dims[dim].axes)
    group = mesh.group_size(axes)
    if local % group:
        size = x.dims[dim].size
        part = "" if same_size(local, size) else f" (the local part of {explained(size)})"
        shown = explained(size) if same_size(local, size) else str(local)
        raise LayoutError(
            f"{op} over {listed(mesh, axes)} cuts dimension {dim} into {group} blocks, "
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
            f"{op} over {listed(mesh, axes)} cuts dimension {dim} of {{0}} by weights into "
            f"{parts} units of {listed(mesh, together)}, but {{0}} has {size} there, which "
            f"{parts} does not divide: pick another dimension, or pad this one",
            operand=0,
            parameter=parameter,
        )


def require_equal_blocks(op: str, mesh: Mesh, dim: Dim, axes: Axes, index: int) -> None:
    """Check that a dimension is cut into blocks of one size, if the step is over any sub-axis."""
    if axes and not is_even(mesh, dim.axes):
        raise LayoutError(
            f"{op} needs blocks of one size: the weights cut dimension {index} over "
            f"{listed(mesh, dim.axes)} into blocks that differ: use axes without weights there",
            axes=axes,
            parameter="axes",
        )


def require_pieces(op: str, mesh: Mesh, held: Axes, axes: Axes, index: int) -> tuple[int, ...]:
    """Return the shares of the coordinates over sub-axes in a dimension; all coordinates of the
    other sub-axes that shard it must have the same."""
    shares = pieces(mesh, held, axes)
    if shares is None:
        raise LayoutError(
            f"{op} needs a piece of one size at each coordinate: the weights cut dimension "
            f"{index} over {listed(mesh, axes)} differently along {listed(mesh, held)}: name "
            f"{listed(mesh, held + axes)}",
            axes=axes,
            parameter="axes",
        )
    return shares


def require_sizes(op: str, sizes: Sequence[int], parameter: str) -> None:
    """Check the sizes of dimensions that a step makes."""
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


def require_same(
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
    if not same_size(x.shape, y.shape):
        raise LayoutError(
            f"{op} needs one shape: {{0}} is {list(x.shape)} and {{{index}}} is {list(y.shape)}",
            operand=index,
        )
    _require_one_place(op, mesh, x, y, index)
    if not x.agrees(y):
        differing = [
            axis
            for axis in mesh.by_name
            if x.state_of(axis) != y.state_of(axis) or x.dim_of(axis) != y.dim_of(axis)
        ]
        first, second = (z.text(mesh) for z in shown or (x, y))
        where = f" (they differ over {listed(mesh, differing)})" if differing else ""
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
        advice = f"send {{{index}}} over {listed(mesh, both)} from {start} to {end}"
    else:
        ahead = differing <= x.placed
        there, far = (0, index) if ahead else (index, 0)
        axes = differing & (x if ahead else y).placed
        place = (item for item in (x if ahead else y).place if item[0] in axes)
        advice = f"keep {{{far}}} at {place_text(tuple(place), mesh)}"
        if any((y if ahead else x).state_of(axis) != "replicated" for axis in axes):
            advice = f"broadcast {{{there}}} over {listed(mesh, mesh.ordered(axes))}"
    raise LayoutError(
        f"{op} runs where its operands are: {{0}} is {place_shown(mesh, x)} and {{{index}}} is "
        f"{place_shown(mesh, y)}: {advice} first",
        operand=index,
        axes=mesh.ordered(differing),
    )


def place_shown(mesh: Mesh, x: DistType) -> str:
    """Return the place of a value as a message says it."""
    return f"at {place_text(x.place, mesh)}" if x.place else "at no one place"


# ---------------------------------------------------------------------------------------------
# Results
# ---------------------------------------------------------------------------------------------


def without_partial(x: DistType, axes: Axes) -> DistType:
    """Return the type of a value that was reduced over sub-axes."""
    partial = x.partial - frozenset(axes)
    return replace(x, partial=partial, reduction=x.reduction if partial else None)


def with_dim(x: DistType, index: int, *dims: Dim) -> DistType:
    """Return ``x`` with ``dims`` (none, one or several) in place of dimension ``index``."""
    return replace(x, dims=(*x.dims[:index], *dims, *x.dims[index + 1 :]))


def with_shards(x: DistType, axes: Axes, index: int) -> DistType:
    """Return a type with a dimension sharded over more sub-axes, the minor-most."""
    return with_axes(x, index, x.dims[index].axes + axes)


def without_shards(x: DistType, axes: Axes, index: int) -> DistType:
    """Return a type with a dimension not sharded over its minor-most sub-axes any more."""
    have = x.dims[index].axes
    return with_axes(x, index, have[: len(have) - len(axes)])


def checked(mesh: Mesh, x: DistType) -> DistType:
    """Check a type that a step enlarged or gave another dtype, and return it."""
    check_type(mesh, x)
    return x
