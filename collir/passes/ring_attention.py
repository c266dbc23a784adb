"""Send the keys and values of attention around a ring, instead of gathering them.

What: where the sequence is sharded and attention gathers keys and values over its axes, it becomes
a loop. In each iteration a device computes with the block of keys and values that it has, and a
``shift`` sends this block on to the next device. A softmax over all keys follows from a running
maximum, a running sum and a running result (Ring Attention, Liu et al. 2023).

Why: no device holds all keys and values, nor a whole row of scores, and blocks are sent while
scores are computed.

    %keys = all_gather %k over model dim 1
    %scores = einsum "b q a d, b k a d -> b a q k" %q, %keys
    %shares = softmax %scores dims [3]
    %all = all_gather %v over model dim 1
    %y = einsum "b a q k, b k a d -> b q a d" %shares, %all
becomes
    %y = call @ring_attention(%q, %k, %v)
and that function has, on 4 devices and without the steps that cut into blocks,
    %k1, %v1, %m1, %l1, %o1 = repeat 3
        carry(%k = %k, %v = %v, %m = %low, %l = %0, %o = %0) with(%q = %q) recompute {
      %next_k = shift %k over model by 1 async
      %next_v = shift %v over model by 1 async
      %m1, %l1, %o1 = call @attend(%q, %k, %v, %m, %l, %o) recompute
      yield %next_k, %next_v, %m1, %l1, %o1
    }
    %m2, %l2, %o2 = call @attend(%q, %k1, %v1, %m1, %l1, %o1) recompute
    %inverse = div %one, %l2
    %y = einsum "c b q a d, c b a q -> c b q a d" %o2, %inverse

Scores may be scaled, cast and masked: by positions that ``iota`` counts, as in causal attention,
and by operands with a dimension of the queries or of the keys, which go around as well. In ``auto``
functions, layouts are chosen in a copy first, so that the pass knows what would be gathered. Put it
in front of ``differentiate``, ``propagate`` and pipelines. The gradient is that of the loop: keys
and values go back around the ring, their cotangents go with them, and scores are computed again. If
the attention is in a ``fused`` call, each block is one kernel.

When not: scores that another step uses too, such as a gradient that was added before; masks with a
number for each query and key; scores that are transposed or gathered before the softmax; steps
other than casts between the softmax and the values. A remark says so. A softmax that is written out
in steps is not recognised.

Cost: the bytes of the gathers, and backward those of gathers and reductions. Blocks that a causal
mask hides are computed nevertheless. Sums are rounded in another order, so the pass is validated by
runs and not by proof.
"""

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.dialects.machine import meshes_remembered
from collir.synthesis.rings import send_around_rings


class RingAttentionPass(ModulePass):
    """Send the keys and values of attention around a ring, instead of gathering them."""

    name = "ring-attention"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        with meshes_remembered():
            send_around_rings(op, self.name)
