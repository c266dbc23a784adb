"""The check of a file for NCCL's tuner plugin: one line for each size, with the fastest choice."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collir.cost.collectives import nccl
from collir.cost.collectives.tuning import fastest_ranges, own_prices
from collir.cost.network.group import Group
from collir.importing.tuner import TunerLine
from collir.importing.values import TextPlace
from collir.targets.reports.text import seconds_text

LEAST_GAIN = 1e-9
"""The part of a time by which a choice must be faster to count as faster."""


@dataclass(frozen=True)
class TunedCollective:
    """A collective of a communicator, and the sizes in bytes that are tuned for it."""

    kind: str
    group: Group
    first: int
    last: int

    @property
    def nodes(self) -> int:
        """The number of nodes of the communicator."""
        return nccl.nodes_of(self.group)

    def __str__(self) -> str:
        nodes = f"{self.nodes} nodes" if self.nodes > 1 else "one node"
        return f"{self.kind} of {self.group.size} ranks on {nodes}"


def problems(
    lines: Sequence[TunerLine], tuned: Sequence[TunedCollective]
) -> Iterator[tuple[str, TextPlace]]:
    """Yield, with their places, the sizes for which lines match more than once, do not match, or
    name a slower choice than the fastest."""
    for collective in tuned:
        place = collective.kind, collective.nodes, collective.group.size
        own = [line for line in lines if line.is_for(*place)]
        yield from _coverage(own, collective)
        for line in own:
            yield from _choices(line, collective)


def _coverage(
    lines: Sequence[TunerLine], tuned: TunedCollective
) -> Iterator[tuple[str, TextPlace]]:
    """Yield overlaps of lines, and gaps between them."""
    ordered = sorted(lines, key=lambda line: (line.first, line.place))
    covered, reach = tuned.first, None
    for line in ordered:
        if line.first > covered and covered <= tuned.last:
            last = min(line.first - 1, tuned.last)
            yield f"{tuned}: no line is for {covered} to {last} B", line.place
        if reach and line.first <= reach.last:
            earlier, later = sorted((line.place, reach.place))
            last = min(line.last, reach.last)
            yield f"{tuned}: line {earlier.line} is taken for {line.first} to {last} B", later
        if not reach or line.last > reach.last:
            reach = line
        covered = max(covered, line.last + 1)
    if covered <= tuned.last:
        place = reach.place if reach else TextPlace(1)
        yield f"{tuned}: no line is for {covered} to {tuned.last} B", place


def _choices(line: TunerLine, tuned: TunedCollective) -> Iterator[tuple[str, TextPlace]]:
    """Yield why a line is not the fastest, for the first size at which it is not."""
    if line.pipe_ops != -1 or line.registered != -1:
        yield "prices do not tell numPipeOps and regBuff apart: they are -1", line.place
        return
    if line.channels == -1:
        yield "the plugin makes one channel of -1: 0 leaves their number to NCCL", line.place
    first, last = max(line.first, tuned.first), min(line.last, tuned.last)
    if first > last:
        return
    for sizes in fastest_ranges(tuned.kind, tuned.group, first, last):
        for size in (sizes.first, sizes.last):
            prices = own_prices(tuned.kind, tuned.group, size)
            if line.choice not in prices:
                yield f"{tuned}: NCCL's model has no {line.choice}", line.place
                return
            if prices[line.choice] > prices[sizes.choice] * (1 + LEAST_GAIN):
                slow, fast = seconds_text(prices[line.choice]), seconds_text(prices[sizes.choice])
                times = f"{line.choice} takes {slow} for {size} B, and {sizes.choice} {fast}"
                yield f"{tuned}: {times}", line.place
                return
