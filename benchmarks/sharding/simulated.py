"""The simulations of plans, as they are printed."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from cases import step_of
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.synthesis.sharding.solver import VariableValues


@dataclass(frozen=True)
class Plan:
    """The simulation of a plan.

    Attributes:
        seconds: the time of the step.
        bytes: the memory that a device needs.
        said: the time that ``shard`` says.
        gap: how much less others might take, as a part.
        took: the CPU seconds that it took to find.
    """

    seconds: float
    bytes: float
    said: float = 0.0
    gap: float = 0.0
    took: float = 0.0

    @property
    def fits(self) -> bool:
        """Return whether a device has this memory."""
        return self.bytes <= 32e9


def simulated(
    module: ModuleOp, model: CostModel, solution: VariableValues | None = None, took: float = 0.0
) -> Plan:
    """Return the simulation of a plan."""
    found = simulate_function(step_of(module), model)
    if solution is None:
        return Plan(found.time, found.peak)
    gap = 1 - solution.bound / solution.sum if solution.ended else 0.0
    return Plan(found.time, found.peak, solution.sum, gap, took)


def attempt(what: str, make: Callable[[], Plan] | None) -> Plan | str:
    """Return a plan, or why there is none."""
    if make is None:
        return "-"
    start = time.monotonic()
    try:
        found = make()
        text = f"{found.seconds:.4f} s, {found.bytes / 1e9:.1f} GB"
    except collir.DiagnosticError as error:
        found = "-"
        text = str(error).splitlines()[0][:200]
    except Exception as error:  # what is found is a bug, and the others are wanted all the same
        found = "bug"
        text = f"{type(error).__name__}: {error}"[:300]
    print(f"  {what}: {text} ({time.monotonic() - start:.1f} s)", file=sys.stderr, flush=True)
    return found


def cell(plan: Plan | str, best: Plan | str) -> str:
    """Return a plan as a multiple of the best."""
    if isinstance(plan, str):
        return plan
    mark = "" if plan.fits else "!"
    return f"{plan.seconds / best.seconds:.2f}{mark}" if isinstance(best, Plan) else f"?{mark}"
