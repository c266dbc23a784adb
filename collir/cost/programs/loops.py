"""Programs with loops: their tasks in a list, and a lower bound of their time.

A class of devices waits for all of its own steps before a loop and at the end of each iteration, as
the emitted code does. It does not wait for other classes: a stage of a pipeline may be some
iterations ahead of the next stage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from collir.cost.programs.schedule import StepTask, longest_chain

MOST_TASKS = 200_000
"""The most tasks that are simulated one by one."""


@dataclass(frozen=True)
class Repeated:
    """A loop in a program.

    Attributes:
        times: the number of iterations.
        body: the program of an iteration; its tasks name their predecessors within the body.
        on: the classes of devices that take part in it.
    """

    times: int
    body: "tuple[Node, ...]"
    on: tuple[int, ...]


Node = StepTask | Repeated
"""A part of a program; a task names its predecessors by their places in the program."""


@dataclass(frozen=True)
class PlacedTask:
    """A task in the simulated list.

    Attributes:
        task: the task, with the numbers of its predecessors in the list.
        path: its place in the program: a number in the function, a number in the body of this loop,
            and so on. Tasks of no time, at the ends of loops and iterations, have the place of
            their loop.
        iterations: the numbers, in the list, of the iterations around it, from 0, outermost first.
        skipped: the iterations of the outermost loop that are left out before it.
    """

    task: StepTask
    path: tuple[int, ...]
    iterations: tuple[int, ...]
    skipped: int = 0

    @property
    def of_all(self) -> tuple[int, ...]:
        """The numbers of the iterations among all that run."""
        if not self.iterations:
            return ()
        return self.iterations[0] + self.skipped, *self.iterations[1:]


@dataclass(frozen=True)
class ListedLoop:
    """A loop of the function in the list.

    Attributes:
        first: the number of the first task of the first iteration.
        length: the tasks of an iteration.
        count: the iterations in the list.
    """

    first: int
    length: int
    count: int

    @property
    def end(self) -> int:
        """The number behind the last task."""
        return self.first + self.length * self.count

    def holds(self, number: int) -> bool:
        """Return whether a task is one of an iteration."""
        return self.first <= number < self.end

    def iteration(self, number: int) -> range:
        """Return the numbers of the tasks of an iteration."""
        first = self.first + number * self.length
        return range(first, first + self.length)

    def ended(self, number: int) -> int:
        """Return the iterations that have ended, if all tasks before a number have."""
        return (number - self.first) // self.length


class TooManyError(Exception):
    """The iterations of a loop do not recur, and are too many to be simulated one by one."""

    def __init__(self) -> None:
        super().__init__(
            f"iterations have more than {MOST_TASKS} steps, which are simulated one by one, as "
            "stages do not come into step with each other: let fewer iterations run"
        )


class TaskList:
    """The tasks of a program in a list, with some of the iterations of its loops.

    Attributes:
        placed: the tasks, in order.
        loops: the loops of the function by their places, not those inside of loops.

    Raises:
        TooManyError: there are more than ``MOST_TASKS`` tasks.
    """

    def __init__(self, nodes: Sequence[Node], counts: Mapping[int, int]):
        self.counts = counts
        self.placed: list[PlacedTask] = []
        self.loops: dict[int, ListedLoop] = {}
        self._unwaited: dict[int, list[int]] = {}
        self._add_all(nodes, (), ())

    @property
    def tasks(self) -> list[StepTask]:
        """The tasks alone."""
        return [placed.task for placed in self.placed]

    def _add_all(
        self, nodes: Sequence[Node], outer: tuple[int, ...], iterations: tuple[int, ...]
    ) -> None:
        """Add the tasks of a program; ``outer`` is the path of the loop that it is the body of."""
        numbers: dict[int, int] = {}
        for place, node in enumerate(nodes):
            path = (*outer, place)
            if isinstance(node, Repeated):
                count = node.times if outer else self.counts[place]
                listed = self._add_loop(node, path, iterations, count)
                self.loops |= {} if outer else {place: listed}
                continue
            # Each class has waited for its part in what loops make where they end.
            after = tuple(numbers[needed] for needed in node.after if needed in numbers)
            numbers[place] = len(self.placed)
            self._add(replace(node, after=after), path, iterations)

    def _add(self, task: StepTask, path: tuple[int, ...], iterations: tuple[int, ...]) -> None:
        number = len(self.placed)
        if number >= MOST_TASKS:
            raise TooManyError
        if not task.waited:
            for device_class in task.on:
                self._unwaited.setdefault(device_class, []).append(number)
        self.placed.append(PlacedTask(task, path, iterations))

    def _add_loop(
        self, loop: Repeated, path: tuple[int, ...], iterations: tuple[int, ...], count: int
    ) -> ListedLoop:
        self._wait(loop, path, iterations)
        first = len(self.placed)
        for number in range(count):
            inner = (*iterations, number)
            self._add_all(loop.body, path, inner)
            self._wait(loop, path, inner)
        return ListedLoop(first, (len(self.placed) - first) // count, count)

    def _wait(self, loop: Repeated, path: tuple[int, ...], iterations: tuple[int, ...]) -> None:
        """Add a task of no time for each class of a loop, behind all that is under way on it."""
        for device_class in loop.on:
            after = tuple(self._unwaited.pop(device_class, ()))
            after = tuple(n for n in after if device_class in self.placed[n].task.on)
            self._add(StepTask((), 0, after, True, (device_class,)), path, iterations)


Bound = float | Sequence["Bound"]
"""A lower bound of the seconds of a task; those of the tasks of a loop."""


def least_time(nodes: Sequence[Node], bounds: Sequence[Bound]) -> float:
    """Return a lower bound of the time of a program, from bounds of its tasks.

    It is the longest chain of them; in a loop, the longest of each class for itself.
    """
    tasks, times = list[StepTask](), list[float]()
    numbers: dict[int, int] = {}
    for place, (node, bound) in enumerate(zip(nodes, bounds, strict=True)):
        if isinstance(bound, float | int):
            assert isinstance(node, StepTask)
            numbers[place] = len(tasks)
            after = tuple(numbers[n] for n in node.after if n in numbers)
            tasks.append(replace(node, after=after))
            times.append(bound)
        else:
            assert isinstance(node, Repeated)
            for device_class in node.on:
                waited = tuple(n for n, task in enumerate(tasks) if device_class in task.on)
                tasks.append(StepTask((), 0, waited, True, (device_class,)))
                body, inner = _alone(node.body, bound, device_class)
                times.append(node.times * least_time(body, inner))
    return longest_chain(tasks, times)


def _alone(
    nodes: Sequence[Node], bounds: Sequence[Bound], device_class: int
) -> tuple[list[Node], list[Bound]]:
    """Return the part of a program that one class of devices takes part in."""
    kept = [place for place, node in enumerate(nodes) if device_class in node.on]
    new = {place: number for number, place in enumerate(kept)}
    alone: list[Node] = []
    for node in (nodes[place] for place in kept):
        if isinstance(node, StepTask):
            after = tuple(new[n] for n in node.after if n in new)
            alone.append(replace(node, after=after, on=(device_class,)))
        else:
            alone.append(replace(node, on=(device_class,)))
    return alone, [bounds[place] for place in kept]
