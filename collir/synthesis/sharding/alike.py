"""Alike variables of a sum, such as the variables of equal layers written one after the other.

A colour describes a variable and its surroundings: the meaning of its values, and its costs, with
the colours of their other variables. Each round of colours sees one step further (Weisfeiler and
Leman, 1968). Variables of one colour become one variable: equal layers get equal layouts and are
searched once, like the body of a loop. The first and last layers have other neighbours and stay
apart.

The sum over fewer variables equals the sum where alike variables have equal values. So its minimum
is that over all such values, whatever the colours are.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from collir.synthesis.sharding.factors import Costs, FactorSum, FactorTable, Fan, Numbers

_ROUNDS = 2
"""The distance that colours see: to the neighbours of a step or a tensor, and to theirs."""


def alike(whole: FactorSum, kinds: Sequence[Hashable]) -> list[int]:
    """Return a number for each variable, the same for those that are alike.

    Args:
        kinds: the meaning of the values of each variable; only variables of one kind may be alike.
    """
    parts = [*whole.tables, *whole.fans]
    numbers: dict[Hashable, int] = {}

    def number(key: Hashable) -> int:
        return numbers.setdefault(key, len(numbers))

    costs = [number(_key(p.costs if isinstance(p, FactorTable) else p.prices)) for p in parts]
    places = [[(v, number(place)) for v, place in _places(part)] for part in parts]
    colours = [number(kind) for kind in kinds]
    for _ in range(_ROUNDS):
        around: list[list[tuple[int, int]]] = [[] for _ in colours]
        for own, listed in zip(costs, places, strict=True):
            colour = number((own, *sorted((place, colours[v]) for v, place in listed)))
            for variable, place in listed:
                around[variable].append((colour, place))
        colours = [number((own, *sorted(x))) for own, x in zip(colours, around, strict=True)]
    for variable in {v for part in parts for v in _clashing(part, colours)}:
        colours[variable] = number(("apart", variable))
    first: dict[int, int] = {}
    return [first.setdefault(colour, len(first)) for colour in colours]


def _key(x: Costs | Numbers) -> Hashable:
    return x.shape, hash(x.tobytes())


def _places(part: FactorTable | Fan) -> Iterator[tuple[int, Hashable]]:
    """Yield the variables of a part, each with its role in it; a user of a tensor also with the
    layouts that its values need."""
    if isinstance(part, FactorTable):
        yield from ((variable, place) for place, variable in enumerate(part.scope))
    else:
        yield part.own, "own"
        yield from ((u, _key(needs)) for u, needs in zip(part.users, part.needs, strict=True))


def _clashing(part: FactorTable | Fan, colours: Sequence[int]) -> list[int]:
    """Return the variables of a part that must stay apart: those of one colour, unless they are
    users of the same tensor."""
    if isinstance(part, Fan):
        alike = [user for user in part.users if colours[user] == colours[part.own]]
        return [part.own, *alike] if alike else []
    counts = Counter(colours[v] for v in part.scope)
    return [v for v in part.scope if counts[colours[v]] > 1]


def tied(whole: FactorSum, of: Sequence[int]) -> FactorSum:
    """Return a sum in which groups of variables have become one variable.

    Args:
        of: the number of the new variable for each one.
    """
    sizes = [0] * (max(of) + 1)
    for variable, own in enumerate(of):
        sizes[own] = whole.sizes[variable]
    tables: dict[tuple[int, ...], Costs] = {}
    for scope, costs in whole.tables:
        new = tuple(of[v] for v in scope)
        tables[new] = tables[new] + costs if new in tables else costs
    fans: dict[Hashable, list[Fan]] = defaultdict(list)
    for fan in whole.fans:
        users = {
            (of[user], needs.tobytes()): needs
            for user, needs in zip(fan.users, fan.needs, strict=True)
        }
        own = of[fan.own]
        new = Fan(own, tuple(user for user, _ in users), tuple(users.values()), fan.prices)
        fans[own, tuple(users), fan.prices.tobytes()].append(new)
    return FactorSum(
        sizes,
        [FactorTable(scope, costs) for scope, costs in tables.items()],
        [replace(same[0], prices=same[0].prices * len(same)) for same in fans.values()],
    )
