"""The table of passes by name; a pass is imported when asked for, so that tools start fast."""

from collections.abc import Callable

from xdsl.passes import ModulePass


def _accumulate() -> type[ModulePass]:
    from collir.passes.accumulate import AccumulatePass

    return AccumulatePass


def _bucket() -> type[ModulePass]:
    from collir.passes.bucket import BucketPass

    return BucketPass


def _canonicalize() -> type[ModulePass]:
    from collir.passes.canonicalize import CanonicalizePass

    return CanonicalizePass


def _decompose() -> type[ModulePass]:
    from collir.passes.decompose import DecomposePass

    return DecomposePass


def _differentiate() -> type[ModulePass]:
    from collir.passes.differentiate import DifferentiatePass

    return DifferentiatePass


def _expand() -> type[ModulePass]:
    from collir.passes.expand import ExpandPass

    return ExpandPass


def _fuse() -> type[ModulePass]:
    from collir.passes.fuse import FusePass

    return FusePass


def _inline() -> type[ModulePass]:
    from collir.passes.inline import InlinePass

    return InlinePass


def _instantiate() -> type[ModulePass]:
    from collir.passes.instantiate import InstantiatePass

    return InstantiatePass


def _overlap() -> type[ModulePass]:
    from collir.passes.overlap import OverlapPass

    return OverlapPass


def _place() -> type[ModulePass]:
    from collir.passes.place import PlacePass

    return PlacePass


def _prefetch() -> type[ModulePass]:
    from collir.passes.prefetch import PrefetchPass

    return PrefetchPass


def _propagate() -> type[ModulePass]:
    from collir.passes.propagate import PropagatePass

    return PropagatePass


def _reorder_by_hierarchy() -> type[ModulePass]:
    from collir.passes.reorder_by_hierarchy import ReorderByHierarchyPass

    return ReorderByHierarchyPass


def _ring_attention() -> type[ModulePass]:
    from collir.passes.ring_attention import RingAttentionPass

    return RingAttentionPass


def _rotate() -> type[ModulePass]:
    from collir.passes.rotate import RotatePass

    return RotatePass


def _split_backward() -> type[ModulePass]:
    from collir.passes.split_backward import SplitBackwardPass

    return SplitBackwardPass


def _split_level() -> type[ModulePass]:
    from collir.passes.split_level import SplitLevelPass

    return SplitLevelPass


def _unroll() -> type[ModulePass]:
    from collir.passes.unroll import UnrollPass

    return UnrollPass


def _validate() -> type[ModulePass]:
    from collir.passes.validate import ValidatePass

    return ValidatePass


PASSES: dict[str, Callable[[], type[ModulePass]]] = {
    "accumulate": _accumulate,
    "bucket": _bucket,
    "canonicalize": _canonicalize,
    "decompose": _decompose,
    "differentiate": _differentiate,
    "expand": _expand,
    "fuse": _fuse,
    "inline": _inline,
    "instantiate": _instantiate,
    "overlap": _overlap,
    "place": _place,
    "prefetch": _prefetch,
    "propagate": _propagate,
    "reorder-by-hierarchy": _reorder_by_hierarchy,
    "ring-attention": _ring_attention,
    "rotate": _rotate,
    "split-backward": _split_backward,
    "split-level": _split_level,
    "unroll": _unroll,
    "validate": _validate,
}
"""Functions that import the passes, by the names of the passes."""
