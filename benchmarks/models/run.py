"""Measure models: ``python benchmarks/models/run.py``.

The first table has a training step of GPT-3 175B on 4,096 devices: seconds of CPU and peak memory
to read it, to differentiate it and to simulate it, and the same with other numbers of layers and
of devices. Each row is a process of its own; the time to start Python is not counted.

The second table has the lines of each page in examples/models beside those of the same model in
jax (in_jax/), without blank lines and comments, and those of the loss alone, as the files in jax.
"""

import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import collir
from collir.tools.functions import keep_functions

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "examples" / "models"

SIZES = [(96, 512), (96, 8), (24, 512), (960, 512), (96, 65536)]
"""Layers, and nodes of eight devices."""


def step(layers: int, nodes: int) -> str:
    """Return the text of a training step of GPT-3 on nodes of eight devices."""
    text = (PAGES / "gpt3.coll").read_text(encoding="utf-8")
    for old, new in (
        ("nodes = 512", f"nodes = {nodes}"),
        ("node:512", f"node:{nodes}"),
        ("layers = 96", f"layers = {layers}"),
        ("batch = 1536", f"batch = {3 * nodes}"),
    ):
        assert old in text
        text = text.replace(old, new)
    return text


def measure(layers: int, nodes: int) -> dict[str, float]:
    """Return the seconds of each part, the peak of memory in MB, and what the simulation says."""
    times = [time.process_time()]
    module = collir.parse(step(layers, nodes), str(PAGES / "gpt3.coll"))
    times.append(time.process_time())
    keep_functions(module, ["gpt3"])
    collir.run_passes(module, "differentiate")
    keep_functions(module, ["gpt3"])
    times.append(time.process_time())
    simulations = collir.simulate(module)
    times.append(time.process_time())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    names = ("parse", "differentiate", "simulate")
    parts = {name: b - a for name, a, b in zip(names, times, times[1:], strict=False)}
    return {**parts, "peak": peak, "step": simulations[0].time}


def lines(text: str) -> int:
    """Return the number of lines that are neither blank nor comments."""
    text = re.sub(r'""".*?"""', "", text, flags=re.DOTALL)
    return sum(bool(re.sub(r"(//|#).*", "", line).strip()) for line in text.splitlines())


def model_lines(page: str) -> int:
    """Return the lines of a page up to the loss: machine, mesh, functions of the model."""
    return lines(re.split(r"// A step of ", page)[0])


def main() -> None:
    """Print both tables."""
    print("layers  devices   parse  differentiate  simulate     all     peak  a step takes")
    for layers, nodes in SIZES:
        command = [sys.executable, __file__, str(layers), str(nodes)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        row = json.loads(printed)
        parts = [row[name] for name in ("parse", "differentiate", "simulate")]
        print(
            f"{layers:6}  {8 * nodes:7}  {parts[0]:4.2f} s  {parts[1]:11.2f} s  {parts[2]:6.2f} s"
            f"  {sum(parts):4.2f} s  {row['peak']:4.0f} MB  {row['step']:.3g} s"
        )
    print("\nmodel   lines of the page  of the model in it  in jax")
    for path in sorted((Path(__file__).parent / "in_jax").glob("*.py")):
        page = (PAGES / f"{path.stem}.coll").read_text(encoding="utf-8")
        own = lines(path.read_text(encoding="utf-8"))
        print(f"{path.stem:8}{lines(page):17}{model_lines(page):20}{own:8}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
    else:
        main()
