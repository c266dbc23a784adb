"""The memory that the layouts of a function need on a device, at each step.

Arguments are held throughout, and other values from the step that makes them to their last user. A
loop holds its stacks, and its values from outside, as long as it runs. A step also holds its
operands in the layouts that it needs, and its result before it is reduced. Views, slices of stacks
and values inside of kernels have no memory; the new value of a weight or a state takes that of the
old one. Simulations count more closely, so a solution is checked by one.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.nested import RepeatOp
from collir.ir.roles import Role, result_roles
from collir.layout import DistType, Mesh
from collir.synthesis.propagation.choice import with_layout
from collir.synthesis.propagation.graph import Layout, Relation, Tensor, TensorGraph
from collir.synthesis.sharding.factors import Costs, FactorTable, Values
from collir.synthesis.sharding.problem import Sharding, is_kept

Points = NDArray[np.float64]
"""A number for each step of a function, with those inside of loops, in order."""


@dataclass(frozen=True)
class HeldBytes:
    """Bytes that are held for some steps.

    Attributes:
        scope: the variables that the number of bytes depends on.
        bytes: the bytes for each of their values.
        first, last: the first and the last of the steps.
    """

    scope: tuple[int, ...]
    bytes: Costs
    first: int
    last: int


@dataclass
class _Lives:
    """The steps at which the tensors of a function are held.

    Attributes:
        at: the number of each operation.
        end: for a loop, the number of its last step.
        first, last: the first and the last step at which each tensor is held.
        count: the number of steps.
    """

    graph: TensorGraph
    at: dict[Operation, int] = field(default_factory=dict[Operation, int])
    end: dict[Operation, int] = field(default_factory=dict[Operation, int])
    first: dict[Tensor, int] = field(default_factory=dict[Tensor, int])
    last: dict[Tensor, int] = field(default_factory=dict[Tensor, int])
    count: int = 1

    def add(self, block: Block) -> None:
        """Add the steps of a block, and of the loops in it."""
        for op in block.ops:
            self.at[op] = self.end[op] = self.count
            self.count += 1
            if isinstance(op, RepeatOp):
                for argument in op.body.block.args:
                    self._hold(argument, self.at[op], self.count)
                self.add(op.body.block)
                self.end[op] = self.count
                for argument in op.body.block.args:
                    self._hold(argument, self.at[op], self.count)
                self.count += 1
            for value in op.results:
                self._hold(value, self.at[op], self.end[op])
        for op in block.ops:
            for value in op.operands:
                self._hold(value, self.at[op], self.end[op])
            if isinstance(op, RepeatOp):
                for inner in op.walk():
                    for value in inner.operands:
                        self._hold(value, self.at[op], self.end[op], outside=op)

    def _hold(
        self, value: SSAValue, first: int, last: int, outside: RepeatOp | None = None
    ) -> None:
        tensor = self.graph.of.get(value)
        if tensor is None:
            return
        if outside is not None:
            owner = value.owner
            block = owner if isinstance(owner, Block) else owner.parent
            while block is not None and block is not outside.body.block:
                block = block.parent_block()
            if block is not None:  # it is made inside
                return
        self.first[tensor] = min(self.first.get(tensor, first), first)
        self.last[tensor] = max(self.last.get(tensor, last), last)


class SolutionMemory:
    """The memory of the solutions of a choice of layouts."""

    def __init__(self, function: FuncOp, graph: TensorGraph, sharding: Sharding):
        self.mesh: Mesh = graph.mesh
        self._known: dict[tuple[DistType, Layout], float] = {}
        lives = _Lives(graph)
        lives.add(function.body.block)
        self.count, self._at = lives.count, lives.at
        self.held: list[HeldBytes] = []
        arguments = {graph.of[argument] for argument in function.args}
        without = (self._in_place(function, graph) | _shared(function, graph)) - arguments
        owners = _owners(graph)
        for tensor in reversed(graph.tensors):
            root = owners[tensor]
            if root is not tensor and tensor in lives.last and root in lives.last:
                lives.last[root] = max(lives.last[root], lives.last[tensor])
        for tensor in graph.tensors:
            number = sharding.variable_of.get(tensor)
            inside = sharding.is_inside(tensor.value)
            if number is None or owners[tensor] is not tensor or inside or tensor in without:
                continue
            first, last = lives.first.get(tensor, 0), lives.last.get(tensor, 0)
            if tensor in arguments:
                first, last = 0, lives.count - 1
            sizes = [self._bytes(tensor, layout) for layout in sharding.layouts[number]]
            self.held.append(HeldBytes((number,), np.array(sizes), first, last))
        for relation in graph.relations:
            self.held += self._copies(relation, sharding, lives)

    def _bytes(self, tensor: Tensor, layout: Layout) -> float:
        key = (tensor.type, layout)
        if key not in self._known:
            self._known[key] = float(with_layout(tensor.type, layout).local_bytes(self.mesh))
        return self._known[key]

    def _in_place(self, function: FuncOp, graph: TensorGraph) -> set[Tensor]:
        """Return the new values of weights and states."""
        last = function.body.block.last_op
        assert isinstance(last, ReturnOp)
        pairs = zip(last.operands, result_roles(function), strict=True)
        return {graph.of[x] for x, role in pairs if role in (Role.PARAMETER, Role.STATE)}

    def _copies(self, relation: Relation, sharding: Sharding, lives: _Lives) -> Iterator[HeldBytes]:
        """Yield the bytes that a step holds beside the tensors."""
        if is_kept(relation):
            return
        result = sharding.variable_of[relation.members[-1]]
        user = sharding.variable_of[relation] if relation.op else result
        op = relation.op or _loop_of(relation.members)
        if op is None or op not in lives.at:
            return
        first, last = lives.at[op], lives.end[op]
        for position, tensor in enumerate(relation.members[:-1]):
            if tensor.made or (op is relation.op and _is_view(relation)):
                continue
            own, needs = sharding.variable_of[tensor], sharding.needs(relation, position)
            number = {layout: n for n, layout in enumerate(dict.fromkeys(needs))}
            sizes = np.array([self._bytes(tensor, layout) for layout in number])
            needed = np.array([number[layout] for layout in needs])
            kept = np.array([number.get(layout, -1) for layout in sharding.layouts[own]])
            copies = np.where(kept[:, None] == needed, 0.0, sizes[needed])
            if copies.any():
                yield HeldBytes((own, user), copies, first, last)
        if relation.op is not None and not sharding.is_inside(relation.members[-1].value):
            types = sharding.types(relation.members[-1])
            column = {x: n for n, x in enumerate(types)}
            ways = sharding.ways[user]
            left = np.repeat(
                np.array([[float(way.left.local_bytes(self.mesh))] for way in ways]), len(types), 1
            )
            for row, way in enumerate(ways):
                if way.left in column:
                    left[row, column[way.left]] = 0.0
            if left.any():
                yield HeldBytes((user, result), left, first, last)

    def operation(self, step: int) -> Operation | None:
        """Return the operation of a step; None at the beginning."""
        return next((op for op, at in self._at.items() if at == step), None)

    def at(self, values: Values) -> Points:
        """Return the bytes that are held at each step."""
        changes = np.zeros(self.count + 1)
        for held in self.held:
            size = held.bytes[tuple(values[v] for v in held.scope)]
            changes[held.first] += size
            changes[held.last + 1] -= size
        return np.cumsum(changes)[:-1]

    def tables(self, prices: Points) -> list[FactorTable]:
        """Return tables whose sum is the bytes of all steps, each times its price."""
        before = np.concatenate([[0.0], np.cumsum(prices)])
        added: dict[tuple[int, ...], Costs] = defaultdict(lambda: np.zeros(()))
        for held in self.held:
            if price := before[held.last + 1] - before[held.first]:
                added[held.scope] = added[held.scope] + price * held.bytes
        return [FactorTable(scope, costs) for scope, costs in added.items()]


def _shared(function: FuncOp, graph: TensorGraph) -> set[Tensor]:
    """Return the arguments of loop bodies that are slices of stacks or values from outside. They
    lie in the memory of these stacks and values, or of copies in other layouts."""
    loops = [op for op in function.walk() if isinstance(op, RepeatOp)]
    return {
        graph.of[argument]
        for loop in loops
        for argument in loop.body.block.args[len(loop.carried) :]
    }


def _owners(graph: TensorGraph) -> dict[Tensor, Tensor]:
    """Return for each tensor the owner of its memory: itself, or the tensor that it views."""
    owners = {tensor: tensor for tensor in graph.tensors}
    for relation in graph.relations:
        if _is_view(relation):
            owners[relation.members[-1]] = owners[relation.members[0]]
    return owners


def _is_view(relation: Relation) -> bool:
    return relation.op is not None and relation.op.kind.is_view and len(relation.members) > 1


def _loop_of(members: Sequence[Tensor]) -> Operation | None:
    """Return the loop at whose edge one of two tensors becomes the other."""
    for tensor in members:
        owner = tensor.value.owner
        if isinstance(owner, Block) and isinstance(loop := owner.parent_op(), RepeatOp):
            return loop
        if isinstance(owner, RepeatOp):
            return owner
    return None
