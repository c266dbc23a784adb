"""The executor of local programs: it runs the operations of all ranks in a random order.

Ranks run one operation at a time, in an order that is drawn. A collective ends at some time after
its start on all ranks of its group. Until the rank waits, nothing may write its operand, or touch
its result. So operations overlap wherever they may, and mistakes that show in some order are found:
memory read before it is written, after it is freed, or while a collective uses it; two values in
one place; collectives started in different orders; ranks that wait for each other.
"""

import random
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.local import (
    AllocOp,
    AtOp,
    ComputeOp,
    CopyOp,
    FreeOp,
    LocalCallOp,
    LocalFuncOp,
    LocalRepeatOp,
    LocalYieldOp,
    StartOp,
    ViewOp,
    WaitOp,
    mesh_at,
)
from collir.dialects.local_types import buffer_of
from collir.dialects.operation import DistOp
from collir.dialects.parameters import parameters_of
from collir.layout import Mesh
from collir.layout.local import LocalBuffer, number_at
from collir.semantics.local.groups import GROUPS, Counts, reads, writes
from collir.semantics.local.kernels import computed
from collir.semantics.local.memory import LocalError, RankMemory, View
from collir.semantics.reference import collectives
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.collectives import Array, Buffers
from collir.semantics.reference.devices import coordinate, groups

Key = tuple[tuple[str, ...], int]
"""A group: its sub-axes, and its first rank."""


@dataclass(eq=False)
class StartedCollective:
    """A collective of a group.

    Attributes:
        members: the ranks of the group, in order.
        started: the ranks that have started it, each with its operand and its result.
    """

    op: StartOp
    members: Sequence[int]
    started: dict[int, tuple[View | None, View | None]] = field(
        default_factory=dict[int, tuple[View | None, View | None]]
    )
    is_done: bool = False

    @property
    def is_ready(self) -> bool:
        """True if all ranks of the group have started it."""
        return len(self.started) == len(self.members) and not self.is_done


def execute_local(
    function: LocalFuncOp, arguments: Sequence[Buffers], rng: random.Random
) -> list[Buffers]:
    """Return the results of a local function on the buffers of all ranks.

    Args:
        arguments: for every argument one array (or None) for each rank.

    Raises:
        LocalError: a rank does what it must not do.
    """
    return LocalExecution(function, rng).run(arguments)


class LocalExecution:
    """A run of a function on all ranks."""

    def __init__(self, function: LocalFuncOp, rng: random.Random):
        self.function, self.rng = function, rng
        self.mesh: Mesh = mesh_at(function)
        values = parameters_of(function)
        self.at = [
            {axis: coordinate(self.mesh, rank, axis) for axis in self.mesh.by_name} | values
            for rank in range(self.mesh.devices)
        ]
        self.groups: dict[tuple[str, ...], dict[int, list[int]]] = {}
        self.queues: dict[Key, list[StartedCollective]] = {}
        self.ready: list[StartedCollective] = []
        self.steps: dict[object, DistOp] = {}

    def run(self, arguments: Sequence[Buffers]) -> list[Buffers]:
        """Return the results of the function.

        Raises:
            LocalError: a rank does what it must not do.
        """
        ranks = [RankRun(self, rank) for rank in range(self.mesh.devices)]
        for rank in ranks:
            rank.take([values[rank.number] for values in arguments])
        with np.errstate(all="ignore"):
            self._interleave(ranks)
        outputs = [rank.outputs() for rank in ranks]
        return [list(values) for values in zip(*outputs, strict=True)]

    def _interleave(self, ranks: Sequence["RankRun"]) -> None:
        """Run all ranks to their ends, in an order that is drawn."""
        running = {rank: rank.run(self.function.body.block) for rank in ranks}
        waiting: dict[RankRun, StartedCollective] = {}
        while running:
            free = [rank for rank in running if rank not in waiting or waiting[rank].is_done]
            if not free and not self.ready:
                rank, held = next(iter(waiting.items()))
                missing = [n for n in held.members if n not in held.started]
                raise LocalError(
                    f"rank {rank.number} waits for {held.op.called} forever: "
                    f"ranks {missing} do not start it"
                )
            if self.ready and (not free or self.rng.random() < 0.3):
                self.complete(self.ready.pop(self.rng.randrange(len(self.ready))))
                continue
            rank = self.rng.choice(free)
            waiting.pop(rank, None)
            for _ in range(self.rng.randint(1, 8)):
                try:
                    blocked = next(running[rank])
                except StopIteration:
                    del running[rank]
                    break
                if blocked is not None:
                    waiting[rank] = blocked
                    break

    # --- collectives --------------------------------------------------------------------------

    def group_of(self, op: StartOp, rank: int) -> tuple[Key, list[int]]:
        """Return the group of a rank in a collective: its name, and its ranks in order."""
        axes = op.axes.data
        if not axes:
            assert op.before is not None
            fixed = {*op.before.data.partial, *op.before.data.placed}
            axes = tuple(axis for axis in self.mesh.by_name if axis not in fixed)
        if axes not in self.groups:
            listed = groups(self.mesh, axes)
            self.groups[axes] = {rank: group for group in listed for rank in group}
        members = self.groups[axes][rank]
        return (axes, members[0]), members

    def start(self, op: StartOp, rank: "RankRun") -> StartedCollective:
        """Return the collective that a rank starts: the next one of its group."""
        key, members = self.group_of(op, rank.number)
        queue = self.queues.setdefault(key, [])
        number = rank.begun.get(key, 0)
        rank.begun[key] = number + 1
        if number == len(queue):
            queue.append(StartedCollective(op, members))
        own = queue[number]
        if own.op is not op:
            raise LocalError(
                f"rank {rank.number} starts {op.called} where others of its group start "
                f"{own.op.called}"
            )
        place = members.index(rank.number)
        source = rank.view(op.source) if reads(op, place) else None
        target = rank.view(op.target) if writes(op, place) else None
        if source is not None:
            source.check(writes=False)
            rank.use(own, source, writes=False)
        if target is not None:
            target.check(writes=True)
            rank.use(own, target, writes=True)
        own.started[rank.number] = source, target
        if own.is_ready:
            self.ready.append(own)
        return own

    def complete(self, own: StartedCollective) -> None:
        """Carry out a collective that all ranks have started."""
        views = [own.started[rank] for rank in own.members]
        parts = [None if x is None else x.held().reshape(-1) for x, _ in views]
        if own.op.before:
            results = self._permuted(own, parts)
        else:
            results = GROUPS[own.op.called].run(own.op, parts, self._counts(own))
        for (_, target), result in zip(views, results, strict=True):
            if target is not None:
                assert result is not None
                target.put(result.reshape(target.buffer.shape))
        own.is_done = True

    def _counts(self, own: StartedCollective) -> Counts:
        """Return for each rank the elements of the blocks that leave it, if they differ."""
        blocks, _ = own.op.counts
        return [
            [number_at(count, self.mesh, self.at[rank]) for count in blocks] for rank in own.members
        ]

    def _permuted(
        self, own: StartedCollective, parts: Sequence[Array | None]
    ) -> Sequence[Array | None]:
        before, after = own.op.before, own.op.after
        assert before is not None and after is not None
        xs: Buffers = [None] * self.mesh.devices
        for rank, part in zip(own.members, parts, strict=True):
            source, _ = own.started[rank]
            assert source is not None and part is not None
            xs[rank] = part.reshape(source.buffer.shape)
        return [collectives.permute(self.mesh, xs, before.data, after.data)[r] for r in own.members]


class RankRun:
    """The state of one rank: its memory, and its place in the program."""

    def __init__(self, execution: LocalExecution, number: int):
        self.execution, self.number = execution, number
        self.coordinates: Mapping[str, int] = execution.at[number]
        self.values: dict[SSAValue, View | None] = {}
        self.tokens: dict[SSAValue, StartedCollective] = {}
        self.begun: dict[Key, int] = {}
        arena = execution.function.arena
        self.arena = np.zeros(self.own(arena.data) if arena else 0, dtype=np.uint8)
        self.live: dict[RankMemory, tuple[int, int]] = {}
        self.first = 0  # where the arena of the function that runs begins

    def buffer(self, value: SSAValue) -> LocalBuffer:
        """Return the buffer of a value, with the sizes of this rank."""
        return self.sized(buffer_of(value))

    def sized(self, x: LocalBuffer) -> LocalBuffer:
        """Return a buffer with the sizes of this rank."""
        return x.at(self.execution.mesh, self.coordinates)

    def own(self, value: int) -> int:
        """Return a number of this rank."""
        return number_at(value, self.execution.mesh, self.coordinates)

    def view(self, value: SSAValue) -> View:
        """Return the elements that a value is.

        Raises:
            LocalError: the rank does not have them.
        """
        held = self.values[value]
        if held is None:
            raise LocalError(f"rank {self.number} uses {_name(value)}, which it does not hold")
        return held

    # --- arguments and results ----------------------------------------------------------------

    def take(self, arguments: Sequence[Array | None]) -> None:
        """Set the arguments, and make memory for the results."""
        function = self.execution.function
        for value, x in zip(function.inputs, arguments, strict=True):
            if x is None:
                self.values[value] = None
                continue
            flat = np.ascontiguousarray(x).reshape(-1)
            known = np.ones(flat.size, dtype=np.bool_)
            self.values[value] = View(
                RankMemory(_name(value), flat, known, is_constant=True), 0, self.buffer(value)
            )
        places = list(function.places)[len(function.inputs) :]
        for value, place in zip(function.outputs, places, strict=True):
            x = self.buffer(value)
            data, unknown = np.zeros(x.elements, NUMPY[x.dtype]), np.zeros(x.elements, np.bool_)
            held = self._is_at(place.data)
            self.values[value] = (
                View(RankMemory(_name(value), data, unknown), 0, x) if held else None
            )

    def outputs(self) -> list[Array | None]:
        """Return the results.

        Raises:
            LocalError: a part of one was not written.
        """
        found = [self.values[value] for value in self.execution.function.outputs]
        return [None if x is None else x.read() for x in found]

    def _is_at(self, place: Sequence[tuple[str, int]]) -> bool:
        return all(self.coordinates[axis] == at for axis, at in place)

    # --- operations ---------------------------------------------------------------------------

    def run(self, block: Block) -> Generator[StartedCollective | None]:
        """Run a block; yield what is waited for, or None behind each operation."""
        for op in block.ops:
            match op:
                case WaitOp():
                    own = self.tokens.pop(op.token)
                    while not own.is_done:
                        yield own
                    for memory in {x.memory for x in own.started[self.number] if x is not None}:
                        memory.uses.pop((own, False), None)
                        memory.uses.pop((own, True), None)
                case AtOp():
                    if self._is_at(op.place.data):
                        yield from self.run(op.body.block)
                        for inner, outer in zip(op.yielded, op.tokens, strict=True):
                            self.tokens[outer] = self.tokens.pop(inner)
                case LocalRepeatOp():
                    yield from self._repeat(op)
                case LocalCallOp():
                    yield from self._call(op)
                case _:
                    self._step(op)
            yield None

    def _step(self, op: Operation) -> None:
        match op:
            case AllocOp():
                self.values[op.result] = self._new(op)
            case FreeOp():
                self._end(op)
            case ViewOp():
                held = op.place is None or self._is_at(op.place.data)
                whole = self.values[op.whole] if held else None
                start = self.own(op.offset.data)
                self.values[op.result] = whole and View(
                    whole.memory, whole.start + start, self.buffer(op.result)
                )
            case CopyOp():
                self.view(op.target).write(self.view(op.source).read())
            case StartOp():
                self.tokens[op.token] = self.execution.start(op, self)
            case ComputeOp():
                self._compute(op)
            case LocalYieldOp():
                pass
            case _:
                raise LocalError(f"there is no way to run {op.name}")

    def _compute(self, op: ComputeOp) -> None:
        inputs = [self.view(x).read() for x in op.inputs]
        if not op.outputs:
            return
        steps, target = self.execution.steps, self.view(op.outputs[0])
        key = op, target.buffer, *(x.shape for x in inputs)
        if key not in steps:
            steps[key] = op.step(self.sized)
        starts = [self.own(start.data) for start in op.starts or ()]
        target.write(computed(op, steps[key], inputs, starts))

    def _call(self, op: LocalCallOp) -> Generator[StartedCollective | None]:
        """Run the function that is called, its arena in a part of the own one."""
        function, start = op.function(), self.first
        pairs = zip((*op.inputs, *op.outputs), function.body.block.args, strict=True)
        self.values |= {own: self.values[value] for value, own in pairs}
        self.first += self.own(op.start.data) if op.start else 0
        yield from self.run(function.body.block)
        self.first = start

    def _repeat(self, op: LocalRepeatOp) -> Generator[StartedCollective | None]:
        begins, ends, spares, stacks = (
            [self.values[x] for x in values]
            for values in (op.begins, op.ends, op.spares, op.stacks)
        )
        args, count = op.body.block.args, self.own(op.count)
        now = begins
        for iteration in range(count):
            following = ends if (count - iteration) % 2 else spares
            pairs = zip(now, following, strict=True)
            values = [x for pair in pairs for x in pair]
            number = count - 1 - iteration if op.reverse is not None else iteration
            for stack in stacks:
                if stack is None:
                    values.append(None)
                    continue
                row = LocalBuffer(stack.buffer.dtype, stack.buffer.shape[1:])
                values.append(View(stack.memory, stack.start + number * row.elements, row))
            self.values |= zip(args, values, strict=True)
            yield from self.run(op.body.block)
            now = following

    # --- memory -------------------------------------------------------------------------------

    def _new(self, op: AllocOp) -> View | None:
        """Return new memory, in the arena of the function if it has one."""
        if op.place is not None and not self._is_at(op.place.data):
            return None
        x, name = self.buffer(op.result), _name(op.result)
        if op.start is None:
            data = np.zeros(x.elements, NUMPY[x.dtype])
        else:
            start = self.first + self.own(op.start.data)
            end = start + x.bytes
            for occupant, (low, high) in self.live.items():
                if start < high and low < end:
                    raise LocalError(f"{name} lies where {occupant.name} does")
            if end > self.arena.size:
                raise LocalError(f"{name} lies outside of the arena")
            data = self.arena[start:end].view(NUMPY[x.dtype])
        memory = RankMemory(name, data, np.zeros(x.elements, np.bool_))
        if op.start is not None:
            start = self.first + self.own(op.start.data)
            self.live[memory] = start, start + x.bytes
        return View(memory, 0, x)

    def _end(self, op: FreeOp) -> None:
        view = self.values[op.memory]
        if view is None:
            return
        if view.memory.uses:
            raise LocalError(f"{view.memory.name} ends while a collective uses it")
        view.memory.is_gone = True
        self.live.pop(view.memory, None)

    def use(self, own: StartedCollective, x: View, writes: bool) -> None:
        """Note that a collective uses elements until the rank waits."""
        x.memory.uses[own, writes] = x.start, x.start + x.buffer.elements, writes


def _name(value: SSAValue) -> str:
    return f"%{value.name_hint}" if value.name_hint else "memory"
