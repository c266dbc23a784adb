"""How long a sweep of a large model takes: its kinds, its estimates and its simulations.

    python benchmarks/sweep.py [--devices 64,512,4096]

The model is examples/models/sweep.coll with the sizes of GPT-3 175B and a batch of 1536 sequences,
on DGX A100 of 80 GB, with tensor parallelism up to 16. Kinds are programs that many configurations
share; estimates are those of all configurations, once the kinds are compiled.
"""

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from collir.synthesis.sweeping.estimates import Kind, Rows, kind_of
from collir.synthesis.sweeping.groups import Estimate
from collir.synthesis.sweeping.ingredients import Costs
from collir.synthesis.sweeping.space import Space
from collir.tools.machine import preset
from collir.tools.sweep_model import Model

PROGRAM = Path(__file__).parents[1] / "examples" / "models" / "sweep.coll"
SIZES = {"batch": 1536, "seq": 2048, "hidden": 12288, "heads": 96, "layers": 96}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default="64,512,4096")
    arguments = parser.parse_args()
    machine = preset("dgx_a100_80gb").op.value()
    text = PROGRAM.read_text(encoding="utf-8")
    model = Model(str(PROGRAM), text, "", tuple(SIZES.items()), machine, "pipe")
    step = model.step
    print("devices  configurations  kinds  compiled s  estimates s  per s  least estimate")
    for devices in map(int, arguments.devices.split(",")):
        degrees = {"model": (1, 2, 4, 8, 16)}
        space = Space(machine, step.axes, step.data, "pipe", (devices,), 1536, 96, degrees=degrees)
        configurations = list(space.configurations(Counter()))
        start = time.perf_counter()
        estimator = model.estimator(2)
        known: list[Costs | str] = []
        compile_kinds = estimator.costs

        def costs(asked: Sequence[tuple[Kind, Rows]]) -> Iterable[Costs | str]:
            known.extend([] if known else compile_kinds(asked))  # noqa: B023 - called here alone
            return known  # noqa: B023

        estimator.costs = costs
        first = [*estimator.estimates(configurations)]
        both = time.perf_counter() - start
        start = time.perf_counter()
        _ = [*estimator.estimates(configurations)]
        again = time.perf_counter() - start
        fits = [e.time for _, e in first if isinstance(e, Estimate) and e.memory <= 80e9]
        kinds = len({kind_of(c, step.data) for c in configurations})
        print(
            f"{devices:>7}{len(configurations):>16,}{kinds:>7}{both - again:>12.1f}{again:>13.2f}"
            f"{len(configurations) / again:>7,.0f}{min(fits, default=0):>14.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
