"""What was measured, read back, beside what is predicted for it now."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import singles
from programs import MACHINES, Case, Steps, Wish, costs, function_costs, machine

from collir.cost.calibration import Calibration, Sample, calibrate
from collir.cost.model import StepCost
from collir.ir.functions import functions_of
from collir.machine import Machine
from collir.synthesis.p2.matrices import Matrix


@dataclass(frozen=True)
class Measured:
    """Runs of a program: seconds of the median run, how much longer the longest took than the
    shortest, and the bytes on the links of every level."""

    seconds: float
    spread: float
    sent: tuple[int, ...]
    total: tuple[int, ...]

    @staticmethod
    def of(entry: dict[str, Any]) -> "Measured":
        """Of a file."""
        runs = sorted(entry["seconds"])
        spread = runs[-1] / runs[0] - 1
        sent, total = tuple(entry["sent"]), tuple(entry["total"])
        return Measured(median(runs), spread, sent, total)


@dataclass(frozen=True)
class Placement:
    """A placement of a case, its programs, and what the library's own all_reduce takes there."""

    case: Case
    matrix: Matrix
    programs: tuple[Steps, ...]
    measured: tuple[Measured, ...]
    ring: Measured
    default: Measured
    costs: tuple[tuple[StepCost, ...], ...]

    @cached_property
    def predicted(self) -> list[float]:
        """Seconds of every program."""
        return [sum(step.time for step in steps) for steps in self.costs]

    @cached_property
    def seconds(self) -> list[float]:
        """Measured ones."""
        return [one.seconds for one in self.measured]


@dataclass(frozen=True)
class Checked:
    """A single collective: what the busiest port of every level should carry, and did."""

    single: singles.Single
    cost: StepCost
    measured: Measured

    @property
    def deviations(self) -> Iterator[tuple[int, float]]:
        """For every level that should carry something: how much more it did, relative to it."""
        each = zip(self.cost.port_bytes, self.measured.sent, strict=True)
        for level, (should, did) in enumerate(each):
            if should:
                yield level, did / should - 1


@dataclass(frozen=True)
class Machined:
    """All that was measured on one machine.

    Attributes:
        given: as its file says; ``calibration`` has it fitted to ``checked``.
        checked: single collectives, by the protocol that programs run with.
        protocols: single collectives by each protocol.
        about: date, versions and settings.
    """

    given: Machine
    calibration: Calibration
    checked: tuple[Checked, ...]
    protocols: dict[str, tuple[Checked, ...]]
    placements: tuple[Placement, ...]
    about: dict[str, Any]


def read(folder: Path, kinds: Collection[str] = tuple(singles.TYPES)) -> Machined | None:
    """The results of a machine, calibrated with single collectives of some kinds; None if there
    are none."""
    path = folder / "singles.json"
    if not path.exists():
        return None
    about = json.loads(path.read_text(encoding="utf-8"))
    given = machine(about["machine"])
    found = about.pop("collectives").items()
    protocols = {name: _checked(entries, given) for name, entries in found}
    checked = protocols[about["protocol"]]
    calibration = fitted(given, checked, kinds)
    files = sorted(folder.glob("[0-9]*.json"))  # of cases, whose names begin with their axes
    entries = [json.loads(one.read_text(encoding="utf-8")) for one in files]
    placements = [one for entry in entries for one in _placements(entry, calibration.machine)]
    return Machined(given, calibration, checked, protocols, tuple(placements), about)


def fitted(
    given: Machine, checked: Sequence[Checked], kinds: Collection[str] = tuple(singles.TYPES)
) -> Calibration:
    """The machine that explains the times of single collectives best, of some kinds."""
    samples = [
        Sample(one.cost.collective, one.measured.seconds, f"{one.single}")
        for one in checked
        if one.single.kind in kinds
    ]
    return calibrate(given, samples)


def _checked(entries: Sequence[dict[str, Any]], given: Machine) -> tuple[Checked, ...]:
    listed = [
        singles.Single(entry["kind"], tuple(entry["over"]), entry["elements"]) for entry in entries
    ]
    functions = functions_of(singles.module_of(listed, given, MACHINES))
    found: list[Checked] = []
    for single, entry, function in zip(listed, entries, functions, strict=True):
        [cost] = function_costs(function, given)
        found.append(Checked(single, cost, Measured.of(entry)))
    return tuple(found)


def _placements(entry: dict[str, Any], given: Machine) -> Iterator[Placement]:
    case = Case(tuple(entry["case"]["axes"]), tuple(entry["case"]["reduced"]))
    for one in entry["placements"]:
        matrix: Matrix = tuple(map(tuple, one["matrix"]))
        programs = [
            tuple((kind, tuple(axes)) for kind, axes in each["steps"]) for each in one["programs"]
        ]
        wishes = [Wish(case, matrix, steps) for steps in programs]
        yield Placement(
            case,
            matrix,
            tuple(programs),
            tuple(map(Measured.of, one["programs"])),
            Measured.of(one["flat"]["ring"]),
            Measured.of(one["flat"]["default"]),
            tuple(costs(wishes, given, entry["elements"])),
        )
