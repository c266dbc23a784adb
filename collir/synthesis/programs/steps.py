"""Sequences of steps as values: what a search finds, before it becomes operations."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from collir.cost.model import StepCost
from collir.layout import DistType, Mesh
from collir.layout.steps import STEPS, StepKind


@dataclass(frozen=True)
class Step:
    """One operation over sub-axes; ``kind`` is the name of its row in the table of steps.

    ``dim`` and ``target`` are dimensions where the step says which (``target`` of an all_to_all);
    a step that does not gets one when operations are made. ``to`` is the result of a permute.
    """

    kind: str
    axes: tuple[str, ...]
    dim: int | None = None
    target: int | None = None
    to: DistType | None = None

    @property
    def does(self) -> StepKind:
        """Its row."""
        return STEPS[self.kind]


@dataclass(frozen=True)
class Pipeline:
    """How steps are run on chunks of a value.

    Attributes:
        chunks: how many.
        order: all (chunk, place of the step) in the order in which they are to be written.
        time: when the last one ends, in seconds.
    """

    chunks: int
    order: tuple[tuple[int, int], ...]
    time: float


@dataclass(frozen=True)
class Program:
    """Steps in a row, or on chunks of a value."""

    steps: tuple[Step, ...]
    pipeline: Pipeline | None = None

    def texts(self, mesh: Mesh) -> list[str]:
        """Return a text for each step, for people."""
        texts = [f"{step.kind} {', '.join(mesh.short(step.axes))}" for step in self.steps]
        if self.pipeline:
            texts[-1] += f", all in {self.pipeline.chunks} chunks"
        return texts


@dataclass(frozen=True)
class Candidate:
    """A sequence of steps from one layout to another.

    Attributes:
        costs: of the steps that send, in order; of a pipeline on one chunk.
        memory: bytes of the largest value that a device holds on the way, both ends included.
        pipeline: None if the steps run on the whole value.
    """

    mesh: Mesh
    steps: tuple[Step, ...]
    costs: tuple[StepCost, ...]
    memory: float = 0.0
    pipeline: Pipeline | None = None

    @property
    def program(self) -> Program:
        """The steps, and how they are run on chunks, without what they cost."""
        return Program(self.steps, self.pipeline)

    @cached_property
    def time(self) -> float:
        """The sum over the steps, or what their pipeline takes; seconds."""
        return self.pipeline.time if self.pipeline else sum(cost.time for cost in self.costs)


def scattered(steps: Sequence[Step]) -> list[str]:
    """The sub-axes that some step without a dimension shards, in order."""
    listed = (axis for s in steps if s.does.shards and s.dim is None for axis in s.axes)
    return list(dict.fromkeys(listed))
