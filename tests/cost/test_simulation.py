"""Simulated programs: times against the closed forms, resources in use, and memory."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from support.cost.algorithms import ALGORITHMS
from support.machine.machines import steps
from support.programs.collectives import RANDOM, module_of, random_function, random_mesh
from support.targets.async_code import make_async
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, step_cost
from collir.cost.network.group import CostError
from collir.cost.programs.collectives import op_cost
from collir.cost.programs.critical import critical_path, time_shares
from collir.cost.programs.schedule import Interval, StepTask, schedule
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation
from collir.cost.programs.whatif import improvements, large_buffer_ratio
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import NumberAttr
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.ir.functions import functions_of
from collir.layout import Mesh
from collir.machine import MAX_DEVICES

MODELS = [CostModel("alpha-beta", order="written"), CostModel("p2"), CostModel("nccl")]


def close(x: float, y: float) -> bool:
    return math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-18)


def one_of(text: str, passes: str = "") -> Simulation:
    """Return the simulation of a file with one function."""
    module = collir.parse(text)
    if passes:
        collir.run_passes(module, passes)
    (simulation,) = simulate(module, CostModel("alpha-beta", order="written"))
    return simulation


# --- one collective -----------------------------------------------------------------------------


@pytest.mark.turns
@pytest.mark.parametrize("kind", ALGORITHMS)
@settings(max_examples=15)
@given(step=steps())
def test_phases_take_what_the_closed_form_says(
    kind: str, step: tuple[Mesh, tuple[str, ...], frozenset[str]]
) -> None:
    """The simulation ends at the time of the formula for all algorithms, on all kinds of levels."""
    mesh, axes, root = step
    for name in ALGORITHMS[kind]:
        for size in (1.0, 1e6):
            collective = Collective(kind, mesh, axes, size, root, algorithm=name)
            try:
                expected = step_cost(collective, CostModel("alpha-beta", order="written"))
            except CostError:
                continue
            pieces: list[Interval] = []
            task = StepTask(expected.phases, 0)
            ((_, end),) = schedule([task], watch=pieces.append)
            assert close(end, expected.time)
            assert close(sum(piece.end - piece.start for piece in pieces), expected.time)
            for time in task.busy.values():
                assert time <= expected.time * (1 + 1e-9)


@pytest.mark.parametrize("kind", ALGORITHMS)
@settings(max_examples=10)
@given(step=steps())
def test_two_at_the_same_time_share_what_they_use(
    kind: str, step: tuple[Mesh, tuple[str, ...], frozenset[str]]
) -> None:
    """They take at most as long as in sequence, and at least the time of the bytes of both."""
    mesh, axes, root = step
    for name in ALGORITHMS[kind]:
        try:
            cost = step_cost(
                Collective(kind, mesh, axes, 1e6, root, algorithm=name),
                CostModel("alpha-beta", order="written"),
            )
        except CostError:
            continue
        tasks = [StepTask(cost.phases, stream, (), False) for stream in (0, 1)]
        end = max(end for _, end in schedule(tasks))
        busiest = max(tasks[0].busy.values(), default=0.0)
        assert max(cost.time, 2 * busiest) * (1 - 1e-9) <= end <= 2 * cost.time * (1 + 1e-9)


# --- programs -----------------------------------------------------------------------------------


def random_program(rng: random.Random) -> ModuleOp:
    """Return a random program, whose collectives are waited for or not."""
    mesh = random_mesh(rng)
    while not mesh.placed:
        mesh = random_mesh(rng)
    function = random_function(rng, mesh, steps=8)
    make_async([function], rng, rng.choice([0.0, 0.5, 1.0]))
    return module_of([mesh], [function])


@given(rng=RANDOM)
@settings(max_examples=27)
def test_programs_take_what_they_cost(rng: random.Random) -> None:
    """Where nothing overlaps, that is the sum of what is sent; such devices copy in no time."""
    module = random_program(rng)
    for op in module.walk():
        if isinstance(op, OPERATIONS["compute"]):
            op.properties["flops"] = NumberAttr(0.0)
    model = rng.choice(MODELS)
    try:
        (simulation,) = simulate(module, model)
    except collir.DiagnosticError:  # a tree on a ring, and the like
        return
    (function,) = functions_of(module)
    collectives = [x for x in function.body.ops if isinstance(x, DistOp) and x.kind.sends]
    costs = [op_cost(op, simulation.mesh, model) for op in collectives]
    # Iterations count as often as they run, also where there is one.
    if len(simulation.places) == 1 and not any(isinstance(op, RepeatOp) for op in function.walk()):
        assert simulation.time <= sum(cost.time for cost in costs) * (1 + 1e-9)
        assert simulation.overlaps or close(simulation.time, sum(cost.time for cost in costs))
        assert simulation.collectives == tuple(costs)
    assert simulation.bound <= simulation.time * (1 + 1e-9)


@given(rng=RANDOM)
@settings(max_examples=27)
def test_the_critical_path_is_all_of_the_time(rng: random.Random) -> None:
    module = random_program(rng)
    try:
        (simulation,) = simulate(module, rng.choice(MODELS))
    except collir.DiagnosticError:
        return
    now = 0.0
    for step in critical_path(simulation):
        start, end = simulation.spans[step.number]
        assert start == now
        now = end
    assert now == simulation.time
    assert close(sum(share.time for share in time_shares(simulation)), simulation.time)


@pytest.mark.parametrize("size", ["128", "4194304"])
@pytest.mark.parametrize(
    ("layout", "step"),
    [("N] partial(sum: a)", "all_reduce %x over a"), ("N@a]", "all_gather %x over a dim 0")],
)
def test_half_a_latency_of_nccl_gains_half_of_its_share(layout: str, step: str, size: str) -> None:
    text = """
        machine @c {
          level node[16] { port = 25 GB/s, latency = 14 us, fabric = network }
          level gpu[8] { port = 240 GB/s, latency = 20 us, fabric = nvlink }
        }
        mesh @m on @c { a = node:16 * gpu:8 }
        func @f(%x: f32[LAYOUT) -> f32[N] on @m {
          %r = STEP
          return %r
        }"""
    module = collir.parse(text.replace("LAYOUT", layout).replace("STEP", step).replace("N", size))
    (simulation,) = simulate(module, CostModel("nccl"))
    shares = {(x.cause, x.resource and x.resource.level): x.time for x in time_shares(simulation)}
    gains = {x.what: simulation.time - x.time for x in improvements(simulation)}
    for level, name in enumerate(("node", "gpu")):
        assert close(shares["latency", level] / 2, gains[f"half the latency of {name}"])
    assert close(math.fsum(shares.values()), simulation.time)


@given(rng=RANDOM)
@settings(max_examples=18)
def test_what_is_in_use_adds_up_to_what_is_busy(rng: random.Random) -> None:
    try:
        (simulation,) = simulate(random_program(rng), rng.choice(MODELS))
    except collir.DiagnosticError:
        return
    for resource, changes in simulation.in_use.items():
        assert changes[-1] == (simulation.time, 0.0)
        area = 0.0
        for (start, share), (end, _) in pairwise(changes):
            assert 0 <= share <= 1 + 1e-9
            area += share * (end - start)
        assert area == pytest.approx(
            simulation.busy[resource], rel=1e-9, abs=1e-9 * simulation.time
        )


@given(rng=RANDOM)
@settings(max_examples=18)
def test_what_helps_is_no_worse_and_a_byte_costs_no_more_in_larger_buffers(
    rng: random.Random,
) -> None:
    """The programs do not overlap: with overlap, a step that ends sooner may delay others."""
    mesh = random_mesh(rng)
    module = module_of([mesh], [random_function(rng, mesh)])
    if not mesh.placed:
        return
    try:
        (simulation,) = simulate(module)
        for change in improvements(simulation):
            assert change.time < simulation.time
        if simulation.time:
            assert large_buffer_ratio(simulation) <= 1 + 1e-9
    except (CostError, collir.DiagnosticError):
        return


def machine(nodes: int, gpus: int) -> str:
    return f"""\
machine @c {{
  level node[{nodes}] {{ port =   8 GB/s, latency = 20 us }}
  level gpu[{gpus}] {{ port = 270 GB/s, latency =  3 us }}
}}
mesh @m on @c {{ data = node:{nodes} * gpu:{gpus} }}
"""


def test_a_million_devices_are_as_many_events_as_eight() -> None:
    body = """\
func @f(%g: f32[16777216] partial(sum: data)) -> f32[16777216] on @m {
  %0 = reduce_scatter %g over data.gpu dim 0 using ring
  %1 = all_reduce %0 over data.node using ring
  %2 = all_gather %1 over data.gpu dim 0 using ring
  return %2
}
"""
    small = one_of(machine(2, 4) + body)
    large = one_of(machine(2**17, 8) + body)
    assert large.mesh.devices == 2**20 <= MAX_DEVICES
    assert len(large.intervals) == len(small.intervals) == 8


# --- memory -------------------------------------------------------------------------------------

CHAIN = """\
func @f(%g: f32[1024] partial(sum: data)) -> f32[1024] on @m {
  %0 = reduce_scatter %g over data dim 0
  %1 = scale %0 by 0.5
  %2 = all_gather %1 over data dim 0
  return %2
}
"""


def test_memory_is_held_from_the_first_write_to_the_last_use() -> None:
    """The argument and the result have 4096 bytes, each part on one of 8 devices 512 bytes."""
    simulation = one_of(machine(2, 4) + CHAIN)
    scatter, gather = simulation.spans[0], simulation.spans[2]
    assert [size for _, size in simulation.memory] == [4096 + 512, 4096 + 512 + 4096, 4096 + 4096]
    assert [at for at, _ in simulation.memory] == [0.0, gather[0], gather[1]]
    assert scatter[1] == gather[0]  # so the first part is free once the second step has ended
    assert simulation.peak == 4096 + 512 + 4096


def test_what_is_under_way_keeps_its_memory() -> None:
    """Both values are read until the ends of the collectives that are not waited for yet."""
    simulation = one_of(
        machine(2, 4)
        + """\
func @f(%x: f32[1024] partial(sum: data.node), %y: f32[1024] partial(sum: data.gpu))
    -> (f32[1024], f32[1024]) on @m {
  %0 = scale %x by 2.0
  %1 = all_reduce %0 over data.node async
  %2 = scale %y by 3.0
  %3 = all_reduce %2 over data.gpu
  return %1, %3
}
"""
    )
    (_, end), (start, _) = simulation.spans[1], simulation.spans[3]
    assert start < end
    assert simulation.peak == 6 * 4096


def test_steps_that_take_no_time_need_memory_too() -> None:
    """While the second cast runs, the argument and both casts are held: less than while gathering
    later, but more than at the end."""
    simulation = one_of(
        machine(2, 4)
        + """\
func @f(%x: f32[1024@data]) -> f32[1024] on @m {
  %0 = cast %x to f64
  %1 = cast %0 to f32
  %2 = all_gather %1 over data dim 0
  return %2
}
"""
    )
    assert simulation.spans[1] == (0.0, 0.0)
    gathering = 512 + 512 + 4096
    assert simulation.memory[:2] == [(0.0, gathering), (simulation.time, gathering - 512)]
    halved = one_of(
        machine(2, 4)
        + """\
func @f(%x: f32[1024]) -> f32[1024@data] on @m {
  %0 = cast %x to f64
  %1 = cast %0 to f32
  %2 = slice %1 over data dim 0
  return %2
}
"""
    )
    assert halved.memory == [(0.0, 4096 + 8192 + 4096), (0.0, 4096 + 512)]


def test_a_copy_in_the_end_waits_for_the_one_before_it_alone() -> None:
    """All steps of many results have few operands together, as a list for each would be large."""
    text = """
    machine @box {
      device { compute f32 = 1 TFLOP/s; memory = 1 GB @ 1 GB/s }
      level node[2] { port = 8 GB/s, latency = 20 us }
    }
    mesh @m on @box { data = node:2 }
    func @f(%x: f32[64]) -> (f32[64], f32[64], f32[64]) on @m {
      return %x, %x, %x
    }"""
    [simulation] = simulate(collir.parse(text))
    assert [step.task.after for step in simulation.program] == [(), (0,), (1,)]
    spans = simulation.spans
    assert all(before[1] == behind[0] for before, behind in pairwise(spans))


def test_what_is_copied_in_the_end_is_kept_until_then() -> None:
    """Two halves of one sum are copied; the sum is held until then."""
    simulation = one_of(
        machine(2, 4)
        + """\
func @f(%x: f32[1024] partial(sum: data)) -> (f32[512], f32[512]) on @m {
  %0 = all_reduce %x over data
  %1 = pad %0 dim 0 low -512
  %2 = pad %0 dim 0 high -512
  return %1, %2
}
"""
    )
    assert simulation.peak == 4096 + 4096 + 2 * 2048


def test_numbers_that_cannot_be_doubled_are_left_out() -> None:
    simulation = one_of(machine(2, 4).replace("270 GB/s", "1e308 B/s") + CHAIN)
    assert not any(change.what == "twice the port of gpu" for change in improvements(simulation))


def test_views_and_returned_arguments() -> None:
    simulation = one_of(
        machine(2, 4)
        + """\
func @f(%x: f32[64, 16]) -> (f32[1024], f32[64, 16]) on @m {
  %0 = reshape %x to [1024]
  return %0, %x
}
"""
    )
    assert simulation.time == 0.0
    assert [size for _, size in simulation.memory] == [
        3 * 4096
    ]  # the argument, and two copied results


def test_local_steps_take_the_time_of_their_bytes() -> None:
    text = machine(2, 4).replace("{\n", "{\n  device { memory = 1 GB @ 1 GB/s }\n", 1) + CHAIN
    simulation = one_of(text)
    assert simulation.steps[1].kind == "scale"
    assert close(simulation.steps[1].task.time, 2 * 512 / 1e9)
    assert close(simulation.time, one_of(machine(2, 4) + CHAIN).time + 2 * 512 / 1e9)


def test_nothing_to_do() -> None:
    simulation = one_of(
        machine(2, 4)
        + """\
func @f(%x: f32[8]) -> f32[8] on @m {
  return %x
}
"""
    )
    assert (simulation.time, simulation.bound, simulation.peak, simulation.intervals) == (
        0.0,
        0.0,
        64,
        [],
    )
