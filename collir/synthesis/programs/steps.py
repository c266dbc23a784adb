"""Programs as values: the sequences of steps that a search finds, before they are typed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from collir.cost.model import StepCost
from collir.layout import DistType, Mesh
from collir.layout.coll import STEPS
from collir.layout.steps import StepKind


@dataclass(frozen=True)
class CollectiveStep:
    """A step over sub-axes.

    Attributes:
        kind: the name of its row in the table of steps.
        axes: the sub-axes in the order of the ranks.
        dim: the dimension that the step works on; None: it has none, or gets one when it is built.
        target: the dimension that an all_to_all moves shards to.
        to: the result type of a permute.
    """

    kind: str
    axes: tuple[str, ...]
    dim: int | None = None
    target: int | None = None
    to: DistType | None = None

    @property
    def does(self) -> StepKind:
        """The row of the step."""
        return STEPS[self.kind]


@dataclass(frozen=True)
class ChunkPipeline:
    """A schedule of steps on chunks of a value.

    Attributes:
        chunks: the number of chunks.
        order: pairs (chunk, place of the step), one for each step of each chunk, in the order in
            which they are written.
        time: when the last step ends, in seconds.
    """

    chunks: int
    order: tuple[tuple[int, int], ...]
    time: float


@dataclass(frozen=True)
class Program:
    """Steps in a row, or on chunks of a value."""

    steps: tuple[CollectiveStep, ...]
    pipeline: ChunkPipeline | None = None

    def texts(self, mesh: Mesh) -> list[str]:
        """Return a text for each step, for people."""
        texts = [f"{step.kind} {', '.join(mesh.short(step.axes))}" for step in self.steps]
        if self.pipeline:
            texts[-1] += f", all in {self.pipeline.chunks} chunks"
        return texts


@dataclass(frozen=True)
class StepSequence:
    """A sequence of steps from one layout to another.

    Attributes:
        costs: the costs of the steps that send, in order; of a pipeline those on one chunk.
        memory: bytes that operand and result of a step take together on a device, at most.
        pipeline: None if the steps run on the whole value.
        copies: seconds of local steps, beside those of sends; searches leave them out.
    """

    mesh: Mesh
    steps: tuple[CollectiveStep, ...]
    costs: tuple[StepCost, ...]
    memory: float = 0.0
    pipeline: ChunkPipeline | None = None
    copies: float = 0.0

    @property
    def program(self) -> Program:
        """The steps and their chunks, without costs."""
        return Program(self.steps, self.pipeline)

    @cached_property
    def time(self) -> float:
        """Seconds: the sum over the steps, or the time of their pipeline."""
        sent = self.pipeline.time if self.pipeline else sum(cost.time for cost in self.costs)
        return sent + self.copies


def scattered(steps: Sequence[CollectiveStep]) -> list[str]:
    """Return the sub-axes that some step without a dimension shards, in order."""
    listed = (axis for s in steps if s.does.shards and s.dim is None for axis in s.axes)
    return list(dict.fromkeys(listed))
