"""What `--settings torch` prints, run on ranks: losses and gradients are those of one process, and
collectives are those that the sweep counts."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from support.harness.hanging import HANG
from support.harness.seeds import some
from support.tools.torch_plans import config_of
from xdsl.ir import Block

from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.layout.coll import ALL_REDUCE
from collir.synthesis.sweeping.configuration import Configuration
from collir.synthesis.sweeping.dividing import division_of
from collir.synthesis.sweeping.programs import named
from collir.tools.collir import main
from collir.tools.machine import preset
from collir.tools.sweep_model import Model, step_of
from collir.tools.sweep_settings import settings_text

SUPPORT = Path(__file__).parents[1] / "support" / "tools"

PLAIN = Configuration((("pipe", (1, 1)), ("data", (1, 2)), ("model", (1, 2))), "pipe", 8, 1, zero=0)
COPIED = (("pipe", (1, 1)), ("replica", (1, 2)), ("data", (1, 2)), ("model", (1, 1)))
SHARDED = replace(PLAIN, microbatches=4, recompute=True, zero=3)


def imported(name: str, folder: Path, added: tuple[str, ...] = ()) -> Model:
    """Return a small model with a training step."""
    (folder / "config.json").write_text(json.dumps(config_of(name)))
    path = folder / f"{name}.coll"
    words = [] if name == "vit" else ["--seq", "16"]
    options = ["--batch", "8", *words, "--optimizer", "adamw", "-o", str(path)]
    assert main(["import", "hf", str(folder), *options]) == 0
    return of_file(path, added)


def of_file(path: Path, added: tuple[str, ...] = ()) -> Model:
    """Return the model of a file, with tensor parallelism and more axes."""
    text = path.read_text()
    division = division_of(step_of(str(path), text, "", (), "pipe"), "model")
    machine = preset("dgx_h100").op.value()
    return Model(str(path), text, "", (), machine, "pipe", division, added)


def run(model: Model, name: str, configuration: Configuration, folder: Path) -> dict[str, Any]:
    """Run the plan of a configuration, and return what is printed."""
    plan = folder / "plan.py"
    plan.write_text(settings_text(model, configuration, "torch"))
    command = [sys.executable, str(SUPPORT / "torch_plans.py"), str(plan), name]
    command += [str(configuration.microbatches), str(configuration.devices)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def reduced(block: Block, times: int, layers: int, inside: bool) -> Iterator[int]:
    """Yield how often each all_reduce over `model` in the layers runs."""
    for op in block.ops:
        if isinstance(op, RepeatOp):
            is_layer = inside or op.times == layers
            yield from reduced(op.body.block, times * op.times, layers, is_layer)
        elif inside and isinstance(op, DistOp) and op.kind is ALL_REDUCE:
            yield times * ("model" in str(op.properties["axes"]))


@pytest.mark.turns
@pytest.mark.parametrize(
    ("name", "configuration"),
    some(
        [
            ("llama", SHARDED),
            ("llama", PLAIN),
            ("llama", replace(SHARDED, zero=1, recompute=False)),
            ("llama", replace(SHARDED, zero=2)),
            ("llama", replace(SHARDED, axes=COPIED, microbatches=2)),
            ("bert", SHARDED),
            ("vit", PLAIN),
            ("gpt2", SHARDED),
            ("qwen2_moe", SHARDED),
        ],
        1,
    ),
)
def test_plans_compute_the_same(name: str, configuration: Configuration, tmp_path: Path) -> None:
    added = tuple(axis for axis in configuration.degrees if axis == "replica")
    model = imported(name, tmp_path, added)
    found = run(model, name, configuration, tmp_path)
    exact = 1e-12 if name != "qwen2_moe" and not added else 1e-5  # losses are of f32
    assert found["loss"] < exact and found["gradients"] < exact
    if name == "llama":  # an output layer reduces the gradient of its input too
        step = named(model.compiled(configuration), model.step.function)
        in_layers = sum(reduced(step.body.block, 1, 2, False))
        data = 3 * (configuration.zero == 0)
        tensor = in_layers + configuration.microbatches * (configuration.degrees["model"] > 1)
        copies = 3 * configuration.microbatches * bool(added)
        assert found["counts"]["all_reduce"] == tensor + data + copies


@pytest.mark.slow
@pytest.mark.parametrize(("schedule", "chunks"), [("1f1b", 1), ("interleaved", 2)])
def test_stages_compute_the_same(schedule: str, chunks: int, tmp_path: Path) -> None:
    path = tmp_path / "perceptron.coll"
    options = ["--args", "f32[8, 32]", "target=f32[8, 32]", "--optimizer", "sgd", "-o", str(path)]
    module = f"{SUPPORT / 'torch_plans.py'}:Perceptron"
    assert main(["import", "torch", module, *options]) == 0
    axes = (("pipe", (1, 2)), ("data", (1, 2)), ("model", (1, 1)))
    staged = replace(PLAIN, axes=axes, microbatches=4, schedule=schedule, chunks=chunks, zero=1)
    found = run(of_file(path), "perceptron", staged, tmp_path)
    assert found["loss"] < 1e-12 and found["gradients"] < 1e-12
