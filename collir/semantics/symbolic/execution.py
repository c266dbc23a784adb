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
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue

from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, DType, Mesh, Place, Reduction, at_root, place_at
from collir.semantics.reference import nn
from collir.semantics.symbolic.algebra import (
    added,
    cast_expr,
    constant_cast,
    mapped,
    reduced,
    scaled,
    selection,
    substituted,
)
from collir.semantics.symbolic.blocks import block, passed_indices
from collir.semantics.symbolic.expressions import (
    Cast,
    Expr,
    Input,
    Opaque,
    Summand,
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
    constant,
    digit_of,
    mixed_radix,
    shifted,
    variable,
)
from collir.semantics.symbolic.models import Applied, rule_of
from collir.semantics.symbolic.values import (
    Axes,
    Casts,
    Computation,
    Computations,
    ImpossibleError,
    Value,
    coordinate_variable,
    position_variable,
)


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


class Held(Protocol):
    """The buffers of all devices, in some form; only devices at ``place`` hold one."""

    @property
    def place(self) -> Place: ...

    @property
    def placed(self) -> frozenset[str]: ...


V = TypeVar("V", bound=Held)


class AnyRun(ABC, Generic[V]):
    """The execution of the steps of one function, on some form of values."""

    def __init__(self, mesh: Mesh, computations: Computations, casts: Casts):
        self.mesh, self.computations, self.casts = mesh, computations, casts

    def step(self, op: DistOp, operands: Sequence[V]) -> V:
        """Return the result of an operation.

        Raises:
            ImpossibleError: the operation cannot be carried out on these operands.
            UnprovenError: the operation has no symbolic meaning.
        """
        if op.mnemonic not in _ANYWHERE and len({x.place for x in operands}) > 1:
            raise ImpossibleError(op, "some devices hold only some of its operands")
        rule = RULES.get(op.mnemonic)
        if rule is None and op.mnemonic in nn.FUNCTIONS:
            return self.apply(op, operands)
        if rule is None:
            raise UnprovenError(f"{op.mnemonic} has no symbolic meaning")
        return rule(self, op, operands)

    def check_all_hold(self, op: DistOp, x: V, axes: Axes) -> None:
        """Check that all devices of the groups over sub-axes hold data."""
        if x.placed.intersection(axes):
            raise ImpossibleError(op, "only some of the devices hold data")

    def keep_root(self, op: DistOp, x: V, axes: Axes) -> V:
        """Return the value at coordinate 0 of sub-axes."""
        return self.keep(op, x, at_root(axes))

    def place(self, axes: Axes, index: int) -> Place:
        """Return the place at a rank in the group over sub-axes."""
        digits = coordinates(self.mesh, axes, constant(index))
        return place_at((str(var.name), digit.offset) for var, digit in digits.items())

    def argument(self, index: int, x: DistType) -> V:
        """Return the value of an argument, whose elements are those of an input."""
        parts = (self.mesh.by_name[axis].size for axis in self.mesh.ordered(x.partial))
        self.computations.arguments[index] = (*map(int, x.shape), *parts)
        return self.elements(x, lambda at: Input(index, at, x.dtype))

    def loop(self, op: RepeatOp, operands: Sequence[V]) -> list[V]:
        """Return the results of a loop, as elements of an unknown function of its operands.

        Loops whose bodies have the same number are the same function: what the carries stand for
        is equal before each iteration, so it is equal after it.

        Raises:
            UnprovenError: the body has no number.
        """
        if op not in self.computations.bodies:
            raise UnprovenError(f"{op.mnemonic} has no symbolic meaning")
        types = [dist_type(operand) for operand in op.operands]
        whole = [self.whole(x, y) for x, y in zip(types, operands, strict=True)]
        facts = self.computations.bodies[op], op.times, op.is_reverse, len(op.carried)
        results: list[V] = []
        for index, x in enumerate(map(dist_type, op.results)):
            loop = (*facts, len(op.sliced), index)
            known = tuple(part for value in whole for part in self.parts(value))
            computation = Computation(0.0, known, x.partial, loop)
            variables = [position_variable(dim, int(n)) for dim, n in enumerate(x.shape)]
            number = self.computations.number_of(computation, op.mnemonic, variables)
            results.append(self.elements(x, partial(Opaque, number, dtype=x.dtype)))
        return results

    def apply(self, op: DistOp, operands: Sequence[V]) -> V:
        """Return the result of an operation of a model."""
        self.computations.of_models = True
        if self.computations.as_atoms:
            return self.unknown(op, operands)
        if (rule := rule_of(op)) is None:
            return self.by_blocks(op, operands)
        return self.local(op, operands, lambda s: rule(Applied(op, s.operands, self.computations)))

    def by_blocks(self, op: DistOp, operands: Sequence[V]) -> V:
        """Return the result of an operation of which only the index structure is known."""
        passed = passed_indices(op)
        if passed is None or op.structure is None:
            return self.unknown(op, operands)
        wholes: list[V] = []
        for x, over, value in zip(
            map(dist_type, op.operands), op.structure.operands, operands, strict=True
        ):
            whole = self.meant(x, value)
            for number, (dim, index) in enumerate(zip(x.dims, over, strict=True)):
                if dim.axes and index not in passed:
                    whole = self.gathered(whole, dim.axes, number)
            wholes.append(whole)
        known = self.computations
        y = self.local(op, wholes, lambda s: block(Applied(op, s.operands, known), passed))
        return self.spread(dist_type(op.result), y)

    def spread(self, x: DistType, whole: V) -> V:
        """Return buffers of a partial type that stand for a value: it is at one coordinate, or
        everywhere where the reduction returns what all have."""
        if x.reduction is None or x.reduction.idempotent:
            return whole
        return self.mask(whole, self.mesh.ordered(x.partial), x.reduction)

    def unknown(self, op: DistOp, operands: Sequence[V]) -> V:
        """Return the result of an operation of a model, as elements of an unknown function.

        Operations with one name and equal arguments on operands that stand for the same tensors are
        the same function, however these are distributed.
        """
        known: list[Value] = []
        for x, value in zip(map(dist_type, op.operands), operands, strict=True):
            known += self.parts(self.whole(x, value))
        result = dist_type(op.result)
        given = (
            (name, (value.dtype, value.shape) if isinstance(value, DistType) else value)
            for name, value in op.arguments.items()
        )
        facts = op.mnemonic, tuple(given), result.dtype
        computation = Computation(0.0, tuple(known), frozenset(), operation=facts)
        name = f"%{hint}" if (hint := op.result.name_hint) else f"a result of {op.mnemonic}"
        variables = [position_variable(dim, int(n)) for dim, n in enumerate(result.shape)]
        number = self.computations.number_of(computation, name, variables)
        bare = replace(result, partial=frozenset(), reduction=None)
        whole = self.elements(bare, partial(Opaque, number, dtype=result.dtype))
        return self.spread(result, whole)

    def whole(self, x: DistType, value: V) -> V:
        """Return the tensor that buffers of a type stand for, on all devices that hold a part."""
        value = self.meant(x, value)
        for number, dim in enumerate(x.dims):
            if dim.axes:
                value = self.gathered(value, dim.axes, number)
        return value

    def counted(self, op: DistOp) -> V:
        """Return positions in a dimension, as elements of one unknown sequence of numbers."""
        self.computations.of_models = True
        to, dim = op.layout("to"), op.integer("dim")
        facts = op.mnemonic, to.dtype
        computation = Computation(0.0, (), frozenset(), operation=facts)
        variables = [position_variable(0, int(to.shape[dim]))]
        number = self.computations.number_of(computation, "an iota", variables)
        return self.elements(to, lambda at: Opaque(number, at[dim : dim + 1], to.dtype))

    @abstractmethod
    def elements(self, x: DistType, term: Callable[[tuple[Index, ...]], Summand]) -> V:
        """Return a value of a type, by the term for the element at a position in the global tensor,
        followed by the coordinates on the sub-axes that the value is partial over."""

    @abstractmethod
    def meant(self, x: DistType, value: V) -> V:
        """Return the value that buffers stand for: partial values are reduced."""

    @abstractmethod
    def parts(self, value: V) -> tuple[Value, ...]:
        """Return the values on devices with buffers of one shape, in a fixed order."""

    @abstractmethod
    def reduce(self, op: DistOp, x: V, axes: Axes) -> V: ...

    @abstractmethod
    def gather(self, op: DistOp, x: V, axes: Axes, dim: int) -> V: ...

    @abstractmethod
    def gathered(self, x: V, axes: Axes, dim: int) -> V:
        """Return the concatenation over sub-axes of blocks that all devices hold."""

    @abstractmethod
    def broadcast(self, op: DistOp, x: V, axes: Axes) -> V: ...

    @abstractmethod
    def permute(self, op: DistOp, x: V, source: DistType, to: DistType) -> V: ...

    @abstractmethod
    def redistribute(self, op: DistOp, x: V, source: DistType, to: DistType) -> V: ...

    @abstractmethod
    def slice(self, op: DistOp, x: V, axes: Axes, dim: int) -> V: ...

    @abstractmethod
    def keep(self, op: DistOp, x: V, place: Place) -> V: ...

    @abstractmethod
    def send(self, op: DistOp, x: V) -> V: ...

    @abstractmethod
    def shift(self, op: DistOp, x: V) -> V: ...

    @abstractmethod
    def assemble(self, op: DistOp, operands: Sequence[V]) -> V: ...

    @abstractmethod
    def mask(self, x: V, axes: Axes, reduction: Reduction) -> V: ...

    @abstractmethod
    def compute(self, op: DistOp, operands: Sequence[V]) -> V: ...

    @abstractmethod
    def local(self, op: DistOp, operands: Sequence[V], step: "Callable[[LocalStep], Value]") -> V:
        """Return the result of a step that every device carries out by itself."""


def results_of(function: FuncOp, run: "AnyRun[V]") -> list[V]:
    """Return the results of a function by a run of its steps.

    Raises:
        ImpossibleError: a step cannot be carried out, which does not happen in typed programs.
        UnprovenError: a step has no symbolic meaning.
    """
    values: dict[SSAValue, V] = {
        arg: run.argument(index, dist_type(arg)) for index, arg in enumerate(function.args)
    }
    for op in function.body.ops:
        if isinstance(op, ReturnOp):
            return [values[operand] for operand in op.operands]
        operands = [values[operand] for operand in op.operands]
        if isinstance(op, RepeatOp):
            values.update(zip(op.results, run.loop(op, operands), strict=True))
        elif isinstance(op, DistOp):
            values[op.result] = run.step(op, operands)
        else:
            raise UnprovenError(f"{op.name} is not of the coll dialect")
    return []


@dataclass(frozen=True)
class LocalStep:
    """A step that devices with buffers of one shape carry out by themselves.

    Attributes:
        shape: the shape of the result in their memory.
    """

    run: "Run"
    op: DistOp
    operands: Sequence[Value]
    shape: tuple[int, ...]


class Run(AnyRun[Value]):
    """The execution of the steps of one function, on buffers of one shape on all devices."""

    def local(
        self, op: DistOp, operands: Sequence[Value], step: Callable[[LocalStep], Value]
    ) -> Value:
        shape = dist_type(op.result).local_shape(self.mesh)
        return step(LocalStep(self, op, operands, shape))

    def elements(self, x: DistType, term: Callable[[tuple[Index, ...]], Summand]) -> Value:
        shape = x.local_shape(self.mesh)
        at: list[Index] = []
        for number, (dim, size) in enumerate(zip(x.dims, shape, strict=True)):
            at.append(mixed_radix([self._block(dim.axes), _position(number, size)]))
        at += [
            variable(coordinate_variable(self.mesh, axis)) for axis in self.mesh.ordered(x.partial)
        ]
        return Value(shape, x.place, term_expr(term(tuple(at))))

    def _block(self, axes: Axes) -> tuple[Index, int]:
        """Return the block of a device, of a dimension sharded over sub-axes, and their number."""
        return rank_in_group(self.mesh, axes), self.mesh.group_size(axes)

    # --- collectives --------------------------------------------------------------------------

    def reduce(self, op: DistOp, x: Value, axes: Axes) -> Value:
        reduction = dist_type(op.operands[0]).reduction
        if reduction is None:
            raise ImpossibleError(op, "there is nothing partial to reduce")
        self.check_all_hold(op, x, axes)
        return Value(x.shape, x.place, self.over(x.expr, axes, reduction))

    def over(self, expr: Expr, axes: Axes, reduction: Reduction) -> Expr:
        """Return the reduction over all coordinates of sub-axes."""
        for axis in axes:
            expr = reduced(expr, coordinate_variable(self.mesh, axis), reduction)
        return expr

    def gather(self, op: DistOp, x: Value, axes: Axes, dim: int) -> Value:
        """Return the concatenation over sub-axes: position ``r * local + i`` is position i on the
        device with rank r in the group."""
        self.check_all_hold(op, x, axes)
        return self.gathered(x, axes, dim)

    def gathered(self, x: Value, axes: Axes, dim: int) -> Value:
        """Return the concatenation over sub-axes of blocks that all devices hold."""
        local = x.shape[dim]
        size = local * self.mesh.group_size(axes)
        at = variable(position_variable(dim, size))
        values: dict[Var, Index] = {position_variable(dim, local): digit_of(at, 1, local)}
        values |= coordinates(self.mesh, axes, digit_of(at, local, self.mesh.group_size(axes)))
        return Value(_with(x.shape, dim, size), x.place, substituted(x.expr, values))

    def broadcast(self, op: DistOp, x: Value, axes: Axes) -> Value:
        if not x.placed.issuperset(axes):
            raise ImpossibleError(op, "several devices of a group hold data")
        return Value(x.shape, x.without(axes), x.expr)

    def send(self, op: DistOp, x: Value) -> Value:
        """Return the value at another coordinate; its expression does not depend on where it is."""
        sender, receiver = (self.place(op.over, op.integer(n)) for n in ("sender", "receiver"))
        if not set(sender) <= set(x.place):
            raise ImpossibleError(op, "the sender does not hold it")
        return Value(x.shape, place_at([*x.without(op.over), *receiver]), x.expr)

    def shift(self, op: DistOp, x: Value) -> Value:
        """Return the value of the device that is ``distance`` before, or zeros before the first."""
        self.check_all_hold(op, x, op.over)
        by, count = op.integer("distance"), self.mesh.group_size(op.over)
        rank = rank_in_group(self.mesh, op.over)
        if "open" not in op.properties:
            source = digit_of(shifted(rank, -by % count), 1, count)
            return Value(x.shape, x.place, self._read_from(x.expr, op.over, source))
        zeros = abs(by)
        sizes = [(zeros, False), (count - zeros, True)][:: 1 if by > 0 else -1]
        pieces: list[tuple[int, Var, Expr]] = []
        start = 0
        for size, holds in sizes:
            var = interval_variable(rank, start, size)
            source = shifted(variable(var), max(-by, 0))
            kept = self._read_from(x.expr, op.over, source) if holds else constant_expr(0)
            pieces.append((size, var, kept))
            start += size
        return Value(x.shape, x.place, selection(rank, pieces))

    def _read_from(self, expr: Expr, axes: Axes, rank: Index) -> Expr:
        """Return the expression on the device with a rank in its group over sub-axes."""
        return substituted(expr, coordinates(self.mesh, axes, rank))

    def assemble(self, op: DistOp, operands: Sequence[Value]) -> Value:
        """Return on each device of a group the value of the operand that is there."""
        rank, first = rank_in_group(self.mesh, op.over), operands[0]
        place = first.without(op.over)
        pieces: list[tuple[int, Var, Expr]] = []
        for index, x in enumerate(operands):
            own = self.place(op.over, index)
            if x.place != place_at([*place, *own]) or x.shape != first.shape:
                raise ImpossibleError(op, f"piece {index} is not where it belongs")
            pieces.append((1, interval_variable(rank, index, 1), x.expr))
        return Value(first.shape, place, selection(rank, pieces))

    def permute(self, op: DistOp, x: Value, source: DistType, to: DistType) -> Value:
        """Return the blocks that ``to`` assigns to each device, read from the first holder."""
        if source.local_shape(self.mesh) != to.local_shape(self.mesh):
            raise ImpossibleError(op, "its blocks have another shape")
        named = {axis for dim in source.dims for axis in dim.axes} | source.partial | source.placed
        values: dict[Var, Index] = {
            coordinate_variable(self.mesh, axis): ZERO_INDEX
            for axis in self.mesh.by_name
            if axis not in named
        }
        for have, want in zip(source.dims, to.dims, strict=True):
            values |= coordinates(self.mesh, have.axes, rank_in_group(self.mesh, want.axes))
        return Value(x.shape, x.place, substituted(x.expr, values))

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
        y = Value(shape, (), substituted(expr, values))
        new = self.mesh.ordered(to.partial - source.partial)
        if new and to.reduction is not None:
            y = self.mask(y, new, to.reduction)
        return self.keep(op, y, to.place)

    def meant(self, x: DistType, value: Value) -> Value:
        if x.reduction is None:
            return value
        expr = self.over(value.expr, self.mesh.ordered(x.partial), x.reduction)
        return Value(value.shape, value.place, expr)

    def parts(self, value: Value) -> tuple[Value, ...]:
        return (value,)

    # --- local steps --------------------------------------------------------------------------

    def slice(self, op: DistOp, x: Value, axes: Axes, dim: int) -> Value:
        group = self.mesh.group_size(axes)
        if x.shape[dim] % group:
            raise ImpossibleError(op, f"{x.shape[dim]} does not divide into {group} blocks")
        local = x.shape[dim] // group
        at = mixed_radix([self._block(axes), _position(dim, local)])
        expr = substituted(x.expr, {position_variable(dim, x.shape[dim]): at})
        return Value(_with(x.shape, dim, local), x.place, expr)

    def keep(self, op: DistOp, x: Value, place: Place) -> Value:
        """Return the value at coordinates of sub-axes."""
        self.check_all_hold(op, x, [axis for axis, _ in place])
        values: Values = {coordinate_variable(self.mesh, axis): constant(n) for axis, n in place}
        return Value(x.shape, place_at([*x.place, *place]), substituted(x.expr, values))

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
        return Value(x.shape, x.place, expr)

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
        return Value(shape, x.place, substituted(x.expr, values))

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
        return Value(shape, x.place, selection(at, pieces))

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
        return Value(_with(x.shape, dim, total), x.place, selection(at, pieces))

    def cast(self, x: Value, dtype: DType, source: DType) -> Value:
        if dtype is DType.BOOL is not source and self.casts is Casts.ERASED:
            raise UnprovenError("a cast to bool forgets the number")
        cuts = not dtype.is_float or (dtype.short_range and source.is_float)
        if self.casts is Casts.KEPT or (self.casts is Casts.UNDERFLOW and cuts):
            expr = cast_expr(x.expr, dtype, source)
        else:
            expr = mapped(x.expr, lambda leaf: constant_cast(leaf, dtype))
        return Value(x.shape, x.place, expr)

    def scale(self, x: Value, factor: Fraction, dtype: DType) -> Value:
        expr = scaled(x.expr, factor)
        if self.casts is Casts.UNDERFLOW and dtype.short_range and abs(factor) < 1:
            expr = mapped(expr, lambda leaf: term_expr(Cast(dtype, leaf)) if leaf.terms else leaf)
        return Value(x.shape, x.place, expr)

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
        return Value(x.shape, x.place, term_expr(Opaque(number, at, dist_type(op.result).dtype)))


def _position(dim: int, size: int) -> tuple[Index, int]:
    """Return the position in a dimension of a buffer, and the size of the dimension."""
    return variable(position_variable(dim, size)), size


def _with(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*shape[:dim], size, *shape[dim + 1 :])


# ---------------------------------------------------------------------------------------------
# The steps
# ---------------------------------------------------------------------------------------------


def _transpose(s: LocalStep) -> Value:
    (x,), order = s.operands, s.op.sizes("order")
    values = {
        position_variable(dim, x.shape[dim]): variable(position_variable(new, x.shape[dim]))
        for new, dim in enumerate(order)
    }
    return Value(tuple(x.shape[dim] for dim in order), x.place, substituted(x.expr, values))


def _repeated(s: LocalStep, x: Value) -> Value:
    """Return a value repeated along new dimensions and those of size 1, in the result's shape."""
    before = len(s.shape) - len(x.shape)
    values: dict[Var, Index] = {}
    for dim, size in enumerate(x.shape):
        if before < 0 or size not in (1, s.shape[before + dim]):
            raise ImpossibleError(s.op, f"{list(x.shape)} does not fit {list(s.shape)}")
        whole = size == s.shape[before + dim]
        at = variable(position_variable(before + dim, size)) if whole else ZERO_INDEX
        values[position_variable(dim, size)] = at
    return Value(s.shape, x.place, substituted(x.expr, values))


def _add(s: LocalStep) -> Value:
    x, y = (x if x.shape == s.shape else _repeated(s, x) for x in s.operands)
    return Value(x.shape, x.place, added(x.expr, y.expr))


def _constant(s: LocalStep) -> Value:
    to = s.op.layout("to")
    expr = constant_cast(constant_expr(s.op.number("value")), to.dtype)
    return Value(s.shape, to.place, expr)


def _pad(s: LocalStep) -> Value:
    dim, low, high = (s.op.integer(name) for name in ("dim", "low", "high"))
    return s.run.pad(s.operands[0], dim, low, high, s.op.number("value"))


def _view(s: LocalStep) -> Value:
    return s.run.viewed(s.op, s.operands[0], s.shape)


def _concat(s: LocalStep) -> Value:
    return s.run.concat(s.operands, s.op.integer("dim"))


def _scale(s: LocalStep) -> Value:
    factor = Fraction(s.op.number("factor"))
    return s.run.scale(s.operands[0], factor, dist_type(s.op.input).dtype)


def _cast(s: LocalStep) -> Value:
    return s.run.cast(s.operands[0], DType(s.op.word("dtype")), dist_type(s.op.input).dtype)


_ANYWHERE = frozenset(["compute", "assemble"])
"""The steps whose operands may be on other devices than the first."""

RULES: dict[str, Callable[[AnyRun[Any], DistOp, Sequence[Any]], Any]] = {
    "all_reduce": lambda run, op, xs: run.reduce(op, xs[0], op.over),
    "reduce": lambda run, op, xs: run.keep_root(op, run.reduce(op, xs[0], op.over), op.over),
    "reduce_scatter": lambda run, op, xs: run.slice(
        op, run.reduce(op, xs[0], op.over), op.over, op.integer("dim")
    ),
    "all_gather": lambda run, op, xs: run.gather(op, xs[0], op.over, op.integer("dim")),
    "gather": lambda run, op, xs: run.keep_root(
        op, run.gather(op, xs[0], op.over, op.integer("dim")), op.over
    ),
    "broadcast": lambda run, op, xs: run.broadcast(op, xs[0], op.over),
    "scatter": lambda run, op, xs: run.slice(
        op, run.broadcast(op, xs[0], op.over), op.over, op.integer("dim")
    ),
    "all_to_all": lambda run, op, xs: run.slice(
        op, run.gather(op, xs[0], op.over, op.integer("source")), op.over, op.integer("target")
    ),
    "send": lambda run, op, xs: run.send(op, xs[0]),
    "shift": lambda run, op, xs: run.shift(op, xs[0]),
    "permute": lambda run, op, xs: run.permute(op, xs[0], dist_type(op.input), op.layout("to")),
    "redistribute": lambda run, op, xs: run.redistribute(
        op, xs[0], dist_type(op.input), op.layout("to")
    ),
    "slice": lambda run, op, xs: run.slice(op, xs[0], op.over, op.integer("dim")),
    "keep_root": lambda run, op, xs: run.keep_root(op, xs[0], op.over),
    "keep": lambda run, op, xs: run.keep(op, xs[0], op.place("place")),
    "part": lambda run, op, xs: run.keep(op, xs[0], run.place(op.over, op.integer("coordinate"))),
    "assemble": lambda run, op, xs: run.assemble(op, xs),
    "mask": lambda run, op, xs: run.mask(xs[0], op.over, Reduction(op.word("reduction"))),
    "terms": lambda run, op, xs: run.local(op, xs, _view),
    "split": lambda run, op, xs: run.local(op, xs, _view),
    "merge": lambda run, op, xs: run.local(op, xs, _view),
    "reshape": lambda run, op, xs: run.local(op, xs, _view),
    "transpose": lambda run, op, xs: run.local(op, xs, _transpose),
    "pad": lambda run, op, xs: run.local(op, xs, _pad),
    "concat": lambda run, op, xs: run.local(op, xs, _concat),
    "scale": lambda run, op, xs: run.local(op, xs, _scale),
    "cast": lambda run, op, xs: run.local(op, xs, _cast),
    "add": lambda run, op, xs: run.local(op, xs, _add),
    "compute": lambda run, op, xs: run.compute(op, xs),
    "barrier": lambda run, op, xs: xs[0],
    "constant": lambda run, op, xs: run.local(op, xs, _constant),
    "iota": lambda run, op, xs: run.counted(op),
    "uniform": lambda run, op, xs: run.unknown(op, xs),
    "broadcast_to": lambda run, op, xs: run.local(op, xs, lambda s: _repeated(s, s.operands[0])),
}
"""The symbolic meaning of every step that is not one function of arrays, by its name."""
