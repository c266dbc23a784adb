"""Symbolic execution of functions: on expressions for all devices and elements at once.

The buffers of all devices are one ``Value``: a shape, and an expression for the element at a
position on a device. The expression depends on the variables of the coordinates of the device and
of the position. Example, for a mesh with ``gpu = 2`` and ``%g: f32[8] partial(sum: gpu)``:

    %g                                   Input(0, (i, gpu))
    %0 = reduce_scatter %g over gpu      the sum over b of Input(0, (4 * gpu + i, b))
    %1 = all_gather %0 over gpu          the sum over b of Input(0, (i, b))

where i is the position in the buffer: below 8, then 4, then 8. Gathering replaces i by ``i % 4``
and the coordinate gpu by ``i // 4``.

Steps follow their definitions, as in the numpy executor, from operands and attributes only. The
typing rules are not used.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, DType, Mesh, Reduction
from collir.semantics.symbolic.algebra import (
    added,
    cast_expr,
    constant_cast,
    mapped,
    outline,
    reduced,
    scaled,
    selection,
    substituted,
)
from collir.semantics.symbolic.expressions import (
    Cast,
    Expr,
    Input,
    Opaque,
    UnprovenError,
    constant_expr,
    interval_variable,
    term_expr,
)
from collir.semantics.symbolic.indices import (
    ZERO_INDEX,
    Index,
    Values,
    Var,
    digit_of,
    mixed_radix,
    shifted,
    variable,
)
from collir.semantics.symbolic.provenance import expressions_equal

Axes = Sequence[str]


class ImpossibleError(Exception):
    """A step that cannot be carried out on the buffers of its operands."""

    def __init__(self, op: DistOp, reason: str):
        super().__init__(reason)
        self.op = op


@dataclass(frozen=True)
class Value:
    """The buffers of all devices.

    Attributes:
        shape: the shape of the buffer of a device.
        roots: the sub-axes on which only coordinate 0 holds a buffer.
        expr: the element at each position.
    """

    shape: tuple[int, ...]
    roots: frozenset[str]
    expr: Expr


@dataclass(frozen=True)
class Computation:
    """The inputs of a ``compute``, an unknown function; equal computations have equal results.

    Attributes:
        operands: the operands, with partial ones reduced.
        partial: the sub-axes that the first operand, and therefore the result, is partial over.
        loop: for a result of a loop, the number of its body, the other facts of the loop, and the
            number of the result.
    """

    flops: float
    operands: tuple[Value, ...]
    partial: frozenset[str]
    loop: tuple[Hashable, ...] = ()


@dataclass
class Computations:
    """The different computations of two programs, by number.

    Attributes:
        names: the names of their results.
        variables: the positions and coordinates that each result depends on.
        numbers: the numbers of the computations in ``known``.
        bodies: for each loop the number of its body; bodies with the same number compute the same.
    """

    known: list[Computation] = field(default_factory=list[Computation])
    names: list[str] = field(default_factory=list[str])
    variables: list[tuple[Var, ...]] = field(default_factory=list[tuple[Var, ...]])
    numbers: dict[Computation, int] = field(default_factory=dict[Computation, int])
    bodies: dict[RepeatOp, int] = field(default_factory=dict[RepeatOp, int])

    def number_of(self, new: Computation, name: str, variables: Sequence[Var]) -> int:
        """Return the number of an equal known computation, or add the computation."""
        if (number := self.numbers.get(new)) is not None:
            return number
        for number, known in enumerate(self.known):
            if comparable(new, known) and _equal(new, known):
                return number
        self.numbers[new] = len(self.known)
        self.known.append(new)
        self.names.append(name)
        self.variables.append(tuple(variables))
        return len(self.known) - 1


def comparable(a: Computation, b: Computation) -> bool:
    """Return whether two computations have the same cost and operands of the same shapes."""
    shapes = [[(x.shape, x.roots) for x in side.operands] for side in (a, b)]
    return (a.flops, a.partial, a.loop) == (b.flops, b.partial, b.loop) and shapes[0] == shapes[1]


def _equal(a: Computation, b: Computation) -> bool:
    pairs = [(x.expr, y.expr) for x, y in zip(a.operands, b.operands, strict=True)]
    same_outlines = all(outline(x) == outline(y) for x, y in pairs)
    return same_outlines and all(expressions_equal(x, y, Fraction(0)) for x, y in pairs)


def coordinate_variable(mesh: Mesh, axis: str) -> Var:
    """Return the variable for the coordinate of a device on a sub-axis."""
    return Var("device", axis, mesh.by_name[axis].size)


def position_variable(dim: int, size: int) -> Var:
    """Return the variable for the position of an element in a dimension of a buffer."""
    return Var("index", dim, size)


class Casts(Enum):
    """The conversions that stay casts in an expression."""

    KEPT = auto()
    """Conversions to a type that does not hold every value of the operand's type."""
    ERASED = auto()
    """None: only constants are converted."""
    UNDERFLOW = auto()
    """Conversions that may underflow or lose a fraction: casts to integers or to a type of short
    range, and scaling by less than 1 within such a type."""


def symbolic_results(
    function: FuncOp, computations: Computations, casts: Casts = Casts.KEPT
) -> list[Value]:
    """Return the results of a function.

    Raises:
        ImpossibleError: a step cannot be carried out, which does not happen in typed programs.
        UnprovenError: a step has no symbolic meaning.
    """
    run = _Run(mesh_of(function), computations, casts)
    values: dict[SSAValue, Value] = {
        arg: run.argument(index, dist_type(arg)) for index, arg in enumerate(function.args)
    }
    for op in function.body.ops:
        if isinstance(op, ReturnOp):
            return [values[operand] for operand in op.operands]
        operands = [values[operand] for operand in op.operands]
        if isinstance(op, RepeatOp):
            values.update(zip(op.results, run.loop(op, operands), strict=True))
            continue
        if not isinstance(op, DistOp):
            raise UnprovenError(f"{op.name} is not of the coll dialect")
        values[op.result] = run.step(op, operands)
    return []


def rank_in_group(mesh: Mesh, axes: Axes) -> Index:
    """Return the rank of a device in its group over sub-axes, the first most significant."""
    variables = [coordinate_variable(mesh, axis) for axis in axes]
    return mixed_radix((variable(var), var.size) for var in variables)


def coordinates(mesh: Mesh, axes: Axes, rank: Index) -> dict[Var, Index]:
    """Return the coordinates on sub-axes of the device with a rank in its group over them."""
    values: dict[Var, Index] = {}
    stride = 1
    for axis in reversed(axes):
        var = coordinate_variable(mesh, axis)
        values[var] = digit_of(rank, stride, var.size)
        stride *= var.size
    return values


class _Run:
    """The execution of the steps of one function."""

    def __init__(self, mesh: Mesh, computations: Computations, casts: Casts):
        self.mesh, self.computations, self.casts = mesh, computations, casts

    def argument(self, index: int, x: DistType) -> Value:
        """Return the value of an argument, whose elements are those of an input."""
        at = self._elements(x)
        return Value(x.local_shape(self.mesh), x.root, term_expr(Input(index, at, x.dtype)))

    def _elements(self, x: DistType) -> tuple[Index, ...]:
        """Return the position in the global tensor of the element at each position on a device,
        then the coordinates on the sub-axes that the value is partial over."""
        shape = x.local_shape(self.mesh)
        at: list[Index] = []
        for number, (dim, size) in enumerate(zip(x.dims, shape, strict=True)):
            at.append(mixed_radix([self._block(dim.axes), _position(number, size)]))
        at += [
            variable(coordinate_variable(self.mesh, axis)) for axis in self.mesh.ordered(x.partial)
        ]
        return tuple(at)

    def _block(self, axes: Axes) -> tuple[Index, int]:
        """Return the block of a device, of a dimension sharded over sub-axes, and their number."""
        return rank_in_group(self.mesh, axes), self.mesh.group_size(axes)

    def step(self, op: DistOp, operands: Sequence[Value]) -> Value:
        """Return the result of an operation.

        Raises:
            ImpossibleError: the operation cannot be carried out on these operands.
            UnprovenError: the operation has no symbolic meaning.
        """
        x = operands[0]
        if op.mnemonic != "compute" and any(y.roots != x.roots for y in operands):
            raise ImpossibleError(op, "some devices hold only some of its operands")
        rule = RULES.get(op.mnemonic)
        if rule is None:
            raise UnprovenError(f"{op.mnemonic} has no symbolic meaning")
        return rule(self, op, operands)

    # --- loops --------------------------------------------------------------------------------

    def loop(self, op: RepeatOp, operands: Sequence[Value]) -> list[Value]:
        """Return the results of a loop, as elements of an unknown function of its operands.

        Loops whose bodies have the same number are the same function: what the carries stand for
        is equal before each iteration, so it is equal after it.

        Raises:
            UnprovenError: the body has no number.
        """
        if op not in self.computations.bodies:
            raise UnprovenError(f"{op.mnemonic} has no symbolic meaning")
        types = [dist_type(operand) for operand in op.operands]
        meant = tuple(self.meant(x, value) for x, value in zip(types, operands, strict=True))
        facts = self.computations.bodies[op], op.times, op.is_reverse, len(op.carried)
        results: list[Value] = []
        for index, result in enumerate(op.results):
            x, loop = dist_type(result), (*facts, len(op.sliced), index)
            computation = Computation(0.0, meant, x.partial, loop)
            number = self.computations.number_of(computation, op.mnemonic, [])
            expr = term_expr(Opaque(number, self._elements(x), x.dtype))
            results.append(Value(x.local_shape(self.mesh), x.root, expr))
        return results

    # --- collectives --------------------------------------------------------------------------

    def reduce(self, op: DistOp, x: Value, axes: Axes) -> Value:
        reduction = dist_type(op.operands[0]).reduction
        if reduction is None:
            raise ImpossibleError(op, "there is nothing partial to reduce")
        self._all_hold(op, x, axes)
        return Value(x.shape, x.roots, self.over(x.expr, axes, reduction))

    def over(self, expr: Expr, axes: Axes, reduction: Reduction) -> Expr:
        """Return the reduction over all coordinates of sub-axes."""
        for axis in axes:
            expr = reduced(expr, coordinate_variable(self.mesh, axis), reduction)
        return expr

    def gather(self, op: DistOp, x: Value, axes: Axes, dim: int) -> Value:
        """Return the concatenation over sub-axes: position ``r * local + i`` is position i on the
        device with rank r in the group."""
        self._all_hold(op, x, axes)
        local = x.shape[dim]
        size = local * self.mesh.group_size(axes)
        at = variable(position_variable(dim, size))
        values: dict[Var, Index] = {position_variable(dim, local): digit_of(at, 1, local)}
        values |= coordinates(self.mesh, axes, digit_of(at, local, self.mesh.group_size(axes)))
        return Value(_with(x.shape, dim, size), x.roots, substituted(x.expr, values))

    def broadcast(self, op: DistOp, x: Value, axes: Axes) -> Value:
        if not x.roots.issuperset(axes):
            raise ImpossibleError(op, "devices that are not roots hold data")
        return Value(x.shape, x.roots - frozenset(axes), x.expr)

    def permute(self, op: DistOp, x: Value, source: DistType, to: DistType) -> Value:
        """Return the blocks that ``to`` assigns to each device, read from the first holder."""
        if source.local_shape(self.mesh) != to.local_shape(self.mesh):
            raise ImpossibleError(op, "its blocks have another shape")
        named = {axis for dim in source.dims for axis in dim.axes} | source.partial | source.root
        values: dict[Var, Index] = {
            coordinate_variable(self.mesh, axis): ZERO_INDEX
            for axis in self.mesh.by_name
            if axis not in named
        }
        for have, want in zip(source.dims, to.dims, strict=True):
            values |= coordinates(self.mesh, have.axes, rank_in_group(self.mesh, want.axes))
        return Value(x.shape, x.roots, substituted(x.expr, values))

    def redistribute(self, op: DistOp, x: Value, source: DistType, to: DistType) -> Value:
        """Return the elements that ``to`` assigns to each device, read from the first holder.

        Where only the source is partial, values are reduced. Where only ``to`` is, they are masked.
        """
        expr = x.expr
        if source.reduction is not None:
            reduced_axes = self.mesh.ordered(source.partial - to.partial)
            expr = self.over(expr, reduced_axes, source.reduction)
        shape = to.local_shape(self.mesh)
        values: dict[Var, Index] = {}
        for axis in self.mesh.by_name:
            if source.state_of(axis) == "replicated":
                values[coordinate_variable(self.mesh, axis)] = ZERO_INDEX
        for dim, (have, want) in enumerate(zip(source.dims, to.dims, strict=True)):
            at = mixed_radix([self._block(want.axes), _position(dim, shape[dim])])
            local = x.shape[dim]
            values[position_variable(dim, local)] = digit_of(at, 1, local)
            rank = digit_of(at, local, self.mesh.group_size(have.axes))
            values |= coordinates(self.mesh, have.axes, rank)
        y = Value(shape, frozenset(), substituted(expr, values))
        new = self.mesh.ordered(to.partial - source.partial)
        if new and to.reduction is not None:
            y = self.mask(y, new, to.reduction)
        return self.keep_root(y, self.mesh.ordered(to.root))

    def _all_hold(self, op: DistOp, x: Value, axes: Axes) -> None:
        if x.roots.intersection(axes):
            raise ImpossibleError(op, "only some of the devices hold data")

    def meant(self, x: DistType, value: Value) -> Value:
        """Return the value that a buffer stands for: partial values are reduced."""
        if x.reduction is None:
            return value
        expr = self.over(value.expr, self.mesh.ordered(x.partial), x.reduction)
        return Value(value.shape, value.roots, expr)

    # --- local steps --------------------------------------------------------------------------

    def slice(self, op: DistOp, x: Value, axes: Axes, dim: int) -> Value:
        group = self.mesh.group_size(axes)
        if x.shape[dim] % group:
            raise ImpossibleError(op, f"{x.shape[dim]} does not divide into {group} blocks")
        local = x.shape[dim] // group
        at = mixed_radix([self._block(axes), _position(dim, local)])
        expr = substituted(x.expr, {position_variable(dim, x.shape[dim]): at})
        return Value(_with(x.shape, dim, local), x.roots, expr)

    def keep_root(self, x: Value, axes: Axes) -> Value:
        """Return the value at coordinate 0 of sub-axes."""
        values: Values = {coordinate_variable(self.mesh, axis): ZERO_INDEX for axis in axes}
        return Value(x.shape, x.roots | frozenset(axes), substituted(x.expr, values))

    def mask(self, x: Value, axes: Axes, reduction: Reduction) -> Value:
        """Return the value at coordinate 0 of sub-axes, and the reduction's identity elsewhere."""
        identity = constant_expr(0 if reduction is Reduction.SUM else 1)
        expr = x.expr
        for axis in axes:
            at = variable(coordinate_variable(self.mesh, axis))
            size = self.mesh.by_name[axis].size
            root = substituted(expr, {coordinate_variable(self.mesh, axis): ZERO_INDEX})
            pieces = [
                (1, interval_variable(at, 0, 1), root),
                (size - 1, interval_variable(at, 1, size - 1), identity),
            ]
            expr = selection(at, pieces)
        return Value(x.shape, x.roots, expr)

    def viewed(self, op: DistOp, x: Value, shape: tuple[int, ...]) -> Value:
        """Return the same elements, in row-major order, under another shape."""
        if math.prod(shape) != math.prod(x.shape):
            raise ImpossibleError(op, "the number of elements differs")
        flat = mixed_radix(_position(dim, size) for dim, size in enumerate(shape))
        values: dict[Var, Index] = {}
        stride = 1
        for dim in reversed(range(len(x.shape))):
            size = x.shape[dim]
            values[position_variable(dim, size)] = digit_of(flat, stride, size)
            stride *= size
        return Value(shape, x.roots, substituted(x.expr, values))

    def pad(self, x: Value, dim: int, low: int, high: int, fill: float) -> Value:
        local = x.shape[dim]
        shape = _with(x.shape, dim, local + low + high)
        at = variable(position_variable(dim, shape[dim]))
        kept = local + min(low, 0) + min(high, 0)
        sizes = [(max(low, 0), None), (kept, x.expr), (max(high, 0), None)]
        pieces: list[tuple[int, Var, Expr]] = []
        start = 0
        for size, expr in sizes:
            if size > 0:
                var = interval_variable(at, start, size)
                inner = shifted(variable(var), max(-low, 0))
                value = (
                    constant_expr(fill)
                    if expr is None
                    else substituted(expr, {position_variable(dim, local): inner})
                )
                pieces.append((size, var, value))
                start += size
        return Value(shape, x.roots, selection(at, pieces))

    def concat(self, operands: Sequence[Value], dim: int) -> Value:
        total = sum(x.shape[dim] for x in operands)
        at = variable(position_variable(dim, total))
        pieces: list[tuple[int, Var, Expr]] = []
        start = 0
        for x in operands:
            size = x.shape[dim]
            var = interval_variable(at, start, size)
            pieces.append(
                (size, var, substituted(x.expr, {position_variable(dim, size): variable(var)}))
            )
            start += size
        x = operands[0]
        return Value(_with(x.shape, dim, total), x.roots, selection(at, pieces))

    def cast(self, x: Value, dtype: DType, source: DType) -> Value:
        if dtype is DType.BOOL is not source and self.casts is Casts.ERASED:
            raise UnprovenError("a cast to bool forgets the number")
        cuts = not dtype.is_float or (dtype.short_range and source.is_float)
        if self.casts is Casts.KEPT or (self.casts is Casts.UNDERFLOW and cuts):
            expr = cast_expr(x.expr, dtype, source)
        else:
            expr = mapped(x.expr, lambda leaf: constant_cast(leaf, dtype))
        return Value(x.shape, x.roots, expr)

    def scale(self, x: Value, factor: Fraction, dtype: DType) -> Value:
        expr = scaled(x.expr, factor)
        if self.casts is Casts.UNDERFLOW and dtype.short_range and abs(factor) < 1:
            expr = mapped(expr, lambda leaf: term_expr(Cast(dtype, leaf)) if leaf.terms else leaf)
        return Value(x.shape, x.roots, expr)

    def compute(self, op: DistOp, operands: Sequence[Value]) -> Value:
        """Return elements of an unknown function of the operands.

        The result is distributed as the first operand is, whatever the layouts of the others are.
        """
        x = operands[0]
        positions = [position_variable(dim, size) for dim, size in enumerate(x.shape)]
        types = [dist_type(operand) for operand in op.operands]
        meant = [self.meant(y, value) for y, value in zip(types, operands, strict=True)]
        partial = types[0].partial
        used = {var for var in meant[0].expr.free if var.kind == "device"}
        used |= {coordinate_variable(self.mesh, axis) for axis in partial}
        devices = sorted(used, key=str)
        computation = Computation(op.number("flops"), tuple(meant), partial)
        name = f"%{hint}" if (hint := op.result.name_hint) else "a computation"
        number = self.computations.number_of(computation, name, [*positions, *devices])
        at = tuple(variable(var) for var in (*positions, *devices))
        return Value(x.shape, x.roots, term_expr(Opaque(number, at, dist_type(op.result).dtype)))


def _position(dim: int, size: int) -> tuple[Index, int]:
    """Return the position in a dimension of a buffer, and the size of the dimension."""
    return variable(position_variable(dim, size)), size


def _with(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*shape[:dim], size, *shape[dim + 1 :])


# ---------------------------------------------------------------------------------------------
# The steps
# ---------------------------------------------------------------------------------------------


def _transpose(run: _Run, op: DistOp, operands: Sequence[Value]) -> Value:
    (x,), order = operands, op.sizes("order")
    values = {
        position_variable(dim, x.shape[dim]): variable(position_variable(new, x.shape[dim]))
        for new, dim in enumerate(order)
    }
    return Value(tuple(x.shape[dim] for dim in order), x.roots, substituted(x.expr, values))


def _add(run: _Run, op: DistOp, operands: Sequence[Value]) -> Value:
    x, y = operands
    if y.shape != x.shape:
        raise ImpossibleError(op, "its operands have different shapes")
    return Value(x.shape, x.roots, added(x.expr, y.expr))


def _pad(run: _Run, op: DistOp, operands: Sequence[Value]) -> Value:
    dim, low, high = (op.integer(name) for name in ("dim", "low", "high"))
    return run.pad(operands[0], dim, low, high, op.number("value"))


def _view(run: _Run, op: DistOp, operands: Sequence[Value]) -> Value:
    return run.viewed(op, operands[0], dist_type(op.result).local_shape(run.mesh))


RULES: dict[str, Callable[[_Run, DistOp, Sequence[Value]], Value]] = {
    "all_reduce": lambda run, op, xs: run.reduce(op, xs[0], op.over),
    "reduce": lambda run, op, xs: run.keep_root(run.reduce(op, xs[0], op.over), op.over),
    "reduce_scatter": lambda run, op, xs: run.slice(
        op, run.reduce(op, xs[0], op.over), op.over, op.integer("dim")
    ),
    "all_gather": lambda run, op, xs: run.gather(op, xs[0], op.over, op.integer("dim")),
    "gather": lambda run, op, xs: run.keep_root(
        run.gather(op, xs[0], op.over, op.integer("dim")), op.over
    ),
    "broadcast": lambda run, op, xs: run.broadcast(op, xs[0], op.over),
    "scatter": lambda run, op, xs: run.slice(
        op, run.broadcast(op, xs[0], op.over), op.over, op.integer("dim")
    ),
    "all_to_all": lambda run, op, xs: run.slice(
        op, run.gather(op, xs[0], op.over, op.integer("source")), op.over, op.integer("target")
    ),
    "permute": lambda run, op, xs: run.permute(op, xs[0], dist_type(op.input), op.layout("to")),
    "redistribute": lambda run, op, xs: run.redistribute(
        op, xs[0], dist_type(op.input), op.layout("to")
    ),
    "slice": lambda run, op, xs: run.slice(op, xs[0], op.over, op.integer("dim")),
    "keep_root": lambda run, op, xs: run.keep_root(xs[0], op.over),
    "mask": lambda run, op, xs: run.mask(xs[0], op.over, Reduction(op.word("reduction"))),
    "split": _view,
    "merge": _view,
    "reshape": _view,
    "transpose": _transpose,
    "pad": _pad,
    "concat": lambda run, op, xs: run.concat(xs, op.integer("dim")),
    "scale": lambda run, op, xs: run.scale(
        xs[0], Fraction(op.number("factor")), dist_type(op.input).dtype
    ),
    "cast": lambda run, op, xs: run.cast(xs[0], DType(op.word("dtype")), dist_type(op.input).dtype),
    "add": _add,
    "compute": lambda run, op, xs: run.compute(op, xs),
    "barrier": lambda run, op, xs: xs[0],
}
"""The symbolic meaning of every step, by its name."""
