"""The choice of layouts as a sum over variables: a way for each step, a layout for each tensor.

A tensor lies in one layout. It is brought from there to each layout that steps need, once for all
steps with the same need. At the edges of a loop it becomes another tensor, with a layout of its
own: that of an iteration, or the stack of all. A step takes its operands in the layouts of its way,
and a partial result is reduced to the layout of the result's tensor. All costs are tables over
these variables: of a way, the step itself; of a way and the layout of the result, bringing the
result there; of the layout of a tensor and the ways of all steps that use it, bringing the tensor
to each. Where equal layers are written one after the other, many variables are alike, and become
one variable (``alike.py``), as in a loop.
"""

from collections import defaultdict
from collections.abc import Sequence, Set

import numpy as np

from collir.layout import DistType
from collir.synthesis.propagation.choice import with_layout
from collir.synthesis.propagation.graph import Layout, Relation, Tensor, TensorGraph
from collir.synthesis.searching import check_time
from collir.synthesis.sharding.alike import alike, tied
from collir.synthesis.sharding.factors import Costs, FactorSum, FactorTable, Fan, Numbers, Values
from collir.synthesis.sharding.ways import Move, StepWay, Ways

MANY = 1500
"""The number of variables above which equal layers are divided alike."""


class Sharding:
    """The layouts of a graph and what they cost.

    Attributes:
        variable_of: the variable of each step, and of each tensor that a step uses or makes.
        ways: for the variable of a step, its ways.
        layouts: for the variable of a tensor, its layouts.
        sum: the time of the program in seconds, over all variables.
        count: the number of variables before those of equal layers are joined.
    """

    def __init__(self, graph: TensorGraph, ways: Ways, move: Move, split: Move):
        """Set up the choices of a graph, which checks the time.

        Args:
            move: the time to bring a value to another layout.
            split: the time to move a value inside of a kernel, which becomes two.
        """
        self.move, self.split, self.is_inside = move, split, ways.work.is_inside
        self.all_ways = ways
        self.variable_of: dict[Relation | Tensor, int] = {}
        self.ways: dict[int, list[StepWay]] = {}
        self.layouts: dict[int, list[Layout]] = {}
        self._prices: dict[object, Costs] = {}
        self._left: dict[int, tuple[tuple[DistType, ...], Numbers]] = {}
        self.sum = FactorSum([], [], [])
        relations = [relation for relation in graph.relations if not is_kept(relation)]
        stacked = {relation.members[-1] for relation in relations if _stacks(relation)}
        for relation in relations:
            self._add_step(relation, ways, stacked)
        for relation in relations:
            if relation.op is not None:
                self._add_result(relation)
        for relation in relations:
            if relation.before is not None:
                self._add_addends(relation.before, relation)
        users: dict[tuple[Tensor, float], list[tuple[Relation, int]]] = defaultdict(list)
        for relation in relations:
            for position, tensor in enumerate(relation.members[:-1]):
                if not tensor.made:
                    users[tensor, moves_of(relation)].append((relation, position))
        for (tensor, times), using in users.items():
            self._add_uses(tensor, times, using)
        self.count = len(self.sum.sizes)

    @property
    def is_tied(self) -> bool:
        """True if equal layers are divided alike."""
        return len(self.sum.sizes) < self.count

    def tie(self) -> "Sharding":
        """Join the variables of equal layers, if they are many and less than half of them are left;
        return these choices."""
        if self.count <= MANY:
            return self
        kinds: list[object] = [None] * self.count
        for number, ways in self.ways.items():
            kinds[number] = tuple((*way.axes.items(), way.needs, way.left) for way in ways)
        for number, layouts in self.layouts.items():
            kinds[number] = tuple(layouts)
        of = alike(self.sum, kinds)
        if max(of) + 1 > self.count // 2:
            return self
        self.variable_of = {what: of[number] for what, number in self.variable_of.items()}
        self.ways = {of[number]: ways for number, ways in self.ways.items()}
        self.layouts = {of[number]: layouts for number, layouts in self.layouts.items()}
        self.sum = tied(self.sum, of)
        return self

    def _add_step(self, relation: Relation, ways: Ways, stacked: Set[Tensor]) -> None:
        """Add a step and its tensors.

        Args:
            stacked: the tensors that loops stack, which no axis divides along the iterations.
        """
        check_time()
        if relation.op is not None:
            number = self._add(relation, len(own := ways.of(relation)))
            self.ways[number] = own
            self._relate((number,), np.array([way.seconds for way in own]) * relation.times)
        for tensor in relation.members:
            if tensor not in self.variable_of:
                layouts = ways.layouts(tensor)
                if tensor.layout is None and tensor in stacked:
                    layouts = [layout for layout in layouts if not layout[0]]
                self.layouts[self._add(tensor, len(layouts))] = layouts

    def _add(self, what: Relation | Tensor, values: int) -> int:
        number = self.variable_of[what] = len(self.sum.sizes)
        self.sum.sizes.append(values)
        return number

    def _relate(self, variables: Sequence[int], costs: Costs) -> None:
        if costs.any():
            self.sum.tables.append(FactorTable(tuple(variables), costs))

    def _add_result(self, relation: Relation) -> None:
        """Relate a step with its result, which is reduced and brought to its layout."""
        tensor = relation.members[-1]
        number, own = self.variable_of[relation], self.variable_of[tensor]
        left, numbers = self._left_by(self.ways[number])
        prices = self._prices_of(tensor, left, self.layouts[own])
        self._relate((number, own), prices[numbers] * relation.times)

    def _left_by(self, ways: Sequence[StepWay]) -> tuple[tuple[DistType, ...], Numbers]:
        """Return the distinct types in which ways leave their result, and for each way the number
        of its type."""
        if id(ways) not in self._left:  # the ways of equal steps are one list, which stays
            number = {way.left: n for n, way in enumerate({way.left: way for way in ways}.values())}
            self._left[id(ways)] = tuple(number), np.array([number[way.left] for way in ways])
        return self._left[id(ways)]

    def _add_addends(self, before: Relation, relation: Relation) -> None:
        """Take back the reduction of an addend if the one before it is partial alike: their sum is
        reduced once."""
        first, number = self.variable_of[before], self.variable_of[relation]
        tensor = relation.members[-1]
        to = self.types(tensor)
        saved = np.zeros((len(self.ways[first]), len(self.ways[number]), len(to)))
        for column, way in enumerate(self.ways[number]):
            if way.left.partial:
                alike = np.array([first_way.left == way.left for first_way in self.ways[first]])
                prices = [self.price(tensor, way.left, x) for x in to]
                saved[:, column] = alike[:, None] * np.array(prices)
        self._relate((first, number, self.variable_of[tensor]), -saved * relation.times)

    def _add_uses(
        self, tensor: Tensor, times: float, using: Sequence[tuple[Relation, int]]
    ) -> None:
        """Relate a tensor with the steps that use it, and with the tensors that it becomes at the
        edges of loops, all with the same number of runs."""
        own = self.variable_of[tensor]
        layouts: dict[Layout, int] = {}
        needs: list[Numbers] = []
        users: list[int] = []
        for relation, position in using:
            users.append(self.variable_of[relation if relation.op else relation.members[-1]])
            listed = self.needs(relation, position)
            needs.append(np.array([layouts.setdefault(x, len(layouts)) for x in listed]))
        prices = self._prices_of(tensor, self.layouts[own], [*layouts]) * times
        if len(users) == 1:
            self._relate((own, users[0]), prices[:, needs[0]])
        elif prices.any():
            self.sum.fans.append(Fan(own, tuple(users), tuple(needs), prices))

    def needs(self, relation: Relation, position: int) -> list[Layout]:
        """Return the layout in which an operand is needed, for each value of its user."""
        if relation.op is not None:
            return [way.needs[position] for way in self.ways[self.variable_of[relation]]]
        layouts = self.layouts[self.variable_of[relation.members[-1]]]
        if _stacks(relation):
            return [layout[1:] for layout in layouts]
        if _slices(relation):
            return [((), *layout) for layout in layouts]
        return layouts

    def types(self, tensor: Tensor) -> list[DistType]:
        """Return the types of a tensor in its layouts."""
        layouts = self.layouts[self.variable_of[tensor]]
        return [with_layout(tensor.type, layout) for layout in layouts]

    def price(self, tensor: Tensor, x: DistType, to: DistType) -> float:
        """Return the time to bring a tensor from one layout to another, once."""
        check_time()
        return (self.split if self.is_inside(tensor.value) else self.move)(x, to)

    def _prices_of(
        self, tensor: Tensor, before: Sequence[DistType | Layout], after: Sequence[Layout]
    ) -> Costs:
        """Return the time from each type or layout of a tensor to each layout."""
        key = (self.is_inside(tensor.value), tensor.type, tuple(before), tuple(after))
        if key not in self._prices:
            whole = tensor.type
            types = [x if isinstance(x, DistType) else with_layout(whole, x) for x in before]
            to = [with_layout(whole, layout) for layout in after]
            self._prices[key] = np.array([[self.price(tensor, x, y) for y in to] for x in types])
        return self._prices[key]

    def layout(self, values: Values, tensor: Tensor) -> Layout:
        """Return the layout of a tensor in a solution."""
        number = self.variable_of.get(tensor)
        if number is None:  # no step uses it
            return tensor.layout or ((),) * len(tensor.shape)
        return self.layouts[number][values[number]]

    def way(self, values: Values, relation: Relation) -> StepWay:
        """Return how a step runs in a solution."""
        number = self.variable_of[relation]
        return self.ways[number][values[number]]


def is_kept(relation: Relation) -> bool:
    """Return whether a relation is between a tensor and itself, as for an unchanged carry."""
    return relation.op is None and relation.members[0] is relation.members[-1]


def _stacks(relation: Relation) -> bool:
    """Return whether a relation is between the tensor of an iteration and the stack of all."""
    first, last = relation.members[0], relation.members[-1]
    return relation.op is None and len(first.shape) < len(last.shape)


def _slices(relation: Relation) -> bool:
    """Return whether a relation is between a stack and its slice in each iteration."""
    first, last = relation.members[0], relation.members[-1]
    return relation.op is None and len(first.shape) > len(last.shape)


def moves_of(relation: Relation) -> float:
    """Return how often an operand is moved; a stack is moved before it is sliced."""
    return relation.times / (relation.members[0].shape[0] if _slices(relation) else 1)
