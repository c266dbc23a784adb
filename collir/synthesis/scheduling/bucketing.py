"""Packing of the collectives of a function into buffers, by rules that choose the buffers.

Each collective has latencies of its own, so few large collectives cost less than many small ones.
But a buffer is sent only once all its operands are ready. The collectives of one kind are ordered
by the time their operands are ready; a bucket is an interval of that order. Let f(i) be the time at
which the first i collectives are done. Then

    f(j) = min over i < j of max(f(i), time at which operand j is ready) + time of i+1 .. j packed

is the earliest end of the first j, if nothing else is sent meanwhile. The smallest f(i) is the best
one, because later collectives depend on f(i) alone. The time of a buffer is that of its cheapest
program, interpolated between some sizes. No bucket holds both a collective and a collective that
needs its result: members of an interval are checked, and each kind is packed before the next kind
is looked at, so no cycle arises. Fixed sizes, as in DDP and XLA, are tried as well; the rule with
the fastest schedule wins.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from collir.cost.collectives.phases import Phase
from collir.cost.model import step_cost
from collir.cost.programs.collectives import collective_of
from collir.cost.programs.simulate import simulate_function
from collir.cost.steps import copy_seconds, seconds_sent
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.operation import DistOp, is_placeholder
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of, scratch_copy, without_weights
from collir.ir.roles import pass_role
from collir.layout import LayoutError, Mesh
from collir.synthesis.programs.choices import needs_search, priced_programs
from collir.synthesis.programs.paying import Kinds, RewriteRank, left_out_of
from collir.synthesis.programs.search_options import TIE, SearchOptions
from collir.synthesis.scheduling.memory import checked_simulation, fits_memory, has_collectives
from collir.synthesis.scheduling.ordering import (
    Steps,
    TimedSteps,
    sent_steps,
    work_of,
    write_in_order,
)
from collir.synthesis.scheduling.packing import kind_of, packed
from collir.synthesis.searching import grouped_remarks
from collir.transforms.loops.straight import on_straight_programs

MIB = 2**20
SIZES_PER_DOUBLING = 2
"""Number of sizes per factor of two for which the cheapest program of a buffer is searched."""

Times = NDArray[np.float64]

Rule = Callable[["Bucketable"], list[range]]
"""A function from the collectives of a kind to buckets: intervals of their order."""


@dataclass(frozen=True)
class Bucketable:
    """Collectives of one kind that may share a buffer.

    Attributes:
        ops: the collectives, ordered by the time their operands are ready.
        sizes: bytes of each on a device.
        ready: seconds at which the operands of each are ready.
        needs: index of the last earlier collective whose result each needs; -1: none.
        time: function from the bytes of a buffer to the seconds of its collective.
        packing: function from the bytes of operands to the seconds to copy them into a buffer.
    """

    ops: tuple[DistOp, ...]
    sizes: tuple[int, ...]
    ready: tuple[float, ...]
    needs: tuple[int, ...]
    time: Callable[[float], float]
    packing: Callable[[float], float]


# ---------------------------------------------------------------------------------------------
# Rules
# ---------------------------------------------------------------------------------------------


def ddp_rule(size: int, first: int | None = None) -> Rule:
    """Return a rule that closes a bucket once it has a number of bytes.

    The first bucket may have another size. PyTorch's DistributedDataParallel works so, with 25 MiB
    and a first bucket of 1 MiB.
    """

    def rule(group: Bucketable) -> list[range]:
        buckets: list[range] = []
        start, held, limit = 0, 0, size if first is None else first
        for index, added in enumerate(group.sizes):
            if index > start and group.needs[index] >= start:
                buckets.append(range(start, index))
                start, held, limit = index, 0, size
            held += added
            if held >= limit:
                buckets.append(range(start, index + 1))
                start, held, limit = index + 1, 0, size
        if start < len(group.sizes):
            buckets.append(range(start, len(group.sizes)))
        return buckets

    return rule


def xla_rule(size: int) -> Rule:
    """Return a rule whose buckets of several members hold at most a number of bytes.

    XLA's combiner of all_reduces works so, with 30 MiB.
    """

    def rule(group: Bucketable) -> list[range]:
        buckets: list[range] = []
        start, held = 0, 0
        for index, added in enumerate(group.sizes):
            if index > start and (held + added > size or group.needs[index] >= start):
                buckets.append(range(start, index))
                start, held = index, 0
            held += added
        return [*buckets, range(start, len(group.sizes))]

    return rule


def earliest_buckets(group: Bucketable) -> list[range]:
    """Return the buckets with which all members are done the earliest."""
    count = len(group.ops)
    ends: Times = np.array([0, *accumulate(group.sizes)], dtype=np.float64)
    grid = _grid(min(group.sizes), float(ends[-1]))
    times: Times = np.array([group.time(size) for size in grid])
    packed: Times = times + np.array([group.packing(size) for size in grid])
    done = np.zeros(count + 1)
    cut = np.zeros(count + 1, dtype=np.int64)
    last_needed = list(accumulate(group.needs, max))
    for last in range(1, count + 1):
        first = last_needed[last - 1] + 1  # a bucket with the last member begins here at the lowest
        sizes = ends[last] - ends[first:last]
        durations = cast(Times, np.interp(sizes, grid, packed))
        durations[-1] = np.interp(sizes[-1], grid, times)  # one alone is not packed
        finished = np.maximum(done[first:last], group.ready[last - 1]) + durations
        best = int(np.argmin(finished))
        done[last], cut[last] = finished[best], first + best
    buckets: list[range] = []
    last = count
    while last:
        buckets.append(range(int(cut[last]), last))
        last = int(cut[last])
    return buckets[::-1]


def _grid(smallest: float, largest: float) -> list[float]:
    """Return sizes from the smallest to the largest in geometric steps."""
    steps = max(1, math.ceil(SIZES_PER_DOUBLING * math.log2(largest / smallest)))
    return [smallest * (largest / smallest) ** (n / steps) for n in range(steps)] + [largest]


RULES: dict[str, Rule] = {
    "earliest": earliest_buckets,
    "ddp": ddp_rule(25 * MIB, first=MIB),
    "xla": xla_rule(30 * MIB),
}
"""The rules by their names."""

# ---------------------------------------------------------------------------------------------
# Functions
# ---------------------------------------------------------------------------------------------


@on_straight_programs
def bucket_collectives(
    module: ModuleOp, options: SearchOptions, rule: Rule | None = None
) -> list[tuple[FuncOp, str]]:
    """Pack the collectives of every function into buffers by a rule.

    If no rule is given, the best of ``RULES`` is taken for each function, if any makes it faster.

    Returns: the functions that the rule does not change although they have collectives, and why.

    Raises:
        DiagnosticError: a mesh is not on levels, a step has no cost, or a function needs more
            memory than a device has; no function is changed then.
    """
    with meshes_remembered():
        even = without_weights(functions_of(module), "bucketed")
        sending = [function for function in even if has_collectives(function)]
        functions = [function for function in sending if not _has_placeholder(function)]
        kept = [(function, _PLACEHOLDER) for function in sending if _has_placeholder(function)]
        times = [checked_simulation(function, options.model).time for function in functions]
        for function, time in zip(functions, times, strict=True):
            with grouped_remarks(function, f"buckets of @{function.sym_name.data}"):
                if not _Bucketing(function, options, time).pack(rule):
                    kept.append((function, _TOO_LARGE))
    return kept


_PLACEHOLDER = "its redistribute has no cost before decompose"
_TOO_LARGE = "in the buckets of this rule it needs more memory than a device has"


@dataclass
class _Bucketing:
    """The packing of one function.

    Attributes:
        time: the seconds of the function as it is written.
        known: cheapest programs of the collectives that were searched.
    """

    function: FuncOp
    options: SearchOptions
    time: float
    known: dict[Hashable, Steps] = field(default_factory=dict[Hashable, Steps])

    def pack(self, rule: Rule | None) -> bool:
        """Pack the function by a rule, or by the best rule if None is given.

        Returns: False if the rule is given and no device has the memory for its buckets.
        """
        left_out: Kinds | None = frozenset()
        if rule is None:
            rule, left_out = self._best_rule()
        elif not self._fits_packed(rule):
            return False
        if rule is not None and left_out is not None:
            _ = self._pack(self.function, rule, left_out)
        return True

    def _fits_packed(self, rule: Rule) -> bool:
        with scratch_copy(self.function) as copy:
            return not self._pack(copy, rule) or fits_memory(
                simulate_function(copy, self.options.model)
            )

    def _best_rule(self) -> tuple[Rule | None, Kinds | None]:
        """Return the rule with the fastest schedule and the kinds of collectives that it leaves
        out, if no rule makes the function faster as a whole. No rule, if none pays."""
        ranks = {rule: self._tried(rule, frozenset()) for rule in RULES.values()}
        paying = [rule for rule, (rank, made) in ranks.items() if rank.slower == 1 and made]
        if paying:
            return min(paying, key=lambda rule: ranks[rule][0]), frozenset()
        if not any(made for _, made in ranks.values()):
            return None, None
        rule, otherwise = earliest_buckets, "be slower, or need more memory than a device has"
        tried = partial(self._tried, rule)
        return rule, left_out_of(self.function, "bucket", tried, otherwise)

    def _tried(self, rule: Rule, left_out: Kinds) -> tuple[RewriteRank, list[Hashable]]:
        """Return the rank of the function packed by a rule, and the kinds that are packed.

        To pay, it has to be faster than before when both are scheduled, no slower as written, and
        fit into memory.
        """
        with scratch_copy(self.function) as copy:
            made = self._pack(copy, rule, left_out)
            if not made:
                return RewriteRank(1.0, self._unpacked_time), made
            time = self._work(copy).best()[0]
            written = simulate_function(copy, self.options.model)
        if not fits_memory(written):
            return RewriteRank(math.inf, time), made
        slower = max(
            RewriteRank.of(written.time, self.time).slower,
            RewriteRank.of(time, self._unpacked_time * (1 - 2 * TIE)).slower,
        )
        return RewriteRank(slower, time), made

    @cached_property
    def _unpacked(self) -> TimedSteps:
        return self._work(self.function)

    @cached_property
    def _unpacked_time(self) -> float:
        return self._unpacked.best()[0]

    def _work(self, function: FuncOp) -> TimedSteps:
        """Return the work of a function with the cheapest programs."""
        mesh = mesh_of(function)
        return work_of(function, self.options.model, lambda op: self._steps(op, mesh))

    def _steps(self, op: DistOp, mesh: Mesh, factor: float = 1.0) -> Steps:
        """Return the cheapest program for a collective on values ``factor`` times as large."""
        key = (op.name, frozenset(op.properties.items()), op.operands[0].type, factor)
        if key not in self.known:
            self.known[key] = self._cheapest_program(op, mesh, factor)
        return self.known[key]

    def _cheapest_program(self, op: DistOp, mesh: Mesh, factor: float) -> Steps:
        single = step_cost(collective_of(op, mesh).scaled(factor), self.options.model)
        written, own = sent_steps([single]), seconds_sent(single)
        if not needs_search(op):
            return written
        try:
            options = SearchOptions(self.options.model, seconds=self.options.seconds, scale=factor)
            candidates = priced_programs(op, options, own).candidates
        except DiagnosticError:  # too many sub-axes to search
            return written
        if not candidates or candidates[0].time >= own:
            return written
        steps = sent_steps(candidates[0].costs)
        copies = max(0.0, candidates[0].time - _seconds(steps))
        return [*steps, ((Phase(work=copies),), len(mesh.machine.levels))] if copies else steps

    # --- packing ----------------------------------------------------------------------------

    def _pack(self, function: FuncOp, rule: Rule, left_out: Kinds = frozenset()) -> list[Hashable]:
        """Pack the collectives of a function kind by kind; return the kinds that were packed."""
        mesh = mesh_of(function)
        kinds = Counter(
            kind
            for op in function.body.ops
            if isinstance(op, DistOp) and (kind := kind_of(op, mesh)) is not None
        )
        several = [kind for kind, count in kinds.items() if count > 1 and kind not in left_out]
        if not several:
            return []
        copies = dict(zip(self.function.body.ops, function.body.ops, strict=True))
        work = replace(self._unpacked, ops=tuple(copies[op] for op in self._unpacked.ops))
        made: list[Hashable] = []
        stale = False
        for kind in several:
            work, stale = self._work(function) if stale else work, False
            group = self._group(function, work, kind)
            if buckets := [bucket for bucket in rule(group) if len(bucket) > 1]:
                self._pack_group(function, mesh, group, buckets)
                made.append(kind)
                stale = True
        return made

    def _group(self, function: FuncOp, work: TimedSteps, kind: Hashable) -> Bucketable:
        """Return the collectives of a kind."""
        mesh = mesh_of(function)
        members = {
            op: number
            for number, op in reversed(list(enumerate(work.ops)))  # keeps the first step of an op
            if isinstance(op, DistOp) and kind_of(op, mesh) == kind
        }
        ready = _ready_times(work)
        order = sorted(members, key=lambda op: (ready[members[op]], members[op]))
        sizes = tuple(_local_bytes(op, mesh) for op in order)
        largest = order[sizes.index(max(sizes))]

        def time(size: float) -> float:
            return _seconds(self._steps(largest, mesh, size / max(sizes)))

        return Bucketable(
            tuple(order),
            sizes,
            tuple(ready[members[op]] for op in order),
            tuple(_last_needed(function, order)),
            time,
            partial(copy_seconds, mesh=mesh),
        )

    def _pack_group(
        self, function: FuncOp, mesh: Mesh, group: Bucketable, buckets: Sequence[range]
    ) -> None:
        """Replace the collectives of each bucket by one collective on a buffer."""
        block = function.body.block
        rank: dict[Operation, float] = {op: n for n, op in enumerate(block.ops)}
        for bucket in buckets:
            ops = [group.ops[index] for index in bucket]
            try:
                packing, collective, unpackings = packed(mesh, ops)
            except LayoutError:  # more bytes than a tensor may have
                continue
            last = max(ops, key=lambda op: rank[op])
            operands = (value for op in ops for value in op.operands)
            makers = [value.owner for value in operands if isinstance(value.owner, Operation)]
            ready = max((rank.get(maker, -1.0) for maker in makers), default=-1.0)
            block.insert_ops_before([*packing, collective], last)
            rank[collective] = ready + 0.5
            for unpacking in unpackings:
                op = unpacking.op
                cut_out, value = unpacking.chain(mesh, collective.results[0])
                block.insert_ops_before(cut_out, last)
                value.name_hint = op.result.name_hint
                for new in cut_out:
                    new.location = op.location
                pass_role(op.result, value)
                op.result.replace_all_uses_with(value)
            for new in (*packing, collective):
                new.location = ops[0].location
            for op in ops:
                rank.pop(op, None)
                op.detach()
                op.erase()
        write_in_order(function, rank)


def _has_placeholder(function: FuncOp) -> bool:
    """Return whether a function has a redistribution, whose steps are not known yet."""
    return any(map(is_placeholder, function.body.ops))


def _seconds(steps: Steps) -> float:
    return math.fsum(phase.time for phases, _ in steps for phase in phases)


def _local_bytes(op: DistOp, mesh: Mesh) -> int:
    """Return the bytes on a device of the larger of operand and result of a collective."""
    return max(dist_type(value).local_bytes(mesh) for value in (op.operands[0], op.results[0]))


def _ready_times(work: TimedSteps) -> list[float]:
    """Return the seconds at which the operands of all tasks are ready.

    Collectives wait for their operands only; computations also wait for each other.
    """
    ends: list[float] = []
    ready_times: list[float] = []
    device = 0.0
    for task in work.tasks:
        ready = max((ends[number] for number in task.after), default=0.0)
        ready_times.append(ready)
        if task.waited:
            device = max(device, ready) + task.time
            ends.append(device)
        else:
            ends.append(ready + task.time)
    return ready_times


def _last_needed(function: FuncOp, order: Sequence[DistOp]) -> list[int]:
    """Return, for each of some operations, the last earlier one whose result it needs; -1: none."""
    place = {op: index for index, op in enumerate(order)}
    last_behind: dict[SSAValue, int] = {}  # the last operation that each value depends on
    needed = [-1] * len(order)
    for op in function.body.ops:
        last = max((last_behind.get(value, -1) for value in op.operands), default=-1)
        index = place.get(op) if isinstance(op, DistOp) else None
        if index is not None:
            needed[index] = last
            last = max(last, index)
        for value in op.results:
            last_behind[value] = last
    return needed
