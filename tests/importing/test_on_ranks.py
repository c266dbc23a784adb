"""Imported steps of architectures, sharded by `shard`, compute on 4 ranks what one device does."""

import re
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from support.harness.seeds import some
from support.importing.architectures import ALL, F32_ALONE, f64_by_default, small

from collir.importing.models.torch_models import import_torch
from collir.tools import collrun

BOX = """machine @cluster {
  device { compute f32 = 1 TFLOP/s, bf16 = 1 TFLOP/s, f64 = 1 TFLOP/s; memory = 16 GB @ 1 TB/s }
  level gpu[4] { port = 10 GB/s, latency = 2 us }
}"""


@pytest.mark.turns
@pytest.mark.parametrize("name", some(ALL, 1))
def test_a_step_on_ranks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, kwargs = small(name)
    precision = "f32" if name in F32_ALONE else ""
    with nullcontext() if precision else f64_by_default():
        imported = import_torch(
            module, (), kwargs, optimizer="sgd", mesh="x = gpu:2, y = gpu:2", precision=precision
        )
    text = imported.text
    head = next(line for line in text.splitlines() if line.startswith("machine @cluster"))
    monkeypatch.chdir(tmp_path)
    Path("step.coll").write_text(text.replace(head, BOX))
    words = ["step.coll", "-p", "shard", "--function", "step", "--engine", "mpi"]
    variances = re.findall(r"%(\w*running_var\w*): f(32|64)\[(\d+)\]", text)
    given = {name: np.full(int(size), 2, f"float{bits}") for name, bits, size in variances}
    for argument in imported.arguments:
        if argument.kind == "constant":
            parts = [imported.constants[path] for path in argument.of]
            given[argument.name] = np.stack(parts) if argument.layers else np.asarray(parts[0])
    for name, elements in given.items():  # random ones have no root, or divide by zero
        np.save(f"{name}.npy", elements)
        words += ["--input", f"{name}={name}.npy"]
    assert collrun.main(words) == 0
