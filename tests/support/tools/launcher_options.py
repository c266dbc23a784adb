"""Options of torchtitan's `job_config.py`, of NeMo 2's recipes, and of DeepSpeed's JSON."""

_SCHEDULES = ("1F1B", "GPipe", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble")
_DEGREES = (
    *("data_parallel_shard", "data_parallel_replicate", "tensor_parallel", "context_parallel"),
    *("pipeline_parallel", "expert_parallel"),
)

TITAN: dict[str, type | tuple[str, ...]] = {
    **{f"parallelism.{x}_degree": int for x in _DEGREES},
    "parallelism.fsdp_reshard_after_forward": ("default", "always", "never"),
    "parallelism.pipeline_parallel_schedule": _SCHEDULES,
    "parallelism.pipeline_parallel_microbatch_size": int,
    "parallelism.pipeline_parallel_layers_per_stage": int,
    **{f"parallelism.pipeline_parallel_{x}_stage_less_layers": int for x in ("first", "last")},
    **{f"training.{x}": int for x in ("local_batch_size", "global_batch_size", "seq_len")},
    "training.mixed_precision_param": ("bfloat16", "float32"),
    "training.mixed_precision_reduce": ("float32",),
    "activation_checkpoint.mode": ("selective", "full", "none"),
}

_PARALLEL = ("tensor", "pipeline", "expert", "virtual_pipeline")

NEMO: dict[str, type | tuple[str, ...]] = {
    **{f"trainer.strategy.{x}_model_parallel_size": int for x in _PARALLEL},
    "trainer.strategy.context_parallel_size": int,
    "trainer.strategy.sequence_parallel": ("True", "False"),
    **{f"trainer.{x}": int for x in ("num_nodes", "devices")},
    **{f"data.{x}": int for x in ("micro_batch_size", "global_batch_size", "seq_length")},
    "trainer.strategy.ddp.overlap_grad_reduce": ("True", "False"),
    "trainer.strategy.ddp.overlap_param_gather": ("True", "False"),
    "trainer.strategy.ddp.use_distributed_optimizer": ("True", "False"),
    "trainer.strategy.ddp.num_distributed_optimizer_instances": int,
    **{f"trainer.strategy.num_layers_in_{x}_pipeline_stage": int for x in ("first", "last")},
    "trainer.strategy.ddp.data_parallel_sharding_strategy": (
        *("no_shard", "optim", "optim_grads", "optim_grads_params"),
    ),
    "model.config.recompute_granularity": ("full", "selective"),
    "model.config.recompute_method": ("uniform", "block"),
    "model.config.recompute_num_layers": int,
}

DEEPSPEED = {
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
    *("zero_optimization", "bf16", "fp16", "tensor_parallel", "pipeline"),
    "activation_checkpointing",
}


def is_of(options: dict[str, type | tuple[str, ...]], name: str, value: str) -> bool:
    """Return whether there is an option of a name that takes a value."""
    kind = options[name]
    return value in kind if isinstance(kind, tuple) else value.isdecimal()
