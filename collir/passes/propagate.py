"""Choose the layouts of all values of ``auto`` functions, from those that types give to some.

What: in an ``auto`` function a type says where a value lies, and nothing else does. The layouts of
all other values follow from these types, and the collectives that they demand are added. Calls and
gradients become steps, a composite operation whose dimension is divided becomes its steps, and the
word ``auto`` goes.

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

Layouts spread along the indices that operands and results share: from inputs and from what
``redistribute`` says first, then from weights (``parameter``), then from states, which weights do
not follow. Over sub-axes that types of inputs and of weights name, both orders are tried. A step
runs on the blocks that its operands have. Where they disagree, it runs where the time for what is
sent and computed is least, and a remark says what is moved and why. What a loop adds up, such as
the gradients of microbatches, is reduced once behind it. A sum of which a device keeps a part is
reduced in each iteration, as ZeRO-2 does; with ``reduce-once`` it stays whole in the loop, and is
reduced once as well, as in ZeRO-1, for more memory. With ``keep-weights``, no weight is gathered
over some axes, and what it meets is moved instead: that is Megatron-LM's sequence parallelism.
Where types are written, or a function that is not ``auto`` calls this one, they stay as they are.

When not: a value that is held at one place has none in an ``auto`` function, and steps that say
what devices do, such as collectives, find nothing to do there.

Cost: it is not an exact search: layouts are improved by single steps at the end, in which no value
gets larger on a device. Its times are those of a
simulation; what a machine does not say is filled in.
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
    """Reduce sums of loops once behind them, also where a device keeps a part."""
    keep_weights: tuple[str, ...] = ()
    """The axes over which weights are not gathered."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        propagate(op, PropagationRules(self.reduce_once, self.keep_weights))
