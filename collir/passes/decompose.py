"""Decompose collectives and redistributions into the cheapest sequence of steps.

What: every collective on a placed mesh, and every ``redistribute``, becomes the cheapest program of
collectives and local steps under a cost model that leads from its operand's layout to its result's.
Programs are chosen by an exact search; or a fixed strategy is used for every ``all_reduce`` over
several levels.

Why: the inner links of a machine are faster than the outer ones. After a reduction inside, fewer
bytes, or fewer devices, go through the outer ports; and of several copies only one has to be sent.

Fixed strategies (levels innermost last):

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

On the way the first dimension that divides is scattered. Where none divides, every device views
its local part as one flat dimension, padded with zeros up to a multiple of the group; the padding
is cut off at the end, so the result is exact.

With ``chunks``, the search also tries programs on up to that many chunks of the value, so that
levels of the machine work at the same time: collectives are ``async`` then, in the order of a
schedule that shares the ports. The search chooses the number of chunks. With ``up_to``, the search
also looks for the cheapest programs for larger values, up to that factor of the sizes in the types.
They are kept as functions that take the place of the first (``for @f from N``), so that ``-t
'mpi{sized=true}'`` and ``nccl`` choose by size.

With ``top``, the best alternatives of each function are kept as functions behind it, ``@f_2`` and
so on, for ``-t crossover``.

On an axis with weights, which cut into blocks of different sizes, values are scattered along
dimensions as they are: no flat dimension is padded, and no program runs in chunks.

When not: a collective that names its algorithm (``using``), or on a mesh that is not placed on
levels; a fixed strategy, or ``up_to``, with an axis with weights. A collective that no program
beats stays as it is written, and a remark says so. Redistributions in which the order of shards
matters never run in chunks.

Cost: the simulated time never increases. Copies between the steps and inside them are counted, and
a program that makes its function slower, because steps then overlap less, is left out with a
remark. Fixed strategies (rings, D bytes per device, n children of the outermost level, a group of
all G devices): through the port of a child, ``rs-ar-ag`` and ``reduce-ar-bcast`` send 2 (1 - 1/n)
D, where one flat ring over all G devices sends 2 (1 - 1/G) D in hardware order, and up to the
number of devices below as often in another; ``ar-per-level`` sends 2 (1 - 1/n) D of every device
below. All three have more latencies than a flat all_reduce, which may be faster for small buffers.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.ir.functions import functions_of, refuse_nested
from collir.ir.remarks import remark
from collir.passes.locations import keep_locations
from collir.synthesis.options import ParallelOptions
from collir.synthesis.programs.decomposing import decompose_by_search
from collir.synthesis.programs.fixed import STRATEGIES
from collir.synthesis.programs.rewriting import KeptCollective
from collir.synthesis.programs.search_options import SearchOptions
from collir.synthesis.programs.sizes import decompose_for_sizes
from collir.synthesis.programs.strategies import decompose_by_strategy
from collir.synthesis.propagation.propagate import propagate
from collir.synthesis.searching import search_workers


@dataclass(frozen=True)
class DecomposePass(ParallelOptions, ModulePass):
    """Decompose collectives and redistributions into the cheapest sequence of steps."""

    name = "decompose"

    strategy: str = ""
    """A fixed strategy for every all_reduce over several levels; by default the cheapest program is
    searched for."""
    top: int = 1
    """The number of programs to keep."""
    memory: float | int = 0.0
    """The most memory for the operand and the result of a step, as a multiple of the memory for the
    operand and the result of the whole program; 0: no limit."""
    chunks: int = 1
    """The largest number of chunks in which a program may run, so that levels work at the same
    time; the search chooses the number."""
    up_to: int = 1
    """The largest factor by which values may be larger than their types say; the programs that are
    best for larger values are kept as functions that take the function's place."""

    def __post_init__(self) -> None:
        if self.strategy and self.strategy not in STRATEGIES:
            raise ValueError(f"strategy is one of {', '.join(STRATEGIES)}, not '{self.strategy}'")
        if min(self.top, self.chunks, self.up_to) < 1 or self.memory < 0:
            raise ValueError("top, chunks and up_to are 1 or more, memory is 0 or more")
        for name, is_set in [
            ("top", self.top > 1),
            ("memory", self.memory),
            ("chunks", self.chunks > 1),
            ("up_to", self.up_to > 1),
        ]:
            if self.strategy and is_set:
                raise ValueError(f"{name} is of a search: leave out the strategy")
        if self.memory and self.chunks > 1:
            raise ValueError("memory limits what a step on the whole value takes: leave out chunks")
        if self.up_to > 1 and self.top > 1:
            raise ValueError("up_to keeps the best programs for some sizes: leave out top")
        super().__post_init__()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        propagate(op)
        for kept in self._decompose(op):
            remark(kept.op, f"{self.name} keeps {kept.what}: {kept.why}")

    def _decompose(self, op: ModuleOp) -> list[KeptCollective]:
        if self.top > 1 or self.up_to > 1:
            option = "top" if self.top > 1 else "up_to"
            refuse_nested(functions_of(op), f"is not decomposed with {option}")
        if self.strategy:
            return decompose_by_strategy(op, self.strategy, keep_locations())
        options = SearchOptions(
            self.cost_model(),
            self.top,
            self.memory or None,
            self.seconds,
            chunks=self.chunks,
        )
        with search_workers(self.workers):
            if self.up_to > 1:
                return decompose_for_sizes(op, options, self.up_to, keep_locations())
            return decompose_by_search(op, options, keep_locations())
