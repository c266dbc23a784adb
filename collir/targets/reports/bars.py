"""The bars of a chart of a simulation: its steps, and those of its loops."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from collir.cost.programs.critical import critical_path
from collir.cost.programs.simulation import LoopStep, SimulatedStep, Simulation
from collir.targets.reports.simulate import lane_name

_MOST_ITERATIONS = 4
"""The most iterations of a loop that are drawn one by one; of more, the first two and the last."""

_MOST_KINDS = 9
"""The most kinds of steps with a colour of their own: those that take most time."""

_OTHERS = "other steps"

_TASKS = {"F": "F: forward", "B": "B: backward", "W": "W: weight gradients"}


@dataclass(frozen=True)
class Bar:
    """A bar on a lane, with its start, its end and the kind of its step.

    Attributes:
        texts: names of the step, from the longest to the shortest; the first that fits is drawn.
    """

    lane: str
    start: float
    end: float
    texts: Sequence[str]
    kind: str
    marked: bool = False


def bars_of(simulation: Simulation) -> tuple[list[Bar], list[str]]:
    """Return the bars of a simulation, and the names of the lanes that have some."""
    bars = _grouped([*_bars(simulation)])
    used = {bar.lane for bar in bars}
    return bars, [lane for lane in dict.fromkeys(_lanes(simulation)) if lane in used]


def _bars(simulation: Simulation, start: float = 0.0, marked: bool | None = None) -> Iterator[Bar]:
    """Yield the bars of steps, and of those in loops for some iterations.

    Args:
        start: when the first step starts.
        marked: whether a loop that they are in is on the critical path; None: they are in none.
    """
    links = critical_path(simulation) if marked is not False else []
    path = {link.number for link in links}
    for number, (step, span) in enumerate(zip(simulation.steps, simulation.spans, strict=True)):
        begin, end = (start + at for at in span)
        if begin == end:
            continue
        if step.loop is not None:
            yield from _iterations(step.loop, begin, end, number in path)
            continue
        lane, texts = lane_name(simulation, step), _texts(simulation, step)
        yield Bar(lane, begin, end, texts, _kind(step), number in path)
    inside = [step for step in simulation.steps if step.iterations and step.task.phases]
    lanes = dict.fromkeys(lane_name(simulation, step) for step in inside)
    for recurrence in simulation.timeline.cuts:  # iterations that are not simulated, as they recur
        begin = start + recurrence.start
        yield from _more(lanes, begin, begin + recurrence.cut.seconds, recurrence.cut.skipped)


def _iterations(loop: LoopStep, begin: float, end: float, marked: bool) -> Iterator[Bar]:
    """Yield the bars of a loop: of all iterations if they are few, else of the first and last."""
    times = int(loop.times)
    each = (end - begin) / times
    shown = range(times) if times <= _MOST_ITERATIONS else (0, 1, times - 1)
    for number in shown:
        yield from _bars(loop.body, begin + number * each, marked)
    if left := times - len(shown):
        yield from _more(dict.fromkeys(_lanes(loop.body)), begin + 2 * each, end - each, left)


def _more(lanes: Iterable[str], begin: float, end: float, count: int) -> Iterator[Bar]:
    for lane in lanes:
        yield Bar(lane, begin, end, (f"{count} iterations", f"{count}x"), "more iterations")


def _lanes(simulation: Simulation) -> Iterator[str]:
    """Yield the lanes of steps, the device's own first, and the lanes of steps in loops."""
    for step in sorted(simulation.steps, key=lambda step: (step.lane, step.task.stream)):
        if step.loop is not None:
            yield from _lanes(step.loop.body)
        elif step.task.phases:
            yield lane_name(simulation, step)


def _kind(step: SimulatedStep) -> str:
    """Return the kind by which a step is coloured; a kernel has the kind of its first step."""
    if step.pipelined:
        return _TASKS.get(step.kind[0], step.kind[0])
    first, plus, _ = step.kind.partition("+")
    return f"{first} and more" if plus else first


def _grouped(bars: Sequence[Bar]) -> list[Bar]:
    """Return bars of few kinds: the kinds that take least time become other steps."""
    taken: dict[str, float] = {}
    for bar in bars:
        taken[bar.kind] = taken.get(bar.kind, 0.0) + bar.end - bar.start
    kept = sorted(taken, key=lambda kind: -taken[kind])[:_MOST_KINDS]
    return [bar if bar.kind in kept else replace(bar, kind=_OTHERS) for bar in bars]


def _texts(simulation: Simulation, step: SimulatedStep) -> tuple[str, ...]:
    """Return the names of a step, from the longest to the shortest; of a task also the number of
    its microbatch."""
    if step.pipelined:
        number = step.iterations[0] if step.iterations else 0
        return f"{step.kind} of {number}", f"{step.kind[0]} {number}", str(number)
    over = (f"{step.kind} over {step.over(simulation.mesh)}",) if step.sent else ()
    return (*over, step.kind, f"%{step.result}")
