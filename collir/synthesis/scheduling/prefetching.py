"""Gathers of the next iteration of a loop while this one computes, where memory allows and it pays.

Gathers of a loop's slices may be ``ahead`` (``collir.ir.ahead``). Programs are compared with their
steps in the order that a scheduler finds.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation

from collir.cost.model import CostModel
from collir.cost.programs.collectives import op_cost
from collir.cost.programs.simulate import simulate_function
from collir.cost.programs.simulation import Simulation
from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.ahead import ahead_errors, is_ahead
from collir.ir.calls import calls_in
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.loops import repeats_in
from collir.ir.remarks import listening, remark
from collir.ir.selection import copy_with_functions
from collir.layout.steps import AHEAD
from collir.syntax.units import bytes_text, seconds_text
from collir.synthesis.programs.search_options import TIE
from collir.synthesis.scheduling.memory import fits_memory
from collir.synthesis.scheduling.ordering import AS_FAST
from collir.transforms.as_run import prepare
from collir.transforms.loops.bodies import loop_alone

Scheduler = Callable[[ModuleOp], None]
"""A rewrite that lets collectives of a module run beside computations, in place."""


def prefetch(module: ModuleOp, model: CostModel, schedule: Scheduler, name: str) -> None:
    """Let gathers in loops be ahead where the simulated time gets shorter and each device has the
    memory, in place.

    Args:
        schedule: the function that orders the steps of both programs before they are compared.
        name: the name of the pass, for remarks.
    """
    loops: dict[tuple[str, ...], dict[RepeatOp, list[DistOp]]] = {}
    for function in functions_of(module):
        for loop in reversed(repeats_in(function)):
            if steps := list(gathers(loop)):
                loops.setdefault(tuple(_measured(module, function)), {})[loop] = steps
    for measured, own in loops.items():
        choice = _Choice(module, measured, model, schedule, name)
        if len(own) > 1:
            choice.decide_alone(own)
            continue
        [(loop, steps)] = own.items()
        choice.decide(loop, steps)


def _measured(module: ModuleOp, function: FuncOp) -> list[str]:
    """Return the names of the outermost functions that run a function, directly or not.

    The time and memory of a callee are part of theirs.
    """
    callers: dict[FuncOp, set[FuncOp]] = {}
    for caller in functions_of(module):
        for call in calls_in(caller):
            if (callee := call.function()) is not None:
                callers.setdefault(callee, set()).add(caller)
    running, pending = {function}, [function]
    while pending:
        new = callers.get(pending.pop(), set()) - running
        running |= new
        pending += new
    return [x.sym_name.data for x in functions_of(module) if x in running and x not in callers]


def gathers(loop: RepeatOp) -> Iterator[DistOp]:
    """Yield the gathers in a loop of values computed from its slices; these may be ahead."""
    for op in loop.body.block.ops:
        if isinstance(op, DistOp) and op.kind.gathers and op.kind.may_be_async and not is_ahead(op):
            op.properties[AHEAD.name] = UnitAttr()
            legal = not ahead_errors(op)
            del op.properties[AHEAD.name]
            if legal and _reads_slice(loop, op):
                yield op


def _reads_slice(loop: RepeatOp, op: DistOp) -> bool:
    """Return whether a step computes from slices, directly or through others."""
    first, last = len(loop.carried), len(loop.carried) + len(loop.sliced)
    pending = list(op.operands)
    while pending:
        value = pending.pop()
        if isinstance(value, BlockArgument):
            if first <= value.index < last:
                return True
        elif isinstance(value.owner, Operation):
            pending += value.owner.operands
    return False


class _Run:
    """The functions that run a loop, simulated.

    Attributes:
        time: seconds of all functions together.
    """

    def __init__(self, simulations: Sequence[Simulation]):
        self.simulations = simulations
        self.time = math.fsum(x.time for x in simulations)

    @property
    def fits(self) -> bool:
        """Return whether each device has the memory for each function."""
        return all(map(fits_memory, self.simulations))

    @property
    def memory_text(self) -> str:
        """The largest memory of a device, for remarks."""
        return bytes_text(max(x.fullest[0] for x in self.simulations))

    def is_faster_than(self, before: "_Run", least: float = TIE) -> bool:
        """Return whether no function is slower, and all together save a share of their time."""
        pairs = zip(self.simulations, before.simulations, strict=True)
        slower = any(x.time > y.time * (1 + TIE) for x, y in pairs)
        return not slower and self.time < before.time * (1 - least)


class _Way(NamedTuple):
    """A way to run a loop by itself.

    Attributes:
        ahead: the numbers of its gathers that are ahead.
        time: seconds.
    """

    ahead: Sequence[int]
    time: float


@dataclass(frozen=True, eq=False)
class _Alike:
    """Loops that are alike, each by itself, such as the loops in the stages of a pipeline.

    Attributes:
        loops: the loops, each with its gathers.
        alone: a loop by itself.
        now: its seconds as it is.
        best: the fastest way, if one is faster.
        least: the seconds of the fastest way that was tried.
    """

    loops: dict[RepeatOp, Sequence[DistOp]]
    alone: ModuleOp
    now: float
    best: _Way | None
    least: float

    @property
    def saved(self) -> float:
        """The seconds that all loops together save at most."""
        return len(self.loops) * (self.now - self.least)

    def steps(self, way: _Way) -> list[DistOp]:
        """Return the gathers of all loops that are ahead."""
        return [steps[number] for steps in self.loops.values() for number in way.ahead]

    def text(self, way: _Way | None, memory: str) -> str:
        """Return the text of a remark on a way, and on the memory of a device."""
        before, least = seconds_text(self.now), seconds_text(self.least)
        if way is not None:
            gathers = "a gather" if len(way.ahead) == 1 else f"{len(way.ahead)} gathers"
            what = f"starts {gathers} of this repeat an iteration ahead: it takes"
            after = f"{seconds_text(way.time)} instead of {before}"
            return f"{what} {after}; all together need {memory} of memory"
        what = "keeps the gathers of this repeat where they are: with them ahead it would take"
        if self.best:
            return f"{what} {least} instead of {before}, and more memory than a device has"
        return f"{what} {least} at best, and now it is {before}"


@dataclass
class _Choice:
    """The choices for the loops of one function.

    Attributes:
        measured: names of the functions that are simulated.
        now: these functions as they are now, each scheduled and not; None before the first choice.
    """

    module: ModuleOp
    measured: Sequence[str]
    model: CostModel
    schedule: Scheduler
    name: str
    now: tuple[_Run, _Run] | None = None

    def decide(self, loop: RepeatOp, steps: Sequence[DistOp]) -> None:
        """Let gathers of a loop be ahead, or remark why none is. The largest are left out as long
        as memory is short or the loop gets faster."""
        self.now = self.now or (self._simulated(()), self._simulated((), scheduled=False))
        before, best = self.now[0], self.now
        reason = what = ""
        ahead: Sequence[DistOp] = ()
        smallest_first = sorted(steps, key=self._bytes)
        for count in range(len(steps), 0, -1):
            chosen = smallest_first[:count]
            after = self._simulated(chosen)
            gathers = "a gather" if count == 1 else f"{count} gathers"
            if after.is_faster_than(best[0]):
                alone = self._simulated(chosen, scheduled=False)
                text = f"{seconds_text(after.time)} instead of {seconds_text(before.time)}, and "
                text += f"{after.memory_text} of memory instead of {before.memory_text}"
                if after.fits and alone.fits and alone.is_faster_than(self.now[1], -TIE):
                    what = f"starts {gathers} of this repeat an iteration ahead: {text}"
                    best, ahead = (after, alone), chosen
                    continue
                why = "but slower until steps are put into order"
                if not after.fits:
                    why = "which is more than a device has"
                elif not alone.fits:
                    why = "but more than a device has until steps are put into order"
                reason = reason or f"with {gathers} ahead it would be {text}, {why}"
            elif ahead:
                break  # it was faster with more of them
            times = seconds_text(after.time), seconds_text(before.time)
            reason = reason or f"ahead, {gathers} would take {times[0]}, and now it is {times[1]}"
        for op in ahead:
            op.properties[AHEAD.name] = UnitAttr()
        self.now = best
        what = what or f"keeps the gathers of this repeat where they are: {reason}"
        remark(loop, f"{self.name} {what}")

    def decide_alone(self, loops: Mapping[RepeatOp, Sequence[DistOp]]) -> None:
        """Let the gathers be ahead with which each loop is fastest by itself. If memory is short,
        take only those that save most.

        A loop by itself has few steps, and loops that are alike are tried once and decided once.
        """
        known: list[tuple[ModuleOp, dict[RepeatOp, Sequence[DistOp]]]] = []
        for loop, steps in loops.items():
            alone = loop_alone(loop)
            same = (x for known_loop, x in known if known_loop.is_structurally_equivalent(alone))
            if (alike := next(same, None)) is None:
                known.append((alone, alike := {}))
            alike[loop] = steps
        groups = [self._tried(alone, alike) for alone, alike in known]
        taken, memory = self._with_memory(groups)
        for group in groups:
            way = taken.get(group)
            for op in group.steps(way) if way else ():
                op.properties[AHEAD.name] = UnitAttr()
            for loop in group.loops:
                remark(loop, f"{self.name} {group.text(way, memory)}")

    def _with_memory(self, groups: Sequence[_Alike]) -> tuple[dict[_Alike, _Way], str]:
        """Return the fastest ways that fit into memory, by group of loops, and their memory in
        all."""
        taken = {group: group.best for group in groups if group.best}

        def run() -> _Run:
            ahead = [op for group, way in taken.items() for op in group.steps(way)]
            return self._simulated(ahead, scheduled=False)

        if not taken:
            return taken, ""
        if (now := run()).fits:
            return taken, now.memory_text
        by_savings = sorted(taken, key=lambda group: -group.saved)
        taken, memory = dict[_Alike, _Way](), ""
        if not run().fits:  # not even as it is
            return taken, memory
        for group in by_savings:
            for way in self._ways(group):
                taken[group] = way
                if (now := run()).fits:
                    memory = now.memory_text
                    break
                del taken[group]
        return taken, memory

    def _ways(self, group: _Alike) -> Iterator[_Way]:
        """Yield the fastest way of a group, and those with fewer gathers ahead that are still
        faster than none."""
        numbers = group.best.ahead if group.best else ()
        before, as_is = self._alone(group.alone, ()), self._alone(group.alone, (), scheduled=False)
        for count in range(len(numbers), 0, -1):
            after = self._alone(group.alone, numbers[:count])
            if after.is_faster_than(before):
                unscheduled = self._alone(group.alone, numbers[:count], scheduled=False)
                if unscheduled.is_faster_than(as_is, -TIE):
                    yield _Way(numbers[:count], after.time)

    def _tried(self, alone: ModuleOp, loops: dict[RepeatOp, Sequence[DistOp]]) -> _Alike:
        """Return a group of alike loops with the ways to run one of them. The largest gathers are
        left out as long as it gets faster."""
        before, as_is = self._alone(alone, ()), self._alone(alone, (), scheduled=False)
        [loop, *_] = repeats_in(alone)
        mesh, steps = mesh_of(loop), [*gathers(loop)]
        most = loop.times * math.fsum(op_cost(op, mesh, self.model).time for op in steps)
        if most < AS_FAST * before.time:  # no order hides more
            return _Alike(loops, alone, before.time, None, before.time - most)
        fastest, best = before, None
        least = math.inf
        smallest_first = sorted(range(len(steps)), key=lambda n: self._bytes(steps[n]))
        for count in range(len(smallest_first), 0, -1):
            numbers = smallest_first[:count]
            after = self._alone(alone, numbers)
            least = min(least, after.time)
            if after.is_faster_than(fastest):
                if not self._alone(alone, numbers, scheduled=False).is_faster_than(as_is, -TIE):
                    continue  # slower until steps are put into order
                fastest, best = after, _Way(numbers, after.time)
            elif best:
                break  # it was faster with more of them
        return _Alike(loops, alone, before.time, best, best.time if best else least)

    def _alone(self, alone: ModuleOp, ahead: Collection[int], scheduled: bool = True) -> _Run:
        """Return the simulation of a loop by itself with some of its gathers ahead."""
        copy = alone.clone()
        [loop, *_], [function, *_] = repeats_in(copy), functions_of(copy)
        for number, op in enumerate([*gathers(loop)]):
            if number in ahead:
                op.properties[AHEAD.name] = UnitAttr()
        return self._run(copy, [function.sym_name.data], scheduled)

    def _bytes(self, op: DistOp) -> int:
        return dist_type(op.result).elements * dist_type(op.result).dtype.bytes

    def _simulated(self, ahead: Sequence[DistOp], scheduled: bool = True) -> _Run:
        """Return the simulations of the functions with further gathers ahead, with their steps in
        the found order or as they are."""
        for op in ahead:
            op.properties[AHEAD.name] = UnitAttr()
        copy = copy_with_functions(self.module, self.measured)
        for op in ahead:
            del op.properties[AHEAD.name]
        return self._run(copy, self.measured, scheduled)

    def _run(self, copy: ModuleOp, names: Collection[str], scheduled: bool = True) -> _Run:
        """Return the simulations of functions of a module, which it changes."""
        if scheduled:
            with listening(lambda _: None), suppress(DiagnosticError):  # no order has the memory
                self.schedule(copy)
        prepare(copy)
        functions = [x for x in functions_of(copy) if x.sym_name.data in names]
        return _Run([simulate_function(x, self.model) for x in functions])
