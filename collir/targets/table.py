"""All targets of collir by name. Each is imported when it is asked for, so tools start fast."""

from collections.abc import Callable

from xdsl.utils.target import Target


def _coll() -> type[Target]:
    from collir.targets.code.coll import CollTarget

    return CollTarget


def _mpi() -> type[Target]:
    from collir.targets.code.mpi import MpiTarget

    return MpiTarget


def _mpi4py() -> type[Target]:
    from collir.targets.code.mpi4py import Mpi4pyTarget

    return Mpi4pyTarget


def _nccl() -> type[Target]:
    from collir.targets.code.nccl import NcclTarget

    return NcclTarget


def _torch() -> type[Target]:
    from collir.targets.code.torch import TorchTarget

    return TorchTarget


def _cost() -> type[Target]:
    from collir.targets.reports.cost import CostTarget

    return CostTarget


def _cost_json() -> type[Target]:
    from collir.targets.reports.cost import CostJsonTarget

    return CostJsonTarget


def _crossover() -> type[Target]:
    from collir.targets.reports.crossover import CrossoverTarget

    return CrossoverTarget


TARGETS: dict[str, Callable[[], type[Target]]] = {
    "coll": _coll,
    "cost": _cost,
    "cost-json": _cost_json,
    "crossover": _crossover,
    "mpi": _mpi,
    "mpi4py": _mpi4py,
    "nccl": _nccl,
    "torch": _torch,
}
"""Name -> a function that imports the target."""
