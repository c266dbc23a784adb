"""Prove an execution plan of MSCCL++, or say what is wrong with it."""

from collir.algorithms.checking import CheckedAlgorithm
from collir.algorithms.mscclpp.cells import ChunkSize, chunk_sizes
from collir.algorithms.mscclpp.forms import malformed
from collir.algorithms.mscclpp.limits import exceeded
from collir.algorithms.mscclpp.machine import MachineRun
from collir.algorithms.mscclpp.plan import ExecutionPlan

MOST_AGENTS = 5000
"""The most thread blocks, ranks and port channels: each has a clock of all."""

MOST_CELLS = 2_000_000
"""The most cells that all operations of a launch use."""


def check_plan(plan: ExecutionPlan) -> CheckedAlgorithm:
    """Return what is wrong with a plan, for its collective.

    It is run for each size of chunks that matters, twice, as a launch may disturb the next one; and
    three times where launches take turns with two scratch buffers.
    """
    checked = CheckedAlgorithm()
    for problem in malformed(plan):
        checked.add("form", *problem)
    if checked.is_right:
        _run(plan, checked)
    for problem in exceeded(plan):
        checked.add("limit", *problem)
    return checked


def _run(plan: ExecutionPlan, found: CheckedAlgorithm) -> None:
    """Run a plan as often as it takes, and note what is wrong."""
    if reason := why_not_run(plan):
        found.add("limit", f"this is not checked: {reason}")
        return
    signals = 0
    for size in chunk_sizes(plan):
        run = MachineRun(plan, size, found)
        for _ in range(3 if plan.double_scratch else 2):
            right = run.run_launch()
            signals = signals or found.messages
            if not right:
                return
    found.messages = signals


def why_not_run(plan: ExecutionPlan) -> str | None:
    """Return why a plan is not run here: it is too large, or its parts are too many; or None."""
    try:
        sizes = chunk_sizes(plan)
    except ValueError as error:
        return str(error)
    return next(filter(None, (_too_large(plan, size) for size in sizes)), None)


def _too_large(plan: ExecutionPlan, size: ChunkSize) -> str | None:
    """Return why a plan is too large to be run here, or None."""
    agents = len(plan.ranks) + sum(len(x.blocks) + len(x.peers.get("port", ())) for x in plan.ranks)
    if agents > MOST_AGENTS:
        return f"it has {agents:,} thread blocks, ranks and port channels ({MOST_AGENTS:,} at most)"
    cells = sum(size.cells * n for x in plan.ranks for n in x.sizes.values())
    for rank in plan.ranks:
        for block in rank.blocks:
            for operation in block.operations:
                turns = size.iterations(operation) if operation.body else 1
                cells += turns * sum(
                    size.cells * part.size * len(part.ranks)
                    for user in operation.flat for part in (*user.sources, *user.targets)
                )  # fmt: skip
                if operation.body and turns * len(operation.body) > MOST_CELLS:
                    cells = MOST_CELLS + 1
    if cells > MOST_CELLS:
        return f"its operations use more than {MOST_CELLS:,} parts of chunks"
    return None
