"""The plans of ``shard`` beside plans that people use, as simulations have them.

    python benchmarks/sharding/plans.py [--tables plans,ablations,factors] [--models mlp,bert]

The training steps of examples/models, in f32, are made those of a single device by ``unshard``, and
divided over one axis of all devices of clusters as HAP was measured on (Zhang et al. 2024): a port
of 1.3 GB/s and 20 us for each device, of two kinds, 15.7 and 8.7 TFLOP/s. The tables:

    plans       the time of each plan as a multiple of that of ``shard``, and of ``shard`` its time,
                by how much it is above what ``shard`` says, the gap, and the CPU time of the search
    ablations   ``shard`` without one of its parts, on 2 + 6 devices, in the same way
    factors     the product whose result is the gradient of VGG19's 25088 x 4096 weights, on 8
                devices that compute in no time: what is sent, up to which batch of a device, where
                weights lie whole on all and the product runs whole on all or along the batch; where
                it runs in any way; and where weights may be divided too

A plan with ``!`` needs more memory than a device has; ``-`` does not divide. The plans:

    even        data parallel, with equal shares of the batch
    in prop.    data parallel, with shares in proportion to the throughput of devices
    written     the parallelism of examples/models over all devices: that of Megatron-LM; of VGG19
                one weird trick, of Switch experts
    ZeRO-3      data parallel, with weights and states divided as well
    cut evenly  ``shard`` with equal shares
"""

import argparse

from ablations import ablation_rows
from cases import ALL
from clusters import CLUSTERS
from comparison import plan_rows
from factors import factor_rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tables", default="factors,ablations,plans")
    parser.add_argument("--models", default=",".join(model.name for model in ALL))
    parser.add_argument("--clusters", default="0,1,2,3", help="numbers of clusters")
    parser.add_argument("--seconds", type=float, default=20.0, help="the limit of each search")
    arguments = parser.parse_args()
    models = [model for model in ALL if model.name in arguments.models.split(",")]
    clusters = [CLUSTERS[int(n)] for n in arguments.clusters.split(",")]
    for name in arguments.tables.split(","):
        if name == "plans":
            plan_rows(models, clusters, arguments.seconds)
        elif name == "ablations":
            ablation_rows(models, CLUSTERS[0], arguments.seconds)
        else:
            factor_rows(arguments.seconds)


if __name__ == "__main__":
    main()
