"""The tensors of a function whose layouts are sought, and the relations between them.

Every value of the function stands for a tensor. Values that differ only in their layout stand for
one tensor, or for two related ones if a type gives the layout of the second. A step relates its
operands and its result through the indices of its structure; the operands of a loop, the arguments
of its body, what it yields and its results are related dimension by dimension.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.auto import keeps_whole
from collir.ir.diagnostics import DiagnosticError
from collir.ir.roles import Role, result_roles, role_of
from collir.layout import DistType, Mesh, Reduction
from collir.layout.coll import REINTERPRET
from collir.layout.structure import REPEATED, Linear, dim_indices
from collir.layout.types import unsharded

Layout = tuple[tuple[str, ...], ...]
"""The sub-axes over which each dimension of a tensor is sharded, major to minor."""


STACK = "stack"
"""The index of the layers of a stack."""


def layout_of(x: DistType) -> Layout:
    """Return the sub-axes of the dimensions of a type."""
    return tuple(dim.axes for dim in x.dims)


@dataclass(eq=False)
class Tensor:
    """A tensor whose layout is sought.

    Attributes:
        number: its number in the graph.
        value: a value that stands for it, for messages.
        type: its type, whole on every device.
        layout: the layout that a type of the program gives to it, if any.
        role: the role of the value whose type gives the layout.
        made: whether it is a constant, so that every device can make any block of it.
        uses: the number of steps that it is an operand of, without maps.
        kept: the sub-axes over which it is not gathered: it is a weight, or made of one.
    """

    number: int
    value: SSAValue
    type: DistType
    layout: Layout | None = None
    role: Role | None = None
    made: bool = False
    uses: int = 0
    kept: frozenset[str] = frozenset()

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(int, self.type.shape))

    @cached_property
    def bytes(self) -> int:
        return self.type.elements * self.type.dtype.bytes


@dataclass(eq=False)
class Relation:
    """Tensors whose dimensions run over common indices.

    Attributes:
        members: the operands and, behind them, the result.
        indices: the index of each dimension, for every member.
        blocked: the indices that cannot be sharded.
        op: the step; None where a tensor is only brought to another layout.
        times: how often the step runs.
        addends: the number of steps, with this one, whose results are added up before anything else
            uses them. Their partial sum is reduced once.
        before: the previous one of these steps; None for the first.
    """

    members: tuple[Tensor, ...]
    indices: tuple[tuple[str, ...], ...]
    blocked: frozenset[str] = frozenset()
    op: DistOp | None = None
    times: int = 1
    addends: int = 1
    before: "Relation | None" = None

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The size of every index; the largest, if a step changes it."""
        sizes: dict[str, int] = {}
        for member, over in zip(self.members, self.indices, strict=True):
            for index, size in zip(over, member.shape, strict=True):
                sizes[index] = max(size, sizes.get(index, 0))
        sizes.pop(REPEATED, None)
        return sizes

    def slices_of(self, member: Tensor) -> int:
        """Return the number of slices in which a member is moved: 1, except for a stack."""
        return 1 if self.op else member.bytes // min(x.bytes for x in self.members)

    @cached_property
    def reduction(self) -> Reduction:
        """The reduction of a partial result."""
        structure = self.op and self.op.structure
        return (structure and structure.reduction) or Reduction.SUM

    @cached_property
    def passes_all(self) -> bool:
        """True if the result has all indices of all members, as that of a map has."""
        return set(self.sizes) <= set(self.indices[-1])


@dataclass
class TensorGraph:
    """The tensors and the relations of a function, in the order of the program.

    Attributes:
        of: the tensor that each value stands for.
        returned: the tensors that are returned, in order.
    """

    mesh: Mesh
    tensors: list[Tensor] = field(default_factory=list[Tensor])
    relations: list[Relation] = field(default_factory=list[Relation])
    of: dict[SSAValue, Tensor] = field(default_factory=dict[SSAValue, Tensor])
    returned: list[Tensor] = field(default_factory=list[Tensor])

    @staticmethod
    def build(
        function: FuncOp, closed: bool = False, kept: frozenset[str] = frozenset()
    ) -> "TensorGraph":
        """Return the graph of a function without calls.

        Args:
            closed: whether types of arguments and results that name no sub-axes are kept too.
            kept: the sub-axes over which no weight is gathered.

        Raises:
            DiagnosticError: a step cannot be where layouts are chosen.
        """
        graph = TensorGraph(mesh_of(function))
        for argument in function.args:
            _ = graph._add(argument, layout_of(dist_type(argument)) if closed else None)
        graph._block(function.body.block, 1)
        graph._return(function, closed)
        for relation in graph.relations:
            if relation.op is not None and not relation.passes_all:
                for tensor in set(relation.members[:-1]):
                    tensor.uses += 1
        graph._count_addends()
        if kept:
            graph._keep(kept)
        return graph

    def _keep(self, axes: frozenset[str]) -> None:
        """Note weights that are sharded over some sub-axes, with their views, casts and slices."""
        for tensor in self.tensors:
            if tensor.role is Role.PARAMETER and tensor.layout:
                tensor.kept = axes.intersection(chain.from_iterable(tensor.layout))
        for relation in self.relations:
            *operands, result = relation.members
            if len(operands) == 1 and set(relation.sizes) <= {STACK, *relation.indices[-1]}:
                result.kept |= operands[0].kept

    def _add(self, value: SSAValue, layout: Layout | None = None) -> Tensor:
        """Add a tensor for a value, with a layout if its type names sub-axes."""
        x = dist_type(value)
        if x.place:
            raise DiagnosticError.at(
                value, f"{x.text(self.mesh)} is at a place: an auto function is everywhere alike"
            )
        given = layout_of(x) if x.axes and not x.partial else layout
        tensor = Tensor(len(self.tensors), value, unsharded(x), given)
        tensor.role = role_of(value)
        self.tensors.append(tensor)
        self.of[value] = tensor
        return tensor

    def _same(self, first: Tensor, second: Tensor, times: int) -> None:
        """Relate two tensors of one shape."""
        indices = dim_indices(first.type)
        self.relations.append(Relation((first, second), (indices, indices), times=times))

    def _stacked(self, one: Tensor, all_of: Tensor, times: int, stacks: bool) -> None:
        """Relate the tensor of an iteration with the stack of those of all iterations."""
        inner = dim_indices(one.type)
        pairs = ((one, inner), (all_of, (STACK, *inner)))
        (first, a), (second, b) = pairs if stacks else reversed(pairs)
        blocked = frozenset([STACK])
        self.relations.append(Relation((first, second), (a, b), blocked, times=times))

    def _block(self, block: Block, times: int) -> None:
        for op in block.ops:
            if isinstance(op, RepeatOp):
                self._loop(op, times)
            elif isinstance(op, DistOp):
                if op.kind.layout_only:
                    self._laid_out(op, times)
                else:
                    self._step(op, times)

    def _laid_out(self, op: DistOp, times: int) -> None:
        """Add a step that only changes the layout. Its result is another tensor if its type gives
        its layout, else the same one."""
        source, role = self.of[op.input], role_of(op.result)
        is_free = (not dist_type(op.result).axes and not keeps_whole(op)) or role is Role.GRADIENT
        if is_free and not dist_type(op.input).partial:
            self.of[op.result] = source
            source.role = source.role or role
            return
        self._same(source, self._add(op.result, layout_of(dist_type(op.result))), times)

    def _step(self, op: DistOp, times: int) -> None:
        if op.kind is REINTERPRET:
            raise DiagnosticError.at(
                op, "this takes blocks as they lie, and an auto function has no layouts yet"
            )
        members = [self.of[operand] for operand in op.operands]
        result = self._add(op.result)
        result.made = not members
        indices, blocked = indices_of(op)
        self.relations.append(Relation((*members, result), indices, blocked, op, times))

    def _loop(self, loop: RepeatOp, times: int) -> None:
        inside = times * loop.times
        for number, (argument, operand) in enumerate(
            zip(loop.body.block.args, loop.operands, strict=True)
        ):
            outer, inner = self.of[operand], self._add(argument)
            inner.layout = inner.role = None
            if len(loop.carried) <= number < len(loop.carried) + len(loop.sliced):
                self._stacked(inner, outer, inside, stacks=False)
            else:
                self._same(outer, inner, times)
        self._block(loop.body.block, inside)
        carries = list(loop.carries)
        for number, (result, value) in enumerate(zip(loop.results, loop.yielded, strict=True)):
            if number < len(carries):
                self.of[result] = self.of[carries[number]]
                self._same(self.of[value], self.of[result], inside)
            else:
                self._stacked(self.of[value], self._add(result), inside, stacks=True)

    def _count_addends(self) -> None:
        """Set the number of addends of each step."""
        users = Counter(x for relation in self.relations for x in relation.members[:-1])
        users.update(self.returned)
        addends: dict[Tensor, list[Relation]] = {}
        for relation in self.relations:
            result = relation.members[-1]
            if relation.op is not None and not relation.passes_all:
                addends[result] = [relation]
            elif relation.op is not None and adds(relation.op):
                operands = [x for x in relation.members[:-1] if users[x] == 1]
                addends[result] = [x for operand in operands for x in addends.get(operand, ())]
                for before, addend in zip((None, *addends[result]), addends[result], strict=False):
                    addend.addends, addend.before = len(addends[result]), before

    def _return(self, function: FuncOp, closed: bool) -> None:
        """Add the returned values. The new value of a weight or a state has the layout of the old
        one; another value may have a layout from its type."""
        last = function.body.block.last_op
        assert isinstance(last, ReturnOp)
        old = {
            role: [self.of[x] for x in function.args if role_of(x) is role]
            for role in (Role.PARAMETER, Role.STATE)
        }
        for value, role in zip(last.operands, result_roles(function), strict=True):
            own = self.of[value]
            if own.layout is not None:
                own.role = own.role or role
            like = (x for x in old.get(role, ()) if x.type.agrees(own.type)) if role else iter(())
            kept = next(like, own)
            if role and kept is not own:
                old[role].remove(kept)
            if closed and own.layout is None:
                kept = self._add(value, layout_of(dist_type(value)))
                self.of[value] = own
            if own.layout is None and kept is not own:
                self._same(own, kept, 1)
                own = kept
            self.returned.append(own)


def adds(op: DistOp) -> bool:
    """Return whether a step adds its operands, so that it takes them all partial."""
    shapes = {tuple(map(int, dist_type(operand).shape)) for operand in op.operands}
    linear = op.indices is not None and op.indices.linear is Linear.ALL
    return linear and len(op.operands) > 1 and len(shapes) == 1


def indices_of(op: DistOp) -> tuple[tuple[tuple[str, ...], ...], frozenset[str]]:
    """Return the index of each dimension of the operands and of the result of a step on whole
    values, and the indices that cannot be sharded."""
    if structure := op.indices:
        return (*structure.operands, structure.result), structure.blocked
    values = (*op.operands, op.result)
    return tuple(dim_indices(dist_type(value)) for value in values), frozenset()
