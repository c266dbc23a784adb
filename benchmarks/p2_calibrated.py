"""What P² measured, after the two bandwidths are fitted to three placements; and NCCL's Tree.

Nothing here is fitted to a single placement. ``double_tree`` is from the structure of the trees.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

from collir.cost.calibration import Calibration, Sample, calibrate
from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, StepCost
from collir.cost.network.group import Group
from collir.machine import Machine
from collir.synthesis.p2.candidates import Candidate, p2_candidates

MODEL = CostModel("p2")


def fitted(machine: Machine, measured: Sequence[tuple[Collective, float]]) -> Calibration:
    """The machine with the bandwidths that these times of Ring ask for; it has no latencies."""
    samples = [Sample(one, seconds) for one, seconds in measured]
    latencies = [f"{level.name}.latency" for level in machine.levels]
    return calibrate(machine, samples, MODEL, held_back=0, fixed=latencies)


def on(machine: Machine, one: Collective) -> Collective:
    """The same collective on another machine of this shape."""
    return replace(one, mesh=replace(one.mesh, machine=machine))


def double_tree(one: Collective) -> float:
    """Seconds of an AllReduce by NCCL's Tree on two levels, nodes and GPUs; no latency.

    Over m nodes NCCL has two binary trees with half of the buffer each, of which the inner nodes of
    one are leaves of the other (Sanders, Speck, Traeff 2009). With two nodes each is the root of
    one tree and the child of the other, so that half a buffer goes up and half a buffer goes down
    through each port, in either direction: one buffer. With three it is 1.5 at most, with more 2.
    Inside a node a tree is a chain of the GPUs. What goes up and what comes down passes each in the
    same direction through its port: one buffer at an end of the chain, two in between.
    """
    group = Group.of(one.mesh, one.axes, one.at_root, "hardware")
    nodes, gpus = group.across
    over_nodes = {1: 0.0, 2: 1.0, 3: 1.5}.get(nodes, 2.0)
    inside = {1: 0.0, 2: 1.0}.get(gpus, 2.0)
    bytes_ = (over_nodes * one.size * group.beside[0], inside * one.size)
    return max(size / port for size, port in zip(bytes_, group.ports, strict=True))


def with_trees(step: StepCost) -> float:
    """Seconds of a step where NCCL runs Tree: only its AllReduce has one, the others are rings."""
    return double_tree(step.collective) if step.collective.kind == "all_reduce" else step.time


@dataclass(frozen=True)
class Programs:
    """The AllReduce of a placement and its best program, in seconds, by Ring and by Tree."""

    flat: dict[str, float]
    best: dict[str, float]

    def gain(self, algorithm: str) -> float:
        """Of the best program over the AllReduce."""
        return self.flat[algorithm] / self.best[algorithm]


def programs(one: Collective, steps: int) -> Programs:
    """By enumeration of all programs of so many steps."""
    found = p2_candidates(one, MODEL, steps)
    [flat] = [each for each in found if _is_flat(each, one)]
    trees = [math.fsum(map(with_trees, each.costs)) for each in found]
    return Programs(
        {"ring": flat.time, "tree": double_tree(one)},
        {"ring": min(each.time for each in found), "tree": min(trees)},
    )


def _is_flat(candidate: Candidate, one: Collective) -> bool:
    (first, *rest) = (step.collective for step in candidate.costs)
    return not rest and first.kind == "all_reduce" and set(first.axes) == set(one.axes)


# --- how much it matters which placements the bandwidths are fitted to ----------------------------


@dataclass(frozen=True)
class Choice:
    """Some placements to fit to, and the median errors of AllReduce on all others."""

    chosen: tuple[int, ...]
    nic: float
    switch: float
    errors: dict[str, float]


def choices(
    ratios: dict[str, Sequence[float]],
    over_nodes: Sequence[bool],
    stated: tuple[float, float],
    count: int = 3,
) -> list[Choice]:
    """All ways to choose so many placements.

    ``ratios`` are predicted over measured by ``ring`` and ``tree``, with the stated bandwidths. A
    placement takes as long as either the NIC or the switches do, so least squares of logarithms
    scale each of them by the mean of its own. What no chosen placement uses stays as stated.
    """
    places = range(len(over_nodes))
    logs = {name: [math.log(ratio) for ratio in each] for name, each in ratios.items()}
    found: list[Choice] = []
    for chosen in combinations(places, count):
        shift = {
            level: math.fsum(own) / len(own) if own else 0.0
            for level in (True, False)
            for own in [[logs["ring"][at] for at in chosen if over_nodes[at] is level]]
        }
        errors = {
            name: median(
                abs(math.exp(each[at] - shift[over_nodes[at]]) - 1)
                for at in places
                if at not in chosen
            )
            for name, each in logs.items()
        }
        nic, switch = (
            port * math.exp(shift[level]) for port, level in zip(stated, (True, False), strict=True)
        )
        found.append(Choice(chosen, nic, switch, errors))
    return found
