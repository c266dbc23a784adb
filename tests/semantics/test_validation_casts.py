"""Programs with casts and scales: validation tells different programs apart, and equal ones not.

A program is a tree here, and exact arithmetic on single numbers is the oracle. A cast to an integer
truncates; a cast to a float and the order of sums change nothing.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM
from support.semantics.checks import functions_of

from collir.semantics.validation.validate import Outcome, Verdict, compare, executed
from collir.syntax.reader import read

HEAD = """
machine @c {
  level node[2] { port = 8 GB/s, latency = 20 us }
  level gpu[2]  { port = 270 GB/s, latency = 3 us }
}
mesh @m on @c { data = node:2 * gpu:2 }
"""
FACTORS = [0.1, 0.25, 0.5, 0.3, 2.0, 3.0, 10.0, -1.0, -0.7, 1e-3, 300.0]


@dataclass(frozen=True)
class Tree:
    """An expression: ``x`` or ``y``, or ``scale`` (by ``factor``), ``cut`` (to an integer and
    back), ``round`` (to bf16 and back) or ``add`` of operands."""

    kind: str
    of: tuple["Tree", ...] = ()
    factor: float = 1.0


X, Y = Tree("x"), Tree("y")


def scale(tree: Tree, factor: float) -> Tree:
    return Tree("scale", (tree,), factor)


def cut(tree: Tree) -> Tree:
    return Tree("cut", (tree,))


def add(a: Tree, b: Tree) -> Tree:
    return Tree("add", (a, b))


def value(tree: Tree, x: Fraction, y: Fraction) -> Fraction:
    """Return the value of a tree."""
    of = [value(operand, x, y) for operand in tree.of]
    match tree.kind:
        case "x":
            return x
        case "y":
            return y
        case "scale":
            return of[0] * Fraction(str(tree.factor))
        case "cut":
            return Fraction(math.trunc(of[0]))
        case "round":
            return of[0]
        case _:
            return of[0] + of[1]


def program(tree: Tree, by_level: bool = False) -> str:
    """Return a function of two partial sums that computes a tree of their totals."""
    axes = ["data.gpu", "data.node"] if by_level else ["data"]
    lines: list[str] = []
    names: dict[str, str] = {}

    def line(text: str) -> str:
        lines.append(f"  %{len(lines)}v = {text}".replace("%", "%v", 1))
        return f"%v{len(lines) - 1}v"

    def result_of(tree: Tree) -> str:
        """Append the lines that compute a tree; return the name of its value."""
        of = [result_of(operand) for operand in tree.of]
        match tree.kind:
            case "x" | "y":
                if tree.kind not in names:
                    name = f"%{tree.kind}"
                    for axis in axes:
                        name = line(f"all_reduce {name} over {axis}")
                    names[tree.kind] = name
                return names[tree.kind]
            case "scale":
                return line(f"scale {of[0]} by {tree.factor!r}")
            case "add":
                return line(f"add {of[0]}, {of[1]}")
            case _:
                through = "i32" if tree.kind == "cut" else "bf16"
                return line(f"cast {line(f'cast {of[0]} to {through}')} to f32")

    result = result_of(tree)
    body = "\n".join(lines)
    types = ", ".join(f"%{name}: f32[64] partial(sum: data)" for name in "xy")
    return f"{HEAD}func @f({types}) -> f32[64] on @m {{\n{body}\n  return {result}\n}}\n"


def verdict(before: str, after: str, judge: Callable[..., Verdict] = compare) -> Verdict:
    pair = [functions_of(read(text))[0] for text in (before, after)]
    return judge(*pair, *([""] if judge is executed else []))


def random_tree(rng: random.Random, depth: int = 3) -> Tree:
    if not depth or rng.random() < 0.15:
        return rng.choice([X, Y])
    match rng.choice(["scale", "cut", "add"]):
        case "scale":
            return scale(random_tree(rng, depth - 1), rng.choice(FACTORS))
        case "cut":
            return cut(random_tree(rng, depth - 1))
        case _:
            return add(random_tree(rng, depth - 1), random_tree(rng, depth - 1))


def changed(tree: Tree) -> Iterator[Tree]:
    """Yield trees with a cast left out, inserted, or moved."""
    yield cut(tree)
    match tree:
        case Tree("cut", (Tree("scale", (inner,), factor),)):
            yield scale(cut(inner), factor)
        case Tree("cut", (Tree("add", (a, b)),)):
            yield add(cut(a), cut(b))
        case Tree("scale", (Tree("cut", (inner,)),), factor):
            yield cut(scale(inner, factor))
        case Tree("add", (Tree("cut", (a,)), Tree("cut", (b,)))):
            yield cut(add(a, b))
        case _:
            pass
    if tree.kind == "cut":
        yield tree.of[0]
    for number, inner in enumerate(tree.of):
        for new in changed(inner):
            yield Tree(tree.kind, (*tree.of[:number], new, *tree.of[number + 1 :]), tree.factor)


def equal(tree: Tree, rng: random.Random) -> Tree:
    """Return another tree of equal value: sums reversed, factors split, values rounded."""
    of = tuple(equal(operand, rng) for operand in tree.of)
    result = Tree(tree.kind, of, tree.factor)
    if tree.kind == "add" and rng.random() < 0.5:
        result = add(of[1], of[0])
    if tree.kind == "scale" and of[0].kind == "add" and rng.random() < 0.5:
        result = add(*(scale(operand, tree.factor) for operand in of[0].of))
    match rng.randrange(6):
        case 0:
            return scale(scale(result, 4.0), 0.25)
        case 1:
            return Tree("round", (result,))
        case _:
            return result


def share_that_differs(a: Tree, b: Tree) -> float:
    """Return the share of inputs, of any magnitude, at which two trees differ."""
    rng = random.Random(0)
    wrong = 0
    for _ in range(400):
        x, y = (Fraction(rng.choice([-1, 1]) * 2.0 ** rng.uniform(-5, 11)) for _ in range(2))
        wrong += value(a, x, y) != value(b, x, y)
    return wrong / 400


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (add(cut(scale(X, 0.1)), cut(scale(Y, 0.1))), cut(scale(add(X, Y), 0.1))),
        (scale(cut(scale(X, 0.25)), 2.0), cut(scale(X, 0.5))),
        (cut(scale(X, 1e-3)), scale(cut(X), 1e-3)),
        (cut(cut(scale(X, 1e-3))), cut(scale(X, 300.0))),
        (cut(scale(X, -0.5)), scale(cut(scale(X, 0.25)), -2.0)),
    ],
    ids=["of a sum", "of a half", "of a thousandth", "other factor", "negative"],
)
def test_casts_in_another_place_are_told_apart(before: Tree, after: Tree) -> None:
    judged = verdict(program(before), program(after))
    assert judged.outcome is Outcome.DIFFERENT, judged


@given(rng=RANDOM)
@settings(max_examples=14)
def test_different_programs_are_told_apart(rng: random.Random) -> None:
    before = random_tree(rng)
    after = rng.choice(list(changed(before)))
    differs = share_that_differs(before, after)
    if differs > 0.03:  # as in two thirds of the examples
        judged = verdict(program(before), program(after, by_level=rng.random() < 0.5))
        assert judged.outcome is Outcome.DIFFERENT, (before, after, differs)


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=14)
def test_equal_programs_are_equal_in_a_run(rng: random.Random) -> None:
    before = random_tree(rng)
    after = equal(before, rng)
    assert not share_that_differs(before, after)
    pair = program(before), program(after, by_level=rng.random() < 0.5)
    assert verdict(*pair, judge=executed).outcome is Outcome.SAME, (before, after)


def test_what_a_narrow_integer_wraps_is_told_apart() -> None:
    """The smallest and the largest integer of a type are among the inputs."""
    types = "func @f(%x: i32[64]) -> i32[64] on @m"
    whole = f"{HEAD}{types} {{ %a = scale %x by 1 return %a }}"
    narrow = f"{HEAD}{types} {{ %a = cast %x to i8 %b = cast %a to i32 return %b }}"
    assert verdict(whole, narrow).outcome is Outcome.DIFFERENT
    assert verdict(narrow, narrow, judge=executed).outcome is Outcome.SAME
