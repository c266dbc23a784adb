"""A configuration in the words of Megatron-LM, PyTorch and JAX, and what it takes on real ranks."""

from dataclasses import replace
from pathlib import Path

import pytest

from collir.ir.diagnostics import DiagnosticError
from collir.synthesis.sweeping.configuration import Configuration
from collir.tools.machine import preset
from collir.tools.sweep_measure import measured_seconds
from collir.tools.sweep_model import Model
from collir.tools.sweep_settings import settings_text

EXAMPLE = Path(__file__).parents[2] / "examples" / "models" / "sweep.coll"
SIZES = {"batch": 64, "seq": 8, "hidden": 16, "heads": 4, "layers": 8, "vocab": 16}
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
    assert words[:5] == ["torchrun", "--nnodes", "4", "--nproc-per-node", "8"]
    flags = " ".join(words)
    for flag in (
        "--tensor-model-parallel-size 4",
        "--pipeline-model-parallel-size 2",
        "--num-layers-per-virtual-pipeline-stage 2",
        "--micro-batch-size 2",
        "--global-batch-size 64",
        "--recompute-granularity full",
        "--use-distributed-optimizer",
    ):
        assert flag in flags
    assert "--use-tp-pp-dp-mapping" not in flags
    assert "#" not in flags, "stages are outermost, and tensor parallelism is innermost"


def test_megatron_has_two_orders_of_ranks() -> None:
    swapped = (("pipe", (1, 2)), ("data", (4, 1)), ("model", (1, 4)))
    text = settings_text(_model(), replace(STAGED, axes=swapped), "megatron")
    assert "--use-tp-pp-dp-mapping" in text
    outside = (("pipe", (1, 2)), ("data", (1, 4)), ("model", (4, 1)))
    text = settings_text(_model(), replace(STAGED, axes=outside), "megatron")
    assert text.startswith("# Megatron-LM orders ranks otherwise: here they are model:4")


def test_a_divided_axis_is_flattened_in_pytorch() -> None:
    crossed = (("pipe", (2, 1)), ("data", (2, 2)), ("model", (2, 4)))
    text = settings_text(_model(), replace(STAGED, axes=crossed, zero=3), "fsdp")
    assert 'mesh_dim_names=("pipe", "data_0", "model_0", "data_1", "model_1")' in text
    assert 'mesh["data_0", "data_1"]._flatten("data")' in text
    assert "fully_shard" in text
    assert "ScheduleInterleaved1F1B(stage, 8, loss)" in text


def test_jax_shards_the_batch_over_parts_of_an_axis() -> None:
    crossed = (("pipe", (2, 1)), ("data", (2, 2)), ("model", (2, 4)))
    text = settings_text(_model(), replace(STAGED, axes=crossed), "jax")
    assert 'PartitionSpec(("data_0", "data_1"))' in text
    assert "jax.checkpoint" in text


def test_schedules_that_a_framework_has_not_are_errors() -> None:
    for framework, schedule in (("megatron", "zb-h1"), ("fsdp", "zb-h2")):
        with pytest.raises(DiagnosticError, match="has no schedule"):
            settings_text(_model(), replace(STAGED, schedule=schedule, chunks=1), framework)


@pytest.mark.turns
def test_configurations_are_measured_on_ranks() -> None:
    sizes = (("pipe", (1, 2)), ("data", (1, 2)), ("model", (1, 1)))
    configuration = Configuration(sizes, "pipe", 64, 2, "1f1b")
    [seconds] = measured_seconds(_model(), [configuration], "mpi4py", 1)
    assert seconds > 0
