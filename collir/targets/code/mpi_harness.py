"""A main that runs functions on buffers from files; ``collrun`` compiles it with the emitted code.

Every rank reads its blocks of the arguments of all functions from ``DIR/<rank>.in``, one function
after the other, and writes its blocks of the results to ``DIR/<rank>.out``; for a block of no bytes
it passes NULL. Rank 0 writes the seconds of every function to ``DIR/times``, a line each: the time
of the slowest rank in the best run. The second argument of the main is the number of runs.
"""

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.buffers import plan_buffers
from collir.layout import DistType
from collir.targets.code.c_main import handle_of
from collir.targets.code.c_mesh import HANDLE
from collir.targets.code.c_text import element_count, size_text
from collir.targets.code.mpi_file import MpiFile
from collir.targets.code.mpi_mesh import MpiMesh

_SUPPORT = """\
/* ---- A main that runs the functions above on buffers from files ----------------------------- */

static FILE *collir_in, *collir_out, *collir_times;
static int collir_repeats = 1;

static void collir_require(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "%s\\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static FILE *collir_open(const char *folder, const char *name, const char *mode)
{
  char path[4096];
  FILE *file;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  file = fopen(path, mode);
  collir_require(file != NULL, path);
  return file;
}

/* Calls a function on `inputs` buffers from the file and `outputs` that are written to the other;
 * one of 0 bytes is NULL. */
static void collir_run(const char *name, int (*call)(void **), int inputs, int outputs,
                       const size_t *bytes)
{
  void *buffers[COLLIR_MOST_BUFFERS];
  double best = 1e300;
  int err;
  for (int i = 0; i < inputs + outputs; ++i) {
    buffers[i] = NULL;
    if (!bytes[i]) continue;
    collir_require((buffers[i] = malloc(bytes[i])) != NULL, "out of memory");
    if (i < inputs)
      collir_require(fread(buffers[i], 1, bytes[i], collir_in) == bytes[i], "cannot read inputs");
    else
      memset(buffers[i], 0, bytes[i]);
  }
  for (int i = 0; i < collir_repeats; ++i) {
    double start, taken, slowest = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    err = call(buffers);
    taken = MPI_Wtime() - start;
    if (err != MPI_SUCCESS) fprintf(stderr, "MPI error %d in ", err);
    collir_require(err == MPI_SUCCESS, name);
    MPI_Reduce(&taken, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (slowest < best) best = slowest;
  }
  if (collir_times) fprintf(collir_times, "%.9f\\n", best);
  for (int i = 0; i < inputs + outputs; ++i) {
    if (i >= inputs && bytes[i])
      collir_require(fwrite(buffers[i], 1, bytes[i], collir_out) == bytes[i],
                     "cannot write results");
    free(buffers[i]);
  }
}
"""

_OPEN = """\
int main(int argc, char **argv)
{
  char name[32];
  int rank, err = MPI_Init(&argc, &argv);
  if (err != MPI_SUCCESS || argc < 2) return 1;
  if (argc > 2) collir_repeats = atoi(argv[2]);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  snprintf(name, sizeof name, "%d.in", rank);
  collir_in = collir_open(argv[1], name, "rb");
  snprintf(name, sizeof name, "%d.out", rank);
  collir_out = collir_open(argv[1], name, "wb");
  if (rank == 0) collir_times = collir_open(argv[1], "times", "w");
"""

_CLOSE = """\
  fclose(collir_in);
  collir_require(!fclose(collir_out), "cannot write results");
  if (collir_times) fclose(collir_times);
  MPI_Finalize();
  return 0;
}
"""


def emit_harness(module: ModuleOp, functions: Sequence[FuncOp]) -> str:
    """Return the C of a module and a main that runs ``functions``, all on meshes of one size."""
    file = MpiFile(module, named=[f.sym_name.data for f in functions])
    used = dict.fromkeys(mesh_of(function).name for function in functions)
    meshes = [file.meshes[name] for name in used]
    buffers = {function: _buffers(function) for function in functions}
    lines = [
        file.text(),
        f"#define COLLIR_MOST_BUFFERS {max([1, *map(len, buffers.values())])}",
        "",
        _SUPPORT,
        *(f"static {names.kind} *{handle_of(names.mesh)};" for names in meshes),
        *(_call_text(function, len(buffers[function])) for function in functions),
        _OPEN,
    ]
    for names in meshes:
        call = f"{names.mesh.name}_create(MPI_COMM_WORLD, &{handle_of(names.mesh)})"
        lines.append(f'  collir_require({call} == MPI_SUCCESS, "{names.mesh.name}_create");')
    for function in functions:
        lines.append(_run_text(function, buffers[function], file.meshes[mesh_of(function).name]))
    lines += [f"  {names.mesh.name}_destroy({handle_of(names.mesh)});" for names in meshes]
    return "\n".join([*lines, _CLOSE])


def _buffers(function: FuncOp) -> list[DistType]:
    """Return the types of the arguments and of the results."""
    return [dist_type(value) for value in (*function.args, *plan_buffers(function).returned)]


def _call_text(function: FuncOp, buffers: int) -> str:
    """Return a function, under a new name, that takes its buffers as one array."""
    name = function.sym_name.data
    handle = handle_of(mesh_of(function))
    listed = ", ".join([handle, *(f"collir_buffers[{i}]" for i in range(buffers))])
    unused = "" if buffers else "  (void)collir_buffers;\n"
    return (
        f"static int collir_call_{name}(void **collir_buffers)\n"
        f"{{\n{unused}  return {name}({listed});\n}}\n"
    )


def _run_text(function: FuncOp, buffers: Sequence[DistType], names: MpiMesh) -> str:
    """Return the statement of the main that runs a function."""
    name = function.sym_name.data
    sizes = [_bytes_held(x, names) for x in buffers] or ["0"]
    inputs = len(function.args)
    return (
        f'  collir_run("{name}", collir_call_{name}, {inputs}, {len(buffers) - inputs},\n'
        f"             (const size_t[]){{{', '.join(sizes)}}});"
    )


def _bytes_held(x: DistType, names: MpiMesh) -> str:
    """Return the bytes that a rank holds of a value as a C expression."""
    size = names.resolved(size_text(element_count(x, names.mesh) * x.dtype.bytes))
    holds = names.at_place(x.place)
    text = f"{holds} ? {size} : 0" if holds else size
    return text.replace(f"{HANDLE}->", f"{handle_of(names.mesh)}->")
