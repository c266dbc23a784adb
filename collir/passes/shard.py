"""Choose the layouts of all values of ``auto`` functions so that they take the least time.

What: types that name sub-axes are kept. All other layouts, even of inputs, weights and states, are
chosen by an exact search. For every step it also chooses the sub-axes over which the step's indices
are sharded. Calls and gradients become steps, and the word ``auto`` goes. Functions that only these
functions call go with the calls. A remark says how long the program takes, and that no other
layouts are faster.

Why: nobody has to know which parallelism fits a model and a machine. Data and tensor parallelism
and their mixtures follow from the index structures of operations and the costs of collectives; none
is written down.

    func @f(%x: f32[8192, 1024], %v: f32[1024, 4096], %w: f32[4096, 1024])
        -> f32[8192, 1024] on @m auto {
      %0 = einsum "b i, i j -> b j" %x, %v
      %1 = einsum "b j, j k -> b k" %0, %w
      return %1
    }
becomes
    func @f(%x: f32[8192@data, 1024], %v: f32[1024, 4096], %w: f32[4096, 1024])
        -> f32[8192@data, 1024] on @m {
      %0 = einsum "b i, i j -> b j" %x, %v
      %1 = einsum "b j, j k -> b k" %0, %w
      return %1
    }

A dimension may be sharded over any sub-axes by which it divides, in the order of the mesh. A value
has one layout, and is brought once to each other layout in which steps need it. A collective over
several levels costs as a single step or as a step for each level, whichever is cheaper;
``decompose`` finds this program or a better one. A step costs its simulated time. A composite
operation such as ``softmax`` becomes the steps of ``expand`` where a dimension that it needs whole
is sharded. Equal layers, in a ``repeat`` or written one after the other, are sharded alike. Bounds
of all layouts come from messages between the costs of neighbouring steps
(docs/decisions/0077-shard.md); where they do not meet the best layouts, the search branches, and
ends at its limit with a gap.

Layouts fit into the memory of a device, as the machine or the option ``memory`` gives it: weights
are divided where they have to be. The gap of a search with a limit of memory stays open more often.

``method=amounts`` looks for the layouts that send the fewest bytes, without any rate of the
machine: all steps are divided over as many axes as they can be, and a step costs the bytes that a
device receives. ``method=symbolic`` finds layouts that send few in linear time, and proves nothing
(docs/decisions/0078-symbolic-sharding.md).

When not: if types name the parallelism already, use ``propagate``. A step takes partial operands
only where this needs no decision.

Cost: a program costs the sum of its steps. In ``-t simulate``, steps that overlap take less.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.synthesis.options import ParallelOptions
from collir.synthesis.searching import search_workers
from collir.synthesis.sharding.layouts import ShardOptions
from collir.synthesis.sharding.shard import shard
from collir.synthesis.sharding.symbolic.shard import shard_by_amounts


@dataclass(frozen=True)
class ShardPass(ParallelOptions, ModulePass):
    """Choose the layouts of all values of ``auto`` functions so that they take the least time."""

    name = "shard"

    memory: float | int = 0.0
    """The GB of memory that a function may need on a device; 0: the memory of the machine's
    devices."""
    explain: bool = False
    """Say where the time goes, which operation each collective is for, and what the best other
    layouts would cost."""

    method: str = "exact"
    """The price by which layouts are chosen: ``exact``, the time on the machine; ``amounts``, the
    bytes sent, for which no rate of the machine counts; or ``symbolic``, the bytes sent, searched
    in linear time."""

    def __post_init__(self) -> None:
        if self.method not in ("exact", "amounts", "symbolic"):
            raise ValueError("method is exact, amounts or symbolic")
        if self.explain and self.method != "exact":
            raise ValueError("explain says what method=exact finds")
        if self.memory < 0:
            raise ValueError("memory is 0 (what the machine says) or more GB")
        super().__post_init__()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        memory = float(self.memory) * 1e9 or None
        options = ShardOptions(self.cost_model(), self.seconds, memory, self.explain)
        with search_workers(self.workers):
            if self.method == "exact":
                shard(op, options)
            else:
                shard_by_amounts(op, options, exact=self.method == "amounts")
