"""The cost of one collective under a model: which algorithm, how long, which bytes, which bound.

- ``alpha-beta``: latency + bytes / bandwidth per round (algorithms.py). The algorithm is the one
  the program asks for, else the ``cheapest``, or that of the ``runtime`` (MPICH), or one by name.
- ``p2``: the bandwidths of P² (Xie et al., MLSys 2022): a ring in hardware order, no latency.
- ``nccl``: NCCL's own estimate (nccl.py).
"""

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, get_args

from collir.cost import nccl
from collir.cost.algorithms import Algorithm, Estimate, Meter
from collir.cost.bounds import Bound, bound
from collir.cost.collective import Collective
from collir.cost.collectives import COSTS, NcclKind
from collir.cost.group import CostError, Group
from collir.cost.permutation import pattern
from collir.cost.phases import Phase, even, phases_of
from collir.layout import Mesh

ModelName = Literal["alpha-beta", "p2", "nccl"]
Order = Literal["written", "hardware"]


@dataclass(frozen=True)
class CostModel:
    """How to cost.

    ``algorithm`` is ``cheapest``, ``runtime`` or the name of one, for collectives that have it and
    do not say themselves. ``order`` is that of the ranks in a group: as ``written`` behind
    ``over`` (the communicators of the emitted code), or that of the ``hardware``. The models ``p2``
    and ``nccl`` take the hardware's, as NCCL's rings do.

    Raises:
        ValueError: an unknown model, algorithm or order.
    """

    model: str = "alpha-beta"
    algorithm: str = "cheapest"
    order: str = "written"

    def __post_init__(self) -> None:
        names = sorted({name for each in COSTS.values() for name in each.algorithms})
        for what, value, known in (
            ("model", self.model, list(get_args(ModelName))),
            ("algorithm", self.algorithm, ["cheapest", "runtime", *names]),
            ("order", self.order, list(get_args(Order))),
        ):
            if value not in known:
                raise ValueError(f"{what} is one of {', '.join(known)}, not '{value}'")
        fixed = {"p2": ("ring",), "nccl": ("ring", "double_binary_tree")}.get(self.model)
        if fixed and self.algorithm not in ("cheapest", "runtime", *fixed):
            raise ValueError(
                f"the model {self.model} has no algorithm but {' and '.join(fixed)}, so none is "
                f"'{self.algorithm}'"
            )


@dataclass(frozen=True)
class StepCost:
    """What a collective costs.

    ``time`` and ``bound`` are in seconds; ``port_bytes`` are the bytes through the busiest port of
    every level, outermost first. ``bound`` takes each group's data as its own; ``shared_bound`` is
    that of programs which know that groups hold copies of the same data, and send them once.
    ``phases`` are what it does one after the other, ``time`` in all.
    """

    collective: Collective
    algorithm: str
    time: float
    port_bytes: tuple[float, ...]
    bound: float
    shared_bound: float
    phases: tuple[Phase, ...] = field(default=(), repr=False, compare=False)


@lru_cache(maxsize=4096)
def step_cost(collective: Collective, model: CostModel) -> StepCost:
    """The cost of a collective, with all of its groups at the same time.

    Raises:
        CostError: the mesh is not placed on levels, or an algorithm does not fit the group.
    """
    name, estimate = step_estimate(collective, model)
    if not math.isfinite(estimate.time):
        raise CostError("this takes longer than any number says")
    if model.model == "alpha-beta":
        own, shared = (lowest.time for lowest in _bounds(collective))
    else:  # which know ports only, and have latencies of their own
        plain = replace(collective, mesh=_switched(collective.mesh))
        own, shared = (lowest.bandwidth for lowest in _bounds(plain))
    phases = step_phases(collective, model, estimate)
    return StepCost(collective, name, estimate.time, estimate.port_bytes, own, shared, phases)


def step_phases(collective: Collective, model: CostModel, estimate: Estimate) -> tuple[Phase, ...]:
    """What a collective does one after the other, by the estimate that a model gives."""
    order = "written" if collective.listed else model.order
    group = Group.of(collective.mesh, collective.axes, collective.at_root, order)
    if model.model == "alpha-beta":
        return phases_of(group, estimate.rounds)
    return even(group, estimate.time, estimate.port_bytes)


def step_estimate(collective: Collective, model: CostModel) -> tuple[str, Estimate]:
    """The algorithm of a collective and what it costs, without the bounds.

    Raises:
        CostError: see ``step_cost``.
    """
    if model.model == "alpha-beta":
        return _alpha_beta(collective, model)
    return _p2(collective) if model.model == "p2" else _nccl(collective, model)


def _bounds(collective: Collective) -> tuple[Bound, Bound]:
    """The bound with each group's data as its own, and the one of copies that are shared."""
    own = bound(replace(collective, replicated=frozenset()))
    return own, bound(collective) if collective.replicated else own


@lru_cache(maxsize=64)
def _switched(mesh: Mesh) -> Mesh:
    """The mesh on a machine whose levels are all switches that carry what their ports do."""
    levels = (one.switched for one in mesh.machine.levels)
    return replace(mesh, machine=replace(mesh.machine, levels=tuple(levels)))


def run(collective: Collective, group: Group, algorithm: str) -> Estimate:
    """The cost of a collective by one of its algorithms on a group.

    Raises:
        CostError: the algorithm does not fit the group.
    """
    return metered(group, COSTS[collective.kind].algorithms[algorithm], collective.size)


def metered(group: Group, algorithm: Algorithm, size: float) -> Estimate:
    """The cost of an algorithm on a full buffer of ``size`` bytes.

    Raises:
        CostError: the algorithm does not fit the group.
    """
    meter = Meter(group)
    algorithm(meter, size)
    return meter.estimate


def _alpha_beta(collective: Collective, model: CostModel) -> tuple[str, Estimate]:
    if collective.listed:  # whose messages are listed in the written order
        meter = Meter(Group.of(collective.mesh, collective.axes, collective.at_root))
        meter.round(pattern(collective), collective.size)
        return "direct", meter.estimate
    group = Group.of(collective.mesh, collective.axes, collective.at_root, model.order)
    entry = COSTS[collective.kind]
    known = entry.algorithms
    wanted = collective.algorithm or (model.algorithm if model.algorithm in known else None)
    if wanted is None and model.algorithm == "runtime":
        wanted = entry.mpich(group, collective.size)
    if wanted is not None:
        return wanted, run(collective, group, wanted)
    found: dict[str, Estimate] = {}
    reasons: list[CostError] = []
    for name in known:
        try:
            found[name] = run(collective, group, name)
        except CostError as error:  # not for this number of ranks, or these links
            reasons.append(error)
    if not found:
        raise reasons[0]
    best = min(found, key=lambda name: found[name].time)
    return best, found[best]


def _p2(collective: Collective) -> tuple[str, Estimate]:
    """Bytes over bandwidth: a ring in hardware order; beside P²'s collectives, direct messages."""
    if collective.listed:
        name, estimate = _alpha_beta(collective, CostModel())
        group = Group.of(collective.mesh, collective.axes, collective.at_root, "hardware")
        return name, _without_latency(group, estimate)
    group = Group.of(collective.mesh, collective.axes, collective.at_root, "hardware")
    name, algorithm = COSTS[collective.kind].p2
    return name, _without_latency(group, metered(group, algorithm, collective.size))


def _without_latency(group: Group, estimate: Estimate) -> Estimate:
    """Only what the busiest port takes, of P²'s links: no latency, no reduction."""
    ports = zip(estimate.port_bytes, group.ports, strict=True)
    return Estimate(max(size / port for size, port in ports), estimate.port_bytes)


def _nccl(collective: Collective, model: CostModel) -> tuple[str, Estimate]:
    group = Group.of(collective.mesh, collective.axes, collective.at_root, "hardware")
    if collective.listed:
        _, estimate = _alpha_beta(collective, CostModel())
    elif not isinstance(known := COSTS[collective.kind].nccl, NcclKind):
        estimate = metered(group, known, collective.size)
    else:
        wanted = model.algorithm if model.algorithm in ("ring", "double_binary_tree") else None
        if wanted == "double_binary_tree" and not known.tree:
            wanted = None
        wanted = collective.algorithm or wanted
        found = nccl.estimate(collective.kind, group, collective.size, wanted)
        if found.algorithm.startswith("double"):
            switched = Group.of(_switched(collective.mesh), collective.axes, collective.at_root)
            ports = run(collective, switched, "double_binary_tree").port_bytes
        else:
            ports = _p2(collective)[1].port_bytes
        return found.algorithm, Estimate(found.time, ports)
    time = nccl.send_latency(group) + _without_latency(group, estimate).time
    return "send/recv", Estimate(time, estimate.port_bytes)
