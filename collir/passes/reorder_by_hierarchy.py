"""Send values while they are small, and fewest bytes through the slowest ports.

What: steps that change a layout (collectives, ``slice``, ``keep_root``, ``mask``) and local ones
(``cast``, ``scale``, ``transpose``, ``split``, ``merge``, ``reshape``, ``pad``, ``add``,
``concat``) change places where they may, so that the function is cheapest. Steps that change a
layout and meet become the cheapest program from the first layout to the last. The sub-axes of a
step whose order does not matter get the cheapest one.

Why: programs cast values before they gather them, and compute with them before they cut them; and a
reduction is often a few steps away from the cut that would make it a reduce_scatter. All orders of
the levels send the same bytes in total, but not on each level.

    %1 = cast %x to f32                      // %x is bf16[64@data]
    %2 = all_gather %1 over data dim 0
becomes
    %1 = all_gather %x over data dim 0       // of half the bytes
    %2 = cast %1 to f32

    %1 = all_reduce %x over data
    %2 = scale %1 by 0.5
    %3 = slice %2 over data dim 0
becomes
    %1 = reduce_scatter %x over data dim 0   // or cheaper steps to the same layout
    %2 = scale %1 by 0.5

    %1 = all_gather %x over data dim 0
    %2 = all_gather %y over data dim 0
    %3 = add %1, %2
becomes
    %1 = add %x, %y
    %2 = all_gather %1 over data dim 0

When not: values that are used twice, or returned; steps that say how they run (``using``), or that
they need not be waited for (``async``); a ``redistribute``; meshes that are not placed, and
functions that have no cost. No cast passes a sum, average or product, as it would change the
rounding or wrapping. No cast to an integer, and no scale or add of integers, passes a maximum or
minimum. No scale of f16 moves ahead of a sum, whose terms might then overflow or underflow; and
none that makes values smaller moves behind a sum.

Cost: never more than before, neither for collectives alone nor with local steps, which take time on
devices that say how fast their memory is; a function that would cost more stays as it is. Memory
may grow, for example where values are added before they are reduced. Sums of floats that are scaled
or added in another place may round differently; values that are only moved stay exact.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.passes.locations import keep_locations
from collir.synthesis.options import SendingOptions
from collir.synthesis.programs.search_options import SearchOptions
from collir.synthesis.propagation.propagate import propagate
from collir.synthesis.reorder.reorder import reorder


@dataclass(frozen=True)
class ReorderByHierarchyPass(SendingOptions, ModulePass):
    """Send values while they are small, and fewest bytes through the slowest ports."""

    name = "reorder-by-hierarchy"

    limit: int = 60
    """Seconds for all searches on a mesh together; a single search gets a tenth at most; 0: no
    limit."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        propagate(op)
        options = SearchOptions(self.cost_model(), seconds=self.seconds, without=self.axes_of(op))
        reorder(op, options, keep_locations())
