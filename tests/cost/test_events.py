"""Costs and simulations against a network on which every message of every device flows.

``tests/support/cost/plain_network.py`` has that network, and the algorithms as the blocks they
send. The times are the same if ranks wait for each other after each round. They are also the same
without waiting, as long as all ranks do alike.
"""

import math
import random
from dataclasses import replace
from itertools import accumulate, product

import pytest
from support.cost.algorithms import ALGORITHMS
from support.cost.plain_network import (
    Held,
    Job,
    Moves,
    Network,
    Rules,
    groups,
    moves,
    pairwise,
    play,
    run,
)
from support.harness.seeds import fresh

from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, step_cost
from collir.cost.network.group import CostError
from collir.cost.programs.schedule import StepTask, schedule
from collir.layout import Axis, Factor, Mesh
from collir.machine import Device, Level, LinkKind, Machine

KNOWN = [
    (kind, name)
    for kind, names in ALGORITHMS.items()
    for name in names
    if moves(kind, name, 4) is not None
]
IN_ROUNDS = [(kind, name) for kind, name in KNOWN if name not in ("ring", "direct")]
ALIKE = [
    ("all_gather", "recursive_doubling"),
    ("reduce_scatter", "recursive_halving"),
    ("reduce", "halving_doubling"),
    ("all_to_all", "pairwise"),
]
"""Algorithms in which no rank gets ahead of another, on switches without a taper."""

SWITCHES = (LinkKind.SWITCH,)
IN_ORDER = (LinkKind.SWITCH, LinkKind.SWITCH, LinkKind.BUS, LinkKind.RING)
"""Kinds of levels whose rings go in the order of ranks."""

ALL = (*IN_ORDER, LinkKind.FULL)


def random_mesh(
    rng: random.Random, kinds: tuple[LinkKind, ...], levels: int, reducing: bool = False
) -> Mesh:
    """Return a mesh of two axes on some levels, with 2 to 24 devices."""
    sizes = [1, 2, 2, 3, 4] if levels > 1 else [1, 2, 3, 4, 5, 6]
    while True:
        factors = [[Factor(f"l{i}", rng.choice(sizes)) for i in range(levels)] for _ in "ab"]
        across = [a.size * b.size for a, b in zip(*factors, strict=True)]
        if 1 < math.prod(across) <= 24:
            break
    listed = tuple(
        Level(
            f"l{i}",
            size,
            rng.uniform(1, 20) * 1e9,
            rng.choice([0.0, 1e-6, 5e-6, 2e-5]),
            rng.choice(kinds),
            taper=rng.choice([1, 1, 2, 3.5]) if len(kinds) > 1 else 1.0,
        )
        for i, size in enumerate(across)
    )
    device = Device(reduction=rng.uniform(1, 50) * 1e9) if reducing else None
    axes = tuple(Axis.placed(name, parts) for name, parts in zip("ab", factors, strict=True))
    return Mesh("m", Machine("c", listed, device), axes)


def some_axes(rng: random.Random, mesh: Mesh) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return some sub-axes in any order, and some of the others as at root."""
    names = [sub.name for sub in mesh.sub_axes]
    rng.shuffle(names)
    count = rng.randint(1, len(names))
    return tuple(names[:count]), frozenset(axis for axis in names[count:] if rng.random() < 0.3)


def collective(
    rng: random.Random, mesh: Mesh, kind: str, name: str
) -> tuple[Collective, list[Job]] | None:
    """Return a random step and its messages, or None if the algorithm does not fit the ranks.

    A ring has a job for each direction, as neither waits for the other.
    """
    axes, root = some_axes(rng, mesh)
    size = rng.choice([1e3, 1e5, 1e7])
    members = groups(mesh, axes, root)
    messages = moves(kind, name, len(members[0]))
    if messages is None:
        return None
    if name == "pairwise":
        jobs = [pairwise(mesh, axes, members, size)]
    elif name == "ring":
        jobs = [Job.of(half, members, size) for half in directions(messages)]
    else:
        jobs = [Job.of(messages, members, size)]
    return Collective(kind, mesh, axes, size, root, algorithm=name), jobs


def directions(ring: Moves) -> list[Moves]:
    """Return a ring as two, one for each half of the blocks."""
    return [
        Moves([[s for s in sends if s.blocks[0][1] == way] for sends in ring.rounds], ring.blocks)
        for way in (0, 1)
    ]


def per_byte(mesh: Mesh) -> float:
    device = mesh.machine.device
    return 1 / device.reduction if device and device.reduction else 0.0


def close(x: float, y: float) -> bool:
    return math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-18)


# --- the algorithms themselves ------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), KNOWN)
def test_the_blocks_end_where_they_should(kind: str, name: str) -> None:
    for p in range(2, 18):
        messages = moves(kind, name, p)
        if messages is None:
            continue
        blocks = sorted(
            {block for sends in messages.rounds for send in sends for block in send.blocks}
        )
        everyone = frozenset(range(p))
        start: Held = [{} for _ in range(p)]
        for rank, block in product(range(p), blocks):
            owner = block[0] if kind in ("all_gather", "gather", "all_to_all") else 0
            if kind in ("all_reduce", "reduce_scatter", "reduce") or owner == rank:
                start[rank][block] = frozenset([rank])
        held = play(messages, start)
        for rank, block in product(range(p), blocks):
            parts = held[rank].get(block)
            match kind:
                case "all_reduce":
                    assert parts == everyone
                case "reduce_scatter":
                    assert parts == everyone or block[0] != rank
                case "reduce":
                    assert parts == everyone or rank
                case "all_to_all":
                    assert parts or block[1] != rank
                case "scatter":
                    assert parts or block[0] != rank
                case "gather":
                    assert parts or rank
                case _:
                    assert parts


# --- one collective -----------------------------------------------------------------------------


@pytest.mark.turns
@pytest.mark.parametrize(("kind", "name"), IN_ROUNDS)
def test_rounds_take_what_messages_take_that_wait_for_each_other(kind: str, name: str) -> None:
    """The meshes have one to three levels of switches (some with tapers), buses, rings and full
    meshes; sub-axes are in any order, and some at root."""
    compared = 0
    for seed in range(60):
        rng = fresh(seed)
        mesh = random_mesh(rng, ALL, rng.choice([1, 2, 3]), rng.random() < 0.4)
        drawn = collective(rng, mesh, kind, name)
        if drawn is None or (kind, name) == ("reduce_scatter", "pairwise"):
            continue
        step, jobs = drawn
        rules = Rules(barriers=True, per_byte=per_byte(mesh))
        (end,) = run(Network(mesh.machine), jobs, rules)
        assert close(step_cost(step, CostModel("alpha-beta", order="written")).time, end)
        compared += 1
    assert compared >= 10 or kind == "reduce_scatter"


@pytest.mark.turns
@pytest.mark.parametrize(("kind", "name"), [one for one in IN_ROUNDS if one[1] != "pairwise"])
def test_rounds_come_in_the_order_in_which_they_are_sent(kind: str, name: str) -> None:
    """After each round, a simulation has reached the time of the messages."""
    for seed in range(30):
        rng = fresh(seed)
        mesh = random_mesh(rng, ALL, rng.choice([2, 3]), rng.random() < 0.4)
        drawn = collective(rng, mesh, kind, name)
        if drawn is None:
            continue
        step, (job,) = drawn
        cost = step_cost(step, CostModel("alpha-beta", order="written"))
        ends = [0.0, *accumulate(phase.time for phase in cost.phases)]
        rules = Rules(barriers=True, per_byte=per_byte(mesh))
        for count in range(1, len(job.rounds)):
            (end,) = run(Network(mesh.machine), [Job(job.rounds[:count])], rules)
            assert any(close(end, phase_end) for phase_end in ends)


@pytest.mark.parametrize(("kind", "name"), ALIKE)
@pytest.mark.parametrize("sends_on", [False, True])
def test_where_ranks_do_alike_they_need_not_wait_for_each_other(
    kind: str, name: str, sends_on: bool
) -> None:
    compared = 0
    for seed in range(40):
        rng = fresh(seed)
        mesh = random_mesh(rng, SWITCHES, rng.choice([1, 2, 3]))
        drawn = collective(rng, mesh, kind, name)
        if drawn is None:
            continue
        step, jobs = drawn
        (end,) = run(Network(mesh.machine), jobs, Rules(sends_on=sends_on))
        assert close(step_cost(step, CostModel("alpha-beta", order="written")).time, end)
        compared += 1
    assert compared >= 10


@pytest.mark.turns
@pytest.mark.parametrize("kind", ["all_reduce", "reduce_scatter", "all_gather"])
def test_rings_on_one_level(kind: str) -> None:
    """Both directions at once take the time of the formula."""
    for seed in range(40):
        rng = fresh(seed)
        mesh = random_mesh(rng, IN_ORDER, 1, rng.random() < 0.4)
        axes = tuple(sub.name for sub in mesh.sub_axes)
        messages = moves(kind, "ring", len(groups(mesh, axes)[0]))
        assert messages is not None
        step = Collective(kind, mesh, axes, 1e6, algorithm="ring")
        jobs = [Job.of(messages, groups(mesh, axes), 1e6)]
        (end,) = run(Network(mesh.machine), jobs, Rules(per_byte=per_byte(mesh)))
        assert close(step_cost(step, CostModel("alpha-beta", order="written")).time, end)


@pytest.mark.turns
@pytest.mark.parametrize("kind", ["all_reduce", "reduce_scatter", "all_gather"])
def test_rings_through_several_levels_are_never_slower_than_the_formula(kind: str) -> None:
    """Devices that send while other messages are under way overlap their latency with the bytes of
    those. The formula adds the two, so it gives up to twice the time."""
    for seed in range(40):
        rng = fresh(seed)
        mesh = random_mesh(rng, IN_ORDER, rng.choice([2, 3]), rng.random() < 0.4)
        drawn = collective(rng, mesh, kind, "ring")
        assert drawn is not None
        step, jobs = drawn
        rules = Rules(sends_on=True, per_byte=per_byte(mesh))
        end = max(run(Network(mesh.machine), jobs, rules))
        ring = CostModel("alpha-beta", "ring", order="written")
        time = step_cost(replace(step, algorithm=None), ring).time
        assert end * (1 - 1e-9) <= time <= 2 * end


# --- two at the same time -----------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), [one for one in ALIKE if one[1] != "pairwise"])
def test_two_that_are_alike_share_evenly(kind: str, name: str) -> None:
    """Equal steps over two sub-axes of one level both take the time of their messages.

    Pairwise is left out: a simulation has equal rounds as one phase, which is less exact.
    """
    for seed in range(20):
        rng = fresh(seed)
        size = rng.choice([2, 4])
        levels = (
            Level("l0", size * size, rng.uniform(1, 20) * 1e9, rng.choice([0.0, 5e-6])),
            Level("l1", rng.choice([1, 2, 3]), rng.uniform(1, 20) * 1e9, 1e-6),
        )
        third = Axis.placed("c", [Factor("l1", levels[1].size)])
        both = (Axis.placed(axis, [Factor("l0", size)]) for axis in "ab")
        mesh = Mesh("m", Machine("c", levels), (*both, third))
        messages = moves(kind, name, size)
        assert messages is not None
        steps = [Collective(kind, mesh, (f"{a}.l0",), 1e6, algorithm=name) for a in "ab"]
        tasks = [
            StepTask(
                step_cost(step, CostModel("alpha-beta", order="written")).phases, stream, (), False
            )
            for stream, step in enumerate(steps)
        ]
        jobs = [Job.of(messages, groups(mesh, step.axes), 1e6) for step in steps]
        ends = run(Network(mesh.machine), jobs, Rules())
        assert all(map(close, ends, (end for _, end in schedule(tasks))))


def both_ends(mesh: Mesh, *steps: tuple[str, str, tuple[str, ...], float]) -> list[list[float]]:
    """Return the ends of steps that start together: as simulated, and as their messages flow."""
    tasks: list[StepTask] = []
    jobs: list[Job] = []
    for stream, (kind, name, axes, size) in enumerate(steps):
        step = Collective(kind, mesh, axes, size, algorithm=name)
        tasks.append(
            StepTask(
                step_cost(step, CostModel("alpha-beta", order="written")).phases, stream, (), False
            )
        )
        members = groups(mesh, axes)
        wired = any(level.kind not in SWITCHES for level in mesh.machine.levels)
        messages = moves(kind, name, len(members[0]), 2 if wired else 1)
        assert messages is not None
        jobs.append(Job.of(messages, members, size))
    flowing = run(Network(mesh.machine), jobs, Rules(barriers=True))
    return [[end for _, end in schedule(tasks)], flowing]


def test_messages_that_are_slow_anyhow_keep_their_speed() -> None:
    """Messages of the all_gather get at most half of a GPU's port, also beside the gather."""
    levels = (Level("node", 2, 25e9, 5e-6), Level("gpu", 2, 25e9, 2e-5))
    axes = (Axis.placed("a", [Factor("node", 2), Factor("gpu", 2)]),)
    simulated, flowing = both_ends(
        Mesh("m", Machine("c", levels), axes),
        ("gather", "binomial", ("a.gpu",), 1e7),
        ("all_gather", "bruck", ("a.node",), 1e7),
    )
    assert all(map(close, simulated, flowing))
    assert close(flowing[1], 2e-5 + 1e7 / 25e9)


def test_a_broadcast_beside_a_reduce_begins_with_the_farthest() -> None:
    levels = (Level("l0", 4, 4e9, 5e-6), Level("l1", 4, 4e9, 1e-6))
    axes = (
        Axis.placed("a", [Factor("l0", 2), Factor("l1", 4)]),
        Axis.placed("b", [Factor("l0", 2)]),
    )
    simulated, flowing = both_ends(
        Mesh("m", Machine("c", levels), axes),
        ("reduce", "binomial", ("a.l0",), 1e4),
        ("broadcast", "binomial", ("b.l0", "a.l1"), 1e4),
    )
    assert all(map(close, simulated, flowing))


def test_a_ring_on_a_switch_has_one_message() -> None:
    """So a ring gets half of a port that it shares with another algorithm of one message."""
    for size in (2, 4):
        axes = tuple(Axis.placed(axis, [Factor("l0", size)]) for axis in "ab")
        mesh = Mesh("m", Machine("c", (Level("l0", size * size, 1e9, 0.0),)), axes)
        simulated, flowing = both_ends(
            mesh,
            ("all_gather", "ring", ("a.l0",), 1e6),
            ("all_gather", "recursive_doubling", ("b.l0",), 1e6),
        )
        assert all(map(close, simulated, flowing))
        assert close(flowing[0], flowing[1])


# --- many more ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_barriers_and_beside_others_times_are_near() -> None:
    """The ratios of predicted to simulated times of random pairs of steps on switches, without
    waiting after each round, and with the busiest port in place of all ports."""
    alone: list[float] = []
    together: list[float] = []
    for seed in range(1500):
        rng = fresh(seed)
        mesh = random_mesh(rng, SWITCHES, rng.choice([2, 3]))
        names = [sub.name for sub in mesh.sub_axes]
        if len(names) < 2:
            continue
        rng.shuffle(names)
        cut = rng.randint(1, len(names) - 1)
        tasks: list[StepTask] = []
        jobs: list[Job] = []
        for stream, axes in enumerate((tuple(names[:cut]), tuple(names[cut:]))):
            kind, name = rng.choice(IN_ROUNDS)
            members = groups(mesh, axes)
            messages = moves(kind, name, len(members[0]))
            if messages is None or name == "pairwise":
                break
            size = rng.choice([1e4, 1e5, 1e6, 1e7])
            try:
                cost = step_cost(
                    Collective(kind, mesh, axes, size, algorithm=name),
                    CostModel("alpha-beta", order="written"),
                )
            except CostError:
                break
            tasks.append(StepTask(cost.phases, stream, (), False))
            jobs.append(Job.of(messages, members, size))
            alone.append(cost.time / run(Network(mesh.machine), jobs[-1:], Rules())[0])
        if len(jobs) == 2:
            ends = run(Network(mesh.machine), jobs, Rules(barriers=True))
            together.append(max(end for _, end in schedule(tasks)) / max(ends))
    assert len(alone) > 1000 and len(together) > 400
    assert min(alone) > 0.6 and max(alone) < 2.1
    assert sum(abs(ratio - 1) < 0.01 for ratio in alone) > 0.6 * len(alone)
    assert min(together) > 0.9 and max(together) < 1.2
    assert sum(abs(ratio - 1) < 0.01 for ratio in together) > 0.95 * len(together)
