"""A profile that JAX writes of a step on 4 devices of a CPU."""

import atexit
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from support.harness.hanging import HANG

DEVICES = 4
STEPS = 2

_PROGRAM = """
import sys
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
mesh = jax.make_mesh((4,), ("x",))
def loss(w, x):
    return jnp.mean((x @ w) ** 2)
step = jax.jit(lambda w, x: w - jax.grad(loss)(w, x),
               out_shardings=NamedSharding(mesh, PartitionSpec()))
w = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, PartitionSpec()))
x = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, PartitionSpec("x")))
jax.block_until_ready(step(w, x))
with jax.profiler.trace(sys.argv[1]):
    for i in range(int(sys.argv[2])):
        with jax.profiler.StepTraceAnnotation("train", step_num=i):
            w = jax.block_until_ready(step(w, x))
"""


@cache
def xla_profile() -> Path:
    """Return the profile: a data-parallel step, each one with an all_reduce of gradients."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    flags = f"--xla_force_host_platform_device_count={DEVICES}"
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, folder.name, str(STEPS)], check=False, timeout=HANG,
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}, capture_output=True,
        text=True,
    )  # fmt: skip
    assert not done.returncode, done.stderr[-2000:]
    [path] = Path(folder.name).glob("plugins/profile/*/*.trace.json.gz")
    return path
