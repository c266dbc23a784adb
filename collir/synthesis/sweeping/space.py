"""The space of a sweep: all configurations within constraints."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from collir.layout.pipelines.rules import RULES
from collir.machine import Machine
from collir.synthesis.sweeping.configuration import (
    ADDED_PARTS,
    UNSTAGED,
    WHOLE_GRADIENTS,
    Configuration,
)

SCHEDULES = tuple(name for name, rule in RULES.items() if rule.directions == 1)
"""The schedules that a sweep knows: those of one copy of the model."""


@dataclass(frozen=True)
class Space:
    """The configurations of a training step.

    Attributes:
        machine: the machine, whose outermost level gets the size that is needed.
        axes: the names of the axes, that of the stages too.
        data: the axes of the batch; ZeRO divides over the first one.
        pipeline: the axis of the stages.
        devices: the numbers of devices.
        batch: the size of the batch of all devices.
        layers: the number of layers.
        degrees: for an axis, the sizes that it may have; any if nothing is said.
        microbatch: the rows of the batch of a device in a microbatch that are tried; empty: powers
            of two.
        schedules: the schedules of stages.
        chunks: the numbers of chunks of a stage, of schedules that allow several.
        recompute: whether layers are computed again; both may be tried.
        zero: the stages of ZeRO.
        sequence: whether sequences are divided over the axes of weights, where they can be; both
            may be tried.
        words: the words of a sequence that may be divided; 0 if none may.
        tensor: the axes that divide weights, over which sequences may be divided.
    """

    machine: Machine
    axes: tuple[str, ...]
    data: tuple[str, ...]
    pipeline: str
    devices: tuple[int, ...]
    batch: int
    layers: int
    degrees: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    microbatch: tuple[int, ...] = ()
    schedules: tuple[str, ...] = ("1f1b", "interleaved")
    chunks: tuple[int, ...] = (2, 4)
    recompute: tuple[bool, ...] = (False, True)
    zero: tuple[int, ...] = (0, 1, 2, 3)
    sequence: tuple[bool, ...] = (True,)
    words: int = 0
    tensor: tuple[str, ...] = ()

    def configurations(self, refused: Counter[str]) -> Iterator[Configuration]:
        """Yield all configurations that are possible by their numbers.

        Args:
            refused: the number of those that are not, for each reason; counted up.
        """
        for devices in self.devices:
            sizes = level_sizes(self.machine, devices)
            if sizes is None:
                inner = math.prod(level.size for level in self.machine.levels[1:])
                refused[f"the machine has no {devices} devices, in groups of {inner}"] += 1
                continue
            for axes in placements(self.axes, sizes, self.degrees):
                yield from self._on(axes, refused)

    def _on(
        self, axes: tuple[tuple[str, tuple[int, ...]], ...], refused: Counter[str]
    ) -> Iterator[Configuration]:
        sizes = {name: math.prod(factors) for name, factors in axes}
        data, stages = math.prod(sizes[name] for name in self.data), sizes.get(self.pipeline, 1)
        if self.batch % data:
            text = f"{' * '.join(self.data)} = {data} does not divide a batch of {self.batch}"
            refused[text] += 1
            return
        if self.layers % stages:
            refused[f"{stages} stages do not divide {self.layers} layers"] += 1
            return
        own, divided = self.batch // data, sizes[self.data[0]] > 1
        rows = self.microbatch or powers_of_two(own)
        for row in rows:
            if own % row:
                refused[f"{row} rows of a microbatch do not divide {own} rows of a device"] += 1
                continue
            divisions = self._divisions(sizes)
            stages_of_zero = tuple(self._zero(stages, own // row, refused)) if divided else (0,)
            for schedule, chunks in self._schedules(stages, own // row, refused):
                for recompute in self.recompute:
                    for zero, sequence in product(stages_of_zero, divisions):
                        yield Configuration(
                            axes,
                            self.pipeline,
                            self.batch,
                            own // row,
                            schedule,
                            chunks,
                            recompute,
                            zero,
                            sequence,
                        )

    def _divisions(self, sizes: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
        """Return the axes over which sequences may be divided, of a mesh of such sizes."""
        wide = tuple(name for name in self.tensor if sizes[name] > 1)
        if not self.words or self.words % math.prod(sizes[name] for name in wide):
            return ((),)
        return tuple(dict.fromkeys(wide if divided else () for divided in self.sequence))

    def _zero(self, stages: int, microbatches: int, refused: Counter[str]) -> Iterator[int]:
        """Yield the stages of ZeRO that differ; one microbatch adds up nothing."""
        for zero in self.zero:
            if zero == ADDED_PARTS and stages > 1:
                refused["stages reduce gradients once: ZeRO-2 is for one stage"] += 1
            elif zero != ADDED_PARTS or microbatches > 1 or WHOLE_GRADIENTS not in self.zero:
                yield zero

    def _schedules(
        self, stages: int, microbatches: int, refused: Counter[str]
    ) -> Iterator[tuple[str, int]]:
        if stages == 1:
            yield UNSTAGED, 1
            return
        for name in self.schedules:
            rule = RULES[name]
            for chunks in (rule.chunks,) if rule.chunks else self.chunks:
                if self.layers % (stages * chunks):
                    refused[f"{stages * chunks} chunks do not divide {self.layers} layers"] += len(
                        self.recompute
                    )
                elif problems := rule.problems(stages, microbatches, chunks):
                    refused[_general(problems[0])] += len(self.recompute)
                else:
                    yield name, chunks


def _general(problem: str) -> str:
    """Return a sentence about a schedule without its numbers."""
    return problem.partition(";")[0]


def level_sizes(machine: Machine, devices: int) -> tuple[int, ...] | None:
    """Return the sizes of the levels of a machine with so many devices; None if there is none.

    Inner levels are full, and the outermost has the children that are needed; or there is a part of
    the inner levels.
    """
    inner = [level.size for level in machine.levels[1:]]
    full = math.prod(inner)
    if devices % full == 0:
        return (devices // full, *inner)
    sizes: list[int] = []
    left = devices
    for size in reversed(inner):
        own = math.gcd(left, size)
        if own < size and left > own:
            return None
        sizes.append(own)
        left //= own
    return (left, *reversed(sizes))


def placements(
    names: Sequence[str], sizes: Sequence[int], degrees: dict[str, tuple[int, ...]]
) -> Iterator[tuple[tuple[str, tuple[int, ...]], ...]]:
    """Yield the factors of each axis at each level: all parallelism matrices (P²) whose columns
    have the sizes of the levels as products, and whose rows have sizes that axes may have."""

    def columns(size: int, count: int) -> Iterator[tuple[int, ...]]:
        if count == 1:
            yield (size,)
            return
        for first in divisors(size):
            for rest in columns(size // first, count - 1):
                yield (first, *rest)

    def matrices(level: int) -> Iterator[tuple[tuple[int, ...], ...]]:
        if level == len(sizes):
            yield ()
            return
        for column in columns(sizes[level], len(names)):
            for rest in matrices(level + 1):
                yield (column, *rest)

    for matrix in matrices(0):
        rows = tuple(zip(names, zip(*matrix, strict=True), strict=True))
        if all(math.prod(row) in degrees.get(name, (math.prod(row),)) for name, row in rows):
            yield rows


def divisors(number: int) -> list[int]:
    """Return the divisors of a number, in order."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return [*small, *(number // n for n in reversed(small) if n * n != number)]


def powers_of_two(limit: int) -> tuple[int, ...]:
    """Return the powers of two that divide a number."""
    return tuple(2**n for n in range(limit.bit_length()) if limit % 2**n == 0)
