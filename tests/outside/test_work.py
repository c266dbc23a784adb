"""FLOPs and bytes are those of XLA's cost analysis, but for what is explained here."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

WORK = Path(__file__).with_name("work.py")

FLOPS = {
    "sigmoid": 3 / 4,  # no negation
    "silu": 4 / 5,
    "gelu": 8 / 9,
    "add": 0,  # steps of any program, which wait for memory
    "scale": 0,
    "layer_norm": 8 / 7,  # the root for each element, not for each row
    "rms_norm": 5 / 4,
    "conv": 1.043,  # products with the padding, which papers count too
    "conv_transpose": 1.043,
    "conv_filter": 1.043,
    "max_pool": 4 / 3,  # a window of 4 has 3 comparisons
    "take_transpose": 0.955,  # XLA counts positions
    "vgg19": 1.126,
}
"""The quotients of collir's operations by XLA's."""

OTHERWISE = {"cumsum", "argmax", "top_k", "take", "one_hot"}
"""Operations whose work in XLA is that of its kernels: windows, pairs, custom calls."""

BYTES = {*OTHERWISE, "take_transpose", "cross_entropy", "conv_transpose", "conv_filter"}
"""Operations that XLA makes of several kernels, or that read parts of their operands."""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
def test_work_is_that_of_xla() -> None:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "ignore", str(WORK), "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    rows: dict[str, list[float]] = json.loads(done.stdout)
    models = {"mlp", "gpt", "llama", "bert", "vit", "vgg19"}
    assert models < rows.keys()
    for name, (flops, moved, their_flops, their_bytes) in rows.items():
        if name not in OTHERWISE:
            expected = FLOPS.get(name, 1) * their_flops
            assert flops == pytest.approx(expected, rel=0.02, abs=1), name
        if name not in BYTES | models:
            assert moved == pytest.approx(their_bytes, rel=0.01), name
