"""The matching of collectives that ran with steps of a program: by kind, group, size and order."""

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from collir.importing.traces.expected import ExpectedStep
from collir.importing.traces.trace import TracedCollective
from collir.layout.mesh import Mesh

_SAME = 1e-6
"""The part by which equal sizes may differ."""

_PADDED = 0.03
"""The part by which a library may pad its operands."""

_SUMS = 0.1
"""The part by which the bytes of the same data may differ when collectives divide it otherwise,
such as buckets of gradients."""


@dataclass
class Matching:
    """The collectives of a rank in a step of training, and the steps of the program.

    Attributes:
        pairs: the number of a step of the program, and of the collective that it is.
        sums: numbers of steps, and of collectives, which send the same in other parts; what is not
            in these collectives, the larger ones of ``pairs`` send too.
        extra: the numbers of collectives that are no step.
        missing: the numbers of steps that did not run.
    """

    pairs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    sums: list[tuple[list[int], list[int]]] = field(
        default_factory=list[tuple[list[int], list[int]]]
    )
    extra: list[int] = field(default_factory=list[int])
    missing: list[int] = field(default_factory=list[int])


def matching(
    expected: Sequence[ExpectedStep], traced: Sequence[TracedCollective], mesh: Mesh
) -> Matching:
    """Return the matches of a rank's collectives with steps of a program.

    Collectives and steps of one kind, group and size are matched in order; then padded collectives;
    then several collectives with several steps that have as many bytes together.

    Args:
        expected: the collectives of the program, in its order.
        traced: the collectives that ran, in the order of issue.
    """
    matched = Matching()
    steps, ran = [*range(len(expected))], [*range(len(traced))]
    for tolerance in (_SAME, _PADDED):
        pairs = _in_order(expected, traced, steps, ran, mesh, tolerance)
        matched.pairs += pairs
        steps = _without(steps, [a for a, _ in pairs])
        ran = _without(ran, [b for _, b in pairs])
    for kind, size in dict.fromkeys(_key(expected[x], mesh) for x in steps):
        own = [x for x in steps if _key(expected[x], mesh) == (kind, size)]
        those = [x for x in ran if traced[x].kind == kind and traced[x].group_size in (0, size)]
        more = sum(traced[b].size - expected[a].size for a, b in matched.pairs
                   if traced[b].size and _key(expected[a], mesh) == (kind, size))  # fmt: skip
        wanted = sum(expected[x].size for x in own)
        sent = more + sum(traced[x].size for x in those)
        if min(wanted, sent) >= (1 - _SUMS) * max(wanted, sent):
            matched.sums.append((own, those))
            steps, ran = _without(steps, own), _without(ran, those)
    matched.pairs.sort()
    matched.extra = [x for x in ran if traced[x].kind not in ("barrier", "other")]
    matched.missing = steps
    return matched


def _without(numbers: Sequence[int], removed: Sequence[int]) -> list[int]:
    gone = {*removed}
    return [x for x in numbers if x not in gone]


def _key(step: ExpectedStep, mesh: Mesh) -> tuple[str, int]:
    return step.kind, mesh.group_size(step.axes)


def _in_order(
    expected: Sequence[ExpectedStep],
    traced: Sequence[TracedCollective],
    steps: Sequence[int],
    ran: Sequence[int],
    mesh: Mesh,
    tolerance: float,
) -> list[tuple[int, int]]:
    """Return pairs of an alike step and collective, each the first of those left.

    Args:
        tolerance: the part of the larger size by which sizes may differ.
    """
    by_key: dict[tuple[str, int], list[int]] = defaultdict(list)
    for number in steps:
        by_key[_key(expected[number], mesh)].append(number)
    groups: dict[str, dict[int, _Unmatched]] = defaultdict(dict)
    for (kind, size), own in by_key.items():
        groups[kind][size] = _Unmatched(own, [expected[x].size for x in own])
    pairs: list[tuple[int, int]] = []
    for number in ran:
        collective, by_size = traced[number], groups[traced[number].kind]
        of = collective.group_size
        pools = [by_size[of]] if of in by_size else [] if of else [*by_size.values()]
        heads = [(x.first(collective.size, tolerance), x) for x in pools]
        known = [(step, pool) for step, pool in heads if step is not None]
        if known:
            step, pool = min(known, key=lambda x: x[0])
            pool.take(step)
            pairs.append((step, number))
    return pairs


class _Unmatched:
    """Steps of one kind over groups of one size that are no collective yet."""

    def __init__(self, numbers: Sequence[int], sizes: Sequence[float]):
        self._all = deque(numbers)
        self._of_size: dict[float, deque[int]] = defaultdict(deque)
        for number, size in zip(numbers, sizes, strict=True):
            self._of_size[size].append(number)
        self._sizes = sorted(self._of_size)
        self._taken: set[int] = set()

    def first(self, size: float, tolerance: float) -> int | None:
        """Return the first step of about a size; of any size if it is 0."""
        if not size:
            return self._head(self._all)
        start = bisect_left(self._sizes, size * (1 - tolerance))
        end = bisect_right(self._sizes, size / (1 - tolerance))
        heads = [self._head(self._of_size[x]) for x in self._sizes[start:end]]
        return min((x for x in heads if x is not None), default=None)

    def take(self, number: int) -> None:
        """Match a step."""
        self._taken.add(number)

    def _head(self, queue: deque[int]) -> int | None:
        while queue and queue[0] in self._taken:
            queue.popleft()
        return queue[0] if queue else None
