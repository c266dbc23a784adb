"""All passes of collir by name. Each is imported when it is asked for, so tools start fast."""

from collections.abc import Callable

from xdsl.passes import ModulePass


def _canonicalize() -> type[ModulePass]:
    from collir.passes.canonicalize import CanonicalizePass

    return CanonicalizePass


def _decompose() -> type[ModulePass]:
    from collir.passes.decompose import DecomposePass

    return DecomposePass


PASSES: dict[str, Callable[[], type[ModulePass]]] = {
    "canonicalize": _canonicalize,
    "decompose": _decompose,
}
"""Name -> a function that imports the pass."""
