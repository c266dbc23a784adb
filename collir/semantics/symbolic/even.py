"""Symbolic execution where all devices have buffers of one shape."""

from collections.abc import Callable, Sequence

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, Place, Reduction, place_at
from collir.semantics.symbolic.algebra import reduced, substituted
from collir.semantics.symbolic.expressions import Expr, Opaque, Summand, constant_expr, term_expr
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
from collir.semantics.symbolic.local import (
    Part,
    SymbolicLocalStep,
    by_intervals,
    position_in,
    with_size,
)
from collir.semantics.symbolic.run import AnyRun, coordinates, rank_in_group
from collir.semantics.symbolic.values import (
    Axes,
    ImpossibleError,
    SymbolicValue,
    UnknownComputation,
    coordinate_variable,
    position_variable,
)


class EvenRun(AnyRun[SymbolicValue]):
    """The execution of the steps of one function, on buffers of one shape on all devices."""

    def local(
        self,
        op: DistOp,
        operands: Sequence[SymbolicValue],
        step: Callable[[SymbolicLocalStep], SymbolicValue],
    ) -> SymbolicValue:
        shape = dist_type(op.result).local_shape(self.mesh)
        return step(SymbolicLocalStep(op, operands, shape, self.casts))

    def elements(self, x: DistType, term: Callable[[tuple[Index, ...]], Summand]) -> SymbolicValue:
        shape = x.local_shape(self.mesh)
        at: list[Index] = []
        for number, (dim, size) in enumerate(zip(x.dims, shape, strict=True)):
            at.append(mixed_radix([self._block(dim.axes), position_in(number, size)]))
        at += [
            variable(coordinate_variable(self.mesh, axis)) for axis in self.mesh.ordered(x.partial)
        ]
        return SymbolicValue(shape, x.place, term_expr(term(tuple(at))))

    def _block(self, axes: Axes) -> tuple[Index, int]:
        """Return the block of a device, of a dimension sharded over sub-axes, and their number."""
        return rank_in_group(self.mesh, axes), self.mesh.group_size(axes)

    # --- collectives --------------------------------------------------------------------------

    def over(self, x: SymbolicValue, axes: Axes, reduction: Reduction) -> SymbolicValue:
        expr = x.expr
        for axis in axes:
            expr = reduced(expr, coordinate_variable(self.mesh, axis), reduction)
        return SymbolicValue(x.shape, x.place, expr)

    def gathered(self, x: SymbolicValue, axes: Axes, dim: int) -> SymbolicValue:
        """Return the concatenation over sub-axes: position ``r * local + i`` is position i on the
        device with rank r in the group."""
        local = x.shape[dim]
        size = local * self.mesh.group_size(axes)
        at = variable(position_variable(dim, size))
        values: dict[Var, Index] = {position_variable(dim, local): digit_of(at, 1, local)}
        values |= coordinates(self.mesh, axes, digit_of(at, local, self.mesh.group_size(axes)))
        return SymbolicValue(with_size(x.shape, dim, size), x.place, substituted(x.expr, values))

    def broadcast(self, op: DistOp, x: SymbolicValue, axes: Axes) -> SymbolicValue:
        if not x.placed.issuperset(axes):
            raise ImpossibleError(op, "several devices of a group hold data")
        return SymbolicValue(x.shape, x.without(axes), x.expr)

    def send(self, op: DistOp, x: SymbolicValue) -> SymbolicValue:
        """Return the value at another coordinate; its expression does not depend on where it is."""
        sender, receiver = (self.place(op.over, op.integer(n)) for n in ("sender", "receiver"))
        if not set(sender) <= set(x.place):
            raise ImpossibleError(op, "the sender does not hold it")
        return SymbolicValue(x.shape, place_at([*x.without(op.over), *receiver]), x.expr)

    def shift(self, op: DistOp, x: SymbolicValue) -> SymbolicValue:
        """Return the value of the device that is ``distance`` before, or zeros before the first."""
        self.check_all_hold(op, x, op.over)
        by, count = op.integer("distance"), self.mesh.group_size(op.over)
        rank = rank_in_group(self.mesh, op.over)
        if "open" not in op.properties:
            source = digit_of(shifted(rank, -by % count), 1, count)
            return SymbolicValue(x.shape, x.place, self._read_from(x.expr, op.over, source))

        def kept(at: Index) -> Expr:
            return self._read_from(x.expr, op.over, shifted(at, max(-by, 0)))

        parts: list[Part] = [(abs(by), constant_expr(0)), (count - abs(by), kept)]
        expr = by_intervals(rank, parts if by > 0 else reversed(parts))
        return SymbolicValue(x.shape, x.place, expr)

    def _read_from(self, expr: Expr, axes: Axes, rank: Index) -> Expr:
        """Return the expression on the device with a rank in its group over sub-axes."""
        return substituted(expr, coordinates(self.mesh, axes, rank))

    def assemble(self, op: DistOp, operands: Sequence[SymbolicValue]) -> SymbolicValue:
        """Return on each device of a group the value of the operand that is there."""
        rank, first = rank_in_group(self.mesh, op.over), operands[0]
        place = self.assembled_place(op, operands)
        if any(x.shape != first.shape for x in operands):
            raise ImpossibleError(op, "its pieces have different shapes")
        expr = by_intervals(rank, ((1, x.expr) for x in operands))
        return SymbolicValue(first.shape, place, expr)

    def assembled_place(self, op: DistOp, operands: Sequence[SymbolicValue]) -> Place:
        """Return the place of what is assembled from pieces at the coordinates of a group."""
        place = operands[0].without(op.over)
        for index, x in enumerate(operands):
            if x.place != place_at([*place, *self.place(op.over, index)]):
                raise ImpossibleError(op, f"piece {index} is not where it belongs")
        return place

    def permute(
        self, op: DistOp, x: SymbolicValue, source: DistType, to: DistType
    ) -> SymbolicValue:
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
        return SymbolicValue(x.shape, x.place, substituted(x.expr, values))

    def redistribute(
        self, op: DistOp, x: SymbolicValue, source: DistType, to: DistType
    ) -> SymbolicValue:
        """Return the elements that ``to`` assigns to each device, read from the first holder.

        Where only the source is partial, values are reduced. Where only ``to`` is, they are masked.
        """
        if source.reduction is not None:
            x = self.over(x, self.mesh.ordered(source.partial - to.partial), source.reduction)
        shape = to.local_shape(self.mesh)
        values: dict[Var, Index] = {}
        for axis in self.mesh.by_name:
            if source.state_of(axis) == "replicated":
                values[coordinate_variable(self.mesh, axis)] = ZERO_INDEX
        for dim, (have, want) in enumerate(zip(source.dims, to.dims, strict=True)):
            at = mixed_radix([self._block(want.axes), position_in(dim, shape[dim])])
            local = x.shape[dim]
            values[position_variable(dim, local)] = digit_of(at, 1, local)
            rank = digit_of(at, local, self.mesh.group_size(have.axes))
            values |= coordinates(self.mesh, have.axes, rank)
        y = SymbolicValue(shape, (), substituted(x.expr, values))
        new = self.mesh.ordered(to.partial - source.partial)
        if new and to.reduction is not None:
            y = self.mask(y, new, to.reduction)
        return self.keep(op, y, to.place)

    def parts(self, value: SymbolicValue) -> tuple[SymbolicValue, ...]:
        return (value,)

    # --- local steps --------------------------------------------------------------------------

    def slice(self, op: DistOp, x: SymbolicValue, axes: Axes, dim: int) -> SymbolicValue:
        group = self.mesh.group_size(axes)
        if x.shape[dim] % group:
            raise ImpossibleError(op, f"{x.shape[dim]} does not divide into {group} blocks")
        local = x.shape[dim] // group
        at = mixed_radix([self._block(axes), position_in(dim, local)])
        expr = substituted(x.expr, {position_variable(dim, x.shape[dim]): at})
        return SymbolicValue(with_size(x.shape, dim, local), x.place, expr)

    def keep(self, op: DistOp, x: SymbolicValue, place: Place) -> SymbolicValue:
        """Return the value at coordinates of sub-axes."""
        self.check_all_hold(op, x, [axis for axis, _ in place])
        values: Values = {coordinate_variable(self.mesh, axis): constant(n) for axis, n in place}
        return SymbolicValue(x.shape, place_at([*x.place, *place]), substituted(x.expr, values))

    def mask(self, x: SymbolicValue, axes: Axes, reduction: Reduction) -> SymbolicValue:
        """Return the value at coordinate 0 of sub-axes, and the reduction's identity elsewhere."""
        identity = constant_expr(0 if reduction is Reduction.SUM else 1)
        expr = x.expr
        for axis in axes:
            at = variable(coordinate_variable(self.mesh, axis))
            size = self.mesh.by_name[axis].size
            root = substituted(expr, {coordinate_variable(self.mesh, axis): ZERO_INDEX})
            expr = by_intervals(at, [(1, root), (size - 1, identity)])
        return SymbolicValue(x.shape, x.place, expr)

    def compute(self, op: DistOp, operands: Sequence[SymbolicValue]) -> SymbolicValue:
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
        computation = UnknownComputation(op.number("flops"), tuple(meant), partial)
        name = f"%{hint}" if (hint := op.result.name_hint) else "a computation"
        number = self.computations.number_of(computation, name, [*positions, *devices])
        at = tuple(variable(var) for var in (*positions, *devices))
        return SymbolicValue(
            x.shape, x.place, term_expr(Opaque(number, at, dist_type(op.result).dtype))
        )
