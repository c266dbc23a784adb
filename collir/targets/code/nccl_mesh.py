"""The struct of a mesh in the code for NCCL: communicators, streams, and the symmetric memory of
temporaries."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.layout.coll import PERMUTE
from collir.targets.code import c_function
from collir.targets.code.c_function import LINKAGE, coordinates_text, struct_text
from collir.targets.code.c_text import MeshNames, comment, size_text
from collir.targets.code.nccl_streams import events_of, levels_of
from collir.targets.code.nccl_text import CPP

FUNCTIONS = ("init", "finalize", "synchronize")
"""The functions of every mesh, by what follows its name."""

SYMMETRIC_FUNCTIONS = ("alloc", "free")
"""The functions of a mesh with symmetric memory, by what follows its name."""

_ALIGNED = 256
"""The alignment of the buffers of a workspace in bytes, the same as of cudaMalloc."""


@dataclass
class Workspace:
    """The memory of the temporaries on one mesh, which is registered once.

    Buffers lie at the same offsets on every rank, also on ranks that hold nothing there.

    Attributes:
        taken: the first and the last offset of each buffer in use, in bytes.
        bytes: the size that the workspace needs.
    """

    taken: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    bytes: int = 0

    def take(self, size: int) -> int:
        """Reserve a number of bytes at the first offset with room, and return this offset."""
        size = -(-size // _ALIGNED) * _ALIGNED
        offset = 0
        for start, end in sorted(self.taken):
            if start - offset >= size:
                break
            offset = max(offset, end)
        self.taken.append((offset, offset + size))
        self.bytes = max(self.bytes, offset + size)
        return offset

    def give_back(self, offset: int) -> None:
        """Release the buffer that starts at an offset."""
        self.taken = [piece for piece in self.taken if piece[0] != offset]


@dataclass(frozen=True)
class MeshText:
    """The struct of a mesh, and the functions that fill and empty it.

    Attributes:
        permutes: whether a function sends over the communicator of all ranks.
        workspace: the symmetric memory of temporaries, if they have some.
        levels: the levels that have a stream.
        events: the number of events.
    """

    names: MeshNames
    permutes: bool
    workspace: Workspace | None
    levels: Sequence[str] = ()
    events: int = 0

    def interface(self) -> list[str]:
        """Return the declarations of the functions of the mesh."""
        m = self.names.mesh.name
        lines = [
            f"ncclResult_t {m}_init(ncclComm_t comm);",
            f"ncclResult_t {m}_finalize();",
            f"ncclResult_t {m}_synchronize(cudaStream_t stream);",
        ]
        if self.workspace is not None:
            lines += [
                f"ncclResult_t {m}_alloc({self._memory()} *memory, size_t bytes);",
                f"ncclResult_t {m}_free({self._memory()} *memory);",
            ]
        return lines

    def _memory(self) -> str:
        return f"symmetric_memory<{len(self.used())}>"

    def used(self) -> list[str]:
        """Return the communicators that functions send over."""
        split = self._split()
        world = [f"{self.names.variable}.comm"] if self.permutes or not split else []
        return [*world, *split]

    def _split(self) -> list[str]:
        """Return the communicators that the mesh makes."""
        return [f"{self.names.variable}.{name}" for name in self.names.communicators.values()]

    def text(self) -> list[str]:
        """Return the struct and its functions."""
        names, mesh, variable = self.names, self.names.mesh, self.names.variable
        lines = struct_text(names, "static thread_local", "ncclComm_t", " /* the caller's */")
        if self.workspace is not None:
            lines.append(f"  {self._memory()} workspace; /* of the functions' temporaries */")
        if self.levels:
            listed = comment(", ".join(self.levels))
            lines.append(f"  cudaStream_t streams[{len(self.levels)}]; /* of levels {listed} */")
            lines.append(f"  cudaEvent_t events[{self.events}];")
        lines += [f"}} {variable};", ""]
        if self.workspace is not None:
            lines += self._alloc_text()
        lines += [
            f"{LINKAGE}ncclResult_t {mesh.name}_init(ncclComm_t comm)",
            "{",
            "  int size = 0;",
            f"  {variable} = {{}};",
            "  TRY(ncclCommCount(comm, &size));",
            f"  if (size != {mesh.devices}) return ncclInvalidArgument;",
            f"  {variable}.comm = comm;",
            f"  TRY(ncclCommUserRank(comm, &{variable}.rank));",
        ]
        lines += coordinates_text(names)
        for axes, name in names.communicators.items():
            rest = [sub.name for sub in mesh.sub_axes if sub.name not in axes]
            lines.append(f"  TRY(ncclCommSplit(comm, {names.index_over(rest)},")
            lines.append(
                f"                    {names.index_over(axes)}, &{variable}.{name}, NULL));"
            )
        if self.workspace is not None and self.workspace.bytes:
            size = size_text(self.workspace.bytes)
            lines.append(f"  TRY({mesh.name}_alloc(&{variable}.workspace, {size}));")
        if self.levels:
            lines += [
                f"  for (cudaStream_t &one : {variable}.streams)",
                "    TRY_CUDA(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));",
                f"  for (cudaEvent_t &one : {variable}.events)",
                "    TRY_CUDA(cudaEventCreateWithFlags(&one, cudaEventDisableTiming));",
            ]
        lines += ["  return ncclSuccess;", "}", ""]
        return lines + self._finalize_text() + self._synchronize_text()

    def _alloc_text(self) -> list[str]:
        listed = ", ".join(self.used())
        lines = [
            "/* Device memory that is registered with every communicator of the mesh. All ranks "
            "get and",
            " * free such memory in the same order, of the same size. */",
        ]
        for verb, parameter, argument in [("alloc", ", size_t bytes", ", bytes"), ("free", "", "")]:
            name = f"{self.names.mesh.name}_{verb}"
            lines += [
                f"{LINKAGE}ncclResult_t {name}({self._memory()} *memory{parameter})",
                "{",
                f"  const ncclComm_t comms[] = {{{listed}}};",
                f"  return symmetric_{verb}(memory{argument}, comms);",
                "}",
                "",
            ]
        return lines

    def _finalize_text(self) -> list[str]:
        name, variable = self.names.mesh.name, self.names.variable
        split = self._split()
        lines = [
            f"/* Frees what {name}_init made, also where that failed. */",
            f"{LINKAGE}ncclResult_t {name}_finalize()",
            "{",
            "  ncclResult_t err = ncclSuccess;",
        ]
        if split or self.workspace is not None:
            lines.append("  ncclResult_t one;")
        if self.workspace is not None:
            lines.append(f"  if ((one = {name}_free(&{variable}.workspace))) err = one;")
        lines += [
            f"  if ({comm} && (one = ncclCommDestroy({comm})) != ncclSuccess) err = one;"
            for comm in split
        ]
        if self.levels:
            failed = "!= cudaSuccess) err = ncclUnhandledCudaError;"
            lines += [
                f"  for (cudaEvent_t event : {variable}.events)",
                f"    if (event && cudaEventDestroy(event) {failed}",
                f"  for (cudaStream_t one_of : {variable}.streams)",
                f"    if (one_of && cudaStreamDestroy(one_of) {failed}",
            ]
        return [*lines, f"  {variable} = {{}};", "  return err;", "}", ""]

    def _synchronize_text(self) -> list[str]:
        """Return the function that waits for a stream, and ends when a communicator fails."""
        name = self.names.mesh.name
        abort = [f"        ncclCommAbort({comm});" for comm in self._split()]
        abort += [f"        {comm} = NULL;" for comm in self._split()]
        return [
            "/* Waits for the stream. Where a communicator fails, aborts those of the mesh. */",
            f"{LINKAGE}ncclResult_t {name}_synchronize(cudaStream_t stream)",
            "{",
            "  cudaError_t cuda;",
            "  do {",
            "    ncclResult_t found = ncclSuccess;",
            f"    const ncclComm_t comms[] = {{{', '.join(self.used())}}};",
            "    cuda = cudaStreamQuery(stream);",
            "    for (ncclComm_t comm : comms) {",
            "      TRY(ncclCommGetAsyncError(comm, &found));",
            "      if (found != ncclSuccess && found != ncclInProgress) {",
            *abort,
            "        return found;",
            "      }",
            "    }",
            "  } while (cuda == cudaErrorNotReady);",
            "  return cuda == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;",
            "}",
            "",
        ]


def mesh_names(functions: Iterable[FuncOp]) -> dict[str, MeshNames]:
    """Return for every mesh that functions are on its names, with the communicators that the
    functions need."""
    return c_function.mesh_names(functions, CPP)


def _permutes(functions: Iterable[FuncOp], mesh: str) -> bool:
    """Return whether a function on a mesh sends over the communicator of all ranks."""
    return any(
        isinstance(op, DistOp) and op.kind is PERMUTE
        for function in functions
        if mesh_of(function).name == mesh
        for op in function.body.ops
    )


def mesh_text(
    name: str, names: MeshNames, functions: Iterable[FuncOp], workspace: Workspace | None
) -> MeshText:
    """Return the struct of a mesh with all that the functions on this mesh need."""
    members = [function for function in functions if mesh_of(function).name == name]
    levels, events = levels_of(members), events_of(members)
    return MeshText(names, _permutes(members, name), workspace, levels, events)


def registered(functions: Sequence[FuncOp]) -> dict[str, int]:
    """Return for every mesh the number of communicators that symmetric memory is registered
    with."""
    return {
        name: len(MeshText(names, _permutes(functions, name), None).used())
        for name, names in mesh_names(functions).items()
    }
