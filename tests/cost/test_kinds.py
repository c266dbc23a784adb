"""Machines whose devices differ: their costs against those of every device by itself."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from textwrap import dedent

import pytest
from hypothesis import example, given, settings
from support.programs.collectives import (
    RANDOM,
    module_of,
    random_function,
    random_machine,
    random_weights,
    with_random_kinds,
)
from support.semantics.checks import functions_of
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

import collir
from collir.cost.calibration.knobs import knobs_of, machine_with_values
from collir.cost.model import CostModel
from collir.cost.programs.classes import classes_of
from collir.cost.programs.collectives import op_cost
from collir.cost.programs.local_steps import local_phases, sent_phases
from collir.cost.programs.operations import local_step
from collir.cost.programs.simulate import simulate, simulate_function
from collir.cost.programs.simulation import Simulation
from collir.dialects.machine import mesh_of
from collir.dialects.nested import NestedOp
from collir.dialects.operation import DistOp, is_collective
from collir.dialects.tensor import dist_type
from collir.ir.buffers import copied_results, plan_buffers
from collir.ir.functions import machines_of
from collir.layout import Axis, DistType, Factor, Mesh
from collir.machine import Device, DeviceKind, Level, Machine
from collir.semantics.reference.devices import coordinate

CLOSE = 1e-9
ACCELERATORS = """\
machine @mixed(nodes = 8) {
  device v100 { compute f32 = 2 TFLOP/s; memory = 32 GB @ 900 GB/s }
  device p100 { compute f32 = 1 TFLOP/s; memory = 16 GB @ 700 GB/s }
  level node[nodes] { port = 1 GB/s, latency = 30 us, devices = [2 v100, 6 p100] }
  level gpu[2] { port = 16 GB/s, latency = 5 us }
}
"""


def simulated(mesh: str, function: str) -> Simulation:
    text = f"{ACCELERATORS}mesh @m on @mixed {{ {mesh} }}\n{dedent(function)}"
    [simulation] = simulate(collir.parse(text))
    return simulation


# --- every device by itself ---------------------------------------------------------------------


def kind_of_rank(machine: Machine, rank: int) -> Device:
    """Return the device of a rank."""
    below = machine.devices
    for level in machine.levels:
        below //= level.size
        child = rank // below % level.size
        for kind, count in level.kinds:
            if 0 <= child < count:
                return next(known.device for known in machine.kinds if known.name == kind)
            child -= count
    assert machine.device
    return machine.device


def time_of_all_devices(function: FuncOp, model: CostModel) -> float:
    """Return the time of a function without places, rank by rank.

    A collective starts when the last rank of a group is there, and takes as long as on a machine
    whose devices all reduce as slowly as the slowest of the group.
    """
    mesh, where = mesh_of(function), plan_buffers(function)
    machine, ranks = mesh.machine, range(mesh.devices)
    device = [kind_of_rank(machine, rank) for rank in ranks]
    plain = [replace(level, kinds=()) for level in machine.levels]
    now = [0.0] * mesh.devices

    def has(rank: int, x: DistType) -> bool:
        return all(coordinate(mesh, rank, axis) == n for axis, n in x.place)

    def bytes_on(rank: int, value: SSAValue) -> int:
        x = dist_type(value)
        at = {sub.name: coordinate(mesh, rank, sub.name) for sub in mesh.sub_axes}
        return math.prod(x.shape_at(mesh, at)) * x.dtype.bytes

    def seconds(op: DistOp, slowest: Device, rank: int) -> float:
        alone = Mesh("m", Machine("m", tuple(plain), slowest), mesh.axes)
        if is_collective(op):
            return sum(phase.time for phase in sent_phases(op_cost(op, alone, model)))
        phases = local_phases(local_step(op, alone, where, (), partial(bytes_on, rank)), slowest)
        return sum(phase.time for phase in phases)

    for op in function.body.ops:
        if not isinstance(op, DistOp):
            continue
        x, y = dist_type(op.operands[0]), dist_type(op.result)
        over = op.over or tuple({a for z in (x, y) for dim in z.dims for a in dim.axes})
        over = over if op.kind.sends else ()
        groups: dict[tuple[int, ...], list[int]] = {}
        for rank in ranks:
            if has(rank, x) or has(rank, y):
                others = [s.name for s in mesh.sub_axes if s.name not in over] if over else []
                key = tuple(coordinate(mesh, rank, axis) for axis in others) if over else (rank,)
                groups.setdefault(key, []).append(rank)
        for group in groups.values():
            reductions = [device[rank].reduction for rank in group]
            speeds = [device[rank].memory_bandwidth for rank in group]
            slowest = replace(
                device[group[0]],
                reduction=None if None in reductions else min(filter(None, reductions)),
                memory_bandwidth=None if None in speeds else min(filter(None, speeds)),
            )
            end = max(now[rank] for rank in group) + seconds(op, slowest, group[0])
            for rank in group:
                now[rank] = end
    for value in copied_results(where):
        for rank in ranks:
            speed = device[rank].memory_bandwidth
            if speed and has(rank, dist_type(value)):
                now[rank] += 2 * bytes_on(rank, value) / speed
    return max(now)


def random_kinds(
    rng: random.Random,
    alike: bool = False,
    plain: bool = False,
    places: bool = False,
    weights: bool = False,
) -> tuple[Mesh, FuncOp]:
    """Return a function without ``async`` on a mesh that is placed on devices of several kinds.

    Args:
        alike: whether all kinds have the same numbers.
        plain: whether groups of different children use no common links.
        places: whether values may be at places other than root.
        weights: whether axes have weights.
    """
    while True:
        sizes = [
            rng.choice([2, 3, 4, 4, 6]),
            *(rng.randint(1, 3) for _ in range(rng.randint(0, 2))),
        ]
        machine = random_machine(rng, sizes, "k")
        device = Device((("f32", 1e12),), 1e9, rng.choice([None, 1e9]), rng.choice([None, 1e9]))
        machine = with_random_kinds(rng, replace(machine, device=device))
        if len(machine.kinds) < 2:
            continue
        if alike:
            kinds = tuple(DeviceKind(kind.name, device) for kind in machine.kinds)
            machine = replace(machine, kinds=kinds)
        index = next(i for i, level in enumerate(machine.levels) if level.kinds)
        own = machine.levels[index]
        if plain and (math.prod(sizes[:index]) > 1 or own.switched.kind is not own.kind):
            continue
        if plain and own.taper > 1:
            continue
        break
    axes = [Axis.placed("d", [Factor(level.name, level.size) for level in machine.levels])]
    if sizes[0] % 2 == 0 and rng.random() < 0.7:
        first = Factor("l0", 2)
        rest = [Factor("l0", sizes[0] // 2)]
        rest += [Factor(level.name, level.size) for level in machine.levels[1:]]
        axes = [Axis.placed("d", [first]), Axis.placed("t", rest)]
        rng.shuffle(axes)
    if weights:
        axes = [axis.weighted(random_weights(rng, axis)) for axis in axes]
    mesh = Mesh("m", machine, tuple(axes))
    function = random_function(rng, mesh, 6, "f", nested=False)
    while (not places) and _has_places(function):
        function = random_function(rng, mesh, 6, "f", nested=False)
    for op in function.body.ops:
        op.properties.pop("async", None)
    module_of([mesh], [function])
    return mesh, function


def _has_places(function: FuncOp) -> bool:
    values = [*function.args, *(op.result for op in function.body.ops if isinstance(op, DistOp))]
    return any(n for value in values for _, n in dist_type(value).place)


def on_machine(function: FuncOp, mesh: Mesh, change: Callable[[Machine], Machine]) -> Simulation:
    """Return the simulation of a function on another machine."""
    copy = function.clone()
    module_of([replace(mesh, machine=change(mesh.machine))], [copy])
    return simulate_function(copy, CostModel())


@given(rng=RANDOM)
@example(rng=random.Random(699))  # groups of a broadcast, one of which crosses the outer switch
@settings(max_examples=18)
def test_classes_take_as_long_as_all_devices(rng: random.Random) -> None:
    """All groups of a step begin together in a simulation; where their costs differ, those of the
    fastest devices may begin and end before."""
    _, function = random_kinds(rng, plain=True)
    try:
        simulation = simulate_function(function, CostModel())
    except collir.DiagnosticError:  # no algorithm, no rate
        return
    expected = time_of_all_devices(function, CostModel())
    assert simulation.time >= expected * (1 - 1e-5)
    assert simulation.time <= expected * (1 + 1e-5) + _apart(simulation) + 1e-18


def _apart(simulation: Simulation) -> float:
    """Return by how much the devices that are fastest in each local step are ahead of the slowest
    ones in the end, at most."""
    times: dict[str, list[float]] = {}
    for step in simulation.steps:
        if step.sent is None:
            times.setdefault(step.name, []).append(step.task.time)
    return sum(max(own) - min(own) for own in times.values())


@given(rng=RANDOM)
@settings(max_examples=12)
def test_classes_take_no_less_than_all_devices_where_weights_differ(rng: random.Random) -> None:
    """A class has the largest of the blocks of its devices."""
    _, function = random_kinds(rng, plain=True, weights=True)
    try:
        simulation = simulate_function(function, CostModel())
    except collir.DiagnosticError:
        return
    assert simulation.time * (1 + CLOSE) >= time_of_all_devices(function, CostModel())


@given(rng=RANDOM)
@settings(max_examples=18)
def test_the_devices_of_a_group_run_a_step_together(rng: random.Random) -> None:
    mesh, function = random_kinds(rng)
    arguments = [dist_type(argument) for argument in function.args]
    classes = classes_of(function.body.ops, mesh, True, arguments)
    assert classes.children is not None
    below = math.prod(level.size for level in mesh.machine.levels[classes.children.level + 1 :])
    children = len(classes.children.set_of)
    class_of = [classes.children.set_of[rank // below % children] for rank in range(mesh.devices)]
    for instance in classes.instances(function.body.ops):
        op = instance.step
        assert not isinstance(op, NestedOp)
        over = op.over if op.kind.sends else ()
        for rank in range(mesh.devices):
            if over and class_of[rank] in instance.on:
                together = (
                    other
                    for other in range(mesh.devices)
                    if all(
                        coordinate(mesh, rank, sub.name) == coordinate(mesh, other, sub.name)
                        for sub in mesh.sub_axes
                        if sub.name not in over
                    )
                )
                assert {class_of[other] for other in together} <= {*instance.on}


@given(rng=RANDOM)
@settings(max_examples=15)
def test_two_equal_kinds_cost_what_one_does(rng: random.Random) -> None:
    mesh, function = random_kinds(rng, alike=True, places=True)
    try:
        simulation = simulate_function(function, CostModel())
    except collir.DiagnosticError:
        return
    one = on_machine(function, mesh, lambda machine: machine.of_kinds(machine.kind_of))
    assert (simulation.time, simulation.peak) == (one.time, one.peak)
    assert [step.task for step in simulation.steps] == [step.task for step in one.steps]


@given(rng=RANDOM)
@settings(max_examples=15)
def test_kinds_that_hardly_differ_hardly_cost_more(rng: random.Random) -> None:
    """Steps that kinds run apart do not count the links that they share twice."""
    mesh, function = random_kinds(rng, alike=True)
    try:
        before = simulate_function(function, CostModel()).time
    except collir.DiagnosticError:
        return

    def slightly_faster(machine: Machine) -> Machine:
        first, *others = machine.kinds
        rates = tuple((dtype, rate * (1 + CLOSE)) for dtype, rate in first.device.compute)
        faster = replace(first, device=replace(first.device, compute=rates))
        return replace(machine, kinds=(faster, *others))

    after = on_machine(function, mesh, slightly_faster).time
    assert after == pytest.approx(before, rel=1e-6)


@given(rng=RANDOM)
@settings(max_examples=15)
def test_a_faster_kind_makes_nothing_slower(rng: random.Random) -> None:
    mesh, function = random_kinds(rng)
    try:
        before = simulate_function(function, CostModel()).time
    except collir.DiagnosticError:
        return
    factor, number = rng.uniform(1, 10), rng.randrange(len(mesh.machine.kinds))

    def faster(machine: Machine) -> Machine:
        kinds = list(machine.kinds)
        device = kinds[number].device
        rates = tuple((dtype, rate * factor) for dtype, rate in device.compute)
        speed, reduction = device.memory_bandwidth, device.reduction
        new = Device(
            rates, device.memory, speed and speed * factor, reduction and factor * reduction
        )
        kinds[number] = DeviceKind(kinds[number].name, new)
        return replace(machine, kinds=tuple(kinds))

    assert on_machine(function, mesh, faster).time <= before * (1 + CLOSE)


# --- which classes there are --------------------------------------------------------------------


def test_there_is_a_class_for_each_kind_however_many_nodes_there_are() -> None:
    text = ACCELERATORS.replace("8) {", "10000) {").replace("6 p100", "9998 p100")
    text += "mesh @m on @mixed { data = node:10000, tensor = gpu:2 }\n"
    [function] = functions_of(
        collir.parse(
            text
            + dedent("""\
        func @f(%x: f32[64]) -> f32[64] on @m {
          %a = compute %x flops 1e9
          %b = mask %a over data, tensor op sum
          %c = all_reduce %b over data, tensor
          return %c
        }""")
        )
    )
    classes = classes_of(function.body.ops, mesh_of(function), by_kind=True)
    assert [classes.text(n) for n in range(len(classes.places))] == ["v100", "p100"]


def test_children_that_work_with_others_are_told_apart() -> None:
    """Four pairs of nodes: one has two v100, one has one, and two have none."""
    simulation = simulated(
        "data = node:4, tensor = node:2 * gpu:2",
        """\
        func @f(%x: f32[64]) -> f32[64] on @m {
          %a = compute %x flops 1e9
          %b = mask %a over tensor op sum
          %c = all_reduce %b over tensor
          %d = compute %c flops 1e9
          return %d
        }""",
    )
    assert simulation.places == ("v100", "p100")
    text = ACCELERATORS.replace("2 v100, 6 p100", "3 v100, 5 p100")
    text += "mesh @m on @mixed { data = node:4, tensor = node:2 * gpu:2 }\n"
    [function] = functions_of(
        collir.parse(
            text
            + dedent("""\
        func @f(%x: f32[64]) -> f32[64] on @m {
          %b = mask %x over tensor op sum
          %c = all_reduce %b over tensor
          return %c
        }""")
        )
    )
    classes = classes_of(function.body.ops, mesh_of(function), by_kind=True)
    names = [classes.text(n) for n in range(len(classes.places))]
    assert names == ["v100 node 0", "v100 node 2", "p100 node 3", "p100 node 4"]


def test_a_collective_starts_when_the_last_kind_is_there() -> None:
    simulation = simulated(
        "data = node:8 * gpu:2",
        """\
        func @f(%x: f32[1024] partial(sum: data)) -> f32[1024] on @m {
          %a = compute %x flops 2e9
          %b = all_reduce %a over data
          return %b
        }""",
    )
    starts = {
        (step.kind, step.at): span
        for step, span in zip(simulation.steps, simulation.spans, strict=True)
    }
    assert starts["compute", "v100"] == (0.0, pytest.approx(1e-3))
    assert starts["compute", "p100"] == (0.0, pytest.approx(2e-3))
    assert starts["all_reduce", ""][0] == pytest.approx(2e-3)


def test_only_the_kind_at_a_place_computes_there() -> None:
    for stage, seconds in ((0, 1e-3), (1, 2e-3)):
        simulation = simulated(
            "pipe = node:4, data = node:2 * gpu:2",
            f"""\
            func @f(%x: f32[64] at(pipe = {stage})) -> f32[64] at(pipe = {stage}) on @m {{
              %a = compute %x flops 2e9
              return %a
            }}""",
        )
        assert simulation.time_before_copies == pytest.approx(seconds)


def test_memory_is_that_of_each_kind() -> None:
    simulation = simulated(
        "data = node:8, tensor = gpu:2",
        "func @f(%x: f32[64]) -> f32[64] on @m { return %x }",
    )
    assert simulation.fullest == (512.0, 16e9, "p100")


def test_weights_in_proportion_to_the_speeds_make_kinds_end_together() -> None:
    """A V100 has 2 of 14 blocks and a P100 has 1: 2e9 operations at 2 TFLOP/s, 1e9 at 1."""
    function = """\
        func @f(%x: f32[1400@data]) -> f32[1400@data] on @m {
          %a = compute %x flops 2e9
          return %a
        }"""
    weights = "weights [2, 2, 1, 1, 1, 1, 1, 1]"
    alike = simulated("data = node:8, tensor = gpu:2", function.replace("1400", "1600"))
    unlike = simulated(f"data = node:8 {weights}, tensor = gpu:2", function.replace("1400", "1000"))
    assert alike.time_before_copies == pytest.approx(2e-3)
    spans = [span for step, span in zip(unlike.steps, unlike.spans, strict=True) if not step.size]
    assert spans == [(0.0, pytest.approx(1e-3))] * 2
    assert dict(zip(unlike.places, unlike.peaks, strict=True)) == {"v100": 1600.0, "p100": 800.0}


def test_reductions_are_as_fast_as_the_slowest_of_a_group() -> None:
    """Only the groups of the first two nodes have fast devices alone."""
    text = """\
machine @unlike {
  device fast { reduction = 8 MB/s }
  device slow { reduction = 4 MB/s }
  level node[4] { port = 1 GB/s, latency = 1 us, devices = [2 fast, 2 slow], fabric = network }
  level core[2] { port = 1 GB/s, latency = 1 us, fabric = memory }
}
mesh @m on @unlike { a = node:2, b = node:2, c = core:2 }
func @f(%x: f32[65536] partial(sum: b)) -> f32[65536] on @m {
  %r = all_reduce %x over b
  return %r
}
"""
    [simulation] = simulate(collir.parse(text))
    reducing = {step.at: sum(p.work for p in step.task.phases) for step in simulation.steps}
    assert reducing["slow"] == pytest.approx(2 * reducing["fast"])
    [whole] = simulate(
        collir.parse(text.replace("partial(sum: b)", "partial(sum: a)").replace("over b", "over a"))
    )
    assert [sum(p.work for p in step.task.phases) for step in whole.steps] == [
        pytest.approx(reducing["slow"])
    ]


def test_a_calibration_changes_the_rates_of_all_kinds_in_proportion() -> None:
    kinds = (DeviceKind("a", Device(reduction=8e9)), DeviceKind("b", Device(reduction=4e9)))
    level = Level("node", 2, 1e9, 1e-6, kinds=(("a", 1), ("b", 1)))
    machine = Machine("m", (level,), kinds=kinds)
    knobs = knobs_of(machine)
    assert [knob.machine_value(machine) for knob in knobs] == [1e9, 1e-6, 4e9]
    changed = machine_with_values(machine, knobs, [2e9, 1e-6, 3e9])
    assert [kind.device.reduction for kind in changed.kinds] == [6e9, 3e9]


def test_the_first_children_keep_their_kinds() -> None:
    [machine] = machines_of(collir.parse(ACCELERATORS))
    part = machine.value().first([3, 2])
    assert part.levels[0].kinds == (("v100", 2), ("p100", 1))
    assert [kind.name for kind in machine.value().first([2, 2]).kinds] == ["v100"]


def test_a_send_between_kinds_waits_for_its_own_sender() -> None:
    """The nodes of stage 0 are a V100 and a P100; those of stage 1 are a P100 and a V100."""
    text = ACCELERATORS.replace("8) {", "4) {").replace("2 v100, 6 p100", "v100, 2 p100, v100")
    text += """\
mesh @m on @mixed { pipe = node:2, data = node:2 * gpu:2 }
func @f(%x: f32[64] at(pipe = 0)) -> f32[64] at(pipe = 1) on @m {
  %a = compute %x flops 2e9
  %b = send %a over pipe from 0 to 1
  return %b
}
"""
    [simulation] = simulate(collir.parse(text))
    starts = {
        step.at: start
        for step, (start, _) in zip(simulation.steps, simulation.spans, strict=True)
        if step.kind == "send"
    }
    assert starts == {
        "pipe = 0 to pipe = 1, v100 and p100": pytest.approx(1e-3),
        "pipe = 0 to pipe = 1, p100 and v100": pytest.approx(2e-3),
    }
