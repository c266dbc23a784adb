"""The bytes in the price are those of the code: of packed blocks, and of all that ranks do."""

import random
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import assume, given, settings
from support.programs.collectives import RANDOM, module_of, random_function, random_mesh
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation

import collir
from collir.cost.model import CostModel
from collir.cost.programs.collectives import op_cost
from collir.cost.programs.local_steps import LocalStep, copied_bytes
from collir.cost.programs.memory import BufferUse, uses_over_time
from collir.cost.programs.simulation import Simulation
from collir.cost.steps import copy_seconds, seconds_of
from collir.dialects.local import (
    AllocOp,
    AtOp,
    ComputeOp,
    CopyOp,
    FreeOp,
    LocalFuncOp,
    LocalRepeatOp,
    StartOp,
    bounds,
    local_functions,
    ranks_at,
)
from collir.dialects.local_types import buffer_of
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.layout.local import Ranks
from collir.localize.localize import localize
from collir.machine import Device
from collir.synthesis.propagation.moves import Moves

HEAD = """
machine @box { device { memory = 16 GB @ 1 TB/s }
               level gpu[4] { port = 10 GB/s, latency = 1 us } }
mesh @m on @box { x = gpu:2, y = gpu:2 }
"""


def program(rng: random.Random) -> str:
    """Return a collective that cuts and joins blocks along any dimensions."""
    sizes = [rng.choice([1, 1, 2, 3]) for _ in range(rng.randint(1, 4))]
    dim, target = rng.randrange(len(sizes)), rng.randrange(len(sizes))
    kinds = ["all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"]
    kind = rng.choice(kinds if dim != target else kinds[:4])

    def text(cut: int | None, rest: str = "") -> str:
        shape = [8 * n if d in (dim, target) else n for d, n in enumerate(sizes)]
        return (
            f"f32[{', '.join(f'{n}@x' if d == cut else str(n) for d, n in enumerate(shape))}]{rest}"
        )

    ends, tail = {
        "all_gather": ((text(dim), text(None)), f"dim {dim}"),
        "reduce_scatter": ((text(None, " partial(sum: x)"), text(dim)), f"dim {dim}"),
        "gather": ((text(dim), text(None, " root(x)")), f"dim {dim}"),
        "scatter": ((text(None, " root(x)"), text(dim)), f"dim {dim}"),
        "all_to_all": ((text(dim), text(target)), f"dim {dim} to {target}"),
    }[kind]
    step = f"%r = {kind} %v over x {tail}"
    return f"{HEAD}func @f(%v: {ends[0]}) -> {ends[1]} on @m {{\n  {step}\n  return %r\n}}\n"


def copies_in_rank(module: ModuleOp) -> tuple[list[int], list[int]]:
    """Return the bytes of the copies before and behind the collective of the only function, in the
    program of a rank."""
    lowered = module.clone()
    localize(lowered)
    [program] = local_functions(lowered)
    copies: tuple[list[int], list[int]] = ([], [])
    is_started = False
    for op in program.walk():
        is_started |= isinstance(op, StartOp)
        if isinstance(op, CopyOp):
            copies[is_started].append(buffer_of(op.source).bytes)
    return copies


@given(rng=RANDOM)
@settings(max_examples=40)
def test_what_is_packed_in_the_code_is_in_the_price(rng: random.Random) -> None:
    """The copies of a rank's program are those of the price, at the rate of the memory."""
    module = collir.parse(program(rng))
    (function,) = functions_of(module)
    mesh, model = mesh_of(function), CostModel()
    op = next(op for op in function.body.ops if isinstance(op, DistOp))
    cost = op_cost(op, mesh, model)
    assert copies_in_rank(module) == tuple(
        [cost.collective.size] * packs for packs in cost.collective.packs
    )
    copies = sum(cost.collective.packs) * copy_seconds(cost.collective.size, mesh)
    assert seconds_of(op, mesh, model) == pytest.approx(cost.time + copies)
    [simulation] = collir.simulate(module)
    assert simulation.time == pytest.approx(cost.time + copies)


@given(rng=RANDOM)
@settings(max_examples=40)
def test_layouts_are_chosen_by_the_same_price(rng: random.Random) -> None:
    """Moves of one kind share prices, whatever else is in a shape: not where blocks are packed."""
    modules = [collir.parse(program(rng)) for _ in range(4)]
    (first,) = functions_of(modules[0])
    moves = Moves(mesh_of(first), CostModel())
    for module in modules:
        (function,) = functions_of(module)
        op = next(op for op in function.body.ops if isinstance(op, DistOp))
        if not op.kind.layout_only or "root" in (op.kind.before, op.kind.after):
            continue
        x, y = dist_type(op.operands[0]), dist_type(op.result)
        assert moves.seconds(x, y) == pytest.approx(seconds_of(op, mesh_of(function), CostModel()))


def most_held(program: LocalFuncOp) -> int:
    """Return the most bytes of memory that the program of a rank has allocated at a time."""
    held = most = 0
    for op in program.walk():
        if isinstance(op, AllocOp):
            held += buffer_of(op.result).bytes
            most = max(most, held)
        elif isinstance(op, FreeOp):
            held -= buffer_of(op.memory).bytes
    return most


@given(rng=RANDOM)
@settings(max_examples=40)
def test_memory_for_packing_is_in_the_estimate(rng: random.Random) -> None:
    """The temporaries of a simulation are what the program of a rank allocates."""
    text = program(rng)
    if rng.random() < 0.5:  # an operand that ends when it is packed
        text = text.replace(" %v over", " %u over").replace(
            "  %r =", "  %u = scale %v by 3\n  %r ="
        )
    module = collir.parse(text.replace("return %r", "%s = scale %r by 2\n  return %s"))
    lowered = module.clone()
    localize(lowered)
    [ranks] = local_functions(lowered)
    [simulation] = collir.simulate(module)
    most = 0.0
    for buffers in simulation.buffers:
        for _, uses in uses_over_time(buffers, simulation.spans):
            most = max(most, uses.get(BufferUse.TEMPORARIES, 0.0))
    assert most == most_held(ranks)


def bytes_of_rank(block: Block, ranks: Ranks, place: dict[str, int]) -> int:
    """Return the bytes that the rank at a place reads and writes in a block of a local program,
    without those of collectives."""
    total = 0
    for op in block.ops:
        if isinstance(op, AtOp):
            if all(place[axis] == number for axis, number in op.place.data):
                total += bytes_of_rank(op.body.block, ranks, place)
        elif isinstance(op, LocalRepeatOp):
            times = bounds(op.times.data, ranks)[0]
            total += times * bytes_of_rank(op.body.block, ranks, place)
        elif isinstance(op, CopyOp):
            total += 2 * buffer_of(op.source).bytes
        elif isinstance(op, ComputeOp) and op.kernel.data != "compute":
            total += sum(buffer_of(value).bytes for value in op.operands)
    return total


def bytes_in_price(simulation: Simulation, device_class: int) -> float:
    """Return the bytes that a device of a class reads and writes, without those of collectives."""
    total = 0.0
    for step in simulation.program:
        if device_class not in step.task.on:
            continue
        if isinstance(step.does, LocalStep):
            total += step.does.size if step.does.launched else 0
        elif step.sent is not None:
            size, packs = step.sent.collective.size, step.sent.collective.packs
            total += 0 if copied_bytes(step.sent) else 2 * size * sum(packs)
        elif step.loop is not None:
            total += step.loop.times * bytes_in_price(step.loop.body, device_class)
    return total


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=60)
def test_what_the_code_copies_and_computes_is_in_the_price(rng: random.Random) -> None:
    """Where all ranks do the same, a simulation counts their bytes; elsewhere it counts no less
    than any rank moves, as the ranks of a collective wait for those that pack."""
    mesh = random_mesh(rng)
    while any(axis.factors is None for axis in mesh.axes):
        mesh = random_mesh(rng)
    device = Device(memory=1e12, memory_bandwidth=1e12, compute=(("f32", 1e13),))
    mesh = replace(mesh, machine=replace(mesh.machine, device=device))
    module = module_of([mesh], [random_function(rng, mesh, parametric=0)])
    assume(not any(cuts_and_adds(op) for op in module.walk()))
    [simulation] = collir.simulate(module)
    localize(module)
    [program] = local_functions(module)
    axes = [(axis.name, range(axis.size)) for axis in mesh.sub_axes]
    moved = {
        bytes_of_rank(
            program.body.block,
            ranks_at(program),
            dict(zip((name for name, _ in axes), place, strict=True)),
        )
        for place in product(*(numbers for _, numbers in axes))
    }
    priced = {bytes_in_price(simulation, n) for n in range(len(simulation.places))}
    if len(priced) == 1 and len(moved) == 1:
        assert moved == priced
    assert max(moved) <= max(priced)


def cuts_and_adds(op: Operation) -> bool:
    """Return whether an operation is a pad that cuts on one side and adds on the other: it counts
    as if it read all of its operand."""
    if not isinstance(op, DistOp) or op.mnemonic != "pad":
        return False
    low, high = op.arguments["low"], op.arguments["high"]
    assert isinstance(low, int) and isinstance(high, int)
    return low * high < 0
