"""Measurements, read back from files, beside current predictions."""

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
from collir.synthesis.placement.matrices import Matrix


@dataclass(frozen=True)
class Measured:
    """Runs of a program.

    Attributes:
        seconds: Time of the median run.
        spread: Time of the longest run over that of the shortest, minus 1.
        sent: For every level, the bytes through its busiest port.
        total: For every level, the bytes through all its ports.
    """

    seconds: float
    spread: float
    sent: tuple[int, ...]
    total: tuple[int, ...]

    @staticmethod
    def of(entry: dict[str, Any]) -> "Measured":
        """Return the runs of an entry of a file."""
        runs = sorted(entry["seconds"])
        spread = runs[-1] / runs[0] - 1
        sent, total = tuple(entry["sent"]), tuple(entry["total"])
        return Measured(median(runs), spread, sent, total)


@dataclass(frozen=True)
class Placement:
    """A placement of a case with its programs and the library's own all_reduces."""

    case: Case
    matrix: Matrix
    programs: tuple[Steps, ...]
    measured: tuple[Measured, ...]
    ring: Measured
    default: Measured
    costs: tuple[tuple[StepCost, ...], ...]

    @cached_property
    def predicted(self) -> list[float]:
        """Predicted seconds of every program."""
        return [sum(step.time for step in steps) for steps in self.costs]

    @cached_property
    def seconds(self) -> list[float]:
        """Measured seconds of every program."""
        return [run.seconds for run in self.measured]


@dataclass(frozen=True)
class Checked:
    """A single collective with its predicted cost and its measurement."""

    single: singles.Single
    cost: StepCost
    measured: Measured

    @property
    def deviations(self) -> Iterator[tuple[int, float]]:
        """The relative excess of the measured bytes, for every level that should carry bytes."""
        byte_pairs = zip(self.cost.port_bytes, self.measured.sent, strict=True)
        for level, (should, did) in enumerate(byte_pairs):
            if should:
                yield level, did / should - 1


@dataclass(frozen=True)
class Machined:
    """All measurements on one machine.

    Attributes:
        given: The machine of the file; ``calibration`` has it fitted to ``checked``.
        checked: Single collectives, by the protocol that programs run with.
        protocols: Single collectives by each protocol.
        about: Date, versions and settings.
    """

    given: Machine
    calibration: Calibration
    checked: tuple[Checked, ...]
    protocols: dict[str, tuple[Checked, ...]]
    placements: tuple[Placement, ...]
    about: dict[str, Any]


def read(folder: Path, kinds: Collection[str] = tuple(singles.TYPES)) -> Machined | None:
    """Return the results of a machine, calibrated with single collectives of some kinds.

    The result is None if nothing was measured.
    """
    path = folder / "singles.json"
    if not path.exists():
        return None
    about = json.loads(path.read_text(encoding="utf-8"))
    given = machine(about["machine"])
    collectives = about.pop("collectives").items()
    protocols = {name: checked_of(entries, given) for name, entries in collectives}
    checked = protocols[about["protocol"]]
    calibration = fitted(given, checked, kinds)
    files = sorted(folder.glob("[0-9]*.json"))  # names of cases begin with their axes
    entries = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    placements = [
        placement for entry in entries for placement in _placements(entry, calibration.machine)
    ]
    return Machined(given, calibration, checked, protocols, tuple(placements), about)


def fitted(
    given: Machine, checked: Sequence[Checked], kinds: Collection[str] = tuple(singles.TYPES)
) -> Calibration:
    """Return the machine that best explains the times of single collectives of some kinds."""
    samples = [
        Sample(entry.cost.collective, entry.measured.seconds, f"{entry.single}")
        for entry in checked
        if entry.single.kind in kinds
    ]
    return calibrate(given, samples)


def checked_of(entries: Sequence[dict[str, Any]], given: Machine) -> tuple[Checked, ...]:
    """Return single collectives with their costs on a machine."""
    listed = [
        singles.Single(entry["kind"], tuple(entry["over"]), entry["elements"]) for entry in entries
    ]
    functions = functions_of(singles.module_of(listed, given, MACHINES))
    results: list[Checked] = []
    for single, entry, function in zip(listed, entries, functions, strict=True):
        [cost] = function_costs(function, given)
        results.append(Checked(single, cost, Measured.of(entry)))
    return tuple(results)


def _placements(entry: dict[str, Any], given: Machine) -> Iterator[Placement]:
    case = Case(tuple(entry["case"]["axes"]), tuple(entry["case"]["reduced"]))
    for placement in entry["placements"]:
        matrix: Matrix = tuple(map(tuple, placement["matrix"]))
        programs = [
            tuple((kind, tuple(axes)) for kind, axes in program["steps"])
            for program in placement["programs"]
        ]
        wishes = [Wish(case, matrix, steps) for steps in programs]
        yield Placement(
            case,
            matrix,
            tuple(programs),
            tuple(map(Measured.of, placement["programs"])),
            Measured.of(placement["flat"]["ring"]),
            Measured.of(placement["flat"]["default"]),
            tuple(costs(wishes, given, entry["elements"])),
        )
