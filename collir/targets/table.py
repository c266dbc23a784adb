"""All targets of collir by name. Each is imported when it is asked for, so tools start fast."""

from collections.abc import Callable

from xdsl.utils.target import Target


def _coll() -> type[Target]:
    from collir.targets.code.coll import CollTarget

    return CollTarget


def _mpi() -> type[Target]:
    from collir.targets.code.mpi import MpiTarget

    return MpiTarget


TARGETS: dict[str, Callable[[], type[Target]]] = {"coll": _coll, "mpi": _mpi}
"""Name -> a function that imports the target."""
