"""Choose the layouts of all values of ``auto`` functions, from those that types give to some.

What: the layouts of all values of an ``auto`` function follow from the types that name an axis, and
the collectives that they demand are added. Calls and gradients become steps, and so do composite
operations whose dimension is sharded; the word ``auto`` goes.

Why: parallelism is a handful of types. Data, tensor, sequence, context and expert parallelism and
ZeRO come out with the collectives of their papers (docs/parallelism.md).

    func @f(%x: f32[64@data, 32], %v: f32[32, 128@model], %w: f32[128, 32])
        -> f32[64@data, 32] on @m auto {
      %0 = einsum "b i, i j -> b j" %x, %v
      %1 = einsum "b j, j k -> b k" %0, %w
      return %1
    }
becomes
    func @f(%x: f32[64@data, 32], %v: f32[32, 128@model], %w: f32[128@model, 32])
        -> f32[64@data, 32] on @m {
      %0 = einsum "b i, i j -> b j" %x, %v
      %1 = einsum "b j, j k -> b k" %0, %w
      %2 = all_reduce %1 over model
      return %2
    }

Layouts spread along the indices that operands and results share: first from inputs and from each
``redistribute``, then from weights (``parameter``), then from states; weights do not follow states.
Over sub-axes that types of inputs and of weights name, both orders are tried. Where the operands of
a step disagree, it runs where the time for sending and computing is least, and a remark says what
is moved and why. A sum over the iterations of a loop, such as the gradients of microbatches, is
reduced once behind it. A sum of which a device keeps a part is reduced in each iteration, as in
ZeRO-2; with ``reduce-once`` it stays whole in the loop, and is reduced once, as in ZeRO-1, for more
memory. With ``keep-weights``, no weight is gathered over some axes, and activations are moved
instead, as in Megatron-LM's sequence parallelism. Types in the signature of a function that a
function without ``auto`` calls stay as they are.

When not: ``auto`` functions have neither values at one place nor collectives.

Cost: no exact search. At the end, layouts are improved one by one, by simulated time and without
larger values on a device. Defaults stand in for rates that the machine lacks.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.synthesis.propagation.propagate import PropagationRules, propagate


@dataclass(frozen=True)
class PropagatePass(ModulePass):
    """Choose the layouts of all values of ``auto`` functions, from those that types give."""

    name = "propagate"

    reduce_once: bool = False
    """Reduce the sums of a loop once, behind the loop, even where each device keeps only a part."""
    keep_weights: tuple[str, ...] = ()
    """The axes over which weights are not gathered."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        propagate(op, PropagationRules(self.reduce_once, self.keep_weights))
