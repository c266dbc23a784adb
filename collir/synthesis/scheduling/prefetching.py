"""Gathers of the next iteration of a loop while this one computes, where that is worth its memory.

What a loop gathers of its slices may be ``ahead`` (``collir.ir.ahead``). Programs are compared as
they run, with their steps in the order that a scheduler finds.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation

from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.cost.programs.simulation import Simulation
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.ahead import ahead_errors, is_ahead
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.inlining import inline_calls
from collir.ir.loops import repeats_in
from collir.ir.remarks import listening, remark
from collir.ir.rotation import prepare
from collir.ir.selection import erase_other_functions
from collir.layout.steps import AHEAD
from collir.syntax.units import bytes_text, seconds_text
from collir.synthesis.programs.choices import TIE
from collir.synthesis.scheduling.memory import fits_memory

Scheduler = Callable[[ModuleOp], None]
"""A rewrite that lets collectives of a module run beside computations, in place."""


def prefetch(module: ModuleOp, model: CostModel, schedule: Scheduler, name: str) -> None:
    """Let gathers in loops be ahead where the simulated time gets shorter and each device has the
    memory, in place.

    Args:
        schedule: what puts the steps of both programs into order before they are compared.
        name: the name of the pass, for remarks.
    """
    for function in functions_of(module):
        choice = _Choice(module, function, model, schedule, name)
        for loop in reversed(repeats_in(function)):
            steps = list(gathers(loop))
            if steps:
                choice.decide(loop, steps)


def gathers(loop: RepeatOp) -> Iterator[DistOp]:
    """Yield the gathers in a loop of what is computed from its slices, which may be ahead."""
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


@dataclass
class _Choice:
    """The choices for one function.

    Attributes:
        now: the simulation of the function as it is now, scheduled; None before the first one.
    """

    module: ModuleOp
    function: FuncOp
    model: CostModel
    schedule: Scheduler
    name: str
    now: Simulation | None = None

    def decide(self, loop: RepeatOp, steps: Sequence[DistOp]) -> None:
        """Let gathers of a loop be ahead, the largest of them left out until there is memory; or
        remark why none is."""
        before = self.now or self._simulated(())
        self.now = before
        reason = ""
        smallest_first = sorted(steps, key=self._bytes)
        for count in range(len(steps), 0, -1):
            chosen = smallest_first[:count]
            after = self._simulated(chosen)
            one = "a gather" if count == 1 else f"{count} gathers"
            text = f"{seconds_text(after.time)} instead of {seconds_text(before.time)}, and "
            text += f"{_memory_text(after)} of memory instead of {_memory_text(before)}"
            if after.time >= before.time * (1 - TIE):
                text = f"keeps the gathers of this repeat where they are: ahead, {one} would take "
                remark(
                    loop,
                    f"{self.name} {text}{seconds_text(after.time)}, and now it is "
                    f"{seconds_text(before.time)}",
                )
                return
            if fits_memory(after) and fits_memory(self._simulated(chosen, scheduled=False)):
                for op in chosen:
                    op.properties[AHEAD.name] = UnitAttr()
                remark(loop, f"{self.name} starts {one} of this repeat an iteration ahead: {text}")
                self.now = after
                return
            reason = f"with {one} ahead it would be {text}, which is more than a device has"
        remark(loop, f"{self.name} keeps the gathers of this repeat where they are: {reason}")

    def _bytes(self, op: DistOp) -> int:
        return dist_type(op.result).elements * dist_type(op.result).dtype.bytes

    def _simulated(self, ahead: Sequence[DistOp], scheduled: bool = True) -> Simulation:
        """Return the simulation of the function with further gathers ahead, in the order that is
        found for its steps or as it is."""
        for op in ahead:
            op.properties[AHEAD.name] = UnitAttr()
        copy = self.module.clone()
        for op in ahead:
            del op.properties[AHEAD.name]
        name = self.function.sym_name.data
        erase_other_functions(copy, [name])
        inline_calls(copy)
        if scheduled:
            with listening(lambda _: None), suppress(DiagnosticError):  # no order has the memory
                self.schedule(copy)
        prepare(copy)
        function = next(x for x in functions_of(copy) if x.sym_name.data == name)
        return simulate_function(function, self.model)


def _memory_text(simulation: Simulation) -> str:
    peak, _, _ = simulation.fullest
    return bytes_text(peak)
