"""The part of symbolic executions that does not depend on the form of their values."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Generic, Protocol, TypeVar

from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, Mesh, Place, Reduction, at_root, place_at
from collir.semantics.symbolic.blocks import block, passed_indices
from collir.semantics.symbolic.expressions import Input, Opaque, Summand, UnprovenError
from collir.semantics.symbolic.indices import Index, Var, constant, digit_of, mixed_radix, variable
from collir.semantics.symbolic.local import SymbolicLocalStep, constants
from collir.semantics.symbolic.models import Applied, rule_of
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


class HeldBuffers(Protocol):
    """The values of all devices, as arrays or expressions; only devices at ``place`` hold one."""

    @property
    def place(self) -> Place: ...

    @property
    def placed(self) -> frozenset[str]: ...


V = TypeVar("V", bound=HeldBuffers)


class AnyRun(ABC, Generic[V]):
    """The execution of the steps of one function, on some form of values."""

    def __init__(self, mesh: Mesh, computations: Computations, casts: Casts):
        self.mesh, self.computations, self.casts = mesh, computations, casts

    def check_all_hold(self, op: DistOp, x: V, axes: Axes) -> None:
        """Check that all devices of the groups over sub-axes hold data."""
        if x.placed.intersection(axes):
            raise ImpossibleError(op, "only some of the devices hold data")

    def reduce(self, op: DistOp, x: V, axes: Axes) -> V:
        """Return the reduction of a partial operand, on all devices of groups over sub-axes."""
        reduction = dist_type(op.operands[0]).reduction
        if reduction is None:
            raise ImpossibleError(op, "there is nothing partial to reduce")
        self.check_all_hold(op, x, axes)
        return self.over(x, axes, reduction)

    def meant(self, x: DistType, value: V) -> V:
        """Return the value that buffers stand for: partial values are reduced."""
        if x.reduction is None:
            return value
        return self.over(value, self.mesh.ordered(x.partial), x.reduction)

    def gather(self, op: DistOp, x: V, axes: Axes, dim: int) -> V:
        """Return the concatenation over sub-axes of blocks of an operand."""
        self.check_all_hold(op, x, axes)
        return self.gathered(x, axes, dim)

    def keep_root(self, op: DistOp, x: V, axes: Axes) -> V:
        """Return the value at coordinate 0 of sub-axes."""
        return self.keep(op, x, at_root(axes))

    def place(self, axes: Axes, index: int) -> Place:
        """Return the place at a rank in the group over sub-axes."""
        digits = coordinates(self.mesh, axes, constant(index))
        return place_at((str(var.name), digit.offset) for var, digit in digits.items())

    def argument(self, index: int, x: DistType) -> V:
        """Return the value of an argument, which has the elements of an input."""
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
            computation = UnknownComputation(0.0, known, x.partial, loop)
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
        known: list[SymbolicValue] = []
        for x, value in zip(map(dist_type, op.operands), operands, strict=True):
            known += self.parts(self.whole(x, value))
        result = dist_type(op.result)
        given = (
            (name, (value.dtype, value.shape) if isinstance(value, DistType) else value)
            for name, value in op.arguments.items()
        )
        facts = op.mnemonic, tuple(given), result.dtype
        computation = UnknownComputation(0.0, tuple(known), frozenset(), operation=facts)
        name = f"%{hint}" if (hint := op.result.name_hint) else f"a result of {op.mnemonic}"
        variables = [position_variable(dim, int(n)) for dim, n in enumerate(result.shape)]
        number = self.computations.number_of(computation, name, variables)
        bare = replace(result, partial=frozenset(), reduction=None)
        whole = self.elements(bare, partial(Opaque, number, dtype=result.dtype))
        return self.spread(result, whole)

    def whole(self, x: DistType, value: V) -> V:
        """Return the tensor for which buffers of a type stand, on all devices that hold a part."""
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
        computation = UnknownComputation(0.0, (), frozenset(), operation=facts)
        variables = [position_variable(0, int(to.shape[dim]))]
        number = self.computations.number_of(computation, "an iota", variables)
        return self.elements(to, lambda at: Opaque(number, at[dim : dim + 1], to.dtype))

    def constant(self, op: DistOp) -> V:
        """Return a constant; an infinite one is an unknown number, the same wherever it stands."""
        if math.isinf(op.number("value")):
            self.computations.of_models = True
            return self.unknown(op, ())
        return self.local(op, (), constants)

    @abstractmethod
    def elements(self, x: DistType, term: Callable[[tuple[Index, ...]], Summand]) -> V:
        """Return a value of a type, by the term for the element at a position in the global tensor,
        followed by the coordinates on the sub-axes that the value is partial over."""

    @abstractmethod
    def parts(self, value: V) -> tuple[SymbolicValue, ...]:
        """Return the values on devices with buffers of one shape, in a fixed order."""

    @abstractmethod
    def over(self, x: V, axes: Axes, reduction: Reduction) -> V:
        """Return the reduction over all coordinates of sub-axes."""

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
    def local(
        self, op: DistOp, operands: Sequence[V], step: Callable[[SymbolicLocalStep], SymbolicValue]
    ) -> V:
        """Return the result of a step that every device carries out by itself."""
