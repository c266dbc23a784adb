"""The main of the target ``mpi``."""

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.ir.functions import functions_of
from collir.targets.code.c_main import (
    DIFFER,
    INPUTS,
    TITLE,
    CheckedRun,
    add_reference,
    add_total,
    dims_text,
    exchanged_types,
    handle_of,
    runnable_functions,
)
from collir.targets.code.c_mesh import HANDLE
from collir.targets.code.c_text import AS_BITS
from collir.targets.code.mpi_file import MpiFile
from collir.targets.code.mpi_mesh import MpiMesh
from collir.transforms.for_code import write_out_pipelines
from collir.transforms.inlining import inline_calls
from collir.transforms.stages.tasks import outline_tasks

_INCLUDES = ("limits.h", "math.h", "mpi.h", "stdint.h", "stdio.h", "stdlib.h", "string.h")


@dataclass
class _MpiRun(CheckedRun[MpiMesh]):
    """The function that runs another on MPI, times it, and returns whether its results are
    wrong."""

    @property
    def _comm(self) -> str:
        return self.names.member("comm")

    def variables(self) -> list[str]:
        return ["int err = MPI_SUCCESS, wrong = 0, anywhere = 0;", "double best = 1e300;"]

    def timed_calls(self) -> list[str]:
        return [
            *(self.new(variable, x) for variable, x in self.outputs.items()),
            "for (int i = 0; i < repeats; ++i) {",
            "  double start, taken, slowest;",
            f"  TRY(MPI_Barrier({self._comm}));",
            "  start = MPI_Wtime();",
            f"  TRY({self.name}({', '.join([HANDLE, *self.inputs, *self.outputs])}));",
            "  taken = MPI_Wtime() - start;",
            f"  TRY(MPI_Allreduce(&taken, &slowest, 1, MPI_DOUBLE, MPI_MAX, {self._comm}));",
            "  if (slowest < best) best = slowest;",
            "}",
        ]

    def reduced_partials(self) -> list[str]:
        lines = [self.new(variable, x) for variable, x in self.totals.items()]
        if self.total is not None:
            lines.append(
                f"TRY(total_{self.name}({', '.join([HANDLE, *self.partial, *self.totals])}));"
            )
        return lines

    def agreement(self) -> str:
        return f"TRY(MPI_Allreduce(&wrong, &anywhere, 1, MPI_INT, MPI_MAX, {self._comm}));"

    def report(self) -> list[str]:
        rank = self.names.member("rank")
        return [
            f"if ({rank} == 0)",
            f'  printf("{self.name}: %s on {self.mesh.devices} ranks, best of %d: %.3f ms\\n",',
            '         !check ? "not checked" : anywhere ? "WRONG" : "ok", repeats, best * 1e3);',
            "done:",
            "if (err != MPI_SUCCESS) {",
            "  char text[MPI_MAX_ERROR_STRING];",
            "  int length;",
            "  MPI_Error_string(err, text, &length);",
            f'  fprintf(stderr, "{self.name}: rank %d: %s\\n", {rank}, text);',
            "  MPI_Abort(MPI_COMM_WORLD, 1);",
            "}",
        ]

    def verdict(self) -> str:
        return "anywhere"


def emit_with_main(module: ModuleOp) -> str:
    """Return the C of a module with a main; the functions that only the main needs are static.

    Raises:
        DiagnosticError: names that C cannot have, meshes of different sizes.
    """
    program, plain = module.clone(), module.clone()
    inline_calls(plain)  # for references that do not depend on how loops run
    write_out_pipelines(program)
    functions = runnable_functions(program, "has no form in MPI")
    pairs: list[tuple[FuncOp, FuncOp, FuncOp | None]] = []
    hidden: list[FuncOp] = []
    for function, original in zip(functions, functions_of(plain), strict=True):
        reference = add_reference(program, original)
        total = add_total(program, function)
        hidden += [reference] if total is None else [reference, total]
        pairs.append((function, reference, total))
    hidden += outline_tasks(program)
    file = MpiFile(program, hidden)
    names = {mesh_of(function).name: file.meshes[mesh_of(function).name] for function in functions}
    runs = [_MpiRun(*functions, names[mesh_of(functions[0]).name]).text() for functions in pairs]
    types = exchanged_types(functions)
    sections = {"new"} | {x.dtype.value for x in types if x.dtype in AS_BITS}
    return "\n".join(
        [
            file.text(_INCLUDES, sections),
            dims_text(types),
            "",
            f"{TITLE}\n{INPUTS}\n{DIFFER}",
            *runs,
            _main_text(functions, list(names.values())),
        ]
    )


def _main_text(functions: Sequence[FuncOp], meshes: Sequence[MpiMesh]) -> str:
    """Return the main."""
    lines = [
        "/* Arguments: how often to run each function (default 10), and 0 not to check. */",
        "int main(int argc, char **argv)",
        "{",
        "  int repeats = argc > 1 ? atoi(argv[1]) : 10, check = argc > 2 ? atoi(argv[2]) : 1;",
        "  int wrong = 0, rank, length, err = MPI_Init(&argc, &argv);",
        "  char text[MPI_MAX_ERROR_STRING];",
        "  if (err != MPI_SUCCESS || repeats < 1) return 1;",
        "  MPI_Comm_rank(MPI_COMM_WORLD, &rank);",
    ]
    lines[-1:-1] = [f"  {names.kind} *{handle_of(names.mesh)} = NULL;" for names in meshes]
    for names in meshes:
        call = f"{names.mesh.name}_create(MPI_COMM_WORLD, &{handle_of(names.mesh)})"
        lines += [
            f"  if ((err = {call}) != MPI_SUCCESS) {{",
            "    MPI_Error_string(err, text, &length);",
            '    if (rank == 0) fprintf(stderr, "%s\\n", text);',
            "    MPI_Finalize();",
            "    return 1;",
            "  }",
        ]
    for function in functions:
        handle = handle_of(mesh_of(function))
        lines.append(f"  wrong |= run_{function.sym_name.data}({handle}, repeats, check);")
    lines += [f"  {names.mesh.name}_destroy({handle_of(names.mesh)});" for names in meshes]
    return "\n".join([*lines, "  MPI_Finalize();", "  return wrong;", "}", ""])
