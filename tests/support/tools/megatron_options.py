"""Options of Megatron-LM's `pretrain_gpt.py`, by name and type, as its `arguments.py` has them."""

import argparse

NUMBERS = (
    *("num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads", "num-query-groups"),
    *("num-experts", "seq-length", "max-position-embeddings", "vocab-size", "micro-batch-size"),
    *("global-batch-size", "tensor-model-parallel-size", "pipeline-model-parallel-size"),
    *("context-parallel-size", "expert-model-parallel-size", "recompute-num-layers"),
    *("num-layers-per-virtual-pipeline-stage", "num-distributed-optimizer-instances"),
)

FLAGS = (
    *("group-query-attention", "swiglu", "disable-bias-linear", "use-flash-attn", "bf16", "fp16"),
    *("untie-embeddings-and-output-weights", "use-distributed-optimizer", "overlap-grad-reduce"),
    *("overlap-param-gather", "use-megatron-fsdp", "use-tp-pp-dp-mapping", "sequence-parallel"),
)

CHOICES = {
    "normalization": ("LayerNorm", "RMSNorm"),
    "position-embedding-type": ("learned_absolute", "rope", "mrope", "relative", "none"),
    "recompute-granularity": ("full", "selective"),
    "recompute-method": ("uniform", "block"),
    "outer-dp-sharding-strategy": ("no_shard", "optim"),
    "data-parallel-sharding-strategy": (
        *("no_shard", "optim", "optim_grads", "optim_grads_params"),
    ),
}


def parsed(words: list[str]) -> argparse.Namespace:
    """Return the values of options; unknown ones, and values of other types, end the test."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for name in NUMBERS:
        parser.add_argument(f"--{name}", type=int)
    for name in FLAGS:
        parser.add_argument(f"--{name}", action="store_true")
    for name, choices in CHOICES.items():
        parser.add_argument(f"--{name}", choices=choices)
    parser.add_argument("--pipeline-model-parallel-layout")
    parser.add_argument("--recompute-modules", nargs="*")
    return parser.parse_args(words)
