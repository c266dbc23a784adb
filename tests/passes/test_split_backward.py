"""Loops that are split compute the same, bit for bit, and each part what it is for."""

import random
from itertools import product

import numpy as np
from checks import functions_of
from differentiated import inputs_of, on_all_devices
from hypothesis import given, settings
from programs import RANDOM
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.crossing import is_light
from collir.ir.fission import Fission
from collir.ir.loops import repeats_in, steps_with_times
from collir.ir.minimum_cut import source_side
from collir.semantics.validation.validate import compare
from collir.semantics.validation.verdict import Outcome
from collir.syntax.reader import read
from collir.syntax.writer import write

MESH = """
machine @box { level gpu[4] { port = 300 GB/s, latency = 3 us } }
mesh @m on @box { a = gpu:2, b = gpu:2 }
"""
STATE, STATES, WEIGHT = "f64[4@a, 8]", "f64[3, 4@a, 8]", "f64[8, 4@b]"
SUM, SUMS = "f64[8, 8] partial(sum: a)", "f64[3, 8, 8] partial(sum: a)"


class Body:
    """A random body of a loop: its lines, and its values by their types."""

    def __init__(self, rng: random.Random, prefix: str):
        self.rng, self.prefix, self.lines = rng, prefix, list[str]()
        self.states, self.grads = ["%c", "%h", "%v"], list[str]()

    def add(self, text: str) -> str:
        name = f"%{self.prefix}{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def step(self, depth: int) -> None:
        rng, x, y = self.rng, self.rng.choice(self.states), self.rng.choice(self.states)
        match rng.choice(["map", "map", "product", "weight", "view", "rows", "barrier", "loop"]):
            case "product":
                part = self.add(f'einsum "b i, b j -> i j" {x}, {y}')
                self.grads.append(part)
            case "weight":
                part = self.add(f'einsum "b i, i f -> b f" {x}, %w')
                part = self.add(f'einsum "b f, i f -> b i" {part}, %w')
                part = self.add(f"all_reduce {part} over b")
                self.states.append(self.add(f"scale {part} by 0.05"))
            case "view":
                part = self.add(f"reshape {x} to [4, 2, 4]")
                part = self.add(f"tanh {part}")
                self.states.append(self.add(f"reshape {part} to [4, 8]"))
            case "rows":
                part = self.add(f"pad {x} dim 1 high -4")
                other = self.add(f"cast {y} to f32")
                other = self.add(f"cast {other} to f64")
                other = self.add(f"pad {other} dim 1 low -4")
                self.states.append(self.add(f"concat {part}, {other} dim 1"))
            case "barrier":
                self.states.append(self.add(f"barrier {x}"))
            case "loop" if depth:
                self.loop(depth - 1)
            case _:
                part = self.add(f"{rng.choice(['mul', 'add', 'sub'])} {x}, {y}")
                self.states.append(self.add(f"sin {part}"))

    def loop(self, depth: int) -> None:
        """Add a loop over the rows of a weight of this loop."""
        number, rng = len(self.lines), self.rng
        inner = Body(rng, f"{self.prefix}{number}_")
        text, types = random_loop(rng, inner, depth, "%c", "%h", "%vs", "%w", "%z")
        results = [f"%{self.prefix}{number}r{n}" for n in range(len(types))]
        self.lines += [f"{', '.join(results)} = {text[0]}", *text[1:]]
        for name, kind in zip(results, types, strict=True):
            value = name if kind in (STATE, SUM) else self.add(f"sum {name} dims [0]")
            (self.states if kind in (STATE, STATES) else self.grads).append(value)


def random_loop(
    rng: random.Random, body: Body, depth: int, c: str, h: str, vs: str, w: str, z: str
) -> tuple[list[str], list[str]]:
    """Return the lines of a loop without its results, and the types of these."""
    for _ in range(rng.randint(2, 6)):
        body.step(depth)
    yielded = [body.add(f"tanh {rng.choice(body.states)}")]
    types, carries = [STATE], [f"%c = {c}"]
    if body.grads and rng.random() < 0.5:
        yielded.append(body.add(f"add %s, {rng.choice(body.grads)}"))
        types.append(SUM)
        carries.append(f"%s = {z}")
    if rng.random() < 0.3:
        yielded.append(body.add(f"add %t, {rng.choice(body.states)}"))
        types.append(STATE)
        carries.append(f"%t = {h}")
    states = rng.sample(body.states, rng.randint(0, 2))
    sums = rng.sample(body.grads, rng.randint(0, len(body.grads)))
    types += [STATES] * len(states) + [SUMS] * len(sums)
    words = rng.choice([" reverse", " reverse", ""])
    fixed = f"with(%h = {h}, %w = {w}, %vs = {vs}, %z = {z})"
    head = f"repeat 3 carry({', '.join(carries)}) slice(%v = {vs}) {fixed}{words} {{"
    return [head, *body.lines, f"yield {', '.join([*yielded, *states, *sums])}", "}"], types


def random_program(rng: random.Random) -> ModuleOp:
    body = Body(rng, "x")
    lines, types = random_loop(rng, body, 1, "%g", "%k", "%us", "%u", "%zero")
    results = [f"%r{n}" for n in range(len(types))]
    kept = [n for n, kind in enumerate(types) if kind in (STATE, SUM) or rng.random() < 0.8]
    return collir.parse(
        f"{MESH}func @f(%g: {STATE}, %k: {STATE}, %us: {STATES}, %u: {WEIGHT}, %zero: {SUM}) "
        f"-> ({', '.join(types[n] for n in kept)}) on @m {{\n"
        + "\n".join([f"{', '.join(results)} = {lines[0]}", *lines[1:]])
        + f"\nreturn {', '.join(results[n] for n in kept)}\n}}\n"
    )


def split_everywhere(module: ModuleOp) -> int:
    """Split all loops of a module, and return how many were split."""
    count = 0
    for loop in reversed(repeats_in(module)):
        parts = Fission.of(loop)
        if parts.why_not() is None:
            first, second = parts.cut()
            check_parts(first, second)
            count += 1
    return count


def check_parts(first: RepeatOp, second: RepeatOp) -> None:
    """Check that the second of two loops needs nothing of the first but what this stacks."""
    stacks = set(first.results[len(first.carried) :])
    for x in second.operands:
        assert x.owner is not first or (x in stacks and x in second.sliced)


def assert_equal(before: ModuleOp, after: ModuleOp) -> None:
    for old, new in zip(functions_of(before), functions_of(after), strict=True):
        tensors = inputs_of(old, 1)
        expected = on_all_devices(before, old, tensors)
        for a, b in zip(on_all_devices(after, new, tensors), expected, strict=True):
            assert np.array_equal(a, b)


@given(rng=RANDOM)
@settings(max_examples=25)
def test_random_loops(rng: random.Random) -> None:
    """Split loops in both directions, with sums, stacks, views and loops inside them."""
    before = read(write(random_program(rng)), "x.coll")
    after = before.clone()
    split_everywhere(after)
    after.verify()
    assert write(read(write(after))) == write(after)
    assert_equal(before, after)


@given(rng=RANDOM)
@settings(max_examples=6)
def test_random_loops_are_proven(rng: random.Random) -> None:
    before = random_program(rng)
    after = before.clone()
    split_everywhere(after)
    [old], [new] = functions_of(before), functions_of(after)
    verdict = compare(old, before, new, after, memory=0)
    assert (verdict.outcome, verdict.how) == (Outcome.SAME, "proof"), verdict.explanation
