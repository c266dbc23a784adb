"""Runs emitted NCCL code on MPI ranks without a GPU, over a fake of NCCL and CUDA on the host.

The code is compiled unchanged, except that kernel launches become calls. The fake checks arguments,
device memory, and that streams are waited for; see ``fake_nccl/``.
"""

import math
import re
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from support.harness.hanging import HANG
from support.targets.on_ranks import arguments_of, same
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.buffers import plan_buffers
from collir.layout import DistType, Mesh
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.collectives import Buffers
from collir.semantics.reference.devices import block_shape, coordinate
from collir.semantics.reference.exactness import exact, roundings
from collir.semantics.reference.executor import execute
from collir.targets.code.nccl_file import NcclFile
from collir.targets.code.nccl_main import averages_round
from collir.targets.code.nccl_text import CUDA_TYPES
from collir.tools.mpi_run import find, mpiexec
from collir.transforms.inlining import function_without_calls

FAKE = Path(__file__).parent / "fake_nccl"
STRICT = ("-Wall", "-Wextra", "-Wshadow", "-Wvla", "-Werror")


def without_launches(code: str) -> str:
    """Return code for a C++ compiler, with kernel launches as calls."""
    pattern = re.compile(r"(\w+)<<<(.+?), (\w+), 0, (\w+)>>>\(")
    return pattern.sub(r"fake_launch(\1, \2, \3, \4, ", code)


@cache
def _fake(flags: tuple[str, ...]) -> Path:
    """Compile the fake once, and return its object file."""
    folder = Path(tempfile.mkdtemp(prefix="fake_nccl_"))
    _compile([str(FAKE / "fake.cpp"), "-c", "-o", str(folder / "fake.o")], ("-O2", *flags))
    return folder / "fake.o"


def _compile(arguments: Sequence[str], flags: Sequence[str]) -> None:
    command = [find("mpicxx"), "-std=c++17", f"-I{FAKE}", *flags, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the emitted C++ does not compile:\n{done.stderr}")


def compile_with_fake(
    code: str, folder: Path, flags: Sequence[str] = STRICT, sanitize: Sequence[str] = ()
) -> str:
    """Compile emitted code with a main, and return the path of the program."""
    source = folder / "program.cpp"
    source.write_text(without_launches(code), encoding="utf-8")
    program = folder / "program"
    fake = str(_fake(tuple(sanitize)))
    _compile([str(source), fake, "-o", str(program)], ("-O0", *flags, *sanitize))
    return str(program)


_SUPPORT = """
#include <cstdio>
#include <cstdlib>
#include <mpi.h>

static FILE *collir_in, *collir_out;

static void collir_require(bool condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "%s\\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void collir_run(const char *name, ncclResult_t (*call)(void **, cudaStream_t),
                       ncclResult_t (*wait)(cudaStream_t), int inputs, int outputs,
                       const size_t *bytes, cudaStream_t stream)
{
  void *buffers[COLLIR_MOST_BUFFERS] = {};
  for (int i = 0; i < inputs + outputs; ++i) {
    if (!bytes[i]) continue;
    cudaMalloc(&buffers[i], bytes[i]);
    if (i >= inputs) continue;
    void *host = malloc(bytes[i]);
    collir_require(fread(host, 1, bytes[i], collir_in) == bytes[i], "cannot read inputs");
    cudaMemcpy(buffers[i], host, bytes[i], cudaMemcpyHostToDevice);
    free(host);
  }
  ncclResult_t err = call(buffers, stream);
  collir_require(err == ncclSuccess, name);
  collir_require(wait(stream) == ncclSuccess, name);
  for (int i = 0; i < inputs + outputs; ++i) {
    if (!bytes[i]) continue;
    void *host = malloc(bytes[i]);
    cudaMemcpy(host, buffers[i], bytes[i], cudaMemcpyDeviceToHost);
    if (i >= inputs)
      collir_require(fwrite(host, 1, bytes[i], collir_out) == bytes[i], "cannot write results");
    free(host);
    cudaFree(buffers[i]);
  }
}
"""

_OPEN = """
int main(int argc, char **argv)
{
  char name[4096];
  int rank, ranks;
  ncclUniqueId id;
  ncclComm_t world;
  cudaStream_t stream;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  snprintf(name, sizeof name, "%s/%d.in", argv[1], rank);
  collir_require((collir_in = fopen(name, "rb")), name);
  snprintf(name, sizeof name, "%s/%d.out", argv[1], rank);
  collir_require((collir_out = fopen(name, "wb")), name);
  if (rank == 0) ncclGetUniqueId(&id);
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  ncclCommInitRank(&world, ranks, id, rank);
  cudaStreamCreate(&stream);
"""

_CLOSE = """
  fclose(collir_in);
  collir_require(!fclose(collir_out), "cannot write results");
  cudaStreamDestroy(stream);
  ncclCommDestroy(world);
  MPI_Finalize();
  return 0;
}
"""


def harness(module: ModuleOp, functions: Sequence[FuncOp], target: str) -> str:
    """Return emitted code with a main that runs functions on buffers from files."""
    names = NcclFile(module).meshes
    buffers = {function: _buffers(function) for function in functions}
    lines = [
        collir.emit(module, target),
        f"#define COLLIR_MOST_BUFFERS {max([1, *map(len, buffers.values())])}",
        _SUPPORT,
    ]
    used = list(dict.fromkeys(mesh_of(function).name for function in functions))
    for m in used:
        lines += [
            f"static struct {m}_mesh *mesh_{m};",
            f"static ncclResult_t collir_wait_{m}(cudaStream_t stream)",
            "{",
            f"  return {m}_synchronize(mesh_{m}, stream);",
            "}",
        ]
    for function, types in buffers.items():
        name, inputs = function.sym_name.data, len(function.args)
        kinds = [
            f"{'const ' if i < inputs else ''}{CUDA_TYPES[x.dtype]} *" for i, x in enumerate(types)
        ]
        listed = "".join(f"({kind})collir_b[{i}], " for i, kind in enumerate(kinds))
        lines += [
            f"static ncclResult_t collir_call_{name}(void **collir_b, cudaStream_t collir_stream)",
            "{",
            "  (void)collir_b;",
            f"  return {name}(mesh_{mesh_of(function).name}, {listed}collir_stream);",
            "}",
        ]
    lines.append(_OPEN)
    lines += [
        f'  collir_require({m}_create(world, &mesh_{m}) == ncclSuccess, "{m}_create");'
        for m in used
    ]
    for function, types in buffers.items():
        name, mesh = function.sym_name.data, mesh_of(function).name
        sizes: list[str] = []
        for x in types:
            holds = names[mesh].at_place(x.place)
            elements = math.prod(x.local_shape(names[mesh].mesh))
            size = names[mesh].resolved(f"(size_t){elements * x.dtype.bytes}")
            text = f"{holds} ? {size} : 0" if holds else size
            sizes.append(text.replace("mesh->", f"mesh_{mesh}->"))
        inputs = len(function.args)
        lines += [
            "  {",
            f"    const size_t bytes[] = {{{', '.join(sizes) or '0'}}};",
            f'    collir_run("{name}", collir_call_{name}, collir_wait_{mesh}, {inputs}, '
            f"{len(types) - inputs}, bytes, stream);",
            "  }",
        ]
    lines += [
        f'  collir_require({m}_destroy(mesh_{m}) == ncclSuccess, "{m}_destroy");' for m in used
    ]
    return "\n".join([*lines, _CLOSE])


def _buffers(function: FuncOp) -> list[DistType]:
    return [dist_type(value) for value in (*function.args, *plan_buffers(function).returned)]


def results_on_fake(
    module: ModuleOp,
    functions: Sequence[FuncOp],
    arguments: Sequence[Sequence[Buffers]],
    folder: Path,
    target: str = "nccl",
    sanitize: Sequence[str] = (),
) -> list[list[Buffers]]:
    """Return the results of functions on meshes of one size, compiled and launched once."""
    ranks = mesh_of(functions[0]).devices
    program = compile_with_fake(harness(module, functions, target), folder, STRICT, sanitize)
    for rank in range(ranks):
        with (folder / f"{rank}.in").open("wb") as file:
            for buffers in (buffers for listed in arguments for buffers in listed):
                if (buffer := buffers[rank]) is not None:
                    file.write(buffer.tobytes())
    mpiexec(ranks, [program, str(folder)], HANG)
    data = [(folder / f"{rank}.out").read_bytes() for rank in range(ranks)]
    at = [0] * ranks
    out: list[list[Buffers]] = []
    for function in functions:
        mesh = mesh_of(function)
        types = [dist_type(value) for value in plan_buffers(function).returned]
        out.append([_read(mesh, x, data, at) for x in types])
    assert at == [len(read) for read in data]
    return out


def _read(mesh: Mesh, x: DistType, data: Sequence[bytes], at: list[int]) -> Buffers:
    """Read the buffers of one result at positions ``at`` of the ranks' files, and advance these."""
    buffers: Buffers = []
    for rank in range(mesh.devices):
        if any(coordinate(mesh, rank, axis) != at for axis, at in x.place):
            buffers.append(None)
            continue
        shape = block_shape(mesh, rank, x.dims)
        end = at[rank] + math.prod(shape) * x.dtype.bytes
        flat = np.frombuffer(data[rank][at[rank] : end], NUMPY[x.dtype])
        buffers.append(flat.reshape(shape))
        at[rank] = end
    return buffers


def casts_an_average(function: FuncOp) -> bool:
    """Return whether a cast may turn the last bit of an average, which NCCL rounds, into more."""
    steps = function_without_calls(function).walk()
    casts = any(isinstance(op, OPERATIONS["cast"]) for op in steps)
    return casts and averages_round(function)


def differences(
    module: ModuleOp,
    functions: Sequence[FuncOp],
    folder: Path,
    target: str = "nccl",
    sanitize: Sequence[str] = (),
) -> list[str]:
    """Return the places where ranks hold other results than the numpy executor computes.

    They are written as 'function: result, rank'. If the steps of a function or averages round, the
    last bits may differ; functions that cast such averages run, but are not compared.
    """
    arguments = [arguments_of(function) for function in functions]
    on_fake = results_on_fake(module, functions, arguments, folder, target, sanitize)
    wrong: list[str] = []
    for function, inputs, results in zip(functions, arguments, on_fake, strict=True):
        if casts_an_average(function):
            continue
        expected = execute(module, function, inputs)
        epsilons = 0 if exact(function) else roundings(function)
        if averages_round(function):
            epsilons = 8 * roundings(function) * mesh_of(function).devices
        assert len(results) == len(expected) == len(plan_buffers(function).returned)
        for index, (buffers, right) in enumerate(zip(results, expected, strict=True)):
            wrong += [
                f"{function.sym_name.data}: result {index}, rank {rank}"
                for rank, (actual, truth) in enumerate(zip(buffers, right, strict=True))
                if not same(actual, truth, epsilons)
            ]
    return wrong
