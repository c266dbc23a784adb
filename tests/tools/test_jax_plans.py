"""What `--settings jax` prints, run on devices of the CPU: gradients are those of one device, and
XLA sends what the sweep counts."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("jax")

from support.harness.seeds import some
from support.tools.jax_plans import SIZES
from support.tools.swept import GPT
from xdsl.ir import Block

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp, is_collective
from collir.dialects.tensor import dist_type
from collir.synthesis.sweeping.configuration import Configuration
from collir.synthesis.sweeping.programs import named
from collir.tools.sweep_settings import settings_text

SUPPORT = Path(__file__).parents[1] / "support" / "tools"

AXES = {"pipe": (1, 1), "data": (1, 2), "model": (1, 4)}
PLAIN = Configuration(tuple(AXES.items()), "pipe", SIZES["batch"], 1)


def sent(block: Block, times: int = 1) -> int:
    """Return the elements that the collectives of a program make."""
    total = 0
    for op in block.ops:
        if isinstance(op, RepeatOp):
            total += sent(op.body.block, times * int(op.times))
        elif isinstance(op, DistOp) and is_collective(op):
            total += times * math.prod(dist_type(op.result).local_shape(mesh_of(op)))
    return total


@pytest.mark.turns
@pytest.mark.parametrize(
    ("configuration", "is_all"),
    some(
        [
            (PLAIN, True),
            (replace(PLAIN, recompute=True, microbatches=2, zero=1), False),
            (replace(PLAIN, zero=3), False),
            (replace(PLAIN, sequence=("model",)), False),
            (replace(PLAIN, axes=tuple((AXES | {"model": (1, 1)}).items())), True),
        ],
        1,
    ),
)
def test_plans_send_no_more(configuration: Configuration, is_all: bool, tmp_path: Path) -> None:
    model = GPT._replace(sizes=SIZES).model
    path = tmp_path / "plan.py"
    path.write_text(settings_text(model, configuration, "jax"))
    command = [sys.executable, str(SUPPORT / "jax_plans.py"), str(path)]
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | flags
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["gradients"] < 1e-12
    if is_all:  # else the sweep has microbatches, or the optimiser's collectives too
        step = named(model.compiled(configuration), model.step.function)
        right = sent(step.body.block) + _not_added_first(configuration)
        assert sum(found["elements"].values()) <= right


def _not_added_first(configuration: Configuration) -> int:
    """Return what XLA sends more on CPUs, where it has no pass that reduces a sum of partial values
    once: gradients of the input of queries, keys and values, and of the table, which is used twice.
    """
    degrees = configuration.degrees
    value = math.prod(SIZES[name] for name in ("batch", "seq", "hidden")) // degrees["data"]
    table = SIZES["vocab"] * SIZES["hidden"] // degrees["model"]
    return table + 2 * SIZES["layers"] * value * (degrees["model"] > 1)
