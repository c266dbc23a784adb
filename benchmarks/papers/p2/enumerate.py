"""Enumeration of the programs of P²'s language (Xie et al., MLSys 2022) that reduce, up to a size.

No instruction applies to the state in which all devices have all chunks, complete. So a program is
valid (it never reaches a state from which the goal is out of reach) exactly if it ends there.
"""

import math
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from math import prod
from time import monotonic

from p2.dsl import (
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
from p2.semantics import Chunks, State


class RuleReading(StrEnum):
    """A reading of the paper, which leaves open the collectives that groups of masters may run."""

    LITERAL = "literal"
    """All collectives, as the rules are written."""
    MASTER_ALL_REDUCE = "master-all-reduce"
    """Only all_reduce, which gives the numbers of programs that the paper reports."""
    NO_MASTER = "no-master"
    """No collective: there are no groups of masters."""

    def allows(self, collective: CollectiveKind) -> bool:
        """Return whether groups of masters may run a collective."""
        if self is RuleReading.MASTER_ALL_REDUCE:
            return collective is CollectiveKind.ALL_REDUCE
        return self is RuleReading.LITERAL


def instructions(
    hierarchy: Sequence[int], reading: RuleReading = RuleReading.MASTER_ALL_REDUCE
) -> tuple[Instruction, ...]:
    """Return the instructions on a hierarchy; of several with equal groups only the first."""
    distinct: dict[tuple[Span, CollectiveKind], Instruction] = {}
    for level in range(len(hierarchy)):
        for form in forms(level):
            groups = span(hierarchy, level, form)
            if groups.size == 1:
                continue
            for collective in CollectiveKind:
                if isinstance(form, Master) and not reading.allows(collective):
                    continue
                step = Instruction(level, form, collective)
                distinct.setdefault((groups, collective), step)
    return tuple(distinct.values())


def shrunk_hierarchy(hierarchy: Sequence[int]) -> Hierarchy:
    """Return a smaller hierarchy that has the same programs: factors above 3 become 3.

    That the programs are the same is not proved, but tested on small hierarchies. A factor of 3
    keeps a first device and two that differ from it, so every pair of devices has a pair like it.
    """
    return tuple(min(size, 3) for size in hierarchy)


class Enumerator:
    """The valid programs on a hierarchy; successors and counts of each state are computed once.

    Once ``monotonic()`` is greater than ``until``, its methods raise a ``TimeoutError``.

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
            group_span = span(hierarchy, step.slice, step.form)
            groups = lowered.setdefault(group_span, tuple(group_span.groups(devices)))
            self._steps.append((step, groups))
        self._following: dict[State, list[tuple[Instruction, State]]] = {}
        self._counts: dict[tuple[State, int], int] = {}

    def programs(self, size: int = 5) -> Iterator[Program]:
        """Yield all valid programs of at most ``size`` steps, each once; shorter programs first.

        Programs whose steps have equal collectives and groups are one program. On a hierarchy of
        one device the only program is empty.
        """
        for length in range(size + 1):
            yield from self._programs_from(self._start, length)

    def count(self, length: int) -> int:
        """Return the number of valid programs of exactly ``length`` steps, without listing them."""
        return self._count(self._start, length)

    def _successors(self, state: State) -> list[tuple[Instruction, State]]:
        """Return all instructions that apply to a state, with the states that they lead to."""
        known = self._following.get(state)
        if known is not None:
            return known
        successors: list[tuple[Instruction, State]] = []
        for instruction, groups in self._steps:
            if monotonic() > self.until:
                raise TimeoutError("the programs were not all found in the time given")
            after = self._chunks.step(state, instruction.collective, groups)
            if after is not None:
                successors.append((instruction, after))
        self._following[state] = successors
        return successors

    def _count(self, state: State, length: int) -> int:
        """Return the number of paths from a state to the goal in exactly ``length`` steps."""
        if length == 0 or state == self._goal:
            return int(length == 0 and state == self._goal)
        key = (state, length)
        known = self._counts.get(key)
        if known is None:
            known = sum(self._count(after, length - 1) for _, after in self._successors(state))
            self._counts[key] = known
        return known

    def _programs_from(self, state: State, length: int) -> Iterator[Program]:
        if not self._count(state, length):
            return
        if length == 0:
            yield ()
            return
        for instruction, after in self._successors(state):
            for rest in self._programs_from(after, length - 1):
                yield (instruction, *rest)


def programs(
    hierarchy: Sequence[int],
    size: int = 5,
    reading: RuleReading = RuleReading.MASTER_ALL_REDUCE,
    until: float = math.inf,
) -> Iterator[Program]:
    """Yield all valid programs of at most ``size`` steps on a hierarchy, shorter programs first.

    Raises:
        TimeoutError: ``monotonic()`` is greater than ``until``.
    """
    return Enumerator(hierarchy, reading, until).programs(size)


@lru_cache(maxsize=64)
def listed_programs(hierarchy: Hierarchy, size: int, reading: RuleReading) -> list[Program]:
    """Return the list that ``known_programs`` fills; empty until then."""
    return []


def known_programs(
    hierarchy: Sequence[int], size: int, reading: RuleReading, until: float
) -> Iterator[Program]:
    """Yield all valid programs, as ``programs`` does, computed once for equal shrunk hierarchies.

    Raises:
        TimeoutError: ``monotonic()`` is greater than ``until``.
    """
    small = shrunk_hierarchy(hierarchy)
    cached = listed_programs(small, size, reading)
    if cached:
        yield from cached
        return
    listed: list[Program] = []
    for program in programs(small, size, reading, until):
        listed.append(program)
        yield program
    cached[:] = listed
