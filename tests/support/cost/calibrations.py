"""Machines to calibrate, and times of their collectives, for tests."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from hypothesis import strategies as st

from collir.cost.calibration import Sample
from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, step_estimate
from collir.layout import Axis, Factor, Mesh
from collir.machine import Device, Level, LinkKind, Machine

SIZES = tuple(16.0**exponent for exponent in range(1, 11))
"""Sizes from those that only latency matters for to those that only bandwidth matters for."""


def mesh_of(machine: Machine) -> Mesh:
    """Return a mesh with one axis over all levels."""
    factors = [Factor(level.name, level.size) for level in machine.levels]
    return Mesh("m", machine, (Axis.placed("a", factors),))


def samples(
    machine: Machine,
    model: CostModel,
    kinds: Iterable[str] = ("all_reduce", "all_gather", "all_to_all"),
    sizes: Sequence[float] = SIZES,
    noise: float = 0.0,
    seed: int = 0,
    over: Iterable[Sequence[str]] | None = None,
) -> list[Sample]:
    """Return modelled times of collectives over all combinations of levels, with relative noise."""
    mesh = mesh_of(machine)
    names = [sub.name for sub in mesh.sub_axes]
    if over is None:
        over = [axes for count in range(1, len(names) + 1) for axes in combinations(names, count)]
    generator = np.random.default_rng(seed)
    listed: list[Sample] = []
    for axes in over:
        for kind in kinds:
            for size in sizes:
                collective = Collective(kind, mesh, tuple(axes), size)
                seconds = step_estimate(collective, model)[1].time
                seconds *= math.exp(generator.normal(0, noise)) if noise else 1
                listed.append(Sample(collective, seconds, f"{kind} {size:g}"))
    return listed


def scaled(machine: Machine, factors: Sequence[float]) -> Machine:
    """Return a machine with its ports, latencies and reduction rate multiplied by factors."""
    rest = iter(factors)
    levels = [
        replace(level, port=level.port * next(rest), latency=level.latency * next(rest))
        for level in machine.levels
    ]
    device = machine.device
    if device and device.reduction:
        device = replace(device, reduction=device.reduction * next(rest))
    return replace(machine, levels=tuple(levels), device=device)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Draw a machine of one or two levels; outer latencies are larger, so that all are visible."""
    powers = st.floats(-1, 1)
    levels: list[Level] = []
    latency = 2e-6
    for name in ("gpu", "node")[: draw(st.integers(1, 2))]:
        kind = draw(st.sampled_from([LinkKind.SWITCH, LinkKind.RING, LinkKind.FULL, LinkKind.BUS]))
        port = 30e9 * 10 ** draw(powers)
        levels.insert(0, Level(name, draw(st.integers(2, 5)), port, latency, kind))
        latency *= draw(st.floats(1.5, 6))
    reduction = 20e9 * 10 ** draw(powers) if draw(st.booleans()) else None
    return Machine("m", tuple(levels), Device(reduction=reduction) if reduction else None)
