"""The typing rules: which step leads from which layout to which.

Every rule takes a mesh, the operand types and the parameters of the step, and returns the type of
the result or raises ``LayoutError``. A function whose body type-checks implements the collective
its signature promises. The rules look at sub-axes and sizes only, never at devices, so checking a
step costs the same on 8 devices and on 100,000. The docstring of the rule of a step from one layout
to another gives the states of its sub-axes before and after.

Operand types are expected to be valid on the mesh (``check_type``). Every listed sub-axis must be
in the state a step needs; all other sub-axes pass unchanged. The rules ignore integer overflow,
although with it some are wrong: scaling a partial max, for example, is then not monotone.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from collir.layout.dtypes import DType, Reduction
from collir.layout.errors import LayoutError
from collir.layout.mesh import Mesh
from collir.layout.types import MAX_DIMS, Dim, DistType, check_type, unknown_axis_message

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
    ("keep_root", "partial"): "reduce it instead",
    ("keep_root", "sharded"): "gather it instead",
}
"""Advice, by step and state of its operand, where one other step does the whole job."""

_STATES = {
    "partial": "partial over",
    "sharded": "sharded over",
    "root": "at root on",
    "replicated": "replicated over",
}


def _require(op: str, mesh: Mesh, x: DistType, axes: Axes, state: str) -> None:
    """Check that all of ``axes`` exist, are distinct, and are in ``state`` in ``x``."""
    if not axes:
        raise LayoutError(f"{op} needs at least one sub-axis")
    for axis in axes:
        if axis not in mesh.by_name:
            raise LayoutError(unknown_axis_message(mesh, axis), axes=(axis,))
        if axes.count(axis) > 1:
            raise LayoutError(f"{op} names sub-axis {axis} twice", axes=(axis,))
    for actual in ("partial", "sharded", "root", "replicated"):
        wrong = tuple(axis for axis in axes if x.state_of(axis) == actual)
        if wrong and actual != state:
            wish = "it at root there" if state == "root" else f"it {state}"
            raise LayoutError(
                f"{{0}} is {_STATES[actual]} {_listed(mesh, wrong)} here; {op} needs {wish}: "
                f"{_INSTEAD.get((op, actual), _ADVICE[state, actual])}",
                operand=0,
                axes=wrong,
            )


def _listed(mesh: Mesh, axes: Sequence[str]) -> str:
    """Return sub-axes as a message lists them."""
    return ", ".join(mesh.short(axes))


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
    if (have := x.dims[dim].axes)[-len(axes) :] != axes:
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
    local = x.dims[dim].size // mesh.group_size(x.dims[dim].axes)
    group = mesh.group_size(axes)
    if local % group:
        part = "" if local == x.dims[dim].size else f" (the local part of {x.dims[dim].size})"
        raise LayoutError(
            f"{op} over {_listed(mesh, axes)} cuts dimension {dim} into {group} blocks, "
            f"but {{0}} has {local} there{part}, which {group} does not divide: "
            "pick another dimension, or pad this one",
            operand=0,
            parameter=parameter,
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


# ---------------------------------------------------------------------------------------------
# Building results
# ---------------------------------------------------------------------------------------------


def _without_partial(x: DistType, axes: Axes) -> DistType:
    partial = x.partial - frozenset(axes)
    return replace(x, partial=partial, reduction=x.reduction if partial else None)


def _without_root(x: DistType, axes: Axes) -> DistType:
    return replace(x, root=x.root - frozenset(axes))


def _with_root(x: DistType, axes: Axes) -> DistType:
    return replace(x, root=x.root | frozenset(axes))


def _with_dim(x: DistType, index: int, *dims: Dim) -> DistType:
    """Return ``x`` with ``dims`` (none, one or several) in place of dimension ``index``."""
    return replace(x, dims=(*x.dims[:index], *dims, *x.dims[index + 1 :]))


def _append(x: DistType, axes: Axes, index: int) -> DistType:
    dim = x.dims[index]
    return _with_dim(x, index, Dim(dim.size, dim.axes + axes))


def _drop(x: DistType, axes: Axes, index: int) -> DistType:
    dim = x.dims[index]
    return _with_dim(x, index, Dim(dim.size, dim.axes[: -len(axes)]))


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


def permute(mesh: Mesh, x: DistType, to: DistType) -> DistType:
    """Any replicated/sharded layout -> another with equal shard counts in every dimension."""
    check_type(mesh, to)
    _require_shape(x, to, "permute moves blocks and changes nothing else")
    if (x.partial, x.reduction, x.root) != (to.partial, to.reduction, to.root):
        raise LayoutError(
            "permute changes sharded and replicated sub-axes only: what is partial or at root "
            f"stays, but {{0}} is {x.text(mesh)} and the target is {to.text(mesh)}",
            operand=0,
            parameter="to",
            axes=mesh.ordered(x.partial ^ to.partial | x.root ^ to.root),
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
    if x.reduction not in (None, reduction):
        raise LayoutError(
            f"{{0}} is partial({x.reduction}) already: a value has one reduction on all its "
            f"sub-axes, so it cannot become partial({reduction}) as well",
            operand=0,
            axes=mesh.ordered(x.partial),
        )
    partial = x.partial | frozenset(axes)
    return _checked(mesh, replace(x, partial=partial, reduction=Reduction(reduction)))


def split(mesh: Mesh, x: DistType, dim: int, sizes: tuple[int, ...]) -> DistType:
    """N on L1+L2 -> m on L1, k on L2: a view.

    Allowed iff L2 is empty and the shards of L1 divide m, or the shards of L1 are exactly m and
    those of L2 divide k.
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
        shards = mesh.group_size(major)
        fits = outer % shards == 0 if not minor else shards == outer
        if fits and inner % mesh.group_size(minor) == 0:
            return _checked(mesh, _with_dim(x, dim, Dim(outer, major), Dim(inner, minor)))
    raise LayoutError(
        f"dimension {dim} of {{0}} is sharded over {_listed(mesh, axes)} "
        f"({mesh.group_size(axes)} shards); split into [{outer}, {inner}] would cut across its "
        "blocks: let the first size be a multiple of the shards, or be exactly the shards of a "
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
    if inner.axes and shards != outer.size:
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
    return result


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
            if have < want:
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
        shards = mesh.group_size(axes)
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


def add(mesh: Mesh, x: DistType, y: DistType) -> DistType:
    """Add two operands elementwise.

    Partial values add if both are partial(sum) or partial(avg) over the same sub-axes. To a value
    that is partial(avg), partial(max) or partial(min), a value that is replicated there adds too.
    """
    if DType.BOOL in (x.dtype, y.dtype):
        raise LayoutError("values of bool have no sum: cast them to a number first", operand=0)
    shifted = (Reduction.AVG, Reduction.MAX, Reduction.MIN)
    for index, (partial, other) in enumerate(((x, y), (y, x))):
        if partial.reduction in shifted and not other.partial:
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
    """Return the first operand, after ``flops`` operations on each device."""
    if not 0 <= flops < math.inf:
        raise LayoutError("flops is a number of operations, 0 or more", parameter="flops")
    return operands[0]


def barrier(mesh: Mesh, x: DistType) -> DistType:
    """Return the operand; no pass merges the step with another, or moves a step through it."""
    return x
