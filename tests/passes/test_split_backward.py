"""Loops that are split compute the same, bit for bit, and each part what it is for."""

import random
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM
from support.programs.model_pages import PAGES, function_of
from support.semantics.checks import functions_of
from support.semantics.differentiated import inputs_of, on_all_devices
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument

import collir
from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.loops import repeats_in, steps_with_times
from collir.semantics.validation import loops
from collir.semantics.validation.validate import compare
from collir.semantics.validation.verdict import Outcome
from collir.syntax.reader import read
from collir.syntax.writer import write
from collir.transforms.loops.crossing import is_light, source_side
from collir.transforms.loops.fission import Fission

MESH = """
machine @box {
  device { compute f64 = 10 TFLOP/s; memory = 16 GB @ 1 TB/s }
  level gpu[4] { port = 300 GB/s, latency = 3 us }
}
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


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=16)
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
    verdict = compare(old, new, memory=0)
    assert (verdict.outcome, verdict.how) == (Outcome.SAME, "proof"), verdict.explanation


# ---------------------------------------------------------------------------------------------
# Models
# ---------------------------------------------------------------------------------------------


@cache
def split_page(name: str) -> tuple[FuncOp, FuncOp]:
    """Return the gradient of the loss of a page, before and after its loops are split."""
    text = (PAGES / name).read_text("utf-8").partition("// A step of ")[0]
    module = collir.parse(text, str(PAGES / name))
    before = collir.run_passes(module, "differentiate{of=loss}")
    after = collir.run_passes(before.clone(), "split-backward")
    old, new = (function_of(module, "loss_gradient") for module in (before, after))
    return old, new


def products(loop: RepeatOp) -> dict[str, float]:
    """Return the operations of a device for products of matrices, in all iterations: with indices
    that all of their tensors have, as in the core of attention, and others."""
    found = {"core": 0.0, "dense": 0.0}
    for op, times in steps_with_times([loop]):
        structure = op.structure
        if structure is None or len(structure.operands) != 2 or not structure.contracts:
            continue
        a, b = map(set, structure.operands)
        if a - b and b - a:
            found["core" if a & b & set(structure.result) else "dense"] += times * op.flops
    return found


def test_the_second_loop_of_gpt_is_the_products_of_weights() -> None:
    """Each weight has one product in the forward loop, in the first loop, and in the second; the
    core of attention has two products forward, four in the first loop, and none in the second."""
    old, new = split_page("gpt.coll")
    batch, seq, hidden, layers, devices = 8, 1024, 768, 12, 8
    dense = 24 * batch * seq * hidden**2 * layers / devices
    core = 4 * batch * seq**2 * hidden * layers / devices
    forward, first, second = map(products, repeats_in(new))
    assert forward == {"core": core, "dense": dense}
    assert first == {"core": 2 * core, "dense": dense}
    assert second == {"core": 0, "dense": dense}
    works = [sum(op.flops * n for op, n in steps_with_times(f.body.ops)) for f in (old, new)]
    assert works[0] == works[1]
    heavy = {op.mnemonic for op, _ in steps_with_times([repeats_in(new)[2]]) if not is_light(op)}
    assert heavy == {"einsum", "all_reduce"}


def test_the_first_loop_of_gpt_stacks_what_products_and_gains_need() -> None:
    """The cotangents of the results of the six products with weights, in two of which are those of
    the three parts of attention; and parts of the gradients of two gains and two biases."""
    _, new = split_page("gpt.coll")
    _, first, second = repeats_in(new)
    stacks = [dist_type(x) for x in second.sliced if x.owner is first]
    rows = sorted(x.local_bytes(mesh_of(new)) for x in stacks)
    state = 2 * 12 * 8 // 2 * 1024 * 768  # bf16, layers, batch over data, seq, hidden
    gain = 2 * 12 * 768
    assert rows == [gain] * 4 + [state // 4] * 3 + [state] * 3


@pytest.mark.parametrize(("name", "most"), [("mlp.coll", 1.0), ("gpt.coll", 1.01)])
def test_the_time_is_that_before_but_for_launches(name: str, most: float) -> None:
    times = [simulate_function(f, CostModel()).time for f in split_page(name)]
    assert times[0] * (1 - 1e-9) <= times[1] <= times[0] * most * (1 + 1e-9)


@pytest.mark.turns
@pytest.mark.parametrize("name", ["mlp.coll", "gpt.coll"])
def test_a_page_is_proven_by_induction(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MOST_STEPS", 0)  # no iterations one after the other
    old, new = split_page(name)
    modules = [f.parent_op() for f in (old, new)]
    assert isinstance(modules[0], ModuleOp)
    assert isinstance(modules[1], ModuleOp)
    verdict = compare(old, new, memory=0)
    assert (verdict.outcome, verdict.how) == (Outcome.SAME, "proof"), verdict.explanation


MLP = """
func @loss(%x: f64[4@a, 8], %v: f64[3, 8, 8@b], %w: f64[3, 8@b, 8], %k: f64[8]) -> f64[] on @m {
  %y = repeat 3 carry(%h = %x) slice(%v = %v, %w = %w) with(%k = %k) WORD {
    %0 = einsum "b i, i j -> b j" %h, %v
    %1 = tanh %0
    %2 = einsum "b i, i j -> b j" %1, %w
    %3 = all_reduce %2 over b
    %4 = mul %3, %k
    %5 = add %4, %h
    yield %5
  }
  %s = sum %y dims [0, 1]
  %l = all_reduce %s over a
  return %l
}
"""


@pytest.mark.turns
@pytest.mark.parametrize(
    ("passes", "word"),
    [
        ("bucket", ""),
        ("overlap", ""),
        ("decompose{chunks=2},overlap", "recompute"),
        ("default", "recompute"),
        ("cse,canonicalize,unroll", ""),
    ],
)
def test_passes_work_behind_it(passes: str, word: str) -> None:
    """Run passes behind the split of a gradient with weights of its own and one that is shared."""
    module = collir.parse(MESH + MLP.replace("WORD", word))
    before = collir.run_passes(module, "differentiate{of=loss}")
    after = collir.run_passes(before.clone(), f"split-backward,{passes}")
    for old, new in zip(functions_of(before), functions_of(after), strict=True):
        tensors = inputs_of(old, 1)
        expected = on_all_devices(before, old, tensors)
        for a, b in zip(on_all_devices(after, new, tensors), expected, strict=True):
            assert np.allclose(a, b, rtol=1e-12)


def test_what_is_recomputed_is_recomputed_once() -> None:
    """The first loop recomputes behind a barrier what it needs, and stacks what the products of
    weights need of that. What only the gradient of %k needs is recomputed in the second loop."""
    module = collir.parse(MESH + MLP.replace("WORD", "recompute"))
    module = collir.run_passes(module, "differentiate{of=loss},split-backward")
    _, first, second = repeats_in(functions_of(module)[1])
    words = [[op.mnemonic for op in x.body.ops if isinstance(op, DistOp)] for x in (first, second)]
    assert [names.count("tanh") for names in words] == [1, 0]
    assert [names.count("einsum") for names in words] == [1 + 2, 1 + 2]
    for op in (op for loop in (first, second) for op in loop.body.ops if isinstance(op, DistOp)):
        if op.mnemonic == "barrier":
            assert isinstance(op.input, BlockArgument)


# ---------------------------------------------------------------------------------------------
# Proofs and cuts
# ---------------------------------------------------------------------------------------------

TWO = """
func @f(%x: f64[4@a, 8], %w: f64[50, 4@a, 8], %z: f64[50, 4@a, 8])
    -> (f64[4@a, 8], f64[50, 4@a, 8]) on @m {
  %y, %s = repeat 50 carry(%c = %x) slice(%v = %w) FIRST {
    %1 = sin %c
    %2 = mul %1, %v
    yield %2, %1
  }
  %t = repeat 50 slice(%r = SLICED) SECOND {
    %3 = tanh %r
    yield %3
  }
  return %y, %t
}
"""
ONE = """
func @f(%x: f64[4@a, 8], %w: f64[50, 4@a, 8], %z: f64[50, 4@a, 8])
    -> (f64[4@a, 8], f64[50, 4@a, 8]) on @m {
  %y, %t = repeat 50 carry(%c = %x) slice(%v = %w) FIRST {
    %1 = sin %c
    %2 = mul %1, %v
    %3 = tanh %1
    yield %2, %3
  }
  return %y, %t
}
"""


@pytest.mark.parametrize(
    ("first", "second", "sliced", "same"),
    [
        ("", "", "%s", True),
        ("reverse", "reverse", "%s", True),
        ("", "reverse", "%s", True),  # rows stay in their places
        ("reverse", "", "%z", False),
        ("", "", "%w", False),
    ],
)
def test_loops_are_joined_if_rows_are_those(
    first: str, second: str, sliced: str, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "MOST_STEPS", 0)
    text = TWO.replace("FIRST", first).replace("SECOND", second).replace("SLICED", sliced)
    one, two = collir.parse(MESH + ONE.replace("FIRST", first)), collir.parse(MESH + text)
    verdict = compare(functions_of(one)[0], functions_of(two)[0], memory=0)
    joined = same and first == second
    assert verdict.outcome is (Outcome.SAME if joined else Outcome.UNKNOWN)


@given(rng=RANDOM)
@settings(max_examples=12)
def test_a_cut_is_the_cheapest(rng: random.Random) -> None:
    """Compare with all sets of nodes around the source."""
    nodes = range(6)
    edges = [
        (a, b, rng.choice([0, 1, 2, 3, 7, 10**6]))
        for a, b in product(nodes, nodes)
        if a != b and rng.random() < 0.5
    ]

    def cost(side: set[int]) -> int:
        return sum(n for a, b, n in edges if a in side and b not in side)

    sides = [
        {0, *(n for n, there in zip(range(1, 5), chosen, strict=True) if there)}
        for chosen in product([False, True], repeat=4)
    ]
    found = source_side(edges, 0, 5)
    best = min(map(cost, sides))
    assert cost(found) == best
    assert all(found <= side for side in sides if cost(side) == best)
