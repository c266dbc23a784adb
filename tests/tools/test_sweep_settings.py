"""A configuration in the words of Megatron-LM, PyTorch and JAX, and what it takes on real ranks."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from support.tools.launcher_options import DEEPSPEED, NEMO, TITAN, is_of
from support.tools.megatron_options import parsed

from collir.ir.diagnostics import DiagnosticError
from collir.synthesis.sweeping.configuration import UNSTAGED, Configuration
from collir.tools.collir import main
from collir.tools.machine import preset
from collir.tools.sweep_measure import measured_seconds
from collir.tools.sweep_model import Model
from collir.tools.sweep_settings import settings_text

EXAMPLE = Path(__file__).parents[2] / "examples" / "models" / "sweep.coll"
SIZES = {"batch": 64, "seq": 8, "hidden": 16, "heads": 8, "layers": 8, "vocab": 16}
STAGED = Configuration(
    (("pipe", (2, 1)), ("data", (2, 2)), ("model", (1, 4))),
    "pipe",
    64,
    8,
    "interleaved",
    2,
    recompute=True,
    zero=1,
)


def _model() -> Model:
    machine = preset("dgx_a100_80gb").op.value()
    text = EXAMPLE.read_text(encoding="utf-8")
    return Model(str(EXAMPLE), text, "", tuple(SIZES.items()), machine, "pipe")


def test_megatron_has_all_degrees() -> None:
    text = settings_text(_model(), STAGED, "megatron")
    words = text.replace("\\\n", "").split()
    assert words[:6] == ["torchrun", "--nnodes", "4", "--nproc-per-node", "8", "pretrain_gpt.py"]
    found = parsed(words[6:])
    assert (found.tensor_model_parallel_size, found.pipeline_model_parallel_size) == (4, 2)
    assert (found.num_layers, found.num_layers_per_virtual_pipeline_stage) == (8, 2)
    assert (found.micro_batch_size, found.global_batch_size) == (2, 64)
    assert (found.recompute_granularity, found.recompute_num_layers) == ("full", 1)
    assert found.use_distributed_optimizer and found.overlap_grad_reduce and found.bf16
    assert not found.use_tp_pp_dp_mapping and not found.swiglu and not found.group_query_attention
    assert "#" not in text, "stages are outermost, and tensor parallelism is innermost"


def test_megatron_has_what_a_page_of_llama_says(tmp_path: Path) -> None:
    """Grouped queries, gates, rotated positions, an output of its own; ZeRO-3 as its FSDP."""
    path = tmp_path / "llama.coll"
    assert (
        main(["new", "--model", "llama-3-8b", "--gpu", "h100", "--nodes", "2", "-o", str(path)])
        == 0
    )
    model = replace(_model(), path=str(path), text=path.read_text(), sizes=())
    axes = (("pipe", (1, 1)), ("data", (2, 2)), ("model", (1, 4)))
    sharded = replace(STAGED, axes=axes, schedule=UNSTAGED, chunks=1, zero=3)
    text = settings_text(model, sharded, "megatron")
    found = parsed(text.replace("\\\n", "").partition("pretrain_gpt.py")[2].split())
    assert (found.num_attention_heads, found.num_query_groups) == (32, 8)
    assert (found.ffn_hidden_size, found.vocab_size) == (14336, 128256)
    assert found.group_query_attention and found.swiglu and found.disable_bias_linear
    assert (found.normalization, found.position_embedding_type) == ("RMSNorm", "rope")
    assert found.untie_embeddings_and_output_weights
    assert found.data_parallel_sharding_strategy == "optim_grads_params"


def test_megatron_has_two_orders_of_ranks() -> None:
    swapped = (("pipe", (1, 2)), ("data", (4, 1)), ("model", (1, 4)))
    text = settings_text(_model(), replace(STAGED, axes=swapped), "megatron")
    assert "--use-tp-pp-dp-mapping" in text
    outside = (("pipe", (1, 2)), ("data", (1, 4)), ("model", (4, 1)))
    text = settings_text(_model(), replace(STAGED, axes=outside), "megatron")
    assert text.startswith("# Megatron-LM orders ranks otherwise: here they are model:4")


def test_a_divided_axis_is_flattened_in_pytorch() -> None:
    crossed = (("pipe", (2, 1)), ("data", (2, 2)), ("model", (2, 4)))
    text = settings_text(_model(), replace(STAGED, axes=crossed, zero=3), "torch")
    assert 'mesh_dim_names=("pipe", "data_0", "model_0", "data_1", "model_1")' in text
    assert 'mesh["data_0", "data_1"]._flatten("data")' in text
    assert "fully_shard" in text
    assert "ScheduleInterleaved1F1B(made, 8, loss)" in text


@pytest.mark.turns
def test_frameworks_divide_sequences_or_say_so() -> None:
    divided = replace(STAGED, sequence=("model",))
    words = settings_text(_model(), divided, "megatron").replace("\\\n", "").split()
    assert parsed(words[6:]).sequence_parallel
    assert "sequence_parallel=True" in settings_text(_model(), divided, "nemo")
    assert "is whole here" in settings_text(_model(), divided, "torch")
    assert "no sequence parallelism" in settings_text(
        _model(), replace(divided, schedule="1f1b", chunks=1), "deepspeed"
    )
    text = settings_text(
        _model(), replace(divided, axes=(*STAGED.axes[:2], ("model", (1, 4)))), "jax"
    )
    assert 'P("data", "model")' in text or "model" in text.split("def between_layers")[1][:300]
    assert "sequence as well" in settings_text(_model(), STAGED, "torchtitan")


@pytest.mark.turns
def test_frameworks_have_copies_of_what_zero_divides() -> None:
    model = replace(_model(), added=("replica",))
    axes = (("pipe", (1, 1)), ("replica", (2, 1)), ("data", (1, 2)), ("model", (1, 4)))
    copied = replace(STAGED, axes=axes, schedule=UNSTAGED, chunks=1, zero=3)
    words = settings_text(model, copied, "megatron").replace("\\\n", "").split()
    found = parsed(words[6:])
    assert found.num_distributed_optimizer_instances == 2
    assert found.outer_dp_sharding_strategy == "no_shard"
    assert 'over = mesh["replica", "data"]' in settings_text(model, copied, "torch")
    words = _words(settings_text(model, copied, "torchtitan"), " ")
    names = ("replicate", "shard")
    assert [words[f"--parallelism.data_parallel_{x}_degree"] for x in names] == ["2", "2"]
    words = _words(settings_text(model, copied, "nemo"), "=")
    assert words["trainer.strategy.ddp.num_distributed_optimizer_instances"] == "2"
    alone = replace(copied, axes=(*axes[:3], ("model", (1, 1))))
    settings = json.loads(settings_text(model, alone, "deepspeed"))
    assert settings["zero_optimization"]["mics_shard_size"] == 2
    assert "but with stage 3" in settings_text(model, replace(alone, zero=1), "deepspeed")
    text = settings_text(model, copied, "jax")
    assert 'P(("data", "replica"))' in text or 'P(("replica", "data"))' in text


def test_frameworks_have_stages_of_other_layers() -> None:
    axes = (("pipe", (4, 1)), ("data", (1, 2)), ("model", (1, 4)))
    uneven = replace(STAGED, axes=axes, schedule="1f1b", chunks=1, layers=(1, 3, 3, 1))
    words = settings_text(_model(), uneven, "megatron").replace("\\\n", "").split()
    assert parsed(words[6:]).pipeline_model_parallel_layout == '"Et|t*3|t*3|tL"'
    words = _words(settings_text(_model(), uneven, "torchtitan"), " ")
    each = "--parallelism.pipeline_parallel_"
    assert words[f"{each}layers_per_stage"] == "3"
    assert [words[f"{each}{x}_stage_less_layers"] for x in ("first", "last")] == ["2", "2"]
    words = _words(settings_text(_model(), uneven, "nemo"), "=")
    assert words["trainer.strategy.num_layers_in_first_pipeline_stage"] == "1"
    assert "STARTS = [1, 4, 7]" in settings_text(_model(), uneven, "torch")
    other = replace(uneven, layers=(2, 3, 2, 1))
    assert "at the ends alone" in settings_text(_model(), other, "torchtitan")
    assert "at the ends alone" in settings_text(_model(), other, "nemo")


@pytest.mark.turns
def test_frameworks_compute_attention_again_or_say_so() -> None:
    again = replace(STAGED, recompute=("causal_attention",), schedule="1f1b", chunks=1)
    unfused = _model().text.replace("(%q, %k, %v) fused", "(%q, %k, %v)")
    words = settings_text(replace(_model(), text=unfused), again, "megatron")
    found = parsed(words.replace("\\\n", "").split()[6:])
    assert "computes causal_attention again" in settings_text(_model(), again, "megatron")
    assert (found.recompute_granularity, found.recompute_modules) == ("selective", ["core_attn"])
    assert "activation_checkpoint.mode selective" in settings_text(_model(), again, "torchtitan")
    assert "granularity=selective" in settings_text(replace(_model(), text=unfused), again, "nemo")
    assert "has no parts of layers" in settings_text(_model(), again, "deepspeed")
    assert "scaled_dot_product_attention" in settings_text(_model(), again, "torch")
    assert "of causal_attention: " in settings_text(_model(), again, "jax")


def test_pytorch_divides_words_as_a_ring() -> None:
    model = replace(_model(), added=("context",))
    axes = (("pipe", (1, 1)), ("data", (1, 2)), ("model", (1, 1)), ("context", (1, 4)))
    divided = replace(STAGED, axes=axes, schedule=UNSTAGED, chunks=1, zero=3)
    text = settings_text(model, divided, "torch")
    compile(text, "plan.py", "exec")
    assert "with context_parallel(" in text
    assert 'mesh["data", "context"]._flatten("data_context")' in text
    words = replace(divided, axes=(*axes[:1], ("data", (1, 1)), *axes[2:]))
    assert "--overlap-param-gather" in settings_text(model, words, "megatron")


@pytest.mark.turns
def test_jax_shards_the_batch_over_parts_of_an_axis() -> None:
    crossed = (("pipe", (2, 1)), ("data", (2, 2)), ("model", (2, 4)))
    text = settings_text(_model(), replace(STAGED, axes=crossed), "jax")
    assert 'P(("data_0", "data_1"))' in text
    assert "--xla_gpu_all_reduce_combine_threshold_bytes=" in text
    assert "jax.checkpoint" in text


def test_schedules_that_a_framework_has_not_are_errors() -> None:
    for framework, schedule in (("megatron", "zb-h1"), ("torch", "zb-h2")):
        with pytest.raises(DiagnosticError, match="has no schedule"):
            settings_text(_model(), replace(STAGED, schedule=schedule, chunks=1), framework)


def _words(text: str, between: str) -> dict[str, str]:
    """Return the options of a command."""
    lines = [line.strip(" \\") for line in text.splitlines() if line.startswith("  ")]
    return {name: value for name, _, value in (line.partition(between) for line in lines)}


def test_torchtitan_and_nemo_have_all_degrees() -> None:
    words = _words(settings_text(_model(), STAGED, "torchtitan"), " ")
    assert all(is_of(TITAN, name.removeprefix("--"), value) for name, value in words.items())
    degrees = {name: f"--parallelism.{name}_parallel_degree" for name in ("tensor", "pipeline")}
    assert [words[name] for name in degrees.values()] == ["4", "2"]
    assert words["--parallelism.data_parallel_shard_degree"] == "4"
    assert words["--parallelism.pipeline_parallel_schedule"] == "Interleaved1F1B"
    assert words["--parallelism.pipeline_parallel_layers_per_stage"] == "2"
    assert (words["--training.local_batch_size"], words["--training.seq_len"]) == ("16", "8")
    words = _words(settings_text(_model(), STAGED, "nemo"), "=")
    assert all(is_of(NEMO, name, value) for name, value in words.items())
    assert words["trainer.strategy.virtual_pipeline_model_parallel_size"] == "2"
    assert (words["data.micro_batch_size"], words["data.global_batch_size"]) == ("2", "64")


def test_deepspeed_has_a_configuration() -> None:
    plain = replace(STAGED, schedule=UNSTAGED, chunks=1, zero=1)
    axes = (("pipe", (1, 1)), ("data", (4, 2)), ("model", (1, 4)))
    found = json.loads(settings_text(_model(), replace(plain, axes=axes), "deepspeed"))
    assert found.keys() <= DEEPSPEED
    sizes = found["train_micro_batch_size_per_gpu"], found["gradient_accumulation_steps"]
    assert math.prod(sizes) * 8 == found["train_batch_size"] == 64
    assert found["zero_optimization"]["stage"] == 1
    assert found["tensor_parallel"] == {"autotp_size": 4}
    for wrong in (replace(plain, axes=axes, zero=3), replace(STAGED, schedule="1f1b", chunks=1)):
        assert settings_text(_model(), wrong, "deepspeed").startswith("# DeepSpeed has no tensor")


@pytest.mark.turns
def test_configurations_are_measured_on_ranks() -> None:
    sizes = (("pipe", (1, 2)), ("data", (1, 2)), ("model", (1, 1)))
    configuration = Configuration(sizes, "pipe", 64, 2, "1f1b")
    [seconds] = measured_seconds(_model(), [configuration], "mpi4py", 1)
    assert seconds > 0
