"""The table of passes by name; a pass is imported when asked for, so that tools start fast."""

from collections.abc import Callable

from xdsl.passes import ModulePass

from collir.ir.lazy import Lazy

PASSES: dict[str, Callable[[], type[ModulePass]]] = {
    "accumulate": Lazy("collir.passes.accumulate", "AccumulatePass"),
    "bucket": Lazy("collir.passes.bucket", "BucketPass"),
    "canonicalize": Lazy("collir.passes.canonicalize", "CanonicalizePass"),
    "decompose": Lazy("collir.passes.decompose", "DecomposePass"),
    "differentiate": Lazy("collir.passes.differentiate", "DifferentiatePass"),
    "expand": Lazy("collir.passes.expand", "ExpandPass"),
    "fuse": Lazy("collir.passes.fuse", "FusePass"),
    "inline": Lazy("collir.passes.inline", "InlinePass"),
    "instantiate": Lazy("collir.passes.instantiate", "InstantiatePass"),
    "localize": Lazy("collir.passes.localize", "LocalizePass"),
    "overlap": Lazy("collir.passes.overlap", "OverlapPass"),
    "microbatch": Lazy("collir.passes.microbatch", "MicrobatchPass"),
    "pipeline": Lazy("collir.passes.pipeline", "PipelinePass"),
    "place": Lazy("collir.passes.place", "PlacePass"),
    "prefetch": Lazy("collir.passes.prefetch", "PrefetchPass"),
    "propagate": Lazy("collir.passes.propagate", "PropagatePass"),
    "reorder-by-hierarchy": Lazy("collir.passes.reorder_by_hierarchy", "ReorderByHierarchyPass"),
    "ring-attention": Lazy("collir.passes.ring_attention", "RingAttentionPass"),
    "rotate": Lazy("collir.passes.rotate", "RotatePass"),
    "shard": Lazy("collir.passes.shard", "ShardPass"),
    "split-backward": Lazy("collir.passes.split_backward", "SplitBackwardPass"),
    "split-level": Lazy("collir.passes.split_level", "SplitLevelPass"),
    "sum-in-place": Lazy("collir.passes.sum_in_place", "SumInPlacePass"),
    "unshard": Lazy("collir.passes.unshard", "UnshardPass"),
    "unroll": Lazy("collir.passes.unroll", "UnrollPass"),
    "validate": Lazy("collir.passes.validate", "ValidatePass"),
}
"""Functions that import the passes, by the names of the passes."""
