"""The emitted C compiles without a warning, and has safe names."""

import re
from pathlib import Path

import pytest
from support.harness.seeds import fresh, some
from support.programs.collectives import module_of, random_function, random_mesh
from support.programs.one_step import MESHES, collectives, local_operations, meshes_of
from support.semantics.checks import functions_of
from support.targets.on_ranks import differences

import collir
from collir.targets.code.c_text import name_problem, variables
from collir.tools.mpi_run import compile_c

HERE = Path(__file__).parent
FIXED = "decompose{strategy=rs-ar-ag}"
EXAMPLES = HERE.parent.parent / "examples"
STRICT = ("-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wvla", "-Werror", "-pedantic")


def compiles(text: str, folder: Path, *flags: str) -> None:
    """Check that C compiles without a warning."""
    source = folder / "program.c"
    source.write_text(text, encoding="utf-8")
    compile_c(source, folder / "program.o", ("-c", *STRICT, *flags))


@pytest.mark.turns
@pytest.mark.parametrize("standard", some(["-std=c99", "-std=gnu17"], 1))
def test_random_programs_compile_without_a_warning(standard: str, tmp_path: Path) -> None:
    rng = fresh(0)
    meshes = [random_mesh(rng, name=f"m{index}", weights=0.3) for index in range(10)]
    functions = [
        random_function(rng, rng.choice(meshes), rng.randint(1, 10), f"f{index}")
        for index in range(40)
    ]
    compiles(collir.emit(module_of(meshes, functions), "mpi"), tmp_path, "-O2", standard)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 6])
def test_a_main_compiles_without_a_warning(ranks: int, tmp_path: Path) -> None:
    functions = list(local_operations(ranks))[::3]
    if ranks > 1:
        functions += list(collectives(ranks))[::3]
    text = collir.emit(module_of(meshes_of(ranks), functions), "mpi{main=true}")
    compiles(text, tmp_path, "-O1")


def test_every_mesh_compiles(tmp_path: Path) -> None:
    """Meshes without communicators compile too."""
    rng = fresh(1)
    functions = [random_function(rng, mesh, 1, f"f_{mesh.name}") for mesh in MESHES]
    compiles(collir.emit(module_of(MESHES, functions), "mpi"), tmp_path)


LARGE = """
machine @four { level a[2] { port = 1 GB/s, latency = 1 us }
                level b[2] { port = 1 GB/s, latency = 1 us } }
mesh @m on @four { x = a:2 * b:2 }

func @f(%g: i8[4, 8589934592] partial(sum: x)) -> (i8[4, 8589934592], i8[8589934592, 4@x]) on @m {
  %s = reduce_scatter %g over x.b dim 1
  %r = all_reduce %s over x.a
  %m = mask %r over x.a op sum
  %q = all_reduce %m over x.a
  %a = slice %q over x.a dim 1
  %b = all_gather %a over x.a dim 1
  %c = all_gather %b over x.b dim 1
  %p = pad %c dim 1 low -4294967296 high 4294967296 value 1
  %d = concat %c, %p dim 1
  %e = pad %d dim 1 high -8589934592
  %t = transpose %e order [1, 0]
  %u = slice %t over x dim 0
  %v = all_to_all %u over x dim 0 to 1
  %k = add %v, %v
  %w = scale %k by 3
  return %e, %w
}
"""


def test_sizes_beyond_an_int_are_not_computed_in_ints(tmp_path: Path) -> None:
    text = collir.emit(collir.parse(LARGE), "mpi")
    compiles(text, tmp_path, "-O2", "-Wconversion", "-Wno-sign-conversion")
    offsets = re.findall(r"\+ \d+ \* (.*)mesh->x_a", text)
    assert offsets == ["(size_t)", "(size_t)"], "where two slices start"


# --- names --------------------------------------------------------------------------------------

NAMES = """
machine @k { level int[2] { port = 1 GB/s, latency = 1 us }
             level b_c[2] { port = 1 GB/s, latency = 1 us }
             level c[2]   { port = 1 GB/s, latency = 1 us } }
mesh @int on @k { rank = int:2, comm = b_c:2, over_rank_int = c:2 }
mesh @clash on @k { a = int:2 * b_c:2, a_b = c:2 }

func @m(%m: f32[8] partial(sum: a.b_c, a_b.c)) -> f32[8] on @clash {
  %mesh_clash = all_reduce %m over a.b_c
  %TRY = all_reduce %mesh_clash over a_b.c
  return %TRY
}
func @f16_sum(%int: f16[8] partial(sum: rank, comm), %err: f16[8]) -> (f16[8], f16[8]) on @int {
  %sum_of_f16 = all_reduce %int over comm, rank
  %main = add %sum_of_f16, %err
  return %main, %sum_of_f16
}
func @in(%i: i32[8, 4, 2], %i0: i32[8@rank], %i1: i32[8@comm]) -> i32[2, 4, 8] on @int {
  %i2 = transpose %i order [2, 1, 0]
  %to = permute %i0 to i32[8@comm]
  %from = permute %i1 to i32[8@rank]
  return %i2
}
func @out(%in: f32[8], %out: f32[8], %out0: f32[8]) -> (f32[8], f32[8], f32[8]) on @int {
  %out_ = add %in, %out
  return %out_, %out0, %out
}
func @x(%x: f32[8] partial(max: rank), %y: f32[8]) -> f32[8] on @int {
  %0 = add %x, %y
  %v0 = scale %0 by -1
  %1 = scale %v0 by -1
  %memcpy = all_reduce %1 over rank
  return %memcpy
}
func @buffers(%_: f32[8@rank], %__: f32[8@rank]) -> f32[8] on @int {
  %NULL = add %_, %__
  %INT_MAX = all_gather %NULL over rank dim 0
  %unix = scale %INT_MAX by 2
  %linux = add %unix, %unix
  %size_t = scale %linux by 0.5
  %M_PI = scale %size_t by 0.5
  return %M_PI
}
"""


@pytest.mark.turns
@pytest.mark.parametrize("standard", ["-std=c99", "-std=gnu17"])
def test_any_name_of_a_value_or_an_axis_compiles(standard: str, tmp_path: Path) -> None:
    module = collir.parse(NAMES)
    compiles(collir.emit(module, "mpi"), tmp_path, standard)
    assert differences(module, functions_of(module), tmp_path, ("-O1", standard)) == []


def test_variables_are_distinct_and_hide_nothing_that_is_used() -> None:
    names = [
        "x",
        "0",
        "v0",
        "i",
        "i_",
        "i7",
        "index",
        "send",
        "size_t",
        "NULL",
        "W_Q",
        "a.b",
        "a_b",
    ]
    assert variables(names) == [
        *("x", "v0", "v0_2", "i_", "i__2", "i7_", "index", "send", "size_t_", "NULL_"),
        *("W_Q", "a_b", "a_b_2"),
    ]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("for", "keyword of C"),
        ("bool", "keyword of C"),
        ("all_reduce", "name of the emitted code"),
        ("send", "name of the C library"),
        ("exp", "name of the C library"),
        ("MPI_Send", "names that start with 'MPI_' are reserved"),
        ("_f", "names that start with '_' are reserved"),
        ("mesh_m", "names that start with 'mesh_' are reserved"),
        ("größe", "letters, digits and _"),
    ],
)
def test_names_that_no_function_can_have(name: str, problem: str) -> None:
    assert problem in (name_problem(name) or "")


@pytest.mark.parametrize("name", ["sync", "step", "update", "W_1", "f16_sum", "to_root", "x"])
def test_names_that_a_function_can_have(name: str) -> None:
    assert name_problem(name) is None


def test_devices_of_a_large_mesh_cost_no_code() -> None:
    """The text for 131,072 devices is as long as for 8, up to the numbers in it."""
    small = (EXAMPLES / "sync_gradients.coll").read_text(encoding="utf-8")
    large = small.replace("node[2]", "node[16384]").replace("gpu[4]", "gpu[8]")
    large = large.replace("node:2 * gpu:4", "node:16384 * gpu:8")
    lengths = [
        len(re.sub(r"\d+", "", collir.emit(collir.run_passes(collir.parse(text), FIXED), "mpi")))
        for text in (small, large)
    ]
    assert lengths[0] == lengths[1]


def test_no_name_ends_a_comment(tmp_path: Path) -> None:
    """MLIR allows any name for a machine, an axis or a level."""
    odd = "x */ int evil; /* \\\\ // \\22"
    source = "machine @k { level a[2] { port = 1 GB/s, latency = 1 us }\n"
    source += "level b[2] { port = 1 GB/s, latency = 1 us } }\n"
    source += "mesh @m on @k { x = a:2, y = b:2 }\n"
    source += "func @f(%x: f32[4@x]) -> f32[4] on @m {\n  %r = all_gather %x over x dim 0\n"
    source += "  return %r\n}\n"
    text = collir.emit(collir.parse(source), "mlir").replace("@k", f'@"{odd}"')
    for name in ("b", "y"):
        text = text.replace(f'<"{name}"', f'<"{odd}{name}"')
    path = tmp_path / "odd.mlir"
    path.write_text(text, encoding="utf-8")
    code = collir.emit(collir.parse(path), "mpi")
    assert "evil" in code
    compiles(code, tmp_path)
