"""Cut a training step into the stages of a pipeline, with a schedule.

What: a step that adds gradients up over microbatches (or, with `microbatches=`, one that takes the
gradient of a batch) becomes a ``repeat`` with a ``schedule``. Its layers, stacked along the leading
dimension of their weights, are cut into chunks at the places of an axis. The forward pass of a
chunk becomes a function (F), and so does its backward pass: the gradient of its inputs (B), and, if
the schedule has it as a task of its own, that of its weights (W).

Why: stages send the activations of one layer; data parallelism sends all gradients, and tensor
parallelism several activations of every layer. The schedule decides how long places wait, and of
how many microbatches they keep activations.

    %loss, %d_w = repeat 8 carry(%l = %zero, %d = %zeros) slice(%x = %batches) with(%w = %w) {
      %own, %own_w = gradient @loss(%x, %w) wrt %w
      ...
    }
becomes, on an axis `pipe` of two places,
    %w_0 = part %w over pipe at 0 dim 0
    %w_1 = part %w over pipe at 1 dim 0
    %loss, %d_0, %d_1 = repeat 8 carry(...) slice(%x = %batches) with(%w_0 = %w_0, %w_1 = %w_1)
        schedule "1f1b" {
      %h, %kept = call @forward_0(%x, %w_0) task F0
      %h_1 = send %h over pipe from 0 to 1
      %kept_1, %l_1 = call @forward_1(%h_1, %w_1, %l) task F1
      %g, %s_1 = call @backward_1(%kept_1, %w_1, %d_1) task B1
      %g_0 = send %g over pipe from 1 to 0
      %s_0 = call @backward_0(%g_0, %kept, %w_0, %d_0) task B0
      yield %l_1, %s_0, %s_1
    }
    %d_w = assemble %d_0, %d_1 over pipe dim 0

Steps in front of the layers are in the first chunk, and steps behind them in the last. Values that
another chunk needs are sent there. Weights that two places use, such as a tied embedding, have
their home at the first; each place adds up its own gradients, which are added behind the loop.
Stacks of layers become sharded along their leading dimension, so an optimiser stays one step for
all places. With several chunks at each place (`interleaved`, `zb-v`), a stack `%w` is as many
arguments and results, one for each row of chunks: `%w`, `%w_1` and so on. With two copies of the
model (`dualpipe`), the weights of the first are sent to where the second has their chunks, once in
a step, and its gradients are sent back.

With `layers=`, chunks have different numbers of layers: the axis gets weights
(docs/language/meshes.md) in the mesh, so that `f32[12@pipe, ...]` is cut as the layers are. With
several chunks at each place, all rows are cut in the same proportion.

When not: layers in several kinds of loops, a step that needs all layers in each microbatch, or
types that use the axis already; an error says where.

Cost: `-t simulate` shows the bubble, and what each place keeps.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from collir.dialects.machine import meshes_remembered
from collir.ir.calls import calls_in
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position
from collir.ir.functions import functions_of
from collir.ir.pipelines import Pipeline, pipelines_in
from collir.ir.remarks import remark, repeat_remark
from collir.syntax.units import seconds_text
from collir.synthesis.options import TimedOptions
from collir.synthesis.pipelines.balanced import balanced_plan
from collir.synthesis.pipelines.choosing import PlanChoice, best_choice
from collir.synthesis.pipelines.plans import (
    OPTIMAL,
    Wanted,
    axis_of,
    layers_wanted,
    optimal_plans,
    plan_of,
)
from collir.synthesis.propagation.accumulate import reduce_behind_loops
from collir.synthesis.propagation.propagate import propagate
from collir.transforms.for_code import not_called
from collir.transforms.inlining import inline_calls
from collir.transforms.microbatches.splitting import split_batch
from collir.transforms.stages.staged import StagePlan, microbatch_loop, stage


@dataclass(frozen=True)
class PipelinePass(TimedOptions, ModulePass):
    """Cut a training step into the stages of a pipeline, with a schedule."""

    name = "pipeline"

    axis: str = "pipe"
    """The axis of the mesh whose coordinates are the places."""
    microbatches: int = 0
    """The number of microbatches that a batch is cut into; 0: the step has a loop over microbatches
    already."""
    schedule: str = "1f1b"
    """The order of tasks: `gpipe`, `1f1b`, `interleaved`, `zb-h1`, `zb-h2`, `zb-v`, `dualpipe`,
    `optimal` (the fastest simulated schedule that a search finds within the memory of a device;
    never slower than a named schedule), or a file with the tasks of each place, as in `F0.0 F0.1
    B0.0 B0.1; F1.0 B1.0 F1.1 B1.1`."""
    chunks: int = 0
    """The number of chunks of layers at each place; 0: the schedule's own number, which is 2 for
    `interleaved` and any for `optimal`."""
    split: bool = False
    """Make the gradients of weights tasks of their own, in schedules that allow both forms."""
    layers: tuple[int, ...] | tuple[str, ...] = ()
    """The number of layers of each chunk, as in `layers=3,4,4,1`, or `balanced`, which makes the
    work of the busiest place as short as possible. By default chunks have equally many layers, or
    as many as the weights of the axis."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.microbatches:
            for function in functions_of(op):
                if any(call.sought for call in calls_in(function)):
                    split_batch(function, self.microbatches)
        whole = not_called(op)
        propagate(op)
        inline_calls(op)
        functions = [f for f in functions_of(op) if f.sym_name.data in whole]
        functions = [f for f in functions if microbatch_loop(f) is not None]
        if not functions:
            raise DiagnosticError(
                Diagnostic(
                    "no function has a loop over microbatches, forward and backward: "
                    + (
                        "microbatches= cuts the batch of a gradient of a function with layers in "
                        "a repeat that its results need, and there is none (differentiate makes a "
                        "call of it)"
                        if self.microbatches
                        else "say microbatches=, or write a repeat around the gradient of a "
                        "function with layers in a repeat that its results need"
                    )
                )
            )
        for function in functions:
            self._cut(function, op)

    def _cut(self, function: FuncOp, module: ModuleOp) -> None:
        with meshes_remembered():
            reduce_behind_loops(function)
            loop = microbatch_loop(function)
            assert loop is not None
            axis = axis_of(function, self.axis)
            layers = layers_wanted(self.layers)
            wanted = Wanted(self.schedule, self.chunks, self.split, layers or ())
            optimal = self.schedule == OPTIMAL
            plans = optimal_plans(wanted, loop, axis) if optimal else [plan_of(wanted, loop, axis)]

        def laid_out(plan: StagePlan) -> StagePlan:
            balances = layers is None
            return balanced_plan(function, axis, plan, self.cost_model()) if balances else plan

        if optimal:
            model, seconds = self.cost_model(), self.seconds
            choice = best_choice(function, axis, plans, model, seconds, laid_out)
            self._remark(stage(function, axis, choice.plan), choice)
        else:
            self._check(stage(function, axis, laid_out(plans[0])))

    def _check(self, function: FuncOp) -> None:
        """Check the schedule against the tasks that there are."""
        [loop] = pipelines_in(function)
        problems = [text for _, text in Pipeline.of(loop).problems()]
        if problems:
            errors = [f"{self.schedule}: {text}" for text in problems]
            raise DiagnosticError(Diagnostic(text, Position.of(loop)) for text in errors)

    def _remark(self, function: FuncOp, choice: PlanChoice) -> None:
        """Remark on a function's schedule: its name, its time, and what is proven about the
        time."""
        [loop] = pipelines_in(function)
        for diagnostic in choice.remarks:
            repeat_remark(diagnostic)
        name = choice.origin or "found by search"
        chunks = len(choice.plan.homes) // (max(choice.plan.homes) + 1)
        at = f" with {chunks} chunks at each place" if chunks > 1 else ""
        others = "no schedule" + " that fits into memory" * choice.is_limited
        proven = (
            f"{others} is faster"
            if choice.proven
            else f"{others} takes more than {100 * choice.gap:.2g} % less"
        )
        ended = f" (the search ended: {choice.ended})" if choice.ended else ""
        takes = f"@{function.sym_name.data} takes {seconds_text(choice.time)}"
        remark(loop, f"the schedule is {name}{at}: {takes}, and {proven}{ended}")
