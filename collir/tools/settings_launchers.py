"""The settings of torchtitan, DeepSpeed and NeMo: degrees, batches, ZeRO and recomputation. What a
model is, their own configurations of models say."""

import json
from collections.abc import Iterator
from typing import Any

from collir.layout.dtypes import DType
from collir.synthesis.sweeping.configuration import (
    PREFETCHED,
    WHOLE_GRADIENTS,
    Configuration,
)
from collir.tools.settings_megatron import AXES, DIVIDED, degree_of, is_attention
from collir.tools.settings_mesh import order_remark, rows_of, torchrun
from collir.tools.settings_torch import SCHEDULES
from collir.tools.sweep_model import Model

TITAN_SCHEDULES = {name: title.removeprefix("Schedule") for name, title in SCHEDULES.items()}
"""The names of schedules in torchtitan."""

_USUAL = (*AXES, "data", "pipeline")
"""The axes as torchtitan and NeMo order them, innermost first."""

_TENSOR, _CONTEXT, _EXPERTS = AXES


def titan_lines(model: Model, c: Configuration) -> Iterator[str]:
    """Yield the command of torchtitan, or why there is none."""
    degrees = _degrees(model, c)
    if degrees[_EXPERTS] > 1:
        yield "# torchtitan divides experts over the axes of the batch, and none of their own"
        return
    shards = c.degrees[model.step.data[0]] if c.zero else 1  # torchtitan adds those of context
    rows = rows_of(model, c)
    words: dict[str, object] = {
        "parallelism.data_parallel_shard_degree": shards,
        "parallelism.data_parallel_replicate_degree": degrees["data"] // shards,
        "parallelism.tensor_parallel_degree": degrees[_TENSOR],
        "parallelism.context_parallel_degree": degrees[_CONTEXT],
        "parallelism.pipeline_parallel_degree": c.stages,
        "training.local_batch_size": rows * c.microbatches if c.stages > 1 else rows,
        "training.global_batch_size": c.batch,
        "activation_checkpoint.mode": _mode(c),
    }
    if model.step.words:
        words["training.seq_len"] = model.step.words
    if shards > 1:
        kept = "always" if c.zero >= PREFETCHED else "never"
        words["parallelism.fsdp_reshard_after_forward"] = kept
    if c.stages > 1:
        per_chunk = model.step.parameters[model.step.layers] // (c.stages * c.chunks)
        most = max(c.layers, default=per_chunk)
        words["parallelism.pipeline_parallel_schedule"] = TITAN_SCHEDULES[c.schedule]
        words["parallelism.pipeline_parallel_microbatch_size"] = rows
        words["parallelism.pipeline_parallel_layers_per_stage"] = most
        for name, place in (("first", 0), ("last", -1)):
            less = most - c.layers[place] if c.layers else 0
            words[f"parallelism.pipeline_parallel_{name}_stage_less_layers"] = less
    if model.step.narrow is DType.BF16:
        words["training.mixed_precision_param"] = "bfloat16"
        words["training.mixed_precision_reduce"] = "float32"
    if {*c.layers[1:-1]} - {max(c.layers, default=0)}:
        yield f"# torchtitan has fewer layers at the ends alone: here {c.layers} are in the stages"
    yield from order_remark(model, c, "torchtitan", _called(model, c), _USUAL)
    if degrees[_TENSOR] > 1 and not c.sequence:
        yield "# torchtitan divides what goes from layer to layer along the sequence as well"
    if c.zero == WHOLE_GRADIENTS and c.stages == 1 and c.microbatches > 1:
        yield "# torchtitan reduces gradients in every microbatch, as ZeRO-2"
    yield torchrun(c, "-m torchtitan.train", (f"--{key} {x}" for key, x in words.items()))


def deepspeed_lines(model: Model, c: Configuration) -> Iterator[str]:
    """Yield the configuration of DeepSpeed, as JSON, or why there is none."""
    degrees = _degrees(model, c)
    tensor, copies = degrees[_TENSOR] > 1, c.copies
    if refused := [
        what
        for what, is_so in (
            ("stages with ZeRO-3", c.stages > 1 and c.zero >= PREFETCHED),
            ("tensor parallelism with ZeRO-3", tensor and c.zero >= PREFETCHED),
            ("tensor parallelism in stages, but in modules of your own", tensor and c.stages > 1),
            ("sequence parallelism: sweep with --sequence whole", bool(c.sequence)),
            ("parts of layers that are computed again", isinstance(c.recompute, tuple)),
            ("an axis for sequences", degrees[_CONTEXT] > 1),
            ("an axis for experts alone", degrees[_EXPERTS] > 1),
            ("copies of what ZeRO divides, but with stage 3", copies > 1 and c.zero < PREFETCHED),
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
        "bf16": {"enabled": model.step.narrow is DType.BF16},
        "fp16": {"enabled": model.step.narrow is DType.F16},
    }
    if copies > 1:
        settings["zero_optimization"]["mics_shard_size"] = c.degrees[model.step.data[0]]
    if tensor:
        settings["tensor_parallel"] = {"autotp_size": degrees[_TENSOR]}
    if c.stages > 1:
        settings["pipeline"] = {"stages": c.stages}
    if c.recompute is True:
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
        "sequence_parallel": bool(c.sequence),
    }
    if c.chunks > 1:
        strategy["virtual_pipeline_model_parallel_size"] = c.chunks
    if c.layers and c.chunks == 1:
        strategy["num_layers_in_first_pipeline_stage"] = c.layers[0]
        strategy["num_layers_in_last_pipeline_stage"] = c.layers[-1]
    if c.layers and (c.chunks > 1 or len({*c.layers[1:-1]}) > 1):
        yield f"# NeMo has other numbers of layers at the ends alone: here {c.layers} are in stages"
    words: dict[str, object] = {"trainer.num_nodes": c.devices // per_node}
    words |= {"trainer.devices": per_node}
    words |= {f"trainer.strategy.{key}": x for key, x in strategy.items()}
    words["trainer.strategy.ddp.overlap_grad_reduce"] = True
    words["trainer.strategy.ddp.use_distributed_optimizer"] = c.zero > 0
    words["trainer.strategy.ddp.overlap_param_gather"] = c.zero > 0
    if c.zero > WHOLE_GRADIENTS:
        words["trainer.strategy.ddp.data_parallel_sharding_strategy"] = DIVIDED[c.zero]
    if c.copies > 1:
        words["trainer.strategy.ddp.num_distributed_optimizer_instances"] = c.copies
    words["data.micro_batch_size"] = rows_of(model, c)
    words["data.global_batch_size"] = c.batch
    if model.step.words:
        words["data.seq_length"] = model.step.words
    if is_attention(model.step, c):
        words["model.config.recompute_granularity"] = "selective"
    elif c.recompute is True:
        words["model.config.recompute_granularity"] = "full"
        words["model.config.recompute_method"] = "uniform"
        words["model.config.recompute_num_layers"] = 1
    yield from order_remark(model, c, "NeMo", _called(model, c), _USUAL)
    yield " \\\n  ".join(
        ["nemo llm pretrain --factory RECIPE", *(f"{k}={x}" for k, x in words.items())]
    )


def _mode(c: Configuration) -> str:
    """Return torchtitan's name for the operations that are computed again."""
    return "selective" if isinstance(c.recompute, tuple) else "full" if c.recompute else "none"


def _called(model: Model, c: Configuration) -> dict[str, str]:
    """Return what each axis is called: as in Megatron-LM, or data or pipeline."""
    names = {axis: degree_of(axis) or axis for axis in c.degrees}
    return names | dict.fromkeys(model.step.data, "data") | {c.pipeline: "pipeline"}


def _degrees(model: Model, c: Configuration) -> dict[str, int]:
    """Return the size of what each axis is called."""
    sizes = dict.fromkeys((*_USUAL, *_called(model, c).values()), 1)
    for axis, name in _called(model, c).items():
        sizes[name] *= c.degrees.get(axis, 1)
    return sizes
