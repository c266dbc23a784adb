"""Functions that are called at other values of their parameters."""

import random
import re

import pytest
from support.harness.seeds import fresh
from support.programs.collectives import random_module
from support.semantics.checks import agree, functions_of, results_on_all_devices
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.nested import CallOp
from collir.dialects.tensor import dist_type
from collir.ir.calls import call_errors
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.names import keep_names
from collir.ir.parameters import parameters_of
from collir.ir.verification import verify
from collir.syntax.reader import read
from collir.syntax.writer import write
from collir.transforms.instantiation import instantiate


def module_with_calls(rng: random.Random) -> ModuleOp:
    """Return a random module in which a call gives values to parameters."""
    while True:
        module = random_module(rng, functions=4, steps=5, models=rng.random() < 0.3)
        placed = all(mesh_of(function).placed for function in functions_of(module))
        if placed and any(op.values for op in module.walk() if isinstance(op, CallOp)):
            return module


@pytest.mark.turns
@pytest.mark.parametrize("seed", range(8))
def test_instantiation_is_reading_with_other_defaults(seed: int) -> None:
    """The function calls others, or others call it."""
    rng = fresh(seed)
    module = module_with_calls(rng)
    text = write(module)
    calls = [op for op in module.walk() if isinstance(op, CallOp)]
    names = {call.symbol for call in calls}
    names |= {f.sym_name.data for f in functions_of(module) if any(op in calls for op in f.walk())}
    for function in functions_of(module):
        name, defaults = function.sym_name.data, parameters_of(function)
        if name not in names or not defaults:
            continue
        values = {key: rng.choice([2 * n, 3 * n, rng.randint(1, 9)]) for key, n in defaults.items()}
        changed = text
        for key, value in values.items():
            changed = re.sub(rf"(func @{name}\([^)]*\b{key}) = \d+", rf"\1 = {value}", changed)
        copy = module.clone()
        try:
            instantiate(copy, values, name)
        except DiagnosticError:
            with pytest.raises(DiagnosticError):
                verify(read(changed))
            assert write(copy) == text, "an instantiation that fails changes nothing"
            continue
        again = collir.parse(changed)
        assert write(copy) == write(again)
        keep_names(copy)
        assert collir.emit(copy, "mlir") == collir.emit(again, "mlir")


@pytest.mark.turns
@pytest.mark.parametrize(
    "passes", ["canonicalize,cse", "fuse", "bucket{rule=ddp}", "reorder-by-hierarchy", "decompose"]
)
@pytest.mark.parametrize("seed", range(2))
def test_passes_keep_what_calls_compute(passes: str, seed: int) -> None:
    """Also where the program of a function, changed for its defaults, would not fit a call."""
    module = module_with_calls(fresh(seed, passes))
    changed = module.clone()
    collir.run_passes(changed, passes)
    verify(changed)
    for before, after in zip(functions_of(module), functions_of(changed), strict=True):
        expected = results_on_all_devices(module, before, 1)
        assert agree(results_on_all_devices(changed, after, 1), expected, 16)


PROGRAM = """
machine @quad {
  level node[2] { port = 1 GB/s, latency = 20 us }
  level gpu[2] { port = 8 GB/s, latency = 3 us }
}
mesh @m on @quad { data = node:2 * gpu:2 }
func @sum(n = 8)(%x: f32[n] partial(sum: data)) -> f32[n] on @m {
  %y = all_reduce %x over data
  return %y
}
func @f(%x: f32[5] partial(sum: data)) -> f32[5] on @m {
  %y = call @sum(n = 5)(%x)
  return %y
}
"""


def test_a_function_that_would_not_fit_its_calls_stays(caplog: pytest.LogCaptureFixture) -> None:
    """Blocks of 8 elements are cut into blocks on each device; 5 elements are not."""
    module = collir.parse(PROGRAM)
    collir.run_passes(module, "decompose{strategy=rs-ar-ag}")
    assert "reduce_scatter" not in write(module)
    assert "@sum stays as it is" in caplog.text
    assert "does not fit n = 5" in caplog.text
    inlined = collir.parse(PROGRAM)
    collir.run_passes(inlined, "inline,decompose{strategy=rs-ar-ag}")
    assert write(inlined).count("reduce_scatter") == 2  # one of 8 elements, and one of 5, padded


def test_functions_are_checked_once_at_each_set_of_values() -> None:
    """Two calls at one value are one check, also where a function that is called makes one."""
    head, _, _ = PROGRAM.partition("func @f")
    calls = """
        func @f(%x: f32[6] partial(sum: data), %y: f32[5] partial(sum: data)) -> f32[6] on @m {
          %a = call @sum(n = 6)(%x)
          %b = call @sum(n = 5)(%y)
          %c = call @g(k = 3)(%x)
          return %c
        }
        func @g(k = 2)(%x: f32[2 * k] partial(sum: data)) -> f32[2 * k] on @m {
          %a = call @sum(n = 2 * k)(%x)
          return %a
        }
    """
    checked: list[tuple[str, int]] = []

    def errors_in(function: FuncOp) -> list[Diagnostic]:
        checked.append((function.sym_name.data, dist_type(function.args[0]).elements))
        return []

    assert not call_errors(read(head + calls), errors_in)
    assert sorted(checked) == [("g", 6), ("sum", 4), ("sum", 5), ("sum", 6)]


def test_values_of_a_call_at_defaults_are_formulas_of_the_callee() -> None:
    """A call at the defaults of a function checks the function's own calls, as they are written."""
    read(
        """\
machine @c { level gpu[2] { port = 1 GB/s, latency = 1 us } }
mesh @m on @c { data = 2 }
func @f(hidden = 8)(%x: f32[96 / hidden]) -> f32[96 / hidden] on @m {
  %y = permute %x to f32[96 / hidden]
  return %y
}
func @g(over = 1)(%x: f32[6 / over]) -> f32[6 / over] on @m {
  %y = call @f(hidden = 16 * over)(%x)
  return %y
}
func @h(%x: f32[6]) -> f32[6] on @m {
  %y = call @g(over = 1)(%x)
  return %y
}
"""
    )
