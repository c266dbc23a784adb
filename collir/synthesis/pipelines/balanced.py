"""Plans with as many layers at each place as let the longest place work shortest."""

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects.func import FuncOp

from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.dialects.machine import meshes_remembered, module_of
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.pipelines import pipelines_in
from collir.ir.remarks import remark
from collir.ir.staging.layers import chunk_layers, layer_count
from collir.ir.staging.outlining import Axis
from collir.ir.staging.staged import Plan, microbatch_loop, stage
from collir.syntax.units import seconds_text
from collir.synthesis.pipelines.balance import Balance, PlaceWork, balanced, limited, works_of

MOST_ROUNDS = 8
"""The number of simulations in search of layers that fit into memory."""


def balanced_plan(function: FuncOp, axis: Axis, plan: Plan, model: CostModel) -> Plan:
    """Return a plan with the layers of each chunk, and remark them.

    Args:
        plan: a plan with the name of a schedule.

    Raises:
        DiagnosticError: there are no such numbers, or no place has memory for more layers.
    """
    loop = microbatch_loop(function)
    assert loop is not None
    count, rows = layer_count(loop), len(plan.places) // axis.size
    first = balanced([PlaceWork()] * axis.size, count, rows)
    if first is None:
        raise DiagnosticError.at(
            loop,
            f"{count} layers cannot be shared by {axis.size} places with {rows} chunks at each in "
            "one proportion in each round: use other numbers of layers or chunks",
        )
    works, peaks = _simulated(function, axis, plan, first, model)
    best = balanced(works, count, rows)
    assert best is not None
    device = axis.mesh.machine.slowest
    memory = device.memory if device else None
    if memory is not None:
        known = {first.totals: peaks}
        for _ in range(MOST_ROUNDS):
            if best.totals not in known:
                known[best.totals] = _simulated(function, axis, plan, best, model)[1]
            if max(known[best.totals]) <= memory:
                break
            other = balanced(limited(works, memory, known), count, rows)
            if other is None or other.totals in known:
                raise DiagnosticError.at(
                    loop,
                    "no numbers of layers fit into the memory of all places: use more places, "
                    "or microbatches that are smaller, or recompute activations",
                )
            best = other
    before = max(work.time(n) for work, n in zip(works, first.totals, strict=True))
    layers = chunk_layers(plan.places, best.totals, best.units)
    remark(
        loop,
        f"the chunks have {', '.join(map(str, layers))} layers: a place works "
        f"{seconds_text(best.time)} at most for a microbatch, where it is {seconds_text(before)} "
        "with numbers as equal as possible",
    )
    return replace(plan, layers=layers)


def _simulated(
    function: FuncOp, axis: Axis, plan: Plan, balance: Balance, model: CostModel
) -> tuple[list[PlaceWork], Sequence[float]]:
    """Return the works of places of a simulated copy, and the bytes that each needs."""
    copy = module_of(function).clone()
    name = function.sym_name.data
    [own] = [f for f in functions_of(copy) if f.sym_name.data == name]
    layers = chunk_layers(plan.places, balance.totals, balance.units)
    with meshes_remembered():
        staged = stage(own, axis, replace(plan, layers=layers))
    with meshes_remembered():
        [loop] = pipelines_in(staged)
        return works_of(loop, simulate_function(staged, model), layers)
