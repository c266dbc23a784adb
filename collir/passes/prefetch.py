"""Gather the weights of the next layer while this one computes, where that is worth it.

What: gathers of values that follow from the slices of a ``repeat`` become ``ahead``: for costs and
code, each iteration begins with the gathers of the next one (``rotate`` shows it).

Why: with FSDP, the weights of a layer are gathered in front of the layer, and the first of them
hides behind nothing. One layer ahead, they are gathered beside computations.

    %y = repeat 24 carry(%h = %x) slice(%w = %ws) {     // %ws is f32[24, 8@data]
      %v = all_gather %w over data dim 0
      %s = add %h, %v
      yield %s
    }
becomes
    %y = repeat 24 carry(%h = %x) slice(%w = %ws) {
      %v = all_gather %w over data dim 0 ahead
      %s = add %h, %v
      yield %s
    }

For each loop, the program with its gathers ahead is compared with the one without, both in the
order that ``overlap`` finds, behind ``rotate``. It is taken if the simulated time is shorter and
the peak of memory is within that of a device. If memory is short or no time is saved, the largest
gathers are left out one by one. Whole functions are compared, or their callers. If one runs several
loops that gather, each loop is compared by itself first, equal loops once, and whole functions only
where memory is short. A remark says how much time and memory it takes either way. Put the pass
behind those that change collectives, such as ``decompose``, and in front of ``rotate`` and
``overlap``.

When not: gathers of what carries give, and of what does not change between iterations.

Cost: further buffers for each value that is gathered ahead, and longer code, as for ``rotate``. The
simulated time never increases. The pass takes up to two simulations for each gather in a loop.
Gathers that take less than 0.2 % of the time of their loop stay, if there are several loops.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.cost.options import CostOptions
from collir.dialects.machine import meshes_remembered
from collir.passes.overlap import OverlapPass
from collir.synthesis.propagation.propagate import propagate
from collir.synthesis.scheduling.prefetching import prefetch
from collir.transforms.loops.rotation import rotate_all


@dataclass(frozen=True)
class PrefetchPass(CostOptions, ModulePass):
    """Gather the weights of the next layer while this one computes, where that is worth it."""

    name = "prefetch"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        propagate(op)
        overlap = OverlapPass(self.model, self.algorithm, self.order)

        def schedule(module: ModuleOp) -> None:
            rotate_all(module)
            overlap.apply(ctx, module)

        with meshes_remembered():
            prefetch(op, self.cost_model(), schedule, self.name)
