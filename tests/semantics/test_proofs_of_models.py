"""Proofs of programs with operations of models: what expressions say is what is executed."""

import random
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from support.harness.seeds import fresh
from support.programs.collectives import RANDOM
from support.programs.models import MAPS, random_model
from support.semantics.checks import functions_of, results_on_all_devices
from support.semantics.evaluation import Evaluation, table, work

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.nn import OPERATIONS
from collir.dialects.tensor import dist_type
from collir.semantics.reference.buffers import distribute, random_tensor
from collir.semantics.reference.devices import coordinate
from collir.semantics.reference.executor import execute
from collir.semantics.symbolic import models
from collir.semantics.symbolic.uneven import coordinates_in, results_by_class
from collir.semantics.symbolic.values import Computations, coordinate_variable, position_variable
from collir.semantics.validation.proof import proven
from collir.semantics.validation.verdict import Outcome
from collir.syntax.writer import write

MOST_WORK = 3000
"""The most points at which an expression is evaluated."""


def check_expressions(rng: random.Random, counts: Counter[str]) -> None:
    """Compare a few elements of the results of a random program with their expressions."""
    module = random_model(rng, weights=0.2)
    if module is None:
        return
    [function] = functions_of(module)
    mesh = mesh_of(function)
    numbers = np.random.default_rng(rng.randrange(2**32))
    types = [dist_type(arg) for arg in function.args]
    buffers = [distribute(mesh, random_tensor(x, numbers), x, numbers) for x in types]
    computations = Computations()
    run = Evaluation(table(mesh, function, buffers), computations)
    with np.errstate(all="ignore"):
        executed = execute(module, function, buffers)
    every = [buffer for parts in executed for buffer in parts if buffer is not None]
    if not all(np.isfinite(buffer).all() for buffer in every):
        return  # numbers are exact in proofs: x / x is 1
    for pieces, parts in zip(results_by_class(function, computations), executed, strict=True):
        for rank in rng.sample(range(mesh.devices), min(2, mesh.devices)):
            at = {axis: coordinate(mesh, rank, axis) for axis in mesh.by_name}
            symbolic = pieces.values[
                next(of for of in pieces.values if coordinates_in(mesh, of).items() <= at.items())
            ]
            buffer = parts[rank]
            assert (buffer is None) == any(at[axis] != n for axis, n in symbolic.place)
            exprs = [symbolic.expr, *(x.expr for c in computations.known for x in c.operands)]
            if buffer is None or max(map(work, exprs)) > MOST_WORK:
                continue
            assert buffer.shape == symbolic.shape
            point = {coordinate_variable(mesh, axis): n for axis, n in at.items()}
            local = tuple(rng.randrange(size) for size in buffer.shape)
            for dim, (size, i) in enumerate(zip(buffer.shape, local, strict=True)):
                point[position_variable(dim, size)] = i
            found, expected = run.expr(symbolic.expr, point), float(buffer[local])
            assert found == pytest.approx(expected, rel=1e-6, abs=1e-6), write(module)
            counts["elements"] += 1
    counts["programs"] += 1


@given(rng=RANDOM)
@settings(max_examples=24)
def test_expressions_are_what_is_executed(rng: random.Random) -> None:
    check_expressions(rng, Counter())


@pytest.mark.slow
def test_expressions_of_many_programs_are_what_is_executed() -> None:
    rng, counts = fresh(57), Counter[str]()
    for _ in range(2000):
        check_expressions(rng, counts)
    assert counts["programs"] > 500 and counts["elements"] > 5000


# --- pairs of programs --------------------------------------------------------------------------


def mutated(rng: random.Random, text: str) -> str:
    """Return the text of a program in which something of a step is changed, or a step is gone."""
    lines = text.splitlines()
    steps = [n for n, line in enumerate(lines) if line.startswith("  %")]
    n = rng.choice(steps)
    line, names = lines[n], re.findall(r"%\w+", lines[n])
    result, operands = names[0], names[1:]
    match rng.choice(["operand", "operands", "name", "letters", "number", "gone", "equation"]):
        case "operand":
            known = [re.findall(r"%\w+", lines[k])[0] for k in steps if k < n] + ["%0"]
            new = rng.choice(known)
            line = line[:6] + re.sub(re.escape(rng.choice(operands)) + r"\b", new, line[6:])
        case "operands" if len(operands) > 1:
            front = line[: line.index(operands[0], 6)]
            line = front + ", ".join(rng.sample(operands, len(operands)))
        case "name":
            names = [*MAPS, "all_reduce", "sum", "max", "all_gather", "slice", "reduce_scatter"]
            line = re.sub(r"= (\w+)", f"= {rng.choice(names)}", line)
        case "letters" if '"' in line:
            letters = re.findall(r"i\d+x\d+", line)
            if len(letters) > 1:
                one, other = rng.sample(letters, 2)
                swap = {one: other, other: one}
                start = line.index(rng.choice(["->", ",", '"']) if "," in line else "->")
                line = line[:start] + re.sub(
                    r"i\d+x\d+", lambda m: swap.get(m[0], m[0]), line[start:]
                )
        case "number":
            line = re.sub(r" \d\b", lambda _: f" {rng.randrange(3)}", line)
        case "gone":
            rest = "\n".join(lines[n + 1 :])
            new = rng.choice(operands)
            return "\n".join([*lines[:n], re.sub(re.escape(result) + r"\b", new, rest)])
        case _:
            pass
    lines[n] = line
    return "\n".join(lines)


def check_pair(rng: random.Random, counts: Counter[str]) -> None:
    """Change a random program, and run both where they are proven to be equal."""
    module = random_model(rng, steps=rng.randint(1, 6))
    if module is None or "  %" not in write(module):
        return
    text = write(module).rstrip()
    other = mutated(rng, text)
    if other == text:
        return
    try:
        modules = [collir.parse(text), collir.parse(other)]
    except collir.DiagnosticError:
        return
    functions = [functions_of(module)[0] for module in modules]
    if len({str(function.function_type) for function in functions}) > 1:
        return
    verdict = proven(functions[0], functions[1])
    of_models = any(isinstance(op, tuple(OPERATIONS.values())) for op in modules[0].walk())
    assert not (of_models and verdict.outcome is Outcome.DIFFERENT), other
    counts[verdict.outcome] += 1
    if verdict.outcome is Outcome.SAME:
        with np.errstate(all="ignore"):
            pairs = zip(modules, functions, strict=True)
            one, two = (results_on_all_devices(m, f, 3) for m, f in pairs)
        for x, y in zip(one, two, strict=True):
            finite = np.isfinite(x) & np.isfinite(y)
            scale = np.abs(np.where(finite, x, 0)).max(initial=1.0)
            assert np.allclose(x[finite], y[finite], rtol=1e-6, atol=1e-9 * scale), text + other


@given(rng=RANDOM)
@settings(max_examples=36)
def test_no_changed_program_is_proven_equal_unless_it_is(rng: random.Random) -> None:
    """With what is known of operations, and with their index structures alone."""
    with pytest.MonkeyPatch.context() as patch:
        if rng.random() < 0.3:
            patch.setattr(models, "RULES", {})
        check_pair(rng, Counter())


@pytest.mark.slow
def test_no_changed_program_of_many_is_proven_equal_unless_it_is() -> None:
    rng, counts = fresh(57, "pairs"), Counter[str]()
    for _ in range(4000):
        check_pair(rng, counts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "RULES", {})
        for _ in range(1500):
            check_pair(rng, Counter())
    assert counts[Outcome.SAME] > 25 and counts[Outcome.UNKNOWN] > 150, counts


BLOCKS = {
    "blocks": (
        "%z = softmax %a dims [1]",
        "%0 = slice %a over data dim 0\n%1 = softmax %0 dims [1]\n"
        "%z = all_gather %1 over data dim 0",
        True,
    ),
    "transposed": (
        "%z = softmax %a dims [1]",
        "%0 = transpose %a order [1, 0]\n%1 = softmax %0 dims [0]\n%z = transpose %1 order [1, 0]",
        False,  # their arguments differ
    ),
    "parts of a sum": (
        '%0 = einsum "i k -> i" %a\n%1 = einsum "i, k -> i k" %0, %b\n%z = log_softmax %1 dims [1]',
        '%0 = slice %a over model dim 1\n%1 = einsum "i k -> i" %0\n%2 = all_reduce %1 over model\n'
        '%3 = einsum "i, k -> i k" %2, %b\n%z = log_softmax %3 dims [1]',
        True,
    ),
    "parts in another order": (
        '%0 = einsum "i k -> i" %a\n%z = einsum "i, k -> i k" %0, %b',
        "%0 = slice %a over model dim 1\n%1 = all_gather %0 over model dim 1\n"
        "%2 = shift %0 by 1 over model\n%3 = all_gather %2 over model dim 1\n"
        '%4 = einsum "i k -> i" %3\n%z = einsum "i, k -> i k" %4, %b',
        False,
    ),
    "another dimension": ("%z = softmax %a dims [1]", "%z = softmax %a dims [0]", False),
    "with something more": (
        "%z = softmax %a dims [1]",
        "%0 = pad %a dim 1 low 1\n%1 = softmax %0 dims [1]\n%z = pad %1 dim 1 low -1",
        False,
    ),
    "the other direction": ("%z = cumsum %a dim 0", "%z = cumsum %a dim 0 reverse", False),
    "another block of a table": (
        "%i = iota dim 0 to i32[8]\n%0 = slice %a over model dim 0\n%1 = take %0, %i dim 0\n"
        "%z = all_reduce %1 over model",
        "%i = iota dim 0 to i32[8]\n%0 = slice %a over model dim 0\n%2 = shift %0 by 1 over model\n"
        "%1 = take %2, %i dim 0\n%z = all_reduce %1 over model",
        False,
    ),
    "another argument": ("%z = softmax %b dims [0]", "%z = log_softmax %b dims [0]", False),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_an_index_structure_alone_says_what_is_equal(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "RULES", {})
    one, other, same = BLOCKS[name]
    result = "f32[8]" if name == "another argument" else "f32[8, 8]"
    functions = [
        functions_of(collir.parse(PROGRAM.format(steps=steps, result=result)))[0]
        for steps in (one, other)
    ]
    outcome = proven(functions[0], functions[1]).outcome
    assert outcome is (Outcome.SAME if same else Outcome.UNKNOWN)


PROGRAM = """
machine @box {{ level gpu[8] {{ port = 300 GB/s, latency = 3 us }} }}
mesh @m on @box {{ data = gpu:2, model = gpu:4 }}
func @f(%a: f32[8, 8], %b: f32[8]) -> {result} on @m {{
{steps}
  return %z
}}
"""
