"""Layouts without a profile, by the amounts of data alone: axes are taken one after the other, and
each divides every step along one index.

Only the order of strategies matters, so a step costs what it would have to send, in bytes: operands
that lack the index that is divided have to be whole on every device, and a result that lacks it is
a sum over the devices (Wang et al., "SMSG", IJPP 2023; D-Rec in MindSpore halves the same way).

The work is two folds over the steps, in any order, and a choice for each step and each part:

- **Parts.** Tensors that only maps are between (a residual stream, a weight with its states) are a
  part: they lie alike. Steps join tensors, and the dimensions that share an index. The monoid is
  that of equivalence relations, whose product is the finest relation that contains both.
- **Votes.** For each part and each dimension of it that may be divided, a step says what it would
  send at least if the part were divided so. The monoid is that of sums of integers for each key.

Both are commutative, so no order of visiting steps changes a plan, and a program may be folded in
pieces. First each step votes as if it knew nothing of other parts. In further rounds votes know
what the round before chose, and those parts are divided otherwise that save most, of all beside
them, by it (a third fold, of maxima): so the sum falls in each round. Rounds start from the first
votes, and from all parts divided along one index, and the best end is taken. The work of a round is
linear in the number of steps: those with the same indices, sizes and parts vote alike, and are
computed once.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import add

from collir.layout.structure import REPEATED
from collir.synthesis.propagation.graph import Graph, Layout, Relation, Tensor
from collir.synthesis.sharding.symbolic.amounts import AMOUNTS, UNKNOWN, Accounting, Where
from collir.synthesis.sharding.symbolic.parts import Dimension, Parts, stacked
from collir.synthesis.sharding.symbolic.steps import Known, Member, Step, Table

_STARTS = 4
"""The most indices along which all parts are divided at first."""

_ROUNDS = 50
"""The most rounds of votes that know of other parts: few are enough mostly."""

States = dict[int, Dimension | None]
"""The dimension over which each part is divided; None: it is whole."""

Moves = dict[int, tuple[int, Dimension | None]]
"""Bytes that are saved if parts are divided otherwise, and how they are divided then."""


@dataclass
class Votes:
    """Sums of what steps would send, in parts of bytes.

    Attributes:
        whole: for each part, if it is not divided.
        more: for each dimension of a part, how much more if it is divided.
    """

    whole: Counter[int] = field(default_factory=Counter[int])
    more: Counter[tuple[int, Dimension]] = field(default_factory=Counter[tuple[int, Dimension]])

    def merge(self, other: "Votes") -> None:
        """Add the votes of other steps."""
        self.whole.update(other.whole)
        self.more.update(other.more)


class Halving:
    """The plan of a graph.

    Attributes:
        steps: the steps that are divided.
        layouts: the layout of each tensor.
        parts: the tensors that lie alike, and their dimensions.
        indices: the dimensions that any steps join.
        free: the parts of inputs that lie as is best for the steps that take them.
        whole: the dimensions that are never divided: iterations that are stacked.
    """

    def __init__(self, graph: Graph, accounting: Accounting = AMOUNTS):
        self.graph, self.accounting = graph, accounting
        self.parts, self.indices = Parts(), Parts()
        for relation in graph.relations:
            self.parts.add(relation)
            self.indices.add_indices(relation)
        made = {self.parts.part(x.members[-1]) for x in graph.relations}
        inputs = {self.parts.part(x) for x in graph.tensors if x.layout is None}
        self.free = frozenset[int]() if accounting.inputs_move else inputs - made
        self.whole = {self.parts.first(x) for x in stacked(graph.relations)}
        self._keys: dict[Hashable, int] = {}
        self.steps = [self._step(relation) for relation in graph.relations]
        self.layouts: list[list[tuple[str, ...]]] = [[() for _ in x.shape] for x in graph.tensors]

    def _step(self, relation: Relation) -> Step:
        parts: dict[int, int] = {}
        dims: dict[Dimension, int] = {}
        members: list[Member] = []
        for place, (tensor, over) in enumerate(
            zip(relation.members, relation.indices, strict=True)
        ):
            part = self.parts.part(tensor)
            own = [self.parts.first(Dimension(tensor.number, d)) for d in range(len(over))]
            number = parts.setdefault(part, len(parts))
            listed = tuple(dims.setdefault(x, len(dims)) for x in own)
            is_free = tensor.made and place < len(relation.members) - 1
            weight = 0 if is_free else self.accounting.weight(relation, place)
            size = 0 if is_free else int(tensor.bytes)
            members.append(Member(number, listed, over, tensor.shape, size, weight))
        key = (tuple(members), relation.blocked, relation.op is None)
        number = self._keys.setdefault(key, len(self._keys))
        times = int(relation.times)
        return Step(relation, times, list(parts), list(dims), members, number)

    def run(self) -> None:
        """Divide all steps and tensors over the axes of the mesh, one after the other: the inner
        first, as blocks of a dimension that several axes divide are moved over the inner one."""
        for name, axis in reversed(self.graph.mesh.by_name.items()):
            if axis.size > 1:
                Level(self, name, axis.size).run()

    def layout(self, tensor: Tensor) -> Layout:
        """Return the layout of a tensor."""
        return tensor.layout if tensor.layout is not None else tuple(self.layouts[tensor.number])

    def axes(self, relation: Relation) -> dict[str, tuple[str, ...]]:
        """Return the sub-axes of the indices of a step."""
        return self._axes[relation]

    @cached_property
    def _axes(self) -> dict[Relation, dict[str, tuple[str, ...]]]:
        return {step.relation: step.axes for step in self.steps}


class Level:
    """The division over one axis."""

    def __init__(self, halving: Halving, name: str, factor: int):
        self.halving, self.name, self.factor = halving, name, factor
        self.tensors = halving.graph.tensors
        self.accounting = halving.accounting
        self._known: dict[Hashable, list[tuple[int, list[tuple[int, int]]]]] = {}
        self._chosen: dict[Hashable, tuple[str | None, int]] = {}
        self._tables: dict[Hashable, Table] = {}
        self.pinned = self._pinned()

    def _pinned(self) -> States:
        """Return the dimension over which types divide each part, if they say it."""
        pinned: States = {}
        for tensor in self.tensors:
            if tensor.layout is not None:
                dims = (d for d, axes in enumerate(tensor.layout) if self.name in axes)
                dim = next(dims, None)
                pinned[tensor.number] = None if dim is None else Dimension(tensor.number, dim)
        return pinned

    def run(self) -> None:
        """Divide the steps and the tensors: first as votes say that know nothing of other parts,
        then as those say that do."""
        steps = self.halving.steps
        blocks = [self._blocks(tensor) for tensor in self.tensors]
        for step in steps:
            step.blocks = tuple(blocks[x.number] for x in step.relation.members)
        votes = self.votes(steps, {})
        starts = [self.first(votes), *self.uniform(votes)]
        improved = [self.improved(steps, states) for states in starts]
        _, _, states = min((cost, n, states) for n, (cost, states) in enumerate(improved))
        self._divide(states)

    def improved(self, steps: Sequence[Step], states: States) -> tuple[int, States]:
        """Return what is sent, and the states, after parts are divided otherwise as long as that
        saves something."""
        for _ in range(_ROUNDS):
            moves = self.moves(self.votes(steps, states), states)
            chosen = self.largest(steps, moves)
            if not chosen:
                break
            states = states | {part: moves[part][1] for part in chosen}
        return sum(self._best(step, states)[1] * step.times for step in steps), states

    def _blocks(self, tensor: Tensor) -> tuple[int, ...]:
        """Return the blocks of the dimensions of a tensor so far."""
        by_name = self.halving.graph.mesh.by_name
        layout = self.halving.layouts[tensor.number]
        return tuple(math.prod(by_name[axis].size for axis in axes) for axes in layout)

    def votes(self, steps: Iterable[Step], states: States) -> Votes:
        """Return the votes of some steps.

        Args:
            states: the dimension over which each part is divided, if it is known.
        """
        votes = Votes()
        whole, more = votes.whole, votes.more
        for step in steps:
            times = step.times
            for number, (undivided, divided) in enumerate(self._vote(step, states)):
                part = step.parts[number]
                whole[part] += undivided * times
                for dim, cost in divided:
                    more[part, step.dims[dim]] += cost * times
        return votes

    def first(self, votes: Votes) -> States:
        """Return the dimension over which each part is divided: the one for which least is sent,
        the first of those; None: it is whole, as less is sent then."""
        found: dict[int, tuple[int, Dimension]] = {}
        for (part, dim), more in self._free(votes):
            if more <= 0 and (part not in found or (more, dim) < found[part]):
                found[part] = more, dim
        return {p: found[p][1] if p in found else None for p in votes.whole} | self.pinned

    def uniform(self, votes: Votes) -> Iterator[States]:
        """Yield states in which all parts that have one index are divided along it, for those that
        most bytes have: data parallelism, or what else goes through the whole program."""
        of = self.halving.indices
        size: Counter[Dimension] = Counter()
        dims: dict[Dimension, dict[int, Dimension]] = defaultdict(dict)
        for (part, dim), _ in self._free(votes):
            index = of.first(dim)
            size[index] += int(self.tensors[part].bytes)
            dims[index][part] = min(dim, dims[index].get(part, dim))
        for index in sorted(size, key=lambda x: (-size[x], x))[:_STARTS]:
            yield {part: dims[index].get(part) for part in votes.whole} | self.pinned

    def _free(self, votes: Votes) -> Iterator[tuple[tuple[int, Dimension], int]]:
        """Yield the votes for dimensions that may be divided."""
        whole = self.halving.whole
        yield from ((key, more) for key, more in votes.more.items() if key[1] not in whole)

    def moves(self, votes: Votes, states: States) -> Moves:
        """Return the parts that had better be divided otherwise: what is saved, and how they are
        divided then. What is whole is divided if nothing more is sent then."""
        best: dict[int, tuple[int, Dimension | None]] = {}
        for (part, dim), more in self._free(votes):
            if part not in best or (more, dim) < best[part]:
                best[part] = more, dim
        moves: Moves = {}
        for part, (more, dim) in best.items():
            own = states[part]
            now = 0 if own is None else votes.more[part, own]
            then = (more, dim) if more <= 0 else (0, None)
            saves_memory = then[0] == now and own is None and then[1] is not None
            if part not in self.pinned and (then[0] < now or saves_memory):
                moves[part] = now - then[0], then[1]
        return moves

    def largest(self, steps: Iterable[Step], moves: Moves) -> set[int]:
        """Return the parts that save more than all others at the same steps, the first of equal
        ones: so each saves what it is said to, as no part beside it moves."""
        smaller: set[int] = set()
        for step in steps:
            listed = [(-moves[part][0], part) for part in step.parts if part in moves]
            if len(listed) > 1:
                smaller.update(part for _, part in sorted(listed)[1:])
        return moves.keys() - smaller

    # --- steps --------------------------------------------------------------------------------

    def _states(self, step: Step, states: States) -> Known:
        """Return the states of the parts of a step by the numbers of its dimensions."""
        numbers = step.numbers
        found: list[Where] = []
        for part in step.parts:
            dim = states.get(part)
            if part in self.halving.free or part not in states:
                found.append(UNKNOWN)
            else:
                found.append(None if dim is None else numbers.get(dim, -1))
        return tuple(found)

    def _vote(self, step: Step, states: States) -> list[tuple[int, list[tuple[int, int]]]]:
        """Return what a step sends at least, for each of its parts: if that is whole, and how much
        more if one of its dimensions is divided."""
        known = self._states(step, states) if states else (UNKNOWN,) * len(step.parts)
        key = (step.key, step.cuts, step.blocks, known)
        if key not in self._known:
            self._known[key] = [*self._new_vote(step, known, not states)]
        return self._known[key]

    def _new_vote(
        self, step: Step, known: Known, is_first: bool
    ) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        table = self._table(step)
        total = table.total(known, is_first or self.accounting.lies_whole)
        for part, state in enumerate(known):
            without = [x - own for x, own in zip(total, table.of(part, state), strict=True)]
            dims = sorted({d for x in step.members if x.part == part for d in x.dims})
            whole, *divided = (min(map(add, without, table.of(part, dim))) for dim in (None, *dims))
            yield whole, [(d, cost - whole) for d, cost in zip(dims, divided, strict=True)]

    def _best(self, step: Step, states: States) -> tuple[str | None, int]:
        """Return the index that a step divides, and what it sends."""
        known = self._states(step, states)
        key = (step.key, step.cuts, step.blocks, known)
        if key not in self._chosen:
            table = self._table(step)
            total = table.total(known, self.accounting.lies_whole)
            least = min(total)
            self._chosen[key] = table.indices[total.index(least)], least
        return self._chosen[key]

    def _table(self, step: Step) -> "Table":
        key = (step.key, step.cuts, step.blocks)
        if key not in self._tables:
            indices = self._indices(step)
            self._tables[key] = Table(step, indices, self.factor, self.accounting)
        return self._tables[key]

    def _indices(self, step: Step) -> Sequence[str | None]:
        """Return the indices that a step may divide; None: all devices do the same, as it can
        divide none, or only moves a tensor."""
        cuts, blocked = dict(step.cuts), step.relation.blocked
        indices = dict.fromkeys(i for x in step.members for i in x.over)
        found: list[str | None] = [
            index
            for index in indices
            if index not in blocked and index != REPEATED and self._divides(step, index, cuts)
        ]
        relation, repeats = step.relation, self.accounting.maps_repeat
        if found and relation.op is not None and not (repeats and relation.passes_all):
            return found
        return [*found, None]

    def _divides(self, step: Step, index: str, cuts: dict[str, int]) -> bool:
        parts = cuts.get(index, 1) * self.factor
        sizes = [
            n for x in step.members for n, i in zip(x.shape, x.over, strict=True) if i == index
        ]
        return all(size % parts == 0 for size in sizes) and max(sizes) > 1

    # --- what was chosen ----------------------------------------------------------------------

    def _divide(self, states: States) -> None:
        """Divide the steps and the tensors."""
        parts = self.halving.parts
        for tensor in self.tensors:
            dim = states.get(parts.part(tensor))
            if dim is None:
                continue
            layout = self.halving.layouts[tensor.number]
            if tensor.layout is not None:  # outer axes know of these blocks too
                layout[dim.dim] = (self.name, *layout[dim.dim])
                continue
            for d, size in enumerate(tensor.shape):
                divides = size % (self._blocks(tensor)[d] * self.factor) == 0
                if divides and parts.first(Dimension(tensor.number, d)) == dim:
                    layout[d] = (self.name, *layout[d])
                    break
        for step in self.halving.steps:
            index, _ = self._best(step, states)
            if index is not None:
                cuts = dict(step.cuts)
                cuts[index] = cuts.get(index, 1) * self.factor
                step.axes[index] = (self.name, *step.axes.get(index, ()))
                step.cuts = tuple(sorted(cuts.items()))
