"""The typing rules: the layouts to which each step leads from each layout.

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

from collections.abc import Sequence
from dataclasses import replace

from collir.layout.cuts import group_shares, same_cut
from collir.layout.dtypes import Reduction
from collir.layout.errors import LayoutError
from collir.layout.mesh import Mesh, digits_over, index_over
from collir.layout.requirements import (
    Axes,
    checked,
    listed,
    partial_error,
    require,
    require_dim,
    require_divides,
    require_equal_blocks,
    require_pieces,
    require_same,
    require_shape,
    require_sizes,
    require_suffix,
    with_dim,
    with_shards,
    without_partial,
    without_shards,
)
from collir.layout.sizes import same_size
from collir.layout.types import (
    Dim,
    DistType,
    Place,
    at_root,
    check_coordinate,
    check_type,
    place_at,
    place_text,
)

# ---------------------------------------------------------------------------------------------
# Collectives (design: the table of states)
# ---------------------------------------------------------------------------------------------


def all_reduce(mesh: Mesh, x: DistType, axes: Axes) -> DistType:
    """partial -> replicated."""
    require("all_reduce", mesh, x, axes, "partial")
    return without_partial(x, axes)


def reduce_scatter(mesh: Mesh, x: DistType, axes: Axes, dim: int) -> DistType:
    """partial -> sharded on ``dim``, appended minor-most in the written order."""
    require("reduce_scatter", mesh, x, axes, "partial")
    require_divides("reduce_scatter", mesh, x, axes, dim)
    return with_shards(without_partial(x, axes), axes, dim)


def all_gather(mesh: Mesh, x: DistType, axes: Axes, dim: int) -> DistType:
    """sharded, as the exact minor-most suffix of ``dim`` -> replicated."""
    require_suffix("all_gather", mesh, x, axes, dim)
    return without_shards(x, axes, dim)


def reduce(mesh: Mesh, x: DistType, axes: Axes) -> DistType:
    """partial -> root."""
    require("reduce", mesh, x, axes, "partial")
    return without_partial(x, axes).with_place(at_root(axes))


def broadcast(mesh: Mesh, x: DistType, axes: Axes) -> DistType:
    """root -> replicated."""
    require("broadcast", mesh, x, axes, "root")
    return x.without_place(axes)


def scatter(mesh: Mesh, x: DistType, axes: Axes, dim: int) -> DistType:
    """root -> sharded on ``dim``, appended minor-most in the written order."""
    require("scatter", mesh, x, axes, "root")
    require_divides("scatter", mesh, x, axes, dim)
    start = index_over(mesh, axes, dict(x.place))
    if start and group_shares(mesh, x.dims[dim].axes, axes) is not None:
        over = listed(mesh, axes)
        raise LayoutError(
            f"{{0}} is at {start} on {over} here; scatter into blocks that differ in size starts "
            f"at root: send {{0}} over {over} from {start} to 0 first",
            operand=0,
            axes=axes,
        )
    return with_shards(x.without_place(axes), axes, dim)


def gather(mesh: Mesh, x: DistType, axes: Axes, dim: int) -> DistType:
    """sharded, as the exact minor-most suffix of ``dim`` -> root."""
    require_suffix("gather", mesh, x, axes, dim)
    return without_shards(x, axes, dim).with_place(at_root(axes))


def all_to_all(mesh: Mesh, x: DistType, axes: Axes, source: int, target: int) -> DistType:
    """sharded, as the exact minor-most suffix of ``source`` -> sharded, appended to ``target``."""
    if source == target:
        raise LayoutError(
            "all_to_all moves shards from one dimension to another: give two different ones",
            parameter="target",
        )
    require_suffix("all_to_all", mesh, x, axes, source, "source")
    require_divides("all_to_all", mesh, x, axes, target, "target")
    return with_shards(without_shards(x, axes, source), axes, target)


def send(mesh: Mesh, x: DistType, axes: Axes, sender: int, receiver: int) -> DistType:
    """root, at one coordinate -> root, at another."""
    require("send", mesh, x, axes, "root")
    check_coordinate(mesh, axes, sender, "sender")
    check_coordinate(mesh, axes, receiver, "receiver")
    here = index_over(mesh, axes, dict(x.place))
    if here != sender:
        raise LayoutError(
            f"{{0}} is at {here} on {listed(mesh, axes)} here, not at {sender}: "
            f"write `from {here}`",
            operand=0,
            axes=axes,
            parameter="sender",
        )
    if receiver == sender:
        raise LayoutError(
            f"{{0}} is at {receiver} on {listed(mesh, axes)} already: drop this step, or send it "
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
    require("shift", mesh, x, axes, "sharded")
    size = mesh.group_size(axes)
    if distance == 0 or (is_open and abs(distance) >= size):
        left = "every block stays where it is" if distance == 0 else "no block is left"
        raise LayoutError(
            f"shift by {distance} over the {size} coordinates of {listed(mesh, axes)}: {left}",
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
    require_suffix("shift", mesh, x, axes, dims[0], "axes")
    require_equal_blocks("shift", mesh, x.dims[dims[0]], axes, dims[0])
    return x


def permute(mesh: Mesh, x: DistType, to: DistType) -> DistType:
    """Any replicated/sharded layout -> another with equal shard counts in every dimension."""
    check_type(mesh, to)
    require_shape(x, to, "permute moves blocks and changes nothing else")
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
                f"over {listed(mesh, dim.axes)}, into other blocks than the target over "
                f"{listed(mesh, want.axes)}: all_gather it and slice it instead",
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
    require_shape(x, to, "redistribute changes the layout and nothing else")
    new = mesh.ordered(to.partial - x.partial)
    if new and to.reduction not in (Reduction.SUM, Reduction.PROD):
        raise LayoutError(
            f"no step makes a value partial({to.reduction}) over {listed(mesh, new)}: "
            "mask makes partial(sum) or partial(prod) only",
            parameter="to",
        )
    if away := unreached(x, to):
        _refuse_place(mesh, x, to, mesh.ordered(away))
    kept = mesh.ordered(x.partial & to.partial)
    if kept and x.reduction != to.reduction:
        raise LayoutError(
            f"{{0}} is partial({x.reduction}) over {listed(mesh, kept)} and the target "
            f"partial({to.reduction}): no step leads from one to the other but by way of the "
            "reduced value, so redistribute to that first",
            operand=0,
            axes=kept,
            parameter="to",
        )
    return to


def unreached(x: DistType, to: DistType) -> list[str]:
    """Return the sub-axes on which the target is at a coordinate that no redistribution reaches.

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
        f"redistribute takes a value to coordinate {end} of {listed(mesh, axes)} only if it is "
        f"there before: redistribute it to {'the place where it is' if held else 'root'}, and send "
        f"it over {listed(mesh, axes)} from {start} to {end}",
        operand=0,
        axes=axes,
        parameter="to",
    )


# ---------------------------------------------------------------------------------------------
# Local operations: nothing is sent
# ---------------------------------------------------------------------------------------------


def slice(mesh: Mesh, x: DistType, axes: Axes, dim: int) -> DistType:
    """replicated -> sharded on ``dim``, appended minor-most in the written order."""
    require("slice", mesh, x, axes, "replicated")
    require_divides("slice", mesh, x, axes, dim)
    return with_shards(x, axes, dim)


def keep_root(mesh: Mesh, x: DistType, axes: Axes) -> DistType:
    """replicated -> root."""
    require("keep_root", mesh, x, axes, "replicated")
    return x.with_place(at_root(axes))


def keep(mesh: Mesh, x: DistType, place: Place) -> DistType:
    """replicated -> root, at any coordinate."""
    require("keep", mesh, x, mesh.ordered(dict(place)) or tuple(dict(place)), "replicated")
    for axis, coordinate in place:
        check_coordinate(mesh, (axis,), coordinate, "place")
    return x.with_place(place)


def part(mesh: Mesh, x: DistType, axes: Axes, coordinate: int, dim: int) -> DistType:
    """Return the piece of a sharded dimension that one coordinate of its sub-axes holds.

    The sub-axes are the exact minor-most suffix of the dimension; the piece is at the coordinate.
    """
    require_suffix("part", mesh, x, axes, dim)
    check_coordinate(mesh, axes, coordinate, "coordinate")
    have = x.dims[dim]
    held = have.axes[: len(have.axes) - len(axes)]
    shares = require_pieces("part", mesh, held, axes, dim)
    size = have.size // sum(shares) * shares[coordinate]
    whole = with_dim(x, dim, Dim(size, held))
    return whole.with_place(digits_over(mesh, axes, coordinate))


def assemble(mesh: Mesh, pieces: Sequence[DistType], axes: Axes, dim: int) -> DistType:
    """Return the dimension whose pieces are at the coordinates of sub-axes, in order.

    It is sharded over the sub-axes, minor-most in the written order.
    """
    require("assemble", mesh, pieces[0], axes, "root")
    size = mesh.group_size(axes)
    if len(pieces) != size:
        raise LayoutError(
            f"assemble over {listed(mesh, axes)} takes the pieces of all {size} coordinates, in "
            f"order; there are {len(pieces)}",
            parameter="axes",
        )
    first = pieces[0].without_place(axes)
    require_dim("assemble", first, dim)
    held = first.dims[dim].axes
    shares = require_pieces("assemble", mesh, held, axes, dim)
    sizes = _block_sizes(mesh, first.dims[dim].size, axes, shares, dim)
    for index, (piece, own) in enumerate(zip(pieces, sizes, strict=True)):
        _check_at(mesh, piece, axes, index)
        block, whole = with_dim(first, dim, Dim(own, held)), piece.without_place(axes)
        if own != sizes[0] and not same_size(block.shape, whole.shape):
            raise LayoutError(
                f"the weights of {listed(mesh, axes)} cut dimension {dim} in the proportion "
                f"{_ratio(shares)}: where {{0}} is {list(first.shape)}, {{{index}}} has to be "
                f"{list(block.shape)}, and it is {list(whole.shape)}",
                operand=index,
            )
        require_same("assemble", mesh, block, whole, index, shown=(pieces[0], piece))
    return checked(mesh, with_dim(first, dim, Dim(sum(sizes), held + axes)))


def _block_sizes(mesh: Mesh, size: int, axes: Axes, shares: Sequence[int], dim: int) -> list[int]:
    """Return the sizes of the blocks of a dimension, given that of the first."""
    if size % shares[0]:
        raise LayoutError(
            f"the weights of {listed(mesh, axes)} cut dimension {dim} in the proportion "
            f"{_ratio(shares)}, but {{0}} has {size} there, which {shares[0]} does not divide",
            operand=0,
        )
    return [size // shares[0] * share for share in shares]


def _ratio(shares: Sequence[int]) -> str:
    return " : ".join(map(str, shares))


def _check_at(mesh: Mesh, piece: DistType, axes: Axes, index: int) -> None:
    """Check that a piece is at the coordinate of its number."""
    here = index_over(mesh, axes, dict(piece.place)) if piece.placed.issuperset(axes) else None
    if here == index:
        return
    place = f"at {here} on" if here is not None else "at no one coordinate of"
    advice = (
        f"keep it at {place_text(place_at(digits_over(mesh, axes, index)), mesh)}"
        if here is None
        else f"send it over {listed(mesh, axes)} from {here} to {index}"
    )
    raise LayoutError(
        f"{{{index}}} is {place} {listed(mesh, axes)} here; assemble takes the pieces in "
        f"the order of their coordinates, and this is number {index}: {advice} first, or "
        "give the operands in order",
        operand=index,
        axes=axes,
    )


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
    require("mask", mesh, x, axes, "replicated")
    if axes and x.reduction not in (None, reduction):
        raise LayoutError(
            f"{{0}} is partial({x.reduction}) already: a value has one reduction on all its "
            f"sub-axes, so it cannot become partial({reduction}) as well",
            operand=0,
            axes=mesh.ordered(x.partial),
        )
    partial = x.partial | frozenset(axes)
    reduced = Reduction(reduction) if axes else x.reduction
    return checked(mesh, replace(x, partial=partial, reduction=reduced))


def terms(mesh: Mesh, x: DistType, axes: Axes, dim: int) -> DistType:
    """partial -> sharded on a new dimension ``dim``, which has a row for the term of each device.

    The sum, or the average, of the rows is the value. Rows are in the written order of sub-axes.
    """
    require("terms", mesh, x, axes, "partial")
    if x.reduction not in (Reduction.SUM, Reduction.AVG):
        problem = ", and terms are those of a sum or avg: reduce it, which rounds nothing"
        raise partial_error(mesh, x, problem)
    if not 0 <= dim <= len(x.dims):
        raise LayoutError(
            f"terms makes a new dimension, which is 0 to {len(x.dims)} here", parameter="dim"
        )
    require_sizes("terms", [*x.shape, mesh.group_size(axes)], "dim")
    rows = Dim(mesh.group_size(axes), axes)
    require_equal_blocks("terms", mesh, rows, axes, dim)
    bare = without_partial(x, axes)
    return checked(mesh, replace(bare, dims=(*bare.dims[:dim], rows, *bare.dims[dim:])))
