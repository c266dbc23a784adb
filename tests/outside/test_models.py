"""Models in examples/models: loss and all gradients are those of plain torch, in f64."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from support.programs.model_pages import LIMITS, SMALL, inputs_of, page, with_gradients
from support.semantics.differentiated import on_all_devices, on_one_device

from collir.semantics.reference.double import in_double
from collir.synthesis.propagation.propagate import make_explicit

SIZES = {
    **SMALL,
    "styles": {"batch": 8, "seq": 8, "hidden": 32, "heads": 8, "layers": 2},
    "words": {"batch": 4, "seq": 8, "hidden": 16, "heads": 4, "layers": 2, "vocab": 24},
    "zero": {"batch": 64, "width": 64, "layers": 2},
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]


@pytest.mark.parametrize("name", SIZES)
def test_loss_and_gradients(name: str, tmp_path: Path) -> None:
    sizes = SIZES[name]
    module = page(name, **sizes)
    make_explicit(module)
    gradient, wrt = with_gradients(module, "loss")
    double, function = in_double(gradient)
    inputs = inputs_of(function, LIMITS.get(name, sizes.get("vocab", 2)), seed=1)
    ins, out = tmp_path / "in.npz", tmp_path / "out.npz"
    np.savez(ins, *inputs)
    words = [str(Path(__file__).with_name("in_torch.py")), name, str(ins), str(out)]
    subprocess.run([sys.executable, *words, ",".join(map(str, wrt))], check=True)
    with np.load(out) as data:
        expected = [data[f"arr_{n}"] for n in range(len(data.files))]
    for results in (on_all_devices(double, function, inputs), on_one_device(function, inputs)):
        for n, (a, b) in enumerate(zip(results, expected, strict=True)):
            assert a.shape == b.shape
            assert np.abs(a - b).max() <= 1e-12 * max(1e-3, np.abs(b).max()), n
