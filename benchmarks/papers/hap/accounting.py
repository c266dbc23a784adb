"""HAP's accounting of a sharded training step, so that its published profile and figures can be
used (Zhang et al., "HAP: SPMD DNN Training on Heterogeneous GPU Clusters with Automated Program
Synthesis", EuroSys 2024, and its released program).

There is one mesh axis, whose devices have shares of all that is divided. Steps are synchronous:
each takes as long as the slowest device for its share, and as its collective. An operation of the
forward pass costs its own count, and its backward pass twice that: every product of matrices 3 for
each multiplication, forwards and backwards, an elementwise operation of the forward pass 3 times
its count, and those of the backward pass nothing more. A collective takes the elements of the
tensor (HAP divides these by bytes per second) at the bandwidth of its kind, for blocks as large as
the largest; there is no latency.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation

from collir.cost.model import CostModel
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, Mesh
from collir.layout.sizes import without_formula
from collir.synthesis.propagation.graph import TensorGraph
from collir.synthesis.propagation.moves import Moves, MoveStep
from collir.synthesis.propagation.propagate import lay_out
from collir.synthesis.propagation.work import DeviceWork, StepTimes
from collir.synthesis.sharding.linear import Vector, minimum
from collir.synthesis.sharding.problem import Sharding
from collir.synthesis.sharding.solver import VariableValues, least_sum
from collir.synthesis.sharding.ways import Ways

_COUNTS = {
    "layer_norm": 10,
    "softmax": 15,
    "cross_entropy": 15,
    "relu": 3,
    "gelu": 3,
    "max_pool": 3,
    "avg_pool": 3,
}
"""The count of operations for each element of the first operand; of all others 1."""

_WIDEST = 11
"""The most pixels of a side of a window."""

_SAME = 1e-6
"""The part of the time by which other shares have to be better."""


@dataclass(frozen=True)
class Profile:
    """A cluster as HAP sees it.

    Attributes:
        rates: the operations/s of each device.
        bandwidths: the bytes/s of each kind of collective.
        width: the bytes that an element counts: 1 as in HAP, 4 as f32 has.
        projections: whether the projections of attention are counted; HAP leaves them out.
        windows: whether a convolution counts each pixel of its window; HAP counts one.
    """

    rates: tuple[float, ...]
    bandwidths: Mapping[str, float]
    width: float = 1.0
    projections: bool = False
    windows: bool = False

    @property
    def proportional(self) -> Vector:
        """The share of each device in proportion to its rate."""
        rates = np.array(self.rates)
        return rates / rates.sum()


def rounded(shares: Sequence[float], total: int) -> list[int]:
    """Return whole numbers in proportion to shares as HAP rounds them: down, and then one more for
    the largest remainder, the last of equal ones first."""
    exact = [share * total for share in shares]
    whole = [int(x) for x in exact]
    for _ in range(total - sum(whole)):
        left = [x - n for x, n in zip(exact, whole, strict=True)]
        whole[max(range(len(left)), key=lambda n: (round(left[n], 12), n))] += 1
    return whole


@dataclass(frozen=True)
class Plan:
    """Layouts and shares under HAP's accounting.

    Attributes:
        seconds: the time of the step.
        shares: the share of each device.
        proportional: the least time with shares in proportion to the rates.
        nodes: the nodes that the searches expanded.
        searches: the number of searches.
        proven: whether each search proved its layouts the best for its shares.
    """

    seconds: float
    shares: tuple[float, ...]
    proportional: float
    nodes: int
    searches: int
    proven: bool


def plan(module: ModuleOp, profile: Profile) -> Plan:
    """Return the best plan of the one ``auto`` function of a module, on one mesh axis: layouts for
    shares and shares for layouts in turns, until the time stops falling."""
    plans: list[Plan] = []
    lay_out(module, lambda f, closed: plans.append(_Turns(f, closed, profile).run()), callees=False)
    (found,) = plans
    return found


class _Turns:
    """The layouts and shares of a function, in turns."""

    def __init__(self, function: FuncOp, closed: bool, profile: Profile):
        self.function, self.profile = function, profile
        self.graph = TensorGraph.build(function, closed)
        self._shardings: dict[tuple[float, ...], Sharding] = {}
        (self.axis,) = self.graph.mesh.by_name

    def run(self) -> Plan:
        """Take turns from proportional and from equal shares, and return the best."""
        n = len(self.profile.rates)
        tried = [self.profile.proportional, np.full(n, 1 / n)]
        found: list[tuple[float, tuple[float, ...], VariableValues]] = []
        while tried:
            shares = tried.pop(0)
            if any(np.allclose(shares, known, rtol=1e-9) for _, known, _ in found):
                continue
            sharding = self._sharding(shares)
            solution = least_sum(sharding.sum)
            best = min((seconds for seconds, *_ in found), default=np.inf)
            found.append((solution.sum, tuple(shares.tolist()), solution))
            if solution.sum < best * (1 - _SAME) or len(found) <= 2:
                tried.append(self._shares(sharding, solution))
        seconds, shares, _ = min(found, key=lambda plan: plan[0])
        solutions = [solution for *_, solution in found]
        nodes, proven = sum(x.nodes for x in solutions), not any(x.ended for x in solutions)
        return Plan(seconds, shares, found[0][0], nodes, len(found), proven)

    def _sharding(self, shares: Vector) -> Sharding:
        key = tuple(shares.tolist())
        if key not in self._shardings:
            self._shardings[key] = self._new_sharding(shares)
        return self._shardings[key]

    def _new_sharding(self, shares: Vector) -> Sharding:
        work = _Work(self.function, self.graph.mesh, self.profile, shares)
        moves = _Moves(self.graph.mesh, self.profile, float(shares.max()))
        return Sharding(self.graph, Ways(self.graph.mesh, work), moves.seconds, moves.seconds)

    def _computing(self, sharding: Sharding, solution: VariableValues, divided: bool) -> float:
        """Return the time of all steps, or of those that are divided."""
        ways = ((sharding.way(solution.values, r), r) for r in self.graph.relations if r.op)
        return sum(
            way.seconds * relation.times
            for way, relation in ways
            if not divided or self.axis in way.times.axes
        )

    def _shares(self, sharding: Sharding, solution: VariableValues) -> Vector:
        """Return the best shares for some layouts, by a linear program.

        Steps that are divided take ``operations * max(share / rate)`` in all, and collectives a
        part that is in proportion to the largest share.
        """
        n, rates = len(self.profile.rates), np.array(self.profile.rates)
        equal = self._sharding(np.full(n, 1 / n))
        doubled = _Moves(self.graph.mesh, self.profile, 2 / n)
        twice = Sharding(self.graph, sharding.all_ways, doubled.seconds, doubled.seconds)
        operations = self._computing(equal, solution, divided=True) * n * rates.min()
        computing = self._computing(equal, solution, divided=False)
        sent = equal.sum.value(solution.values) - computing
        more = twice.sum.value(solution.values) - self._computing(twice, solution, False) - sent
        rows = np.zeros((2 * n, n + 2))
        rows[:n, :n], rows[:n, n] = np.eye(n), -1.0
        rows[n:, :n], rows[n:, n + 1] = np.diag(rates.min() / rates), -1.0
        costs = np.array([0.0] * n + [more * n, operations / rates.min()])
        one = np.array([[1.0] * n + [0.0, 0.0]])
        return minimum(costs, rows, np.zeros(2 * n), one, np.ones(1)).x[:n]


class _Work(DeviceWork):
    """The times of steps by HAP's counts."""

    def __init__(self, function: FuncOp, mesh: Mesh, profile: Profile, shares: Vector):
        super().__init__(function, mesh)
        self.profile, self.rates, self.shares = profile, np.array(profile.rates), shares
        self.forward = _forward(function)

    def times(
        self, op: DistOp, types: Sequence[DistType], properties: dict[str, Attribute]
    ) -> StepTimes:
        """Return the time of a step on the device that takes longest."""
        plain = super().times(op, types, properties)
        whole = [dist_type(x) for x in (*op.operands, op.result)]
        operations = self._operations(op, whole)
        if plain.axes:
            return plain._replace(places=(float((operations * self.shares / self.rates).max()),))
        return plain._replace(places=(float(operations / self.rates.min()),))

    def key(self, op: DistOp) -> tuple[object, ...]:
        """Return what times depend on beside types and properties."""
        return (*super().key(op), op in self.forward)

    def _operations(self, op: DistOp, types: Sequence[DistType]) -> float:
        structure = op.structure
        if structure is None or op.kind.is_view or len(types) < 2:
            return 0.0
        if structure.contracts:
            products = without_formula(structure.local_flops(self.mesh, types[:-1], types[-1])) / 2
            indices = {index for over in structure.operands for index in over}
            if not self.profile.projections and {"a", "d", "h"} <= indices:
                return 0.0
            if not self.profile.windows and op.mnemonic.startswith("conv"):
                products /= _window(op)
            return 3.0 * products
        if op not in self.forward:
            return 0.0
        return 3.0 * _COUNTS.get(op.mnemonic, 1) * types[0].elements


class _Moves(Moves):
    """The times of collectives by HAP's bandwidths."""

    def __init__(self, mesh: Mesh, profile: Profile, largest: float):
        super().__init__(mesh, CostModel())
        self.profile, self.blocks = profile, largest * mesh.devices

    def step(self, value: DistType, step: MoveStep) -> float:
        """Return the time of a step on a value; what sends nothing takes none."""
        if step.kind.local:
            return 0.0
        is_whole = (step.kind.before, step.kind.after) == ("partial", "replicated")
        blocks = 1.0 if is_whole else self.blocks
        size = value.elements * self.profile.width
        return blocks * size / self.profile.bandwidths[step.kind.name]


def _window(op: DistOp) -> int:
    """Return the pixels of the window of a convolution or of its gradient."""
    kernel = next(
        x
        for x in (dist_type(op.operands[1]), dist_type(op.result))
        if len(x.shape) == 4 and x.shape[0] <= _WIDEST and x.shape[1] <= _WIDEST
    )
    return int(kernel.shape[0]) * int(kernel.shape[1])


def _forward(function: FuncOp) -> set[Operation]:
    """Return the operations that stand before the first result, the loss, is made."""
    last = function.body.block.last_op
    assert isinstance(last, ReturnOp)
    loss, forward = last.operands[0].owner, set[Operation]()
    for op in function.body.ops:
        forward.update(op.walk() if isinstance(op, RepeatOp) else [op])
        if op is loss:
            break
    return forward
