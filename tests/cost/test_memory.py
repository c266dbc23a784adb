"""The memory of simulated programs, counted again: value by value at every instant, and in the C.

What lies where is told here from what operations mean, not from the plan that simulations and code
share: views lie in their operands, pieces of a returned ``concat`` in the result, and so on.
"""

import math
import random
import re
from dataclasses import dataclass, replace

import pytest
from async_code import bodies, make_async
from hypothesis import given, settings
from programs import RANDOM, module_of, random_function, random_mesh
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, SSAValue

import collir
from collir.cost.programs.simulation import COPY, Simulation, simulate
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.ir.names import unique_names
from collir.layout import Mesh
from collir.machine import Device

Instant = tuple[float, int, int]
"""Seconds, then the order of what happens at once: ends of before, then steps as written."""

VIEWS = tuple(OPERATIONS[name] for name in ("split", "merge", "reshape", "keep_root", "compute"))


@dataclass
class Lives:
    """The memory of a function: where values lie, what is the caller's, what is copied."""

    function: FuncOp
    mesh: Mesh

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
        for whole in self.direct:
            op = whole.owner
            if isinstance(op, OPERATIONS["concat"]) and self._in_one_piece(
                whole, op.integer("dim")
            ):
                for piece in op.operands:
                    home = self.home(piece)
                    taken = home in self.direct or home in self.inside
                    fits = self.alike(home, piece) and self._roots(home) == self._roots(whole)
                    if not isinstance(home.owner, Block) and not taken and fits:
                        self.inside[home] = whole

    def home(self, value: SSAValue) -> SSAValue:
        """The value in whose memory another lies."""
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

    def alike(self, one: SSAValue, other: SSAValue) -> bool:
        """Whether two have as much data, on the same devices."""
        same = self._roots(one) == self._roots(other)
        return same and self.bytes_of(one) == self.bytes_of(other)

    def _roots(self, value: SSAValue) -> frozenset[str]:
        return dist_type(value).root

    def _in_one_piece(self, value: SSAValue, dim: int) -> bool:
        """Whether what lies behind each other on a dimension does so in memory."""
        return math.prod(dist_type(value).local_shape(self.mesh)[:dim]) == 1

    def first(self, whole: SSAValue) -> int:
        """The step that first writes to a result."""
        parts = [one for one, home in self.inside.items() if home is whole]
        results = [op.result for op in self.steps]
        return min(n for n, one in enumerate(results) if one in (whole, *parts))

    @property
    def steps(self) -> list[DistOp]:
        """The operations that are no views."""
        found = [op for op in self.function.body.ops if isinstance(op, DistOp)]
        return [
            op
            for op in found
            if isinstance(op, OPERATIONS["compute"]) or self.home(op.result) is op.result
        ]

    def temporaries(self) -> list[tuple[SSAValue, int, list[int], bool]]:
        """Values in memory of their own: which, the step that writes it, those that read it, and
        whether it is copied in the end."""
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


def held_at(lives: Lives, spans: list[tuple[float, float]]) -> dict[Instant, int]:
    """The bytes that are held at every instant at which a step starts or ends, and in the end."""
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
        kept.append((starts(first), last, lives.bytes_of(value)))
    for whole in lives.direct:
        kept.append((starts(lives.first(whole)), None, lives.bytes_of(whole)))
    kept += [(over, None, lives.bytes_of(value)) for value in lives.copied]
    given = sum(lives.bytes_of(argument) for argument in lives.function.args)
    numbers = range(len(spans))
    instants = [*map(starts, numbers), *map(ends, numbers), over]
    return {
        at: given
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
    function = random_function(rng, mesh, steps=10)
    if asynchronous:
        make_async([function], rng, rng.choice([0.3, 0.6, 1.0]))
    return module_of([mesh], [function])


def simulation_of(module: ModuleOp) -> tuple[Simulation, Lives] | None:
    """A program with one function, simulated; None: it has no cost."""
    (function,) = functions_of(module)
    try:
        (found,) = simulate(module)
    except collir.DiagnosticError:  # a tree on a ring, and the like
        return None
    lives = Lives(function, mesh_of(function))
    assert len(lives.steps) == sum(step.kind != COPY for step in found.steps)
    return found, lives


@given(rng=RANDOM)
@settings(max_examples=50, deadline=None)
def test_between_events_what_must_be_held_is_held(rng: random.Random) -> None:
    module = random_program(rng, rng.random() < 0.5, rng.random() < 0.7)
    both = simulation_of(module)
    if both is None:
        return
    found, lives = both
    for time in sorted({0.0, found.time, *(time for span in found.spans for time in span)}):
        said = [size for at, size in found.memory if at <= time]
        assert (said[-1] if said else 0.0) == _after(lives, found.spans, time)


def _after(lives: Lives, spans: list[tuple[float, float]], time: float) -> int:
    """The bytes that are held right after a time."""
    end = max((last for _, last in spans), default=0.0)
    held = sum(lives.bytes_of(argument) for argument in lives.function.args)
    for value, first, readers, copied in lives.temporaries():
        until = max(spans[number][1] for number in (first, *readers))
        if spans[first][0] <= time and (copied or time < until):
            held += lives.bytes_of(value)
    for whole in lives.direct:
        if spans[lives.first(whole)][0] <= time:
            held += lives.bytes_of(whole)
    if time >= end:
        held += sum(map(lives.bytes_of, lives.copied))
    return held


@given(rng=RANDOM)
@settings(max_examples=50, deadline=None)
def test_the_peak_is_the_most_that_is_held_at_any_instant(rng: random.Random) -> None:
    """Also at those at which a step begins and ends, as it takes no time."""
    module = random_program(rng, rng.random() < 0.5, rng.random() < 0.5)
    both = simulation_of(module)
    if both is None:
        return
    found, lives = both
    assert found.peak == max(held_at(lives, found.spans).values())


# --- against the C ------------------------------------------------------------------------------

_NEW = re.compile(r"\bNEW\((\w+), (\d+)\);")
_FREE = re.compile(r"\bfree\((\w+)\);")
_STEP = re.compile(r"^// %(\S+) = ")


def allocated(lines: list[str]) -> dict[str, dict[str, int]]:
    """What the C has allocated while it carries out each step, by the name of the step's result."""
    alive: dict[str, int] = {}
    found: dict[str, dict[str, int]] = {}
    now = ""
    for line in lines:
        if line.startswith("done:"):
            break
        if step := _STEP.match(line):
            now = step.group(1)
            found[now] = dict(alive)
        elif new := _NEW.search(line):
            alive[new.group(1)] = int(new.group(2))
            found[now] = dict(alive)
        elif freed := _FREE.search(line):
            alive.pop(freed.group(1))
    return found


@given(rng=RANDOM)
@settings(max_examples=50, deadline=None)
def test_the_c_has_the_same_temporaries_at_every_step(rng: random.Random) -> None:
    """Of programs that wait for all of their steps, and use all of their results: what nothing
    reads, the C frees in the end."""
    module = random_program(rng, False, True)
    collir.run_passes(module, "dce")
    both = simulation_of(module)
    if both is None:
        return
    found, lives = both
    ((_, _, lines),) = [one for one in bodies(collir.emit(module, "mpi"), "int") if one[0] == "f"]
    in_c = allocated(lines)
    names = unique_names(lives.function)
    for number, op in enumerate(lives.steps):
        if lives.home(op.result) is not op.result:
            continue
        held = sum(map(lives.bytes_of, lives.function.args))
        held += sum(lives.bytes_of(one) for one in lives.direct if lives.first(one) <= number)
        said = 0.0
        for buffer in found.buffers:
            begun = buffer.first is None or 0 <= buffer.first <= number
            if begun and (buffer.until is None or number <= max(buffer.until)):
                said += buffer.size
        assert said == held + sum(in_c[names[op.result]].values())


@pytest.mark.parametrize("part", ["dim 0 low -512", "dim 0 high -512"])
def test_what_is_returned_in_part_is_held_until_it_is_copied(part: str) -> None:
    """Two arguments, a temporary, a result that is written in place, and one that is copied."""
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
    (found,) = simulate(module)
    assert found.peak == 4 * 4096 + 2048
