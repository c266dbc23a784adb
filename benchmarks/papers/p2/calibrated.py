"""Predictions for P²'s measurements with two fitted bandwidths, and with NCCL's Tree.

The bandwidths are fitted to three placements. ``double_tree`` follows from the structure of NCCL's
trees, and nothing is fitted to Tree.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

from collir.cost.calibration import Calibration, Sample, calibrate
from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, StepCost
from collir.cost.network.group import Group
from collir.machine import Machine
from p2.candidates import StepSequence, p2_candidates

MODEL = CostModel("p2")


def fitted(machine: Machine, measured: Sequence[tuple[Collective, float]]) -> Calibration:
    """Return the machine with the bandwidths that best explain these times of Ring.

    The machine has no latencies.
    """
    samples = [Sample(collective, seconds) for collective, seconds in measured]
    latencies = [f"{level.name}.latency" for level in machine.levels]
    return calibrate(machine, samples, MODEL, held_back=0, fixed=latencies)


def on(machine: Machine, collective: Collective) -> Collective:
    """Return the same collective on another machine of this shape."""
    return replace(collective, mesh=replace(collective.mesh, machine=machine))


def double_tree(collective: Collective) -> float:
    """Return the seconds of an AllReduce by NCCL's Tree on nodes and GPUs, without latency.

    Over m nodes NCCL has two binary trees with half of the buffer each. The inner nodes of one tree
    are leaves of the other tree (Sanders, Speck, Traeff 2009). With two nodes, each node is the
    root of one tree and the child in the other. So half a buffer goes up and half a buffer goes
    down through each port, in either direction: one buffer. With three nodes it is at most 1.5
    buffers, with more 2. Inside a node a tree is a chain of the GPUs. Data that goes up and data
    that comes down passes a GPU's port in the same direction: one buffer at an end of the chain,
    two in between.
    """
    group = Group.of(collective.mesh, collective.axes, collective.at_root, "hardware")
    nodes, gpus = group.across
    over_nodes = {1: 0.0, 2: 1.0, 3: 1.5}.get(nodes, 2.0)
    inside = {1: 0.0, 2: 1.0}.get(gpus, 2.0)
    bytes_ = (over_nodes * collective.size * group.beside[0], inside * collective.size)
    return max(size / port for size, port in zip(bytes_, group.ports, strict=True))


def with_trees(step: StepCost) -> float:
    """Return the seconds of a step under Tree: a tree for an AllReduce, else a ring."""
    return double_tree(step.collective) if step.collective.kind == "all_reduce" else step.time


@dataclass(frozen=True)
class Programs:
    """The AllReduce of a placement and its best program, in seconds, by Ring and by Tree."""

    flat: dict[str, float]
    best: dict[str, float]

    def gain(self, algorithm: str) -> float:
        """Return the time of the AllReduce over the time of the best program."""
        return self.flat[algorithm] / self.best[algorithm]


def programs(collective: Collective, steps: int) -> Programs:
    """Return the AllReduce and the best of all programs with at most ``steps`` steps."""
    candidates = p2_candidates(collective, MODEL, steps)
    [flat] = [candidate for candidate in candidates if _is_flat(candidate, collective)]
    trees = [math.fsum(map(with_trees, candidate.costs)) for candidate in candidates]
    return Programs(
        {"ring": flat.time, "tree": double_tree(collective)},
        {"ring": min(candidate.time for candidate in candidates), "tree": min(trees)},
    )


def _is_flat(candidate: StepSequence, collective: Collective) -> bool:
    (first, *rest) = (step.collective for step in candidate.costs)
    return not rest and first.kind == "all_reduce" and set(first.axes) == set(collective.axes)


# --- how much it matters which placements the bandwidths are fitted to ----------------------------


@dataclass(frozen=True)
class Choice:
    """Placements to fit to, and the median errors of AllReduce on all other placements."""

    chosen: tuple[int, ...]
    nic: float
    switch: float
    errors: dict[str, float]


def choices(
    ratios: Mapping[str, Sequence[float]],
    over_nodes: Sequence[bool],
    stated: tuple[float, float],
    count: int = 3,
) -> list[Choice]:
    """Return all choices of ``count`` placements.

    ``ratios`` are predicted over measured times by ``ring`` and ``tree``, with the stated
    bandwidths. Either the NIC or the switches determine the time of a placement. So least squares
    of logarithms scale each bandwidth by the mean over its own placements. A bandwidth that no
    chosen placement uses stays as stated.
    """
    places = range(len(over_nodes))
    logs = {name: [math.log(ratio) for ratio in values] for name, values in ratios.items()}
    all_choices: list[Choice] = []
    for chosen in combinations(places, count):
        shift = {
            level: math.fsum(own) / len(own) if own else 0.0
            for level in (True, False)
            for own in [[logs["ring"][at] for at in chosen if over_nodes[at] is level]]
        }
        errors = {
            name: median(
                abs(math.exp(values[at] - shift[over_nodes[at]]) - 1)
                for at in places
                if at not in chosen
            )
            for name, values in logs.items()
        }
        nic, switch = (
            port * math.exp(shift[level]) for port, level in zip(stated, (True, False), strict=True)
        )
        all_choices.append(Choice(chosen, nic, switch, errors))
    return all_choices
