"""Put the steps of functions in the place of calls.

What: every ``call``, even inside a loop, becomes the steps of the function that it calls. Functions
that are called stay as they are. Where a call gives values to parameters, the steps have these
sizes, with formulas of the caller's parameters.

Why: the steps around a call and the steps of the function are then one program, which other passes
can rewrite as a whole, and for the sizes of the call.

    %y = call @half(%x)
becomes, if the body of ``@half`` is ``%y = scale %x by 0.5`` and ``return %y``,
    %y = scale %x by 0.5

When not: there is no limit; a function that is called often makes its callers long.

Cost: the same. A call costs what the steps of the function cost, and targets print these steps.
"""

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.transforms.inlining import inline_calls


class InlinePass(ModulePass):
    """Put the steps of functions in the place of calls."""

    name = "inline"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        inline_calls(op)
