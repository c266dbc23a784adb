"""The search for the fastest configurations: all are estimated, those that may win are
simulated."""

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from multiprocessing import Pool
from pathlib import Path
from typing import NamedTuple

from collir.cost.programs.exposed import Spent
from collir.ir.diagnostics import DiagnosticError
from collir.search import Problem
from collir.synthesis.sweeping.configuration import PREFETCHED, WHOLE_GRADIENTS, Configuration
from collir.synthesis.sweeping.groups import ConfigurationEstimate
from collir.tools.deadline import Deadline
from collir.tools.sweep_model import Model, busiest, ignore_interrupts

ROOT, ESTIMATED, TIMED, SIMULATED = range(4)
"""The states of a node: nothing is known, its estimate, that of its schedule, its simulation."""


def time_margin(configuration: Configuration) -> float:
    """Return the part by which an estimate of a time may be too large.

    An estimate comes from a program of small sizes with eight microbatches; at other sizes
    `propagate` may decide otherwise.

    Estimates were above their simulations by at most: for 270 configurations of a perceptron on
    four and eight devices, 41 % with stages and one microbatch, 17 % with ZeRO-3 and divided
    sequences, 4.4 % with ZeRO-3 alone, and 0.6 % else; for 240 configurations of two GPTs, 5 % with
    stages and one microbatch, 4 % with stages and ZeRO-1, and 2.4 % else. No estimate was above for
    30 configurations of a GPT with 175 billion parameters.
    """
    if configuration.stages > 1 and configuration.microbatches == 1:
        return 0.45
    if configuration.zero >= PREFETCHED:
        return 0.2 if configuration.sequence else 0.05
    return 0.04 if configuration.stages > 1 and configuration.zero == WHOLE_GRADIENTS else 0.025


def memory_margin(configuration: Configuration, data: str) -> float:
    """Return the part by which an estimate of a memory may be too large.

    Estimates were above the simulations of the same perceptrons by at most 33 % where the axis of
    the batch has one device, as some copies of the program are not there; 56 % with stages and one
    or two microbatches, which hold fewer sums of gradients; 12 % with ZeRO-3; and 5 % else.

    Args:
        data: the axis of the batch.
    """
    if configuration.stages > 1 and configuration.microbatches < 3:
        return 0.6
    if configuration.degrees[data] == 1:
        return 0.4
    return 0.15 if configuration.zero >= PREFETCHED else 0.05


def bound_of(configuration: Configuration, estimate: ConfigurationEstimate) -> float:
    """Return seconds that the simulation of a configuration is not under."""
    return estimate.time / (1 + time_margin(configuration))


class ConfigurationNode(NamedTuple):
    """A node of the search: a configuration, and what is known of it.

    Attributes:
        number: its number among the estimates.
        time: seconds; a bound before it is simulated.
        memory: bytes of a device.
        spent: how a device of the busiest stage spends its time, if it is simulated.
    """

    state: int
    number: int = -1
    time: float = 0.0
    memory: float = 0.0
    spent: Spent | None = None


@dataclass(frozen=True)
class Sweep(Problem[ConfigurationNode]):
    """The search for the configuration that fits and has the least simulated time per step.

    Configurations are nodes in the order of their estimates. Below each there is one node with the
    estimate of its schedule, and below that one with its simulation, if it fits into memory.

    Attributes:
        entries: the configurations with their estimates, those with the least bound first.
        memory: bytes of a device.
        deadline: when simulations end, but for the first one, so that there is one.
        failures: a file to which workers of this computer add the number of a configuration that
            has no program after all, and why; empty: none.
    """

    model: Model
    entries: Sequence[tuple[Configuration, ConfigurationEstimate]]
    memory: float
    deadline: Deadline = field(default_factory=Deadline.never)
    failures: str = ""

    sense = "min"
    sorted_by_bound = True

    def root(self) -> ConfigurationNode:
        """Return the node above all configurations."""
        return ConfigurationNode(ROOT)

    def children(self, node: ConfigurationNode) -> Iterator[ConfigurationNode]:
        """Yield what is known next."""
        if node.state == ROOT:
            for number, entry in enumerate(self.entries):
                yield ConfigurationNode(ESTIMATED, number, bound_of(*entry))
        elif node.state == ESTIMATED:
            configuration, estimate = self.entries[node.number]
            bound = estimate.timed() / (1 + time_margin(configuration))
            yield ConfigurationNode(TIMED, node.number, bound)
        elif node.state == TIMED and (simulated := self.simulated(node.number)) is not None:
            yield simulated

    def simulated(self, number: int) -> ConfigurationNode | None:
        """Return the node of a configuration that is simulated; None if it does not fit, or the
        time is over."""
        configuration, _ = self.entries[number]
        try:
            with self.deadline.ends() if number else nullcontext():
                simulation = self.model.simulated(configuration)
        except TimeoutError:
            return None
        except DiagnosticError as error:
            if self.failures and Path(self.failures).parent.exists():
                with Path(self.failures).open("a", encoding="utf-8") as file:
                    file.write(f"{number} {error.diagnostics[0].message}\n")
            return None
        if simulation.peak > self.memory:
            return None
        busy = busiest(simulation)
        return ConfigurationNode(SIMULATED, number, simulation.time, simulation.peak, busy)

    def front(
        self, known: Sequence[ConfigurationNode], workers: int, executor: Executor | None = None
    ) -> list[ConfigurationNode]:
        """Return the front of time against memory, fastest first: the configurations such that no
        other known one is better in one and no worse in the other.

        Configurations on the front of the estimates are simulated, too, unless they are already.
        """
        times = ((e.time, e.memory, n) for n, (_, e) in enumerate(self.entries))
        done = {node.number for node in known}
        asked = [number for _, _, number in _undominated(times) if number not in done]
        if executor is not None:
            results = [*executor.map(self.simulated, asked)]
        else:
            with Pool(workers, ignore_interrupts) as pool:  # which ends them, also on Ctrl-C
                results = pool.map(self.simulated, asked, chunksize=1)
        nodes = {node.number: node for node in (*known, *results) if node is not None}
        points = ((node.time, node.memory, node.number) for node in nodes.values())
        return [nodes[number] for _, _, number in _undominated(points)]

    def objective(self, node: ConfigurationNode) -> float | None:
        """Return the simulated seconds."""
        return node.time if node.state == SIMULATED else None

    def bound(self, node: ConfigurationNode) -> float:
        """Return seconds that no simulation at or below a node is under."""
        return node.time

    def identity(self) -> tuple[object, ...]:
        """Return what a checkpoint is of."""
        model = replace(self.model, path="")
        return repr(model), tuple(c for c, _ in self.entries), self.memory


def _undominated(points: Iterable[tuple[float, float, int]]) -> Iterator[tuple[float, float, int]]:
    """Yield the points, a time, a memory and a number, that no other one is better than in both."""
    least = math.inf
    for time, memory, number in sorted(points):
        if memory < least:
            least = memory
            yield time, memory, number
