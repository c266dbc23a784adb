"""Compare the code of ``-t jax`` with a ``shard_map`` that was written by hand, on 8 CPU devices.

``python benchmarks/models/emitted_jax.py`` prints for a training step of an MLP and of a GPT, in
f32, the best times of both, run in turns, their ratio, and the largest difference of a result,
relative to its largest element.
"""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import importlib
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import collir
from collir.transforms.instantiation import instantiate

HERE = Path(__file__).parent
PAGES = HERE.parents[1] / "examples" / "models"

SIZES = {
    "mlp": {"batch": 256, "width": 512, "layers": 8},
    "gpt": {"batch": 8, "seq": 64, "hidden": 256, "heads": 8, "layers": 4, "vocab": 1024},
}
RUNS = 30


def emitted(name: str, folder: Path) -> Any:
    """Return the emitted module of a page in f32."""
    page = folder / f"{name}.coll"
    page.write_text((PAGES / page.name).read_text(encoding="utf-8").replace("bf16", "f32"))
    module = collir.parse(page)
    instantiate(module, SIZES[name])
    (folder / f"emitted_{name}.py").write_text(collir.emit(module, "jax"), encoding="utf-8")
    return importlib.import_module(f"emitted_{name}")


def by_hand(name: str, mesh: Any) -> Any:
    """Return the step of a model that was written by hand."""
    module = importlib.import_module(name)
    out = jax.P()
    loss = jax.shard_map(module.loss, mesh=mesh, in_specs=module.SPECS, out_specs=out)
    return jax.jit(partial(module.step, loss))


def inputs_of(types: Any, shardings: Any) -> list[Any]:
    """Return small numbers of some types."""
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(0, 1024, x.shape).astype(x.dtype)
        if x.dtype.kind == "i"
        else np.abs(rng.normal(0.1, 0.05, x.shape) if x.shape else np.float32(8)).astype(x.dtype)
        for x in types
    ]
    return jax.device_put(arrays, list(shardings))


def distance(a: Any, b: Any) -> float:
    """Return the largest difference of two arrays, relative to the largest element."""
    a, b = np.asarray(a), np.asarray(b)
    return float(np.abs(a - b).max() / np.abs(b).max())


def seconds(step: Any, inputs: list[Any]) -> float:
    """Return the time of a run."""
    start = time.perf_counter()
    jax.block_until_ready(step(*inputs))
    return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    sys.path.insert(0, str(HERE / "in_shard_map"))
    print("| step | emitted | by hand | ratio | largest difference |\n|---|---|---|---|---|")
    for name in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            sys.path.insert(0, folder)
            module = emitted(name, Path(folder))
            mine, hand = module.step, by_hand(name, module.mesh)
            types = mine.__wrapped__.types
            shardings = mine.lower(*types).compile().input_shardings[0]
            inputs = inputs_of(types, shardings)
            pairs = zip(mine(*inputs), hand(*inputs), strict=True)
            difference = max(map(distance, *zip(*pairs, strict=True)))
            times = [(seconds(mine, inputs), seconds(hand, inputs)) for _ in range(RUNS)]
            own, other = (min(pair[n] for pair in times) * 1e3 for n in range(2))
            ratio = f"{own / other:.2f}"
            print(f"| {name} | {own:.1f} ms | {other:.1f} ms | {ratio} | {difference:.1e} |")


if __name__ == "__main__":
    main()
