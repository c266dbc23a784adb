"""The targets of collir by name, imported when they are asked for, so that tools start fast."""

from collections.abc import Callable

from xdsl.utils.target import Target

from collir.ir.lazy import Lazy

TARGETS: dict[str, Callable[[], type[Target]]] = {
    "chakra": Lazy("collir.targets.traces.chakra", "ChakraTarget"),
    "coll": Lazy("collir.targets.code.coll", "CollTarget"),
    "cost": Lazy("collir.targets.reports.cost", "CostTarget"),
    "cost-json": Lazy("collir.targets.reports.cost", "CostJsonTarget"),
    "cost-symbolic": Lazy("collir.targets.reports.cost_symbolic", "CostSymbolicTarget"),
    "crossover": Lazy("collir.targets.reports.crossover", "CrossoverTarget"),
    "crossover-plane": Lazy("collir.targets.reports.crossover_plane", "CrossoverPlaneTarget"),
    "device-mesh": Lazy("collir.targets.launch.device_mesh", "DeviceMeshTarget"),
    "explain": Lazy("collir.targets.reports.explain", "ExplainTarget"),
    "gantt": Lazy("collir.targets.reports.gantt", "GanttTarget"),
    "html": Lazy("collir.targets.reports.page.target", "HtmlTarget"),
    "hostfile": Lazy("collir.targets.launch.hostfile", "HostfileTarget"),
    "jax": Lazy("collir.targets.code.jax", "JaxTarget"),
    "jax-mesh": Lazy("collir.targets.launch.jax_mesh", "JaxMeshTarget"),
    "local": Lazy("collir.targets.code.local", "LocalTarget"),
    "mpi": Lazy("collir.targets.code.mpi", "MpiTarget"),
    "mpi4py": Lazy("collir.targets.code.mpi4py", "Mpi4pyTarget"),
    "nccl": Lazy("collir.targets.code.nccl", "NcclTarget"),
    "placements": Lazy("collir.targets.reports.placements", "PlacementsTarget"),
    "placements-json": Lazy("collir.targets.reports.placements", "PlacementsJsonTarget"),
    "rankfile": Lazy("collir.targets.launch.rankfile", "RankfileTarget"),
    "simulate": Lazy("collir.targets.reports.simulate", "SimulateTarget"),
    "simulate-json": Lazy("collir.targets.reports.simulate", "SimulateJsonTarget"),
    "sizes": Lazy("collir.targets.reports.sizes", "SizesTarget"),
    "sizes-json": Lazy("collir.targets.reports.sizes", "SizesJsonTarget"),
    "torch": Lazy("collir.targets.code.torch", "TorchTarget"),
    "trace": Lazy("collir.targets.reports.trace", "TraceTarget"),
}
"""The functions that import the targets, by the names of the targets."""

REMEMBERING = {"html"}
"""The targets that show what each pass changes."""
