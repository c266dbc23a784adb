"""Programs with a main run, and report whether their results are right."""

from pathlib import Path

import pytest
from support.harness.hanging import HANG
from support.harness.seeds import fresh, some
from support.programs.collectives import module_of, random_function, random_mesh
from support.targets.on_ranks import FLAGS
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.dialects.machine import mesh_of
from collir.ir.functions import functions_of
from collir.tools.mpi_run import compile_c, mpiexec

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def compiled(text: str, folder: Path) -> str:
    """Return the path of the program that is compiled from a text."""
    source = folder / "program.c"
    source.write_text(text, encoding="utf-8")
    compile_c(source, folder / "program", FLAGS)
    return str(folder / "program")


def output_of(module: ModuleOp, folder: Path) -> list[str]:
    """Return the lines that the main of a module prints on the ranks of its mesh."""
    program = compiled(collir.emit(module, "mpi{main=true}"), folder)
    ranks = mesh_of(functions_of(module)[0]).devices
    return mpiexec(ranks, [program, "2"], HANG).splitlines()


def assert_all_ok(module: ModuleOp, folder: Path) -> None:
    lines = output_of(module, folder)
    functions = functions_of(module)
    assert len(lines) == len(functions)
    for line, function in zip(lines, functions, strict=True):
        ranks = mesh_of(function).devices
        assert line.startswith(f"{function.sym_name.data}: ok on {ranks} ranks, best of 2: ")


@pytest.mark.turns
@pytest.mark.parametrize("passes", ["", "decompose"])
@pytest.mark.parametrize(
    "name", some(["sync_gradients", "reshard", "hierarchical", "broadcast_weights"], 1)
)
def test_examples_find_their_results_right(name: str, passes: str, tmp_path: Path) -> None:
    module = collir.run_passes(collir.parse(EXAMPLES / f"{name}.coll"), passes)
    assert_all_ok(module, tmp_path)


@pytest.mark.turns
@pytest.mark.parametrize(("ranks", "seed"), some([(1, 0), (4, 1), (6, 2), (9, 3), (12, 4)], 1))
def test_random_programs_find_their_results_right(ranks: int, seed: int, tmp_path: Path) -> None:
    rng = fresh(seed)
    meshes = [random_mesh(rng, ranks, f"m{index}", weights=0.3) for index in range(3)]
    functions = [
        random_function(rng, rng.choice(meshes), rng.randint(1, 8), f"f{index}")
        for index in range(30)
    ]
    assert_all_ok(module_of(meshes, functions), tmp_path)


# --- programs that are wrong --------------------------------------------------------------------

PROGRAM = """
machine @four { level a[2] { port = 1 GB/s, latency = 1 us }
                level b[2] { port = 1 GB/s, latency = 1 us } }
mesh @m on @four { x = a:2, y = b:2 }

func @f(%g: f32[8, 4] partial(sum: x, y)) -> (f32[8, 4@x], f32[8, 4]) on @m {
  %s = reduce_scatter %g over x dim 1
  %r = all_reduce %s over y
  %b = all_gather %r over x dim 1
  return %r, %b
}
func @mean(%g: f16[8, 4@x] partial(avg: y)) -> f16[8, 4@x] root(y) on @m {
  %r = reduce %g over y
  return %r
}
func @turned(%g: i32[8@x, 4@y]) -> i32[4@y, 8@x] on @m {
  %p = permute %g to i32[8@y, 4@x]
  %q = permute %p to i32[8@x, 4@y]
  %r = transpose %q order [1, 0]
  return %r
}
func @added(%x: bf16[8] partial(max: x), %y: bf16[8]) -> bf16[8] partial(sum: x) on @m {
  %r = all_reduce %x over x
  %s = add %r, %y
  %t = mask %s over x op sum
  return %t
}
func @rounded(%x: f32[8@x]) -> f32[8] on @m {
  %s = scale %x by 0.1
  %r = all_gather %s over x dim 0
  return %r
}
"""

MISTAKES = {
    "another reduction": ("MPI_FLOAT, MPI_SUM", "MPI_FLOAT, MPI_MAX"),
    "another order of ranks": ("mesh->x_a, &mesh->over_x_a", "-mesh->x_a, &mesh->over_x_a"),
    "another group": (
        "mesh->x_a,\n                     mesh->y_b, &mesh->over_y_b",
        "mesh->y_b,\n                     mesh->x_a, &mesh->over_y_b",
    ),
    "another coordinate": ("mesh->x_a = mesh->rank / 2", "mesh->x_a = mesh->rank % 2"),
    "a collective left out": ("TRY(all_reduce(s, r,", "if (0) TRY(all_reduce(s, r,"),
    "blocks out of order": (
        "memcpy(b + i0 * 4 + i1 * 2, packed_1",
        "memcpy(b + i0 * 4 + (1 - i1) * 2, packed_1",
    ),
    "no division": (" / 2.0f", " / 1.0f"),
    "no numbers": (" / 2.0f", " * (0.0f / 0.0f)"),
    "no numbers where one rounds": ("s[i] = x[i]", "s[i] = 0.0f / 0.0f * x[i]"),
    "a division only where it does not count": ("if (mesh->y_b == 0)\n", "if (mesh->y_b)\n"),
    "blocks that stay": ("8, to, p, 8, from,", "8, mesh->rank, p, 8, mesh->rank,"),
    "indices the other way round": (
        "transpose_4(r, 4, q, 2, 2, 4)",
        "transpose_4(r, 4, q, 1, 2, 4)",
    ),
    "another operand": ("bf16_load(r[i]) + bf16_load(y[i])", "bf16_load(r[i]) + bf16_load(r[i])"),
    "no mask": ("if (mesh->x_a == 0) {\n    memcpy(t", "if (1) {\n    memcpy(t"),
}


@pytest.fixture(scope="module")
def right_code() -> str:
    """Return the C of a program that is right."""
    return collir.emit(collir.parse(PROGRAM), "mpi{main=true}")


def test_the_program_without_mistakes_is_right(right_code: str, tmp_path: Path) -> None:
    lines = mpiexec(4, [compiled(right_code, tmp_path), "1"], HANG).splitlines()
    assert [line.split(" ")[:2] for line in lines] == [
        [f"{name}:", "ok"] for name in ("f", "mean", "turned", "added", "rounded")
    ]


def test_every_mistake_changes_the_program(right_code: str) -> None:
    assert not [name for name, (before, _) in MISTAKES.items() if before not in right_code]


@pytest.mark.turns
@pytest.mark.parametrize("mistake", some(list(MISTAKES), 4))
def test_a_wrong_program_is_found_wrong(mistake: str, right_code: str, tmp_path: Path) -> None:
    before, after = MISTAKES[mistake]
    assert before in right_code
    program = compiled(right_code.replace(before, after), tmp_path)
    with pytest.raises(RuntimeError, match=r"failed on 4 ranks:\n(.*\n)*.*: WRONG on 4 ranks"):
        mpiexec(4, [program, "1"], HANG)


def test_a_wrong_program_that_is_not_checked_says_so(right_code: str, tmp_path: Path) -> None:
    program = compiled(right_code.replace("MPI_SUM", "MPI_MAX"), tmp_path)
    lines = mpiexec(4, [program, "1", "0"], HANG).splitlines()
    assert all(": not checked on 4 ranks" in line for line in lines)


@pytest.mark.parametrize("ranks", [1, 3, 5])
def test_a_wrong_number_of_ranks_is_said(ranks: int, right_code: str, tmp_path: Path) -> None:
    program = compiled(right_code, tmp_path)
    with pytest.raises(RuntimeError, match=f":\nmesh @m needs 4 ranks, has {ranks}\n$"):
        mpiexec(ranks, [program], HANG)


# --- called from a program of one's own ---------------------------------------------------------

CALLER = """
#include <stdio.h>
#define REQUIRE(what) do { if (!(what)) { fprintf(stderr, "%s\\n", #what); \\
                           MPI_Abort(MPI_COMM_WORLD, 1); } } while (0)
int main(int argc, char **argv)
{
  MPI_Comm half;
  struct m_mesh *mesh, *other;
  int rank, mine, size = 0;
  float g[32], s[16], r[32];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  REQUIRE(size == 8);
  int err = m_create(MPI_COMM_WORLD, &mesh), length;
  char text[MPI_MAX_ERROR_STRING];
  MPI_Error_string(err, text, &length);
  REQUIRE(!strcmp(text, "mesh @m needs 4 ranks, has 8"));
  REQUIRE(MPI_Error_class(err, &err) == MPI_SUCCESS && err == MPI_ERR_COMM);
  REQUIRE(mesh == NULL);
  REQUIRE(m_create(MPI_COMM_SELF, &mesh) != MPI_SUCCESS);
  /* The odd ranks, and the even ones from the last to the first. */
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank % 2 ? rank : -rank, &half);
  MPI_Comm_rank(half, &mine);
  for (int times = 0; times < 3; ++times) {
    REQUIRE(m_create(half, &mesh) == MPI_SUCCESS);
    REQUIRE(m_create(half, &other) == MPI_SUCCESS);
    for (int i = 0; i < 32; ++i) g[i] = rank % 2 ? i : 2 * i + mine;
    for (int again = 0; again < 2; ++again) {
      REQUIRE(f(again ? other : mesh, g, s, r) == MPI_SUCCESS);
      for (int i = 0; i < 32; ++i) REQUIRE(r[i] == (rank % 2 ? 4 * i : 8 * i + 6));
    }
    m_destroy(mesh);
    REQUIRE(f(other, g, s, r) == MPI_SUCCESS);
    m_destroy(other);
    m_destroy(NULL);
  }
  MPI_Comm_free(&half);
  MPI_Finalize();
  return 0;
}
"""


def test_the_functions_work_on_any_communicator_of_the_right_size(tmp_path: Path) -> None:
    code = collir.emit(collir.parse(PROGRAM), "mpi")
    mpiexec(8, [compiled(code + CALLER, tmp_path)], HANG)
