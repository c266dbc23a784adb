"""Tests that a cached result has the formulas of its own program.

Programs whose sizes differ in their formulas only are compiled one after the other, and the results
of cached functions are computed anew.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import partial, wraps
from types import ModuleType
from typing import Any, cast

import pytest
from support.harness.seeds import fresh, some
from support.programs.collectives import module_of, random_function, random_mesh
from support.semantics.checks import functions_of
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Data, ParametrizedAttribute

import collir
from collir.dialects.parameters import parameters_of
from collir.ir.diagnostics import DiagnosticError
from collir.ir.parameters import set_parameters
from collir.ir.retyping import retype
from collir.ir.verification import verify
from collir.layout.cuts import Extent
from collir.layout.formulas import Formula
from collir.layout.sizes import Size, formula_of, sized

PACKAGES = ("layout", "dialects", "ir", "semantics", "cost", "machine", "algorithms", "synthesis")

TABLES = {"_moves_on", "_known_on", "ports_of", "graph", "times_on", "costs_on", "listed_programs"}
"""Functions that return a table for what they are given, which others fill."""

PASSES = ["canonicalize,cse", "fuse,decompose,overlap", "reorder-by-hierarchy,bucket{rule=xla}"]


def exact(value: object) -> object:
    """Return what a value is, with the formulas of sizes."""
    kind: type[object] = type(value)
    match value:
        case Size():
            return kind, int(value), str(value.formula)
        case Extent():
            return Extent, value.units, value.cuts
        case int() | float():  # 1 and 1.0 are one number
            return repr(float(value))
        case str() | None:
            return value
        case tuple() | list():
            return kind, tuple(map(exact, cast("tuple[object, ...]", value)))
        case Mapping():
            items = cast("Mapping[object, object]", value).items()
            return kind, tuple((exact(key), exact(item)) for key, item in items)
        case Set():
            return kind, frozenset(map(exact, cast("Set[object]", value)))
        case Data():
            return kind, exact(cast("Data[object]", value).data)
        case ParametrizedAttribute():
            return kind, exact(value.parameters)
        case _ if is_dataclass(value):
            return kind, tuple(exact(getattr(value, x.name)) for x in fields(value))
        case _:
            return kind


def modules() -> Iterator[ModuleType]:
    """Yield the loaded modules whose caches are checked."""
    for name, module in list(sys.modules.items()):
        if name.startswith(tuple(f"collir.{package}." for package in PACKAGES)):
            yield module


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let each cached function compute what it returns once more; the number of checked calls."""
    calls = Counter[str]()

    def checked(cached: Any) -> Callable[..., object]:
        @wraps(cached)
        def call(*args: object, **named: object) -> object:
            result = cached(*args, **named)
            calls[cached.__name__] += 1
            assert exact(result) == exact(cached.__wrapped__(*args, **named)), cached.__name__
            return result

        return call

    seen: dict[int, Callable[..., object]] = {}
    for module in modules():
        for name, value in list(vars(module).items()):
            if hasattr(value, "cache_info") and value.__name__ not in TABLES:
                monkeypatch.setattr(module, name, seen.setdefault(id(value), checked(value)))
    return calls


def twin(rng: random.Random, module: ModuleOp) -> ModuleOp:
    """Return a program of the same sizes, which follow from other parameters by other formulas."""
    module = module.clone()
    for function in functions_of(module):
        formulas: dict[str, Formula] = {}
        defaults: dict[str, int] = {}
        for name, value in parameters_of(function).items():
            factor = rng.choice([n for n in range(1, value + 1) if value % n == 0])
            formulas[name] = Formula.constant(factor) * Formula.parameter(f"{name}_2")
            defaults[f"{name}_2"] = value // factor
        retype(function, partial(_substituted, formulas=formulas))
        set_parameters(function, defaults)
    verify(module)
    return module


def _substituted(size: int, formulas: Mapping[str, Formula]) -> int:
    return sized(int(size), formula_of(size).substituted(formulas))


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("seed", some(range(12), 4))
def test_programs_do_not_get_the_formulas_of_another_one(
    seed: int, order: int, remembered: Counter[str]
) -> None:
    rng = fresh(seed)
    mesh = random_mesh(rng)
    while not mesh.placed:
        mesh = random_mesh(rng)
    function = random_function(rng, mesh, 8, parametric=1, models=rng.random() < 0.5)
    module = module_of([mesh], [function])
    passes = rng.choice(PASSES)
    for program in [module, twin(rng, module)][::order]:
        collir.emit(program, "cost")
        with suppress(DiagnosticError):  # not every program has formulas
            collir.cost_formulas(program)
        collir.run_passes(program, passes)  # verifies that formulas are over parameters they have
        collir.emit(program, "cost")
    assert remembered


def test_steps_are_merged_only_if_their_formulas_are_the_same() -> None:
    module = collir.parse("""
        machine @c { level gpu[2] { port = 16 GB/s, latency = 3 us } }
        mesh @m on @c { data = gpu:2 }
        func @f(n = 8, m = 4)(%x: f32[n, 6]) -> (f32[n, 6@data], f32[2 * m, 6@data]) on @m {
          %a = redistribute %x to f32[n, 6@data]
          %b = redistribute %x to f32[2 * m, 6@data]
          return %a, %b
        }
    """)
    collir.run_passes(module, "cse")
    assert "%b = redistribute %x to f32[2 * m, 6@data]" in collir.emit(module)


def test_zeros_of_two_signs_are_two_constants() -> None:
    module = collir.parse("""
        machine @c { level gpu[2] { port = 16 GB/s, latency = 3 us } }
        mesh @m on @c { data = gpu:2 }
        func @f() -> (f32[4], f32[4]) on @m {
          %a = constant value 0 to f32[4]
          %b = constant value -0 to f32[4]
          return %a, %b
        }
    """)
    collir.run_passes(module, "cse")
    assert "return %a, %b" in collir.emit(module)
