"""The orders of the schedules of the literature, for each place from closed forms.

Each function returns the tasks of one place, in order, with W tasks; where B and W are one task,
the rules leave W out. No order depends on durations.
"""

from collections.abc import Iterator, Sequence
from itertools import count

from collir.layout.pipelines.tasks import Task

Order = list[Task]


class _Writer:
    """The tasks of a place as they are put in order; microbatches of each part count by themselves.

    A task of a microbatch that is not there is left out.
    """

    def __init__(self, microbatches: int):
        self.order: Order = []
        self._microbatches = microbatches
        self._next: dict[tuple[str, int], Iterator[int]] = {}

    def add(self, kinds: str, chunk: int) -> None:
        """Append the next task of each of some kinds."""
        for kind in kinds:
            microbatch = next(self._next.setdefault((kind, chunk), count()))
            if microbatch < self._microbatches:
                self.order.append(Task(kind, chunk, microbatch))


def gpipe(microbatches: int, chunk: int) -> Order:
    """Return all F, then all B, each with its W behind."""
    forward = [Task("F", chunk, microbatch) for microbatch in range(microbatches)]
    backward = (_both(chunk, microbatch) for microbatch in range(microbatches))
    return forward + [task for tasks in backward for task in tasks]


def alternating(forward: Sequence[Task], backward: Sequence[Task], ahead: int) -> Order:
    """Return some F ahead, then an F and a B with its W by turns, then the rest.

    Args:
        ahead: number of F before the first pair of an F and a B.
    """
    order = list(forward[:ahead])
    for index, (kind, chunk, microbatch) in enumerate(backward):
        order += forward[ahead + index : ahead + index + 1]
        order += (Task(kind, chunk, microbatch), Task("W", chunk, microbatch))
    return order


def one_forward_one_backward(places: int, microbatches: int, place: int) -> Order:
    """Return the order of PipeDream-flush: place s has at most P - s microbatches in flight."""
    forward = [Task("F", place, microbatch) for microbatch in range(microbatches)]
    backward = [Task("B", place, microbatch) for microbatch in range(microbatches)]
    return alternating(forward, backward, places - place - 1)


def interleaved(places: int, microbatches: int, place: int, chunks: int) -> Order:
    """Return the order of Megatron-LM, which takes the microbatches in groups of P.

    Place s has chunks s, s + P, s + 2P...; a group passes each of them before the next group.
    """

    def tasks(kind: str, held: Sequence[int]) -> list[Task]:
        groups = range(0, microbatches, places)
        return [
            Task(kind, chunk, microbatch)
            for first in groups
            for chunk in held
            for microbatch in range(first, first + places)
        ]

    held = range(place, chunks * places, places)
    ahead = 2 * (places - place - 1) + (chunks - 1) * places
    return alternating(tasks("F", held), tasks("B", held[::-1]), ahead)


def zero_bubble(microbatches: int, chunk: int, ahead: int, delay: int) -> Order:
    """Return some F ahead, then B, W and F by turns, each W some microbatches after its B.

    Args:
        ahead: number of F before the first B.
        delay: number of microbatches by which W lags behind B.
    """
    order = [Task("F", chunk, microbatch) for microbatch in range(min(ahead, microbatches))]
    for microbatch in range(microbatches):
        order.append(Task("B", chunk, microbatch))
        if microbatch >= delay:
            order.append(Task("W", chunk, microbatch - delay))
        if microbatch + ahead < microbatches:
            order.append(Task("F", chunk, microbatch + ahead))
    last = range(max(0, microbatches - delay), microbatches)
    return order + [Task("W", chunk, microbatch) for microbatch in last]


def zb_v(places: int, microbatches: int, place: int) -> Order:
    """Return the order of ZB-V: place s has chunks s and 2P - 1 - s."""
    down, up = place, 2 * places - 1 - place
    planned = max(microbatches, 2 * places - 1)
    writer = _Writer(microbatches)
    ahead = 2 * (places - place) - 1
    for _ in range(ahead):
        writer.add("F", down)
    for _ in range(place):
        writer.add("F", up)
        writer.add("F", down)
    for _ in range(places - place):
        writer.add("FBW", up)
    for index in range(planned - places):
        if ahead + place + index < planned:
            writer.add("F", down)
        writer.add("BW", down)
        writer.add("FBW", up)
    for _ in range(place):
        writer.add("B", down)
        writer.add("B", up)
    for _ in range(places - place):
        writer.add("BW", down)
    for _ in range(place):
        writer.add("W", up)
    for _ in range(place):
        writer.add("W", down)
    return writer.order


def dualpipe(places: int, microbatches: int, place: int) -> Order:
    """Return the order of DualPipe, with ``microbatches`` in each of the two directions.

    Place s has chunks s and 2P - 1 - s. The steps are those of DeepSeek's program; overlapping
    forward and backward tasks follow each other here.
    """
    outer = min(place, places - 1 - place)
    inner = places // 2 - outer - 1
    own, opposite = place, 2 * places - 1 - place
    if place >= places // 2:
        own, opposite = opposite, own
    writer = _Writer(microbatches)
    for _ in range(2 * inner):
        writer.add("F", own)
    for _ in range(outer + 1):
        writer.add("F", own)
        writer.add("F", opposite)
    for _ in range(inner):
        writer.add("BWF", opposite)
    for _ in range(microbatches - places + outer + 1):
        writer.add("F", own)
        writer.add("BWF", opposite)
        writer.add("BW", own)
    for _ in range(inner):
        writer.add("BW", opposite)
        writer.add("F", opposite)
        writer.add("BW", own)
    _drain(writer, own, opposite, outer + 1, inner)
    return writer.order


def _drain(writer: _Writer, own: int, opposite: int, pairs: int, inner: int) -> None:
    """Append the last B of DualPipe; the W of the second half of them wait until the end."""
    delayed: list[int] = []
    backward = [opposite, own] * pairs
    for index, chunk in enumerate(backward):
        writer.add("B", chunk)
        if index < pairs:
            writer.add("W", chunk)
        else:
            delayed.append(chunk)
    for _ in range(inner):
        writer.add("W", delayed.pop(0))
        writer.add("B", own)
        delayed.append(own)
    for chunk in delayed:
        writer.add("W", chunk)


def _both(chunk: int, microbatch: int) -> tuple[Task, Task]:
    return Task("B", chunk, microbatch), Task("W", chunk, microbatch)
