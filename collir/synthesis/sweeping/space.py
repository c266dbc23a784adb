"""The space of a sweep: all configurations within constraints."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from collir.layout.pipelines.rules import RULES, ScheduleRule
from collir.machine import Machine
from collir.synthesis.sweeping.configuration import (
    ADDED_PARTS,
    PREFETCHED,
    REPLICA,
    UNSTAGED,
    WHOLE_GRADIENTS,
    Configuration,
    Recompute,
)

SCHEDULES = tuple(name for name, rule in RULES.items() if rule.directions == 1)
"""The schedules that a sweep knows: those of one copy of the model."""


@dataclass(frozen=True)
class ConfigurationSpace:
    """The configurations of a training step.

    Attributes:
        machine: the machine, whose outermost level gets the size that is needed.
        axes: the names of the axes, that of the stages too.
        data: the axes of the batch.
        shards: the axes over which ZeRO divides.
        pipeline: the axis of the stages.
        devices: the numbers of devices.
        batch: the size of the batch of all devices.
        layers: the number of layers.
        degrees: for an axis, the sizes that it may have; any if nothing is said.
        microbatch: the numbers of rows of a device in a microbatch to try; empty: powers of two.
        schedules: the schedules of stages.
        chunks: the numbers of chunks of a stage, of schedules that allow several.
        recompute: the choices of what is computed again.
        zero: the stages of ZeRO.
        sequence: whether sequences are divided over the axes of weights, where they can be; both
            may be tried.
        words: the words of a sequence that may be divided; 0 if none may.
        divided: for axes that divide dimensions by types, the sizes of these dimensions.
        tensor: the axes that divide weights, over which sequences may be divided.
        uneven: whether stages may have different numbers of layers, if they do not divide evenly.
    """

    machine: Machine
    axes: tuple[str, ...]
    data: tuple[str, ...]
    shards: tuple[str, ...]
    pipeline: str
    devices: tuple[int, ...]
    batch: int
    layers: int
    degrees: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    microbatch: tuple[int, ...] = ()
    schedules: tuple[str, ...] = ("1f1b", "interleaved")
    chunks: tuple[int, ...] = (2, 4)
    recompute: tuple[Recompute, ...] = (False, True)
    zero: tuple[int, ...] = (0, 1, 2, 3)
    sequence: tuple[bool, ...] = (True,)
    words: int = 0
    tensor: tuple[str, ...] = ()
    divided: Mapping[tuple[str, ...], Collection[int]] = field(
        default_factory=dict[tuple[str, ...], Collection[int]]
    )
    uneven: bool = True

    def configurations(self, refused: Counter[str]) -> Iterator[Configuration]:
        """Yield all configurations that are possible by their numbers.

        Args:
            refused: the numbers of impossible ones by reason, which are increased.
        """
        for devices in self.devices:
            sizes = level_sizes(self.machine, devices)
            if sizes is None:
                inner = math.prod(level.size for level in self.machine.levels[1:])
                refused[f"the machine has no {devices} devices, in groups of {inner}"] += 1
                continue
            for axes in placements(self.axes, sizes, self.degrees):
                if self._copies(dict(axes)):
                    yield from self._on(axes, refused)

    def _copies(self, axes: Mapping[str, tuple[int, ...]]) -> bool:
        """Return whether a configuration has no copies of the devices over which ZeRO divides, or
        the usual ones: with one stage, and outside of the levels inside which ZeRO divides."""
        copies = {level for level, size in enumerate(axes.get(REPLICA, ())) if size > 1}
        divided = {n for x in self.shards for n, size in enumerate(axes[x]) if size > 1}
        if not copies:
            return True
        inner = min(divided, default=-1) - (REPLICA not in self.degrees)
        return max(copies) <= inner and math.prod(axes.get(self.pipeline, ())) == 1

    def _on(
        self, axes: tuple[tuple[str, tuple[int, ...]], ...], refused: Counter[str]
    ) -> Iterator[Configuration]:
        sizes = {name: math.prod(factors) for name, factors in axes}
        data, stages = math.prod(sizes[name] for name in self.data), sizes.get(self.pipeline, 1)
        if self.batch % data:
            text = f"{' * '.join(self.data)} = {data} does not divide a batch of {self.batch}"
            refused[text] += 1
            return
        for names, dims in self.divided.items():
            size = math.prod(sizes[name] for name in names)
            if whole := sorted(dim for dim in dims if dim % size):
                refused[f"{' * '.join(names)} = {size} does not divide {whole[0]}"] += 1
                return
        own, divided = self.batch // data, any(sizes[x] > 1 for x in self.shards)
        rows = self.microbatch or powers_of_two(own)
        for row in rows:
            if own % row:
                refused[f"{row} rows of a microbatch do not divide {own} rows of a device"] += 1
                continue
            divisions = self._divisions(sizes)
            stages_of_zero = tuple(self._zero(stages, own // row, refused)) if divided else (0,)
            if sizes.get(REPLICA, 1) > 1:
                least = 1 if REPLICA in self.degrees else PREFETCHED
                stages_of_zero = tuple(zero for zero in stages_of_zero if zero >= least)
            for schedule, chunks, layers in self._schedules(stages, own // row, refused):
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
                            layers,
                        )

    def _divisions(self, sizes: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
        """Return the sets of axes over which sequences may be divided, on a mesh of some sizes."""
        wide = tuple(name for name in self.tensor if sizes[name] > 1)
        own = self.words // math.prod(sizes[name] for name in self.shards if name not in self.data)
        if not own or own % math.prod(sizes[name] for name in wide):
            return ((),)
        return tuple(dict.fromkeys(wide if divided else () for divided in self.sequence))

    def _zero(self, stages: int, microbatches: int, refused: Counter[str]) -> Iterator[int]:
        """Yield the stages of ZeRO that differ; a single microbatch adds up no gradients."""
        for zero in self.zero:
            if zero == ADDED_PARTS and stages > 1:
                refused["stages reduce gradients once: ZeRO-2 is for one stage"] += 1
            elif zero != ADDED_PARTS or microbatches > 1 or WHOLE_GRADIENTS not in self.zero:
                yield zero

    def _schedules(
        self, stages: int, microbatches: int, refused: Counter[str]
    ) -> Iterator[tuple[str, int, tuple[int, ...]]]:
        if stages == 1:
            yield UNSTAGED, 1, ()
            return
        for name in self.schedules:
            rule = RULES[name]
            for chunks in (rule.chunks,) if rule.chunks else self.chunks:
                layers = self._layers(rule, stages, chunks)
                if isinstance(layers, str):
                    refused[layers] += len(self.recompute)
                elif problems := rule.problems(stages, microbatches, chunks):
                    refused[_general(problems[0])] += len(self.recompute)
                else:
                    yield name, chunks, layers

    def _layers(self, rule: ScheduleRule, stages: int, chunks: int) -> tuple[int, ...] | str:
        """Return the layers of each chunk (none if all are equal), or why there are none.

        All rows of chunks are cut alike. The last stage, which also computes the loss, is the first
        to have a layer less than others; the next is the first stage.
        """
        if self.layers % (stages * chunks) == 0:
            return ()
        if not self.uneven or self.layers % chunks or self.layers < stages * chunks:
            return f"{stages * chunks} chunks do not divide {self.layers} layers"
        most = -(-self.layers // (chunks * stages))
        fewer = most * stages - self.layers // chunks
        less = [stages - 1, 0, *range(stages - 2, 0, -1)][:fewer]
        places = rule.chunk_places(stages, chunks)
        return tuple(most - (place in less) for place in places)


def _general(problem: str) -> str:
    """Return a sentence about a schedule without its numbers."""
    return problem.partition(";")[0]


def level_sizes(machine: Machine, devices: int) -> tuple[int, ...] | None:
    """Return the sizes of the levels of a machine with a number of devices; None if impossible.

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
    multiply to the sizes of the levels, and whose rows to allowed sizes of the axes."""

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
