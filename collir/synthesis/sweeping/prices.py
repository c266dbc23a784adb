"""Prices of collectives on many meshes.

A price depends on the places of the collective's axes, and not on how other axes divide the rest of
each level. So meshes share prices, which are computed once.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from collir.cost.collectives.collective import Collective, Route
from collir.cost.formulas.functions import Array
from collir.cost.model import CostModel, StepCost, step_estimate, step_phases
from collir.cost.network.group import CostError
from collir.cost.programs.local_steps import sent_phases
from collir.layout import Mesh
from collir.machine import Machine
from collir.synthesis.sweeping.configuration import Configuration
from collir.synthesis.sweeping.ingredients import PartCollective
from collir.synthesis.sweeping.programs import on_machine


class MeshPrices:
    """The prices of collectives on the meshes of a machine that are asked for."""

    def __init__(self, machine: Machine) -> None:
        """Start without any mesh."""
        self.machine = machine
        self.meshes: list[Mesh] = []
        self.numbers: dict[object, int] = {}
        self.places: dict[frozenset[str], dict[int, int]] = defaultdict(dict)
        self.place_numbers: dict[object, int] = {}
        self.known_streams: dict[tuple[str, ...], dict[int, int]] = defaultdict(dict)
        self.known: dict[object, dict[tuple[int, float], float]] = defaultdict(dict)

    def number(self, configuration: Configuration) -> int:
        """Return the number of the mesh of a configuration.

        Raises:
            MachineError, MeshError: the machine cannot have this size.
        """
        if (number := self.numbers.get(configuration.axes)) is None:
            self.meshes.append(on_machine(self.machine, configuration))
            number = self.numbers[configuration.axes] = len(self.meshes) - 1
        return number

    def of(
        self, sent: PartCollective, sizes: Array, meshes: Sequence[int], route: Route | None
    ) -> Array:
        """Return the seconds of a collective for each size in bytes, on the mesh of each number."""
        known = self.known[sent.kind, sent.axes, sent.at_root, sent.replicated, route]
        names = frozenset(sent.axes) | sent.at_root | sent.replicated
        places = self.places[names]
        for number in {*meshes} - places.keys():
            place = _place(self.meshes[number], names)
            places[number] = self.place_numbers.setdefault(place, len(self.place_numbers))
        asked = [*zip((places[number] for number in meshes), sizes.tolist(), strict=True)]
        for key, number in zip(asked, meshes, strict=True):
            if key not in known:
                known[key] = _price(sent, key[1], self.meshes[number], route)
        return np.array([known[key] for key in asked])

    def streams(self, axes: tuple[str, ...], meshes: Sequence[int]) -> Array:
        """Return the stream of a collective on the mesh of each number: the outermost level that it
        goes through; 0 if it is over one device."""
        known = self.known_streams[axes]
        for number in {*meshes} - known.keys():
            mesh = self.meshes[number]
            levels = (sub.level for sub in mesh.sub_axes if sub.axis in axes)
            known[number] = min(map(mesh.machine.level_names.index, levels), default=0)
        return np.array([known[number] for number in meshes])


def _place(mesh: Mesh, names: Iterable[str]) -> object:
    """Return the place of some axes: for each level the axes on it in order, all others as one."""

    subs = sorted(mesh.sub_axes, key=lambda sub: -sub.stride)
    parts = groupby(subs, key=lambda sub: (sub.level, sub.axis if sub.axis in names else ""))
    return tuple((part, math.prod(sub.size for sub in same)) for part, same in parts)


def _price(sent: PartCollective, size: float, mesh: Mesh, route: Route | None) -> float:
    """Return the seconds of a collective on a mesh; 0 if it is over one device."""

    def subs(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sub for axis in names for sub in mesh.of_axis.get(axis, ()))

    if not (axes := subs(sent.axes)):
        return 0.0
    at_root, replicated = frozenset(subs(sent.at_root)), frozenset(subs(sent.replicated))
    collective = Collective(
        sent.kind, mesh, axes, size, at_root=at_root, replicated=replicated, sent_by=route
    )
    model = CostModel()
    try:
        name, estimate = step_estimate(collective, model)
        phases = step_phases(collective, model, estimate)
    except CostError:
        return 0.0
    cost = StepCost(collective, name, estimate.time, estimate.port_bytes, 0, 0, phases)
    return math.fsum(phase.time for phase in sent_phases(cost))
