"""Lower every function to what each rank executes: buffers, copies, starts and waits.

What: a function becomes the program of a rank, written once for all ranks. Its values lie in
buffers with local shapes; collectives have a start and a wait; blocks that do not lie one behind
the other are copied into a buffer before they are sent, or out of one behind. What differs by rank
depends on its coordinates, or stands in an ``at``.

Why: everything that a rank has to decide is decided once, and is there to be read, run and checked.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.localize.localize import localize
from collir.localize.writer import GroupRules


@dataclass(frozen=True)
class LocalizePass(ModulePass):
    """Lower every function to what each rank executes: buffers, copies, starts and waits."""

    name = "localize"

    ascending: bool = False
    """Whether groups count their ranks in ascending order, as those of torch do: blocks are copied
    into that order."""
    padded: bool = False
    """Whether blocks that differ in size are padded to the largest, but for an all_to_all, as for
    torch."""

    sized: bool = False
    """Whether sizes that are formulas of parameters stay so, and a rank's program is one for values
    of any size. All operations have to be well typed for all values, and none is of a model."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        localize(op, GroupRules(self.ascending, self.padded), self.sized)
