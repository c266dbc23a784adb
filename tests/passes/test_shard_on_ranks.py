"""Training steps whose layouts were searched compute what a single device does, on all devices in
numpy and on real ranks.

The steps are those of examples/models, with all layouts taken out. At small sizes a usual network
is so slow that every device had better compute all alone. The network here is faster than memory,
and its speeds are random: each seed has other best layouts.
"""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support.harness.seeds import fresh
from support.programs.model_pages import LIMITS, PAGES, inputs_of, page
from support.semantics.differentiated import on_all_devices, on_one_device
from support.semantics.single_device import sent, single_device
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.ir.functions import functions_of
from collir.semantics.reference.double import in_double
from collir.tools import collrun

MODELS = ["mlp", "switch", "vit", "gpt", "bert", "llama", "mixtral", "vgg19", "resnet50"]
QUICK = ["mlp", "switch"]

MACHINE = """
machine @box {{
  device {{ compute bf16 = 1 GFLOP/s, f32 = 1 GFLOP/s; memory = 40 GB @ 1 GB/s }}
  level node[2] {{ port = {outer} GB/s, latency = 10 ns }}
  level gpu[4] {{ port = {inner} GB/s, latency = 10 ns }}
}}
mesh @m on @box {{ outer = node:2, inner = gpu:4 }}
"""


def _sizes(name: str) -> dict[str, int]:
    """Return the small sizes that the head of a page says for `collrun`."""
    head = (PAGES / f"{name}.coll").read_text("utf-8").split("machine @")[0]
    found = re.findall(r"--set-size (\w+)=(\d+)", head[head.index("collrun") :])
    return {size: int(value) for size, value in found}


@cache
def _whole(name: str) -> ModuleOp:
    """Return the training step of a model on a single device, and the mesh of eight."""
    text = str(collir.emit(single_device(page(name, **_sizes(name))), "coll"))
    rng = fresh("on ranks", name)
    speeds = {level: f"{10 ** rng.uniform(1, 3):.0f}" for level in ("outer", "inner")}
    return collir.parse(MACHINE.format(**speeds) + text[text.index("func @") :])


@cache
def _divided(name: str) -> ModuleOp:
    """Return the same step in the best layouts."""
    return collir.run_passes(_whole(name).clone(), "shard{limit=20}")


def _some(models: list[str]) -> list[object]:
    return [
        pytest.param(name, marks=[] if name in models else [pytest.mark.slow]) for name in MODELS
    ]


@pytest.mark.turns
@pytest.mark.parametrize("name", _some(QUICK))
def test_all_devices_compute_what_one_does(name: str) -> None:
    (whole,), (divided,) = functions_of(_whole(name)), functions_of(_divided(name))
    assert sent(divided), "it is divided"
    _, alone = in_double(whole)
    module, function = in_double(divided)
    tensors = inputs_of(function, LIMITS.get(name, 2))
    expected = on_one_device(alone, tensors)
    for x, y in zip(on_all_devices(module, function, tensors), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-10)


@pytest.mark.turns
@pytest.mark.parametrize("engine", ["mpi4py", "jax", "torch"])
@pytest.mark.parametrize("name", _some(["mlp"]))
def test_ranks_compute_what_numpy_does(
    name: str, engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if engine != "mpi4py":
        pytest.importorskip(engine)
    path = tmp_path / f"{name}.coll"
    path.write_text(str(collir.emit(_divided(name), "coll")), "utf-8")
    status = collrun.main(["--engine", engine, "--function", "step", str(path)])
    printed = capsys.readouterr()
    assert status == 0, printed.out + printed.err
    assert "buffers are equal" in printed.out
