"""How long a pipeline of a large model takes to cut and to simulate, and how much memory.

    python benchmarks/stages.py

The model is examples/models/pipeline.coll with the sizes of GPT-3 175B, on 512 devices: 16 stages,
4-way data and 8-way tensor parallel, 128 microbatches. DistIR's simulator runs some 30,000
operations a second, and has 1.26 million of them for one configuration of this model on 64 devices.
"""

import argparse
import resource
import time
from pathlib import Path

import collir

PROGRAM = Path(__file__).parents[1] / "examples" / "models" / "pipeline.coll"
SIZES = "batch=512,seq=2048,hidden=12288,heads=96,layers=96,vocab=51200"


def program(places: int) -> str:
    """Return the text of the program for 32 devices a stage."""
    text = PROGRAM.read_text(encoding="utf-8").replace("nodes = 4", f"nodes = {4 * places}")
    mesh = f"pipe = node:{places}, data = node:4, model = gpu:8"
    return text.replace("pipe = node:4, data = gpu:2, model = gpu:4", mesh)


def measured(places: int, microbatches: int, schedule: str) -> str:
    """Return a line with the times of one pipeline: CPU seconds to cut it, and to simulate it."""
    start = time.process_time()
    module = collir.parse(program(places))
    passes = f"pipeline{{microbatches={microbatches} schedule={schedule}}}"
    module = collir.run_passes(module, f'instantiate{{sizes="{SIZES}"}},{passes}')
    cut = time.process_time()
    [simulation] = [each for each in collir.simulate(module) if each.name == "step"]
    seconds, peak = simulation.time, simulation.peak
    end = time.process_time()
    steps = len(simulation.steps)
    return (
        f"{schedule:<12}{places:>4}{microbatches:>6}{seconds:>9.2f}{peak / 1e9:>8.1f}"
        f"{cut - start:>8.1f}{end - cut:>10.1f}{steps:>8,}{steps / (end - cut):>9,.0f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--places", type=int, default=16)
    arguments = parser.parse_args()
    print("schedule       P     K   step s      GB   cut s  simulate   steps  steps/s")
    for microbatches, schedule in (
        (128, "1f1b"),
        (128, "zb-h1"),
        (128, "interleaved"),
        (512, "1f1b"),
    ):
        print(measured(arguments.places, microbatches, schedule), flush=True)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"memory of this process: {memory:.0f} MB")


if __name__ == "__main__":
    main()
