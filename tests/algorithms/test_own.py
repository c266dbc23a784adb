"""Algorithms that a program declares: equal to the built-in ones, and proven or refused."""

import random
import re

import pytest
from hypothesis import given, settings
from support.algorithms.chunk_programs import results, wanted
from support.machine.machines import steps
from support.programs.collectives import RANDOM

from collir.algorithms.checking import check
from collir.algorithms.chunks import program_of
from collir.algorithms.own import OwnAlgorithmError
from collir.algorithms.table import ALGORITHMS
from collir.cost.collectives.meter import Meter
from collir.cost.collectives.rounds import ByRounds
from collir.cost.network.group import CostError, Group
from collir.ir.diagnostics import DiagnosticError
from collir.layout import Mesh
from collir.layout.algorithm_names import AlgorithmName
from collir.syntax.algorithms import own_algorithm, prove

TEXTS = {
    ("all_gather", "recursive_doubling"): """(r of n) {
  for k = 0 to log2(n) - 1 { send block (r >> k) count 1 << k to r ^ (1 << k) }
}""",
    ("reduce_scatter", "recursive_halving"): """(r of n) {
  for k = log2(n) - 1 to 0 by -1 {
    send block (r ^ (1 << k) >> k) count 1 << k to r ^ (1 << k) reduce
  }
}""",
    ("all_reduce", "recursive_doubling"): """(r of n) blocks 1 {
  for k = 0 to log2(n) - 1 { send block 0 to r ^ (1 << k) reduce }
}""",
    ("broadcast", "binomial"): """(r of n) blocks 1 {
  for k = log2(n) - 1 to 0 by -1 {
    send block 0 to r + (1 << k) if r % (2 << k) == 0 and r + (1 << k) < n
  }
}""",
    ("gather", "binomial"): """(r of n) {
  for k = 0 to log2(n) - 1 {
    send block r count min(1 << k, n - r) to r - (1 << k) if r % (2 << k) == 1 << k
  }
}""",
    ("all_reduce", "ring"): """(r of n) {
  for k = 0 to n - 2 { send block (r - k - 1) % n to (r + 1) % n reduce }
  for k = 0 to n - 2 { send block (r - k) % n to (r + 1) % n }
}""",
    ("all_reduce", "ring both ways"): """(r of n) blocks 2 * n {
  for k = 0 to n - 2 {
    together {
      send block 2 * ((r - k - 1) % n) to (r + 1) % n reduce
      send block 2 * ((r + k + 1) % n) + 1 to (r - 1) % n reduce
    }
  }
  for k = 0 to n - 2 {
    together {
      send block 2 * ((r - k) % n) to (r + 1) % n
      send block 2 * ((r + k) % n) + 1 to (r - 1) % n
    }
  }
}""",
    ("all_gather", "ring"): """(r of n) {
  for k = 0 to n - 2 { send block (r - k) % n to (r + 1) % n }
}""",
}
"""Built-in algorithms as one would declare them; ``x >> k`` stands for whole multiples of 2^k."""


def name_of(key: tuple[str, str], text: str) -> AlgorithmName:
    """Return the name of a declared algorithm."""
    text = re.sub(r"\((r(?: \^ \(1 << k\))?) >> k\)", r"(\1) / (1 << k) * (1 << k)", text)
    return AlgorithmName("@own", key[0], f"algorithm @own {key[0]}{text}")


def fits(key: tuple[str, str], ranks: int) -> bool:
    return not ranks & (ranks - 1) or key[1] in ("binomial", "ring", "ring both ways")


@pytest.mark.parametrize("key", TEXTS, ids="-".join)
def test_declared_algorithms_are_proven(key: tuple[str, str]) -> None:
    algorithm = own_algorithm(name_of(key, TEXTS[key]))
    for ranks in (*range(2, 10), 16):
        if fits(key, ranks):
            prove(algorithm, ranks)
        else:
            with pytest.raises(OwnAlgorithmError):
                prove(algorithm, ranks)


@pytest.mark.parametrize("key", [key for key in TEXTS if "ring" not in key[1]], ids="-".join)
@settings(max_examples=15)
@given(step=steps())
def test_they_cost_what_the_built_in_ones_do(
    key: tuple[str, str], step: tuple[Mesh, tuple[str, ...], frozenset[str]]
) -> None:
    mesh, axes, root = step
    group = Group.of(mesh, axes, root)
    if not fits(key, group.size) or group.size == 1:
        return
    times: list[float] = []
    for algorithm in (ALGORITHMS[key], own_algorithm(name_of(key, TEXTS[key]))):
        meter = Meter(group)
        try:
            ByRounds(algorithm)(meter, 720720.0)
        except CostError:
            return
        times.append(meter.estimate.time)
    assert times[0] == pytest.approx(times[1], rel=1e-9)


def changed(text: str, rng: random.Random) -> str:
    """Return a text with another number, name or operator in one place."""
    words = [*re.finditer(r"\b(?:[0-9]+|r|n|k)\b|[-+*/%^]", text[text.index("{") :])]
    word = rng.choice(words)
    others = "+-*/%^" if word[0] in "+-*/%^" else [*"rnk0123"]
    at = text.index("{")
    return text[: at + word.start()] + rng.choice(others) + text[at + word.end() :]


@settings(max_examples=150)
@given(rng=RANDOM)
def test_what_is_proven_is_right_and_what_is_refused_is_wrong(rng: random.Random) -> None:
    """A plain interpreter of numbers, in random orders, says the same as the proof, which also
    refuses what is added twice and overwritten then."""
    key = rng.choice([key for key in TEXTS if key[0] in ("all_reduce", "all_gather")])
    ranks = rng.choice([2, 3, 4, 5, 8])
    try:
        algorithm = own_algorithm(name_of(key, changed(TEXTS[key], rng)))
        program = program_of(algorithm, ranks)
    except (OwnAlgorithmError, DiagnosticError):
        return
    right = all(results(program, rng, 8) == wanted(program) for _ in range(3))
    found = check(program)
    assert found.is_right == right or {x.kind for x in found.problems} == {"value"}
