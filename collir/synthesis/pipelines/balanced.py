"""Plans with the numbers of layers that let the slowest place work shortest."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.func import FuncOp

from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.dialects.machine import meshes_remembered, module_of
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.pipelines import pipelines_in
from collir.ir.remarks import remark
from collir.syntax.units import seconds_text
from collir.synthesis.pipelines.balance import Balance, PlaceWork, balanced, limited, works_of
from collir.synthesis.pipelines.measured import decompose_placeholders
from collir.transforms.stages.layers import chunk_layers, layer_count, near_equal
from collir.transforms.stages.outlining import PipelineAxis
from collir.transforms.stages.staged import StagePlan, microbatch_loop, stage

MOST_ROUNDS = 8
"""The number of simulations in search of layers that fit into memory."""


def balanced_plan(
    function: FuncOp, axis: PipelineAxis, plan: StagePlan, model: CostModel
) -> StagePlan:
    """Return a plan with the layers of each chunk, and remark them.

    Where sends take long, the slowest place does not decide alone. So the fastest of the simulated
    numbers that fit into memory are taken.

    Args:
        plan: a plan with the name of a schedule.

    Raises:
        DiagnosticError: there are no such numbers, or no place has memory for more layers.
    """
    loop = microbatch_loop(function)
    assert loop is not None
    if plan.directions > 1:
        raise DiagnosticError.at(
            loop,
            f"{plan.schedule} has each chunk at two places, whose layers `balanced` does not "
            "choose: say the layers of each chunk, as in "
            f"layers={_listed(near_equal(layer_count(loop), axis.size), ',')}",
        )
    trials = Trials(function, axis, plan, model)
    equal = balanced([PlaceWork()] * axis.size, trials.count, trials.rows)
    if equal is None:
        raise DiagnosticError.at(
            loop,
            f"{trials.count} layers cannot be shared by {axis.size} places with {trials.rows} "
            "chunks at each in one proportion in each round: use other numbers of layers or chunks",
        )
    first = trials.trial(equal)
    best = balanced(first.works, trials.count, trials.rows)
    for _ in range(MOST_ROUNDS):
        if best is None or trials.fits(trials.trial(best)):
            break
        best = balanced(trials.limited(), trials.count, trials.rows)
    fitting = [trial for trial in trials.known.values() if trials.fits(trial)]
    if not fitting:
        raise DiagnosticError.at(
            loop,
            "no numbers of layers fit into the memory of all places: use more places, or smaller "
            "microbatches, or recompute activations",
        )
    chosen = min(fitting, key=lambda trial: trial.time)
    text = f"the chunks have {_listed(chosen.layers)} layers, {seconds_text(chosen.time)} in all"
    if chosen is not first:
        text += f"; with {_listed(first.layers)}, {seconds_text(first.time)}"
        text += "" if trials.fits(first) else " and too much memory"
    remark(loop, text)
    return replace(plan, layers=chosen.layers)


def _listed(layers: Sequence[int], comma: str = ", ") -> str:
    return comma.join(map(str, layers))


@dataclass(frozen=True)
class SimulatedPipeline:
    """A simulated pipeline.

    Attributes:
        layers: the layers of each chunk.
        works: the works of places.
        peaks: the most bytes that a device of each place holds.
        time: seconds of the function.
    """

    layers: Sequence[int]
    works: Sequence[PlaceWork]
    peaks: Sequence[float]
    time: float


class Trials:
    """Simulated pipelines of a function with several numbers of layers.

    Attributes:
        count: the layers of the function.
        rows: the chunks at each place.
        known: the trials, by the layers of places.
    """

    def __init__(self, function: FuncOp, axis: PipelineAxis, plan: StagePlan, model: CostModel):
        self.function, self.axis, self.plan, self.model = function, axis, plan, model
        loop = microbatch_loop(function)
        assert loop is not None
        self.count, self.rows = layer_count(loop), len(plan.places) // axis.size
        device = axis.mesh.machine.slowest
        self.memory = device.memory if device and device.memory is not None else math.inf
        self.known: dict[tuple[int, ...], SimulatedPipeline] = {}

    def trial(self, balance: Balance) -> SimulatedPipeline:
        """Return the simulation of a copy of the function."""
        if balance.totals not in self.known:
            self.known[balance.totals] = self._simulated(balance)
        return self.known[balance.totals]

    def fits(self, trial: SimulatedPipeline) -> bool:
        """Return whether all places have the memory that a trial needs."""
        return max(trial.peaks) <= self.memory

    def limited(self) -> list[PlaceWork]:
        """Return the works of places with the layers that memory has room for."""
        peaks = {totals: trial.peaks for totals, trial in self.known.items()}
        return limited(next(iter(self.known.values())).works, self.memory, peaks)

    def _simulated(self, balance: Balance) -> SimulatedPipeline:
        copy, name = module_of(self.function).clone(), self.function.sym_name.data
        [own] = [f for f in functions_of(copy) if f.sym_name.data == name]
        layers = chunk_layers(self.plan.places, balance.totals, balance.units)
        with meshes_remembered():
            staged = stage(own, self.axis, replace(self.plan, layers=layers))
        with meshes_remembered():
            decompose_placeholders(copy, self.model)
            [loop] = pipelines_in(staged)
            simulation = simulate_function(staged, self.model)
            works, peaks = works_of(loop, simulation, layers)
        return SimulatedPipeline(layers, works, peaks, simulation.time)
