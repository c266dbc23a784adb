"""Random small machines of all kinds, and random steps on them, for property tests."""

import math
import random
from dataclasses import replace

from hypothesis import strategies as st
from support.machine.topologies import kinds_of, some_level, some_parents

from collir.layout import Axis, Factor, Mesh
from collir.machine import Device, Level, Machine


@st.composite
def one_level(draw: st.DrawFn, name: str, size: int) -> Level:
    """Draw a level of ``size`` children, of any kind that can have them."""
    kind = draw(st.sampled_from(kinds_of(size)))
    rng = random.Random(draw(st.integers(0, 2**16)))
    port, latency = draw(st.integers(1, 9)) * 1e9, draw(st.integers(0, 9)) * 1e-6
    level = some_level(rng, name, size, port, latency, kind)
    taper = 1.0 if level.ports else draw(st.sampled_from([1, 1, 2, 3.5]))
    return replace(level, taper=taper)


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    """Draw a mesh of up to 48 devices on one to three levels of any kind, with up to two axes."""
    axes: dict[str, list[Factor]] = {"a": [], "b": []}
    levels: list[Level] = []
    devices = 1
    for name in ("x", "y", "z")[: draw(st.integers(1, 3))]:
        sizes = [draw(st.integers(1, 4)) for _ in axes]
        if devices * math.prod(sizes) > 48:
            sizes = [1 for _ in sizes]
        devices *= math.prod(sizes)
        for factors, size in zip(axes.values(), sizes, strict=True):
            factors.append(Factor(name, size))
        levels.append(draw(one_level(name, math.prod(sizes))))
    for index, level in enumerate(levels):
        below = math.prod(inner.size for inner in levels[index + 1 :])
        rails = draw(st.sampled_from([n for n in (1, 2, 3, 4) if below % n == 0]))
        levels[index] = replace(level, rails=rails)
    if levels[0].size > 1 and draw(st.sampled_from([False, False, True])):
        levels[0] = some_parents(random.Random(draw(st.integers(0, 2**16))), levels[0], "w")
    device = draw(st.sampled_from([None, Device(reduction=5e9)]))
    machine = Machine("m", tuple(levels), device)
    placed = tuple(Axis.placed(name, factors) for name, factors in axes.items())
    return Mesh("m", machine, placed)


@st.composite
def steps(draw: st.DrawFn) -> tuple[Mesh, tuple[str, ...], frozenset[str]]:
    """Draw a mesh, the sub-axes of a step in any order, and other sub-axes at root."""
    mesh = draw(meshes().filter(lambda mesh: mesh.sub_axes))
    names = draw(st.permutations(list(mesh.by_name)))
    count = draw(st.integers(1, len(names)))
    root = frozenset(axis for axis in names[count:] if draw(st.booleans()))
    return mesh, tuple(names[:count]), root
