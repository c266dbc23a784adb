"""Which collectives of a function go into one buffer, and when that pays.

Each collective costs latencies of its own, so few large ones are better than many small ones; but
a buffer can only be sent once all that is in it is there. The collectives of one kind are taken in
the order in which their operands are there; buckets are intervals of it. With f(i) the time at
which the first i are done,

    f(j) = min over i < j of max(f(i), when operand j is there) + what i+1 .. j take together

is the earliest end of all of them, if nothing else is sent meanwhile: f(i) may as well be smallest,
since what follows only depends on it. The time of a buffer is that of the cheapest program for it,
read off between some sizes. No bucket holds a collective and one that needs its result: members
of an interval are checked, and each kind is put into buffers before the next is looked at, so no
cycle arises. Fixed sizes, as in DDP and XLA, are tried as well; what is best by the schedule is
taken.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from collir.cost.model import step_cost
from collir.cost.programs.cost import collective_of
from collir.cost.programs.simulation import simulate_function
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.operation import DistOp, is_placeholder
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of, scratch_copy
from collir.layout import LayoutError, Mesh
from collir.synthesis.programs.choices import TIE, SearchOptions, needs_search, search_programs
from collir.synthesis.scheduling.ordering import Steps, Work, work_of, write_in_order
from collir.synthesis.scheduling.overlapping import checked, fits_memory, sends
from collir.synthesis.scheduling.packing import kind_of, packed
from collir.synthesis.searching import grouped_remarks

MIB = 2**20
SIZES_PER_DOUBLING = 2
"""At how many sizes per factor of two the time of a buffer is looked up."""

Times = NDArray[np.float64]

Rule = Callable[["Bucketable"], list[range]]
"""What says which members of a group go together."""


@dataclass(frozen=True)
class Bucketable:
    """Collectives of one kind, in the order in which their operands are there.

    Attributes:
        ops: they.
        sizes: bytes of each, on a device.
        ready: when the operands of each are there; seconds.
        needs: the last member before each whose result it needs; -1: none.
        time: seconds of a buffer of so many bytes.
        packing: seconds per byte of putting operands into a buffer.
    """

    ops: tuple[DistOp, ...]
    sizes: tuple[int, ...]
    ready: tuple[float, ...]
    needs: tuple[int, ...]
    time: Callable[[float], float]
    packing: float


# ---------------------------------------------------------------------------------------------
# Rules
# ---------------------------------------------------------------------------------------------


def by_size(size: int, first: int | None = None) -> Rule:
    """Buckets that are closed once they have so many bytes; the first may have another size. So
    does PyTorch's DistributedDataParallel, with 25 MiB and first 1 MiB."""

    def rule(group: Bucketable) -> list[range]:
        return list(_filled(group, size, size if first is None else first))

    return rule


def _filled(group: Bucketable, size: int, first: int) -> Iterator[range]:
    start, held, most = 0, 0, first
    for index, more in enumerate(group.sizes):
        if index > start and group.needs[index] >= start:
            yield range(start, index)
            start, held, most = index, 0, size
        held += more
        if held >= most:
            yield range(start, index + 1)
            start, held, most = index + 1, 0, size
    if start < len(group.sizes):
        yield range(start, len(group.sizes))


def up_to(size: int) -> Rule:
    """Buckets that hold at most so many bytes, but those of one member. So does XLA's combiner of
    all_reduces, with 30 MiB."""

    def rule(group: Bucketable) -> list[range]:
        found: list[range] = []
        start, held = 0, 0
        for index, more in enumerate(group.sizes):
            if index > start and (held + more > size or group.needs[index] >= start):
                found.append(range(start, index))
                start, held = index, 0
            held += more
        return [*found, range(start, len(group.sizes))]

    return rule


def earliest(group: Bucketable) -> list[range]:
    """The buckets with which all members are done the earliest."""
    count = len(group.ops)
    ends: Times = np.array([0, *accumulate(group.sizes)], dtype=np.float64)
    grid = _grid(min(group.sizes), float(ends[-1]))
    times: Times = np.array([group.time(size) for size in grid])
    done = np.zeros(count + 1)
    cut = np.zeros(count + 1, dtype=np.int64)
    lowest = list(accumulate(group.needs, max))  # no member before these is in one bucket with it
    for last in range(1, count + 1):
        first = lowest[last - 1] + 1
        sizes = ends[last] - ends[first:last]
        took = cast(Times, np.interp(sizes, grid, times))
        took[: last - first - 1] += group.packing * sizes[: last - first - 1]
        found = np.maximum(done[first:last], group.ready[last - 1]) + took
        best = int(np.argmin(found))
        done[last], cut[last] = found[best], first + best
    buckets: list[range] = []
    last = count
    while last:
        buckets.append(range(int(cut[last]), last))
        last = int(cut[last])
    return buckets[::-1]


def _grid(smallest: float, largest: float) -> list[float]:
    """Sizes from the smallest to the largest, each a factor apart."""
    steps = max(1, math.ceil(SIZES_PER_DOUBLING * math.log2(largest / smallest)))
    return [smallest * (largest / smallest) ** (n / steps) for n in range(steps)] + [largest]


RULES: dict[str, Rule] = {
    "earliest": earliest,
    "ddp": by_size(25 * MIB, first=MIB),
    "xla": up_to(30 * MIB),
}
"""The rules that have names."""

# ---------------------------------------------------------------------------------------------
# Functions
# ---------------------------------------------------------------------------------------------


def bucket(
    module: ModuleOp, wanted: SearchOptions, rule: Rule | None = None
) -> list[tuple[FuncOp, str]]:
    """Packs the collectives of every function by a rule, in place; without one by the best of
    ``RULES``, where that pays.

    Returns: the functions that are not looked at, or not packed by a rule that was given, and why.

    Raises:
        DiagnosticError: a mesh that is not on levels, a step without a cost, a function that needs
            more memory than a device has; no function is changed then.
    """
    with meshes_remembered():
        sending = [one for one in functions_of(module) if sends(one)]
        functions = [one for one in sending if not _wishes(one)]
        kept = [(one, _WISHES) for one in sending if _wishes(one)]
        for function in functions:
            checked(function, wanted.model)
        for function in functions:
            with grouped_remarks(function, f"buckets of @{function.sym_name.data}"):
                if not _Bucketing(function, wanted).by(rule):
                    kept.append((function, _TOO_LARGE))
    return kept


_WISHES = "its redistribute has no cost before decompose"
_TOO_LARGE = "in the buckets of this rule it needs more memory than a device has"


@dataclass
class _Bucketing:
    """What is done to one function."""

    function: FuncOp
    wanted: SearchOptions
    known: dict[Hashable, Steps] = field(default_factory=dict[Hashable, Steps])

    def by(self, rule: Rule | None) -> bool:
        """Packs by a rule, or by the best of all; False: what a rule gives fits into no device."""
        chosen = self._best() if rule is None else rule
        if chosen is not None:
            if rule is not None and not self._fits(chosen):
                return False
            self._pack(self.function, chosen)
        return True

    def _fits(self, rule: Rule) -> bool:
        with scratch_copy(self.function) as copy:
            return not self._pack(copy, rule) or fits_memory(
                simulate_function(copy, self.wanted.model)
            )

    def _best(self) -> Rule | None:
        """The rule that is the fastest on a schedule, and no slower as it is; None: none pays."""
        now = self._time(self.function)
        alone = simulate_function(self.function, self.wanted.model).time
        best: Rule | None = None
        for tried in RULES.values():
            with scratch_copy(self.function) as copy:
                if not self._pack(copy, tried):
                    continue
                time, as_it_is = self._time(copy), simulate_function(copy, self.wanted.model)
                pays = time < now * (1 - TIE) and as_it_is.time <= alone * (1 + TIE)
                if pays and fits_memory(as_it_is):
                    now, best = time, tried
        return best

    def _time(self, function: FuncOp) -> float:
        """Seconds of a function whose collectives run by the cheapest programs, beside all else."""
        return self._work(function).best()[0]

    def _work(self, function: FuncOp) -> Work:
        mesh = mesh_of(function)
        return work_of(function, self.wanted.model, lambda op: self._steps(op, mesh))

    def _steps(self, op: DistOp, mesh: Mesh, factor: float = 1.0) -> Steps:
        """The cheapest program for a collective, on values that many times as large."""
        alike = (op.name, frozenset(op.properties.items()), op.operands[0].type, factor)
        if alike not in self.known:
            self.known[alike] = self._cheapest(op, mesh, factor)
        return self.known[alike]

    def _cheapest(self, op: DistOp, mesh: Mesh, factor: float) -> Steps:
        own = step_cost(collective_of(op, mesh).scaled(factor), self.wanted.model)
        if not needs_search(op):
            return (own,)
        try:
            wanted = SearchOptions(self.wanted.model, seconds=self.wanted.seconds, scale=factor)
            found = search_programs(op, wanted).candidates
        except DiagnosticError:  # too many sub-axes to search
            return (own,)
        return found[0].costs if found and found[0].time < own.time else (own,)

    # --- packing ----------------------------------------------------------------------------

    def _pack(self, function: FuncOp, rule: Rule) -> bool:
        """Puts collectives into buffers, kind by kind; whether there were any to."""
        mesh = mesh_of(function)
        kinds: dict[Hashable, None] = {}
        for op in function.body.ops:
            if isinstance(op, DistOp) and (kind := kind_of(op, mesh)) is not None:
                kinds[kind] = None
        changed = False
        for kind in kinds:
            group = self._group(function, mesh, kind)
            buckets = [bucket for bucket in rule(group) if len(bucket) > 1] if group else []
            if group and buckets:
                self._put(function, mesh, group, buckets)
                changed = True
        return changed

    def _group(self, function: FuncOp, mesh: Mesh, kind: Hashable) -> Bucketable | None:
        """The collectives of a kind; None if there are not several."""
        work = self._work(function)
        members = {
            op: number
            for number, op in reversed(list(enumerate(work.ops)))  # the first of its steps
            if isinstance(op, DistOp) and kind_of(op, mesh) == kind
        }
        if len(members) < 2:
            return None
        ready = _ready(work)
        order = sorted(members, key=lambda op: (ready[members[op]], members[op]))
        sizes = tuple(_size(op, mesh) for op in order)
        largest = order[sizes.index(max(sizes))]

        def time(size: float) -> float:
            return math.fsum(step.time for step in self._steps(largest, mesh, size / max(sizes)))

        device = mesh.machine.device
        speed = device.memory_bandwidth if device else None
        return Bucketable(
            tuple(order),
            sizes,
            tuple(ready[members[op]] for op in order),
            tuple(_needs(function, order)),
            time,
            2 / speed if speed else 0.0,
        )

    def _put(
        self, function: FuncOp, mesh: Mesh, group: Bucketable, buckets: Sequence[range]
    ) -> None:
        """Writes a collective on a buffer in the place of those in each bucket."""
        block = function.body.block
        rank: dict[Operation, float] = {op: n for n, op in enumerate(block.ops)}
        for bucket in buckets:
            ops = [group.ops[index] for index in bucket]
            try:
                before, whole, found = packed(mesh, ops)
            except LayoutError:  # more bytes than a tensor may have
                continue
            last = max(ops, key=lambda op: rank[op])
            place = max((rank.get(one, -1.0) for op in ops for one in _makers(op)), default=-1.0)
            block.insert_ops_before([*before, whole], last)
            rank[whole] = place + 0.5
            for unpacking in found:
                op = unpacking.op
                cut_out, value = unpacking.of(mesh, whole.results[0])
                block.insert_ops_before(cut_out, last)
                value.name_hint = op.result.name_hint
                for new in cut_out:
                    new.location = op.location
                op.result.replace_all_uses_with(value)
            for new in (*before, whole):
                new.location = ops[0].location
            for op in ops:
                rank.pop(op, None)
                op.detach()
                op.erase()
        write_in_order(function, rank)


def _wishes(function: FuncOp) -> bool:
    """Whether there is a redistribution, of which it is not yet known what it does."""
    return any(map(is_placeholder, function.body.ops))


def _makers(op: Operation) -> Iterator[Operation]:
    """The operations that make the operands of one."""
    yield from (one.owner for one in op.operands if isinstance(one.owner, Operation))


def _size(op: DistOp, mesh: Mesh) -> int:
    """The bytes of the larger side of a collective on a device."""
    return max(dist_type(value).local_bytes(mesh) for value in (op.operands[0], op.results[0]))


def _ready(work: Work) -> list[float]:
    """When the operands of all tasks are there, if what sends waits for nothing else."""
    ends: list[float] = []
    found: list[float] = []
    device = 0.0
    for task in work.tasks:
        ready = max((ends[one] for one in task.after), default=0.0)
        found.append(ready)
        if task.waited:
            device = max(device, ready) + task.time
            ends.append(device)
        else:
            ends.append(ready + task.time)
    return found


def _needs(function: FuncOp, order: Sequence[DistOp]) -> Iterable[int]:
    """For each of some operations the last one of them whose result it needs; -1: of none."""
    place = {op: index for index, op in enumerate(order)}
    needs: dict[SSAValue, int] = {}
    found = [-1] * len(order)
    for op in function.body.ops:
        last = max((needs.get(one, -1) for one in op.operands), default=-1)
        index = place.get(op) if isinstance(op, DistOp) else None
        if index is not None:
            found[index] = last
            last = max(last, index)
        for value in op.results:
            needs[value] = last
    return found
