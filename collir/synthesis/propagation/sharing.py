"""The moves of operands that steps share: a tensor is brought to a layout once for all of them.

The number of these steps is only known when all layouts are. Until then each step counts a share of
the move, as if all users of the operand shared it. So all steps with the same move are looked at
together: if they run faster without it, they do.
"""

from collections.abc import Mapping, Sequence

from collir.synthesis.propagation.choice import LayoutChoice, Moved
from collir.synthesis.propagation.graph import Relation
from collir.synthesis.propagation.spread import Spreading

_LEAST = 1e-6
"""The least share of the time of some steps that has to be gained."""


def share(spreading: Spreading) -> None:
    """Let steps run without the moves that too few of them share."""
    taken = {x: spreading.best(x) for x in spreading.graph.relations if x.op is not None}
    for moved in dict.fromkeys(key for x, choice in taken.items() for key in choice.moves_of(x)):
        users = [x for x, choice in taken.items() if moved in choice.moves_of(x)]
        others = {x: _without(spreading.choices(x), x, moved) for x in users}
        if any(choice is None for choice in others.values()):
            continue
        changed = {x: choice for x, choice in others.items() if choice is not None}
        if _seconds(taken | changed, users) < _seconds(taken, users) * (1 - _LEAST):
            taken |= changed
    spreading.taken = taken


def _without(
    choices: Sequence[LayoutChoice], relation: Relation, moved: Moved
) -> LayoutChoice | None:
    """Return the fastest choice without a move of an operand, if there is one."""
    fitting = [choice for choice in choices if moved not in choice.moves_of(relation)]
    return min(fitting, key=lambda x: x.seconds - x.moves + sum(x.brought.values()), default=None)


def _seconds(taken: Mapping[Relation, LayoutChoice], users: Sequence[Relation]) -> float:
    """Return the seconds of some steps, with each move counted once unless other steps make it."""
    own: dict[Moved, float] = {}
    total = 0.0
    for relation in users:
        choice = taken[relation]
        total += relation.times * (choice.seconds - choice.moves)
        own |= choice.moves_of(relation)
    several = {*users}
    for relation, choice in taken.items():
        if relation not in several:
            for moved in choice.moves_of(relation):
                own.pop(moved, None)
    return total + sum(own.values())
