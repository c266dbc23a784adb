"""Measure the gain of chunks: ``python benchmarks/pipelines.py``, a part of ``make bench``.

The benchmark predicts an all_reduce on random machines of two and three levels. It compares the
cheapest program on the whole value with the best program in chunks, and with the lower bound for
any program: the time of the bytes on the busiest port. It also prints the CPU seconds of searches.
"""

import argparse
import random
import time
from statistics import geometric_mean, median

from collir.cost.model import CostModel
from collir.layout import Axis, DistType, DType, Factor, Mesh, Reduction
from collir.machine import Level, Machine
from collir.synthesis.programs.cheapest import Synthesis, synthesise

SIZES = (2**16, 2**22, 2**28)
"""Sizes of the value, in elements of f32."""


def random_mesh(rng: random.Random) -> Mesh:
    """Return a mesh with one axis over two or three levels of 2 to 8 children.

    Outer ports are not faster than inner ports.
    """
    sizes = [rng.choice([2, 4, 8]) for _ in range(rng.choice([2, 3]))]
    ports = sorted(10 ** rng.uniform(9.5, 11.5) for _ in sizes)
    latencies = sorted((10 ** rng.uniform(-6, -4.7) for _ in sizes), reverse=True)
    levels = tuple(
        Level(f"l{index}", size, port, latency)
        for index, (size, port, latency) in enumerate(zip(sizes, ports, latencies, strict=True))
    )
    axis = Axis.placed("data", [Factor(f"l{index}", size) for index, size in enumerate(sizes)])
    return Mesh("m", Machine("machine", levels), (axis,))


def search(mesh: Mesh, elements: int, model: CostModel, chunks: int) -> Synthesis:
    """Return the best programs of an all_reduce, in at most ``chunks`` chunks."""
    source = DistType.make(DType.F32, [elements], partial=mesh.by_name, reduction=Reduction.SUM)
    target = DistType.make(DType.F32, [elements])
    return synthesise(mesh, source, target, model, chunks=chunks)


def measure(machines: int, chunks: int, elements: int, algorithm: str) -> None:
    """Print the gain of chunks for a size."""
    rng = random.Random(1)
    model = CostModel("alpha-beta", order="written", algorithm=algorithm)
    gains: list[float] = []
    gaps: list[float] = []
    seconds: list[float] = []
    for _ in range(machines):
        mesh = random_mesh(rng)
        whole = search(mesh, elements, model, 1).candidates[0].time
        start = time.process_time()
        chunked = search(mesh, elements, model, chunks)
        seconds.append(time.process_time() - start)
        gains.append(whole / chunked.candidates[0].time)
        gaps.append(chunked.candidates[0].time / chunked.least)
    faster = sum(gain > 1.01 for gain in gains)
    print(
        f"{4 * elements / 1e6:8.1f} MB, {algorithm:8}: faster on {faster} of {machines} machines, "
        f"{geometric_mean(gains):.2f}x on average, {max(gains):.2f}x at most; "
        f"{median(gaps):.2f} times the bound (median); search {median(seconds) * 1e3:.0f} ms"
    )


def main() -> None:
    """Measure all sizes, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--machines", type=int, default=200)
    parser.add_argument("--chunks", type=int, default=64)
    given = parser.parse_args()
    for elements in SIZES:
        for algorithm in ("ring", "cheapest"):
            measure(given.machines, given.chunks, elements, algorithm)


if __name__ == "__main__":
    main()
