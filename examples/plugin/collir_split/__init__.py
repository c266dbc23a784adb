"""What the package adds to collopt and xdsl-opt: a pass, imported when it is asked for."""

from xdsl.passes import ModulePass
from xdsl.universe import Universe


def _split_all_reduce() -> type[ModulePass]:
    from collir_split.split_all_reduce import SplitAllReducePass

    return SplitAllReducePass


UNIVERSE = Universe(all_passes={"split-all-reduce": _split_all_reduce})
