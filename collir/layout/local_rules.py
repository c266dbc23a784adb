"""The typing rules of local steps that change the shape, the dtype or the values of a tensor."""

import math
from collections.abc import Sequence
from dataclasses import replace

from collir.layout.cuts import is_even, units
from collir.layout.dtypes import DType, Reduction
from collir.layout.errors import LayoutError
from collir.layout.mesh import Mesh, index_over
from collir.layout.rearrangements import reshape_groups
from collir.layout.requirements import (
    checked,
    listed,
    number_text,
    partial_error,
    place_shown,
    plural,
    require_dim,
    require_same,
    require_sizes,
    sharded_error,
    with_dim,
    without_partial,
)
from collir.layout.sizes import same_size
from collir.layout.structure import Linear, map_structure, typed
from collir.layout.types import Dim, DistType


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
    require_dim("split", x, dim)
    size, axes = x.dims[dim].size, x.dims[dim].axes
    outer, inner = sizes
    require_sizes("split", sizes, "sizes")
    if not same_size(outer * inner, size):
        raise LayoutError(
            f"split into [{outer}, {inner}] does not fit dimension {dim} of {{0}}: "
            f"{outer} * {inner} is not {size}",
            parameter="sizes",
        )
    for cut in range(len(axes), -1, -1):
        major, minor = axes[:cut], axes[cut:]
        shards = units(mesh, major)
        fits = outer % shards == 0
        if minor:
            fits = mesh.group_size(major) == shards and same_size(shards, outer)
        if fits and inner % units(mesh, minor) == 0:
            return checked(mesh, with_dim(x, dim, Dim(outer, major), Dim(inner, minor)))
    parts = "shards" if is_even(mesh, axes) else "units"
    raise LayoutError(
        f"dimension {dim} of {{0}} is sharded over {listed(mesh, axes)} "
        f"({units(mesh, axes)} {parts}); split into [{outer}, {inner}] would cut across its "
        f"blocks: let the first size be a multiple of the {parts}, or be exactly the shards of a "
        "major part of these sub-axes",
        operand=0,
        axes=axes,
        parameter="sizes",
    )


def merge(mesh: Mesh, x: DistType, dim: int) -> DistType:
    """m on L1, k on L2 -> m*k on L1+L2: the view that undoes ``split``."""
    require_dim("merge", x, dim)
    if dim + 1 == len(x.dims):
        raise LayoutError(
            f"merge joins a dimension and the one behind it; dimension {dim} is the last of {{0}}",
            parameter="dim",
        )
    outer, inner = x.dims[dim], x.dims[dim + 1]
    shards = mesh.group_size(outer.axes)
    if inner.axes and not (shards == units(mesh, outer.axes) and same_size(shards, outer.size)):
        raise LayoutError(
            f"dimension {dim + 1} of {{0}} is sharded over {listed(mesh, inner.axes)}, "
            f"so dimension {dim} must have exactly one row per shard to merge them, but it has "
            f"{outer.size} rows in {shards} shard{plural(shards)}: all_gather dimension "
            f"{dim + 1} first",
            operand=0,
            axes=inner.axes,
        )
    merged = Dim(outer.size * inner.size, outer.axes + inner.axes)
    return replace(x, dims=(*x.dims[:dim], merged, *x.dims[dim + 2 :]))


def reshape(mesh: Mesh, x: DistType, shape: tuple[int, ...]) -> DistType:
    """Return a view under another global shape: merges and splits, which move nothing."""
    require_sizes("reshape", shape, "shape")
    if not same_size(math.prod(shape), x.elements):
        raise LayoutError(
            f"reshape to {list(shape)} does not fit {{0}} of shape {list(x.shape)}: "
            "the number of elements differs",
            parameter="shape",
        )
    result = replace(x, dims=())
    for sources, targets in reshape_groups(x.shape, shape):
        part = replace(x, dims=tuple(x.dims[i] for i in sources) or (Dim(1),))
        try:
            while len(part.dims) > 1:
                part = merge(mesh, part, 0)
            for index, target in enumerate(targets[:-1]):
                rest = part.dims[index].size // shape[target]
                part = split(mesh, part, index, (shape[target], rest))
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
    require_dim("concat", first, dim)
    for index, part in enumerate(parts):
        if dim < len(part.dims) and part.dims[dim].axes:
            raise sharded_error(mesh, part, dim, "concat", "all_gather it first", index)
        if len(part.dims) == len(first.dims):
            aligned = with_dim(part, dim, first.dims[dim])
        else:
            aligned = part
        require_same("concat", mesh, first, aligned, index, shown=(first, part))
    total = sum(part.dims[dim].size for part in parts)
    return checked(mesh, with_dim(first, dim, Dim(total)))


_IDEMPOTENT = {Reduction.SUM: (0.0,), Reduction.PROD: (0.0, 1.0)}
"""Constants that a reduction of equal copies leaves unchanged; for other reductions, any."""


def pad(mesh: Mesh, x: DistType, dim: int, low: int, high: int, value: float) -> DistType:
    """Add ``low`` elements in front and ``high`` behind, or cut off negative ones (as in XLA).

    The dimension must be whole on every device. A partial value may only be padded with a value
    whose copies reduce to itself: 0 for sum, 0 or 1 for prod, any value for avg, max and min.
    """
    require_dim("pad", x, dim)
    if axes := x.dims[dim].axes:
        shards = units(mesh, axes)
        advice = (
            f"split it into [{shards}, {x.dims[dim].size // shards}] and pad the second part, or "
            "all_gather it first"
        )
        raise sharded_error(mesh, x, dim, "pad", advice)
    size = x.dims[dim].size
    if min(low, 0) + min(high, 0) + size < 1:
        raise LayoutError(
            f"pad cuts {-min(low, 0) - min(high, 0)} elements off dimension {dim} of {{0}}, "
            f"which has {size}: nothing would be left",
            operand=0,
        )
    grows = low > 0 or high > 0
    if grows and not x.dtype.may_be(value):
        raise LayoutError(
            f"pad value {number_text(value)} is not a value of {x.dtype}", parameter="value"
        )
    idempotent = _IDEMPOTENT.get(x.reduction) if x.reduction else None
    if grows and idempotent is not None and value not in idempotent:
        allowed = " or ".join(number_text(v) for v in idempotent)
        problem = (
            f", and every device would bring in its own {number_text(value)}: "
            f"pad it with {allowed}, or all_reduce it first"
        )
        raise partial_error(mesh, x, problem)
    return checked(mesh, with_dim(x, dim, Dim(size + low + high)))


_SHIFTED = (Reduction.AVG, Reduction.MAX, Reduction.MIN)
"""The reductions that commute with adding the same value to all operands."""


def add(mesh: Mesh, x: DistType, y: DistType) -> DistType:
    """Add two operands elementwise, with numpy's broadcasting.

    Partial values add if both are partial(sum) or partial(avg) over the same sub-axes. To a value
    that is partial(avg), partial(max) or partial(min), a value that is replicated there adds too.
    """
    if DType.BOOL in (x.dtype, y.dtype):
        raise LayoutError("values of bool have no sum: cast them to a number first", operand=0)
    if not same_size(x.shape, y.shape):
        return _add_repeated(mesh, x, y)
    for index, (partial, whole) in enumerate(((x, y), (y, x))):
        if partial.reduction in _SHIFTED and not whole.partial:
            bare = replace(partial, partial=frozenset[str](), reduction=None)
            if bare.agrees(whole):
                return partial
            pair = (bare, whole) if index == 0 else (whole, bare)
            require_same("add", mesh, *pair, 1, shown=(x, y))
    for operand, (partial, whole) in enumerate(((x, y), (y, x))):
        if partial.reduction is Reduction.SUM and not whole.partial:
            where = listed(mesh, mesh.ordered(partial.partial))
            problem = (
                f" and {{{1 - operand}}} is not: every device would add the whole of "
                f"{{{1 - operand}}}: all_reduce {{{operand}}} first, or mask {{{1 - operand}}} "
                f"over {where}"
            )
            raise partial_error(mesh, partial, problem, operand)
    require_same("add", mesh, x, y, 1)
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
    if x.dtype is not y.dtype or any(
        not (same_size(a, b) or same_size(a, 1) or same_size(b, 1)) for a, b in pairs
    ):
        require_same("add", mesh, x, y, 1)
    structure = map_structure("add", [x, y], Linear.ALL)
    for partial, addend in ((x, y), (y, x)):
        if partial.reduction in _SHIFTED and not addend.partial:
            bare = [without_partial(z, tuple(z.partial)) for z in (x, y)]
            whole = typed("add", mesh, structure, bare, x.dtype)
            result = replace(whole, partial=partial.partial, reduction=partial.reduction)
            return checked(mesh, result)
    return typed("add", mesh, structure, [x, y], x.dtype)


def scale(mesh: Mesh, x: DistType, factor: float) -> DistType:
    """Multiply every element by a constant; a negative one turns a partial max into a min."""
    if x.dtype is DType.BOOL:
        raise LayoutError("values of bool have no product: cast them to a number first", operand=0)
    if not x.dtype.represents(factor):
        raise LayoutError(
            f"factor {number_text(factor)} is not a value of {x.dtype}", parameter="factor"
        )
    swap: dict[Reduction | None, Reduction] = {
        Reduction.MAX: Reduction.MIN,
        Reduction.MIN: Reduction.MAX,
    }
    if x.reduction is Reduction.PROD:
        problem = ", and every device would bring the factor in once: all_reduce it first"
        raise partial_error(mesh, x, problem)
    if factor < 0 and x.reduction in swap:
        return replace(x, reduction=swap[x.reduction])
    return x


def cast(mesh: Mesh, x: DistType, dtype: str) -> DistType:
    """Convert every element to the named dtype.

    A partial sum, avg or prod may only be widened: rounding each part is not rounding the whole. A
    partial max or min takes every nondecreasing cast. Casts between integers that wrap around do
    not qualify, nor do casts to bool, where every number but 0 is true.
    """
    if dtype not in list(DType):
        raise LayoutError(f"'{dtype}' is not a dtype: use {', '.join(DType)}", parameter="dtype")
    target = DType(dtype)
    result = replace(x, dtype=target)
    if x.reduction is None or target.holds(x.dtype):
        return checked(mesh, result)
    wraps = not target.is_float and not x.dtype.is_float
    if x.reduction not in (Reduction.MAX, Reduction.MIN) or wraps or target is DType.BOOL:
        problem = (
            f", and {dtype} does not hold every {x.dtype}: narrowing the parts is not narrowing "
            f"the {x.reduction}: all_reduce it first"
        )
        raise partial_error(mesh, x, problem)
    return result


def compute(mesh: Mesh, operands: Sequence[DistType], flops: float) -> DistType:
    """Return the first operand, after ``flops`` operations on each device that holds it."""
    first = operands[0]
    for index, x in enumerate(operands):
        away = mesh.ordered(axis for axis, n in x.place if dict(first.place).get(axis, n) != n)
        if away:
            start, end = (index_over(mesh, away, dict(z.place)) for z in (x, first))
            raise LayoutError(
                f"compute runs where its operands are: {{0}} is {place_shown(mesh, first)} and "
                f"{{{index}}} is {place_shown(mesh, x)}: send {{{index}}} over "
                f"{listed(mesh, away)} from {start} to {end} first",
                operand=index,
                axes=away,
            )
    if not 0 <= flops < math.inf:
        raise LayoutError("flops is a number of operations, 0 or more", parameter="flops")
    return operands[0]


def reinterpret(mesh: Mesh, x: DistType, to: DistType) -> DistType:
    """Return a type whose blocks have the shapes of the operand's.

    The operation claims that the blocks belong to a value of that type; nothing checks the claim.
    """
    for what, own, expected in (
        ("elements", x.dtype, to.dtype),
        ("blocks", [*x.local_shape(mesh)], [*to.local_shape(mesh)]),
        ("a place", x.place, to.place),
    ):
        if own != expected:
            raise LayoutError(
                f"reinterpret gives blocks another meaning: {{0}} has {what} {own}, and the result "
                f"{expected}",
                operand=0,
                parameter="to",
            )
    return to


def barrier(mesh: Mesh, x: DistType) -> DistType:
    """Return the operand; no pass merges the step with another, or moves a step through it."""
    return x
