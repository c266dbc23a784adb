"""The memory of simulated programs, against counts value by value, and against the C code.

The tests derive the place of every value from the meaning of operations, not from the buffer plan
that simulations and code share: views lie in their operands, pieces of a returned ``concat`` in the
result, and so on.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM, module_of, random_function, random_mesh
from support.targets.async_code import make_async
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, SSAValue

import collir
from collir.cost.programs.collectives import packs
from collir.cost.programs.local_steps import COPY
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.layout import Mesh, Place
from collir.machine import Device
from collir.semantics.reference.devices import coordinate

Instant = tuple[float, int, int]
"""Seconds, then the order of events at that time: ends of earlier steps, then steps in order."""

VIEWS = tuple(
    OPERATIONS[name]
    for name in ("split", "merge", "reshape", "keep_root", "keep", "part", "compute", "barrier")
)


@dataclass
class Lives:
    """The memory of a function: the place of every value, and the results that are copied.

    ``rank`` is the device whose bytes are counted.
    """

    function: FuncOp
    mesh: Mesh
    rank: int = 0

    def __post_init__(self) -> None:
        self.returned = list(next(op for op in self.function.body.ops if not op.results).operands)
        self.direct: list[SSAValue] = []
        self.copied: list[SSAValue] = []
        for value in self.returned:
            home = self.home(value)
            own = not isinstance(home.owner, Block)
            if own and home not in self.direct and self.alike(home, value):
                self.direct.append(home)
            else:
                self.copied.append(value)
        self.inside: dict[SSAValue, SSAValue] = {}
        for result in self.direct:
            op = result.owner
            if isinstance(op, OPERATIONS["assemble"]):
                for piece in op.operands:
                    home = self.home(piece)
                    used = home in self.direct or home in self.inside
                    if not isinstance(home.owner, Block) and not used and self.alike(home, piece):
                        self.inside[home] = result
            if isinstance(op, OPERATIONS["concat"]) and self._in_one_piece(
                result, op.integer("dim")
            ):
                for piece in op.operands:
                    home = self.home(piece)
                    used = home in self.direct or home in self.inside
                    fits = self.alike(home, piece) and self._roots(home) == self._roots(result)
                    if not isinstance(home.owner, Block) and not used and fits:
                        self.inside[home] = result

    def home(self, value: SSAValue) -> SSAValue:
        """Return the value whose memory holds another value."""
        op = value.owner
        if isinstance(op, VIEWS):
            return self.home(op.operands[0])
        if isinstance(op, OPERATIONS["transpose"]):
            rows = dist_type(op.input).local_shape(self.mesh)
            kept = [dim for dim in range(len(rows)) if rows[dim] > 1]
            same = kept == [dim for dim in op.sizes("order") if rows[dim] > 1]
            return self.home(op.input) if same else value
        if not isinstance(op, OPERATIONS["pad"]) or op.integer("low") > 0 or op.integer("high") > 0:
            return value
        return self.home(op.input) if self._in_one_piece(op.input, op.integer("dim")) else value

    def bytes_of(self, value: SSAValue) -> int:
        x = dist_type(value)
        shards = [math.prod(self.mesh.by_name[a].size for a in dim.axes) for dim in x.dims]
        shape = [dim.size // n for dim, n in zip(x.dims, shards, strict=True)]
        return math.prod(shape) * x.dtype.bytes

    def held(self, value: SSAValue) -> int:
        """Return the bytes that the device holds of a value."""
        place = dist_type(value).place
        here = all(coordinate(self.mesh, self.rank, axis) == at for axis, at in place)
        return self.bytes_of(value) if here else 0

    def alike(self, x: SSAValue, y: SSAValue) -> bool:
        """Return whether two values have equally many bytes, on the same devices."""
        same = self._roots(x) == self._roots(y)
        return same and self.bytes_of(x) == self.bytes_of(y)

    def _roots(self, value: SSAValue) -> Place:
        return dist_type(value).place

    def _in_one_piece(self, value: SSAValue, dim: int) -> bool:
        """Return whether blocks along a dimension are contiguous in memory."""
        return math.prod(dist_type(value).local_shape(self.mesh)[:dim]) == 1

    def first(self, result: SSAValue) -> int:
        """Return the number of the step that first writes to a result."""
        parts = [part for part, home in self.inside.items() if home is result]
        results = [op.result for op in self.steps]
        return min(n for n, value in enumerate(results) if value in (result, *parts))

    @property
    def steps(self) -> list[DistOp]:
        """The operations that are no views, in order."""
        operations = [op for op in self.function.body.ops if isinstance(op, DistOp)]
        return [
            op
            for op in operations
            if isinstance(op, OPERATIONS["compute"]) or self.home(op.result) is op.result
        ]

    def packed(self, number: int) -> int:
        """Return the bytes in which a step packs blocks, and unpacks them, beside its operand and
        its result; an operand that ends is gone when it is packed."""
        op = self.steps[number]
        if not op.kind.sends:
            return 0
        ends = op.operands[0], op.result
        packing = packs(op.kind, self.mesh, *map(dist_type, ends))
        x, y = map(self.held, ends)
        leaving, coming = (n if packed else 0 for n, packed in zip((x, y), packing, strict=True))
        if not any(
            value is self.home(op.operands[0]) and number == max((first, *readers)) and not copied
            for value, first, readers, copied in self.temporaries()
        ):
            return max(leaving, coming)
        phases = x + leaving, (leaving or x) + (coming or y), coming + y
        return max(phases) - x - y

    def temporaries(self) -> list[tuple[SSAValue, int, list[int], bool]]:
        """Return the values in memory of their own, as (value, number of the step that writes it,
        numbers of the steps that read it, whether it is copied at the end)."""
        steps = self.steps
        kept = {self.home(value) for value in self.returned}
        return [
            (
                op.result,
                number,
                [n for n, o in enumerate(steps) if op.result in map(self.home, o.operands)],
                op.result in kept,
            )
            for number, op in enumerate(steps)
            if self.home(op.result) is op.result
            and op.result not in self.direct
            and op.result not in self.inside
        ]


def held_at(lives: Lives, spans: Sequence[tuple[float, float]]) -> dict[Instant, int]:
    """Return the bytes held at every instant at which a step starts or ends, and at the end."""
    end = max((last for _, last in spans), default=0.0)
    over: Instant = (end, len(spans), 0)

    def starts(number: int) -> Instant:
        return (spans[number][0], number, 0)

    def ends(number: int) -> Instant:
        start, last = spans[number]
        return (last, number, 1) if start == last else (last, -1, number)

    kept: list[tuple[Instant, Instant | None, int]] = []
    for value, first, readers, copied in lives.temporaries():
        last = None if copied else max(ends(number) for number in (first, *readers))
        kept.append((starts(first), last, lives.held(value)))
    for result in lives.direct:
        kept.append((starts(lives.first(result)), None, lives.held(result)))
    kept += [(over, None, lives.held(value)) for value in lives.copied]
    kept += [(starts(n), ends(n), lives.packed(n)) for n in range(len(lives.steps))]
    arguments = sum(lives.held(argument) for argument in lives.function.args)
    numbers = range(len(spans))
    instants = [*map(starts, numbers), *map(ends, numbers), over]
    return {
        at: arguments
        + sum(size for first, last, size in kept if first <= at and (last is None or at <= last))
        for at in instants
    }


def random_program(rng: random.Random, asynchronous: bool, copies_take_time: bool) -> ModuleOp:
    mesh = random_mesh(rng)
    while not mesh.placed:
        mesh = random_mesh(rng)
    if copies_take_time:
        device = replace(mesh.machine.device or Device(), memory=1e12, memory_bandwidth=1e9)
        mesh = replace(mesh, machine=replace(mesh.machine, device=device))
    function = random_function(rng, mesh, steps=10, nested=False)
    if asynchronous:
        make_async([function], rng, rng.choice([0.3, 0.6, 1.0]))
    return module_of([mesh], [function])


def simulation_of(module: ModuleOp) -> tuple[Simulation, Lives] | None:
    """Return the simulation and the memory of a program's one function.

    None if it has no cost, or if devices at several places hold different values.
    """
    (function,) = functions_of(module)
    try:
        (simulation,) = simulate(module)
    except collir.DiagnosticError:  # a tree on a ring, and the like
        return None
    if len(simulation.buffers) > 1:  # ``Lives`` is of a device that takes part in all steps
        return None
    lives = Lives(function, mesh_of(function))
    assert len(lives.steps) == sum(step.kind != COPY for step in simulation.steps)
    return simulation, lives


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=18)
def test_between_events_what_must_be_held_is_held(rng: random.Random) -> None:
    module = random_program(rng, rng.random() < 0.5, rng.random() < 0.7)
    both = simulation_of(module)
    if both is None:
        return
    simulation, lives = both
    ends = (time for span in simulation.spans for time in span)
    times = sorted({0.0, simulation.time, *ends})
    said = [[size for at, size in simulation.memory if at <= time] for time in times]
    devices = [replace(lives, rank=rank) for rank in range(lives.mesh.devices)]
    held = [[_after(one, simulation.spans, time) for time in times] for one in devices]
    assert [sizes[-1] if sizes else 0.0 for sizes in said] in held


def _after(lives: Lives, spans: Sequence[tuple[float, float]], time: float) -> int:
    """Return the bytes held right after a time."""
    end = max((last for _, last in spans), default=0.0)
    held = sum(lives.held(argument) for argument in lives.function.args)
    for value, first, readers, copied in lives.temporaries():
        until = max(spans[number][1] for number in (first, *readers))
        if spans[first][0] <= time and (copied or time < until):
            held += lives.held(value)
    for result in lives.direct:
        if spans[lives.first(result)][0] <= time:
            held += lives.held(result)
    for number, (start, last) in enumerate(spans[: len(lives.steps)]):
        held += lives.packed(number) if start <= time < last else 0
    if time >= end:
        held += sum(map(lives.held, lives.copied))
    return held


@given(rng=RANDOM)
@settings(max_examples=18)
def test_the_peak_is_the_most_that_is_held_at_any_instant(rng: random.Random) -> None:
    """The instants include those at which a step that takes no time starts and ends."""
    module = random_program(rng, rng.random() < 0.5, rng.random() < 0.5)
    both = simulation_of(module)
    if both is None:
        return
    simulation, lives = both
    devices = [replace(lives, rank=rank) for rank in range(lives.mesh.devices)]
    held = [held_at(one, simulation.spans) for one in devices]
    assert simulation.peak == max(max(sizes.values()) for sizes in held)


@pytest.mark.parametrize("part", ["dim 0 low -512", "dim 0 high -512"])
def test_what_is_returned_in_part_is_held_until_it_is_copied(part: str) -> None:
    """The peak has two arguments, a temporary, a result written in place, and a copied result."""
    module = collir.parse(
        f"""\
machine @c {{
  level node[2] {{ port = 8 GB/s, latency = 20 us }}
}}
mesh @m on @c {{ data = node:2 }}
func @f(%x: f32[1024] partial(sum: data), %y: f32[1024] partial(sum: data))
    -> (f32[512], f32[1024]) on @m {{
  %a = all_reduce %x over data
  %b = pad %a {part}
  %c = all_reduce %y over data
  return %b, %c
}}
"""
    )
    (simulation,) = simulate(module)
    assert simulation.peak == 4 * 4096 + 2048
