"""Devices at several places run different steps, and hold different values."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.programs.collectives import RANDOM, module_of, random_function, random_mesh
from support.semantics.checks import functions_of
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.model import CostModel
from collir.cost.network.group import CostError
from collir.cost.programs.classes import DeviceClasses, classes_of
from collir.cost.programs.simulate import simulate_function
from collir.cost.programs.simulation import Simulation
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.devices import coordinate


def device_class(classes: DeviceClasses, rank: int) -> int:
    """Return the class of a device."""
    place = {axis: coordinate(classes.mesh, rank, axis) for axis in classes.axes}
    return classes.places.index(place)


def coordinate_of(classes: DeviceClasses, number: int, axis: str, otherwise: int) -> int:
    """Return the coordinate of the devices of a class, if its place or kind says it."""
    if classes.children is not None and axis in classes.children.axes:
        first = classes.children.members[classes.sets[number]][0]
        return classes.children.coordinate(first, axis)
    return classes.places[number].get(axis, otherwise)


def random_placed(rng: random.Random) -> FuncOp:
    """Return a random function on a mesh that is placed, in a module."""
    while not (mesh := random_mesh(rng, rng.choice([4, 6, 8]), kinds=0.3)).placed:
        pass
    function = random_function(rng, mesh, 10, "f")
    module_of([mesh], [function])
    return function


@given(rng=RANDOM)
@settings(max_examples=36)
def test_the_classes_that_run_a_step_are_those_that_hold_its_result(rng: random.Random) -> None:
    function = random_placed(rng)
    classes = classes_of(function.body.ops, mesh_of(function))
    running: dict[DistOp, set[int]] = {}
    for instance in classes.instances(function.body.ops):
        if not isinstance(instance.step, DistOp):
            continue
        on = running.setdefault(instance.step, set())
        assert on.isdisjoint(instance.on)
        on |= {*instance.on}
    for op, on in running.items():
        x, y = dist_type(op.operands[0]), dist_type(op.result)
        mesh = classes.mesh
        for rank in range(mesh.devices):
            held = [
                all(coordinate(mesh, rank, axis) == n for axis, n in value.place)
                for value in (x, y)
            ]
            if held[1] or (op.kind.sends and held[0]):
                assert device_class(classes, rank) in on
        if not op.kind.sends:
            assert on == set(classes.holding(y))


@given(rng=RANDOM, by_kind=st.booleans())
@settings(max_examples=36)
def test_the_rails_of_a_class_are_those_of_its_devices(rng: random.Random, by_kind: bool) -> None:
    function = random_placed(rng)
    mesh = mesh_of(function)
    sizes = [level.size for level in mesh.machine.levels]
    arguments = [dist_type(argument) for argument in function.args]
    try:
        classes = classes_of(function.body.ops, mesh, by_kind, arguments)
    except CostError:  # the mesh does not say which devices are of which kind
        return
    for number, place in enumerate(classes.places):
        ranks = [
            rank
            for rank in range(mesh.devices)
            if all(coordinate(mesh, rank, axis) == n for axis, n in place.items())
        ]
        if classes.children is not None:
            inside, size = math.prod(sizes[(kinds := classes.children.level) + 1 :]), sizes[kinds]
            members = classes.children.members[classes.sets[number]]
            ranks = [rank for rank in ranks if rank // inside % size in members]
        for index, level in enumerate(mesh.machine.levels):
            below = math.prod(sizes[index + 1 :])
            rails = {rank % below // (below // level.rails) for rank in ranks}
            assert classes.rails_reached(number, index) == rails


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=36)
def test_a_class_holds_the_arguments_at_its_place(rng: random.Random) -> None:
    function = random_placed(rng)
    arguments = [dist_type(argument) for argument in function.args]
    classes = classes_of(function.body.ops, mesh_of(function), True, arguments)
    try:
        simulation = simulate_function(function, CostModel())
    except collir.DiagnosticError:  # a computation on a device without a rate, and the like
        return
    for number, buffers in enumerate(simulation.buffers):
        held = 0
        for argument in function.args:
            x = dist_type(argument)
            if all(coordinate_of(classes, number, axis, n) == n for axis, n in x.place):
                size = NUMPY[x.dtype].itemsize
                for count in x.local_shape(classes.mesh):
                    size *= count
                held += size
        assert held == sum(buffer.size for buffer in buffers if buffer.first is None)


PIPELINE = """\
machine @c {{
  device {{ compute f32 = 1 TFLOP/s }}
  level {level}[{stages}] {{ port = 1 GB/s, latency = 1 us }}
  level gpu[2] {{ port = 1 GB/s, latency = 1 us }}
}}
mesh @m on @c {{ stage = {level}:{stages}, data = gpu:2 }}
func @f({arguments}) -> ({results}) on @m {{
  {steps}
  return {returned}
}}
"""


def pipeline(stages: int, microbatches: int, flops: list[float], marked: str) -> Simulation:
    """Return the simulation of microbatches that go through stages, one behind the other."""
    arguments = ", ".join(f"%x{m}: f32[250@data] root(stage)" for m in range(microbatches))
    steps: list[str] = []
    # By diagonals: the order in which stages compute is that of microbatches.
    for at in range(stages + microbatches - 1):
        for stage in range(stages):
            microbatch = at - stage
            if not 0 <= microbatch < microbatches:
                continue
            source = f"%x{microbatch}" if stage == 0 else f"%s{stage}_{microbatch}"
            result = f"%c{stage}_{microbatch}"
            steps.append(f"{result} = compute {source} flops {flops[stage]}")
            if stage + 1 < stages:
                steps.append(
                    f"%s{stage + 1}_{microbatch} = send {result} over stage "
                    f"from {stage} to {stage + 1}{marked}"
                )
    ends = [f"%c{stages - 1}_{m}" for m in range(microbatches)]
    text = PIPELINE.format(
        level="node",
        stages=stages,
        arguments=arguments,
        results=", ".join([f"f32[250@data] at(stage = {stages - 1})"] * microbatches),
        steps="\n  ".join(steps),
        returned=", ".join(ends),
    )
    (function,) = functions_of(collir.parse(text))
    return simulate_function(function, CostModel("alpha-beta"))


@pytest.mark.parametrize("marked", ["", " async"])
def test_stages_of_a_pipeline_compute_beside_each_other(marked: str) -> None:
    """K microbatches through P equal stages take P + K - 1 times the time of one stage, where sends
    are short and nothing waits for them (Huang et al., GPipe, 2019)."""
    for stages, microbatches in ((2, 1), (2, 6), (4, 3), (4, 8)):
        simulation = pipeline(stages, microbatches, [1e9] * stages, marked)
        expected = (stages + microbatches - 1) * 1e-3
        assert simulation.time >= expected
        if marked:  # else a stage waits until the next stage receives
            assert simulation.time == pytest.approx(expected, rel=0.02)


def test_a_slow_stage_is_waited_for() -> None:
    simulation = pipeline(3, 10, [1e9, 5e9, 1e9], " async")
    assert simulation.time == pytest.approx((1 + 10 * 5 + 1) * 1e-3, rel=0.01)


TWO_SENDS = """\
machine @c {{
  level node[2] {{ port = 1 GB/s, latency = 0 us }}
  level gpu[4] {{ port = 100 GB/s, latency = 0 us }}
}}
mesh @m on @c {{ stage = node:2 * gpu:2, data = gpu:2 }}
func @f(%x: f32[500000@data] at(stage = {0}), %y: f32[500000@data] at(stage = {2}))
    -> (f32[500000@data] at(stage = {1}), f32[500000@data] at(stage = {3})) on @m {{
  %a = send %x over stage from {0} to {1} async
  %b = send %y over stage from {2} to {3} async
  return %a, %b
}}
"""


@pytest.mark.parametrize(
    ("first", "second", "times"),
    [((0, 2), (1, 3), 2), ((0, 2), (3, 1), 1), ((0, 1), (2, 3), 1), ((0, 2), (2, 0), 2)],
    ids=["one port", "one port in both directions", "inside nodes", "one stream"],
)
def test_what_sends_share(first: tuple[int, int], second: tuple[int, int], times: int) -> None:
    """Ports are full-duplex. Sends of one stage are on one stream, and follow each other."""
    (function,) = functions_of(collir.parse(TWO_SENDS.format(*first, *second)))
    simulation = simulate_function(function, CostModel("alpha-beta"))
    across = first[0] // 2 != first[1] // 2
    alone = 2e-3 if across else 1e-5  # 1 MB of each of two devices, through the port of the node
    assert simulation.time == pytest.approx(times * alone)


STAGES_REDUCE = """\
machine @c {
  device { compute f32 = 1 TFLOP/s }
  level node[2] { port = 1 GB/s, latency = 1 us }
  level gpu[4] { port = 1 GB/s, latency = 1 us }
}
mesh @m on @c { stage = gpu:2, data = node:2 * gpu:2 }
func @f(%g: f32[1024] partial(sum: data), %x: f32[8] at(stage = 1))
    -> (f32[1024], f32[8] at(stage = 1)) on @m {
  %y = compute %x flops 1e6
  %r = all_reduce %g over data
  return %r, %y
}
"""


def test_stages_reduce_apart_and_share_the_port_of_their_node() -> None:
    """Both stages are on each node: they reduce at once if they start at once."""
    module = collir.parse(STAGES_REDUCE)
    (function,) = functions_of(module)
    model = CostModel("alpha-beta", algorithm="ring")
    apart = simulate_function(function, model)
    assert [step.at for step in apart.steps] == ["stage = 1", "stage = 0", "stage = 1"]
    first, second = apart.spans[1], apart.spans[2]
    assert first[0] == 0 and second[0] == pytest.approx(1e-6)
    alone = apart.steps[1].task.time
    assert first[1] - first[0] > alone  # they share the port of the node
    together = collir.parse(
        STAGES_REDUCE.replace("%y = compute %x flops 1e6", "%y = scale %x by 2")
    )
    (function,) = functions_of(together)
    both = simulate_function(function, model).time
    assert alone < both


@pytest.mark.parametrize("rails", [2, 4])
def test_stages_on_rails_of_their_own_share_no_port(rails: int) -> None:
    text = STAGES_REDUCE.replace("{ port = 1 GB/s,", f"{{ port = 1 GB/s, rails = {rails},", 1)
    (function,) = functions_of(collir.parse(text))
    run = simulate_function(function, CostModel("alpha-beta", algorithm="ring"))
    (start, end), alone = run.spans[1], run.steps[1].task.time
    assert run.spans[2][0] < end  # they overlap
    assert end - start == pytest.approx(alone)
