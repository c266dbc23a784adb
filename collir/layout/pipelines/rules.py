"""The schedules of the literature by name: one row each.

A rule says which chunks each place holds, what numbers of places and microbatches it needs, and
the order of the tasks at each place.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from collir.layout.pipelines.orders import (
    Order,
    dualpipe,
    gpipe,
    interleaved,
    one_forward_one_backward,
    zb_v,
    zero_bubble,
)
from collir.layout.pipelines.schedule import Schedule, counted
from collir.layout.pipelines.tasks import TaskGraph, chain_graph


class PipelineSize(NamedTuple):
    """The size of a pipeline.

    Attributes:
        places: number of places P.
        microbatches: number of microbatches K of the whole batch.
        chunks: number of chunks v at each place.
    """

    places: int
    microbatches: int
    chunks: int


@dataclass(frozen=True)
class Need:
    """A condition of a rule: a test of the size, and its text for a user."""

    holds: Callable[[PipelineSize], bool]
    text: str


@dataclass(frozen=True)
class ScheduleRule:
    """A named family of schedules.

    Attributes:
        summary: one line for users.
        source: where it was published.
        order: the order of a place, with W tasks.
        chunks: number of chunks at each place; 0: any.
        splits: the allowed choices of whether W are tasks of their own; the default first.
        directions: number of copies of the model, each of which takes its part of the microbatches
            from another end; 1 or 2.
        is_v: whether the chunks go down the places and up again, not round.
        needs: conditions on the size.
    """

    name: str
    summary: str
    source: str
    order: Callable[[PipelineSize, int], Order]
    chunks: int = 1
    splits: tuple[bool, ...] = (False, True)
    directions: int = 1
    is_v: bool = False
    needs: tuple[Need, ...] = ()

    def chunk_places(self, places: int, chunks: int | None = None) -> tuple[int, ...]:
        """Return the place of each chunk.

        Args:
            chunks: number of chunks at each place; by default as many as the rule needs.
        """
        down = tuple(range(places))
        return down + down[::-1] if self.is_v else down * (chunks or self.chunks or 2)

    def chains(self, places: int, chunks: int | None = None) -> tuple[range, ...]:
        """Return the chunks of each direction, in order of the forward pass."""
        count = len(self.chunk_places(places, chunks)) // self.directions
        return tuple(range(n * count, (n + 1) * count) for n in range(self.directions))

    def graph(
        self, places: int, chunks: int | None = None, splits_backward: bool | None = None
    ) -> TaskGraph:
        """Return the graph of tasks of chunks in a row, at the places of this rule."""
        splits = self.splits[0] if splits_backward is None else splits_backward
        return chain_graph(self.chunk_places(places, chunks), splits, self.chains(places, chunks))

    def iterations(self, microbatches: int) -> int:
        """Return the microbatches of each direction: those of the schedule."""
        return microbatches // self.directions

    def problems(
        self,
        places: int,
        microbatches: int,
        chunks: int | None = None,
        splits_backward: bool | None = None,
    ) -> list[str]:
        """Return the conditions of this rule that do not hold, in sentences."""
        size = PipelineSize(places, microbatches, chunks or self.chunks or 2)
        return list(self._problems(size, splits_backward))

    def _problems(self, size: PipelineSize, splits_backward: bool | None) -> Iterator[str]:
        if self.chunks and size.chunks != self.chunks:
            held = f"{self.chunks} chunk{'' if self.chunks == 1 else 's'}"
            yield f"{self.name} has {held} at each place, not {size.chunks}"
        if splits_backward is not None and splits_backward not in self.splits:
            yield f"{self.name} needs the gradients of weights as tasks of their own (W)"
        for need in (*_ALWAYS, *self.needs):
            if not need.holds(size):
                places = counted(size.places, "place")
                given = f"{places} and {counted(size.microbatches, 'microbatch', 'microbatches')}"
                yield f"{self.name} needs {need.text}; there are {given}"

    def schedule(
        self,
        places: int,
        microbatches: int,
        chunks: int | None = None,
        splits_backward: bool | None = None,
    ) -> Schedule:
        """Return the schedule of this rule.

        Args:
            places: number of places P.
            microbatches: number of microbatches K of the whole batch; the schedule has
                ``iterations`` of it.
            chunks: number of chunks v at each place; by default as many as the rule needs, or 2.
            splits_backward: whether W are tasks of their own; by default as the rule is published.

        Raises:
            ValueError: a condition of the rule does not hold.
        """
        if problems := self.problems(places, microbatches, chunks, splits_backward):
            raise ValueError("; ".join(problems))
        size = PipelineSize(places, microbatches, chunks or self.chunks or 2)
        splits = self.splits[0] if splits_backward is None else splits_backward
        orders = (self.order(size, place) for place in range(places))
        return Schedule(
            tuple(
                tuple(order if splits else (task for task in order if task.kind != "W"))
                for order in orders
            ),
            self.iterations(microbatches),
            splits,
        )


_ALWAYS = (
    Need(lambda size: size.places >= 1, "a place"),
    Need(lambda size: size.microbatches >= 1, "a microbatch"),
    Need(lambda size: size.chunks >= 1, "a chunk at each place"),
)

_ZERO_BUBBLE = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024"

_ROWS = (
    ScheduleRule(
        "gpipe",
        "All forward tasks, then all backward tasks; every microbatch is in flight.",
        "Huang et al., GPipe, NeurIPS 2019",
        lambda size, place: gpipe(size.microbatches, place),
    ),
    ScheduleRule(
        "1f1b",
        "Forward and backward by turns; place s has at most P - s microbatches in flight.",
        "Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, ICML 2021",
        lambda size, place: one_forward_one_backward(size.places, size.microbatches, place),
    ),
    ScheduleRule(
        "interleaved",
        "1f1b of several chunks at each place: the bubble is divided by their number.",
        "Narayanan et al., Efficient Large-Scale Language Model Training, SC 2021",
        lambda size, place: interleaved(size.places, size.microbatches, place, size.chunks),
        chunks=0,
        needs=(
            Need(
                lambda size: size.microbatches % size.places == 0,
                "a multiple of the places as microbatches",
            ),
        ),
    ),
    ScheduleRule(
        "zb-h1",
        "Gradients of weights fill the bubble, in the memory of 1f1b's first place.",
        _ZERO_BUBBLE,
        lambda size, place: zero_bubble(size.microbatches, place, size.places - place, place),
        splits=(True,),
    ),
    ScheduleRule(
        "zb-h2",
        "No bubble between the first and the last task of a place; twice the memory of zb-h1.",
        _ZERO_BUBBLE,
        lambda size, place: zero_bubble(
            size.microbatches, place, 2 * (size.places - place) - 1, 2 * place
        ),
        splits=(True,),
    ),
    ScheduleRule(
        "zb-v",
        "Two chunks at each place, down and up again: no bubble, in the memory of 1f1b.",
        _ZERO_BUBBLE,
        lambda size, place: zb_v(size.places, size.microbatches, place),
        chunks=2,
        splits=(True,),
        is_v=True,
    ),
    ScheduleRule(
        "dualpipe",
        "Microbatches from both ends, with two copies of the weights.",
        "DeepSeek-V3 technical report, 2024",
        lambda size, place: dualpipe(size.places, size.microbatches // 2, place),
        chunks=2,
        splits=(True, False),
        directions=2,
        is_v=True,
        needs=(
            Need(lambda size: size.places % 2 == 0, "an even number of places"),
            Need(lambda size: size.microbatches % 2 == 0, "an even number of microbatches"),
            Need(
                lambda size: size.microbatches >= 2 * size.places,
                "at least twice as many microbatches as places",
            ),
        ),
    ),
)

RULES: dict[str, ScheduleRule] = {rule.name: rule for rule in _ROWS}
"""The rules by their names."""
