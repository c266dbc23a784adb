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
    """Let groups count their ranks in ascending order, as torch's groups do; blocks are copied into
    that order."""
    padded: bool = False
    """Pad blocks of unequal sizes to the largest, as torch needs it, except in an all_to_all."""

    sized: bool = False
    """Keep sizes that are formulas of parameters, so that one program of a rank serves values of
    any size. Every operation must be well typed for all values, and none may be an operation of a
    model."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        localize(op, GroupRules(self.ascending, self.padded), self.sized)
