"""Which steps of a program collectives are that ran: by kind, group, size and order."""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from collir.importing.traces.expected import ExpectedStep
from collir.importing.traces.trace import TracedCollective
from collir.layout.mesh import Mesh

_SAME = 1e-6
"""The part by which sizes differ that are the same."""

_PADDED = 0.03
"""The part by which a library may pad what it sends."""

_SUMS = 0.1
"""The part by which the bytes of several collectives may differ that are the same ones in other
parts, such as buckets of gradients."""


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
    """Return which steps of a program the collectives of a rank are.

    Those of one kind, group and size are matched in order; then those that are padded; then several
    with several others that have as many bytes together.

    Args:
        expected: the collectives of the program, in its order.
        traced: those that ran, in the order in which they were issued.
    """
    found = Matching()
    steps, ran = [*range(len(expected))], [*range(len(traced))]
    for tolerance in (_SAME, _PADDED):
        pairs = _in_order(expected, traced, steps, ran, _alike(expected, traced, mesh, tolerance))
        found.pairs += pairs
        steps = [x for x in steps if x not in {a for a, _ in pairs}]
        ran = [x for x in ran if x not in {b for _, b in pairs}]
    for kind, size in dict.fromkeys(_key(expected[x], mesh) for x in steps):
        own = [x for x in steps if _key(expected[x], mesh) == (kind, size)]
        those = [x for x in ran if traced[x].kind == kind and traced[x].group_size in (0, size)]
        more = sum(traced[b].size - expected[a].size for a, b in found.pairs
                   if traced[b].size and _key(expected[a], mesh) == (kind, size))  # fmt: skip
        wanted = sum(expected[x].size for x in own)
        sent = more + sum(traced[x].size for x in those)
        if min(wanted, sent) >= (1 - _SUMS) * max(wanted, sent):
            found.sums.append((own, those))
            steps, ran = [x for x in steps if x not in own], [x for x in ran if x not in those]
    found.pairs.sort()
    found.extra = [x for x in ran if traced[x].kind not in ("barrier", "other")]
    found.missing = steps
    return found


def _key(step: ExpectedStep, mesh: Mesh) -> tuple[str, int]:
    return step.kind, mesh.group_size(step.axes)


def _alike(
    expected: Sequence[ExpectedStep],
    traced: Sequence[TracedCollective],
    mesh: Mesh,
    tolerance: float,
) -> Callable[[int, int], bool]:
    """Return whether a step may be a collective that ran."""

    def alike(a: int, b: int) -> bool:
        step, ran = expected[a], traced[b]
        if step.kind != ran.kind or ran.group_size not in (0, mesh.group_size(step.axes)):
            return False
        return not ran.size or abs(step.size - ran.size) <= tolerance * max(step.size, ran.size)

    return alike


def _in_order(
    expected: Sequence[ExpectedStep],
    traced: Sequence[TracedCollective],
    steps: Sequence[int],
    ran: Sequence[int],
    alike: Callable[[int, int], bool],
) -> list[tuple[int, int]]:
    """Return pairs of a step and a collective that are alike, each the first of those left."""
    by_kind: dict[str, deque[int]] = defaultdict(deque)
    for a in steps:
        by_kind[expected[a].kind].append(a)
    pairs: list[tuple[int, int]] = []
    for b in ran:
        queue = by_kind.get(traced[b].kind, deque[int]())
        chosen = next((a for a in queue if alike(a, b)), None)
        if chosen is not None:
            queue.remove(chosen)
            pairs.append((chosen, b))
    return pairs
