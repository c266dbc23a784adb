"""Latencies and peaks of memory of many configurations at once.

Configurations with the same stages and microbatches have the same jobs in the same order, so that
one walk along the schedule serves them all: a clock and a memory for each stage, as arrays.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from distir.configuration import Configuration, refusal
from distir.footprints import Profile, footprint, joined
from distir.operations import (
    COSTS,
    LABEL_BYTES,
    Extents,
    Integers,
    Seconds,
    allreduce_seconds,
    send_seconds,
    size,
)
from distir.schedule import Job, time_steps
from distir.tasks import Stage

Task = tuple[int, bool, bool]
"""A stage, whether forwards, and whether on the first microbatch."""


@dataclass(frozen=True)
class Results:
    """Results for a sequence of configurations, in its order.

    Attributes:
        latencies: seconds of a step; -1 where DistIR cannot run it.
        peaks: the most bytes on a device; -1 where DistIR cannot run it.
        reasons: why DistIR cannot run it, or None.
    """

    latencies: Seconds
    peaks: Integers
    reasons: tuple[str | None, ...]


@dataclass(frozen=True)
class StageResults:
    """Clocks (seconds) and peaks (bytes) of a configuration's devices: stages x configurations."""

    clocks: Seconds
    peaks: Integers


def evaluate(configurations: Sequence[Configuration]) -> Results:
    """Return DistIR's latencies and peaks of memory."""
    reasons = tuple(map(refusal, configurations))
    latencies = np.full(len(reasons), -1.0)
    peaks = np.full(len(reasons), -1, dtype=np.int64)
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, (configuration, reason) in enumerate(zip(configurations, reasons, strict=True)):
        if reason is None:
            groups[configuration.pipeline, configuration.microbatches].append(index)
    for indices in groups.values():
        of_stages = evaluate_stages([configurations[index] for index in indices])
        latencies[indices] = of_stages.clocks.max(axis=0)
        peaks[indices] = of_stages.peaks.max(axis=0)
    return Results(latencies, peaks, reasons)


def evaluate_stages(configurations: Sequence[Configuration]) -> StageResults:
    """Return the results by stage of configurations that can run.

    All have the same number of stages and of microbatches.
    """
    stages, microbatches = configurations[0].pipeline, configurations[0].microbatches
    run = _Run(configurations)
    for jobs in time_steps(stages, microbatches):
        for job in jobs:
            run.compute(job)
        for job in jobs:
            receiver = job.stage + (1 if job.forward else -1)
            if 0 <= receiver < stages:
                run.send(job.stage, receiver)
    run.update_weights()
    return StageResults(run.clock, run.peak)


class _Run:
    """Clocks and memory of the stages while the jobs are done."""

    def __init__(self, configurations: Sequence[Configuration]):
        self.stages = configurations[0].pipeline
        self.microbatches = configurations[0].microbatches
        self.count = len(configurations)
        self.layers = _array(configurations, "layers") // self.stages
        self.data = _array(configurations, "data")
        self.tensor = _array(configurations, "tensor")
        width = _array(configurations, "width")
        rows = _array(configurations, "batch") // (self.data * self.microbatches)
        self.extents: Extents = {"rows": rows, "width": width, "part": width // self.tensor}
        self.weight = size(("width", "part"), self.extents)
        self.clock = np.zeros((self.stages, self.count))
        self.live = self._inputs()
        self.peak = self.live.copy()
        self.profiles = self._profiles()
        self.boundaries = [self._boundary(stage) for stage in range(self.stages)]
        self.sends = [send_seconds(boundary) for boundary in self.boundaries]

    def _inputs(self) -> Integers:
        """Return the bytes that are never freed: the pieces of the batch and labels, weights."""
        live = np.tile(self.layers * self.weight, (self.stages, 1))
        pieces = self.microbatches * size(("rows", "width"), self.extents)
        live[0] += pieces
        live[-1] += pieces + LABEL_BYTES
        return live

    def _boundary(self, stage: int) -> Integers:
        """Return the bytes that go between a stage and the one before it, for a microbatch."""
        divided = (stage * self.layers) % 2 == 1
        columns = np.where(divided, self.extents["part"], self.extents["width"])
        return size(("rows", "width"), {**self.extents, "width": columns})

    def _profiles(self) -> dict[Task, Profile]:
        """Return the profiles of the tasks; configurations are in groups with equal operations."""
        groups: dict[tuple[int, bool], list[int]] = defaultdict(list)
        for index, (layers, tensor) in enumerate(zip(self.layers, self.tensor, strict=True)):
            groups[int(layers), bool(tensor > 1)].append(index)
        profiles = [self._of_group(*key, np.array(group)) for key, group in groups.items()]
        order = np.argsort(np.concatenate(list(groups.values())))
        return {task: joined([of[task] for of in profiles], order) for task in profiles[0]}

    def _of_group(self, layers: int, divided: bool, group: Integers) -> dict[Task, Profile]:
        """Return the profiles of the tasks for configurations with equal operations."""
        extents: Extents = {name: values[group] for name, values in self.extents.items()}
        known: dict[tuple[Stage, bool, bool], Profile] = {}
        profiles: dict[Task, Profile] = {}
        for task in product(range(self.stages), (True, False), (True, False)):
            at, forward, begins = task
            odd = divided and at * layers % 2 == 1
            last = at == self.stages - 1
            stage = Stage(layers, odd, at == 0, last, divided, self.microbatches > 1)
            key = (stage, forward, begins)
            if key not in known:
                known[key] = footprint(*key).profile(extents, self.tensor[group])
            profiles[task] = known[key]
        return profiles

    def compute(self, job: Job) -> None:
        """Add the time and the memory of a task of a stage to what is known of it."""
        profile = self.profiles[job.stage, job.forward, job.microbatch == 0]
        live = self.live[job.stage]
        self.clock[job.stage] += profile.seconds
        self._raise_peak(job.stage, live + profile.peak)
        if job.microbatch:
            pieces = (job.microbatch + 1) * profile.piece
            self._raise_peak(job.stage, live + profile.growing + pieces)
        live += profile.change

    def send(self, sender: int, receiver: int) -> None:
        """Send the result of a job: both clocks go on from the later one; the sender frees it."""
        edge = max(sender, receiver)
        clock = np.maximum(self.clock[sender], self.clock[receiver]) + self.sends[edge]
        self.clock[sender] = self.clock[receiver] = clock
        self.live[receiver] += self.boundaries[edge]
        self._raise_peak(receiver, self.live[receiver])
        self.live[sender] -= self.boundaries[edge]

    def update_weights(self) -> None:
        """Reduce the gradients over the replicas, if there are several, and update the weights."""
        reduction = self.layers * allreduce_seconds(self.weight, self.data)
        self.clock += reduction + COSTS["SGDOptimizer"](("width", "part"), self.extents)
        np.maximum(self.peak, self.live + (self.data > 1) * self.weight, out=self.peak)

    def _raise_peak(self, stage: int, live: Integers) -> None:
        np.maximum(self.peak[stage], live, out=self.peak[stage])


def _array(configurations: Sequence[Configuration], name: str) -> Integers:
    return np.array([getattr(c, name) for c in configurations], dtype=np.int64)
