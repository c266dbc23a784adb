"""A main for the NCCL target: runs every function on inputs it makes, times it, and checks it.

As in the main for MPI, every rank computes the whole result by itself, on the host, and compares
its block. Ranks are processes that MPI starts, or threads of one process with a GPU each. A
function that is one collective is also reported with the bandwidths that nccl-tests define.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.cost.collectives.table import COSTS
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.buffers import plan_buffers
from collir.ir.functions import check_programs, functions_of
from collir.layout import DistType, Mesh, Reduction
from collir.targets.code.c_function import runtime
from collir.targets.code.c_text import AS_BITS, MeshNames, Words, element_count
from collir.targets.code.mpi_function import FunctionText as HostText
from collir.targets.code.mpi_main import (
    OP_LETTERS,
    SUPPORT,
    Run,
    add_reference,
    add_total,
    bytes_text,
    check_main_names,
    check_one_size,
    indented,
    stored,
)
from collir.targets.code.nccl_function import emit_cpp
from collir.targets.code.nccl_mesh import mesh_names, registered
from collir.targets.code.nccl_text import CPP, CUDA_TYPES

_INCLUDES = ("cmath", "cstdio", "cstdlib", "cstring")

_HOST = """\
/* ---- A main that runs and checks the functions above ---------------------------------------- */

/* For functions with a label `done` that releases what they hold. */
#undef TRY
#undef TRY_CUDA
#define TRY(call) do { if ((err = (call)) != 0) goto done; } while (0)
#define TRY_CUDA(call) \\
  do { if ((call) != cudaSuccess) { err = ncclUnhandledCudaError; goto done; } } while (0)
#define NEW(p, bytes) \\
  do { if (!((p) = (decltype(p))malloc(bytes))) { err = ncclSystemError; goto done; } } while (0)
"""

_PROCESSES = """\
/* The largest of what the ranks say, once all have said it. */
static double most(double mine)
{
  double all;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return all;
}

static void quit(int status) { MPI_Abort(MPI_COMM_WORLD, status); }
"""

_THREADS = """\
/* The largest of what the ranks say, once all have said it. */
static double most(double mine)
{
  static std::mutex lock;
  static std::condition_variable changed;
  static int said, rounds;
  static double largest, result;
  std::unique_lock<std::mutex> guard(lock);
  int now = rounds;
  largest = said && largest > mine ? largest : mine;
  if (++said == RANKS) {
    result = largest;
    said = 0;
    ++rounds;
    changed.notify_all();
  }
  changed.wait(guard, [=] { return rounds != now; });
  return result;
}

static void quit(int status)
{
  fflush(NULL);
  _Exit(status);
}
"""

_MAIN_OF_PROCESSES = """\
/* Arguments: how often to run each function (default 10), and 0 not to check. */
int main(int argc, char **argv)
{
  int repeats = argc > 1 ? atoi(argv[1]) : 10, check = argc > 2 ? atoi(argv[2]) : 1;
  int wrong, rank, ranks, local, devices = 0;
  ncclUniqueId id;
  ncclComm_t world = NULL;
  MPI_Comm node;
  cudaError_t cuda;
  if (MPI_Init(&argc, &argv) != MPI_SUCCESS || repeats < 1) return 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != RANKS) {
    if (rank == 0) fprintf(stderr, "run this on %d ranks\\n", RANKS);
    MPI_Finalize();
    return 1;
  }
  /* The ranks of a node take its devices in turn. */
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &local);
  MPI_Comm_free(&node);
  cuda = cudaGetDeviceCount(&devices);
  if (cuda == cudaSuccess && devices > 0) cuda = cudaSetDevice(local % devices);
  if (most(cuda != cudaSuccess || devices < 1) > 0) {
    if (rank == 0)
      fprintf(stderr, "a rank has no GPU: %s\\n", cuda ? cudaGetErrorString(cuda) : "none found");
    MPI_Finalize();
    return 1;
  }
  if (rank == 0) must(ncclGetUniqueId(&id), "ncclGetUniqueId", rank);
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  must(ncclCommInitRank(&world, ranks, id, rank), "ncclCommInitRank", rank);
  wrong = run_all(world, rank, repeats, check);
  must(ncclCommDestroy(world), "ncclCommDestroy", rank);
  MPI_Finalize();
  return wrong;
}
"""

_MAIN_OF_THREADS = """\
/* Arguments: how often to run each function (default 10), and 0 not to check. */
int main(int argc, char **argv)
{
  int repeats = argc > 1 ? atoi(argv[1]) : 10, check = argc > 2 ? atoi(argv[2]) : 1;
  int wrong[RANKS] = {}, devices = 0;
  ncclComm_t worlds[RANKS];
  std::vector<std::thread> ranks;
  cudaError_t cuda = cudaGetDeviceCount(&devices);
  if (repeats < 1) return 1;
  if (cuda != cudaSuccess || devices < RANKS) {
    fprintf(stderr, "this needs %d GPUs: %s\\n", RANKS,
            cuda ? cudaGetErrorString(cuda) : "there are fewer");
    return 1;
  }
  must(ncclCommInitAll(worlds, RANKS, NULL), "ncclCommInitAll", 0);
  for (int rank = 0; rank < RANKS; ++rank)
    ranks.emplace_back([=, &wrong, &worlds] {
      if (cudaSetDevice(rank) != cudaSuccess) must(ncclUnhandledCudaError, "cudaSetDevice", rank);
      wrong[rank] = run_all(worlds[rank], rank, repeats, check);
      must(ncclCommDestroy(worlds[rank]), "ncclCommDestroy", rank);
    });
  for (std::thread &rank : ranks) rank.join();
  return wrong[0];
}
"""

_MUST = """\
static void must(ncclResult_t err, const char *what, int rank)
{
  if (err == ncclSuccess) return;
  fprintf(stderr, "%s: rank %d: %s\\n", what, rank, ncclGetErrorString(err));
  quit(1);
}
"""

_LOCALS = re.compile(r"before|after|ms|most|must|quit|run_all|id|node|device_\w+")
"""The names of a main beside those of the one for MPI."""


def averages_round(function: FuncOp) -> bool:
    """Whether a function has an average over a number of ranks that is no power of two: NCCL
    multiplies by the rounded 1/n before it adds up."""
    mesh = mesh_of(function)
    for op in function.body.ops:
        if not isinstance(op, DistOp) or not op.kind.reduces:
            continue
        if dist_type(op.input).reduction is Reduction.AVG:
            group = mesh.group_size(op.over)
            if group & (group - 1):
                return True
    return False


def traffic(function: FuncOp) -> tuple[int, float] | None:
    """The bytes of a function that is one collective, and how its busbw is to its algbw.

    Both as nccl-tests define them, for ``n`` ranks; None where a function is something else.
    """
    ops = [op for op in function.body.ops if isinstance(op, DistOp) and not op.kind.is_view]
    if len(ops) != 1 or not ops[0].kind.sends:
        return None
    op, mesh = ops[0], mesh_of(function)
    size = max(dist_type(value).local_bytes(mesh) for value in (op.operands[0], op.result))
    return size, COSTS[op.mnemonic].busbw(mesh.group_size(op.over) or 1)


@dataclass
class _HostText(HostText):
    """A function for the host, of what sends nothing."""

    words: ClassVar[Words] = CPP
    success: ClassVar[str] = "0"


@dataclass
class _NcclRun(Run):
    """The function that runs another on a device, times it, and returns whether it is right."""

    registered: int | None = None
    """How many communicators buffers are registered with, if they are symmetric memory."""

    def text(self) -> str:
        """The whole function."""
        devices = self._on_device()
        memory = [f"symmetric_memory<{self.registered}>" if self.registered else "void *"] * len(
            devices
        )
        empty = "{}" if self.registered else "NULL"
        made = [
            f"{kind}{' ' if self.registered else ''}{name} = {empty};"
            for kind, name in zip(memory, devices, strict=True)
        ]
        frees = [
            f"{self.mesh.name}_free(&{name});" if self.registered else f"cudaFree({name});"
            for name in devices
        ]
        return "\n".join(
            [
                f"static int run_{self.name}(int repeats, int check)",
                "{",
                "  int err = 0, wrong = 0;",
                "  double best = 1e300, anywhere = 0;",
                "  cudaStream_t stream = NULL;",
                "  cudaEvent_t before = NULL, after = NULL;",
                *indented(self.declarations(), 2),
                *indented(made, 2),
                "  TRY_CUDA(cudaStreamCreate(&stream));",
                "  TRY_CUDA(cudaEventCreate(&before));",
                "  TRY_CUDA(cudaEventCreate(&after));",
                *indented(self.filled(), 2),
                *indented(self._copied_in(), 2),
                *indented(self._timed(), 2),
                *indented(self._copied_out(self.outputs), 2),
                "  if (check) {",
                *indented(self.comparison(), 4),
                "  }",
                *indented(self._said(), 2),
                *indented(frees, 2),
                "  if (before) cudaEventDestroy(before);",
                "  if (after) cudaEventDestroy(after);",
                "  if (stream) cudaStreamDestroy(stream);",
                *indented([f"free({variable});" for variable in self.all_buffers()], 2),
                "  return anywhere > 0;",
                "}",
                "",
            ]
        )

    def epsilons(self) -> int:
        """Averages of NCCL round each term, which may be much larger than their sum."""
        if any(averages_round(run) for run in (self.function, self.total) if run is not None):
            return 8 * self.mesh.devices * max(1, len(list(self.function.body.ops)))
        return super().epsilons()

    def _on_device(self) -> dict[str, DistType]:
        return {f"device_{name}": x for name, x in self._exchanged().items()}

    def _exchanged(self) -> dict[str, DistType]:
        return self.inputs | self.outputs | self.totals

    def _start(self, name: str) -> str:
        return f"device_{name}.start" if self.registered else f"device_{name}"

    def _argument(self, name: str) -> str:
        x = self._exchanged()[name]
        kind = CUDA_TYPES[x.dtype]
        return f"({'const ' if name in self.inputs else ''}{kind} *){self._start(name)}"

    def _copied_in(self) -> list[str]:
        lines: list[str] = []
        for name, x in self._exchanged().items():
            size = bytes_text(element_count(x, self.mesh), x)
            if self.registered:
                lines.append(f"TRY({self.mesh.name}_alloc(&device_{name}, {size}));")
            else:
                lines.append(f"TRY_CUDA(cudaMalloc(&device_{name}, {size}));")
            if name in self.inputs:
                lines.append(
                    f"TRY_CUDA(cudaMemcpy({self._start(name)}, {name}, {size}, "
                    "cudaMemcpyHostToDevice));"
                )
        return lines

    def _copied_out(self, names: dict[str, DistType]) -> list[str]:
        lines: list[str] = []
        for name, x in names.items():
            size = bytes_text(element_count(x, self.mesh), x)
            start = self._start(name)
            lines.append(f"NEW({name}, {size});")
            lines.append(f"TRY_CUDA(cudaMemcpy({name}, {start}, {size}, cudaMemcpyDeviceToHost));")
        return lines

    def _timed(self) -> list[str]:
        arguments = [self._argument(name) for name in (*self.inputs, *self.outputs)]
        return [
            "for (int i = 0; i < repeats; ++i) {",
            "  float ms = 0;",
            "  double slowest;",
            "  most(0); /* all ranks start together */",
            "  TRY_CUDA(cudaEventRecord(before, stream));",
            f"  TRY({self.name}({', '.join([*arguments, 'stream'])}));",
            "  TRY_CUDA(cudaEventRecord(after, stream));",
            f"  TRY({self.mesh.name}_synchronize(stream));",
            "  TRY_CUDA(cudaEventElapsedTime(&ms, before, after));",
            "  slowest = most(ms);",
            "  if (slowest < best) best = slowest;",
            "}",
        ]

    def comparison(self) -> list[str]:
        """Computes the whole result on the host, and compares this rank's block with it."""
        lines: list[str] = []
        if self.total is not None:
            partial = [self._argument(name.removeprefix("total_")) for name in self.totals]
            totals = [self._argument(name) for name in self.totals]
            lines.append(f"TRY(total_{self.name}({', '.join([*partial, *totals, 'stream'])}));")
            lines.append(f"TRY({self.mesh.name}_synchronize(stream));")
            lines += self._copied_out(self.totals)
        for variable, x in (self.inputs | self.outputs).items():
            lines.append(f"NEW(whole_{variable}, {bytes_text(x.elements, x)});")
        for variable, x in self.inputs.items():
            parts = self.mesh.group_size(x.partial)
            value = f"whole_value(i, {parts}, '{OP_LETTERS[x.reduction]}')"
            lines += [
                f"for (size_t i = 0; i < {x.elements}u; ++i)",
                f"  whole_{variable}[i] = {stored(value, x)};",
            ]
        wholes = ", ".join(f"whole_{variable}" for variable in self.inputs | self.outputs)
        lines.append(f"TRY({self.reference.sym_name.data}({wholes}));")
        for variable, x in self.outputs.items():
            lines += self.compare(variable, x)
        return [*lines, "anywhere = most(wrong);"]

    def _said(self) -> list[str]:
        rank = f"{self.names.variable}.rank"
        verdict = '!check ? "not checked" : anywhere > 0 ? "WRONG" : "ok"'
        text = f"{self.name}: %s on {self.mesh.devices} ranks, best of %d: %.3f ms"
        numbers = "repeats, best"
        if moved := traffic(self.function):
            size, factor = moved
            text += ", algbw %.2f GB/s, busbw %.2f GB/s"
            numbers += f", {size} / best / 1e6,\n         {size * factor:.1f} / best / 1e6"
        return [
            f"if ({rank} == 0)",
            f'  printf("{text}\\n",',
            f"         {verdict}, {numbers});",
            "done:",
            f'must((ncclResult_t)err, "{self.name}", {rank});',
        ]


def emit_with_main(module: ModuleOp, processes: bool, symmetric: bool) -> str:
    """The C++ of a module with a main; the functions it needs beside are static.

    Raises:
        DiagnosticError: names that C++ cannot have, meshes of different sizes.
    """
    whole = module.clone()
    functions = functions_of(whole)
    check_programs(functions, "has no form in NCCL")
    check_one_size(functions)
    check_main_names(functions, CPP, _LOCALS)
    totals = {function: add_total(whole, function) for function in functions}
    hidden = [total for total in totals.values() if total is not None]
    names = mesh_names(functions_of(whole))
    world = ["mpi.h"] if processes else ["condition_variable", "mutex", "thread", "vector"]
    text = emit_cpp(whole, hidden, [*_INCLUDES, *world], symmetric)
    counts = registered(functions_of(whole)) if symmetric else {}
    references: list[str] = []
    runs: list[str] = []
    needs: set[str] = set()
    for function in functions:
        reference = add_reference(whole, function)
        host = _HostText(reference, MeshNames.of(mesh_of(reference), [], words=CPP), static=True)
        references += host.text()
        needs |= host.needs - {"check"}
        mesh = names[mesh_of(function).name]
        count = counts.get(mesh.mesh.name)
        runs.append(_NcclRun(function, reference, totals[function], mesh, count).text())
    types = [dist_type(v) for f in functions for v in (*f.args, *plan_buffers(f).returned)]
    needs |= {x.dtype.value for x in types if x.dtype in AS_BITS}
    meshes = [names[name].mesh for name in names]
    lines = [
        text,
        _HOST,
        "\n\n".join(runtime("mpi_runtime.c", needs)),
        "",
        f"#define MOST_DIMS {max([1, *(len(x.dims) for x in types)])}",
        f"#define RANKS {meshes[0].devices if meshes else 1}",
        "",
        _support(runs),
        _PROCESSES if processes else _THREADS,
        _MUST,
        *references,
        *runs,
        *_run_all(functions, meshes),
        _MAIN_OF_PROCESSES if processes else _MAIN_OF_THREADS,
    ]
    return "\n".join(lines)


def _support(runs: Sequence[str]) -> str:
    """What the runs share with those of the main for MPI."""
    text = SUPPORT.partition("\n\n")[2]
    if any("differ(" in run for run in runs):
        return text
    return text.partition("/* Whether x is not y")[0]


def _run_all(functions: Sequence[FuncOp], meshes: Sequence[Mesh]) -> list[str]:
    """What one rank does."""
    lines = [
        "/* What a rank does; whether anything is wrong. */",
        "static int run_all(ncclComm_t world, int rank, int repeats, int check)",
        "{",
        "  int wrong = 0;",
    ]
    lines += [f'  must({m.name}_init(world), "{m.name}_init", rank);' for m in meshes]
    lines += [f"  wrong |= run_{f.sym_name.data}(repeats, check);" for f in functions]
    lines += [f'  must({m.name}_finalize(), "{m.name}_finalize", rank);' for m in meshes]
    return [*lines, "  return wrong;", "}", ""]
