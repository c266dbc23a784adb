"""The recurrence of the iterations of a loop: iterations that need not be simulated.

The state of a simulation at the end of an iteration says which task every class of devices runs
next, and which tasks are under way. If a state equals an earlier one, but for the number of the
iteration, the simulation recurs as long as there are iterations. So as many of these periods as fit
are left out, and all later tasks are moved. The result is that of a simulation of all iterations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collir.cost.programs.loops import ListedLoop, Node, Repeated, TaskList
from collir.cost.programs.schedule import Moment, StepTask, schedule

FIRST_TRY, _LAST_TRY = 8, 512
"""The fewest and the most iterations that are simulated to see whether they recur."""


@dataclass(frozen=True)
class SkippedIterations:
    """Iterations that are left out of a simulation.

    Attributes:
        place: the place of the loop in the program of the function.
        done: the iterations that all classes have ended at the time of the cut.
        skipped: the number of iterations that are left out.
        seconds: the time that they take.
    """

    place: int
    done: int
    skipped: int
    seconds: float


def recurring_iterations(
    nodes: Sequence[Node], counts: Mapping[int, int], place: int, times: int
) -> SkippedIterations | None:
    """Return the iterations of a loop to leave out; None if none recur."""
    count = FIRST_TRY
    while count < times and count <= _LAST_TRY:
        listed = TaskList(nodes, {**counts, place: count})
        # A class past a later loop that lists only some iterations would in truth still be in it.
        later = [
            (listed.loops[inner], node.on)
            for inner, node in enumerate(nodes)
            if isinstance(node, Repeated) and inner > place and counts[inner] < node.times
        ]
        watch = _Watch(listed.loops[place], listed.tasks, later)
        schedule(listed.tasks, at=watch)
        if watch.recurrence:
            before, done, begun, seconds = watch.recurrence
            period = done - before
            least = max(done, begun + 1)
            periods = (times - least) // period
            return (
                SkippedIterations(place, done, periods * period, periods * seconds)
                if periods > 0
                else None
            )
        count *= 4
    return None


class _Watch:
    """The states of a simulation where the iterations of a loop end, until one recurs.

    Attributes:
        recurrence: the iterations that all classes had ended at the first state and at its equal,
            the iterations that any class had begun at the latter, and the seconds between the two.
    """

    def __init__(
        self,
        loop: ListedLoop,
        tasks: Sequence[StepTask],
        later: Sequence[tuple[ListedLoop, Sequence[int]]],
    ):
        """Watch a loop.

        Args:
            later: the loops behind it that list only some iterations, with their classes.
        """
        self.loop, self.later = loop, later
        self.on = {c for number in loop.iteration(0) for c in tasks[number].on}
        self.next = loop.first
        self.known: dict[object, list[tuple[int, float, list[float]]]] = {}
        self.recurrence: tuple[int, int, int, float] | None = None

    def __call__(self, moment: Moment) -> bool:
        """Look at a moment; return whether the simulation may end."""
        done = self.loop.ended(self.next)
        while self.next < self.loop.end and moment.spans[self.next][1] <= moment.now:
            self.next += 1
        if (new := self.loop.ended(self.next)) == done:
            return False
        begun = self._begun(moment)
        if begun is None:
            return False
        key, left = self._state(moment, self.loop.first + new * self.loop.length)
        for before, time, left_before in self.known.get(key, ()):
            exact = 1e-9 * (moment.now - time)
            if all(abs(a - b) <= exact for a, b in zip(left, left_before, strict=True)):
                self.recurrence = before, new, begun, moment.now - time
                return True
        self.known.setdefault(key, []).append((new, moment.now, left))
        return False

    def _begun(self, moment: Moment) -> int | None:
        """Return the number of iterations that some class has begun; None if a class is past the
        last listed iteration of this loop or a later one."""
        for device_class, number, _ in moment.issued():
            for loop, on in self.later:
                if device_class in on and (number is None or number >= loop.end):
                    return None
        following = [number for c, number, _ in moment.issued() if c in self.on]
        if any(number is None or number >= self.loop.end for number in following):
            return None
        furthest = max(number for number in following if number is not None)
        return max(0, furthest - self.loop.first) // self.loop.length + 1

    def _state(self, moment: Moment, base: int) -> tuple[object, list[float]]:
        """Return the next task of each class and the tasks under way, counted from a number, and
        the seconds left of running tasks."""

        def relative(number: int | None) -> tuple[int, int]:
            if number is None:
                return 0, 0
            return (1, number - base) if self.loop.holds(number) else (2, number)

        issued = [(c, relative(number), relative(last)) for c, number, last in moment.issued()]
        queues = [(s, tuple(map(relative, numbers))) for s, numbers in moment.queues()]
        running = sorted((relative(number), index, left) for number, index, left in moment.run())
        under_way = [(number, index) for number, index, _ in running]
        key = (tuple(issued), tuple(queues), tuple(under_way))
        return key, [left for _, _, left in running]
