"""The search for the fastest configurations: estimates first, simulations of those that may win."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from multiprocessing import Pool
from typing import NamedTuple

from collir.cost.programs.exposed import Spent
from collir.ir.diagnostics import DiagnosticError
from collir.search import Problem
from collir.synthesis.sweeping.configuration import CONTEXT, WHOLE_GRADIENTS, Configuration
from collir.synthesis.sweeping.groups import Estimate
from collir.tools.deadline import Deadline
from collir.tools.sweep_model import Model, busiest, ignore_interrupts

ROOT, ESTIMATED, TIMED, SIMULATED = range(4)
"""The states of a node: nothing is known, its estimate, that of its schedule, its simulation."""


def time_margin(configuration: Configuration) -> float:
    """Return the part by which an estimate of a time may be too large: its program is that of small
    sizes and eight microbatches, and `propagate` may decide otherwise at others.

    Of 200 configurations of a small GPT those of one microbatch in stages were 5 % above their
    simulations at most, of ZeRO-1 in stages 4 %, and others 2.4 %; of 15 of one with 175 billion
    parameters one was, by 0.1 %. Of 300 of a perceptron some of one microbatch in stages were, by
    10 % at most, and on several nodes those of ZeRO-3 and one microbatch by 29 %.
    Of 15 of a Llama whose words an axis divides those of ZeRO-3 were, by 2 to 15 %.
    """
    if configuration.stages > 1 and configuration.microbatches == 1:
        return 0.1
    if configuration.degrees.get(CONTEXT, 1) > 1:
        return 0.15
    return 0.04 if configuration.stages > 1 and configuration.zero == WHOLE_GRADIENTS else 0.025


def memory_margin(configuration: Configuration) -> float:
    """Return the same of an estimate of memory. Without stages it was 3 % above at most, and with
    some never, but for one or two microbatches, of which fewer sums of gradients are there: 31 %.
    """
    if configuration.stages > 1:
        return 0.01 if configuration.microbatches > 2 else 0.5
    return 0.05


def bound_of(configuration: Configuration, estimate: Estimate) -> float:
    """Return seconds that the simulation of a configuration is not under."""
    return estimate.time / (1 + time_margin(configuration))


class Candidate(NamedTuple):
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
class Sweep(Problem[Candidate]):
    """The search for the configuration with the least simulated time per step, of those that fit.

    Configurations are nodes in the order of their estimates. Below each there is one node with the
    estimate of its schedule, and below that one with its simulation, if it fits into memory.

    Attributes:
        entries: the configurations with their estimates, those with the least bound first.
        memory: bytes of a device.
        deadline: when simulations end, but for the first one, so that there is one.
    """

    model: Model
    entries: Sequence[tuple[Configuration, Estimate]]
    memory: float
    deadline: Deadline = field(default_factory=Deadline.never)

    sense = "min"
    sorted_by_bound = True

    def root(self) -> Candidate:
        """Return the node above all configurations."""
        return Candidate(ROOT)

    def children(self, node: Candidate) -> Iterator[Candidate]:
        """Yield what is known next."""
        if node.state == ROOT:
            for number, entry in enumerate(self.entries):
                yield Candidate(ESTIMATED, number, bound_of(*entry))
        elif node.state == ESTIMATED:
            configuration, estimate = self.entries[node.number]
            bound = estimate.timed() / (1 + time_margin(configuration))
            yield Candidate(TIMED, node.number, bound)
        elif node.state == TIMED and (simulated := self.simulated(node.number)) is not None:
            yield simulated

    def simulated(self, number: int) -> Candidate | None:
        """Return the node of a configuration that is simulated; None if it does not fit, or the
        time is over."""
        configuration, _ = self.entries[number]
        try:
            with self.deadline.ends() if number else nullcontext():
                simulation = self.model.simulated(configuration)
        except (DiagnosticError, TimeoutError):
            return None
        if simulation.peak > self.memory:
            return None
        found = busiest(simulation)
        return Candidate(SIMULATED, number, simulation.time, simulation.peak, found)

    def front(self, known: Sequence[Candidate], workers: int) -> list[Candidate]:
        """Return the front of time against memory: the configurations such that no other one that
        is known needs neither more time nor more memory, fastest first.

        Those on the front of the estimates are simulated, beside those that are simulated already.
        """
        times = ((e.time, e.memory, n) for n, (_, e) in enumerate(self.entries))
        done = {node.number for node in known}
        asked = [number for _, _, number in _undominated(times) if number not in done]
        with Pool(workers, ignore_interrupts) as pool:  # which ends them, also on Ctrl-C
            found = pool.map(self.simulated, asked, chunksize=1)
        nodes = {node.number: node for node in (*known, *found) if node is not None}
        points = ((node.time, node.memory, node.number) for node in nodes.values())
        return [nodes[number] for _, _, number in _undominated(points)]

    def objective(self, node: Candidate) -> float | None:
        """Return the simulated seconds."""
        return node.time if node.state == SIMULATED else None

    def bound(self, node: Candidate) -> float:
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
