"""The buffers of a function: the memory of each value, shared with others, and its last use.

All code targets and the estimate of a function's memory share this plan. It decides nothing about
a runtime.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import NestedOp, RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type, same_type
from collir.ir.in_place import is_updated
from collir.ir.names import unique_names
from collir.layout import Mesh
from collir.layout.sizes import OpenSize, same_size


@dataclass(frozen=True)
class BufferPlan:
    """The buffers of a function.

    Attributes:
        names: a distinct name for every value.
        owner: for every value, the value whose memory it lies in. Sums in a loop lie in the memory
            of their initial values.
        offset: for every value, its start in that memory, in elements.
        last_use: for every owner, the last operation that reads it.
        result_of: for an owner, the index of the result whose memory it is written to directly.
            Results that are arguments, or share memory with an earlier result, have to be copied.
        part_of: for an owner that is a part of a concat or an assemble, the value whose memory it
            is written to directly, and its start there, in elements: a result of the function, or a
            concat of what a loop stacks.
        first_write: for a concat that parts are written to directly, the first operation that
            writes to it.
        returned: the returned values.
    """

    names: dict[SSAValue, str]
    owner: dict[SSAValue, SSAValue]
    offset: dict[SSAValue, int]
    last_use: dict[SSAValue, Operation]
    result_of: dict[SSAValue, int]
    part_of: dict[SSAValue, tuple[SSAValue, int]]
    first_write: dict[SSAValue, Operation]
    returned: tuple[SSAValue, ...]

    def is_temporary(self, value: SSAValue) -> bool:
        """Return whether a value needs memory that the function allocates."""
        return (
            self.owner[value] is value
            and isinstance(value.owner, Operation)
            and value not in self.result_of
            and value not in self.part_of
        )

    def buffer(self, value: SSAValue) -> SSAValue:
        """Return the owner of a value's memory: the whole, if the value is a part."""
        owner = self.owner[value]
        return self.part_of[owner][0] if owner in self.part_of else owner

    def spares(self, loop: RepeatOp) -> list[SSAValue | None]:
        """Return for each carry of a loop the value whose memory is its second buffer.

        Iterations write to the memory of the result and to a second buffer in turns, and the last
        one to the former. What a carry begins with is read by the first iteration only, so if
        nothing else needs it, it is the second buffer: the second iteration writes there. It is
        None where that cannot be, and the loop needs memory of its own. A carry that is updated in
        place needs none.
        """
        odd = not isinstance(loop.times, OpenSize) and loop.times % 2 == 1
        return [
            start if odd or self.is_in_place(loop, number) else None
            for number, start in enumerate(self.reusable(loop))
        ]

    def is_in_place(self, loop: RepeatOp, number: int) -> bool:
        """Return whether all values of a carry of a loop lie in the memory of the first."""
        return self.owner[loop.results[number]] is self.owner[loop.operands[number]]

    def reusable(self, loop: RepeatOp) -> list[SSAValue | None]:
        """Return ``spares`` of a loop with an odd number of iterations."""
        read = Counter(map(self.buffer, loop.operands))
        spares: list[SSAValue | None] = []
        for number, start in enumerate(loop.carried):
            result = loop.results[number]
            free = self.is_in_place(loop, number) or (
                same_type(start, result)
                and self.is_temporary(start)
                and start not in self.first_write
                and read[start] == 1
                and self.last_use.get(start) is loop
            )
            spares.append(start if free else None)
        return spares

    def is_view(self, op: Operation) -> bool:
        """Return whether the result of an operation lies in the memory of its operand."""
        return any(self.owner[result] is not result for result in op.results)


def plan_buffers(function: FuncOp) -> BufferPlan:
    """Return the plan of a function with one block."""
    mesh = mesh_of(function)
    owner: dict[SSAValue, SSAValue] = {argument: argument for argument in function.args}
    offset: dict[SSAValue, int] = dict.fromkeys(function.args, 0)
    last_use: dict[SSAValue, Operation] = {}
    returned: tuple[SSAValue, ...] = ()
    for op in function.body.ops:
        start = op.place_in_operand(mesh) if isinstance(op, DistOp) else None
        for operand in op.operands if start is None or _computes(op) else ():
            last_use[owner[operand]] = op
        for number, result in enumerate(op.results):
            if isinstance(op, RepeatOp) and _begins_in_place(op, number, owner):
                owner[result], offset[result] = owner[op.operands[number]], 0
                continue
            owner[result] = result if start is None else owner[op.operands[0]]
            offset[result] = 0 if start is None else offset[op.operands[0]] + start
        if not op.results:
            returned = tuple(op.operands)
    result_of: dict[SSAValue, int] = {}
    for index, value in enumerate(returned):
        root = owner[value]
        if root not in result_of and _can_hold(value, root, value, mesh):
            result_of[root] = index
    part_of: dict[SSAValue, tuple[SSAValue, int]] = {}
    of_loops = _stacks_of_loops(function, owner)
    for result in (*result_of, *(value for value in of_loops if value not in result_of)):
        for value, start in _parts(result, mesh) if result not in part_of else ():
            root = owner[value]
            free = root not in result_of and root not in part_of
            place = value if _assembles(result) else result
            if free and _can_hold(value, root, place, mesh):
                part_of[root] = (result, start)
    first_write = _first_writes(function, part_of, last_use)
    names = unique_names(function)
    return BufferPlan(names, owner, offset, last_use, result_of, part_of, first_write, returned)


def _begins_in_place(loop: RepeatOp, number: int, owner: dict[SSAValue, SSAValue]) -> bool:
    """Return whether a carry of a loop is updated in the memory of its initial value, which the
    function computes for it alone."""
    if number >= len(loop.carried) or loop.schedule is not None:
        return False
    start = loop.carried[number]
    is_own = isinstance(start.owner, Operation) and owner[start] is start
    return is_own and len([*start.uses]) == 1 and is_updated(loop, number)


def _stacks_of_loops(function: FuncOp, owner: dict[SSAValue, SSAValue]) -> list[SSAValue]:
    """Return the concats of results of loops, and the assembled results of loops with a schedule,
    the last one first."""
    return [
        op.result
        for op in reversed(function.body.block.ops)
        if isinstance(op, DistOp)
        and (
            (op.kind.packs and any(isinstance(owner[x].owner, NestedOp) for x in op.operands))
            or (op.kind.assembles and all(_is_scheduled(owner[x].owner) for x in op.operands))
        )
    ]


def _is_scheduled(op: object) -> bool:
    return isinstance(op, RepeatOp) and op.schedule is not None


def _first_writes(
    function: FuncOp,
    part_of: dict[SSAValue, tuple[SSAValue, int]],
    last_use: dict[SSAValue, Operation],
) -> dict[SSAValue, Operation]:
    """Return the first operations that write to wholes whose parts are written directly.

    The last use of such a whole becomes that of all its parts.
    """
    wholes = {whole for whole, _ in part_of.values()}
    numbers = {op: number for number, op in enumerate(function.body.ops)} if wholes else {}
    first = {whole: op for whole in wholes if isinstance(op := whole.owner, Operation)}
    for part, (whole, _) in part_of.items():
        writer = part.owner
        assert isinstance(writer, Operation)
        first[whole] = min(first[whole], writer, key=numbers.__getitem__)
        uses = [last_use[value] for value in (part, whole) if value in last_use]
        if uses:
            last_use[whole] = max(uses, key=numbers.__getitem__)
    return first


def _can_hold(value: SSAValue, owner: SSAValue, result: SSAValue, mesh: Mesh) -> bool:
    """Return whether the memory of a result can be that of a value's owner.

    The owner must be computed by the function, be as large as the value, and be on the devices of
    the result: memory that is on more devices at first must not be the caller's.
    """
    return (
        isinstance(owner.owner, Operation)
        and dist_type(owner).place == dist_type(result).place
        and same_size(_size(owner, mesh), _size(value, mesh))
    )


def copied_results(plan: BufferPlan) -> Iterator[SSAValue]:
    """Yield the returned values that lie elsewhere, and are copied at the end."""
    for index, value in enumerate(plan.returned):
        if plan.result_of.get(plan.owner[value]) != index:
            yield value


def _size(value: SSAValue, mesh: Mesh) -> int:
    """Return the number of elements of a value on a device."""
    return math.prod(dist_type(value).local_shape(mesh))


def _computes(op: Operation) -> bool:
    return isinstance(op, DistOp) and op.kind.computes


def _assembles(result: SSAValue) -> bool:
    return isinstance(result.owner, DistOp) and result.owner.kind.assembles


def _parts(result: SSAValue, mesh: Mesh) -> list[tuple[SSAValue, int]]:
    """Return the values that are packed one behind the other into a result, and their starts."""
    op = result.owner
    if isinstance(op, DistOp) and op.kind.assembles:  # each is on devices of its own
        return [(operand, 0) for operand in op.operands]
    if not isinstance(op, DistOp) or not op.kind.packs:
        return []
    if math.prod(dist_type(result).local_shape(mesh)[: op.integer("dim")]) != 1:
        return []
    parts: list[tuple[SSAValue, int]] = []
    start = 0
    for operand in op.operands:
        parts.append((operand, start))
        start += _size(operand, mesh)
    return parts
