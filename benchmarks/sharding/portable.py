"""The time of plans by amounts of data on machines that they do not know: the tables `portability`
and `changed` of symbolic.py."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from statistics import median
from typing import NamedTuple

from programs import MODELS, Level, Machine, program, random_machine, step_of
from xdsl.dialects.func import FuncOp

from collir.cost.model import CostModel
from collir.synthesis.propagation.choice import Assignment
from collir.synthesis.propagation.graph import Layout, Tensor, TensorGraph
from collir.synthesis.propagation.moves import Moves
from collir.synthesis.sharding.descent.descent import Descent
from collir.synthesis.sharding.factors import Values
from collir.synthesis.sharding.problem import Sharding
from collir.synthesis.sharding.shard import sharding_of
from collir.synthesis.sharding.solver import least_sum
from collir.synthesis.sharding.symbolic.amounts import Divided, NoWork, by_amounts

MACHINES, SECONDS = 200, 20.0

# --- plans ---------------------------------------------------------------------------------------

Plan = list[Layout | Assignment]
"""The layout of each tensor and the division of each step, in the order of the program."""


def plan_of(sharding: Sharding, values: Values) -> Plan:
    """Return values as a plan."""
    return [
        sharding.layouts[n][values[n]]
        if isinstance(what, Tensor)
        else sharding.ways[n][values[n]].axes
        for what, n in sharding.variable_of.items()
    ]


def values_in(sharding: Sharding, plan: Plan) -> tuple[dict[int, int], int]:
    """Return the nearest values to a plan, and how many are others than it says."""
    values: dict[int, int] = {}
    others = 0
    for (what, number), own in zip(sharding.variable_of.items(), plan, strict=True):
        if isinstance(what, Tensor):
            listed: list[Layout | Assignment] = [*sharding.layouts[number]]
        else:
            listed = [way.axes for way in sharding.ways[number]]
        wanted, have = _pairs(own), [_pairs(x) for x in listed]
        best = max(range(len(have)), key=lambda n: (len(have[n] & wanted), -len(have[n])))
        values[number] = best
        others += have[best] != wanted
    return values, others


def _pairs(own: Layout | Assignment) -> set[tuple[object, str]]:
    items = own.items() if isinstance(own, Mapping) else enumerate(own)
    return {(index, axis) for index, axes in items for axis in axes}


def greedy_plan(function: FuncOp, graph: TensorGraph) -> Plan:
    """Return the greedy plan."""
    sharding = by_amounts(function, graph)
    return plan_of(sharding, Descent(graph, sharding, list(graph.mesh.by_name)).run())


def exact_plan(function: FuncOp, graph: TensorGraph) -> Plan:
    """Return the plan that sends least."""
    sharding = by_amounts(function, graph)
    return plan_of(sharding, least_sum(sharding.sum, SECONDS, branch=False).values)


def plan_by_bandwidths(machine: Machine, text: str) -> Plan:
    """Return the plan whose collectives take least by the bandwidths of a machine, where all steps
    are divided over all axes."""
    function, graph = step_of(machine.without_latency().module(text))
    moves = Moves(graph.mesh, CostModel())
    ways = Divided(NoWork(function, graph.mesh), moves, graph.mesh.by_name, {})
    sharding = Sharding(graph, ways, moves.seconds, moves.seconds)
    return plan_of(sharding, least_sum(sharding.sum, SECONDS, branch=False).values)


class Own:
    """A program under the costs of a machine.

    Attributes:
        step: the function, and its graph.
        best: the least time.
        gap: the part of it that is not proven.
        plan: the plan that takes it.
        computing: the part of the time in which it computes.
    """

    def __init__(self, machine: Machine, text: str):
        self.step = function, graph = step_of(machine.module(text))
        self.sharding = sharding_of(function, graph, CostModel())
        found = least_sum(self.sharding.sum, SECONDS, branch=False)
        self.best, self.gap = found.sum, 1 - found.bound / found.sum
        self.plan = plan_of(self.sharding, found.values)
        self.computing = self.seconds_of_steps(found.values) / found.sum

    def seconds_of_steps(self, values: Values) -> float:
        """Return the time in which steps compute."""
        return sum(
            self.sharding.ways[n][values[n]].seconds * what.times
            for what, n in self.sharding.variable_of.items()
            if not isinstance(what, Tensor)
        )

    def ratio(self, plan: Plan) -> float:
        """Return the time of a plan, by the least."""
        return self.sharding.sum.value(values_in(self.sharding, plan)[0]) / self.best


# --- random machines -----------------------------------------------------------------------------

KINDS = ("greedy", "amounts", "bandwidths", "computing", "proportions")


class Plans:
    """The plans of a model that know a mesh alone."""

    def __init__(self):
        self._known: dict[object, tuple[Plan, Plan]] = {}

    def of(self, text: str, machine: Machine) -> tuple[Plan, Plan]:
        """Return the greedy plan, and the one that sends least."""
        key = (text, machine.shape)
        if key not in self._known:
            step = step_of(machine.module(text))
            self._known[key] = greedy_plan(*step), exact_plan(*step)
        return self._known[key]


class Found(NamedTuple):
    """The times of plans of a model on a machine, by the least.

    Attributes:
        computing: the part of the least time in which steps compute.
        gap: the part of the least time that is not proven.
    """

    model: str
    machine: Machine
    computing: float
    gap: float
    times: dict[str, float]

    @property
    def percent(self) -> float:
        """The part of the time in which steps compute, in percent, below 100."""
        return min(100 * self.computing, 99.0)


def found_on(machine: Machine, model: str, plans: Plans, ratios: bool) -> Found:
    """Return the times of the plans of a model on a machine.

    Args:
        ratios: whether plans that know ratios of rates are made too.
    """
    text = program(model, tuple(MODELS[model].items()))
    own = Own(machine, text)
    made = dict(zip(KINDS, plans.of(text, machine), strict=False))
    if ratios:
        even = machine.without_latency()
        made["bandwidths"] = plan_by_bandwidths(machine, text)
        made["computing"] = Own(even.with_one_bandwidth(), text).plan
        made["proportions"] = Own(even, text).plan
    times = {kind: own.ratio(plan) for kind, plan in made.items()}
    return Found(model, machine, own.computing, own.gap, times)


def measured() -> list[Found]:
    """Return the times of plans on random machines: those that know ratios on every second one."""
    plans = Plans()
    found: list[Found] = []
    for seed in range(MACHINES):
        machine = random_machine(seed)
        models = [*MODELS] if len(machine.levels) < 3 else ["mlp"]  # others take minutes each
        found += [found_on(machine, model, plans, seed % 2 == 0) for model in models]
        if seed % 10 == 9:
            print(f"{seed + 1} machines", file=sys.stderr, flush=True)
    return found


def summary(first: Sequence[str], ratios: Iterable[float]) -> list[str]:
    """Return a row of ratios."""
    listed = sorted(ratios)
    if not listed:
        return [*first, "0", "-", "-", "-", "-"]
    within = [f"{100 * sum(x <= most for x in listed) / len(listed):.0f} %" for most in (1.05, 1.2)]
    return [*first, str(len(listed)), *within, f"{median(listed):.2f}", f"{listed[-1]:.1f}"]


def portability(found: Sequence[Found]) -> list[list[str]]:
    """Return the tables of random machines: of all, and by parts of them."""
    heads = ["programs", "within 5 %", "within 20 %", "median", "worst"]
    rows = [["plan", *heads, *(f"{model}: within 20 %, worst" for model in MODELS)]]
    for kind in KINDS:
        own = [x for x in found if kind in x.times]
        cells = [_in_bin([x for x in own if x.model == model], [kind])[1] for model in MODELS]
        rows.append([*summary([kind], (x.times[kind] for x in own)), *cells])
    gaps = [x.gap for x in found if x.gap > 1e-6]
    if gaps:
        print(f"{len(gaps)} not proven, gaps up to {max(gaps):.3f}", file=sys.stderr)
    parts: dict[str, list[tuple[str, list[Found]]]] = {
        "computing": [
            (f"{low} to {low + 25} %", [x for x in found if low <= x.percent < low + 25])
            for low in (0, 25, 50, 75)
        ],
        "levels": [
            (str(depth), [x for x in found if len(x.machine.levels) == depth])
            for depth in (1, 2, 3)
        ],
        "fastest / slowest level": [
            (f"{low} to {high}", [x for x in found if low <= x.machine.ratio < high])
            for low, high in ((1, 3), (3, 10), (10, 100))
        ],
    }
    for name, bins in parts.items():
        shown = [f"{kind}: within 20 %, worst" for kind in KINDS]
        rows += [[], [name, "programs", *shown]]
        rows += [[label, *_in_bin(part, KINDS)] for label, part in bins]
    return rows


def _in_bin(part: Sequence[Found], kinds: Sequence[str]) -> list[str]:
    times = [x.times for x in part]
    cells = [summary([], (x[kind] for x in times if kind in x)) for kind in kinds]
    return [str(len(part)), *(f"{row[2]}, {row[4]}" for row in cells)]


# --- changed sizes -------------------------------------------------------------------------------

FIXED = (
    Machine(),
    Machine((Level(8, 1.25, 25), Level(8, 10, 8)), 14, 900),
    Machine((Level(8, 50, 14), Level(8, 400, 3.4)), 400, 3350),
)
"""Eight nodes of eight devices: as of A100; of V100 on Ethernet and PCIe; and of H100, which
compute 20 times as fast as the first, with twice their bandwidths."""

FACTORS = (1 / 8, 1 / 4, 1 / 2, 2, 4, 8)
CHANGES = {
    "batch": {"mlp": "batch", "switch": "groups", "transformer": "batch"},
    "sequence": {"switch": "words", "transformer": "seq"},
    "width": {"mlp": "width", "switch": "hidden", "transformer": "hidden"},
    "devices": dict.fromkeys(MODELS, ""),
}


def changed() -> list[list[str]]:
    """Return the table of changed sizes."""
    kinds = ("kept", "greedy", "amounts")
    shown = [f"{kind}: within 20 %, median, worst" for kind in kinds]
    rows = [["changed", "programs", *shown, "kept, but not all of it"]]
    first = {
        (machine, model): Own(machine, program(model, tuple(sizes.items()))).plan
        for machine in FIXED
        for model, sizes in MODELS.items()
    }
    for change, models in CHANGES.items():
        ratios: dict[str, list[float]] = {kind: [] for kind in kinds}
        misfits = 0
        for machine, (model, size), factor in product(FIXED, models.items(), FACTORS):
            own = Own(*_changed(machine, model, size, factor))
            kept = first[machine, model]
            misfits += values_in(own.sharding, kept)[1] > 0
            plans = kept, greedy_plan(*own.step), exact_plan(*own.step)
            for kind, plan in zip(kinds, plans, strict=True):
                ratios[kind].append(own.ratio(plan))
        cells = [", ".join(summary([], ratios[kind])[2:]) for kind in kinds]
        rows.append([change, str(len(ratios["kept"])), *cells, str(misfits)])
        print(change, file=sys.stderr, flush=True)
    return rows


def _changed(machine: Machine, model: str, size: str, factor: float) -> tuple[Machine, str]:
    """Return a machine and a program after a size has changed; "": the number of nodes."""
    sizes = MODELS[model]
    if size:
        sizes = sizes | {size: int(sizes[size] * factor)}
    else:
        nodes, *rest = machine.levels
        nodes = nodes._replace(count=int(nodes.count * factor))
        machine = replace(machine, levels=(nodes, *rest))
    return machine, program(model, tuple(sizes.items()))
