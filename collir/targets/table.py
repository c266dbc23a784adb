"""The targets of collir by name, imported when they are asked for, so that tools start fast."""

from collections.abc import Callable
from importlib import import_module

from xdsl.utils.target import Target


def _in(module: str, name: str) -> Callable[[], type[Target]]:
    """Return a function that imports a target."""
    return lambda: getattr(import_module(f"collir.targets.{module}"), name)


TARGETS: dict[str, Callable[[], type[Target]]] = {
    "coll": _in("code.coll", "CollTarget"),
    "cost": _in("reports.cost", "CostTarget"),
    "cost-json": _in("reports.cost", "CostJsonTarget"),
    "crossover": _in("reports.crossover", "CrossoverTarget"),
    "device-mesh": _in("launch.device_mesh", "DeviceMeshTarget"),
    "explain": _in("reports.explain", "ExplainTarget"),
    "gantt": _in("reports.gantt", "GanttTarget"),
    "hostfile": _in("launch.hostfile", "HostfileTarget"),
    "jax": _in("code.jax", "JaxTarget"),
    "jax-mesh": _in("launch.jax_mesh", "JaxMeshTarget"),
    "mpi": _in("code.mpi", "MpiTarget"),
    "mpi4py": _in("code.mpi4py", "Mpi4pyTarget"),
    "nccl": _in("code.nccl", "NcclTarget"),
    "placements": _in("reports.placements", "PlacementsTarget"),
    "placements-json": _in("reports.placements", "PlacementsJsonTarget"),
    "rankfile": _in("launch.rankfile", "RankfileTarget"),
    "simulate": _in("reports.simulate", "SimulateTarget"),
    "simulate-json": _in("reports.simulate", "SimulateJsonTarget"),
    "sizes": _in("reports.sizes", "SizesTarget"),
    "sizes-json": _in("reports.sizes", "SizesJsonTarget"),
    "strategies": _in("reports.strategies", "StrategiesTarget"),
    "strategies-json": _in("reports.strategies", "StrategiesJsonTarget"),
    "torch": _in("code.torch", "TorchTarget"),
    "trace": _in("reports.trace", "TraceTarget"),
}
"""The functions that import the targets, by the names of the targets."""
