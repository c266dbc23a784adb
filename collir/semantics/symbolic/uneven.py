"""Symbolic execution where devices have buffers of different shapes.

The axes with weights are unrolled: there is a value for every combination of coordinates on their
sub-axes (a *class* of devices), and in it the other sub-axes are variables as everywhere. The time
depends on the number of weights, at most ``MOST_CLASSES``, and not on that of devices otherwise.

Steps follow their definitions, one sub-axis after the other. Where a class takes part in a block of
another size, the weights say so (``semantics.reference.devices``); the typing rules are not used.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from operator import itemgetter
from typing import Any

from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import Dim, DistType, Mesh, Place, Reduction, place_at
from collir.semantics.reference.devices import block_shape, bounds_over
from collir.semantics.symbolic.algebra import reduced
from collir.semantics.symbolic.even import EvenRun
from collir.semantics.symbolic.execution import results_of
from collir.semantics.symbolic.expressions import (
    Opaque,
    Summand,
    UnprovenError,
    constant_expr,
    term_expr,
)
from collir.semantics.symbolic.indices import Index, Var, constant, variable, weighted_sum
from collir.semantics.symbolic.local import SymbolicLocalStep, by_intervals, concatenated, padded
from collir.semantics.symbolic.ranges import with_ranges_joined
from collir.semantics.symbolic.run import AnyRun
from collir.semantics.symbolic.values import (
    Axes,
    Casts,
    Computations,
    ImpossibleError,
    SymbolicValue,
    UnknownComputation,
    coordinate_variable,
    position_variable,
)

Class = tuple[int, ...]
"""The coordinates of devices on the sub-axes of all axes with weights, in the order of the mesh."""


MOST_CLASSES = 256
"""The most classes that are unrolled: joining what they add up takes time quadratic in them."""


@dataclass(frozen=True)
class UnevenBuffers:
    """The buffers of all devices, by their class."""

    values: Mapping[Class, SymbolicValue]

    @property
    def place(self) -> Place:
        """The place of the devices that hold a buffer."""
        return next(iter(self.values.values())).place

    @property
    def placed(self) -> frozenset[str]:
        """The sub-axes of which only one coordinate holds a buffer."""
        return frozenset(axis for axis, _ in self.place)


def results_by_class(
    function: FuncOp, computations: Computations, casts: Casts = Casts.KEPT
) -> list[UnevenBuffers]:
    """Return the results of a function; without weights there is one class, of no coordinates.

    Raises:
        ImpossibleError, UnprovenError: see ``results_of``.
    """
    mesh = mesh_of(function)
    values = results_of(function, execution_on(mesh, computations, casts))
    return values if mesh.uneven else [UnevenBuffers({(): value}) for value in values]


def execution_on(mesh: Mesh, computations: Computations, casts: Casts = Casts.KEPT) -> AnyRun[Any]:
    """Return an execution on a mesh, whose values depend on whether devices have equal blocks."""
    run = UnevenRun if mesh.uneven else EvenRun
    return run(mesh, computations, casts)


def coordinates_in(mesh: Mesh, of: Class) -> dict[str, int]:
    """Return the coordinates of the devices of a class, by sub-axis."""
    return dict(zip(mesh.uneven, of, strict=True))


class UnevenRun(AnyRun[UnevenBuffers]):
    """The execution of the steps of one function, class by class.

    Raises:
        UnprovenError: there are more than ``MOST_CLASSES``.
    """

    def __init__(self, mesh: Mesh, computations: Computations, casts: Casts):
        super().__init__(mesh, computations, casts)
        self.single = EvenRun(mesh, computations, casts)
        count = math.prod(mesh.by_name[axis].size for axis in mesh.uneven)
        if count > MOST_CLASSES:
            raise UnprovenError(
                f"its axes with weights have {count} coordinates, and up to {MOST_CLASSES} are "
                "looked at one by one"
            )
        self.classes = list(product(*(range(mesh.by_name[a].size) for a in mesh.uneven)))

    # --- classes ------------------------------------------------------------------------------

    def _each(
        self, x: UnevenBuffers, function: Callable[[SymbolicValue], SymbolicValue]
    ) -> UnevenBuffers:
        return UnevenBuffers({of: function(value) for of, value in x.values.items()})

    def _at(self, of: Class, axis: str, coordinate: int) -> Class:
        """Return a class with another coordinate on a sub-axis."""
        place = list(self.mesh.uneven).index(axis)
        return (*of[:place], coordinate, *of[place + 1 :])

    def _along(
        self, x: UnevenBuffers, axis: str, function: Callable[[list[SymbolicValue]], SymbolicValue]
    ) -> UnevenBuffers:
        """Return a function of the values along a sub-axis, on all devices along it."""
        values: dict[Class, SymbolicValue] = {}
        for of in self.classes:
            first = self._at(of, axis, 0)
            if of == first:
                size = self.mesh.by_name[axis].size
                line = [x.values[self._at(of, axis, at)] for at in range(size)]
                values[of] = function(line)
            else:
                values[of] = values[first]
        return UnevenBuffers(values)

    def _rank(self, of: Class) -> int:
        """Return a device of a class."""
        at = coordinates_in(self.mesh, of)
        return sum(self.mesh.by_name[axis].stride * index for axis, index in at.items())

    def _shape(self, of: Class, x: DistType) -> tuple[int, ...]:
        return block_shape(self.mesh, self._rank(of), x.dims)

    def local(
        self,
        op: DistOp,
        operands: Sequence[UnevenBuffers],
        step: Callable[[SymbolicLocalStep], SymbolicValue],
    ) -> UnevenBuffers:
        values: dict[Class, SymbolicValue] = {}
        for of in self.classes:
            shape = self._shape(of, dist_type(op.result))
            held = [x.values[of] for x in operands]
            values[of] = step(SymbolicLocalStep(op, held, shape, self.casts))
        return UnevenBuffers(values)

    def elements(self, x: DistType, term: Callable[[tuple[Index, ...]], Summand]) -> UnevenBuffers:
        return UnevenBuffers({of: self._elements(of, x, term) for of in self.classes})

    def _elements(
        self, of: Class, x: DistType, term: Callable[[tuple[Index, ...]], Summand]
    ) -> SymbolicValue:
        shape, known = self._shape(of, x), coordinates_in(self.mesh, of)
        at = [self._position(of, dim, number, shape[number]) for number, dim in enumerate(x.dims)]
        for axis in self.mesh.ordered(x.partial):
            unrolled = known.get(axis)
            at.append(
                variable(coordinate_variable(self.mesh, axis))
                if unrolled is None
                else constant(unrolled)
            )
        return SymbolicValue(shape, x.place, term_expr(term(tuple(at))))

    def _position(self, of: Class, dim: Dim, number: int, local: int) -> Index:
        """Return the position in the whole dimension of a position in a block of it."""
        begin, length = 0, int(dim.size)
        parts: list[tuple[int, Index]] = [(1, variable(position_variable(number, local)))]
        for place, axis in enumerate(dim.axes):
            known = coordinates_in(self.mesh, of).get(axis)
            if known is None:
                length //= self.mesh.by_name[axis].size
                parts.append((length, variable(coordinate_variable(self.mesh, axis))))
            else:
                first, last = self._ends(of, dim.axes[: place + 1], length)
                begin, length = begin + first, last - first
        return weighted_sum(parts, begin)

    def _ends(self, of: Class, axes: Axes, length: int) -> tuple[int, int]:
        """Return where the part of a class begins and ends in a block that all sub-axes but the
        last have cut.

        Raises:
            ValueError: these are no integers.
        """
        at = coordinates_in(self.mesh, of)[axes[-1]]
        bounds = bounds_over(self.mesh, self._rank(of), axes)
        begin, end, total = bounds[at], bounds[at + 1], bounds[-1]
        if length * begin % total or length * end % total:
            raise ValueError(f"{length} does not divide into {total} units")
        return length * begin // total, length * end // total

    # --- collectives --------------------------------------------------------------------------

    def over(self, x: UnevenBuffers, axes: Axes, reduction: Reduction) -> UnevenBuffers:
        for axis in reversed(axes):  # blocks along a minor sub-axis are neighbours, and join
            x = self._over(x, axis, reduction)
        return x

    def _over(self, x: UnevenBuffers, axis: str, reduction: Reduction) -> UnevenBuffers:
        var = coordinate_variable(self.mesh, axis)
        at = variable(var)

        def reduced_line(line: list[SymbolicValue]) -> SymbolicValue:
            whole = by_intervals(at, ((1, y.expr) for y in line))
            expr = with_ranges_joined(reduced(whole, var, reduction))
            return SymbolicValue(line[0].shape, line[0].place, expr)

        if axis in self.mesh.uneven:
            return self._along(x, axis, reduced_line)
        return self._each(
            x, lambda y: SymbolicValue(y.shape, y.place, reduced(y.expr, var, reduction))
        )

    def gathered(self, x: UnevenBuffers, axes: Axes, dim: int) -> UnevenBuffers:
        for axis in reversed(axes):
            x = self._gathered_along(x, axis, dim)
        return x

    def _gathered_along(self, x: UnevenBuffers, axis: str, dim: int) -> UnevenBuffers:
        if axis in self.mesh.uneven:
            return self._along(x, axis, lambda line: concatenated(line, dim))
        return self._each(x, lambda y: self.single.gathered(y, [axis], dim))

    def broadcast(self, op: DistOp, x: UnevenBuffers, axes: Axes) -> UnevenBuffers:
        return self._each(x, lambda y: self.single.broadcast(op, y, axes))

    def permute(
        self, op: DistOp, x: UnevenBuffers, source: DistType, to: DistType
    ) -> UnevenBuffers:
        y = self._recut(op, x, source, to)
        for of, value in y.values.items():
            if value.shape != self._shape(of, to):
                raise ImpossibleError(op, "its blocks have another shape")
        return y

    def redistribute(
        self, op: DistOp, x: UnevenBuffers, source: DistType, to: DistType
    ) -> UnevenBuffers:
        if source.reduction is not None:
            axes = self.mesh.ordered(source.partial - to.partial)
            x = self.over(x, axes, source.reduction)
        y = self._each(self._recut(op, x, source, to), lambda z: SymbolicValue(z.shape, (), z.expr))
        new = self.mesh.ordered(to.partial - source.partial)
        if new and to.reduction is not None:
            y = self.mask(y, new, to.reduction)
        return self.keep(op, y, to.place)

    def _recut(self, op: DistOp, x: UnevenBuffers, source: DistType, to: DistType) -> UnevenBuffers:
        """Return the blocks that ``to`` assigns to each device, cut from the whole dimensions as
        the first holders have them."""
        copies = [axis for axis in self.mesh.by_name if source.state_of(axis) == "replicated"]
        y = self.keep_root(op, x, copies)
        y = self._each(y, lambda z: SymbolicValue(z.shape, x.place, z.expr))
        for dim, have in enumerate(source.dims):
            y = self.gathered(y, have.axes, dim)
        for dim, want in enumerate(to.dims):
            y = self._cut(op, y, (), want.axes, dim)
        return y

    # --- local steps --------------------------------------------------------------------------

    def slice(self, op: DistOp, x: UnevenBuffers, axes: Axes, dim: int) -> UnevenBuffers:
        return self._cut(op, x, dist_type(op.input).dims[dim].axes, axes, dim)

    def _cut(self, op: DistOp, x: UnevenBuffers, held: Axes, axes: Axes, dim: int) -> UnevenBuffers:
        """Return the blocks of devices over sub-axes, of a dimension that others have cut."""
        for place in range(len(axes)):
            x = self._cut_along(op, x, (*held, *axes[: place + 1]), dim)
        return x

    def _cut_along(self, op: DistOp, x: UnevenBuffers, axes: Axes, dim: int) -> UnevenBuffers:
        """Return the blocks over the last of some sub-axes; the others have cut the dimension."""
        if axes[-1] not in self.mesh.uneven:
            return self._each(x, lambda y: self.single.slice(op, y, axes[-1:], dim))
        values: dict[Class, SymbolicValue] = {}
        for of, value in x.values.items():
            length = value.shape[dim]
            try:
                begin, end = self._ends(of, axes, length)
            except ValueError as error:
                raise ImpossibleError(op, str(error)) from error
            values[of] = padded(value, dim, -begin, end - length, 0.0)
        return UnevenBuffers(values)

    def keep(self, op: DistOp, x: UnevenBuffers, place: Place) -> UnevenBuffers:
        self.check_all_hold(op, x, [axis for axis, _ in place])
        for axis, coordinate in place:
            if axis in self.mesh.uneven:
                x = self._along(x, axis, itemgetter(coordinate))
        even = tuple(item for item in place if item[0] not in self.mesh.uneven)
        x = self._each(x, lambda y: self.single.keep(op, y, even))
        return self._each(x, lambda y: SymbolicValue(y.shape, place_at([*y.place, *place]), y.expr))

    def send(self, op: DistOp, x: UnevenBuffers) -> UnevenBuffers:
        return self._each(x, lambda y: self.single.send(op, y))

    def shift(self, op: DistOp, x: UnevenBuffers) -> UnevenBuffers:
        self.check_all_hold(op, x, op.over)
        if not self._is_unrolled(op.over):
            return self._each(x, lambda y: self.single.shift(op, y))
        by, count = op.integer("distance"), self.mesh.group_size(op.over)
        values: dict[Class, SymbolicValue] = {}
        for of in self.classes:
            source = self._index(of, op.over) - by
            if "open" in op.properties and not 0 <= source < count:
                values[of] = SymbolicValue(x.values[of].shape, x.place, constant_expr(0))
            else:
                values[of] = x.values[self._at_index(of, op.over, source % count)]
        return UnevenBuffers(values)

    def assemble(self, op: DistOp, operands: Sequence[UnevenBuffers]) -> UnevenBuffers:
        unrolled = self._is_unrolled(op.over)
        values: dict[Class, SymbolicValue] = {}
        for of in self.classes:
            pieces = [x.values[of] for x in operands]
            if not unrolled:
                values[of] = self.single.assemble(op, pieces)
                continue
            own = pieces[self._index(of, op.over)]
            if own.shape != self._shape(of, dist_type(op.result)):
                raise ImpossibleError(op, "its pieces are not as large as the blocks")
            values[of] = SymbolicValue(own.shape, self.single.assembled_place(op, pieces), own.expr)
        return UnevenBuffers(values)

    def _is_unrolled(self, axes: Axes) -> bool:
        """Return whether sub-axes are those of classes.

        Raises:
            UnprovenError: only some of them are.
        """
        unrolled = [axis in self.mesh.uneven for axis in axes]
        if any(unrolled) and not all(unrolled):
            raise UnprovenError("a ring over axes with and without weights has no symbolic meaning")
        return any(unrolled)

    def _index(self, of: Class, axes: Axes) -> int:
        """Return the rank of a class in its group over sub-axes of classes."""
        index = 0
        for axis in axes:
            index = index * self.mesh.by_name[axis].size + coordinates_in(self.mesh, of)[axis]
        return index

    def _at_index(self, of: Class, axes: Axes, index: int) -> Class:
        """Return the class with a rank in the group over sub-axes of classes."""
        for axis in reversed(axes):
            index, coordinate = divmod(index, self.mesh.by_name[axis].size)
            of = self._at(of, axis, coordinate)
        return of

    def mask(self, x: UnevenBuffers, axes: Axes, reduction: Reduction) -> UnevenBuffers:
        even = [axis for axis in axes if axis not in self.mesh.uneven]
        x = self._each(x, lambda y: self.single.mask(y, even, reduction))
        identity = constant_expr(0 if reduction is Reduction.SUM else 1)
        values = dict(x.values)
        for of, y in x.values.items():
            at = coordinates_in(self.mesh, of)
            if any(at.get(axis) for axis in axes):
                values[of] = SymbolicValue(y.shape, y.place, identity)
        return UnevenBuffers(values)

    def compute(self, op: DistOp, operands: Sequence[UnevenBuffers]) -> UnevenBuffers:
        """Return elements of an unknown function of the operands on all classes of devices."""
        types = [dist_type(operand) for operand in op.operands]
        partial = types[0].partial
        meant = [self.meant(x, y) for x, y in zip(types, operands, strict=True)]
        used = {v for y in meant[0].values.values() for v in y.expr.free if v.kind == "device"}
        even = partial - self.mesh.uneven.keys()
        used |= {coordinate_variable(self.mesh, axis) for axis in even}
        devices = sorted(used, key=str)
        all_values = tuple(part for y in meant for part in self.parts(y))
        computation = UnknownComputation(op.number("flops"), all_values, partial)
        name = f"%{hint}" if (hint := op.result.name_hint) else "a computation"
        alike = [axis for axis in self.mesh.uneven if axis not in partial]
        alike = [axis for axis in alike if self._same_along(meant[0], axis)]
        values: dict[Class, SymbolicValue] = {}
        for of in self.classes:
            x = operands[0].values[of]
            variables = [position_variable(dim, size) for dim, size in enumerate(x.shape)] + devices
            which = Var("class", "class", len(self.classes))
            known = self.computations.number_of(computation, name, [*variables, which])
            at = (*map(variable, variables), constant(self.classes.index(self._at_zero(of, alike))))
            opaque = Opaque(known, at, dist_type(op.result).dtype)
            values[of] = SymbolicValue(x.shape, x.place, term_expr(opaque))
        return UnevenBuffers(values)

    def parts(self, value: UnevenBuffers) -> tuple[SymbolicValue, ...]:
        return tuple(value.values[of] for of in self.classes)

    def _at_zero(self, of: Class, axes: Axes) -> Class:
        """Return a class with coordinate 0 on some sub-axes."""
        return tuple(
            0 if axis in axes else at for axis, at in coordinates_in(self.mesh, of).items()
        )

    def _same_along(self, x: UnevenBuffers, axis: str) -> bool:
        """Return whether a value is the same at all coordinates on a sub-axis."""
        return all(x.values[of] == x.values[self._at_zero(of, [axis])] for of in self.classes)


def logical_values(mesh: Mesh, x: DistType, result: UnevenBuffers) -> dict[Class, SymbolicValue]:
    """Return the logical value of a result of type ``x``, by class: reduced if it is partial.

    Where it is partial or at root on a sub-axis, only the classes at coordinate 0 are there. On the
    other sub-axes ``logical_value`` of a single value does the same.
    """
    if mesh.uneven and x.reduction is not None:
        run = UnevenRun(mesh, Computations(), Casts.KEPT)
        axes = [axis for axis in mesh.ordered(x.partial) if axis in mesh.uneven]
        result = run.over(result, axes, x.reduction)
    return {
        of: value
        for of, value in result.values.items()
        if not any(coordinates_in(mesh, of).get(axis) for axis in x.partial | value.placed)
    }
