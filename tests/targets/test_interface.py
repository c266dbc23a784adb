"""The interface of emitted C: functions in two parts, several handles and files in one program."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.harness.hanging import HANG
from support.harness.seeds import chosen as sample
from support.harness.seeds import fresh
from support.programs.collectives import module_of, random_function, random_mesh
from support.programs.one_step import collectives, local_operations, meshes_of
from support.targets.async_code import able
from support.targets.on_ranks import differences
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp

import collir
from collir.targets.code.c_file import Interface
from collir.targets.code.mpi_file import MpiFile
from collir.targets.code.mpi_harness import emit_harness
from collir.tools import mpi_run
from collir.tools.mpi_run import compile_c, mpiexec

STRICT = ("-O1", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-pedantic", "-Werror")


def in_parts(module: ModuleOp, functions: Sequence[FuncOp]) -> str:
    """Return the harness of functions, which starts each of them and then waits for it."""
    whole, plain = emit_harness(module, functions), MpiFile(module).text()
    assert whole.startswith(plain)
    call = re.compile(r"return (\w+)\((mesh_\w+)(.*)\);")
    parts = r"int err = \1_start(\2\3);\n  return err == MPI_SUCCESS ? \1_wait(\2) : err;"
    code = MpiFile(module, interface=Interface(parts=True)).text()
    rest = call.sub(parts, whole[len(plain) :])
    assert rest.count("_wait(") == len(functions)
    return code + rest


@pytest.mark.turns
@pytest.mark.parametrize("seed", [1, *(pytest.param(s, marks=pytest.mark.slow) for s in (2, 3, 4))])
def test_random_programs_in_two_parts(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = fresh(seed, "parts")
    meshes = [random_mesh(rng, 4, f"m{index}", weights=0.3) for index in range(3)]
    functions = [random_function(rng, rng.choice(meshes), 8, f"f{i}") for i in range(24)]
    module = module_of(meshes, functions)
    for op in (op for function in functions for op in able(function)):
        if rng.random() < 0.5:
            op.properties["async"] = UnitAttr()
    monkeypatch.setattr(mpi_run, "emit_harness", in_parts)
    assert differences(module, functions, tmp_path) == []


@pytest.mark.turns
def test_every_operation_in_two_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    functions = sample([*collectives(4), *local_operations(4)], 60, "parts")
    monkeypatch.setattr(mpi_run, "emit_harness", in_parts)
    assert differences(module_of(meshes_of(4), functions), functions, tmp_path, STRICT) == []


def shared(code: str) -> dict[str, tuple[str, str, int]]:
    """Return, for functions of a code, a result that may lie in an argument, the argument, and the
    elements that a rank has of them."""
    found: dict[str, tuple[str, str, int]] = {}
    for about, name in re.findall(r"/\* (.*\n(?: \* .*\n)*)int (\w+)\(struct", code):
        row = re.search(r"(\w+)\[(\d+)\] is .*, and may lie in (\w+)[;.]", about)
        if row:
            found[name] = (row[1], row[3], int(row[2]))
    return found


def in_place(module: ModuleOp, functions: Sequence[FuncOp]) -> str:
    """Return the harness of functions, a result of which lies in an argument where it may."""
    whole, plain = emit_harness(module, functions), MpiFile(module).text()
    code = MpiFile(module, interface=Interface(in_place=True)).text()
    rest = whole[len(plain) :]
    for name, (result, argument, size) in shared(code).items():
        [head] = re.findall(rf"^int {name}\(struct \w+ \*mesh, (.*)\)$", code, re.M)
        kinds = {word.rpartition("*")[2]: word.rpartition("*")[0] for word in head.split(", ")}
        y, x = (f"collir_buffers[{list(kinds).index(word)}]" for word in (result, argument))
        [arguments] = re.findall(rf"return {name}\((.*)\);", rest)
        copied = f"if ({y}) memcpy({y}, {x}, {size} * sizeof({kinds[result]}));"
        text = f"int err = {name}({arguments.replace(y, x)});\n  {copied}\n  return err;"
        rest = rest.replace(f"return {name}({arguments});", text)
    return code + rest


@pytest.mark.turns
@pytest.mark.parametrize("seed", [1, *(pytest.param(s, marks=pytest.mark.slow) for s in (2, 3, 4))])
def test_results_in_the_memory_of_arguments(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = fresh(seed, "in place")
    meshes = [random_mesh(rng, 4, f"m{index}") for index in range(3)]
    functions = [random_function(rng, rng.choice(meshes), 5, f"f{i}") for i in range(60)]
    module = module_of(meshes, functions)
    assert shared(MpiFile(module, interface=Interface(in_place=True)).text())
    monkeypatch.setattr(mpi_run, "emit_harness", in_place)
    assert differences(module, functions, tmp_path) == []


TWICE = """
machine @box {
  level node[2] { port = 8 GB/s, latency = 20 us }
  level gpu[2]  { port = 80 GB/s, latency = 3 us }
}
mesh @m on @box { data = node:2, model = gpu:2 }
func @f(%x: f32[4, 4@model] partial(sum: data)) -> f32[4, 4] on @m {
  %y = all_gather %x over model dim 1
  %r = all_reduce %y over data
  return %r
}
"""

MAIN = """
#include <stdio.h>
#include "one.h"
#include "two.h"
#define REQUIRE(what) do { if (!(what)) { fprintf(stderr, "%s\\n", #what); \\
                           MPI_Abort(MPI_COMM_WORLD, 1); } } while (0)
int main(int argc, char **argv)
{
  struct one_m_mesh *a, *b;
  struct two_m_mesh *c;
  float x[8], y[16], r[3][16];
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  REQUIRE(one_m_create(MPI_COMM_WORLD, &a) == MPI_SUCCESS);
  REQUIRE(two_m_create(MPI_COMM_WORLD, &c) == MPI_SUCCESS);
  REQUIRE(one_m_create(MPI_COMM_WORLD, &b) == MPI_SUCCESS);
  for (int times = 0; times < 3; ++times) {
    for (int i = 0; i < 8; ++i) x[i] = (float)(i + 8 * (rank % 2) + times);
    for (int i = 0; i < 16; ++i) y[i] = 0;
    REQUIRE(one_f_start(a, x, r[0]) == MPI_SUCCESS);
    REQUIRE(two_f_start(c, x, r[1]) == MPI_SUCCESS);
    REQUIRE(one_f_start(b, x, r[2]) == MPI_SUCCESS);
    /* The ranks wait in different orders: communicators are the handles' own. */
    REQUIRE(two_f_wait(c) == MPI_SUCCESS);
    REQUIRE(one_f_wait(a) == MPI_SUCCESS);
    REQUIRE(one_f_wait(b) == MPI_SUCCESS);
    REQUIRE(one_f(a, x, y) == MPI_SUCCESS);
    for (int i = 0; i < 16; ++i)
      for (int n = 0; n < 3; ++n) {
        int row = i / 4, column = i % 4;
        REQUIRE(y[i] == 2.0f * (float)(row * 2 + column % 2 + 8 * (column / 2) + times));
        REQUIRE(r[n][i] == y[i]);
      }
  }
  one_m_destroy(b);
  two_m_destroy(c);
  one_m_destroy(a);
  MPI_Finalize();
  return 0;
}
"""


@pytest.mark.turns
def test_files_with_prefixes_are_linked_and_handles_work_at_once(tmp_path: Path) -> None:
    module = collir.parse(TWICE)
    for prefix in ("one", "two"):
        options = f"prefix={prefix}_ parts=true"
        (tmp_path / f"{prefix}.h").write_text(collir.emit(module, f"mpi{{header=true {options}}}"))
        code = f'#include "{prefix}.h"\n' + collir.emit(module, f"mpi{{{options}}}")
        (tmp_path / f"{prefix}.c").write_text(code)
    (tmp_path / "main.c").write_text(MAIN)
    others = [str(tmp_path / f"{prefix}.c") for prefix in ("one", "two")]
    compile_c(tmp_path / "main.c", tmp_path / "program", [*STRICT, "-std=c99", *others])
    mpiexec(4, [str(tmp_path / "program")], HANG)


FORTRAN = """
integer(c_int) function run(comm, x, y) bind(C)
  use, intrinsic :: iso_c_binding
  use library
  implicit none
  integer(c_int), value :: comm
  real(c_float), intent(in), asynchronous :: x(*)
  real(c_float), intent(out), asynchronous :: y(*)
  type(c_ptr) :: mesh
  run = one_m_create(comm, mesh)
  if (run /= 0) return
  run = one_f_start(mesh, x, y)
  if (run == 0) run = one_f_wait(mesh)
  if (run == 0) run = one_f(mesh, x, y)
  call one_m_destroy(mesh)
end function
"""

CALLER = """
#include <mpi.h>
#include <stdio.h>
int run(MPI_Fint comm, const float *x, float *y);
int main(int argc, char **argv)
{
  float x[8], y[16];
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < 8; ++i) x[i] = (float)(i + 8 * (rank % 2));
  if (run(MPI_Comm_c2f(MPI_COMM_WORLD), x, y)) MPI_Abort(MPI_COMM_WORLD, 1);
  if (rank == 0) printf("%g %g", y[0], y[15]);
  MPI_Finalize();
  return 0;
}
"""


@pytest.mark.turns
@pytest.mark.skipif(not shutil.which("gfortran"), reason="no Fortran compiler")
def test_a_program_in_fortran_calls_functions_in_c(tmp_path: Path) -> None:
    module = collir.parse(TWICE)
    options = "prefix=one_ parts=true"
    (tmp_path / "one.c").write_text(collir.emit(module, f"mpi{{{options}}}"))
    (tmp_path / "a.f90").write_text(collir.emit(module, f"mpi{{{options} fortran=library}}"))
    (tmp_path / "b.f90").write_text(FORTRAN)
    (tmp_path / "main.c").write_text(CALLER)
    for name in "ab":
        command = ["gfortran", "-std=f2018", "-Wall", "-Werror", "-c", f"{name}.f90"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    others = [str(tmp_path / name) for name in ("one.c", "a.o", "b.o")]
    compile_c(tmp_path / "main.c", tmp_path / "program", ["-O1", *others, "-lgfortran"])
    assert mpiexec(4, [str(tmp_path / "program")], HANG) == "0 30"


HOSTS = """
machine @cluster {
  level node[2] { port = 8 GB/s, latency = 20 us }
  level gpu[2]  { port = 80 GB/s, latency = 3 us }
}
mesh @m on @cluster { data = node:2 * gpu:2 }
func @f(%x: f32[4] partial(sum: data)) -> f32[4] on @m {
  %r = all_reduce %x over data
  return %r
}
"""


@pytest.mark.turns
@pytest.mark.parametrize(
    ("hosts", "by_block", "warns"), [(1, 1, False), (2, 1, False), (2, 0, True), (4, 1, True)]
)
def test_ranks_on_other_hosts_are_reported(
    hosts: int, by_block: int, warns: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check the warning with hosts that MPICH makes up."""
    monkeypatch.setenv("MPIR_CVAR_NUM_CLIQUES", str(hosts))
    monkeypatch.setenv("MPIR_CVAR_CLIQUES_BY_BLOCK", str(by_block))
    source = tmp_path / "program.c"
    source.write_text(collir.emit(collir.parse(HOSTS), "mpi{main=true}"))
    compile_c(source, tmp_path / "program", ("-O1",))
    command = ["sh", "-c", f"{tmp_path / 'program'} 1 2>&1"]
    said = mpiexec(4, command, HANG)
    assert ("2 hosts of 2 ranks" in said and "-ppn 2 (MPICH)" in said) is warns
    assert "f: ok" in said
