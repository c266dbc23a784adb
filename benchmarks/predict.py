"""Predictions of the cost model beside measured times of MPI ranks on this computer.

The table has the strategies of ``decompose`` for ``examples/sync_gradients.coll``, on buffers of
several sizes and 8 ranks. Every level of the machine gets the links of ``@laptop``, because the
ranks communicate through memory.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, ModuleOp

import collir
from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.dialects.machine import DeviceAttr, LevelAttr, MachineOp, mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.machine import Device
from collir.semantics.reference.buffers import NUMPY, distribute, random_tensor
from collir.synthesis.programs.fixed import STRATEGIES
from collir.targets.reports.text import bytes_text, seconds_text, table
from collir.tools.machine import preset
from collir.tools.mpi_run import run
from collir.transforms.smaller import largest_dimension, resize

EXAMPLE = Path(__file__).parents[1] / "examples" / "sync_gradients.coll"
SIZES = (1 << 8, 1 << 14, 1 << 18, 1 << 21)
"""Sizes of the buffers in elements of f32: 1 KiB to 8 MiB."""

REPEATS = 20


def on_laptop(module: ModuleOp) -> None:
    """Give every level of every machine the links of ``@laptop``, in place."""
    laptop = preset("laptop").op.value()
    links = laptop.levels[0]
    for op in module.ops:
        if isinstance(op, MachineOp):
            levels = [level.value() for level in op.levels]
            op.properties["levels"] = ArrayAttr(
                [LevelAttr.of(replace(links, name=level.name, size=level.size)) for level in levels]
            )
            op.properties["device"] = DeviceAttr.of(laptop.device or Device())


def measured(module: ModuleOp) -> float:
    """Return the seconds of the best run of the first function on real ranks."""
    function = functions_of(module)[0]
    mesh, rng = mesh_of(function), np.random.default_rng(0)
    types = [dist_type(arg) for arg in function.args]
    inputs = [distribute(mesh, random_tensor(x, rng), x, rng) for x in types]
    assert all(x.dtype in NUMPY for x in types)
    with tempfile.TemporaryDirectory(prefix="predict-") as folder:
        [(_, seconds)] = run(module, [(function, inputs)], Path(folder), repeats=REPEATS)
    return seconds


def predictions() -> Iterator[str]:
    """Yield the lines of the table."""
    rows: list[list[str]] = []
    for elements in SIZES:
        for strategy in STRATEGIES:
            module = collir.parse(EXAMPLE)
            on_laptop(module)
            resize(module, {largest_dimension(module): elements})
            collir.run_passes(module, f"decompose{{strategy={strategy}}}")
            model = CostModel("alpha-beta", order="written", algorithm="runtime")
            predicted = simulate_function(functions_of(module)[0], model).time
            seconds = measured(module)
            ratio = f"{predicted / seconds:.2f}"
            rows.append(
                [
                    strategy,
                    bytes_text(4 * elements),
                    seconds_text(seconds),
                    seconds_text(predicted),
                    ratio,
                ]
            )
    yield f"sync_gradients on 8 MPI ranks, best of {REPEATS}, beside the prediction for @laptop"
    yield from table(["strategy", "bytes", "measured", "predicted", "predicted/measured"], rows, 1)


if __name__ == "__main__":
    print("\n".join(predictions()))
