"""Cut a training step into the stages of a pipeline, with a schedule.

What: the loop over microbatches becomes a ``repeat`` with a schedule. Its layers are cut into
chunks at the places of an axis; forward (F), backward (B) and, where the schedule has them, the
gradients of weights (W) of each chunk become functions, which the loop calls at their places.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.dialects.machine import mesh_of, meshes_remembered
from collir.ir.calls import calls_in
from collir.ir.functions import functions_of
from collir.ir.inlining import inline_calls
from collir.ir.microbatches import split_batch
from collir.ir.staging.outlining import Axis
from collir.ir.staging.staged import Plan, microbatch_loop, stage
from collir.layout.pipelines.rules import RULES
from collir.synthesis.propagation.accumulate import reduce_behind_loops
from collir.synthesis.propagation.propagate import propagate


@dataclass(frozen=True)
class PipelinePass(ModulePass):
    """Cut a training step into the stages of a pipeline, with a schedule."""

    name = "pipeline"

    axis: str = "pipe"
    """The axis of the mesh whose coordinates are the places."""

    schedule: str = "1f1b"
    """The name of a schedule."""

    microbatches: int = 0
    """The number of microbatches that the batch of a gradient is cut into; by default the step has
    a loop over microbatches already."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.microbatches:
            for function in functions_of(op):
                if any(call.sought for call in calls_in(function)):
                    split_batch(function, self.microbatches)
        propagate(op)
        inline_calls(op)
        for function in functions_of(op):
            reduce_behind_loops(function)
        rule = RULES[self.schedule]
        with meshes_remembered():
            for function in functions_of(op):
                if microbatch_loop(function) is None:
                    continue
                mesh = mesh_of(function)
                axis = Axis(mesh, mesh.named(self.axis) or ())
                plan = Plan(self.schedule, rule.chunk_places(axis.size), rule.splits[0])
                stage(function, axis, plan)
