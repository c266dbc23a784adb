"""Compare predicted times of models on one device with those of their emitted jax.

``python benchmarks/device/truth.py measure f32 f32.json`` times the forward pass and the training
step of MLPs and GPTs (examples/models) of sizes that no calibration times, in f32 or f64.
``python benchmarks/device/truth.py compare times.txt f32.json ...`` fits a device to the times of
``collir calibrate --device --save times.txt``, and prints each prediction beside its time, the
errors and the rank correlation.
"""

import importlib
import json
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.calibration.device.calibration import calibrate_device, median_of
from collir.cost.calibration.device.times import parse_times
from collir.cost.programs.simulate import simulate
from collir.dialects.machine import DeviceAttr
from collir.syntax.writer import device_text
from collir.transforms.instantiation import instantiate

PAGES = Path(__file__).parents[2] / "examples" / "models"

MLPS = [
    dict(zip(("batch", "width", "layers"), sizes, strict=True))
    for sizes in (
        *((20, 112, 4), (56, 112, 12), (28, 176, 6), (88, 208, 4), (112, 352, 6), (352, 416, 4)),
        *((20, 720, 4), (176, 600, 4), (600, 720, 2), (40, 1200, 2), (352, 1200, 4), (20, 1400, 4)),
    )
]
GPTS = [
    dict(zip(("batch", "seq", "hidden", "heads", "layers", "vocab"), sizes, strict=True))
    for sizes in (
        *((1, 56, 112, 4, 2, 352), (2, 88, 112, 2, 2, 600), (4, 56, 176, 4, 2, 720)),
        *((2, 88, 208, 4, 3, 1200), (8, 88, 176, 4, 2, 1200), (1, 176, 416, 8, 2, 720)),
        *((4, 88, 352, 4, 2, 2400), (2, 352, 112, 2, 2, 720), (1, 352, 208, 4, 2, 1200)),
    )
]
CASES = [("mlp", sizes) for sizes in MLPS] + [("gpt", sizes) for sizes in GPTS]
FUNCTIONS = ("loss", "step")
ROUNDS, SECONDS = 3, 0.3
ANY_DEVICE = "compute f32 = 1 TFLOP/s, f64 = 1 TFLOP/s"


def page_of(name: str, dtype: str, sizes: dict[str, int], device: str) -> ModuleOp:
    """Return a model on one device; in a GPT, weights and their means stay in f32."""
    text = (PAGES / f"{name}.coll").read_text(encoding="utf-8").replace("bf16", dtype)
    text = re.sub(r"\bf32\b", dtype, text) if name == "mlp" else text
    levels = "level core[1] { port = 1 GB/s, latency = 1 us }"
    machine = f"machine @box {{ device {{ {device} }} {levels} }}"
    text = re.sub(r"machine @box = .*", machine, text)
    text = re.sub(r"mesh @m on @box .*", "mesh @m on @box { data = 1, model = 1 }", text)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.coll"
        file.write_text(text, encoding="utf-8")
        module = collir.parse(file)
    instantiate(module, sizes)
    return module


def measure(dtype: str, output: str) -> None:
    """Time all cases in rounds, and write the median and the least seconds of each."""
    import jax
    import numpy as np

    jax.config.update("jax_enable_x64", dtype == "f64")
    rng, runs = np.random.default_rng(0), list[tuple[Any, ...]]()
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        for number, (name, sizes) in enumerate(CASES):
            code = collir.emit(page_of(name, dtype, sizes, ANY_DEVICE), "jax")
            (Path(folder) / f"case_{number}.py").write_text(code, encoding="utf-8")
            module = importlib.import_module(f"case_{number}")
            for function in FUNCTIONS:
                run = getattr(module, function)
                arrays = [
                    rng.integers(0, sizes.get("vocab", 2), x.shape).astype(x.dtype)
                    if x.dtype.kind == "i"
                    else (0.02 * rng.random(x.shape) + (not x.shape)).astype(x.dtype)
                    for x in run.__wrapped__.types
                ]
                arrays = jax.device_put(arrays)
                jax.block_until_ready(run(*arrays))
                runs.append((name, sizes, function, run, arrays, []))
    for _ in range(ROUNDS):
        for *_, run, arrays, times in runs:
            jax.block_until_ready(run(*arrays))
            end = time.perf_counter() + SECONDS
            for _ in range(300):
                start = time.perf_counter()
                jax.block_until_ready(run(*arrays))
                times.append(time.perf_counter() - start)
                if time.perf_counter() > end:
                    break
    rows = [
        {
            "model": name,
            "dtype": dtype,
            "function": function,
            "sizes": sizes,
            "median_s": statistics.median(times),
            "least_s": min(times),
        }
        for name, sizes, function, *_, times in runs
    ]
    Path(output).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def compare(times: str, results: list[str]) -> None:
    """Print predictions beside measured times."""
    fitted = calibrate_device(parse_times(Path(times).read_text(encoding="utf-8"), times))
    device = device_text(DeviceAttr.of(fitted.device))
    held_back = median_of(fitted.errors(fitted.held_back))
    print(f"times held back from the fit: median error {held_back:.1%}\n")
    print("| model | type | function | sizes | measured | predicted | ratio |")
    print("|---|---|---|---|---|---|---|")
    rows = [row for file in results for row in json.loads(Path(file).read_text(encoding="utf-8"))]
    predicted: list[float] = []
    known: dict[str, dict[str, float]] = {}
    for row in rows:
        key = json.dumps([row["model"], row["dtype"], row["sizes"]])
        if key not in known:
            module = page_of(row["model"], row["dtype"], row["sizes"], device)
            known[key] = {one.name: one.time for one in simulate(module)}
        predicted.append(known[key][row["function"]])
        sizes = " x ".join(map(str, row["sizes"].values()))
        head = f"| {row['model']} | {row['dtype']} | {row['function']} | {sizes} "
        ratio = predicted[-1] / row["median_s"]
        print(f"{head}| {row['median_s']:.3e} s | {predicted[-1]:.3e} s | {ratio:.2f} |")
    print()
    for what in ("mlp", "gpt", ""):
        own = [(row, p) for row, p in zip(rows, predicted, strict=True) if what in row["model"]]
        errors = [p / row["median_s"] - 1 for row, p in own]
        rank = spearmanr([p for _, p in own], [row["median_s"] for row, _ in own])[0]
        print(
            f"{what or 'all'}: {len(own)} times, median error {median_of(errors):.1%}, the worst "
            f"{max(errors, key=abs):+.0%}, Spearman's rank correlation {rank:.4f}"
        )


if __name__ == "__main__":
    if sys.argv[1] == "measure":
        measure(*sys.argv[2:4])
    else:
        compare(sys.argv[2], sys.argv[3:])
