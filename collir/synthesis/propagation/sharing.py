"""Steps that bring one operand to the same layout: it is brought there once for all of them.

How many do is only known once all layouts are. Before, each step counts a share of the operand that
supposes that all its users do. So all steps that bring an operand somewhere are looked at together:
if they run faster without, they do.
"""

from collections.abc import Mapping, Sequence

from collir.synthesis.propagation.choice import LayoutChoice, Moved
from collir.synthesis.propagation.graph import Relation
from collir.synthesis.propagation.spread import Spreading

_LEAST = 1e-6
"""The least share of the time of some steps that has to be gained."""


def share(spreading: Spreading) -> None:
    """Let steps run without operands that too few of them bring to a layout."""
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
    """Return the fastest choice that does not bring an operand somewhere, if there is one."""
    fitting = [choice for choice in choices if moved not in choice.moves_of(relation)]
    return min(fitting, key=lambda x: x.seconds - x.moves + sum(x.brought.values()), default=None)


def _seconds(taken: Mapping[Relation, LayoutChoice], users: Sequence[Relation]) -> float:
    """Return the seconds of some steps, with each operand brought once, unless others bring it."""
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
