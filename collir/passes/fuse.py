"""Fuse steps that follow each other into fewer, or cheaper ones.

What: a chain of steps, whose intermediate values nothing else uses, becomes the cheapest program
from the first layout to the last, or vanishes if these are the same. The ``add`` of the results of
two equal steps becomes one step on the sum.

Why: where layers meet, one often undoes what the layer before it did: it cuts what was just
gathered, or gathers what was just reduced and scattered. A collective changes only the layout of a
value, so all programs between the same two types do the same.

    %1 = all_gather %x over data dim 0
    %2 = slice %1 over data dim 0            // is %x

    %1 = all_reduce %x over data
    %2 = slice %1 over data dim 0            // is reduce_scatter %x over data dim 0

    %1 = reduce_scatter %x over data dim 0
    %2 = all_gather %1 over data dim 0       // is all_reduce %x over data, where that is cheaper

    %1 = all_reduce %x over data
    %2 = all_reduce %y over data
    %3 = add %1, %2                          // is the all_reduce of add %x, %y

    // behind a loop, of what an iteration changes last
    %y, %ds = repeat 24 carry(%h = %x) slice(%w = %ws) {
      ...
      %d = all_reduce %p over data           // is reduce_scatter %p over data dim 0
      yield %g, %d
    }
    %s = slice %ds over data dim 1           // is %ds

When not: steps that say how they run (``using``), or that they need not be waited for (``async``);
values that are used twice, or returned. On meshes that are not placed, only chains that lead back
to their first layout, and sums. A sum stays where adding more bytes takes longer than the step that
is saved.

Cost: never more than before under the model; at the same cost, fewer steps. A function with
``async`` steps that would take longer in all stays as it is, and a remark says so. Sums in another
order may round differently.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.passes.locations import keep_locations
from collir.synthesis.options import SendingOptions
from collir.synthesis.programs.fusion import fuse
from collir.synthesis.programs.search_options import SearchOptions
from collir.synthesis.programs.sinking import sink_into_loops
from collir.synthesis.propagation.propagate import propagate


@dataclass(frozen=True)
class FusePass(SendingOptions, ModulePass):
    """Fuse steps that follow each other into fewer, or cheaper ones."""

    name = "fuse"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        propagate(op)
        options = SearchOptions(self.cost_model(), seconds=self.seconds, without=self.axes_of(op))
        sink_into_loops(op, options)
        fuse(op, options, keep_locations())
