"""A main that runs functions on given buffers: what ``collrun`` compiles beside the emitted code.

Every rank reads its arguments from ``DIR/<rank>.in``, all functions one after the other, and
writes its results to ``DIR/<rank>.out``. Rank 0 writes the seconds of every function to
``DIR/times``, a line each.
"""

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.coll import dist_type
from collir.dialects.machine import mesh_of
from collir.targets.code.c_text import C_TYPES, size_text
from collir.targets.code.mpi import emit_c
from collir.targets.code.plan import plan

_INCLUDES = ("limits.h", "mpi.h", "stdint.h", "stdio.h", "stdlib.h", "string.h")

_OPEN = """\
int main(int argc, char **argv)
{
  char path[4096];
  int rank, err = MPI_Init(&argc, &argv);
  FILE *in, *out, *times = NULL;
  if (err != MPI_SUCCESS || argc != 2) return 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  snprintf(path, sizeof path, "%s/%d.in", argv[1], rank);
  in = fopen(path, "rb");
  snprintf(path, sizeof path, "%s/%d.out", argv[1], rank);
  out = fopen(path, "wb");
  snprintf(path, sizeof path, "%s/times", argv[1]);
  if (rank == 0) times = fopen(path, "w");
  if (!in || !out || (rank == 0 && !times)) MPI_Abort(MPI_COMM_WORLD, 1);
"""

_CLOSE = """\
  if (fclose(out)) MPI_Abort(MPI_COMM_WORLD, 1);
  fclose(in);
  if (times) fclose(times);
  MPI_Finalize();
  return 0;
}
"""


def emit_harness(module: ModuleOp, functions: Sequence[FuncOp]) -> str:
    """The C of a module and a main that runs ``functions``, all on meshes of one size."""
    lines = [emit_c(module, includes=_INCLUDES)]
    lines += [_run_text(function) for function in functions]
    lines.append(_OPEN)
    meshes = dict.fromkeys(mesh_of(function).name for function in functions)
    for name in meshes:
        lines.append(f"  if ({name}_init(MPI_COMM_WORLD)) MPI_Abort(MPI_COMM_WORLD, 1);")
    for function in functions:
        lines.append(f"  run_{function.sym_name.data}(in, out, times);")
    lines += [f"  {name}_finalize();" for name in meshes]
    return "\n".join([*lines, _CLOSE])


def _run_text(function: FuncOp) -> str:
    mesh = mesh_of(function)
    name = function.sym_name.data
    inputs = [dist_type(arg) for arg in function.args]
    outputs = [dist_type(value) for value in plan(function).returned]
    lines = [f"static void run_{name}(FILE *in, FILE *out, FILE *times)", "{"]
    lines += ["  int err;", "  double start, taken, slowest;"]
    for kind, types in (("in", inputs), ("out", outputs)):
        for i, x in enumerate(types):
            size = size_text(x.local_bytes(mesh))
            lines.append(f"  {C_TYPES[x.dtype]} *{kind}{i} = malloc({size});")
            check = f"!{kind}{i}"
            if kind == "in":
                check += f" || fread(in{i}, 1, {size}, in) != {size}"
            else:
                check += f" || !memset(out{i}, 0, {size})"
            lines.append(f"  if ({check}) MPI_Abort(MPI_COMM_WORLD, 1);")
    buffers = [f"in{i}" for i in range(len(inputs))] + [f"out{i}" for i in range(len(outputs))]
    lines += [
        "  MPI_Barrier(MPI_COMM_WORLD);",
        "  start = MPI_Wtime();",
        f"  err = {name}({', '.join(buffers)});",
        "  taken = MPI_Wtime() - start;",
        "  if (err != MPI_SUCCESS) {",
        f'    fprintf(stderr, "{name} failed with MPI error %d\\n", err);',
        "    MPI_Abort(MPI_COMM_WORLD, 1);",
        "  }",
        "  MPI_Reduce(&taken, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);",
        '  if (times) fprintf(times, "%.9f\\n", slowest);',
    ]
    for i, x in enumerate(outputs):
        size = size_text(x.local_bytes(mesh))
        lines.append(
            f"  if (fwrite(out{i}, 1, {size}, out) != {size}) MPI_Abort(MPI_COMM_WORLD, 1);"
        )
    lines += [f"  free({buffer});" for buffer in buffers]
    if not inputs:
        lines.insert(2, "  (void)in;")
    if not outputs:
        lines.insert(2, "  (void)out;")
    return "\n".join([*lines, "}", ""])
