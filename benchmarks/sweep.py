"""How long a sweep of a model takes: its kinds, its estimates and its simulations.

    python benchmarks/sweep.py [--devices 64,512,4096] [--model gpt3-small --devices 4,8]

The model is examples/models/sweep.coll with the sizes of GPT-3 175B and a batch of 1536 sequences,
or of GPT-3 small and a batch of 64, on DGX A100 of 80 GB, with tensor parallelism up to 16. Kinds
are programs that many configurations share; estimates are those of all configurations, once the
kinds are compiled. The simulations are those of the best five with two processes, by the clock; the
CPU seconds are those of all of it.

DistIR's simulator, run as published, takes 585 CPU seconds for 56 configurations of GPT-3 small on
4 and 8 devices (forward and backward passes of its own program of the model).
"""

import argparse
import resource
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from collir import search
from collir.synthesis.sweeping.estimates import ProgramKind, Rows, kind_of
from collir.synthesis.sweeping.groups import ConfigurationEstimate
from collir.synthesis.sweeping.ingredients import Costs
from collir.tools.machine import preset
from collir.tools.sweep_model import Model
from collir.tools.sweep_search import Sweep, bound_of, memory_margin

PROGRAM = Path(__file__).parents[1] / "examples" / "models" / "sweep.coll"
MODELS = {
    "gpt3-175b": {"batch": 1536, "seq": 2048, "hidden": 12288, "heads": 96, "layers": 96},
    "gpt3-small": {"batch": 64, "seq": 2048, "hidden": 768, "heads": 12, "layers": 12},
}
MEMORY = 80e9
DISTIR = 585 / 56
"""CPU seconds of DistIR's simulator for a configuration of GPT-3 small."""


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of those that it has waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="How long a sweep of a model takes.")
    parser.add_argument("--devices", default="64,512,4096")
    parser.add_argument("--model", choices=MODELS, default="gpt3-175b")
    arguments = parser.parse_args()
    sizes = MODELS[arguments.model]
    machine = preset("dgx_a100_80gb").op.value()
    text = PROGRAM.read_text(encoding="utf-8")
    model = Model(str(PROGRAM), text, "", tuple(sizes.items()), machine, "pipe")
    step = model.step
    print(
        "devices  configurations  kinds  compiled s  estimates s  per s  best  simulated s  CPU s"
    )
    for devices in map(int, arguments.devices.split(",")):
        degrees = {"model": (1, 2, 4, 8, 16)}
        space = replace(step.space(machine, (devices,)), degrees=degrees)
        began = cpu_seconds()
        configurations = list(space.configurations(Counter()))
        start = time.perf_counter()
        estimator = model.estimator(2)
        known: list[Costs | str] = []
        compile_kinds = estimator.costs

        def costs(asked: Sequence[tuple[ProgramKind, Rows]]) -> Iterable[Costs | str]:
            known.extend([] if known else compile_kinds(asked))  # noqa: B023 - called here alone
            return known  # noqa: B023

        estimator.costs = costs
        first = [*estimator.estimates(configurations)]
        both = time.perf_counter() - start
        start = time.perf_counter()
        _ = [*estimator.estimates(configurations)]
        again = time.perf_counter() - start
        entries = [
            (c, e)
            for c, e in first
            if isinstance(e, ConfigurationEstimate)
            and e.memory <= MEMORY * (1 + memory_margin(c, step.data[0]))
        ]
        entries.sort(key=lambda entry: bound_of(*entry))
        start = time.perf_counter()
        problem = Sweep(model, entries, MEMORY)
        found = search.k_best(problem, 5, order="best-first", workers=2).solutions
        simulated = time.perf_counter() - start
        took = cpu_seconds() - began
        best = found[0].node.time if found else 0
        kinds = len({kind_of(c, step.data[0]) for c in configurations})
        print(
            f"{devices:>7}{len(configurations):>16,}{kinds:>7}{both - again:>12.1f}{again:>13.2f}"
            f"{len(configurations) / again:>7,.0f}{best:>6.3g}{simulated:>13.1f}{took:>7.1f}",
            flush=True,
        )
        if arguments.model == "gpt3-small":
            ratio = DISTIR * len(configurations) / took
            print(
                f"  DistIR's simulator takes {ratio:.0f} times as long for as many configurations"
            )


if __name__ == "__main__":
    main()
