"""Programs whose collectives name each of the algorithms that are written as rounds."""

from collections.abc import Iterator
from random import Random

from collir.algorithms.table import ALGORITHMS, PIPELINES

FORMS = {
    "all_reduce": ("f32[{n}] partial({op}: d)", "f32[{n}]", "over d"),
    "reduce": ("f32[{n}] partial({op}: d)", "f32[{n}] root(d)", "over d"),
    "broadcast": ("f32[{n}] root(d)", "f32[{n}]", "over d"),
    "reduce_scatter": ("f32[{n}, 3] partial({op}: d)", "f32[{n}@d, 3]", "over d dim 0"),
    "all_gather": ("f32[2, {n}@d]", "f32[2, {n}]", "over d dim 1"),
    "gather": ("f32[{n}@d, 2]", "f32[{n}, 2] root(d)", "over d dim 0"),
    "scatter": ("f32[2, {n}] root(d)", "f32[2, {n}@d]", "over d dim 1"),
    "all_to_all": ("f32[{n}@d, {n}]", "f32[{n}, {n}@d]", "over d dim 0 to 1"),
}
"""The types of operand and result of each collective, and its clauses."""

WRITTEN = {**ALGORITHMS, **PIPELINES}
"""All algorithms that code has as rounds."""

KEYS = sorted(WRITTEN)


def machine_of(outer: int, inner: int, other: int, rng: Random) -> str:
    """Return a mesh with an axis ``d`` on two levels, with any links, and another axis inside."""
    kinds = [rng.choice(["", "", ", kind = ring", ", kind = full"]) for _ in range(2)]
    return f"""
machine @c {{
  level node[{outer}] {{ port = 1 GB/s, latency = 20 us{kinds[0]} }}
  level gpu[{inner * other}] {{ port = 9 GB/s, latency = 2 us{kinds[1]} }}
}}
mesh @m on @c {{ d = node:{outer} * gpu:{inner}, e = gpu:{other} }}
"""


def function_of(key: tuple[str, str], ranks: int, rng: Random, name: str = "f") -> str:
    """Return a function with one collective by an algorithm."""
    collective, algorithm = key
    taken, given, clauses = FORMS[collective]
    each = 1 if collective in ("all_reduce", "reduce", "broadcast") else ranks
    operator = rng.choice(["sum", "prod", "max", "min", "avg"])
    values = {"n": each * rng.randint(1, 5), "op": operator}
    return f"""
func @{name}(%x: {taken.format(**values)}) -> {given.format(**values)} on @m {{
  %y = {collective} %x {clauses} using {algorithm}
  return %y
}}
"""


def shapes_of(ranks: int) -> Iterator[tuple[int, int, int]]:
    """Yield the sizes of an axis on two levels, and of one beside it, for a number of ranks."""
    for inner in range(1, ranks + 1):
        for other in range(1, ranks // inner + 1):
            if ranks % (inner * other) == 0:
                yield ranks // (inner * other), inner, other


def every_algorithm(ranks: int, rng: Random) -> str:
    """Return a program for a number of ranks with a function for each algorithm that fits."""
    outer, inner, other = rng.choice([x for x in shapes_of(ranks) if x[0] * x[1] > 1])
    group = outer * inner
    fitting = [key for key in KEYS if WRITTEN[key].fits(group)]
    functions = (function_of(key, group, rng, f"f{n}") for n, key in enumerate(fitting))
    return machine_of(outer, inner, other, rng) + "".join(functions)
