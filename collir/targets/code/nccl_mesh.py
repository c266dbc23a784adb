"""The struct of a mesh in the code for NCCL: communicators, streams, and the symmetric memory of
temporaries."""

from dataclasses import dataclass

from collir.targets.code.c_mesh import CMesh
from collir.targets.code.c_text import Words, comment, size_text
from collir.targets.code.nccl_text import CPP, LINKAGE
from collir.targets.code.ranks import outermost

FUNCTIONS = ("init", "finalize", "synchronize")
"""The functions of every mesh, by what follows its name."""

SYMMETRIC_FUNCTIONS = ("alloc", "free")
"""The functions of a mesh with symmetric memory, by what follows its name."""


@dataclass
class NcclMesh(CMesh):
    """The struct of a mesh, and the functions that fill and empty it.

    Attributes:
        symmetric: whether the memory of temporaries is registered.
        levels: the levels that have a stream.
    """

    words: Words = CPP
    symmetric: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        free = (op for op in self.starts() if op.is_async is not None)
        used = {outermost(self.mesh, op.axes.data) for op in free}
        known = [level.name for level in self.mesh.machine.levels]
        self.levels = tuple(level for level in ("", *known) if level in used)

    @property
    def workspace(self) -> int:
        """The bytes of the temporaries of the function that has most."""
        return max((f.arena.data for f in self.functions if f.arena), default=0)

    def interface(self) -> list[str]:
        """Return the declarations of the functions of the mesh."""
        m = self.mesh.name
        lines = [
            f"ncclResult_t {m}_init(ncclComm_t comm);",
            f"ncclResult_t {m}_finalize();",
            f"ncclResult_t {m}_synchronize(cudaStream_t stream);",
        ]
        if self.symmetric:
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
        permutes = any(not op.axes.data for op in self.starts())
        return [*([self.member("comm")] if permutes or not split else []), *split]

    def _split(self) -> list[str]:
        """Return the communicators that the mesh makes."""
        return [self.member(name) for name in self.communicators.values()]

    def text(self, events: int) -> list[str]:
        """Return the struct and its functions.

        Args:
            events: the number of events.
        """
        mesh, variable = self.mesh, self.variable
        lines = self.struct("static thread_local", "ncclComm_t", " /* the caller's */")
        if self.symmetric:
            lines.append(f"  {self._memory()} workspace; /* of the functions' temporaries */")
        if self.levels:
            listed = comment(", ".join(self.levels))
            lines.append(f"  cudaStream_t streams[{len(self.levels)}]; /* of levels {listed} */")
            lines.append(f"  cudaEvent_t events[{events}];")
        lines += [f"}} {variable};", ""]
        if self.symmetric:
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
        lines += self.numbers()
        for colour, key, name in self.splits():
            lines.append(f"  TRY(ncclCommSplit(comm, {colour},")
            lines.append(f"                    {key}, &{name}, NULL));")
        if self.symmetric and self.workspace:
            size = size_text(self.workspace)
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
            name = f"{self.mesh.name}_{verb}"
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
        name, variable = self.mesh.name, self.variable
        split = self._split()
        lines = [
            f"/* Frees what {name}_init made, also where that failed. */",
            f"{LINKAGE}ncclResult_t {name}_finalize()",
            "{",
            "  ncclResult_t err = ncclSuccess;",
        ]
        if split or self.symmetric:
            lines.append("  ncclResult_t one;")
        if self.symmetric:
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
        name = self.mesh.name
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
