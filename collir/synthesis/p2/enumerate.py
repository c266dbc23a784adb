"""All programs of P²'s language (Xie et al., MLSys 2022) that reduce, up to a size.

Nothing applies to the state in which everybody has everything, so a program is valid (it never
reaches a state from which the goal is out of reach) exactly if it ends there.
"""

import math
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from math import prod
from time import monotonic

from collir.synthesis.p2.dsl import (
    CollectiveKind,
    DeviceGroups,
    Hierarchy,
    Instruction,
    Master,
    Program,
    Span,
    forms,
    span,
)
from collir.synthesis.p2.semantics import Chunks, State


class RuleReading(StrEnum):
    """What the paper leaves open: which collectives groups of masters carry out."""

    LITERAL = "literal"
    """All of them, as the rules are written."""
    MASTER_ALL_REDUCE = "master-all-reduce"
    """Only all_reduce: this gives the numbers of programs that the paper reports."""
    NO_MASTER = "no-master"
    """None: there are no groups of masters."""

    def allows(self, collective: CollectiveKind) -> bool:
        """Whether masters carry out a collective."""
        if self is RuleReading.MASTER_ALL_REDUCE:
            return collective is CollectiveKind.ALL_REDUCE
        return self is RuleReading.LITERAL


def instructions(
    hierarchy: Sequence[int], reading: RuleReading = RuleReading.MASTER_ALL_REDUCE
) -> tuple[Instruction, ...]:
    """The instructions on a hierarchy: of several with the same groups only the first."""
    found: dict[tuple[Span, CollectiveKind], Instruction] = {}
    for level in range(len(hierarchy)):
        for form in forms(level):
            groups = span(hierarchy, level, form)
            if groups.size == 1:
                continue
            for collective in CollectiveKind:
                if isinstance(form, Master) and not reading.allows(collective):
                    continue
                step = Instruction(level, form, collective)
                found.setdefault((groups, collective), step)
    return tuple(found.values())


def shrunk_hierarchy(hierarchy: Sequence[int]) -> Hierarchy:
    """A smaller hierarchy that has the same programs: factors above 3 become 3.

    That they are the same is not proved; it is tested on small hierarchies. A factor of 3 keeps a
    first device and two that differ from it, so every pair of devices has one like it.
    """
    return tuple(min(size, 3) for size in hierarchy)


class Enumerator:
    """The valid programs on a hierarchy; what is found out about a state is kept.

    Once ``monotonic()`` is greater than ``until``, a ``TimeoutError`` is raised.

    Its memory grows with the cube of the number of devices (some 50 MB for 512 of them).
    A ``shrunk_hierarchy`` needs less.
    """

    def __init__(
        self,
        hierarchy: Sequence[int],
        reading: RuleReading = RuleReading.MASTER_ALL_REDUCE,
        until: float = math.inf,
    ) -> None:
        self.until = until
        self.hierarchy = tuple(hierarchy)
        devices = prod(self.hierarchy)
        self._chunks = Chunks(devices)
        self._start, self._goal = self._chunks.initial(), self._chunks.goal()
        lowered: dict[Span, DeviceGroups] = {}
        self._steps: list[tuple[Instruction, DeviceGroups]] = []
        for step in instructions(hierarchy, reading):
            found = span(hierarchy, step.slice, step.form)
            groups = lowered.setdefault(found, tuple(found.groups(devices)))
            self._steps.append((step, groups))
        self._following: dict[State, list[tuple[Instruction, State]]] = {}
        self._counts: dict[tuple[State, int], int] = {}

    def programs(self, size: int = 5) -> Iterator[Program]:
        """All valid programs of at most ``size`` steps, each once; shorter ones first.

        Programs whose steps have the same collectives and groups are one program. On a hierarchy of
        one device it is the empty one.
        """
        for length in range(size + 1):
            yield from self._from(self._start, length)

    def count(self, length: int) -> int:
        """The number of valid programs of exactly ``length`` steps, without listing them."""
        return self._count(self._start, length)

    def _after(self, state: State) -> list[tuple[Instruction, State]]:
        """All instructions that a state allows, and what they lead to."""
        found = self._following.get(state)
        if found is not None:
            return found
        new: list[tuple[Instruction, State]] = []
        for instruction, groups in self._steps:
            if monotonic() > self.until:
                raise TimeoutError("the programs were not all found in the time given")
            after = self._chunks.step(state, instruction.collective, groups)
            if after is not None:
                new.append((instruction, after))
        self._following[state] = new
        return new

    def _count(self, state: State, length: int) -> int:
        """The number of ways from a state to the goal in exactly ``length`` steps."""
        if length == 0 or state == self._goal:
            return int(length == 0 and state == self._goal)
        key = (state, length)
        known = self._counts.get(key)
        if known is None:
            known = sum(self._count(after, length - 1) for _, after in self._after(state))
            self._counts[key] = known
        return known

    def _from(self, state: State, length: int) -> Iterator[Program]:
        if not self._count(state, length):
            return
        if length == 0:
            yield ()
            return
        for instruction, after in self._after(state):
            for rest in self._from(after, length - 1):
                yield (instruction, *rest)


def programs(
    hierarchy: Sequence[int],
    size: int = 5,
    reading: RuleReading = RuleReading.MASTER_ALL_REDUCE,
    until: float = math.inf,
) -> Iterator[Program]:
    """All valid programs of at most ``size`` steps on a hierarchy, shorter ones first.

    Raises:
        TimeoutError: ``monotonic()`` is greater than ``until``.
    """
    return Enumerator(hierarchy, reading, until).programs(size)


@lru_cache(maxsize=64)
def _found(hierarchy: Hierarchy, size: int, reading: RuleReading) -> list[Program]:
    """Filled by ``known_programs``; empty until then."""
    return []


def known_programs(
    hierarchy: Sequence[int], size: int, reading: RuleReading, until: float
) -> Iterator[Program]:
    """All valid programs, as of ``programs``; of hierarchies with the same ones found once.

    Raises:
        TimeoutError: ``monotonic()`` is greater than ``until``.
    """
    small = shrunk_hierarchy(hierarchy)
    kept = _found(small, size, reading)
    if kept:
        yield from kept
        return
    found: list[Program] = []
    for program in programs(small, size, reading, until):
        found.append(program)
        yield program
    kept[:] = found


def forget() -> None:
    """Forgets the programs that were found, for measurements."""
    _found.cache_clear()
