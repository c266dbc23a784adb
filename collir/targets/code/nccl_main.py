"""The main of the target ``nccl``.

Every rank computes the whole result by itself on the host. Ranks are processes that MPI starts, or
threads of one process with a GPU each. For a function that is one collective, the main also reports
the bandwidths that nccl-tests define.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.cost.collectives.table import COSTS
from collir.dialects.local import ComputeOp, StartOp, mesh_at
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.ir.loops import repeats_in, steps_with_times
from collir.ir.selection import copy_with_functions
from collir.layout import DistType, Reduction
from collir.localize.localize import programs_of_ranks
from collir.localize.writer import ANY_GROUPS
from collir.targets.code.c_file import host_runtime
from collir.targets.code.c_host import HostMethod
from collir.targets.code.c_kernels import FileKernels
from collir.targets.code.c_main import (
    DIFFER,
    INPUTS,
    TITLE,
    CheckedRun,
    add_reference,
    add_total,
    bytes_text,
    dims_text,
    exchanged_types,
    handle_of,
    runnable_functions,
)
from collir.targets.code.c_mesh import HANDLE, CMesh
from collir.targets.code.c_method import MEMORY, indented
from collir.targets.code.c_signature import signatures
from collir.targets.code.c_text import AS_BITS, Words, element_count
from collir.targets.code.nccl_file import NcclFile
from collir.targets.code.nccl_mesh import NcclMesh
from collir.targets.code.nccl_text import CPP, CUDA_TYPES
from collir.transforms.any_size import Condition
from collir.transforms.for_code import write_out_pipelines
from collir.transforms.inlining import function_without_calls, inline_calls
from collir.transforms.stages.tasks import outline_tasks

_INCLUDES = ("cmath", "cstdio", "cstdlib", "cstring")

_HOST = """\
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
"""The names that a main uses beside those of a main for MPI."""


def averages_round(function: FuncOp) -> bool:
    """Return whether a function has an average over a number of ranks that is no power of two: NCCL
    multiplies by the rounded 1/n before it adds up."""
    mesh = mesh_of(function)
    for op, _ in steps_with_times(function_without_calls(function).body.ops):
        if not op.kind.reduces:
            continue
        if dist_type(op.input).reduction is Reduction.AVG:
            group = mesh.group_size(op.over)
            if group & (group - 1):
                return True
    return False


def traffic(function: FuncOp) -> tuple[int, float] | None:
    """Return the bytes of a function that is one collective, and the factor from its algbw to its
    busbw, as nccl-tests define them; None for other functions."""
    steps = steps_with_times(function_without_calls(function).body.ops)
    ops = [op for op, _ in steps if not op.kind.is_view]
    if len(ops) != 1 or not ops[0].kind.sends or repeats_in(function):
        return None
    op, mesh = ops[0], mesh_of(function)
    size = max(dist_type(value).local_bytes(mesh) for value in (op.operands[0], op.result))
    return size, COSTS[op.mnemonic].busbw(mesh.group_size(op.over) or 1)


@dataclass
class _HostMethod(HostMethod):
    """A function of one device, in C++ for the host."""

    words: ClassVar[Words] = CPP
    success: ClassVar[str] = "0"

    def acquired(self, size: str) -> list[str]:
        taken = f"char *{MEMORY} = (char *)malloc({size});"
        return [taken, f"if (!{MEMORY}) return ncclSystemError;"]

    def body(self, lines: Sequence[str]) -> list[str]:
        freed = [f"free({MEMORY});"] if self.has_memory else []
        return [*map(indented, [*lines, *freed]), f"  return {self.success};"]

    def checked(self, condition: Condition) -> str:
        raise TypeError(f"the main has no sizes, but {condition.formula}")

    def computation(self, op: ComputeOp) -> list[str]:
        return []

    def collective(self, op: StartOp, waits: bool) -> tuple[list[str], list[str]]:
        raise TypeError(f"one device has no {op.called}")


def _host_methods(program: ModuleOp, references: Sequence[FuncOp]) -> list[_HostMethod]:
    """Return the functions of a module that each rank runs on its host."""
    names = [reference.sym_name.data for reference in references]
    module = copy_with_functions(program, names)
    own = signatures(module, functions_of(module), [], sized=False)
    methods: list[_HostMethod] = []
    for function in programs_of_ranks(module, ANY_GROUPS):
        mesh = CMesh(mesh_at(function), [function], CPP, has_handle=False)
        signature = own[function.sym_name.data]
        methods.append(_HostMethod(function, mesh, signature, False, FileKernels({})))
    return methods


@dataclass
class _NcclRun(CheckedRun[NcclMesh]):
    """The function that runs another on a device, times it, and returns whether its results are
    wrong."""

    registered: int | None = None
    """The number of communicators that buffers are registered with, if they are symmetric
    memory."""

    def variables(self) -> list[str]:
        return [
            "int err = 0, wrong = 0;",
            "double best = 1e300, anywhere = 0;",
            "cudaStream_t stream = NULL;",
            "cudaEvent_t before = NULL, after = NULL;",
        ]

    def opening(self) -> list[str]:
        count = self.registered
        kind, empty = (f"symmetric_memory<{count}> ", "{}") if count else ("void *", "NULL")
        return [
            *(f"{kind}device_{name} = {empty};" for name in self._exchanged()),
            "TRY_CUDA(cudaStreamCreate(&stream));",
            "TRY_CUDA(cudaEventCreate(&before));",
            "TRY_CUDA(cudaEventCreate(&after));",
        ]

    def closing(self) -> list[str]:
        return [
            *(
                f"{self.mesh.name}_free({HANDLE}, &device_{name});"
                if self.registered
                else f"cudaFree(device_{name});"
                for name in self._exchanged()
            ),
            "if (before) cudaEventDestroy(before);",
            "if (after) cudaEventDestroy(after);",
            "if (stream) cudaStreamDestroy(stream);",
        ]

    def verdict(self) -> str:
        return "anywhere > 0"

    def count_text(self, count: int) -> str:
        return f"{count}u"

    def epsilons(self) -> int:
        """Return the bound on the error of a result, in epsilons of its dtype.

        Averages of NCCL round each term, which may be much larger than their sum.
        """
        if self._averages_round():
            ran = steps_with_times(self.function.body.ops)
            return 8 * self.mesh.devices * max(1, sum(times for _, times in ran))
        return super().epsilons()

    def exact(self) -> set[str]:
        """Return the variables of the results that no step rounds."""
        return set() if self._averages_round() else super().exact()

    def _averages_round(self) -> bool:
        return any(averages_round(run) for run in (self.function, self.total) if run is not None)

    def _exchanged(self) -> dict[str, DistType]:
        """Return the types of all buffers that are on the device too."""
        return self.inputs | self.outputs | self.totals

    def _start(self, name: str) -> str:
        return f"device_{name}.start" if self.registered else f"device_{name}"

    def _argument(self, name: str) -> str:
        kind = CUDA_TYPES[self._exchanged()[name].dtype]
        return f"({'const ' if name in self.inputs else ''}{kind} *){self._start(name)}"

    def _copied_in(self) -> list[str]:
        """Return the statements that get memory on the device, and copy the inputs there."""
        lines: list[str] = []
        for name, x in self._exchanged().items():
            size = bytes_text(element_count(x, self.mesh), x)
            if self.registered:  # windows have one size on all ranks: that of the largest buffer
                largest = bytes_text(int(element_count(x, self.mesh)), x)
                lines.append(f"TRY({self.mesh.name}_alloc({HANDLE}, &device_{name}, {largest}));")
            else:
                lines.append(f"TRY_CUDA(cudaMalloc(&device_{name}, {size}));")
            if name in self.inputs:
                lines.append(
                    f"TRY_CUDA(cudaMemcpy({self._start(name)}, {name}, {size}, "
                    "cudaMemcpyHostToDevice));"
                )
        return lines

    def _copied_out(self, buffers: dict[str, DistType]) -> list[str]:
        """Return the statements that copy buffers to the host."""
        lines: list[str] = []
        for name, x in buffers.items():
            size = bytes_text(element_count(x, self.mesh), x)
            start = self._start(name)
            lines.append(self.new(name, x))
            lines.append(f"TRY_CUDA(cudaMemcpy({name}, {start}, {size}, cudaMemcpyDeviceToHost));")
        return lines

    def timed_calls(self) -> list[str]:
        arguments = [self._argument(name) for name in (*self.inputs, *self.outputs)]
        return [
            *self._copied_in(),
            "for (int i = 0; i < repeats; ++i) {",
            "  float ms = 0;",
            "  double slowest;",
            "  most(0); /* all ranks start together */",
            "  TRY_CUDA(cudaEventRecord(before, stream));",
            f"  TRY({self.name}({', '.join([HANDLE, *arguments, 'stream'])}));",
            "  TRY_CUDA(cudaEventRecord(after, stream));",
            f"  TRY({self.mesh.name}_synchronize({HANDLE}, stream));",
            "  TRY_CUDA(cudaEventElapsedTime(&ms, before, after));",
            "  slowest = most(ms);",
            "  if (slowest < best) best = slowest;",
            "}",
            *self._copied_out(self.outputs),
        ]

    def reduced_partials(self) -> list[str]:
        if self.total is None:
            return []
        arguments = [self._argument(name) for name in (*self.partial, *self.totals)]
        return [
            f"TRY(total_{self.name}({', '.join([HANDLE, *arguments, 'stream'])}));",
            f"TRY({self.mesh.name}_synchronize({HANDLE}, stream));",
            *self._copied_out(self.totals),
        ]

    def agreement(self) -> str:
        return "anywhere = most(wrong);"

    def report(self) -> list[str]:
        rank = self.names.member("rank")
        verdict = '!check ? "not checked" : anywhere > 0 ? "WRONG" : "ok"'
        text = f"{self.name}: %s on {self.mesh.devices} ranks, best of %d: %.3f ms"
        numbers = "repeats, best"
        if traffic_of := traffic(self.function):
            size, factor = traffic_of
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
    """Return the C++ of a module with a main; the functions that only the main needs are static.

    Raises:
        DiagnosticError: names that C++ cannot have, meshes of different sizes.
    """
    program, plain = module.clone(), module.clone()
    inline_calls(plain)  # for references that do not depend on how loops run
    write_out_pipelines(program)
    functions = runnable_functions(program, "has no form in NCCL", CPP, _LOCALS)
    totals = {function: add_total(program, function) for function in functions}
    hidden = [total for total in totals.values() if total is not None]
    hidden += outline_tasks(program)
    library = ["mpi.h"] if processes else ["condition_variable", "mutex", "thread", "vector"]
    file = NcclFile(program, hidden, symmetric)
    code = file.text([*_INCLUDES, *library])
    references: list[FuncOp] = []
    runs: list[_NcclRun] = []
    for function, original in zip(functions, functions_of(plain), strict=True):
        reference = add_reference(program, original)
        references.append(reference)
        mesh = file.meshes[mesh_of(function).name]
        count = len(mesh.used()) if symmetric else None
        runs.append(_NcclRun(function, reference, totals[function], mesh, count))
    types = exchanged_types(functions)
    methods = _host_methods(program, references)
    host_code = [line for method in methods for line in method.text()]
    sections = {name for method in methods for name in method.needs} - {"check"}
    sections |= {x.dtype.value for x in types if x.dtype in AS_BITS}
    meshes = list(file.meshes.values())
    differ = DIFFER if any(run.differs() for run in runs) else ""
    return "\n".join(
        [
            code,
            f"{TITLE}\n{_HOST}",
            *host_runtime(sections),
            dims_text(types),
            f"#define RANKS {meshes[0].mesh.devices if meshes else 1}",
            "",
            f"{INPUTS}\n{differ}",
            _PROCESSES if processes else _THREADS,
            _MUST,
            *host_code,
            *(run.text() for run in runs),
            *_run_all(functions, meshes),
            _MAIN_OF_PROCESSES if processes else _MAIN_OF_THREADS,
        ]
    )


def _run_all(functions: Sequence[FuncOp], meshes: Sequence[NcclMesh]) -> list[str]:
    """Return the function that runs all functions on one rank."""
    lines = [
        "/* What a rank does; whether anything is wrong. */",
        "static int run_all(ncclComm_t world, int rank, int repeats, int check)",
        "{",
        "  int wrong = 0;",
    ]
    lines += [f"  {names.kind} *{handle_of(names.mesh)} = NULL;" for names in meshes]
    for names in meshes:
        name, handle = names.mesh.name, handle_of(names.mesh)
        lines.append(f'  must({name}_create(world, &{handle}), "{name}_create", rank);')
    for function in functions:
        handle = handle_of(mesh_of(function))
        lines.append(f"  wrong |= run_{function.sym_name.data}({handle}, repeats, check);")
    for names in meshes:
        name, handle = names.mesh.name, handle_of(names.mesh)
        lines.append(f'  must({name}_destroy({handle}), "{name}_destroy", rank);')
    return [*lines, "  return wrong;", "}", ""]
