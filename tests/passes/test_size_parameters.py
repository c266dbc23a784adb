"""Programs with size parameters: what passes make of them holds at other values too."""

import random
import re
from collections.abc import Mapping

import numpy as np
import pytest
from support.harness.seeds import fresh, one_of_each, some
from support.programs.collectives import module_of, random_function, random_mesh
from support.semantics.checks import functions_of, results_on_all_devices
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.ir.diagnostics import DiagnosticError
from collir.ir.names import keep_names
from collir.ir.parameters import parameters_of
from collir.ir.verification import verify
from collir.semantics.reference.executor import memory_needed
from collir.semantics.validation.validate import compare
from collir.semantics.validation.verdict import Outcome
from collir.syntax.writer import write
from collir.transforms.instantiation import instantiate

PASSES = [
    "canonicalize,cse",
    "fuse",
    "reorder-by-hierarchy",
    "bucket{rule=ddp}",
    "bucket{rule=xla},canonicalize",
    "decompose",
    "decompose{chunks=4},overlap",
    "decompose{strategy=rs-ar-ag},cse,canonicalize",
    "fuse,decompose{up_to=64}",
    "split-backward",
]


def random_program(
    rng: random.Random, steps: int = 8, nested: bool = True
) -> tuple[ModuleOp, FuncOp]:
    """Return a module with a function that has parameters, on a mesh that is placed on levels."""
    mesh = random_mesh(rng)
    while not mesh.placed:
        mesh = random_mesh(rng)
    function = random_function(
        rng, mesh, steps, parametric=1, nested=nested, models=rng.random() < 0.3
    )
    module = module_of([mesh], [function])
    return module, functions_of(module)[0]


def other_values(rng: random.Random, defaults: Mapping[str, int]) -> dict[str, int]:
    """Return other values, most of them multiples of the defaults, that formulas may accept."""
    return {
        name: rng.choice([value * 2, value * 3, value, rng.randint(1, 9)])
        for name, value in defaults.items()
    }


def instantiated(module: ModuleOp, values: Mapping[str, int]) -> ModuleOp | None:
    """Return a copy of a module at other values, or None if it is not well typed there."""
    copy = module.clone()
    try:
        instantiate(copy, values)
    except DiagnosticError:
        assert write(copy) == write(module), "an instantiation that fails changes nothing"
        return None
    return copy


@pytest.mark.turns
@pytest.mark.parametrize("seed", some(range(40), 20))
def test_instantiation_is_reading_with_other_defaults(seed: int) -> None:
    rng = fresh(seed)
    module, function = random_program(rng)
    verify(module)
    text = write(module)
    values = other_values(rng, parameters_of(function))
    changed = text
    for name, value in values.items():
        changed = re.sub(rf"(func @f\([^)]*\b{name}) = \d+", rf"\1 = {value}", changed)
    copy = instantiated(module, values)
    try:
        read = collir.parse(changed)
    except DiagnosticError:
        assert copy is None
        return
    assert copy is not None
    assert write(copy) == write(read)
    keep_names(copy)
    assert collir.emit(copy, "mlir") == collir.emit(read, "mlir")


@pytest.mark.turns
@pytest.mark.parametrize(("passes", "seed"), one_of_each(PASSES, range(3)))
def test_a_changed_program_computes_the_same_at_other_values(passes: str, seed: int) -> None:
    rng = fresh(seed, passes)
    module, function = random_program(rng, nested="up_to" not in passes)
    original = module.clone()
    collir.run_passes(module, passes)  # verifies every formula
    for _ in range(4):
        values = other_values(rng, parameters_of(function))
        then, now = instantiated(original, values), instantiated(module, values)
        if then is None or now is None:
            continue
        if any(memory_needed(f) > 2**28 for f in (*functions_of(then), *functions_of(now))):
            continue  # values may multiply
        expected = results_on_all_devices(then, functions_of(then)[0], 1)
        for changed in functions_of(now):
            for a, b in zip(results_on_all_devices(now, changed, 1), expected, strict=True):
                np.testing.assert_allclose(a.astype(float), b.astype(float), rtol=1e-2)


@pytest.mark.parametrize("seed", range(12))
def test_merging_and_folding_do_not_depend_on_values(seed: int) -> None:
    rng = fresh(seed)
    module, function = random_program(rng, 12)
    values = other_values(rng, parameters_of(function))
    first = instantiated(module, values)
    collir.run_passes(module, "canonicalize,cse")
    last = instantiated(module, values)
    if first is not None:  # what a value folds more, another may not
        assert last is not None


@pytest.mark.turns
@pytest.mark.parametrize("passes", ["decompose{chunks=8}", "bucket{rule=ddp},decompose{chunks=8}"])
def test_chunks_of_other_sizes_are_proven(passes: str) -> None:
    """Chunks begin where those before them end, at every size."""
    module = collir.parse("""
        machine @c {
          level node[2] { port = 8 GB/s, latency = 20 us }
          level gpu[2] { port = 16 GB/s, latency = 3 us }
        }
        mesh @m on @c { data = node:2 * gpu:2 }
        func @f(batch = 4, hidden = 4194304)
            (%x: f32[batch, hidden] partial(sum: data), %y: f32[5 * hidden] partial(sum: data))
            -> (f32[batch, hidden], f32[5 * hidden]) on @m {
          %a = all_reduce %x over data
          %b = all_reduce %y over data
          return %a, %b
        }
    """)
    original = module.clone()
    collir.run_passes(module, passes)
    assert "pad" in write(module)
    for values in ({"hidden": 32}, {"batch": 5, "hidden": 64}):
        then, now = instantiated(original, values), instantiated(module, values)
        assert then is not None
        assert now is not None
        verdict = compare(functions_of(then)[0], functions_of(now)[0])
        assert verdict.outcome is Outcome.SAME, verdict.explanation
