"""Code for values of any size computes every element as the numpy executor does."""

import random
import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from support.harness.seeds import chosen as sample
from support.harness.seeds import fresh, some
from support.programs.collectives import module_of, random_function, random_mesh, values_that_fit
from support.programs.one_step import collectives, local_operations, meshes_of
from support.semantics.checks import functions_of
from support.targets.on_any_size import code_for_any_size, differences_at
from support.targets.on_ranks import FLAGS
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects import coll
from collir.dialects.coll import OPERATIONS
from collir.ir.alternatives import place_of
from collir.ir.diagnostics import DiagnosticError
from collir.tools.mpi_run import compile_c

TARGETS = ("mpi", "nccl")


def some_async(module: ModuleOp, rng: random.Random) -> None:
    """Mark some of the collectives of a module ``async``."""
    for op in module.walk():
        able = isinstance(op, coll.COLLECTIVES) and not isinstance(op, OPERATIONS["permute"])
        if able and rng.random() < 0.5:
            op.properties["async"] = UnitAttr()


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("ranks", [4, 6])
def test_every_operation_works_on_elements_of_any_width(
    ranks: int, target: str, tmp_path: Path
) -> None:
    functions = [*list(collectives(ranks))[:: 2 if ranks == 4 else 5], *local_operations(ranks)]
    functions = [function for function in functions if function.args]
    functions = sample(functions, len(functions) // 2, ranks, target)
    module = module_of(meshes_of(ranks), functions)
    assert differences_at(module, functions, 3, tmp_path, target) == []


@pytest.mark.turns
@pytest.mark.parametrize("target", some(TARGETS, 1, "random"))
@pytest.mark.parametrize(
    ("ranks", "seed"),
    [(6, 2), *(pytest.param(*more, marks=pytest.mark.slow) for more in ((4, 1), (8, 3)))],
)
def test_random_programs_work_on_elements_of_any_width(
    ranks: int, seed: int, target: str, tmp_path: Path
) -> None:
    rng = fresh(seed)
    meshes = [random_mesh(rng, ranks, f"m{index}") for index in range(3)]
    functions = [
        random_function(rng, rng.choice(meshes), 8, f"f{index}", parametric=0)
        for index in range(20)
    ]
    functions = [function for function in functions if function.args]
    module = module_of(meshes, functions)
    some_async(module, rng)
    assert differences_at(module, functions, rng.choice([1, 2, 5]), tmp_path, target) == []


def has_a_form(module: ModuleOp) -> bool:
    """Return whether all functions of a module are well typed for all values of their sizes."""
    try:
        code_for_any_size(module, "mpi")
    except DiagnosticError as error:
        assert all(
            diagnostic.message.startswith("for any ")
            or "needs a number" in diagnostic.message
            or "divides by a difference" in diagnostic.message
            for diagnostic in error.diagnostics
        )
        return False
    return True


@pytest.mark.turns
@pytest.mark.parametrize("target", some(TARGETS, 1, "parameters"))
@pytest.mark.parametrize(
    ("ranks", "seed"),
    [(4, 2), *(pytest.param(*more, marks=pytest.mark.slow) for more in ((6, 1), (8, 3)))],
)
def test_random_programs_take_their_size_parameters(
    ranks: int, seed: int, target: str, tmp_path: Path
) -> None:
    rng = fresh(seed, "parameters")
    meshes = [random_mesh(rng, ranks, f"m{index}") for index in range(3)]
    functions: list[FuncOp] = []
    values: dict[str, dict[str, int]] = {}
    for index in range(40):
        mesh, name = rng.choice(meshes), f"f{index}"
        function = random_function(rng, mesh, 8, name, parametric=1)
        if (
            len(functions) < 12
            and function.args
            and has_a_form(module_of([mesh], [function.clone()]))
        ):
            functions.append(function)
            values[name] = values_that_fit(rng, mesh, function, [])
    assert len(functions) > 5
    module = module_of(meshes, functions)
    some_async(module, rng)
    assert differences_at(module, functions, 1, tmp_path, target, values) == []


@pytest.mark.turns
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_random_programs_call_functions_at_sizes_of_their_own(seed: int, tmp_path: Path) -> None:
    rng = fresh(seed, "calls")
    mesh = random_mesh(rng, 4)
    functions: list[FuncOp] = []
    values: dict[str, dict[str, int]] = {}
    for index in range(24):
        # Those that are called keep their defaults, which calls may leave out.
        callee = rng.choice(functions[:3]) if len(functions) >= 3 else None
        call = callee and (callee, values_that_fit(rng, mesh, callee, functions))
        function = random_function(rng, mesh, 6, f"f{index}", parametric=0.8, callee=call)
        others = [other.clone() for other in functions]
        if function.args and has_a_form(module_of([mesh], [*others, function.clone()])):
            if callee:
                values[function.sym_name.data] = values_that_fit(rng, mesh, function, functions)
            functions.append(function)
        if len(functions) == 8:
            break
    assert len(functions) > 3
    module = module_of([mesh], functions)
    assert differences_at(module, functions, 1, tmp_path, "mpi", values) == []


SYNC = """
machine @two {
  level node[2] { port = 8 GB/s, latency = 20 us }
  level gpu[2]  { port = 30 GB/s, latency = 3 us }
}
mesh @m on @two { data = node:2 * gpu:2 }
func @sync(%g: f32[32] partial(sum: data)) -> f32[32] on @m {
  %r = all_reduce %g over data
  return %r
}
"""


@cache
def chosen() -> ModuleOp:
    """Return a function, and the functions that take its place for larger values."""
    return collir.run_passes(collir.parse(SYNC), "decompose{algorithm=ring up_to=1000000 chunks=4}")


@pytest.mark.turns
@pytest.mark.parametrize("target", TARGETS)
def test_every_function_for_some_width_computes_the_same(target: str, tmp_path: Path) -> None:
    module = chosen()
    functions = functions_of(module)
    assert len(functions) > 2
    assert differences_at(module, functions, 7, tmp_path, target) == []


def widths(module: ModuleOp) -> list[tuple[str, int]]:
    """Return the functions, and the width from which on each is called."""
    return [
        (function.sym_name.data, (place_of(function) or ("", 1))[1])
        for function in functions_of(module)
    ]


def test_thresholds_are_where_the_fastest_changes() -> None:
    module = chosen()
    costs = {cost.name: cost for cost in collir.simulate(module, algorithm="ring")}
    starts = [*widths(module), ("", 1000000)]
    for (name, least), (_, end) in pairwise(starts):
        for width in {least, (least + end) // 2, end - 1}:
            times = {function: cost.scaled(width).time for function, cost in costs.items()}
            assert times[name] <= min(times.values()) * 1.002


CHOICE = """
machine @two {
  level node[2] { port = 8 GB/s, latency = 20 us }
  level gpu[2]  { port = 12 GB/s, latency = 3 us }
}
mesh @m on @two { data = node:2 * gpu:2 }
func @sync(n = 8)(%g: f32[n, 2] partial(sum: data)) -> f32[n, 2] on @m {
  %r = all_reduce %g over data
  return %r
}
func @sync_2(n = 8)(%g: f32[n, 2] partial(sum: data)) -> f32[n, 2] on @m for @sync from 3 {
  %a = reduce_scatter %g over data dim 0
  %r = all_gather %a over data dim 0
  return %r
}
func @layers(layers = 3, batch = 4, hidden = 6)
    (%x: f32[batch, hidden], %w: f32[layers, hidden, batch@data], %b: f32[2 * hidden, batch])
    -> (f32[batch, hidden], f32[layers, batch, hidden], f32[hidden, batch + 1]) on @m {
  %y, %s = repeat layers carry(%h = %x) slice(%v = %w) reverse {
    %f = all_gather %v over data dim 1
    %t = transpose %f order [1, 0]
    %n = add %h, %t
    yield %n, %t
  }
  %c = pad %b dim 0 low -hidden
  %d = pad %c dim 1 high 1 value 2
  return %y, %s, %d
}
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "values",
    [
        {"sync": {"n": 23}, "layers": {"layers": 1, "batch": 4, "hidden": 1}},
        {"sync": {"n": 26}, "layers": {"layers": 2, "batch": 8, "hidden": 3}},
        pytest.param(
            {"sync": {"n": 24}, "layers": {"layers": 5, "batch": 4, "hidden": 7}},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_functions_compute_what_they_do_at_the_values_of_their_arguments(
    target: str, values: dict[str, dict[str, int]], tmp_path: Path
) -> None:
    module = collir.parse(CHOICE)
    functions = [f for f in functions_of(module) if f.sym_name.data in values]
    assert differences_at(module, functions, 1, tmp_path, target, values) == []


MAIN = """
int main(void)
{
  static const size_t calls[][3] = {%s};
  char text[MPI_MAX_ERROR_STRING];
  int length;
  MPI_Init(NULL, NULL);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i) {
    int err = f(NULL, NULL, NULL, calls[i][0], calls[i][1], calls[i][2]);
    if (err == MPI_SUCCESS) return 1;
    MPI_Error_string(err, text, &length);
    puts(text);
    MPI_Error_class(err, &err);
    if (err != MPI_ERR_ARG) return 1;
  }
  MPI_Finalize();
  return 0;
}
"""


def test_sizes_that_are_none_are_refused_before_anything_is_done(tmp_path: Path) -> None:
    module = collir.parse(
        """
        machine @box { level node[4] { port = 8 GB/s, latency = 20 us } }
        mesh @m on @box { data = node:4 }
        func @f(batch = 8, hidden = 12, heads = 3)
            (%x: f32[batch@data, hidden]) -> f32[batch, heads, hidden / heads - 1] on @m {
          %a = all_gather %x over data dim 0
          %b = reshape %a to [batch, heads, hidden / heads]
          %c = pad %b dim 2 high -1
          return %c
        }
        """
    )
    wrong = {
        (6, 12, 3): "batch / 4 is no size",
        (0, 12, 3): "batch / 4 is no size",
        (8, 13, 3): "hidden / heads is no size",
        (8, 12, 0): "hidden / heads is no size",
        (8, 3, 3): "hidden / heads - 1 is no size",
        (8, 3 * 2**60, 3): "4 * batch * heads + 4 * batch * hidden is too large",
        (2**63, 2, 1): "batch / 4 is no size",
    }
    calls = ", ".join(f"{{{a}u, {b}u, {c}u}}" for a, b, c in wrong)
    source = tmp_path / "program.c"
    source.write_text(code_for_any_size(module, "mpi") + MAIN % calls)
    compile_c(source, tmp_path / "program", FLAGS)
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(wrong.values())
