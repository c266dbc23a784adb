"""Functions whose sizes are open: the conditions of their code are those of their types."""

import random
from collections.abc import Mapping

import pytest
from support.harness.seeds import fresh
from support.programs.collectives import module_of, random_function, random_mesh
from support.semantics.checks import functions_of
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.buffers import plan_buffers
from collir.ir.diagnostics import DiagnosticError
from collir.ir.parameters import parameters_of
from collir.layout.coll import PAD
from collir.layout.formulas import Formula
from collir.layout.sizes import OpenSize, Size
from collir.targets.code.c_text import condition_text, factor_text, size_text
from collir.transforms.any_size import Condition, conditions, is_product, open_sizes
from collir.transforms.for_code import ready_for_code
from collir.transforms.instantiation import instantiate


def opened(module: ModuleOp) -> ModuleOp:
    """Return a copy of a module with open sizes."""
    copy, _ = ready_for_code(module.clone())
    open_sizes(copy, module, list)
    return copy


def holds(condition: Condition, values: Mapping[str, int]) -> bool:
    """Return whether a condition holds; products are small here."""
    above, below = (part.value(values) for part in condition.formula.fraction())
    if is_product(condition.formula):
        return above > 0
    return (
        below > 0
        and above >= 0
        and (above / below).denominator == 1
        and (above / below >= condition.least)
    )


def has_changing_pad(module: ModuleOp) -> bool:
    """Return whether a pad adds or cuts off a number that depends on parameters."""
    return any(
        op.kind is PAD and any(isinstance(size, Size) for size in op.arguments.values())
        for op in module.walk()
        if isinstance(op, DistOp)
    )


@pytest.mark.turns
@pytest.mark.parametrize("seed", range(30))
def test_values_that_meet_the_conditions_are_those_that_fit_the_types(seed: int) -> None:
    rng = fresh(seed)
    mesh = random_mesh(rng, rng.choice([1, 4, 6]))
    module = module_of([mesh], [random_function(rng, mesh, 8, parametric=1)])
    try:
        needed = conditions(functions_of(opened(module))[0])
    except DiagnosticError:
        return  # some sizes are equal at the defaults only
    defaults = parameters_of(functions_of(module)[0])
    for _ in range(6):
        values = other_values(rng, defaults)
        fits = all(holds(condition, values) for condition in needed)
        try:
            instantiate(module.clone(), values)
        except DiagnosticError:
            assert not fits
        else:
            assert fits or has_changing_pad(module)


def other_values(rng: random.Random, defaults: Mapping[str, int]) -> dict[str, int]:
    """Return other values, many of them multiples of the defaults."""
    return {
        name: rng.choice(
            [value, value * 2, value * 3, value * rng.randint(1, 9), rng.randint(1, 9)]
        )
        for name, value in defaults.items()
    }


def size(text: str) -> OpenSize:
    """Return an open size of parameters a = 8 and b = 4."""
    a, b = (OpenSize(n, Formula.parameter(name)) for name, n in (("a", 8), ("b", 4)))
    found = eval(text, {"a": a, "b": b})
    assert isinstance(found, OpenSize)
    return found


@pytest.mark.parametrize(
    ("written", "alone", "as_factor"),
    [
        ("a", "a", "a"),
        ("4 * a * b", "4 * a * b", "4 * a * b"),
        ("a // 8", "a / 8", "(a / 8)"),
        ("a * b // 2 // b", "a / 2", "(a / 2)"),
        ("3 * a - 8", "3 * a - 8", "(3 * a - 8)"),
        ("(a + 8) // b", "(a + 8) / b", "((a + 8) / b)"),
        ("a // 8 + b", "(a + 8 * b) / 8", "((a + 8 * b) / 8)"),
        ("24 // (a + b)", "24 / (a + b)", "(24 / (a + b))"),
        ("a * 6 // (b * 2)", "3 * a / b", "(3 * a / b)"),
        ("3 * a * b // (2 * a * 2)", "3 * b / 4", "(3 * b / 4)"),
        ("a * a // (b * 2)", "a * a / (2 * b)", "(a * a / (2 * b))"),
    ],
)
def test_formulas_are_printed_with_exact_quotients(
    written: str, alone: str, as_factor: str
) -> None:
    assert size_text(size(written)) == alone
    assert factor_text(size(written)) == as_factor


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (Condition(size("a").formula), "a > 0"),
        (Condition(size("2 * a + b").formula, 0), "2.0 * (double)a + 1.0 * (double)b < 9.2e18"),
        (Condition(size("a // 4").formula), "is_size(1, 1.0 * (double)a, a, 0, 4)"),
        (
            Condition(size("a - b").formula),
            "is_size(1, 1.0 * (double)a + 1.0 * (double)b, a, b, 1)",
        ),
        (
            Condition(size("a // b").formula, 0),
            "is_size(0, 1.0 * (double)a + 1.0 * (double)b, a, 0, b)",
        ),
    ],
)
def test_conditions_are_printed(condition: Condition, text: str) -> None:
    assert condition_text(condition) == text


MESH = """
machine @box { level node[4] { port = 8 GB/s, latency = 20 us } }
mesh @m on @box { data = node:4 }
"""


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        # Whatever divides says that its parameters are not 0.
        ("(n = 8)(%x: f32[n@data]) -> f32[n@data] on @m { return %x }", ["1: n / 4", "0: n"]),
        # Of the bytes, only the largest matter.
        (
            "(n = 8)(%x: f32[n], %y: f64[3, n]) -> f64[3, n] on @m { return %y }",
            ["1: n", "0: 24 * n"],
        ),
        # A sum of parameters is not 0 if they are not.
        (
            "(n = 8, k = 4)(%x: f32[24 / (n + k)]) -> f32[24 / (n + k)] on @m { return %x }",
            ["1: n", "1: k", "1: 24 / (k + n)", "0: k + n"],
        ),
        # A pad that cuts off still does, and leaves something of its operand.
        (
            "(n = 8)(%x: f32[n]) -> f32[4] on @m { %y = pad %x dim 0 low -n + 4\n return %y }",
            ["1: n", "0: n - 4", "0: 4 * n"],
        ),
        # Where it adds too, the type of the result does not say so.
        (
            "(n = 8)(%x: f32[n]) -> f32[n + 1] on @m "
            "{ %y = pad %x dim 0 low 3 high -2\n return %y }",
            ["1: n", "1: n - 2", "0: 4 * n + 4"],
        ),
        # A loop runs at least once.
        (
            "(n = 8)(%x: f32[2]) -> f32[2] on @m "
            "{ %y = repeat (n - 4) carry(%h = %x) { yield %h }\n return %y }",
            ["1: n", "1: n - 4"],
        ),
    ],
)
def test_conditions(function: str, expected: list[str]) -> None:
    module = collir.parse(f"{MESH}func @f{function}")
    found = conditions(functions_of(opened(module))[0])
    assert [f"{condition.least}: {condition.formula}" for condition in found] == expected


def test_a_width_is_a_dimension_behind_the_others() -> None:
    module = collir.parse(
        f"""{MESH}func @f(%x: f32[4@data, 6], %y: f32[])
            -> (f32[6, 4@data], f32[], f32[2, 2, 6]) on @m {{
          %a = transpose %x order [1, 0]
          %b = all_gather %x over data dim 0
          %c = reshape %b to [2, 2, 6]
          return %a, %y, %c
        }}"""
    )
    (function,) = functions_of(opened(module))
    outputs = [str(dist_type(value)) for value in plan_buffers(function).returned]
    assert outputs == ["f32[6, 4@data.node, width]", "f32[width]", "f32[2, 2, 6, width]"]
