"""The steps that ran on each rank, by any tool. Times are in seconds."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]


class Span(NamedTuple):
    """A part of the time of a rank, with a name."""

    name: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length in seconds."""
        return self.end - self.start


class TracedProduct(NamedTuple):
    """A product of matrices (or a convolution, or attention): how many operations, and its sizes
    as a report shows them."""

    operations: float
    text: str


@dataclass(slots=True)
class TracedCollective:
    """A collective, as one rank ran it.

    Attributes:
        kind: its name in collir; ``barrier`` and ``other`` have no bytes.
        label: its name in the trace.
        size: the bytes of its full buffer (see ``Collective.size``); 0 if the trace does not say.
        ranks: the ranks of its group, if the trace says so.
        group_size: their number; 0 if the trace does not say.
        group: the name of its group, if it has one.
        issued: when the host asked for it; its start if the trace does not say.
        stream: where it ran.
    """

    kind: str
    label: str
    size: float
    start: float
    end: float
    issued: float
    stream: str = ""
    ranks: tuple[int, ...] | None = None
    group_size: int = 0
    group: str = ""

    @property
    def seconds(self) -> float:
        """Its time on this rank, with the wait for others."""
        return self.end - self.start


class KernelWork:
    """Kernels (on CPUs: the outermost operations) of a rank, as columns: there may be millions."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._known: dict[str, int] = {}
        self._name, self._start, self._end = array("l"), array("d"), array("d")
        self._products: dict[int, TracedProduct] = {}

    def add(
        self, name: str, start: float, end: float, product: TracedProduct | None = None
    ) -> None:
        """Add a kernel."""
        number = self._known.get(name)
        if number is None:
            number = self._known[name] = len(self.names)
            self.names.append(name)
        if product is not None:
            self._products[len(self._name)] = product
        self._name.append(number)
        self._start.append(start)
        self._end.append(end)

    def __len__(self) -> int:
        return len(self._name)

    @property
    def name(self) -> Numbers:
        """The number of the name of each kernel."""
        return np.frombuffer(self._name, dtype=np.int64) if self._name else np.zeros(0, np.int64)

    @property
    def start(self) -> Numbers:
        """When each began."""
        return np.frombuffer(self._start) if self._start else np.zeros(0)

    @property
    def end(self) -> Numbers:
        """When each ended."""
        return np.frombuffer(self._end) if self._end else np.zeros(0)

    @property
    def products(self) -> Iterable[tuple[int, TracedProduct]]:
        """The products among them, by their numbers."""
        return self._products.items()

    def span(self, number: int) -> Span:
        """Return one of them."""
        return Span(self.names[self._name[number]], self._start[number], self._end[number])

    def spans(self) -> Iterable[Span]:
        """Yield each of them."""
        for number, start, end in zip(self._name, self._start, self._end, strict=True):
            yield Span(self.names[number], start, end)


@dataclass
class RankTrace:
    """The work that ran on a rank.

    Attributes:
        rank: its number in the job.
        file: the file of the trace.
        work: its kernels, without those of collectives and waits.
        waits: the times at which its host or a stream only waits for a collective.
        collectives: in the order in which they were issued.
        steps: the steps of training, if the trace marks them.
        marks: what its host says it does, such as loading data.
        shift: the seconds added to its times, to bring its clock to the clock of the first rank.
    """

    rank: int
    file: str
    work: KernelWork = field(default_factory=KernelWork)
    waits: list[Span] = field(default_factory=list[Span])
    collectives: list[TracedCollective] = field(default_factory=list[TracedCollective])
    steps: list[Span] = field(default_factory=list[Span])
    marks: list[Span] = field(default_factory=list[Span])
    shift: float = 0.0

    @cached_property
    def busy(self) -> "TimeIntervals":
        """When it computes."""
        return TimeIntervals.of(self.work.start, self.work.end).without(
            TimeIntervals.of_spans(self.waits)
        )

    @cached_property
    def sending(self) -> "TimeIntervals":
        """When a collective runs."""
        return TimeIntervals.of_spans(self.collectives)

    @property
    def window(self) -> Span:
        """From its first event to its last one."""
        starts = [x.start for x in (*self.collectives, *self.steps)]
        ends = [x.end for x in (*self.collectives, *self.steps)]
        if len(self.work):
            starts.append(float(self.work.start.min()))
            ends.append(float(self.work.end.max()))
        return Span("all", min(starts, default=0.0), max(ends, default=0.0))


@dataclass
class Trace:
    """The work that ran on all recorded ranks.

    Attributes:
        tool: what recorded it, in words.
        ranks: the recorded ranks, in order.
        world: the number of all ranks of the job; 0 if the trace does not say.
        remarks: what is odd about it, and how it was read.
        events: the number of events that were read.
        ignored: of these, those that are neither work nor a collective nor a mark.
    """

    tool: str
    ranks: list[RankTrace]
    world: int = 0
    remarks: list[str] = field(default_factory=list[str])
    events: int = 0
    ignored: int = 0


@dataclass(frozen=True)
class TimeIntervals:
    """Parts of time that do not touch, in order."""

    start: Numbers
    end: Numbers

    @staticmethod
    def of(start: Numbers, end: Numbers) -> "TimeIntervals":
        """Return when any of some spans is running."""
        if not len(start):
            return TimeIntervals(np.zeros(0), np.zeros(0))
        order = np.argsort(start, kind="stable")
        start, until = start[order], np.maximum.accumulate(end[order])
        first = np.concatenate([[True], start[1:] > until[:-1]])
        last = np.concatenate([first[1:], [True]])
        return TimeIntervals(start[first], until[last])

    @staticmethod
    def of_spans(spans: Sequence[Span] | Sequence[TracedCollective]) -> "TimeIntervals":
        """Return when any of some spans is running."""
        return TimeIntervals.of(
            np.array([x.start for x in spans]), np.array([x.end for x in spans])
        )

    @property
    def seconds(self) -> float:
        """Their total length in seconds."""
        return float((self.end - self.start).sum())

    def within(self, start: float, end: float) -> "TimeIntervals":
        """Return the parts between two times."""
        chosen = (self.end > start) & (self.start < end)
        return TimeIntervals(self.start[chosen].clip(start), self.end[chosen].clip(max=end))

    def together(self, other: "TimeIntervals") -> "TimeIntervals":
        """Return when either is."""
        return TimeIntervals.of(
            np.concatenate([self.start, other.start]), np.concatenate([self.end, other.end])
        )

    def without(self, other: "TimeIntervals") -> "TimeIntervals":
        """Return when the one is and the other is not."""
        if not len(self.start) or not len(other.start):
            return self
        edges = np.unique(np.concatenate([self.start, self.end, other.start, other.end]))
        middle = (edges[1:] + edges[:-1]) / 2
        chosen = self._has(middle) & ~other._has(middle)
        return TimeIntervals.of(edges[:-1][chosen], edges[1:][chosen])

    def _has(self, at: Numbers) -> npt.NDArray[np.bool_]:
        """Return which of some times are in these parts."""
        if not len(self.start):
            return np.zeros(len(at), dtype=bool)
        number = np.searchsorted(self.start, at, side="right") - 1
        return (number >= 0) & (at < self.end[number.clip(0)])
