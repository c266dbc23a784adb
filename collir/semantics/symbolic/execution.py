"""Runs functions on expressions instead of buffers: every device and every element at once.

A value is what a device holds at every place of its buffer, as a function of where the device
stands, and on which sub-axes only coordinate 0 holds anything. Steps are carried out by their
definition, as the numpy executor does: from their operands and attributes. The typing rules have
no part in it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, DType, Mesh, Reduction
from collir.semantics.symbolic.algebra import (
    added,
    cast,
    constant_cast,
    kind_of,
    mapped,
    reduced,
    replaced,
    scaled,
    select,
)
from collir.semantics.symbolic.expressions import (
    Cast,
    Expr,
    Input,
    Opaque,
    UnprovenError,
    branch,
    number,
    term,
)
from collir.semantics.symbolic.indices import (
    ZERO,
    Index,
    Values,
    Var,
    digit_of,
    mixed,
    shifted,
    variable,
)
from collir.semantics.symbolic.provenance import equal

Axes = Sequence[str]


class ImpossibleError(Exception):
    """A step that cannot be carried out on the buffers as they are."""

    def __init__(self, op: DistOp, reason: str):
        super().__init__(reason)
        self.op = op


@dataclass(frozen=True)
class Value:
    """What all devices hold: the shape of a buffer, the sub-axes on which only coordinate 0 holds
    one, and what is in it."""

    shape: tuple[int, ...]
    roots: frozenset[str]
    expr: Expr


@dataclass(frozen=True)
class Computation:
    """What a ``compute`` works on: two that are equal give the same.

    ``partial``: the sub-axes that its first operand, and so its result, is partial over.
    """

    flops: float
    operands: tuple[Value, ...]
    partial: frozenset[str]


@dataclass
class Computations:
    """The different computations of two programs, numbered; with the names of their results and the
    variables each depends on."""

    known: list[Computation] = field(default_factory=list[Computation])
    names: list[str] = field(default_factory=list[str])
    variables: list[tuple[Var, ...]] = field(default_factory=list[tuple[Var, ...]])
    numbers: dict[Computation, int] = field(default_factory=dict[Computation, int])

    def number(self, one: Computation, name: str, variables: Sequence[Var]) -> int:
        """The number of a computation; the one it got, if it is known."""
        if (found := self.numbers.get(one)) is not None:
            return found
        for index, other in enumerate(self.known):
            if alike(one, other) and _equal(one, other):
                return index
        self.numbers[one] = len(self.known)
        self.known.append(one)
        self.names.append(name)
        self.variables.append(tuple(variables))
        return len(self.known) - 1


def alike(one: Computation, other: Computation) -> bool:
    """Whether two computations are of one cost, on values of one shape."""
    shapes = [[(x.shape, x.roots) for x in c.operands] for c in (one, other)]
    ways = [(side.flops, side.partial) for side in (one, other)]
    return ways[0] == ways[1] and shapes[0] == shapes[1]


def _equal(one: Computation, other: Computation) -> bool:
    pairs = [(a.expr, b.expr) for a, b in zip(one.operands, other.operands, strict=True)]
    same_inputs = all(kind_of(a) == kind_of(b) for a, b in pairs)
    return same_inputs and all(equal(a, b, Fraction(0)) for a, b in pairs)


def device(mesh: Mesh, axis: str) -> Var:
    """Where a device stands on a sub-axis."""
    return Var("device", axis, mesh.by_name[axis].size)


def place(dim: int, size: int) -> Var:
    """Where an element lies in a dimension of a buffer."""
    return Var("index", dim, size)


class Casts(Enum):
    """Which values are casts in an expression."""

    KEPT = auto()
    """Those that were cast to a type that does not hold every one of them."""
    ERASED = auto()
    """None: a cast changes nothing but constants."""
    UNDERFLOW = auto()
    """Those that may underflow or lose a fraction: that are cast to an integer or to a type of
    short range, or made smaller in one."""


def results(function: FuncOp, computations: Computations, casts: Casts = Casts.KEPT) -> list[Value]:
    """What a function returns.

    Raises:
        ImpossibleError: a step that cannot be carried out; does not happen to well-typed programs.
        UnprovenError: a step that is not expressed here.
    """
    run = _Run(mesh_of(function), computations, casts)
    values: dict[SSAValue, Value] = {
        arg: run.argument(index, dist_type(arg)) for index, arg in enumerate(function.args)
    }
    for op in function.body.ops:
        if isinstance(op, ReturnOp):
            return [values[operand] for operand in op.operands]
        if not isinstance(op, DistOp):
            raise UnprovenError(f"{op.name} is not of the coll dialect")
        values[op.result] = run.step(op, [values[operand] for operand in op.operands])
    return []


def block(mesh: Mesh, axes: Axes) -> Index:
    """The number of a device in its group over sub-axes, the first most significant."""
    return mixed((variable(device(mesh, a)), mesh.by_name[a].size) for a in axes)


def coordinates(mesh: Mesh, axes: Axes, number: Index) -> dict[Var, Index]:
    """Where the device of a number stands in its group over sub-axes."""
    found: dict[Var, Index] = {}
    stride = 1
    for axis in reversed(axes):
        var = device(mesh, axis)
        found[var] = digit_of(number, stride, var.size)
        stride *= var.size
    return found


class _Run:
    """The steps of one function."""

    def __init__(self, mesh: Mesh, computations: Computations, casts: Casts):
        self.mesh, self.computations, self.casts = mesh, computations, casts

    def argument(self, index: int, x: DistType) -> Value:
        shape = x.local_shape(self.mesh)
        at: list[Index] = []
        for dim, (one, size) in enumerate(zip(x.dims, shape, strict=True)):
            inner = (variable(place(dim, size)), size)
            at.append(mixed([(block(self.mesh, one.axes), self.mesh.group_size(one.axes)), inner]))
        at += [variable(device(self.mesh, axis)) for axis in self.mesh.ordered(x.partial)]
        return Value(shape, x.root, term(Input(index, tuple(at), x.dtype)))

    def step(self, op: DistOp, operands: Sequence[Value]) -> Value:
        x = operands[0]
        if op.mnemonic != "compute" and any(y.roots != x.roots for y in operands):
            raise ImpossibleError(op, "some devices hold only some of its operands")
        rule = RULES.get(op.mnemonic)
        if rule is None:
            raise UnprovenError(f"{op.mnemonic} has no symbolic meaning")
        return rule(self, op, operands)

    # --- collectives --------------------------------------------------------------------------

    def reduce(self, op: DistOp, x: Value, axes: Axes) -> Value:
        reduction = dist_type(op.operands[0]).reduction
        if reduction is None:
            raise ImpossibleError(op, "there is nothing partial to reduce")
        self._all_hold(op, x, axes)
        return Value(x.shape, x.roots, self.over(x.expr, axes, reduction))

    def over(self, expr: Expr, axes: Axes, reduction: Reduction) -> Expr:
        """The reduction over all coordinates of sub-axes."""
        for axis in axes:
            expr = reduced(expr, device(self.mesh, axis), reduction)
        return expr

    def gather(self, op: DistOp, x: Value, axes: Axes, dim: int) -> Value:
        self._all_hold(op, x, axes)
        local = x.shape[dim]
        size = local * self.mesh.group_size(axes)
        at = variable(place(dim, size))
        values: dict[Var, Index] = {place(dim, local): digit_of(at, 1, local)}
        values |= coordinates(self.mesh, axes, digit_of(at, local, self.mesh.group_size(axes)))
        return Value(_with(x.shape, dim, size), x.roots, replaced(x.expr, values))

    def broadcast(self, op: DistOp, x: Value, axes: Axes) -> Value:
        if not x.roots.issuperset(axes):
            raise ImpossibleError(op, "devices that are not roots hold data")
        return Value(x.shape, x.roots - frozenset(axes), x.expr)

    def permute(self, op: DistOp, x: Value, source: DistType, to: DistType) -> Value:
        if source.local_shape(self.mesh) != to.local_shape(self.mesh):
            raise ImpossibleError(op, "its blocks have another shape")
        named = {axis for dim in source.dims for axis in dim.axes} | source.partial | source.root
        values: dict[Var, Index] = {
            device(self.mesh, axis): ZERO for axis in self.mesh.by_name if axis not in named
        }
        for have, want in zip(source.dims, to.dims, strict=True):
            values |= coordinates(self.mesh, have.axes, block(self.mesh, want.axes))
        return Value(x.shape, x.roots, replaced(x.expr, values))

    def redistribute(self, op: DistOp, x: Value, source: DistType, to: DistType) -> Value:
        expr = x.expr
        if source.reduction is not None:
            done = self.mesh.ordered(source.partial - to.partial)
            expr = self.over(expr, done, source.reduction)
        shape = to.local_shape(self.mesh)
        values: dict[Var, Index] = {}
        for axis in self.mesh.by_name:
            if source.state_of(axis) == "replicated":
                values[device(self.mesh, axis)] = ZERO
        for dim, (have, want) in enumerate(zip(source.dims, to.dims, strict=True)):
            inner = (variable(place(dim, shape[dim])), shape[dim])
            outer = (block(self.mesh, want.axes), self.mesh.group_size(want.axes))
            at = mixed([outer, inner])
            local = x.shape[dim]
            values[place(dim, local)] = digit_of(at, 1, local)
            number = digit_of(at, local, self.mesh.group_size(have.axes))
            values |= coordinates(self.mesh, have.axes, number)
        y = Value(shape, frozenset(), replaced(expr, values))
        new = self.mesh.ordered(to.partial - source.partial)
        if new and to.reduction is not None:
            y = self.mask(y, new, to.reduction)
        return self.keep_root(y, self.mesh.ordered(to.root))

    def _all_hold(self, op: DistOp, x: Value, axes: Axes) -> None:
        if x.roots.intersection(axes):
            raise ImpossibleError(op, "only some of the devices hold data")

    def meant(self, x: DistType, value: Value) -> Value:
        """What a value stands for: where it is partial, the reduction."""
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
        at = mixed([(block(self.mesh, axes), group), (variable(place(dim, local)), local)])
        expr = replaced(x.expr, {place(dim, x.shape[dim]): at})
        return Value(_with(x.shape, dim, local), x.roots, expr)

    def keep_root(self, x: Value, axes: Axes) -> Value:
        values: Values = {device(self.mesh, axis): ZERO for axis in axes}
        return Value(x.shape, x.roots | frozenset(axes), replaced(x.expr, values))

    def mask(self, x: Value, axes: Axes, reduction: Reduction) -> Value:
        identity = number(0 if reduction is Reduction.SUM else 1)
        expr = x.expr
        for axis in axes:
            at = variable(device(self.mesh, axis))
            size = self.mesh.by_name[axis].size
            root = replaced(expr, {device(self.mesh, axis): ZERO})
            pieces = [(1, branch(at, 0, 1), root), (size - 1, branch(at, 1, size - 1), identity)]
            expr = select(at, pieces)
        return Value(x.shape, x.roots, expr)

    def viewed(self, op: DistOp, x: Value, shape: tuple[int, ...]) -> Value:
        if math.prod(shape) != math.prod(x.shape):
            raise ImpossibleError(op, "the number of elements differs")
        flat = mixed((variable(place(dim, size)), size) for dim, size in enumerate(shape))
        values: dict[Var, Index] = {}
        stride = 1
        for dim in reversed(range(len(x.shape))):
            size = x.shape[dim]
            values[place(dim, size)] = digit_of(flat, stride, size)
            stride *= size
        return Value(shape, x.roots, replaced(x.expr, values))

    def pad(self, x: Value, dim: int, low: int, high: int, fill: float) -> Value:
        local = x.shape[dim]
        shape = _with(x.shape, dim, local + low + high)
        at = variable(place(dim, shape[dim]))
        kept = local + min(low, 0) + min(high, 0)
        sizes = [(max(low, 0), None), (kept, x.expr), (max(high, 0), None)]
        pieces: list[tuple[int, Var, Expr]] = []
        start = 0
        for size, expr in sizes:
            if size > 0:
                var = branch(at, start, size)
                inner = shifted(variable(var), max(-low, 0))
                value = number(fill) if expr is None else replaced(expr, {place(dim, local): inner})
                pieces.append((size, var, value))
                start += size
        return Value(shape, x.roots, select(at, pieces))

    def concat(self, operands: Sequence[Value], dim: int) -> Value:
        total = sum(x.shape[dim] for x in operands)
        at = variable(place(dim, total))
        pieces: list[tuple[int, Var, Expr]] = []
        start = 0
        for x in operands:
            size = x.shape[dim]
            var = branch(at, start, size)
            pieces.append((size, var, replaced(x.expr, {place(dim, size): variable(var)})))
            start += size
        x = operands[0]
        return Value(_with(x.shape, dim, total), x.roots, select(at, pieces))

    def cast(self, x: Value, dtype: DType, source: DType) -> Value:
        cuts = not dtype.is_float or (dtype.short_range and source.is_float)
        if self.casts is Casts.KEPT or (self.casts is Casts.UNDERFLOW and cuts):
            expr = cast(x.expr, dtype, source)
        else:
            expr = mapped(x.expr, lambda leaf: constant_cast(leaf, dtype))
        return Value(x.shape, x.roots, expr)

    def scale(self, x: Value, factor: Fraction, dtype: DType) -> Value:
        expr = scaled(x.expr, factor)
        if self.casts is Casts.UNDERFLOW and dtype.short_range and abs(factor) < 1:
            expr = mapped(expr, lambda leaf: term(Cast(dtype, leaf)) if leaf.terms else leaf)
        return Value(x.shape, x.roots, expr)

    def compute(self, op: DistOp, operands: Sequence[Value]) -> Value:
        """Elements of an unknown function of all of the operands.

        Its type says that it is distributed as the first operand is, whatever the others are.
        """
        x = operands[0]
        own = [place(dim, size) for dim, size in enumerate(x.shape)]
        types = [dist_type(operand) for operand in op.operands]
        meant = [self.meant(y, value) for y, value in zip(types, operands, strict=True)]
        partial = types[0].partial
        found = {var for var in meant[0].expr.free if var.kind == "device"}
        found |= {device(self.mesh, axis) for axis in partial}
        devices = sorted(found, key=str)
        one = Computation(op.number("flops"), tuple(meant), partial)
        name = f"%{hint}" if (hint := op.result.name_hint) else "a computation"
        number = self.computations.number(one, name, [*own, *devices])
        at = tuple(variable(var) for var in (*own, *devices))
        return Value(x.shape, x.roots, term(Opaque(number, at, dist_type(op.result).dtype)))


def _with(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*shape[:dim], size, *shape[dim + 1 :])


# ---------------------------------------------------------------------------------------------
# The steps
# ---------------------------------------------------------------------------------------------


def _transpose(run: _Run, op: DistOp, operands: Sequence[Value]) -> Value:
    (x,), order = operands, op.sizes("order")
    values = {
        place(dim, x.shape[dim]): variable(place(new, x.shape[dim]))
        for new, dim in enumerate(order)
    }
    return Value(tuple(x.shape[dim] for dim in order), x.roots, replaced(x.expr, values))


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
}
"""What every step makes of expressions, by its name."""
