"""The lower bounds in closed form: no algorithm is faster, and they are cheap to compute."""

import itertools
import math
import sys
from collections import Counter
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.cost.algorithms import ALGORITHMS
from support.machine.machines import meshes, steps

from collir.cost.bounds import collective_bound
from collir.cost.collectives.collective import Collective, LayoutChange
from collir.cost.model import CostModel, algorithm_estimate, step_cost
from collir.cost.network.group import CostError, Group
from collir.layout import Axis, Dim, DistType, DType, Factor, Mesh
from collir.layout import at_root as at_zero
from collir.machine import Level, LinkKind, Machine

KINDS = [(kind, name) for kind, names in ALGORITHMS.items() for name in names]


@st.composite
def collectives(draw: st.DrawFn, kind: str) -> Collective:
    """Draw a collective on a random machine; on each other sub-axis, the operand is at root,
    replicated or distributed."""
    mesh, axes, root = draw(steps())
    beside = [axis for axis in mesh.by_name if axis not in axes and axis not in root]
    replicated = frozenset(axis for axis in beside if draw(st.booleans()))
    return Collective(kind, mesh, axes, draw(sizes), root, replicated)


sizes = st.sampled_from([1.0, 720.0, 720720.0, 1e9])


@st.composite
def permutes(draw: st.DrawFn) -> Collective:
    """Draw a permute between random layouts with equal numbers of shards."""
    mesh = draw(meshes().filter(lambda mesh: mesh.sub_axes))
    names = draw(st.permutations(list(mesh.by_name)))
    states = {name: draw(st.sampled_from("RSSOM")) for name in names}
    at_root = frozenset(name for name in names if states[name] == "M")
    free = [name for name in names if states[name] in "RS"]
    count = draw(st.integers(0, len(free)))
    split = draw(st.integers(0, count))
    held = tuple(free[:split]), tuple(free[split:count])
    candidates = [
        (tuple(order[:i]), tuple(order[i:j]))
        for order in itertools.permutations(free)
        for j in range(len(order) + 1)
        for i in range(j + 1)
    ]
    shards = [mesh.group_size(axes) for axes in held]
    fits = [pair for pair in candidates if [mesh.group_size(axes) for axes in pair] == shards]
    target = draw(st.sampled_from(fits))
    layouts = (
        DistType(
            DType.F32,
            tuple(Dim(mesh.devices, axes) for axes in layout),
            place=at_zero(at_root),
        )
        for layout in (held, target)
    )
    axes = mesh.ordered({axis for axes in (*held, *target) for axis in axes})
    assume(axes)
    distributed = {name for name in names if states[name] == "O"}
    replicated = frozenset(names) - set(axes) - at_root - distributed
    sent_by = LayoutChange(*layouts)
    return Collective("permute", mesh, axes, draw(sizes), at_root, replicated, sent_by=sent_by)


@pytest.mark.turns
@pytest.mark.parametrize(
    ("kind", "name"),
    KINDS,
)
@settings(max_examples=9)
@given(data=st.data())
def test_no_algorithm_is_faster(kind: str, name: str, data: st.DataObject) -> None:
    collective = data.draw(collectives(kind))
    group = Group.of(collective.mesh, collective.axes, collective.at_root)
    try:
        time = algorithm_estimate(collective, group, name).time
    except CostError:  # not for this number of ranks, or this kind of level
        return
    assert collective_bound(collective).time <= time * (1 + 1e-9)


@settings(max_examples=27)
@given(collective=permutes())
def test_no_permute_is_faster(collective: Collective) -> None:
    assert collective_bound(collective).time <= step_cost(
        collective, CostModel("alpha-beta", order="written")
    ).time * (1 + 1e-9)


# ---------------------------------------------------------------------------------------------
# By hand
# ---------------------------------------------------------------------------------------------


def mesh_on(*levels: Level) -> Mesh:
    """Return a mesh with one axis over all levels."""
    axis = Axis.placed("d", [Factor(level.name, level.size) for level in levels])
    return Mesh("m", Machine("m", levels), (axis,))


@pytest.mark.parametrize("p", [2, 3, 4, 7, 8, 9])
@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        ("all_reduce", 2),
        ("reduce_scatter", 1),
        ("all_gather", 1),
        ("gather", 1),
        ("scatter", 1),
        ("all_to_all", 1),
        ("broadcast", None),
        ("reduce", None),
    ],
)
def test_one_level(kind: str, factor: int | None, p: int) -> None:
    mesh = mesh_on(Level("x", p, 5e9, 3e-6))
    bound = collective_bound(Collective(kind, mesh, tuple(mesh.by_name), 1e6))
    assert bound.latency == pytest.approx(math.ceil(math.log2(p)) * 3e-6)
    part = 1 if factor is None else factor * (p - 1) / p
    assert bound.bandwidth == pytest.approx(part * 1e6 / 5e9)
    assert bound.time == max(bound.latency, bound.bandwidth)


@pytest.mark.parametrize(
    ("kind", "bandwidth"),
    [
        ("all_reduce", 2 * 3 / 4 * 8),
        ("all_gather", 3 / 4 * 8),
        ("broadcast", 8),
        ("all_to_all", 2 * 3 / 4 * 8),
    ],
)
def test_four_nodes_of_two(kind: str, bandwidth: float) -> None:
    mesh = mesh_on(Level("x", 4, 1.0, 5.0), Level("y", 2, 100.0, 1.0))
    bound = collective_bound(Collective(kind, mesh, ("d.x", "d.y"), 8))
    assert bound.bandwidth == pytest.approx(bandwidth)
    assert bound.latency == 10  # 1, 3, then 9 nodes, as two devices of a node send


def two_axes(x: int, y: int, **options: float) -> Mesh:
    """Return a mesh with axis ``a`` on ``x`` children of a level, axis ``b`` on ``y`` children, and
    ``c`` on the two children of the level outside it."""
    levels = (
        Level("o", 2, options.get("around", 1.0), 0),
        Level("x", x * y, 1.0, 0, taper=options.get("taper", 1.0)),
    )
    axes = (
        Axis.placed("a", [Factor("x", x)]),
        Axis.placed("b", [Factor("x", y)]),
        Axis.placed("c", [Factor("o", 2)]),
    )
    return Mesh("m", Machine("m", levels), axes)


def bandwidth_over_a(mesh: Mesh, kind: str, root: str = "", replicated: str = "") -> float:
    (a,) = (axis for axis in mesh.by_name if axis.startswith("a"))
    named = {axis[0]: axis for axis in mesh.by_name}
    at_root, copies = (frozenset(named[c] for c in letters) for letters in (root, replicated))
    return collective_bound(Collective(kind, mesh, (a,), 12, at_root, copies)).bandwidth


def test_idle_devices_may_reduce_for_others() -> None:
    mesh = two_axes(3, 2)
    assert bandwidth_over_a(mesh, "all_reduce") == pytest.approx(16)  # 2 * 2/3 * 12
    # All ranks may send to an idle rank, which sends the sum back: 12 bytes through every port.
    assert bandwidth_over_a(mesh, "all_reduce", root="b") == 12
    assert bandwidth_over_a(mesh, "all_reduce", root="c") == 12
    assert bandwidth_over_a(mesh, "all_gather", root="b") == 8


def test_copies_elsewhere_need_not_be_sent() -> None:
    mesh = two_axes(3, 2)
    assert bandwidth_over_a(mesh, "reduce_scatter") == 8
    assert bandwidth_over_a(mesh, "reduce_scatter", replicated="b") == 4
    assert bandwidth_over_a(mesh, "all_reduce", replicated="b") == 12
    assert bandwidth_over_a(mesh, "all_gather", replicated="b") == 8


def test_a_taper_may_be_gone_around() -> None:
    # Two groups of three send 2 * 2 * 12 bytes; the interconnect carries 6/12, the outer port 0.5.
    mesh = two_axes(3, 2, taper=12, around=0.5)
    assert bandwidth_over_a(mesh, "all_gather") == pytest.approx(48 / (0.5 + 0.5))
    assert bandwidth_over_a(mesh, "all_reduce") == pytest.approx(96 / (0.5 + 2 * 0.5))
    alone = mesh_on(Level("o", 1, 0.5, 0), Level("x", 6, 1.0, 0, taper=12))
    bound = collective_bound(Collective("all_gather", alone, tuple(alone.by_name), 12))
    assert bound.bandwidth == pytest.approx(5 * 12 / 0.5)


def test_the_halves_of_a_ring_exchange_over_two_links() -> None:
    # Each of the 4 ranks in a half sends half of its 8 bytes to the other half, over 2 links.
    mesh = mesh_on(Level("x", 8, 2.0, 0, LinkKind.RING))
    exchange = Collective("all_to_all", mesh, tuple(mesh.by_name), 8)
    assert collective_bound(exchange).bandwidth == 4 * 8 / 2 / 2


def test_a_bus_carries_everything() -> None:
    mesh = mesh_on(Level("x", 4, 2.0, 0, LinkKind.BUS))
    assert (
        collective_bound(Collective("all_gather", mesh, tuple(mesh.by_name), 8)).bandwidth
        == 3 * 8 / 2
    )
    assert (
        collective_bound(Collective("all_reduce", mesh, tuple(mesh.by_name), 8)).bandwidth
        == 6 * 8 / 2
    )


# ---------------------------------------------------------------------------------------------
# Size
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind, name in KINDS
        if name in ("ring", "direct", "chain", "double_binary_tree")
    ],
)
def test_large_machines_cost_no_more_work(kind: str, name: str) -> None:
    """Functions of traffic.py and group.py are called as often for 131,072 devices as for 8."""

    def calls(*sizes: int) -> Counter[str]:
        levels = (Level(f"l{i}", n, 1e9, 1e-6) for i, n in enumerate(sizes))
        mesh = mesh_on(*levels)
        collective = Collective(kind, mesh, tuple(mesh.by_name), 1e6)
        counted: Counter[str] = Counter()

        def profile(frame: FrameType, event: str, _: object) -> None:
            module = frame.f_globals.get("__name__", "")
            # Dictionaries compare keys of equal hash more or less often, by what is in them before.
            compares = frame.f_code.co_name == "__eq__"
            if event == "call" and str(module).startswith("collir.cost.") and not compares:
                counted[f"{module}.{frame.f_code.co_qualname}"] += 1

        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            algorithm_estimate(collective, Group.of(mesh, collective.axes), name)
            collective_bound(collective)
        finally:
            sys.setprofile(before)
        return counted

    small, large = calls(2, 2, 2), calls(128, 128, 8)
    assert small
    assert large == small


# ---------------------------------------------------------------------------------------------
# Tightness
# ---------------------------------------------------------------------------------------------


def _level(size: int, gigabytes: float, kind: LinkKind = LinkKind.SWITCH, **more: Any) -> Level:
    return Level(f"l{size}_{gigabytes:g}", size, gigabytes * 1e9, 0.0, kind=kind, **more)


MACHINES = {
    "a switch": [_level(6, 2)],
    "an even ring": [_level(6, 2, LinkKind.RING)],
    "an odd ring": [_level(5, 2, LinkKind.RING)],
    "a full mesh": [_level(4, 3, LinkKind.FULL)],
    "a bus": [_level(4, 1, LinkKind.BUS)],
    "slow outside": [_level(4, 1), _level(2, 10)],
    "slow inside": [_level(4, 8), _level(2, 1)],
    "a taper": [_level(4, 8, taper=4.0)],
    "a taper outside": [_level(4, 8, taper=4.0), _level(2, 100)],
    "a slow port at the root": [_level(4, 4, ports=(1e9, 4e9, 4e9, 4e9))],
    "a slow port elsewhere": [_level(4, 4, ports=(4e9, 1e9, 4e9, 4e9))],
    "a slow port outside": [_level(4, 4, ports=(4e9, 0.5e9, 4e9, 4e9)), _level(2, 100)],
}
"""Machines without latencies, so that the bandwidth alone counts."""

ONE_WAY = ("broadcast", "reduce")

NOT_REACHED = {
    ("slow outside", "all_reduce"): 16 / 15,
    ("a slow port outside", "all_reduce"): 1.505,
    **{(name, kind): 2.0 for name in ("an even ring", "an odd ring") for kind in ONE_WAY},
    **{("a full mesh", kind): 3.0 for kind in ONE_WAY},
    **{
        (name, kind): ratio
        for name, ratio in (
            ("slow outside", 16 / 15),
            ("a taper outside", 76 / 75),
            ("a slow port outside", 1.00333),
        )
        for kind in ("all_gather", "reduce_scatter")
    },
    **{(f"a slow port {where}", "all_reduce"): 1.5 for where in ("at the root", "elsewhere")},
}
"""The time of the best algorithm, divided by its bound, where that is not 1."""


@pytest.mark.parametrize("kind", ALGORITHMS)
@pytest.mark.parametrize("name", MACHINES)
def test_algorithms_reach_the_bounds(name: str, kind: str) -> None:
    mesh = mesh_on(*MACHINES[name])
    collective = Collective(kind, mesh, tuple(mesh.by_name), 1e9)
    group = Group.of(mesh, collective.axes, collective.at_root)
    times: list[float] = []
    for algorithm in ALGORITHMS[kind]:
        with suppress(CostError):  # not for this number of ranks, or this kind of level
            times.append(algorithm_estimate(collective, group, algorithm).time)
    ratio = min(times) / collective_bound(collective).time
    assert ratio == pytest.approx(NOT_REACHED.get((name, kind), 1.0), rel=1e-3)
