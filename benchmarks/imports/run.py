"""Import the architectures of transformers, and compare what they compute with torch.

    python benchmarks/imports/run.py [ARCHITECTURE ...]

A table: for each small model the lines of the function in ``.coll`` without and with loops over
layers, seconds of ``torch.export`` and of the rest of the import, the operations of its products
over those that torch counts, and the largest error of the loss and of all gradients beside torch's
autograd in f64. Then full sizes, on no device.
"""

import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
warnings.filterwarnings("ignore")

import torch  # noqa: E402
from support.importing.architectures import ALL, small  # noqa: E402
from support.importing.torch_flops import counted_by_torch, in_program  # noqa: E402
from support.importing.torch_gradients import compared  # noqa: E402

from collir.importing.models.export import exported  # noqa: E402
from collir.importing.models.hugging_face import model_of, set_experts  # noqa: E402
from collir.importing.models.layers import rolled  # noqa: E402
from collir.importing.models.program import written  # noqa: E402

FULL: dict[str, dict[str, Any]] = {
    "Llama 3 8B": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256,
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192,
        "rope_theta": 500000.0,
    },
    "Qwen3 30B-A3B": {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 151936,
        "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
        "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": True,
        "max_position_embeddings": 40960,
    },
}  # fmt: skip
"""Published configurations."""


def single(name: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Return a small model and its arguments in f32, which some models have fixed in between."""
    model, arguments = small(name)
    narrow = {
        key: x.float() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for key, x in arguments.items()
    }
    return model.float(), narrow


def row(name: str) -> str:
    """Return the row of an architecture."""
    try:
        model, arguments = single(name)
        set_experts(model)
        begin = time.perf_counter()
        graph = exported(model.train(False), (), arguments)
        middle = time.perf_counter()
        whole = written(graph, "loss")
        loops = written(rolled(graph), "loss")
        end = time.perf_counter()
        result = compared(*small(name))
        flops = in_program(*single(name)) / counted_by_torch(*single(name))
    except Exception as error:  # a row says so
        return f"| {name} | {type(error).__name__}: {str(error)[:80]} |"
    rolls = "yes" if loops.layers else "no"
    return (
        f"| {name} | {len(whole.body)} | {len(loops.body)} | {rolls} | {middle - begin:.1f} | "
        f"{end - middle:.2f} | {flops:.3f} | {result.worst:.0e} |"
    )


def full(name: str) -> str:
    """Return the row of a model of its full size."""
    model, arguments = model_of(FULL[name], "", 2, 4096)
    set_experts(model)
    begin = time.perf_counter()
    graph = exported(model.train(False), (), arguments)
    middle = time.perf_counter()
    program = written(rolled(graph), "loss")
    end = time.perf_counter()
    parameters = sum(x.numel() for x in model.parameters()) / 1e9
    return (
        f"| {name} | {parameters:.1f} | {len(graph.nodes)} | {len(program.body)} | "
        f"{middle - begin:.1f} | {end - middle:.1f} |"
    )


def main() -> None:
    """Print the tables."""
    torch.set_num_threads(1)
    names = sys.argv[1:] or ALL
    print("| architecture | lines | with loops | rolled | export, s | rest, s | FLOPs | error |")
    print("|---|--:|--:|---|--:|--:|--:|--:|")
    for name in names:
        print(row(name), flush=True)
    if not sys.argv[1:]:
        print("\n| model | parameters, 10^9 | operations | lines | export, s | rest, s |")
        print("|---|--:|--:|--:|--:|--:|")
        for name in FULL:
            print(full(name), flush=True)


if __name__ == "__main__":
    main()
