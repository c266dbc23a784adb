"""Choose the layouts of all values of auto functions."""

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.synthesis.propagation.propagate import propagate


class PropagatePass(ModulePass):
    """Choose the layouts of all values of auto functions."""

    name = "propagate"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        propagate(op)
