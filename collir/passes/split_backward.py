"""Split the reverse of loops into the gradients that flow on and the gradients of weights.

What: a ``repeat`` becomes two. The first computes its carries. The second computes the other
results, from what the first stacks. Carries that iterations only add to, such as the gradients of
weights that all layers share, are carries of the second.

Why: the gradient of a layer's input is needed by the layer before it, and the gradients of weights
are needed at the end of the step. A pipeline that has both apart fills its bubbles with the latter
(B and W of zero-bubble schedules, Qi et al., ICLR 2024).

    %d_x, %d_w = repeat 24 carry(%g = %d_y) slice(%w = %ws, %h = %hs) reverse {
      %0 = einsum "b j, i j -> b i" %g, %w
      %1 = einsum "b i, b j -> i j" %h, %g
      yield %0, %1
    }
becomes
    %d_x, %gs = repeat 24 carry(%g = %d_y) slice(%w = %ws) reverse {
      %0 = einsum "b j, i j -> b i" %g, %w
      yield %0, %g
    }
    %d_w = repeat 24 slice(%g = %gs, %h = %hs) reverse {
      %1 = einsum "b i, b j -> i j" %h, %g
      yield %1
    }

By default, loops in ``reverse`` are split, which is what ``differentiate`` makes of a ``repeat``;
``loop=d_x`` names a result of another one. Loops inside loops are split first, and their second
parts belong to the second part of the loop around them.

As few bytes are stacked as possible: maps and sums for the second loop stay in the first if their
results are smaller. Nothing but views and steps without operands is done in both loops; whatever
the first computes, gathers or recomputes for the second is stacked.

When not: a loop without carries or products for one of the parts, and one with ``recompute``, whose
iterations are computed again as a whole. A remark says so.

Cost: the same operations, and the same time but for launches. No step of one loop runs beside a
step of the other. Stacked values are kept until the second loop ends: the cotangents of products
with weights, and recomputed activations that these products take.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.dialects.machine import meshes_remembered
from collir.dialects.nested import RepeatOp
from collir.ir.calls import calls_in
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.loops import repeats_in
from collir.ir.names import unique_names
from collir.ir.remarks import remark
from collir.layout import LayoutError
from collir.transforms.loops.fission import Fission


@dataclass(frozen=True)
class SplitBackwardPass(ModulePass):
    """Split the reverse of loops into the gradients that flow on and the gradients of weights."""

    name = "split-backward"

    loop: tuple[str, ...] = ()
    """The loops to split, by the names of their results; by default all loops in `reverse`."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        with meshes_remembered():
            if self.loop:
                loops = self._named(op)
            else:
                loops = [loop for loop in repeats_in(op) if loop.is_reverse]
                self._remark_on_gradients(op, loops)
            for loop in reversed(loops):
                self._split(loop)

    def _named(self, module: ModuleOp) -> list[RepeatOp]:
        """Return the loops with results of the names that the option has."""
        names = {name.strip().removeprefix("%") for word in self.loop for name in word.split(",")}
        loops: list[RepeatOp] = []
        known: dict[str, None] = {}
        for function in functions_of(module):
            of_values = unique_names(function)
            for loop in repeats_in(function):
                results = [of_values[result] for result in loop.results]
                known |= dict.fromkeys(results)
                loops += [loop] if names.intersection(results) else []
        if missing := sorted(names - known.keys()):
            listed = ", ".join(f"%{name}" for name in known)
            there = f"the results of loops are {listed}" if known else "there are no loops"
            raise DiagnosticError(Diagnostic(f"no loop has a result %{missing[0]}: {there}"))
        return loops

    def _remark_on_gradients(self, module: ModuleOp, loops: list[RepeatOp]) -> None:
        """Remark that gradients have no loops yet, if there are no loops to split."""
        functions = [] if loops else functions_of(module)
        for call in (call for function in functions for call in calls_in(function)):
            if call.sought:
                text = "finds no loops of this gradient: put -p differentiate in front of it"
                remark(call, f"{self.name} {text}")

    def _split(self, loop: RepeatOp) -> None:
        """Split a loop, or remark why it stays as it is."""
        parts = Fission.of(loop)
        reason = parts.why_not()
        if reason is None:
            try:
                _ = parts.cut()
            except LayoutError as error:
                reason = f"it cannot stack what the second part needs: {error}"
        if reason is not None:
            remark(loop, f"{self.name} keeps this repeat: {reason}")
