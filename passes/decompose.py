"""Decompose an all_reduce over several levels into steps that each stay on one level.

What: an ``all_reduce`` over sub-axes of more than one hardware level becomes a sequence of
collectives, one level at a time. Sub-axes of one level stay together in one step.

Why: the inner links of a machine are faster than the outer ones. Reducing inside first leaves less
to send, or fewer devices that send, through the outer ports.

Strategies (levels innermost last):

- ``rs-ar-ag``: reduce_scatter from the innermost level outwards, all_reduce over the outermost,
  all_gather back inwards. Every device sends 1/m of its buffer outside, m the devices inside.
- ``reduce-ar-bcast``: reduce inwards to a root, all_reduce between the roots, broadcast back.
- ``ar-per-level``: an all_reduce per level, from the innermost outwards.
- ``flat``: leave it as one step.

    %r = all_reduce %g over data
becomes, with data = node:4 * gpu:2,
    %0 = reduce_scatter %g over data.gpu dim 0
    %1 = all_reduce %0 over data.node
    %r = all_gather %1 over data.gpu dim 0

``rs-ar-ag`` scatters the first dimension that divides. Where none does, every device views its
local part as one flat dimension, padded with zeros up to a multiple of the group; the padding is
cut off at the end, so the result is exact.

When not: an all_reduce over one level only, or on a mesh that is not placed on levels.

Cost (rings, D bytes per device, n children of the outermost level, a group of all G devices):
through the port of a child, ``rs-ar-ag`` and ``reduce-ar-bcast`` send 2 (1 - 1/n) D, where one flat
ring over all G devices sends 2 (1 - 1/G) D in hardware order, and up to the number of devices below
as often in another; ``ar-per-level`` sends 2 (1 - 1/n) D of every device below. All three have more
steps than a flat all_reduce, so more latencies: small buffers may be faster flat.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.passes.locations import keep_locations
from collir.synthesis.strategies import STRATEGIES, decompose


@dataclass(frozen=True)
class DecomposePass(ModulePass):
    """Decompose an all_reduce over several levels into steps that each stay on one level."""

    name = "decompose"

    strategy: str = "rs-ar-ag"

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy is one of {', '.join(STRATEGIES)}, not '{self.strategy}'")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        decompose(op, self.strategy, keep_locations())
