"""Layouts in linear time: from a few states of all parts, the changes that save most are made.

Each change lowers the sum of the costs of steps in their best ways, so the descent ends:

- **One part.** Steps vote for the states of their parts (``votes.py``). The parts that save most
  change at once, except neighbours of parts that change: so each saves what its votes say.
- **An index.** All parts with an index become divided along it by an axis, or none of them.
- **A region.** Where two descents end in different states, each region of differing neighbours
  takes its states from one or the other.
- **One tensor or step**, at last, where several steps share a move of a tensor.

Descents start from all parts divided along the same indices, and from the votes of steps before any
state is known. The result does not depend on the order of steps: sums are of integers, and ties go
to the first state, or to the part with the least scattered number.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from collir.synthesis.propagation.graph import Relation, Tensor, TensorGraph
from collir.synthesis.sharding.descent.states import States, StateSpace
from collir.synthesis.sharding.descent.votes import Amounts, VotedSteps, Votes, add, votes_of
from collir.synthesis.sharding.factors import FactorSum, Values
from collir.synthesis.sharding.problem import Sharding

_INDICES = 4
"""The most indices along which all parts are divided at first."""

_STARTS = 16
"""The most descents from parts divided along the same indices."""

_WORK = 200_000
"""The most costs of steps that are computed to find starts: large programs have fewer of them."""

_VISITS = 50
"""The most votes of a step in a descent, on average."""

_PASSES = 10
"""The most passes over all indices, and over all tensors and steps."""


class Descent:
    """The descents in the choices of layouts of a graph."""

    def __init__(
        self,
        graph: TensorGraph,
        sharding: Sharding,
        axes: Sequence[str],
        whole: FactorSum | None = None,
    ):
        """Set up the descents.

        Args:
            axes: the sub-axes that are chosen.
            whole: the sum that is lowered; None: that of the choices.
        """
        self.sharding, self.whole = sharding, whole or sharding.sum
        self.axes = [axis for axis in axes if graph.mesh.by_name[axis].size > 1]
        self.space = StateSpace(graph, sharding)
        self.steps = VotedSteps(self.space, self.whole, list(sharding.ways))
        self.at: list[list[int]] = [[] for _ in self.space.layouts]
        for number, step in enumerate(self.steps.listed):
            for part in step.parts:
                self.at[part].append(number)

    def run(self) -> Values:
        """Return the value of each variable."""
        best, *others = sorted(map(self.lowered, self.starts()), key=self.cost)
        for other in others:
            mixed = self.mixed(best, other)
            if mixed != best:
                best = self.lowered(mixed)
        return self.settled(self.steps.values(best))

    # --- starts ---------------------------------------------------------------------------------

    def starts(self) -> list[States]:
        """Return the states from which descents start."""
        room = max(1, _WORK // max(1, len(self.steps.listed)))
        most = max(1, min(_INDICES, int(room ** (1 / max(1, len(self.axes))))))
        uniform = [*self.space.uniform(self.axes, most)]
        best = sorted(range(len(uniform)), key=lambda n: (self.cost(uniform[n]), n))
        return [self.first(), *(uniform[n] for n in best[: min(_STARTS, room)])]

    def first(self) -> States:
        """Return the states that get the most votes before any state is known."""
        votes = self._with_held(votes_of(self.steps.listed))
        return [int(votes[part].argmin()) for part in range(len(self.at))]

    def _with_held(self, votes: Votes) -> Votes:
        add(votes, dict(enumerate(self.steps.held)))
        return votes

    def cost(self, states: States) -> int:
        """Return the sum in some states, with all steps in their best ways."""
        held = sum(int(costs[s]) for costs, s in zip(self.steps.held, states, strict=True))
        return held + sum(x.kind.least(x.in_states(states)) for x in self.steps.listed)

    # --- descents -------------------------------------------------------------------------------

    def lowered(self, states: States) -> States:
        """Return the states at the end of a descent from some states."""
        states = self.lowered_by_parts(states)
        for _ in range(_PASSES):
            changed = self.lowered_by_indices(states)
            if changed == states:
                break
            states = self.lowered_by_parts(changed)
        return states

    def lowered_by_parts(self, states: States) -> States:
        """Return the states after changes of single parts, made as long as one saves anything."""
        states, steps = list(states), self.steps.listed
        votes = self._with_held(votes_of(steps, states))
        visits, parts = 0, set(range(len(states)))
        while parts and visits <= _VISITS * len(steps):
            changed, parts = self.largest(self.moves(votes, states, parts))
            touched = sorted({number for part in changed for number in self.at[part]})
            before = self._votes_of(touched, states)
            for part, state in changed.items():
                states[part] = state
            add(votes, self._votes_of(touched, states))
            add(votes, {part: -costs for part, costs in before.items()})
            parts |= before.keys()
            visits += len(touched)
        return states

    def _votes_of(self, numbers: Iterable[int], states: States) -> Votes:
        return votes_of((self.steps.listed[number] for number in numbers), states)

    def moves(
        self, votes: Votes, states: States, parts: Iterable[int]
    ) -> dict[int, tuple[int, int]]:
        """Return the parts that another state makes cheaper, with the saving and the state."""
        moves: dict[int, tuple[int, int]] = {}
        for part in parts:
            costs = votes[part]
            best = int(costs.argmin())
            if saved := int(costs[states[part]] - costs[best]):
                moves[part] = saved, best
        return moves

    def largest(self, moves: dict[int, tuple[int, int]]) -> tuple[dict[int, int], set[int]]:
        """Return new states of the parts that save most, no two of them neighbours, and waiting
        parts."""
        changed: dict[int, int] = {}
        beside: set[int] = set()
        for part in sorted(moves, key=lambda part: (-moves[part][0], _scattered(part))):
            if part not in beside:
                changed[part] = moves[part][1]
                beside.update(p for n in self.at[part] for p in self.steps.listed[n].parts)
        return changed, moves.keys() - changed.keys()

    def lowered_by_indices(self, states: States) -> States:
        """Return the states after axes divide all parts along an index, or none, wherever that
        saves something."""
        states = list(states)
        for dims in self.space.shared:
            for axis in self.axes:
                for is_divided in (True, False):
                    changed = self._along(states, axis, dims, is_divided)
                    if changed and self._saves(states, changed):
                        for part, state in changed.items():
                            states[part] = state
        return states

    def _along(
        self, states: States, axis: str, dims: dict[int, int], is_divided: bool
    ) -> dict[int, int]:
        """Return the new states of parts after an axis divides them along an index, or none."""
        changed: dict[int, int] = {}
        for part, dim in dims.items():
            state = self.space.with_axis(part, states[part], axis, dim if is_divided else None)
            if state is not None and state != states[part]:
                changed[part] = state
        return changed

    def _saves(self, states: States, changed: dict[int, int]) -> bool:
        """Return whether new states of some parts lower the cost."""
        more = 0
        for part, state in changed.items():
            more += int(self.steps.held[part][state] - self.steps.held[part][states[part]])
        for number in {number for part in changed for number in self.at[part]}:
            step = self.steps.listed[number]
            after = tuple(changed.get(part, states[part]) for part in step.parts)
            more += step.kind.least(after) - step.kind.least(step.in_states(states))
        return more < 0

    def mixed(self, states: States, others: States) -> States:
        """Return states in which each differing region takes the cheaper of two states."""
        states = list(states)
        differ = {part for part, own in enumerate(states) if own != others[part]}
        for part in sorted(differ):
            if part in differ:
                changed = {own: others[own] for own in self._region(part, differ)}
                differ -= changed.keys()
                if self._saves(states, changed):
                    for own, state in changed.items():
                        states[own] = state
        return states

    def _region(self, part: int, among: set[int]) -> set[int]:
        """Return a part and all parts that steps connect with it, among some."""
        region, todo = {part}, [part]
        while todo:
            for number in self.at[todo.pop()]:
                new = {p for p in self.steps.listed[number].parts if p in among} - region
                region |= new
                todo += new
        return region

    # --- tensors and steps --------------------------------------------------------------------

    def settled(self, values: Values) -> Values:
        """Return values after changes of single variables, made as long as one lowers the sum."""
        values = dict(values)
        todo = order = self._order
        for _ in range(_PASSES):
            touched: set[int] = set()
            for variable in todo:
                costs = self._costs(variable, values)
                best = int(costs.argmin())
                if costs[best] < costs[values[variable]]:
                    values[variable] = best
                    touched.update(v for part in self.whole.of[variable] for v in part.scope)
            todo = [variable for variable in order if variable in touched]
        return values

    @cached_property
    def _order(self) -> list[int]:
        """The variables in the order of the program."""
        first: dict[int, tuple[int, bool]] = {}
        for what, variable in self.sharding.variable_of.items():
            is_step = isinstance(what, Relation)
            tensor = what.members[-1] if is_step else what
            assert isinstance(tensor, Tensor)
            own = (tensor.number, is_step)
            first[variable] = min(own, first.get(variable, own))
        return sorted(first, key=lambda variable: first[variable])

    def _costs(self, variable: int, values: Values) -> Amounts:
        """Return the costs of each value of a variable, where the others have their values."""
        costs = np.zeros(self.whole.sizes[variable], np.int64)
        for part in self.whole.of[variable]:
            costs += self.steps.integers(part.along(variable, values))
        return costs


def _scattered(part: int) -> int:
    """Return a number that scatters neighbours, so that many of a row with equal savings change at
    once (Knuth's multiplicative hash)."""
    return part * 2654435761 % (1 << 32)
