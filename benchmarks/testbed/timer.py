"""The main of a measurement.

It runs every function in turns, and reports the seconds of the slowest rank of each run. For the
first run it also reports the bytes on each link.
"""

from collections.abc import Sequence
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp

from collir.dialects.machine import mesh_of
from collir.ir.functions import functions_of
from collir.targets.code.mpi_file import MpiFile

INCLUDES = ("mpi.h", "stdint.h", "stdio.h", "stdlib.h", "string.h", "limits.h")

_MAIN = """\
static FILE *out;

/* Print the bytes that each interface of the launcher's network has received and sent. */
static void links(int function, char when)
{
  char line[1024], name[64];
  unsigned long long got, sent;
  FILE *file = fopen("/proc/1/net/dev", "r");
  if (!file) MPI_Abort(MPI_COMM_WORLD, 1);
  while (fgets(line, sizeof line, file))
    if (sscanf(line, " %63[^:]: %llu %*u %*u %*u %*u %*u %*u %*u %llu", name, &got, &sent) == 3 &&
        !strncmp(name, "out", 3))
      fprintf(out, "link %d %c %s %llu %llu\\n", function, when, name, got, sent);
  fclose(file);
}

int main(int argc, char **argv)
{
  int wrong = 0, wrongs[RANKS];
  float *in = malloc(ELEMENTS * 4), *result = malloc(ELEMENTS * 4), *right = malloc(ELEMENTS * 4);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) out = fopen(argv[1], "w");
  for (size_t i = 0; i < ELEMENTS; ++i) in[i] = (float)((i * 7 + 13 * (size_t)rank) % 32);
INIT
  for (int run = -1; run < MOST_RUNS; ++run) { /* the first one to warm up, to check and to count */
    for (int f = 0; f < FUNCTIONS; ++f) {
      double start, taken, each[RANKS], slowest = 0;
      if (run >= runs[f]) continue;
      if (run < 0) {
        memset(first[f] ? right : result, 0, ELEMENTS * 4);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) links(f, '<');
      }
      MPI_Barrier(MPI_COMM_WORLD);
      start = MPI_Wtime();
      if (functions[f](in, first[f] ? right : result) != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
      taken = MPI_Wtime() - start;
      MPI_Gather(&taken, 1, MPI_DOUBLE, each, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
      for (int i = 0; rank == 0 && i < RANKS; ++i) slowest = each[i] > slowest ? each[i] : slowest;
      if (run < 0) {
        if (!first[f]) wrong |= memcmp(result, right, ELEMENTS * 4) != 0;
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) links(f, '>');
      }
      if (rank == 0) {
        fprintf(out, "time %d %d %.9f\\n", f, run, slowest);
        fflush(out);
      }
    }
  }
  MPI_Gather(&wrong, 1, MPI_INT, wrongs, 1, MPI_INT, 0, MPI_COMM_WORLD);
  for (int i = 0; rank == 0 && i < RANKS; ++i) wrong |= wrongs[i];
  if (rank == 0) {
    fprintf(out, "%s\\n", wrong ? "wrong" : "right");
    fclose(out);
  }
FREE
  MPI_Finalize();
  return 0;
}
"""


def emit(module: ModuleOp, elements: int, runs: Sequence[int], alike: bool = True) -> str:
    """Return the C of a module with a main that measures its functions.

    Every function has one argument and one result of at most ``elements`` numbers of 4 bytes on
    every rank.

    Args:
        runs: Number of runs of each function, after one run to warm up.
        alike: True if functions on one mesh compute the same. The results of the first function of
            a mesh are then compared with those of the others.
    """
    functions = functions_of(module)
    meshes = [mesh_of(function).name for function in functions]
    first = [not alike or mesh not in meshes[:number] for number, mesh in enumerate(meshes)]
    calls = [function.sym_name.data for function in functions]
    listed = [Timed(*each) for each in zip(calls, runs, first, strict=True)]
    return emit_all(module, elements, listed)


class Timed(NamedTuple):
    """A C function that is timed: ``int call_NAME(const float *x, float *y)``.

    Attributes:
        is_first: True if results of those that follow are compared with its result.
    """

    name: str
    runs: int
    is_first: bool


def emit_all(module: ModuleOp, elements: int, listed: Sequence[Timed], others: str = "") -> str:
    """Return the C of a module with a main that measures functions: of the module, and of the C
    code ``others``, which may use ``rank``."""
    functions = functions_of(module)
    names = list(dict.fromkeys(mesh_of(function).name for function in functions))
    created = (f"  {name}_create(MPI_COMM_WORLD, &mesh_{name});" for name in names)
    main = _MAIN.replace("INIT", "\n".join(created))
    main = main.replace("FREE", "\n".join(f"  {name}_destroy(mesh_{name});" for name in names))
    lines = [
        MpiFile(module).text(INCLUDES),
        f"#define ELEMENTS {elements}",
        f"#define RANKS {mesh_of(functions[0]).devices}",
        f"#define FUNCTIONS {len(listed)}",
        *(f"static struct {name}_mesh *mesh_{name};" for name in names),
        *(
            f"static int call_{function.sym_name.data}(const float *x, float *y) "
            f"{{ return {function.sym_name.data}(mesh_{mesh_of(function).name}, x, y); }}"
            for function in functions
        ),
        "static int rank;",
        others,
        "static int (*const functions[])(const float *, float *) = {",
        ",\n".join(f"  call_{each.name}" for each in listed),
        "};",
        f"#define MOST_RUNS {max(each.runs for each in listed)}",
        f"static const int runs[] = {{{', '.join(str(each.runs) for each in listed)}}};",
        f"static const char first[] = {{{', '.join(str(int(x.is_first)) for x in listed)}}};",
        main,
    ]
    return "\n".join(lines)
