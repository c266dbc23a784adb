"""The table of passes by name; a pass is imported when asked for, so that tools start fast."""

from collections.abc import Callable
from importlib import import_module

from xdsl.passes import ModulePass


def _in(module: str, name: str) -> Callable[[], type[ModulePass]]:
    """Return a function that imports a pass."""
    return lambda: getattr(import_module(f"collir.passes.{module}"), name)


PASSES: dict[str, Callable[[], type[ModulePass]]] = {
    "accumulate": _in("accumulate", "AccumulatePass"),
    "bucket": _in("bucket", "BucketPass"),
    "canonicalize": _in("canonicalize", "CanonicalizePass"),
    "decompose": _in("decompose", "DecomposePass"),
    "differentiate": _in("differentiate", "DifferentiatePass"),
    "expand": _in("expand", "ExpandPass"),
    "fuse": _in("fuse", "FusePass"),
    "inline": _in("inline", "InlinePass"),
    "instantiate": _in("instantiate", "InstantiatePass"),
    "overlap": _in("overlap", "OverlapPass"),
    "place": _in("place", "PlacePass"),
    "prefetch": _in("prefetch", "PrefetchPass"),
    "propagate": _in("propagate", "PropagatePass"),
    "reorder-by-hierarchy": _in("reorder_by_hierarchy", "ReorderByHierarchyPass"),
    "ring-attention": _in("ring_attention", "RingAttentionPass"),
    "rotate": _in("rotate", "RotatePass"),
    "split-backward": _in("split_backward", "SplitBackwardPass"),
    "split-level": _in("split_level", "SplitLevelPass"),
    "unroll": _in("unroll", "UnrollPass"),
    "validate": _in("validate", "ValidatePass"),
}
"""Functions that import the passes, by the names of the passes."""
