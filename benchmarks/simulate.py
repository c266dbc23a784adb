"""Measure the speed of simulations: ``python benchmarks/simulate.py``.

The program is a training step of a transformer of 96 layers. Parameters are sharded over the nodes
and gathered before each layer (ZeRO-3), activations are reduced over the GPUs of a node (Megatron),
and gradients are scattered after each layer, all while other layers run. The benchmark varies the
length of the program and the number of devices. Times are CPU seconds of this process, the best of
a few runs, without parsing and verification.
"""

import argparse
import time
from collections.abc import Callable

from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.model import CostModel, step_cost
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation

HIDDEN = 12288
TOKENS = 2048
RUNS = 3


def training_step(layers: int, nodes: int, gpus: int = 8, distinct: bool = False) -> str:
    """Return a training step as a program.

    With ``distinct``, no two layers have the same size.
    """
    forward, backward = [], []
    results: list[str] = []
    arguments: list[str] = []
    for layer in range(layers):
        rows = 12 * HIDDEN + (layer * gpus * nodes if distinct else 0)
        rows += -rows % (gpus * nodes)
        weights = f"bf16[{rows}@(model, data), {HIDDEN}]"
        arguments += [
            f"%w{layer}: {weights}",
            f"%g{layer}: bf16[{rows}@model, {HIDDEN}] partial(sum: data)",
        ]
        tokens = TOKENS + (layer if distinct else 0)
        activation = f"bf16[{tokens}, {HIDDEN}] partial(sum: model)"
        arguments += [f"%{name}{layer}: {activation}" for name in ("a", "m", "b", "n")]
        forward += [
            f"  %f{layer} = all_gather %w{layer} over data dim 0 async",
            f"  %x{layer} = all_reduce %a{layer} over model",
            f"  %y{layer} = all_reduce %m{layer} over model",
            f"  %s{layer} = scale %f{layer} by 0.5",
        ]
        backward += [
            f"  %u{layer} = all_reduce %b{layer} over model",
            f"  %v{layer} = all_reduce %n{layer} over model",
            f"  %r{layer} = reduce_scatter %g{layer} over data dim 0 async",
        ]
        results += [f"%r{layer}"]
    types = [argument.split(": ", 1)[1] for argument in arguments if argument.startswith("%w")]
    return "\n".join(
        [
            "machine @c {",
            "  device { memory = 80 GB @ 3.35 TB/s }",
            f"  level node[{nodes}] {{ port = 400 GB/s, latency = 10 us, rails = {gpus} }}",
            f"  level gpu[{gpus}] {{ port = 450 GB/s, latency = 2 us }}",
            "}",
            f"mesh @m on @c {{ data = node:{nodes}, model = gpu:{gpus} }}",
            f"func @step({', '.join(arguments)}) -> ({', '.join(types)}) on @m {{",
            *forward,
            *backward,
            f"  return {', '.join(results)}",
            "}",
        ]
    )


def best(work: Callable[[], object]) -> float:
    """Return the CPU seconds of the fastest of some runs, each with empty caches."""
    times: list[float] = []
    for _ in range(RUNS):
        step_cost.cache_clear()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def simulated(module: ModuleOp) -> Simulation:
    """Return the simulation of a module with one function, run to its end."""
    (simulation,) = simulate(module, CostModel("alpha-beta", order="written", algorithm="ring"))
    assert simulation.time and simulation.peak
    return simulation


def row(what: str, layers: int, nodes: int, gpus: int = 8, distinct: bool = False) -> float:
    """Print a line, and return the seconds per collective."""
    module = collir.parse(training_step(layers, nodes, gpus, distinct))
    simulation = simulated(module)
    seconds = best(lambda: simulated(module))
    sent = sum(step.sent is not None for step in simulation.steps)
    print(
        f"{what:34} {simulation.mesh.devices:9,} devices {sent:6,} collectives "
        f"{len(simulation.intervals):7,} events {1e3 * seconds:9.1f} ms "
        f"{sent / seconds:9,.0f} collectives/s  predicted {simulation.time:.3f} s",
        flush=True,
    )
    return seconds / sent


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=96, help="of the model (default: 96)")
    layers = parser.parse_args().layers
    row("a training step", layers, 512)
    row("no two layers alike", layers, 512, distinct=True)
    print("by the number of devices:")
    sizes = [(2, 4), (8, 8), (128, 8), (2048, 8), (131072, 8)]
    seconds = [row("", layers, nodes, gpus) for nodes, gpus in sizes]
    print(f"  the slowest takes {max(seconds) / min(seconds):.2f}x what the fastest does")
    print("by the length of the program:")
    seconds = [row("", count, 512) for count in (layers, 4 * layers, 16 * layers)]
    print(f"  a step of the longest takes {seconds[-1] / seconds[0]:.2f}x one of the shortest")


if __name__ == "__main__":
    main()
