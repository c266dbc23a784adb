"""The accuracy of predictions on devices that were measured (docs/truth.md)."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from collir.cost.model import AUTO
from collir.cost.programs.simulation import Simulation
from collir.machine import Machine

STEP = "step of training"
"""The word for what is no collective."""

COLUMNS = ("device", "compute", "memory", "what", "rows", "median")
FILE = "accuracy.csv"


@dataclass(frozen=True)
class Accuracy:
    """The error of predictions of one kind on one device.

    Attributes:
        device: its name, such as H100.
        what: the kind of a collective, or ``STEP``.
        rows: the number of measurements.
        median: the median absolute error, as a fraction of the measured times.
    """

    device: str
    what: str
    rows: int
    median: float

    def __str__(self) -> str:
        return f"{self.what} on {self.device}, median error {self.median:.0%} of {self.rows} rows"


@cache
def _table() -> Mapping[tuple[float, float], Mapping[str, Accuracy]]:
    """The accuracy of each kind, by the bf16 rate and the memory bandwidth of the device."""
    table: dict[tuple[float, float], dict[str, Accuracy]] = {}
    with (files("collir.cost.programs") / FILE).open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            own = table.setdefault((float(row["compute"]), float(row["memory"])), {})
            numbers = int(row["rows"]), float(row["median"])
            own[row["what"]] = Accuracy(row["device"], row["what"], *numbers)
    return table


def key_of(machine: Machine) -> tuple[float, float] | None:
    """Return the rates that identify the device of a machine; None for a device without them."""
    device = machine.device
    rate = dict(device.compute).get("bf16") if device else None
    return (rate, device.memory_bandwidth or 0.0) if device and rate else None


def accuracy_lines(machine: Machine, kinds: Sequence[str]) -> Iterator[str]:
    """Yield a line for each kind with the error of predictions, if such devices were measured."""
    key = key_of(machine)
    known: Mapping[str, Accuracy] = _table().get(key, {}) if key else {}
    for kind in dict.fromkeys(kinds) if known else ():
        if kind in known:
            yield f"beside measurements: {known[kind]} (docs/truth.md)"
        else:
            [device] = {fitted.device for fitted in known.values()}
            yield f"beside measurements: no {kind} on {device} (docs/truth.md)"


def accuracy_of(simulations: Sequence[Simulation]) -> Iterator[str]:
    """Yield a line on each kind of collective of programs on one machine, as NCCL runs them."""
    for machine in dict.fromkeys(simulation.mesh.machine for simulation in simulations):
        own = [x for x in simulations if x.mesh.machine == machine]
        model = own[0].model
        if model.on(machine).model == "nccl" and model.algorithm == AUTO:
            yield from accuracy_lines(machine, [*_kinds(own)])


def _kinds(simulations: Sequence[Simulation]) -> Iterator[str]:
    for simulation in simulations:
        for step in simulation.program:
            if step.sent:
                yield step.sent.collective.kind
            elif inside := step.loop or step.pipelined:
                yield from _kinds([inside.body])
