"""The runs of ``collir sweep --measure N``: configurations on real ranks of this computer."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from collir.dialects.tensor import dist_type
from collir.ir.roles import argument_roles
from collir.semantics.reference.buffers import random_tensor
from collir.semantics.reference.executor import memory_needed
from collir.syntax.units import seconds_text
from collir.synthesis.propagation.propagate import make_explicit
from collir.synthesis.sweeping.configuration import Configuration
from collir.synthesis.sweeping.programs import named
from collir.targets.reports.text import table
from collir.tools.comparison import distributed
from collir.tools.engines import ENGINES
from collir.tools.memory import check_available
from collir.tools.sweep_model import Model
from collir.tools.sweep_search import ConfigurationNode

MEASURING = tuple(name for name, engine in ENGINES.items() if engine.is_timed)
"""The engines that measure."""


def measured_seconds(
    model: Model, configurations: Sequence[Configuration], engine: str, repeats: int
) -> Iterator[float]:
    """Yield the seconds of a step of each configuration: of its slowest rank in its best run.

    Raises:
        DiagnosticError: it does not fit the memory of this computer.
    """
    for configuration in configurations:
        module = model.compiled(configuration)
        make_explicit(module)
        function = named(module, model.step.function)
        check_available(memory_needed(function), function, "--measure")
        rng = np.random.default_rng(0)
        tensors = [
            random_tensor(dist_type(value), rng, role)
            for value, role in zip(function.args, argument_roles(function), strict=True)
        ]
        calls = [(function, distributed(function, tensors, rng))]
        with tempfile.TemporaryDirectory(prefix="collir-sweep-") as folder:
            [(_, seconds)] = ENGINES[engine].run(module, calls, Path(folder), repeats)
        yield seconds


def measured_text(nodes: Sequence[ConfigurationNode], seconds: Sequence[float], title: str) -> str:
    """Return a table of simulated and measured times, and what the choice of number 1 costs."""
    rows = [
        [str(number), seconds_text(node.time), seconds_text(own), f"{node.time / own - 1:+.1%}"]
        for number, (node, own) in enumerate(zip(nodes, seconds, strict=False), 1)
    ]
    lines = ["", f"  {title}", *table(["", "simulated", "measured", "error"], rows, 1)]
    fastest = min(range(len(seconds)), key=seconds.__getitem__)
    if fastest:
        more = seconds[0] / seconds[fastest] - 1
        lines.append(f"number {fastest + 1} is the fastest: number 1 takes {more:.1%} longer")
    return "\n".join([*lines[:2], *(f"  {line.rstrip()}" for line in lines[2:])]) + "\n"
