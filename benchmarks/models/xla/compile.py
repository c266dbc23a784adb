"""Compile training steps with XLA's partitioner: ``python compile.py < steps.json > hlo.json``.

The input has the sizes of the mesh, and for each step the shapes, the dtypes and the
``PartitionSpec`` of its arguments and results: null where XLA is to choose. The output has the text
of each program after XLA's passes. Nothing runs: arguments are shapes. The process of its own has
as many CPU devices as the mesh.
"""

import json
import sys
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from steps import STEPS


def compiled(mesh: Mesh, name: str, step: dict[str, Any]) -> str:
    """Return the program of a step for each device, as text."""

    def sharding(spec: list[list[str]] | None) -> NamedSharding | None:
        if spec is None:
            return None
        return NamedSharding(mesh, PartitionSpec(*(tuple(axes) or None for axes in spec)))

    arguments = [
        jax.ShapeDtypeStruct(shape, dtype, sharding=sharding(spec))
        for shape, dtype, spec in step["arguments"]
    ]
    results = tuple(sharding(spec) for spec in step["results"])
    lowered = jax.jit(STEPS[name], out_shardings=results).lower(*arguments)
    return lowered.compile().as_text() or ""


def main() -> None:
    """Compile the steps of the input."""
    asked = json.load(sys.stdin)
    sizes: dict[str, int] = asked["mesh"]
    left_to_xla = (AxisType.Auto,) * len(sizes)
    mesh = jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=left_to_xla)
    partitioner = "Shardy" if jax.config.jax_use_shardy_partitioner else "GSPMD"
    programs = {name: compiled(mesh, name, step) for name, step in asked["steps"].items()}
    answer = {"jax": jax.__version__, "partitioner": partitioner, "programs": programs}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
