"""A run beside its prediction: collectives, products, waiting, and steps in no program."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from statistics import mean, median
from typing import NamedTuple

import numpy as np

from collir.cost.collectives.collective import Route
from collir.cost.programs.simulation import SimulatedStep, Simulation
from collir.importing.traces.expected import ExpectedStep, expected_steps, group_of
from collir.importing.traces.matching import Matching, matching
from collir.importing.traces.trace import RankTrace, Span, TimeIntervals, Trace, TracedCollective
from collir.layout.mesh import Mesh

_ALIKE = 0.01
"""The part by which the operations of equal products may differ."""

_LATE = 0.02
"""The part of a step for which ranks must wait for a rank before it is named."""

_BLAMED = 0.2
"""The part of all waiting that a named rank must cause."""

_LEAST_GAP = 0.005
"""The part of a step that a gap is long at least."""


@dataclass(frozen=True)
class Arrivals:
    """A collective in a step of training, on the ranks of a group that were recorded.

    Attributes:
        number: that of the step.
        complete: whether all ranks of the group are here.
    """

    ran: Mapping[int, TracedCollective]
    number: int
    complete: bool

    @property
    def last(self) -> int:
        """The rank that came last."""
        return max(self.ran, key=lambda rank: self.ran[rank].start)

    @property
    def seconds(self) -> float:
        """The time once all ranks are there; with one rank, for as long as that waits."""
        ends = [x.end for x in self.ran.values()]
        if len(self.ran) == 1:
            return next(iter(self.ran.values())).seconds
        return max(0.0, median(ends) - self.ran[self.last].start)

    @property
    def waited(self) -> float:
        """The median time that the ranks waited for the last one."""
        starts = sorted(x.start for x in self.ran.values())
        return starts[-1] - median(starts[:-1]) if len(starts) > 1 else 0.0


@dataclass
class CollectiveRow:
    """A collective of a program beside what ran: once for each iteration of its loops.

    Attributes:
        rank: the first rank that runs it.
        times: how often it runs in a step of training on that rank.
        arrivals: of each of these, in each step of training and group.
        predicted: the seconds of all in the simulation; ``alone``: those if nothing else runs.
    """

    step: SimulatedStep
    path: tuple[str, ...]
    rank: int
    times: int = 0
    predicted: float = 0.0
    alone: float = 0.0
    arrivals: list[Arrivals] = field(default_factory=list[Arrivals])

    @property
    def measured(self) -> float:
        """The seconds of all in a step of training, without waiting where all ranks are here."""
        return self.times * median(x.seconds for x in self.arrivals) if self.arrivals else 0.0

    @property
    def waited(self) -> float:
        """The seconds in a step that most ranks waited for the last one."""
        return self.times * median(x.waited for x in self.arrivals) if self.arrivals else 0.0

    def taking_part(self, mesh: Mesh) -> int:
        """Return the number of ranks of a group that take part."""
        assert self.step.sent is not None
        collective = self.step.sent.collective
        return 2 if isinstance(collective.sent_by, Route) else mesh.group_size(collective.axes)

    @property
    def last(self) -> int | None:
        """The rank that is waited for most often, if one is for more than a nanosecond."""
        found = Counter(x.last for x in self.arrivals if x.waited > 1e-9)
        return found.most_common(1)[0][0] if found else None


@dataclass(frozen=True)
class SumRow:
    """Collectives that send the same bytes in other parts: of the program, and that ran."""

    kind: str
    axes: Sequence[str]
    steps: int
    ran: int
    size: float
    measured: float
    predicted: float


@dataclass(frozen=True)
class ProductRow:
    """Products of matrices with the same number of operations: how many there are in a step of
    training, and how long one takes. None of the program, or none that ran, is 0."""

    text: str
    operations: float
    ran: float
    expected: int
    measured: float
    predicted: float


@dataclass(frozen=True)
class Gap:
    """A part of a step of training in which a rank neither computes nor sends.

    Attributes:
        seconds: its length, in the median of the steps.
        before: what runs behind it; ``during``: the host's marks at that time.
    """

    rank: int
    seconds: float
    before: str
    during: str


@dataclass(frozen=True)
class Late:
    """A rank that the others wait for.

    Attributes:
        seconds: how long they wait for it in a step of training: the median.
        share: of all such waiting.
        computes, idles: by how much it computes and idles longer than the others.
        gap: its longest gap.
    """

    rank: int
    seconds: float
    share: float
    computes: float
    idles: float
    gap: Gap | None


@dataclass(frozen=True)
class TimeShares:
    """The times in which a rank computes, sends, sends without computing, and idles in a step."""

    computes: float
    sends: float
    exposed: float
    idles: float
    total: float


class Compared:
    """A trace beside a program.

    Attributes:
        remarks: oddities, and steps that could not be compared.
    """

    def __init__(self, trace: Trace, simulation: Simulation):
        self.trace, self.simulation = trace, simulation
        self.remarks: list[str] = [*trace.remarks]
        self.expected = {x.rank: [*expected_steps(simulation, x.rank)] for x in trace.ranks}
        self._sends = {
            rank: [x for x in steps if x.step.sent] for rank, steps in self.expected.items()
        }
        self.steps = {x.rank: [*steps_of(x, self._sends[x.rank])] for x in trace.ranks}
        self.count = min(map(len, self.steps.values()))
        if not any(x.steps for x in trace.ranks):
            how = "is taken as one step" if self.count == 1 else f"repeats {self.count} times"
            self.remarks.append(f"the trace marks no steps of training: it {how}")
        self.matched: dict[tuple[int, int], Matching] = {}
        for rank in trace.ranks:
            for number, (_, own) in enumerate(self.steps[rank.rank][: self.count]):
                key = rank.rank, number
                self.matched[key] = matching(self._sends[rank.rank], own, simulation.mesh)

    # --- whole steps -----------------------------------------------------------------------------

    @cached_property
    def seconds(self) -> float:
        """The time of a step of training: the median over ranks and steps."""
        return median(window.seconds for x in self.steps.values() for window, _ in x[: self.count])

    @cached_property
    def parts(self) -> Mapping[int, TimeShares]:
        """The time shares of each rank in a step of training, on average."""
        shares: dict[int, TimeShares] = {}
        for rank in self.trace.ranks:
            windows = [window for window, _ in self.steps[rank.rank][: self.count]]
            start, end = windows[0].start, windows[-1].end
            busy, sending = (x.within(start, end) for x in (rank.busy, rank.sending))
            either = busy.together(sending)
            total = (end - start) / self.count
            shares[rank.rank] = TimeShares(
                busy.seconds / self.count, sending.seconds / self.count,
                sending.without(busy).seconds / self.count,
                _left(total, either.seconds / self.count), total,
            )  # fmt: skip
        return shares

    @cached_property
    def predicted_parts(self) -> TimeShares:
        """The predicted time shares of the first rank in a step."""
        steps = self.expected[self.trace.ranks[0].rank]
        sends = _times([x for x in steps if x.step.sent])
        busy = _times([x for x in steps if not x.step.sent])
        total = self.simulation.time
        idles = _left(total, busy.together(sends).seconds)
        return TimeShares(busy.seconds, sends.seconds, sends.without(busy).seconds, idles, total)

    # --- collectives -----------------------------------------------------------------------------

    @cached_property
    def collectives(self) -> Sequence[CollectiveRow]:
        """The collectives of the program that ran, the longest first."""
        mesh = self.simulation.mesh
        rows: dict[tuple[str, ...], CollectiveRow] = {}
        counted: dict[tuple[str, ...], tuple[int, int]] = {}  # the step of which a row has times
        groups: dict[_Instance, dict[int, TracedCollective]] = defaultdict(dict)
        ordinals = {rank: _ordinals(steps) for rank, steps in self._sends.items()}

        @cache
        def group_at(axes: tuple[str, ...], rank: int) -> tuple[tuple[str, int], ...]:
            return tuple(group_of(mesh, axes, rank).items())

        for (rank, number), matched in self.matched.items():
            steps, (_, ran) = self._sends[rank], self.steps[rank][number]
            for a, b in matched.pairs:
                step = steps[a]
                row = rows.setdefault(step.path, CollectiveRow(step.step, step.path, rank))
                if counted.setdefault(step.path, (rank, number)) == (rank, number):
                    row.times += 1
                    row.predicted += step.end - step.start
                    row.alone += step.alone
                group = group_at(tuple(step.axes), rank)
                groups[_Instance(step.path, number, ordinals[rank][a], group)][rank] = ran[b]
        for instance, ran in groups.items():
            row = rows[instance.path]
            is_complete = len(ran) == row.taking_part(mesh)
            row.arrivals.append(Arrivals(ran, instance.number, is_complete))
        return sorted(rows.values(), key=lambda x: -x.measured - x.waited)

    @cached_property
    def sums(self) -> Sequence[SumRow]:
        """Collectives that divide the data of the program's collectives otherwise."""
        rows: dict[tuple[str, Sequence[str]], SumRow] = {}
        for (rank, number), matched in self._in_order:
            steps, (_, ran) = self._sends[rank], self.steps[rank][number]
            for a, b in matched.sums:
                kind, axes = steps[a[0]].kind, tuple(self.simulation.mesh.short(steps[a[0]].axes))
                rows.setdefault((kind, axes), SumRow(
                    kind, axes, len(a), len(b),
                    sum(steps[x].size for x in a), sum(ran[x].seconds for x in b),
                    sum(steps[x].end - steps[x].start for x in a),
                ))  # fmt: skip
        return [*rows.values()]

    @cached_property
    def extra(self) -> Sequence[tuple[str, float, int, int, float]]:
        """Collectives that are in no program: label, bytes, ranks, how many there are in the first
        step that has such, seconds together."""
        rows: dict[tuple[str, float, int], tuple[int, float]] = {}
        for (rank, number), matched in self._in_order:
            _, ran = self.steps[rank][number]
            own: dict[tuple[str, float, int], list[float]] = defaultdict(list)
            for x in matched.extra:
                own[ran[x].label, ran[x].size, ran[x].group_size].append(ran[x].seconds)
            for key, seconds in own.items():
                rows.setdefault(key, (len(seconds), sum(seconds)))
        return [(*key, *x) for key, x in rows.items()]

    @cached_property
    def missing(self) -> Sequence[tuple[ExpectedStep, int]]:
        """The collectives of the program that did not run in the first step on the first rank that
        has them: one of each, and how often it should have."""
        absent: dict[tuple[str, ...], list[ExpectedStep]] = {}
        for rank, steps in self._sends.items():
            own: dict[tuple[str, ...], list[ExpectedStep]] = {x.path: [] for x in steps}
            for x in self.matched[rank, 0].missing:
                own[steps[x].path].append(steps[x])
            absent = own | absent
        return [(x[0], len(x)) for x in absent.values() if x]

    @property
    def _in_order(self) -> Sequence[tuple[tuple[int, int], Matching]]:
        """The matches by rank and step, the first step of all ranks first."""
        return sorted(self.matched.items(), key=lambda x: x[0][::-1])

    @property
    def share_matched(self) -> float:
        """The part of the collectives in the run that are steps of the program."""
        total = sum(len(own) for x in self.steps.values() for _, own in x[: self.count])
        pairs = sum(len(x.pairs) + sum(len(b) for _, b in x.sums) for x in self.matched.values())
        return pairs / total if total else 1.0

    # --- waiting ---------------------------------------------------------------------------------

    @cached_property
    def late(self) -> Sequence[Late]:
        """The ranks that others wait for, the worst first."""
        waits: dict[int, list[list[Span]]] = defaultdict(lambda: [[] for _ in range(self.count)])
        for row in self.collectives:
            for arrivals in row.arrivals:
                if (waited := arrivals.waited) > 0:
                    end = arrivals.ran[arrivals.last].start
                    waits[arrivals.last][arrivals.number].append(Span("", end - waited, end))
        caused = {
            rank: median(TimeIntervals.of_spans(spans).seconds for spans in by_step)
            for rank, by_step in waits.items()
        }
        total, delays = sum(caused.values()), list[Late]()
        for rank, seconds in sorted(caused.items(), key=lambda x: -x[1]):
            if seconds < max(_LATE * self.seconds, _BLAMED * total):
                continue
            others = [x for number, x in self.parts.items() if number != rank]
            own = self.parts[rank]
            gaps = [x for x in self.gaps if x.rank == rank]
            delays.append(Late(
                rank, seconds, seconds / total, own.computes - mean(x.computes for x in others),
                own.idles - mean(x.idles for x in others), gaps[0] if gaps else None,
            ))  # fmt: skip
        return delays

    @cached_property
    def gaps(self) -> Sequence[Gap]:
        """The longest parts in which a rank neither computes nor sends, for each rank."""
        return sorted(
            (gap for rank in self.trace.ranks for gap in self._gaps(rank)),
            key=lambda x: -x.seconds,
        )

    def _gaps(self, rank: RankTrace) -> Iterator[Gap]:
        """Yield the gaps of a rank by what is behind them, the longest first."""
        windows = [window for window, _ in self.steps[rank.rank][: self.count]]
        used = rank.busy.together(rank.sending)
        work_at, names = rank.work.start, rank.work.name
        order = np.argsort(work_at, kind="stable")
        sends = sorted((x.start, x.label) for x in rank.collectives)
        lengths: dict[tuple[str, str], list[float]] = defaultdict(list)
        for window in windows:
            whole = TimeIntervals(np.array([window.start]), np.array([window.end]))
            for start, end in zip(*_parts_of(whole.without(used)), strict=True):
                if end - start < _LEAST_GAP * window.seconds:
                    continue
                at = int(np.searchsorted(work_at[order], end - 1e-9))
                name = rank.work.names[names[order[at]]] if at < len(order) else ""
                begins = work_at[order[at]] if at < len(order) else np.inf
                name = next((x for t, x in sends if end - 1e-9 <= t < begins), name)
                lengths[name, _during(rank.marks, start, end)].append(float(end - start))
        for (before, during), seconds in lengths.items():
            most = sorted(seconds, reverse=True)[: self.count]
            typical = median([*most, *[0.0] * (self.count - len(most))])
            if typical >= _LEAST_GAP * self.seconds:
                yield Gap(rank.rank, typical, before, during)

    # --- products --------------------------------------------------------------------------------

    @cached_property
    def products(self) -> Sequence[ProductRow]:
        """Products of matrices on the first rank, the longest first."""
        rank = self.trace.ranks[0]
        ran: dict[float, list[tuple[str, float]]] = defaultdict(list)
        start, end = rank.work.start, rank.work.end
        windows = [window for window, _ in self.steps[rank.rank][: self.count]]
        begin, until = windows[0].start, windows[-1].end
        for number, product in rank.work.products:
            if begin <= start[number] < until:
                key = _near(ran, product.operations)
                ran[key].append((product.text, float(end[number] - start[number])))
        expected: dict[float, list[float]] = defaultdict(list)
        for step in self.expected[rank.rank]:
            if step.operations:
                expected[_near(ran, step.operations)].append(step.end - step.start)
        rows = [
            ProductRow(
                Counter(text for text, _ in ran[key]).most_common(1)[0][0] if key in ran else "",
                key, len(ran.get(key, ())) / self.count, len(expected.get(key, ())),
                median(x for _, x in ran[key]) if key in ran else 0.0,
                mean(expected[key]) if key in expected else 0.0,
            )
            for key in {**ran, **expected}
        ]  # fmt: skip
        return sorted(rows, key=lambda x: -max(x.ran * x.measured, x.expected * x.predicted))

    @cached_property
    def rest(self) -> tuple[float, float]:
        """The seconds in a step of what computes and is no product: measured and predicted."""
        products = sum(x.ran * x.measured for x in self.products if x.ran)
        expected = sum(x.expected * x.predicted for x in self.products)
        own = self.parts[self.trace.ranks[0].rank].computes
        return max(0.0, own - products), max(0.0, self.predicted_parts.computes - expected)


class _Instance(NamedTuple):
    """A collective of a group in a step of training, and how many iterations were before."""

    path: tuple[str, ...]
    number: int
    ordinal: int
    group: tuple[tuple[str, int], ...]


def _ordinals(steps: Sequence[ExpectedStep]) -> list[int]:
    """Return of each step how many iterations of it were before."""
    count: Counter[tuple[str, ...]] = Counter()
    found: list[int] = []
    for step in steps:
        found.append(count[step.path])
        count[step.path] += 1
    return found


def _left(total: float, used: float) -> float:
    """Return what is left of some seconds; 0 if that is rounding."""
    return total - used if total - used > 1e-9 * total else 0.0


def _times(steps: Sequence[ExpectedStep]) -> TimeIntervals:
    return TimeIntervals.of(np.array([x.start for x in steps]), np.array([x.end for x in steps]))


def _parts_of(times: TimeIntervals) -> tuple[Sequence[float], Sequence[float]]:
    return times.start.tolist(), times.end.tolist()


def _during(marks: Sequence[Span], start: float, end: float) -> str:
    """Return the narrowest mark that has most of a gap in it."""
    inside = [x for x in marks if min(end, x.end) - max(start, x.start) > 0.5 * (end - start)]
    return min(inside, key=lambda x: x.seconds).name if inside else ""


def _near(known: Mapping[float, object], operations: float) -> float:
    """Return the number of operations that is the same up to rounding, if there is one."""
    close = (x for x in known if abs(x - operations) <= _ALIKE * operations)
    return next(close, operations)


def steps_of(
    rank: RankTrace, expected: Sequence[ExpectedStep]
) -> Iterator[tuple[Span, list[TracedCollective]]]:
    """Yield the steps of training of a rank: when they are, and the collectives of each.

    Devices run behind their hosts, so collectives are divided by their number where that goes.
    """
    ran = [x for x in rank.collectives if x.kind not in ("barrier", "other")]
    windows = rank.steps
    if not windows:
        count = len(ran) // len(expected) if expected and len(ran) % len(expected) == 0 else 1
        whole, count = rank.window, max(1, count)
        per_step = len(ran) // count
        starts = [whole.start, *(ran[n * per_step].issued for n in range(1, count)), whole.end]
        windows = [Span("", *x) for x in pairwise(starts)]
    per_step, left = divmod(len(ran), len(windows))
    parts = [ran[n * per_step : (n + 1) * per_step] for n in range(len(windows))]
    kinds = [[(x.kind, x.size) for x in part] for part in parts]
    if left or any(sorted(x) != sorted(kinds[0]) for x in kinds[1:]):
        parts = [[x for x in ran if w.start <= x.issued < w.end] for w in windows]
    yield from zip(windows, parts, strict=True)
