"""The improvement of layouts: tensors, alone or in groups that maps relate, take the layout of a
neighbour as long as that makes the program faster.

Spreading looks at one relation at a time, but the cost of a move is only known when both layouts
are. No tensor gets larger on a device, as a gather must not come earlier, or its result be kept.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from collir.ir.roles import Role
from collir.layout.sizes import same_size
from collir.layout.structure import REPEATED
from collir.synthesis.propagation.choice import Moved
from collir.synthesis.propagation.graph import Layout, Relation, Tensor
from collir.synthesis.propagation.spread import Spreading

_SWEEPS = 8
"""The most often that all tensors are looked at."""

_LEAST = 1e-6
"""The least share of the time of the steps around a tensor that has to be gained."""


def improve(spreading: Spreading) -> None:
    """Let tensors take other layouts while the program becomes faster."""
    groups = [*_connected(spreading), *([x] for x in _open(spreading))]
    for _ in range(_SWEEPS):
        changed = [_improved(spreading, group) for group in groups]
        if not any(changed):
            return


def _open(spreading: Spreading) -> Iterator[Tensor]:
    """Yield the tensors that may move; types alone place weights and states."""
    tensors = spreading.graph.tensors
    return (x for x in tensors if x.layout is None and x.role not in (Role.PARAMETER, Role.STATE))


def _connected(spreading: Spreading) -> list[list[Tensor]]:
    """Return the tensors of one shape that maps and loops relate, in groups of several."""
    leader = {tensor: tensor for tensor in _open(spreading)}

    def find(tensor: Tensor) -> Tensor:
        while leader[tensor] is not tensor:
            leader[tensor] = tensor = leader[leader[tensor]]
        return tensor

    for relation in spreading.graph.relations:
        result, over = relation.members[-1], relation.indices[-1]
        for tensor, indices in zip(relation.members[:-1], relation.indices, strict=False):
            same = indices == over and same_size(tensor.shape, result.shape) and relation.passes_all
            stacked = relation.op is None and len(indices) != len(over)
            if (same or stacked) and tensor in leader and result in leader:
                leader[find(tensor)] = find(result)
    groups: dict[Tensor, list[Tensor]] = {}
    for tensor in leader:
        groups.setdefault(find(tensor), []).append(tensor)
    return [group for group in groups.values() if len(group) > 1]


def _in_stacks(group: Sequence[Tensor], layout: Layout) -> list[Layout]:
    """Return the layouts of tensors in a group with stacks, from that of the other members."""
    return [((),) * (len(tensor.shape) - len(layout)) + layout for tensor in group]


def _improved(spreading: Spreading, group: Sequence[Tensor]) -> bool:
    """Give tensors that share their moves the layout in which the steps around them are fastest;
    return whether it is a new one."""
    relations = _around(spreading, (tensor.number for tensor in group))
    operands = {x.number for relation in relations for x in relation.members[:-1]}
    around = {**dict.fromkeys(relations), **dict.fromkeys(_around(spreading, operands))}
    own = [spreading.layouts[tensor.number] for tensor in group]
    before = _seconds(spreading, around)
    best, least = own, before * (1 - _LEAST)
    for layout in dict.fromkeys(_candidates(spreading, group, relations)):
        layouts = _in_stacks(group, layout)
        if not _keeps_less(spreading, layouts, own):
            continue
        for tensor, there in zip(group, layouts, strict=True):
            spreading.layouts[tensor.number] = there
        if (seconds := _seconds(spreading, around)) < least:
            best, least = layouts, seconds
    for tensor, layout in zip(group, best, strict=True):
        spreading.layouts[tensor.number] = layout
    return best is not own


def _keeps_less(spreading: Spreading, new: Sequence[Layout], old: Sequence[Layout]) -> bool:
    """Return whether tensors get no larger on a device."""
    blocks = spreading.estimates.blocks
    return all(
        blocks([*chain.from_iterable(after)]) >= blocks([*chain.from_iterable(before)])
        for after, before in zip(new, old, strict=True)
    )


def _around(spreading: Spreading, tensors: Iterable[int]) -> list[Relation]:
    """Return the relations of tensors."""
    numbers = {number for tensor in tensors for number in spreading.around[tensor]}
    return [spreading.graph.relations[number] for number in numbers]


def _seconds(spreading: Spreading, relations: Iterable[Relation]) -> float:
    """Return the seconds of some steps, each move of an operand counted once."""
    total = 0.0
    moved: dict[Moved, float] = {}
    for relation in relations:
        choice = spreading.best(relation)
        total += relation.times * (choice.seconds - choice.moves)
        moved |= choice.moves_of(relation)
    return total + sum(moved.values())


def _candidates(
    spreading: Spreading, group: Sequence[Tensor], relations: Iterable[Relation]
) -> Iterator[Layout]:
    """Yield the layouts that the steps around tensors of one shape prefer."""
    members, rank = set(group), min(len(tensor.shape) for tensor in group)
    for relation in relations:
        for tensor, over in zip(relation.members, relation.indices, strict=True):
            if tensor not in members:
                continue
            for member, indices in zip(relation.members, relation.indices, strict=True):
                if member in members:
                    continue
                axes = dict(zip(indices, spreading.layouts[member.number], strict=True))
                layout = tuple(
                    () if index == REPEATED or index in relation.blocked else axes.get(index, ())
                    for index in over[len(over) - rank :]
                )
                if _fits(spreading, tensor, layout):
                    yield layout
    for tensor in group:
        yield spreading.layouts[tensor.number][len(tensor.shape) - rank :]


def _fits(spreading: Spreading, tensor: Tensor, layout: Layout) -> bool:
    pairs = zip(tensor.shape[len(tensor.shape) - len(layout) :], layout, strict=True)
    return all(spreading.estimates.divides(size, axes) for size, axes in pairs)
