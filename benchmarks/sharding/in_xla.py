"""Compile training steps with XLA's partitioner: ``python in_xla.py < steps.json > hlo.json``.

As benchmarks/models/xla/compile.py, for its steps and for those of models/in_jax. Nothing runs.
"""

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
from jax.sharding import AxisType

sys.path.insert(0, str(Path(__file__).parents[1] / "models" / "in_jax"))
sys.path.insert(0, str(Path(__file__).parents[1] / "models" / "xla"))
import compile as xla
from steps import STEPS


def sgd(name: str, rate: float | None) -> Callable[..., Sequence[jax.Array]]:
    """Return a step of gradient descent of a model, whose rate is its last argument or fixed."""
    loss = importlib.import_module(name).loss

    def step(*values: jax.Array) -> Sequence[jax.Array]:
        *others, last = values if rate is None else (*values, rate)
        wanted = tuple(range(2, len(others)))
        error, gradients = jax.value_and_grad(loss, wanted)(*others)
        return error, *(w - last * g for w, g in zip(others[2:], gradients, strict=True))

    return step


def main() -> None:
    """Compile the steps of the input."""
    asked = json.load(sys.stdin)
    sizes: dict[str, int] = asked["mesh"]
    left_to_xla = (AxisType.Auto,) * len(sizes)
    mesh = jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=left_to_xla)
    programs: dict[str, str] = {}
    for name, step in asked["steps"].items():
        if name not in STEPS:
            STEPS[name] = sgd(name, 0.01 if name == "mlp" else None)
        programs[name] = xla.compiled(mesh, name, step)
    partitioner = "Shardy" if jax.config.jax_use_shardy_partitioner else "GSPMD"
    answer = {"jax": jax.__version__, "partitioner": partitioner, "programs": programs}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
