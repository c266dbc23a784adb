"""The settings of torchtitan, DeepSpeed and NeMo: degrees, batches, ZeRO and recomputation. What a
model is, their own configurations of models say."""

import json
from collections.abc import Iterator
from typing import Any

from collir.dialects.tensor import dist_type
from collir.ir.roles import Role, role_of
from collir.layout.dtypes import DType
from collir.synthesis.sweeping.configuration import PREFETCHED, Configuration
from collir.tools.settings_megatron import AXES, degree_of
from collir.tools.settings_mesh import dimensions, rows_of
from collir.tools.sweep_model import Model

TITAN_SCHEDULES = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved": "Interleaved1F1B",
    "zb-h1": "InterleavedZeroBubble",
    "zb-v": "ZBVZeroBubble",
}
"""What torchtitan calls schedules."""

_TENSOR, _CONTEXT, _EXPERTS = AXES


def titan_lines(model: Model, c: Configuration) -> Iterator[str]:
    """Yield the command of torchtitan, or why there is none."""
    degrees = _degrees(model, c)
    if degrees[_EXPERTS] > 1:
        yield "# torchtitan divides experts over the axes of the batch, and none of their own"
        return
    shards = c.degrees[model.step.data[0]] if c.zero else 1
    rows = rows_of(model, c)
    words: dict[str, object] = {
        "parallelism.data_parallel_shard_degree": shards,
        "parallelism.data_parallel_replicate_degree": degrees["data"] // shards,
        "parallelism.tensor_parallel_degree": degrees[_TENSOR],
        "parallelism.context_parallel_degree": degrees[_CONTEXT],
        "parallelism.pipeline_parallel_degree": c.stages,
        "training.local_batch_size": rows * c.microbatches if c.stages > 1 else rows,
        "training.global_batch_size": c.batch,
        "activation_checkpoint.mode": "full" if c.recompute else "none",
    }
    if model.step.words:
        words["training.seq_len"] = model.step.words
    if shards > 1:
        kept = "always" if c.zero >= PREFETCHED else "never"
        words["parallelism.fsdp_reshard_after_forward"] = kept
    if c.stages > 1:
        layers = model.step.parameters[model.step.layers] // (c.stages * c.chunks)
        words["parallelism.pipeline_parallel_schedule"] = TITAN_SCHEDULES[c.schedule]
        words["parallelism.pipeline_parallel_microbatch_size"] = rows
        words["parallelism.pipeline_parallel_layers_per_stage"] = layers
    if _narrow(model) is DType.BF16:
        words["training.mixed_precision_param"] = "bfloat16"
        words["training.mixed_precision_reduce"] = "float32"
    yield from _order(model, c, "torchtitan", [*AXES, "data", "pipeline"])
    yield from _command(c, "-m torchtitan.train", [f"--{key} {x}" for key, x in words.items()])


def deepspeed_lines(model: Model, c: Configuration) -> Iterator[str]:
    """Yield the configuration of DeepSpeed, as JSON, or why there is none."""
    degrees = _degrees(model, c)
    tensor = degrees[_TENSOR] > 1
    if refused := [
        what
        for what, is_so in (
            ("stages with ZeRO-3", c.stages > 1 and c.zero >= PREFETCHED),
            ("tensor parallelism with ZeRO-3", tensor and c.zero >= PREFETCHED),
            ("tensor parallelism in stages, but in modules of your own", tensor and c.stages > 1),
            ("an axis for sequences", degrees[_CONTEXT] > 1),
            ("an axis for experts alone", degrees[_EXPERTS] > 1),
        )
        if is_so
    ]:
        yield from (f"# DeepSpeed has no {what}" for what in refused)
        return
    settings: dict[str, Any] = {
        "train_batch_size": c.batch,
        "train_micro_batch_size_per_gpu": rows_of(model, c),
        "gradient_accumulation_steps": c.microbatches,
        "zero_optimization": {"stage": c.zero, "overlap_comm": True},
        "bf16": {"enabled": _narrow(model) is DType.BF16},
        "fp16": {"enabled": _narrow(model) is DType.F16},
    }
    if degrees[_TENSOR] > 1:
        settings["tensor_parallel"] = {"autotp_size": degrees[_TENSOR]}
    if c.stages > 1:
        settings["pipeline"] = {"stages": c.stages}
    if c.recompute:
        settings["activation_checkpointing"] = {
            "partition_activations": False,
            "number_checkpoints": model.step.parameters[model.step.layers],
        }
    yield json.dumps(settings, indent=2)


def nemo_lines(model: Model, c: Configuration) -> Iterator[str]:
    """Yield the overrides of a recipe of NeMo."""
    degrees = _degrees(model, c)
    per_node = c.level_sizes[-1]
    strategy: dict[str, object] = {
        "tensor_model_parallel_size": degrees[_TENSOR],
        "context_parallel_size": degrees[_CONTEXT],
        "expert_model_parallel_size": degrees[_EXPERTS],
        "pipeline_model_parallel_size": c.stages,
    }
    if c.chunks > 1:
        strategy["virtual_pipeline_model_parallel_size"] = c.chunks
    words: dict[str, object] = {"trainer.num_nodes": c.devices // per_node}
    words |= {"trainer.devices": per_node}
    words |= {f"trainer.strategy.{key}": x for key, x in strategy.items()}
    words["trainer.strategy.ddp.overlap_grad_reduce"] = True
    words["trainer.strategy.ddp.use_distributed_optimizer"] = c.zero > 0
    words["trainer.strategy.ddp.overlap_param_gather"] = c.zero > 0
    if c.zero >= PREFETCHED:
        words["trainer.strategy.ddp.data_parallel_sharding_strategy"] = "optim_grads_params"
    words["data.micro_batch_size"] = rows_of(model, c)
    words["data.global_batch_size"] = c.batch
    if model.step.words:
        words["data.seq_length"] = model.step.words
    if c.recompute:
        words["model.config.recompute_granularity"] = "full"
        words["model.config.recompute_method"] = "uniform"
        words["model.config.recompute_num_layers"] = 1
    yield from _order(model, c, "NeMo", [*AXES, "data", "pipeline"])
    yield " \\\n  ".join(
        ["nemo llm pretrain --factory RECIPE", *(f"{k}={x}" for k, x in words.items())]
    )


def _degrees(model: Model, c: Configuration) -> dict[str, int]:
    """Return the size of what each axis is called in Megatron-LM, and of the batch's axes."""
    sizes = dict.fromkeys((*AXES, "data"), 1)
    for axis, size in c.degrees.items():
        flag = "data" if axis in model.step.data else degree_of(axis)
        if flag and axis != c.pipeline:
            sizes[flag] *= size
    return sizes


def _narrow(model: Model) -> DType | None:
    """Return the narrow element type in which the model computes, if it has one."""
    weights = [x for x in model.step.callee.args if role_of(x) is Role.PARAMETER]
    dtypes = {dist_type(x).dtype for x in weights}
    return next((dtype for dtype in (DType.BF16, DType.F16) if dtype in dtypes), None)


def _order(model: Model, c: Configuration, name: str, usual: list[str]) -> Iterator[str]:
    """Yield a remark if a framework orders ranks otherwise.

    Args:
        usual: what it orders, innermost first.
    """
    placed = dimensions(model, c)
    names = dict.fromkeys(model.step.data, "data") | {c.pipeline: "pipeline"}
    order = [names.get(axis) or degree_of(axis) or axis for axis, _ in reversed(placed)]
    if order != sorted(order, key=usual.index):
        listed = ", ".join(f"{axis}:{size}" for axis, size in placed)
        yield f"# {name} orders ranks otherwise: here they are {listed}, outermost first"


def _command(c: Configuration, script: str, words: list[str]) -> Iterator[str]:
    per_node = c.level_sizes[-1]
    command = f"torchrun --nnodes {c.devices // per_node} --nproc-per-node {per_node} {script}"
    yield " \\\n  ".join([command, *words])
