"""Programs in C and C++ that include the headers of emitted code are compiled and linked."""

import subprocess
from pathlib import Path

import pytest
from support.targets.on_fake_nccl import FAKE, without_launches

import collir
from collir.tools.mpi_run import find, mpiexec

EXAMPLES = Path(__file__).parents[2] / "examples"
STRICT = ("-Wall", "-Wextra", "-Werror")

SUM = """
machine @box { level node[2] { port = 8 GB/s, latency = 20 us } }
mesh @m on @box { data = node:2 }
func @total(%x: f32[4] partial(sum: data)) -> f32[4] on @m {
  %r = all_reduce %x over data
  return %r
}
"""

ON_MPI = """
#include "total.h"
#include <cstdio>

int main()
{
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  float mine[4] = {1, 2, 3, float(rank)}, sum[4] = {};
  m_mesh *mesh = nullptr;
  if (m_create(MPI_COMM_WORLD, &mesh) || total(mesh, mine, sum)) return 1;
  if (rank == 0) std::printf("%g %g %g %g", sum[0], sum[1], sum[2], sum[3]);
  m_destroy(mesh);
  MPI_Finalize();
}
"""

ON_NCCL = """
#include "total.h"

int main(int arguments, char **)
{
  if (arguments < 2) return 0; /* linked, not run */
  m_mesh *mesh = nullptr;
  return m_create(nullptr, &mesh) + total(mesh, nullptr, nullptr, nullptr) +
         m_synchronize(mesh, nullptr) + m_destroy(mesh);
}
"""


def compile_with(compiler: str, folder: Path, *words: str) -> None:
    """Compile in a folder, and check that there are no warnings."""
    command = [find(compiler), *STRICT, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_program_in_cpp_calls_functions_in_c(tmp_path: Path) -> None:
    module = collir.parse(SUM)
    (tmp_path / "total.c").write_text(collir.emit(module, "mpi"))
    (tmp_path / "total.h").write_text(collir.emit(module, "mpi{header=true}"))
    (tmp_path / "main.cpp").write_text(ON_MPI)
    compile_with("mpicc", tmp_path, "-std=c99", "-c", "total.c")
    compile_with("mpicxx", tmp_path, "main.cpp", "total.o", "-o", "program")
    assert mpiexec(2, [str(tmp_path / "program")]) == "2 4 6 1"


@pytest.mark.slow
def test_a_program_in_cpp_is_linked_with_functions_for_nccl(tmp_path: Path) -> None:
    module = collir.parse(SUM)
    (tmp_path / "total.cpp").write_text(without_launches(collir.emit(module, "nccl")))
    (tmp_path / "total.h").write_text(collir.emit(module, "nccl{header=true}"))
    (tmp_path / "main.cpp").write_text(ON_NCCL)
    words = ("-std=c++17", f"-I{FAKE}", "main.cpp", "total.cpp", str(FAKE / "fake.cpp"))
    compile_with("mpicxx", tmp_path, *words, "-o", "program")
    subprocess.run([str(tmp_path / "program")], check=True)


@pytest.mark.turns
@pytest.mark.parametrize(
    ("file", "sized"), [("hierarchical", " sized=true"), ("broadcast_weights", "")]
)
def test_declarations_are_those_of_the_definitions(file: str, sized: str, tmp_path: Path) -> None:
    module = collir.run_passes(collir.parse(EXAMPLES / f"{file}.coll"), "decompose{strategy=flat}")
    for target, suffix in (("mpi", "c"), ("nccl", "cpp")):
        header = collir.emit(module, f"{target}{{header=true{sized}}}")
        code = collir.emit(module, f"{target}{{sized={'true' if sized else 'false'}}}")
        text = without_launches(f"{header}\n{code}").replace("#pragma once\n", "")
        (tmp_path / f"both.{suffix}").write_text(text)
    compile_with("mpicc", tmp_path, "-std=c99", "-fsyntax-only", "-Wmissing-prototypes", "both.c")
    declared = ("-fsyntax-only", "-Wmissing-declarations", "both.cpp")
    compile_with("mpicxx", tmp_path, "-std=c++17", f"-I{FAKE}", *declared)
