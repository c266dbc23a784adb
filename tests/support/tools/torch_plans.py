"""Plans of `--settings torch` on ranks of this computer, a process for each, beside one process.

    python torch_plans.py PLAN MODEL MICROBATCHES RANKS

prints the largest difference of the loss and of gradients, and the collectives of a step, as JSON.
"""

import importlib.util
import json
import os
import socket
import sys
import warnings
from copy import deepcopy
from types import ModuleType
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.multiprocessing.spawn import spawn
from torch.utils._python_dispatch import TorchDispatchMode

BATCH, WORDS = 8, 16


class Block(nn.Module):
    """A residual MLP."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of x and of the MLP of x."""
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Blocks(nn.Module):
    """Blocks one behind the other."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(32) for _ in range(4))


class Perceptron(Blocks):
    """Blocks, and the mean square of their distance to a target."""

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        for block in self.blocks:
            x = block(x)
        return nn.functional.mse_loss(x, target)


class Stack(Blocks):
    """The blocks alone, as a stage of a pipeline runs those that it has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the last block makes of x."""
        for block in self.blocks:
            x = block(x)
        return x


def make_perceptron() -> tuple[nn.Module, dict[str, Any]]:
    """Return a perceptron and the arguments of its batch."""
    generator = torch.Generator().manual_seed(1)
    x, target = (torch.randn(BATCH, 32, generator=generator) for _ in range(2))
    return Perceptron(), {"x": x, "target": target}


SMALL = {
    "vocab_size": 64,
    "max_position_embeddings": 32,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
}
CONFIGS = {
    "llama": ("LlamaForCausalLM", {**SMALL, "num_key_value_heads": 2}),
    "bert": ("BertForMaskedLM", SMALL),
    "gpt2": (
        "GPT2LMHeadModel",
        {"vocab_size": 64, "n_positions": 32, "n_embd": 64, "n_head": 4, "n_layer": 2}
        | {"bos_token_id": 0, "eos_token_id": 0},
    ),
    "qwen2_moe": (
        "Qwen2MoeForCausalLM",
        {**SMALL, "num_key_value_heads": 2, "moe_intermediate_size": 32, "num_experts": 4}
        | {"shared_expert_intermediate_size": 64, "num_experts_per_tok": 2},
    ),
    "vit": (
        "ViTForImageClassification",
        {name: n for name, n in SMALL.items() if name[0] in "hin"}
        | {"image_size": 16, "patch_size": 8},
    ),
}
"""Models of transformers: the class, and the configuration."""


def config_of(name: str) -> dict[str, Any]:
    """Return the configuration of a small model, as config.json has it."""
    head, sizes = CONFIGS[name]
    return {"architectures": [head], "model_type": name, **sizes}


def make(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """Return a model and the arguments of a batch."""
    torch.manual_seed(0)
    if name == "perceptron":
        module, batch = make_perceptron()
    else:
        import transformers

        head, sizes = CONFIGS[name]
        config = transformers.AutoConfig.for_model(name, **sizes)
        module = getattr(transformers, head)(config)
        generator = torch.Generator().manual_seed(1)
        if name == "vit":
            pixels = torch.randn(BATCH, 3, 16, 16, generator=generator)
            labels = torch.randint(0, 2, (BATCH,), generator=generator)
            batch = {"pixel_values": pixels, "labels": labels}
        else:
            words = torch.randint(0, 64, (BATCH, WORDS), generator=generator)
            batch = {"input_ids": words, "labels": words}
    if name != "qwen2_moe":  # grouped products have no f64
        module = module.double()
        batch = {key: x.double() if x.is_floating_point() else x for key, x in batch.items()}
    return module.eval(), batch


class Counting(TorchDispatchMode):
    """Counts collectives, those of autograd too.

    torch's CommDebugMode ends with an IndexError where layers are computed again.
    """

    def __init__(self):
        super().__init__()
        self.counts: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
        """Count a collective and run it."""
        space, _, name = func._schema.name.partition("::")
        if space in ("_c10d_functional", "c10d_functional", "c10d") and "w" not in name[:2]:
            name = name.strip("_").removesuffix("_base_").removesuffix("_into_tensor")
            name = name.replace("allgather", "all_gather").replace("allreduce", "all_reduce")
            name = name.removesuffix("_").removesuffix("_tensor")
            self.counts[name] = self.counts.get(name, 0) + 1
        return func(*args, **(kwargs or {}))


def whole(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor with all its parts."""
    return x.full_tensor() if isinstance(x, DTensor) else x


def run_stages(plan: ModuleType) -> dict[str, Any]:
    """Run a perceptron with stages, and return the largest differences of this rank."""
    alone, batch = make("perceptron")
    loss = alone(**batch)
    loss.backward()
    stack = Stack().double()
    stack.load_state_dict(alone.state_dict())
    mesh = plan.make_mesh("cpu")
    own = [plan.own_layers(deepcopy(stack), number) for number in plan.own_stages(mesh)]
    stages = [plan.parallelize(stage, mesh) for stage in own]
    schedule = plan.make_schedule(stages, mesh, nn.functional.mse_loss)
    data = mesh["data"]
    x, target = (batch[key].chunk(data.size())[data.get_local_rank()] for key in ("x", "target"))
    losses: list[torch.Tensor] = []
    first, last = mesh["pipe"].get_local_rank() == 0, mesh["pipe"].get_local_rank() + 1
    if last == mesh["pipe"].size():
        schedule.step(*[x] * first, target=target, losses=losses)
    else:
        schedule.step(*[x] * first)
    found = torch.stack(losses).mean().detach() if losses else torch.zeros((), dtype=torch.double)
    dist.all_reduce(found)
    ranks = dist.get_world_size() // mesh["pipe"].size()
    right = {key: x.grad for key, x in alone.named_parameters() if x.grad is not None}
    kept = {key: whole(x.grad) for stage in stages for key, x in stage.named_parameters()}
    error = max(float((x - right[key]).abs().max()) for key, x in kept.items())
    assert len(kept) * mesh["pipe"].size() == len(right)
    return {"loss": abs(float(found / ranks - loss)), "gradients": error, "counts": {}}


def run(rank: int, ranks: int, port: int, path: str, name: str, microbatches: int) -> None:
    """Run a rank."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank)}
    os.environ |= {"WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank)}
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    spec = importlib.util.spec_from_file_location("plan", path)
    assert spec and spec.loader
    plan = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plan)
    if hasattr(plan, "make_schedule"):
        result = run_stages(plan)
        worst = torch.tensor(result["gradients"])
        dist.all_reduce(worst, dist.ReduceOp.MAX)
        end(rank, {**result, "gradients": float(worst)})
    alone, batch = make(name)
    output = alone(**batch)
    loss = getattr(output, "loss", output)
    loss.backward()
    model, _ = make(name)
    mesh = plan.make_mesh("cpu")
    model = plan.parallelize(model, mesh)
    place, parts = 0, 1
    for axis in (name for name in mesh.mesh_dim_names if name in ("replica", "data")):
        size = mesh[axis].size()
        place, parts = place * size + mesh[axis].get_local_rank(), parts * size
    own = [
        {key: x.chunk(parts)[place].chunk(microbatches)[number] for key, x in batch.items()}
        for number in range(microbatches)
    ]
    kept: dict[str, torch.Tensor] = {}

    class Optimizer(torch.optim.SGD):
        """One that keeps the gradients."""

        def step(self) -> None:
            """Keep them."""
            for key, x in model.named_parameters():
                if x.grad is not None:
                    kept[key.replace("_checkpoint_wrapped_module.", "")] = x.grad.clone()

    optimizer = Optimizer(model.parameters(), lr=0.0)
    with Counting() as counted:
        found = plan.train_step(model, optimizer, own)
    dist.all_reduce(found)
    right = {key: x.grad for key, x in alone.named_parameters() if x.grad is not None}
    error = max(float((whole(kept[key]) - x).abs().max()) for key, x in right.items())
    difference = abs(float(found / ranks - loss))
    end(rank, {"loss": difference, "gradients": error, "counts": counted.counts})


def end(rank: int, result: dict[str, Any]) -> NoReturn:
    """Print a result, once, and end."""
    if rank == 0:
        print(json.dumps(result), flush=True)
    dist.barrier()
    os._exit(0)  # gloo's threads abort a process that ends while another one still receives


def main(path: str, name: str, microbatches: int, ranks: int) -> None:
    """Run all ranks."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    spawn(run, args=(ranks, port, path, name, microbatches), nprocs=ranks)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
