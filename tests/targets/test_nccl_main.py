"""NCCL programs with a main report whether their results are right, over the fake; their ranks are
processes, or threads of one process."""

import subprocess
from pathlib import Path

import pytest
from support.harness.hanging import HANG
from support.harness.seeds import fresh, some
from support.programs.collectives import module_of, random_function, random_mesh
from support.targets.on_fake_nccl import STRICT, compile_with_fake
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.dialects.machine import mesh_of
from collir.ir.functions import functions_of
from collir.tools.mpi_run import mpiexec

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
QUICK = ("-O0",)
SLOW = pytest.mark.slow


def run(program: str, ranks: int, options: str, *arguments: str) -> str:
    """Return the output of a program.

    Raises:
        RuntimeError: the program failed.
    """
    if "processes=false" not in options:
        return mpiexec(ranks, [program, *arguments], HANG)
    command = [program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG)
    if done.returncode:
        raise RuntimeError(f"failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def assert_all_ok(module: ModuleOp, options: str, folder: Path) -> None:
    program = compile_with_fake(collir.emit(module, f"nccl{{main=true {options}}}"), folder)
    functions = functions_of(module)
    ranks = mesh_of(functions[0]).devices
    lines = run(program, ranks, options, "2").splitlines()
    assert len(lines) == len(functions)
    for line, function in zip(lines, functions, strict=True):
        assert line.startswith(f"{function.sym_name.data}: ok on {ranks} ranks, best of 2: ")


@pytest.mark.turns
@pytest.mark.parametrize(
    ("name", "passes", "options"),
    some(
        [
            ("sync_gradients", "", "symmetric=true"),
            ("train", "decompose", "processes=false"),
            ("reshard", "decompose", "processes=true"),
            ("hierarchical", "decompose", "processes=false symmetric=true"),
            ("broadcast_weights", "decompose", "symmetric=true"),
        ],
        2,
        "examples",
    ),
)
def test_examples_find_their_results_right(
    name: str, passes: str, options: str, tmp_path: Path
) -> None:
    # Sizes are reduced, because the fake copies every message.
    path = EXAMPLES / f"{name}.coll"
    text = path.read_text(encoding="utf-8")
    text = text.replace("1048576", "4096").replace("4097, 1024", "65, 64")
    module = collir.run_passes(collir.parse(text, str(path)), passes)
    assert_all_ok(module, options, tmp_path)


@pytest.mark.turns
def test_a_collective_alone_is_reported_with_bandwidths(tmp_path: Path) -> None:
    text = (EXAMPLES / "sync_gradients.coll").read_text(encoding="utf-8").replace("1048576", "64")
    code = collir.emit(collir.parse(text), "nccl{main=true processes=false}")
    program = compile_with_fake(code, tmp_path, QUICK)
    line = run(program, 8, "processes=false", "1")
    _, alg, bus = line.split(", ", 3)[1:]
    algbw, busbw = (float(part.split()[1]) for part in (alg, bus))
    assert busbw == pytest.approx(algbw * 1.75, abs=0.02)


@pytest.mark.turns
@pytest.mark.parametrize(
    ("ranks", "seed", "options"),
    some([(1, 0, "processes=true"), (6, 1, "processes=false symmetric=true")], 1),
)
def test_random_programs_find_their_results_right(
    ranks: int, seed: int, options: str, tmp_path: Path
) -> None:
    assert_random_programs_ok(ranks, seed, 15, options, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, 12, 16])
@pytest.mark.parametrize("options", ["processes=true", "symmetric=true", "processes=false"])
def test_many_random_programs_find_their_results_right(
    ranks: int, options: str, tmp_path: Path
) -> None:
    assert_random_programs_ok(ranks, ranks, 40, options, tmp_path)


def assert_random_programs_ok(
    ranks: int, seed: int, count: int, options: str, folder: Path
) -> None:
    rng = fresh(seed)
    nested = "symmetric" not in options
    meshes = [random_mesh(rng, ranks, f"m{index}", weights=0.4) for index in range(3)]
    functions = [
        random_function(rng, rng.choice(meshes), rng.randint(1, 8), f"f{index}", nested=nested)
        for index in range(count)
    ]
    assert_all_ok(module_of(meshes, functions), options, folder)


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
"""

MISTAKES = {
    "another reduction": ("ncclFloat32, ncclSum", "ncclFloat32, ncclMax"),
    "another order of ranks": ("mesh->x_a, &mesh->over_x_a", "-mesh->x_a, &mesh->over_x_a"),
    "another coordinate": ("mesh->x_a = mesh->rank / 2", "mesh->x_a = mesh->rank % 2"),
    "blocks out of order": ("packed_1 + i1 * 16, 8,", "packed_1 + (1 - i1) * 16, 8,"),
    "no division": ("ncclFloat16, ncclAvg", "ncclFloat16, ncclSum"),
    "blocks that stay": ("8, to, p, 8, from,", "8, mesh->rank, p, 8, mesh->rank,"),
    "another operand": ("__bfloat162float(a[i]) +", "__bfloat162float(b[i]) +"),
    "no mask": ("if (mesh->x_a == 0) {\\n    TRY_CUDA", "if (1) {\\n    TRY_CUDA"),
}


@pytest.fixture(scope="module")
def right_code() -> str:
    """Return the code of a program that is right."""
    return collir.emit(collir.parse(PROGRAM), "nccl{main=true processes=false}")


@pytest.mark.turns
def test_the_program_without_mistakes_is_right(right_code: str, tmp_path: Path) -> None:
    lines = run(compile_with_fake(right_code, tmp_path), 4, "processes=false", "1").splitlines()
    assert [line.split(" ")[:2] for line in lines] == [
        [f"{name}:", "ok"] for name in ("f", "mean", "turned", "added")
    ]


def test_every_mistake_changes_the_program(right_code: str) -> None:
    texts = {name: before.replace("\\n", "\n") for name, (before, _) in MISTAKES.items()}
    assert not [name for name, before in texts.items() if before not in right_code]


QUICKLY = ("another order of ranks", "blocks out of order", "another operand")


@pytest.mark.turns
@pytest.mark.parametrize(
    "mistake",
    [mistake if mistake in QUICKLY else pytest.param(mistake, marks=SLOW) for mistake in MISTAKES],
)
def test_a_wrong_program_is_found_wrong(mistake: str, right_code: str, tmp_path: Path) -> None:
    before, after = (text.replace("\\n", "\n") for text in MISTAKES[mistake])
    assert before in right_code
    program = compile_with_fake(right_code.replace(before, after), tmp_path, QUICK)
    with pytest.raises(RuntimeError, match=r"failed:\n(.*\n)*.*: WRONG on 4 ranks"):
        run(program, 4, "processes=false", "1")


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.turns
def test_an_error_of_a_communicator_ends_the_waiting(
    right_code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = compile_with_fake(right_code, tmp_path, QUICK)
    monkeypatch.setenv("FAKE_ASYNC_ERROR", "1")
    with pytest.raises(RuntimeError, match=r"f: rank \d: an error of NCCL"):
        run(program, 4, "processes=false", "1")


@pytest.mark.turns
@pytest.mark.parametrize("ranks", [1, 5])
def test_a_wrong_number_of_ranks_is_said(ranks: int, tmp_path: Path) -> None:
    code = collir.emit(collir.parse(PROGRAM), "nccl{main=true}")
    program = compile_with_fake(code, tmp_path, QUICK)
    with pytest.raises(RuntimeError, match=f"failed on {ranks} ranks:\nrun this on 4 ranks\n$"):
        mpiexec(ranks, [program], HANG)


# --- called from a program of one's own ---------------------------------------------------------

CALLER = """
#include <cstdio>
#include <cstdlib>
#include <mpi.h>
#define REQUIRE(what) do { if (!(what)) { fprintf(stderr, "%s\\n", #what); \\
                           MPI_Abort(MPI_COMM_WORLD, 1); } } while (0)
int main(int argc, char **argv)
{
  int rank, size, mine = -1;
  ncclUniqueId id;
  ncclComm_t world, half;
  cudaStream_t stream;
  float host[32], *g, *s, *r;
  struct m_mesh *mesh, *other;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  REQUIRE(size == 8);
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  REQUIRE(ncclCommInitRank(&world, size, id, rank) == ncclSuccess);
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  /* The odd ranks, and the even ones from the last to the first. */
  REQUIRE(ncclCommSplit(world, rank % 2, rank % 2 ? rank : -rank, &half, NULL) == ncclSuccess);
  REQUIRE(ncclCommUserRank(half, &mine) == ncclSuccess);
  REQUIRE(m_create(world, &mesh) == ncclInvalidArgument);
  REQUIRE(!mesh && m_destroy(mesh) == ncclSuccess);
  cudaMalloc(&g, 128);
  cudaMalloc(&s, 64);
  cudaMalloc(&r, 128);
  for (int times = 0; times < 3; ++times) {
    REQUIRE(m_create(half, &mesh) == ncclSuccess);
    REQUIRE(m_create(half, &other) == ncclSuccess);
    for (int i = 0; i < 32; ++i) host[i] = (float)(rank % 2 ? i : 2 * i + mine);
    cudaMemcpy(g, host, 128, cudaMemcpyHostToDevice);
    REQUIRE(f(other, g, s, r, stream) == ncclSuccess);
    REQUIRE(f(mesh, g, s, r, stream) == ncclSuccess);
    REQUIRE(m_synchronize(mesh, stream) == ncclSuccess);
    cudaMemcpy(host, r, 128, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 32; ++i) REQUIRE(host[i] == (float)(rank % 2 ? 4 * i : 8 * i + 6));
    REQUIRE(m_destroy(mesh) == ncclSuccess);
    REQUIRE(m_destroy(other) == ncclSuccess);
  }
  cudaFree(g);
  cudaFree(s);
  cudaFree(r);
  cudaStreamDestroy(stream);
  ncclCommDestroy(half);
  ncclCommDestroy(world);
  MPI_Finalize();
  return 0;
}
"""


@pytest.mark.turns
@pytest.mark.parametrize("target", ["nccl", "nccl{symmetric=true}"])
def test_the_functions_work_on_any_communicator_of_the_right_size(
    target: str, tmp_path: Path
) -> None:
    code = collir.emit(collir.parse(PROGRAM), target)
    mpiexec(8, [compile_with_fake(code + CALLER, tmp_path, STRICT)], HANG)
