"""The parts that the package adds to collir and xDSL, each imported when it is needed."""

from xdsl.ir import Dialect
from xdsl.passes import ModulePass
from xdsl.universe import Universe
from xdsl.utils.target import Target

from collir.passes.pipelines import PIPELINES, PassPipeline, PipelineEntry


def _split_all_reduce() -> type[ModulePass]:
    from collir_split.split_all_reduce import SplitAllReducePass

    return SplitAllReducePass


def _extra() -> Dialect:
    from collir_split.extra import Extra

    return Extra


def _rooted() -> Dialect:
    from collir_split.rooted import Rooted

    return Rooted


def _count() -> type[Target]:
    from collir_split.count import CountTarget

    return CountTarget


UNIVERSE = Universe(
    all_dialects={"extra": _extra, "rooted": _rooted},
    all_passes={"split-all-reduce": _split_all_reduce},
    all_targets={"count": _count},
)

PIPELINES["split"] = PassPipeline(
    "split",
    "Split large all_reduces, and schedule the parts.",
    "For functions whose steps behind an all_reduce work on blocks.",
    (
        PipelineEntry("split-all-reduce", "fuse sees the two steps"),
        PipelineEntry("fuse", "what is cut behind a gather is not gathered"),
        PipelineEntry("overlap", "a schedule is for the steps that there are in the end"),
    ),
)
