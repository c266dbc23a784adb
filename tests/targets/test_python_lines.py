"""Long statements over several lines are the same statements."""

import ast
import random

from hypothesis import given, settings
from support.programs.collectives import RANDOM

from collir.targets.code.python_lines import WIDTH, call_lines, lines_of


def name(rng: random.Random) -> str:
    return "".join(rng.choice("abcdghm_") for _ in range(rng.randint(1, 12)))


def expression(rng: random.Random, depth: int) -> str:
    """Return an expression as tables write them: calls, tuples, chains, sums and numbers."""
    kind = rng.choice(["name", "number", "call", "call", "tuple", "chain", "sum", "item"])
    if depth == 0 or kind == "name":
        return name(rng)
    if kind == "number":
        return str(rng.choice([0, 1.5, -3]))
    inner = [expression(rng, depth - 1) for _ in range(rng.randint(2, 5))]
    if kind == "tuple":
        return f"({', '.join(inner)})"
    if kind == "sum":
        return f"{name(rng)} + {name(rng)} * {inner[0]}"
    if kind == "item":
        return f"f.{name(rng)}({', '.join(inner)})[0]"
    if kind == "chain":
        return f"f({inner[0]}).at[:, {inner[1]}].add({', '.join(inner)})"
    return f'f.{name(rng)}("a,b(", {", ".join(inner)}, axis={inner[0]})'


def statement(rng: random.Random) -> str:
    value = expression(rng, rng.randint(1, 4))
    targets = [name(rng) for _ in range(rng.randint(1, 9))]
    return rng.choice(
        [
            f"return {value}",
            f"{targets[0]} = {value}",
            f"{', '.join(targets)} = {value}",
            f"{targets[0]}, ({', '.join(targets)}) = f({value}, {value})",
        ]
    )


def tree(text: str) -> str:
    """Return a statement of a function as a tree."""
    return ast.dump(ast.parse(f"def f():\n {text}"))


@given(rng=RANDOM)
@settings(max_examples=120)
def test_a_broken_statement_is_the_same(rng: random.Random) -> None:
    text, indent = statement(rng), rng.choice([0, 4, 8])
    lines = lines_of(text, indent)
    assert tree("\n  ".join(lines)) == tree(text), lines
    if indent + len(text) <= WIDTH:
        assert lines == [text]


def test_a_call_with_a_line_for_each_argument() -> None:
    assert call_lines("f", ["a=1", "g(2, 3)"], 0) == ["f(", "    a=1,", "    g(2, 3),", ")"]
