"""The cost of one collective under a model: its algorithm, time, bytes and lower bound.

- ``auto``: the model of the library that runs the program. On machines of GPUs that is ``nccl``; on
  CPU clusters ``alpha-beta`` with the algorithms of MPICH; on other machines ``alpha-beta`` with
  the cheapest algorithms.
- ``alpha-beta``: latency + bytes / bandwidth per round (algorithms.py). The algorithm is the one
  that the program asks for; else the ``cheapest``, that of the ``runtime`` (MPICH), or a named one.
- ``p2``: the bandwidths of P² (Xie et al., MLSys 2022): a ring in hardware order, no latency.
- ``nccl``: NCCL's own estimate (nccl.py).
"""

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, get_args

from collir.algorithms.own import OwnAlgorithmError
from collir.algorithms.pipelines import best_pieces
from collir.algorithms.table import ALGORITHMS, PIPELINES
from collir.cost.bounds import LowerBound, collective_bound
from collir.cost.collectives import nccl
from collir.cost.collectives.collective import Collective, RingShift, Route
from collir.cost.collectives.meter import CollectiveEstimate, Estimated, Meter
from collir.cost.collectives.permutation import pattern_of
from collir.cost.collectives.phases import Phase, phases_of, single_phase
from collir.cost.collectives.rounds import ByRounds
from collir.cost.collectives.table import COSTS, NcclKind
from collir.cost.network.group import CostError, Group
from collir.cost.network.traffic import shape_of
from collir.layout import Mesh
from collir.layout.algorithm_names import AlgorithmName
from collir.machine import Machine, Runtime, names_tell_fabrics, runtime_of
from collir.syntax.algorithms import own_algorithm, prove

ModelName = Literal["auto", "alpha-beta", "p2", "nccl"]
Order = Literal["auto", "written", "hardware"]

AUTO = "auto"
"""The default of every option: as the library does that runs the program."""

_OWN = {"p2": ("ring",), "nccl": nccl.ALGORITHMS}
"""The algorithms of the models that have algorithms of their own."""

_LIBRARY = {
    Runtime.NCCL: ("nccl", AUTO, "as NCCL runs it"),
    Runtime.MPI: ("alpha-beta", "runtime", "as MPICH runs it"),
    Runtime.XLA: ("alpha-beta", "cheapest", "with the cheapest algorithms"),
}
"""The model of each library, its algorithm, and its description in reports."""


@dataclass(frozen=True)
class CostModel:
    """The options of a cost model.

    Attributes:
        model: the name of the model.
        algorithm: ``cheapest``, ``runtime`` (MPICH's choice), or the name of an algorithm, for
            collectives that have it and do not name one themselves. ``auto`` is the library's
            choice, or for the model ``alpha-beta`` the cheapest algorithm.
        order: the order of the ranks in a group: as ``written`` after ``over`` (as in the
            communicators of the emitted code), or that of the ``hardware``. ``auto`` is the order
            of the hardware where NCCL runs, which lays its rings along the links, and elsewhere as
            written. The models ``p2`` and ``nccl`` always use the order of the hardware.

    Raises:
        ValueError: an unknown model, algorithm or order.
    """

    model: str = AUTO
    algorithm: str = AUTO
    order: str = AUTO

    def __post_init__(self) -> None:
        names = {name for entry in COSTS.values() for name in entry.algorithms} | {*nccl.ALGORITHMS}
        for what, value, known in (
            ("model", self.model, list(get_args(ModelName))),
            ("algorithm", self.algorithm, [AUTO, "cheapest", "runtime", *sorted(names)]),
            ("order", self.order, list(get_args(Order))),
        ):
            if value not in known:
                raise ValueError(f"{what} is one of {', '.join(known)}, not '{value}'")
        own = _OWN.get(self.model)
        if own and self.algorithm not in (AUTO, "cheapest", "runtime", *own):
            raise ValueError(
                f"the model {self.model} has no algorithm but {' and '.join(own)}, so none is "
                f"'{self.algorithm}'"
            )

    def on(self, machine: Machine) -> "CostModel":
        """Return the model for a machine, with ``auto`` resolved."""
        return self if self._is_resolved else _on(self, machine, by_nccl=True, is_code=False)

    def of(self, collective: Collective) -> "CostModel":
        """Return the model for a collective, with ``auto`` resolved.

        If NCCL does not have the algorithm that it asks for, ``auto`` becomes ``alpha-beta``.
        """
        if self._is_resolved:  # a fast path, as searches call this very often
            return self
        asked = collective.algorithm
        by_nccl = not asked or nccl.has_algorithm(collective.kind, asked)
        is_code = _is_code(collective, asked)
        return _on(self, collective.mesh.machine, by_nccl=by_nccl, is_code=is_code)

    @property
    def _is_resolved(self) -> bool:
        undecided = (self.model, self.algorithm) == ("alpha-beta", AUTO)
        return AUTO not in (self.model, self.order) and not undecided

    def how(self, machine: Machine) -> str:
        """Return the words by which reports describe the model on a machine."""
        if (self.model, self.algorithm) == (AUTO, AUTO):
            said = any(level.fabric for level in machine.levels)
            known = said and names_tell_fabrics(machine.levels)
            unsaid = "" if known else ", fabric not said"
            return _LIBRARY[runtime_of(machine)][2] + unsaid
        model = self.on(machine)
        named = "" if model.model == "p2" or self.algorithm == AUTO else f", {model.algorithm}"
        return f"by {model.model}{named}"


_ROUNDS = frozenset(name for _, name in (*ALGORITHMS, *PIPELINES))
"""The names of algorithms that code has as rounds."""


def _is_code(collective: Collective, algorithm: str | None) -> bool:
    """Return whether printed code runs an algorithm of a collective: the program asks for it."""
    if algorithm is None or algorithm != collective.algorithm or collective.library_reason:
        return False
    return isinstance(algorithm, AlgorithmName) or algorithm in _ROUNDS


@lru_cache(maxsize=4096)
def _on(model: CostModel, machine: Machine, *, by_nccl: bool, is_code: bool) -> CostModel:
    """Return a model for a machine.

    Args:
        by_nccl: whether NCCL has the algorithm that a collective asks for, if it asks for one.
        is_code: whether code runs it, where NCCL does not have it.
    """
    runtime = runtime_of(machine)
    name, algorithm = model.model, model.algorithm
    if name == AUTO:
        name, choice, _ = _LIBRARY[runtime]
        algorithm = choice if algorithm == AUTO else algorithm
        if name == "nccl" and not (by_nccl and algorithm in (AUTO, *nccl.ALGORITHMS)):
            name = "alpha-beta"
    if name == "alpha-beta" and algorithm == AUTO:
        algorithm = "cheapest"
    order = model.order
    if order == AUTO:
        # Rounds are printed for the ranks as written; NCCL lays out what is its own.
        lays_out = runtime is Runtime.NCCL and not (is_code and name == "alpha-beta")
        order = "hardware" if lays_out or name != "alpha-beta" else "written"
    return CostModel(name, algorithm, order)


@dataclass(frozen=True)
class StepCost:
    """The cost of a collective.

    Attributes:
        time: seconds.
        port_bytes: the bytes through the busiest port of every level, outermost first.
        bound: a lower bound in seconds if every group has data of its own.
        shared_bound: a lower bound in seconds for programs that know which groups hold copies of
            the same data, and send these only once.
        phases: the phases of the algorithm in order; their times add up to ``time``.
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
    """Return the cost of a collective, with all of its groups at the same time.

    Raises:
        CostError: the mesh is not placed on levels, or an algorithm does not fit the group.
    """
    model = model.of(collective)
    name, estimate = step_estimate(collective, model)
    if not math.isfinite(estimate.time):
        raise CostError("this takes longer than any number says")
    if model.model == "alpha-beta":
        own, shared = (lower_bound.time for lower_bound in _bounds(collective))
    else:  # the other models count only ports, and have latencies of their own
        group = collective.group()
        plain = replace(collective, mesh=_switched(collective.mesh, nccl.switch_advantage(group)))
        own, shared = (lower_bound.bandwidth for lower_bound in _bounds(plain))
    phases = step_phases(collective, model, estimate)
    name = _with_padding(collective, name)
    return StepCost(collective, name, estimate.time, estimate.port_bytes, own, shared, phases)


def is_grouped(cost: StepCost) -> bool:
    """Return whether a step is a group of collectives of NCCL, one for each block."""
    return cost.algorithm.startswith(nccl.GROUPED)


def _with_padding(collective: Collective, name: str) -> str:
    """Return the name of an algorithm for reports: whether blocks are priced as the largest."""
    exact = name in COSTS[collective.kind].around or name.startswith(nccl.GROUPED)
    return name if exact or collective.padded <= collective.size else f"{name}, padded"


def step_phases(
    collective: Collective, model: CostModel, estimate: CollectiveEstimate
) -> tuple[Phase, ...]:
    """Return the phases of a collective, from a model's estimate."""
    model = model.of(collective)
    order = "written" if collective.listed else model.order
    group = collective.group(order)
    if model.model == "alpha-beta":
        return phases_of(group, estimate.rounds)
    return single_phase(
        group, estimate.time, estimate.port_bytes, estimate.parents, estimate.latencies
    )


def step_estimate(collective: Collective, model: CostModel) -> tuple[str, CollectiveEstimate]:
    """Return the algorithm of a collective and its estimate.

    Raises:
        CostError: see ``step_cost``.
    """
    model = model.of(collective)
    if model.model == "alpha-beta":
        return _alpha_beta(collective, model)
    return _p2(collective) if model.model == "p2" else _nccl(collective, model)


def _bounds(collective: Collective) -> tuple[LowerBound, LowerBound]:
    """Return the bound for groups with data of their own, and that with shared copies."""
    own = collective_bound(replace(collective, replicated=frozenset()))
    return own, collective_bound(collective) if collective.replicated else own


@lru_cache(maxsize=64)
def _switched(mesh: Mesh, reducing: float = 0.0) -> Mesh:
    """Return the mesh on a machine whose levels are all switches without tapers.

    If a switch reduces, its ports have at least ``reducing`` times the bandwidth at which it does.
    """
    levels = (
        level.switched
        if level.ports
        else replace(level.switched, port=max(level.port, reducing * (level.nvls or 0.0)))
        for level in mesh.machine.levels
    )
    return replace(mesh, machine=replace(mesh.machine, levels=tuple(levels)))


def algorithm_estimate(collective: Collective, group: Group, algorithm: str) -> CollectiveEstimate:
    """Return the estimate of a collective by one of its algorithms on a group.

    Raises:
        CostError: the algorithm does not fit the group.
    """
    is_printed = _is_code(collective, algorithm)
    if isinstance(algorithm, AlgorithmName):
        own = own_algorithm(algorithm)
        try:
            prove(own, group.size)
            root = collective.root_in(group)
            meter = Meter(group, root, is_printed)
            return metered_estimate(meter, ByRounds(own), collective.padded)
        except OwnAlgorithmError as error:
            raise CostError(f"{algorithm} has no cost here: {error}") from None
    entry = COSTS[collective.kind]
    meter = Meter(group, collective.root_in(group), is_printed)
    size, estimated = collective.size_for(algorithm), entry.algorithms[algorithm]
    if is_printed and (pipeline := PIPELINES.get((collective.kind, algorithm))):
        _ = metered_estimate(Meter(group), estimated, size)  # what has no cost has none in code
        pieces = best_pieces(algorithm, shape_of(group), group.levels, size)
        estimated = ByRounds(pipeline, pieces)
    return metered_estimate(meter, estimated, size)


def metered_estimate(meter: Meter, algorithm: Estimated, size: float) -> CollectiveEstimate:
    """Return the estimate of an algorithm on a full buffer of ``size`` bytes.

    Raises:
        CostError: the algorithm does not fit the group.
    """
    algorithm(meter, size)
    return meter.estimate


def _alpha_beta(collective: Collective, model: CostModel) -> tuple[str, CollectiveEstimate]:
    if collective.listed:  # its messages are listed in the written order of ranks
        meter = Meter(collective.group())
        meter.add_rounds(pattern_of(collective), collective.size)
        return "direct", meter.estimate
    group = collective.group(model.order)
    entry = COSTS[collective.kind]
    known = entry.algorithms
    chosen = collective.algorithm or (model.algorithm if model.algorithm in known else None)
    if chosen is None and model.algorithm == "runtime":
        chosen = entry.mpich(group, collective.size)
    if chosen is not None:
        return chosen, algorithm_estimate(collective, group, chosen)
    estimates: dict[str, CollectiveEstimate] = {}
    reasons: list[CostError] = []
    for name, estimated in known.items():
        if isinstance(estimated, ByRounds) and estimated.algorithm.composed:
            continue
        try:
            estimates[name] = algorithm_estimate(collective, group, name)
        except CostError as error:  # not for this number of ranks, or these links
            reasons.append(error)
    if not estimates:
        raise reasons[0]
    best = min(estimates, key=lambda name: estimates[name].time)
    return best, estimates[best]


_PLAIN = CostModel("alpha-beta", "cheapest", "written")


def _p2(collective: Collective) -> tuple[str, CollectiveEstimate]:
    """Return bytes over bandwidth, of rings in hardware order; of direct messages for collectives
    that P² lacks."""
    if collective.listed:
        name, estimate = _alpha_beta(collective, _PLAIN)
        group = collective.group("hardware")
        return name, _without_latency(group, estimate)
    group = collective.group("hardware")
    name, algorithm = COSTS[collective.kind].p2
    estimate = metered_estimate(Meter(group), algorithm, collective.size_for(name))
    return name, _without_latency(group, estimate)


def _without_latency(group: Group, estimate: CollectiveEstimate) -> CollectiveEstimate:
    """Return the time of the busiest port only, without latency and reduction, as in P²."""
    ports = [size / port for size, port in zip(estimate.port_bytes, group.ports, strict=True)]
    time = max((*ports, *(seconds for _, seconds in estimate.parents)))
    return CollectiveEstimate(time, estimate.port_bytes, parents=estimate.parents)


def _nccl(collective: Collective, model: CostModel) -> tuple[str, CollectiveEstimate]:
    group = collective.group("hardware")
    if collective.listed:
        _, estimate = _alpha_beta(collective, _PLAIN)
    elif not isinstance(known := COSTS[collective.kind].nccl, NcclKind):
        estimate = metered_estimate(Meter(group), known, collective.padded)
    else:
        chosen = collective.algorithm
        if not chosen and model.algorithm in nccl.ALGORITHMS:
            has = nccl.has_algorithm(collective.kind, model.algorithm)
            chosen = model.algorithm if has else None
        size = collective.padded
        choice = nccl.estimate(collective.kind, group, size, chosen)
        if collective.uneven and not chosen:
            grouped = nccl.grouped_estimate(collective.kind, group, collective.size)
            choice = min(choice, grouped, key=lambda estimate: estimate.time)
        grouped = choice.algorithm.startswith(nccl.GROUPED)
        if grouped or choice.algorithm.startswith(nccl.RING) or group.levels[0].parents:
            blocks = collective if grouped else replace(collective, uneven=None, size=size)
            ring = _p2(blocks)[1]
            return choice.algorithm, replace(ring, time=choice.time, latencies=choice.latencies)
        switched = replace(collective, mesh=_switched(collective.mesh)).group()
        ports = algorithm_estimate(collective, switched, "double_binary_tree").port_bytes
        return choice.algorithm, CollectiveEstimate(choice.time, ports, latencies=choice.latencies)
    crossed = estimate.port_bytes if isinstance(collective.sent_by, Route) else None
    waits = nccl.send_latencies(group, crossed)
    sent = _without_latency(group, estimate).time
    if not isinstance(collective.sent_by, Route | RingShift):
        sent += nccl.shared_chunk(collective.size, sent, group.size)
    time = sum(seconds for _, seconds in waits) + sent
    return "send/recv", replace(estimate, time=time, rounds=(), latencies=waits)
