"""The rows of the steps that local functions start and compute: the rows of the tables, as written.

A collective takes blocks, so it has no dimensions; its groups have a root where a global type has a
place. A computation runs on one device, so it has no sub-axes, and its result has the type of a
buffer.
"""

from dataclasses import replace

from collir.dialects.local import MASK
from collir.layout.steps import OVER, USING, Argument, ArgumentKind, Parameter, StepKind
from collir.layout.types import DistType, with_sizes

NUMBERS = ("sender", "receiver", "distance", "open", "async")
"""Properties of some collectives, written as in other functions."""


def start_kind(kind: StepKind, has_peers: bool = False) -> StepKind:
    """Return the row of a collective, with the properties of its start as parameters.

    Args:
        has_peers: whether it is a send that says for each rank to whom it sends.
    """
    kept = [x for x in kind.parameters if x in (OVER, USING) or x.name in NUMBERS]
    if has_peers:
        kept = [x for x in kept if x.name not in ("sender", "receiver")]
    if OVER not in kind.parameters:  # of a permute
        kept += [
            Parameter("from", "before", ArgumentKind.TYPE),
            Parameter("to", "after", ArgumentKind.TYPE),
        ]
    elif not kind.pairs:
        for keyword, state in (("from", kind.before), ("to", kind.after)):
            if state == "root":
                kept.append(Parameter(keyword, "root", ArgumentKind.COORDINATE, hint=True))
    return replace(kind, parameters=tuple(kept))


def kernel_kind(kind: StepKind) -> StepKind | None:
    """Return the row of a computation, without what depends on a mesh; None if it is none."""
    of_mesh = (ArgumentKind.AXES, ArgumentKind.PLACE)
    if not kind.local or (kind.name != MASK and any(x.kind in of_mesh for x in kind.parameters)):
        return None
    left_out = (*of_mesh, ArgumentKind.TYPE)
    return replace(kind, parameters=tuple(x for x in kind.parameters if x.kind not in left_out))


def without_formulas(argument: Argument) -> Argument:
    """Return an argument whose sizes are plain numbers: a local function has no parameters."""
    if not isinstance(argument, DistType):
        return argument
    return with_sizes(argument, map(int, argument.shape))
