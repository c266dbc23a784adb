"""The time of plans by amounts of data on machines that they do not know: the tables `portability`
and `changed` of symbolic.py."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from programs import MODELS, Machine, program, random_machine, step_of
from xdsl.dialects.func import FuncOp

from collir.cost.model import CostModel
from collir.synthesis.propagation.estimate import Assignment
from collir.synthesis.propagation.graph import Graph, Layout, Tensor
from collir.synthesis.sharding.factors import Values
from collir.synthesis.sharding.problem import Sharding
from collir.synthesis.sharding.shard import sharding_of
from collir.synthesis.sharding.solver import least_sum
from collir.synthesis.sharding.symbolic.exact import sent_bytes
from collir.synthesis.sharding.symbolic.halving import Halving

MACHINES, SECONDS = 120, 20.0

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


def greedy_plan(function: FuncOp, graph: Graph) -> Plan:
    """Return the greedy plan."""
    halving = Halving(graph)
    halving.run()
    return [
        halving.layout(what) if isinstance(what, Tensor) else halving.axes(what)
        for what in sent_bytes(function, graph).variable_of
    ]


def exact_plan(
    function: FuncOp, graph: Graph, ratios: Mapping[str, float] | None = None
) -> tuple[Plan, float]:
    """Return the plan that sends least, and the bytes."""
    sharding = sent_bytes(function, graph, ratios)
    found = least_sum(sharding.sum, SECONDS, branch=False)
    return plan_of(sharding, found.values), found.sum


class Own:
    """A program under the costs of a machine.

    Attributes:
        best: the least time.
        gap: the part of it that is not proven.
        plan: the plan that takes it.
        computing: the part of the time in which it computes.
    """

    def __init__(self, machine: Machine, text: str):
        self.function, self.graph = step_of(machine.module(text))
        self.sharding = sharding_of(self.function, self.graph, CostModel())
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

KINDS = ("greedy", "amounts", "one ratio", "two ratios", "best axes", "no latency")


class Plans:
    """The plans of a model that know a mesh alone."""

    def __init__(self):
        self._known: dict[object, tuple[Plan, Plan, float]] = {}

    def of(self, text: str, nodes: int, gpus: int) -> tuple[Plan, Plan, float]:
        """Return the greedy plan, the exact one, and the bytes of this."""
        key = (text, nodes, gpus)
        if key not in self._known:
            step = step_of(Machine(nodes, gpus).module(text))
            self._known[key] = greedy_plan(*step), *exact_plan(*step)
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


def ratios_on(machine: Machine, graph: Graph) -> dict[str, float]:
    """Return what a byte costs on each axis, by the inner one."""
    ratio = machine.inner / machine.outer
    return {axis: ratio if axis.startswith("outer") else 1.0 for axis in graph.mesh.by_name}


def found_on(machine: Machine, model: str, plans: Plans, ratios: bool, latency: bool) -> Found:
    """Return the times of the plans of a model on a machine.

    Args:
        ratios: whether plans that know ratios are made too.
        latency: whether the plan for a machine without latencies is made too.
    """
    text = program(model, tuple(MODELS[model].items()))
    own = Own(machine, text)
    greedy, exact, _ = plans.of(text, machine.nodes, machine.gpus)
    times = {"greedy": own.ratio(greedy), "amounts": own.ratio(exact)}
    if ratios:
        times |= with_ratios(machine, text, own, plans)
    if latency:
        times["no latency"] = own.ratio(Own(replace(machine, far=1e-3, near=1e-3), text).plan)
    return Found(model, machine, own.computing, own.gap, times)


def with_ratios(machine: Machine, text: str, own: Own, plans: Plans) -> dict[str, float]:
    """Return the times of plans that know ratios of rates of a machine."""
    nodes, gpus = machine.nodes, machine.gpus
    ratios = ratios_on(machine, own.graph)
    hybrid, sent = exact_plan(own.function, own.graph, ratios)
    whole: Plan = [() for _ in hybrid]
    inside, outside = plans.of(text, 1, gpus), plans.of(text, nodes, 1)
    single = own.seconds_of_steps(values_in(own.sharding, whole)[0])
    choices = [  # devices, bytes at the inner bandwidth, and a plan
        (nodes * gpus, sent, hybrid),
        (gpus, inside[2], inside[1]),
        (nodes, outside[2] * machine.inner / machine.outer, outside[1]),
        (1, 0.0, whole),
    ]
    rate = 1e9 * machine.inner
    _, _, chosen = min(choices, key=lambda x: single / x[0] + x[1] / rate)
    best = min(own.ratio(plan) for _, _, plan in choices)
    return {"one ratio": own.ratio(hybrid), "two ratios": own.ratio(chosen), "best axes": best}


def measured() -> list[Found]:
    """Return the times of plans on random machines: those that know ratios on every third one, and
    those without latencies on every second."""
    plans = Plans()
    found: list[Found] = []
    for seed in range(MACHINES):
        machine = random_machine(seed)
        both = seed % 3 == 0, seed % 2 == 0
        found += [found_on(machine, model, plans, *both) for model in MODELS]
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
    there = [x for x in found if "one ratio" in x.times]
    for kind in KINDS:
        for own, note in ((found, ""), (there, ", there")):
            if note and kind != "amounts":
                continue
            own = [x for x in own if kind in x.times]
            cells = [_in_bin([x for x in own if x.model == model], [kind])[1] for model in MODELS]
            rows.append([*summary([kind + note], (x.times[kind] for x in own)), *cells])
    shown = [f"{kind}: within 20 %, worst" for kind in KINDS[:4]]
    rows += [[], ["computing", "programs", *shown]]
    for low in (0, 25, 50, 75):
        part = [x for x in there if low <= min(100 * x.computing, 99) < low + 25]
        rows.append([f"{low} to {low + 25} %", *_in_bin(part)])
    rows += [[], ["inner / outer", "programs", *shown]]
    for low, high in ((1, 3), (3, 10), (10, 100)):
        part = [x for x in there if low <= x.machine.inner / x.machine.outer < high]
        rows.append([f"{low} to {high}", *_in_bin(part)])
    return rows


def _in_bin(part: Sequence[Found], kinds: Sequence[str] = KINDS[:4]) -> list[str]:
    times = [x.times for x in part]
    cells = [summary([], (x[kind] for x in times if kind in x)) for kind in kinds]
    return [str(len(part)), *(f"{row[2]}, {row[4]}" for row in cells)]


# --- changed sizes -------------------------------------------------------------------------------

FIXED = (
    Machine(8, 8),
    Machine(8, 8, rate=14, outer=1.25, inner=10, far=25, near=8),
    Machine(8, 8, rate=400, outer=50, inner=400, far=14, near=3.4),
)
"""As of A100; of V100 on Ethernet and PCIe; and one that computes 20 times as fast as the first,
with twice its bandwidths."""

FACTORS = (1 / 8, 8)
CHANGES = {
    "batch": {"mlp": "batch", "switch": "groups", "transformer": "batch"},
    "sequence": {"switch": "words", "transformer": "seq"},
    "width": {"mlp": "width", "switch": "hidden", "transformer": "hidden"},
    "devices": dict.fromkeys(MODELS, ""),
}


def changed() -> list[list[str]]:
    """Return the table of changed sizes."""
    kinds = ("kept", "greedy", "one ratio")
    shown = [f"{kind}: within 20 %, median, worst" for kind in kinds]
    rows = [["changed", "programs", *shown, "kept, but not all of it"]]
    first = {
        (machine, model): Own(machine, program(model, tuple(sizes.items()))).plan
        for machine in FIXED
        for model, sizes in MODELS.items()
    }
    for change, models in CHANGES.items():
        ratios: dict[str, list[float]] = {kind: [] for kind in kinds}
        others: list[int] = []
        for machine in FIXED:
            for model, size in models.items():
                for factor in FACTORS:
                    sizes = MODELS[model]
                    now = machine
                    if size:
                        sizes = sizes | {size: int(sizes[size] * factor)}
                    else:
                        now = replace(machine, nodes=int(machine.nodes * factor))
                    text = program(model, tuple(sizes.items()))
                    own = Own(now, text)
                    kept = first[machine, model]
                    others.append(values_in(own.sharding, kept)[1])
                    by = ratios_on(now, own.graph)
                    ratios["kept"].append(own.ratio(kept))
                    ratios["greedy"].append(own.ratio(greedy_plan(own.function, own.graph)))
                    hybrid, _ = exact_plan(own.function, own.graph, by)
                    ratios["one ratio"].append(own.ratio(hybrid))
        cells = [", ".join(summary([], ratios[kind])[2:]) for kind in kinds]
        misfits = sum(n > 0 for n in others)
        rows.append([change, str(len(others)), *cells, str(misfits)])
        print(change, file=sys.stderr, flush=True)
    return rows
