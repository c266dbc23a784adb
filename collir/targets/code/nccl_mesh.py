"""The struct of a mesh in the code for NCCL: communicators, streams, and the symmetric memory of
temporaries."""

from dataclasses import dataclass

from collir.targets.code.c_mesh import HANDLE, CMesh
from collir.targets.code.c_text import Words, comment, size_text
from collir.targets.code.nccl_text import CPP, LINKAGE
from collir.targets.code.ranks import outermost

FUNCTIONS = ("create", "destroy", "synchronize")
"""The functions of every mesh, by what follows its name."""

SYMMETRIC_FUNCTIONS = ("alloc", "free")
"""The functions of a mesh with symmetric memory, by what follows its name."""


@dataclass
class NcclMesh(CMesh):
    """The struct of a mesh, and the functions that make and free it.

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
        m = self.symbol
        lines = [
            f"{self.kind};",
            f"ncclResult_t {m}_create(ncclComm_t comm, {self.kind} **{HANDLE});",
            f"ncclResult_t {m}_destroy({self.kind} *{HANDLE});",
            f"ncclResult_t {m}_synchronize({self.kind} *{HANDLE}, cudaStream_t stream);",
        ]
        if self.symmetric:
            lines += [
                f"ncclResult_t {m}_alloc({self.kind} *{HANDLE}, {self._memory()} *memory, "
                "size_t bytes);",
                f"ncclResult_t {m}_free({self.kind} *{HANDLE}, {self._memory()} *memory);",
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
        more: list[str] = []
        if self.symmetric:
            more.append(f"  {self._memory()} workspace; /* of the functions' temporaries */")
        if self.levels:
            listed = comment(", ".join(self.levels))
            more.append(f"  cudaStream_t streams[{len(self.levels)}]; /* of levels {listed} */")
            more.append(f"  cudaEvent_t events[{events}];")
        return [
            *self.struct("ncclComm_t", " /* the caller's */", more),
            *(self._alloc_text() if self.symmetric else []),
            *self._destroy_text(),
            *self._create_text(),
            *self._synchronize_text(),
        ]

    def _create_text(self) -> list[str]:
        mesh, name = self.mesh, self.symbol
        fill = f"collir_fill_{name}"
        lines = [
            f"static ncclResult_t {fill}({self.kind} *{HANDLE}, ncclComm_t comm)",
            "{",
            "  int size = 0;",
            "  TRY(ncclCommCount(comm, &size));",
            f"  if (size != {mesh.devices}) return ncclInvalidArgument;",
            f"  {self.member('comm')} = comm;",
            f"  TRY(ncclCommUserRank(comm, &{self.member('rank')}));",
        ]
        lines += self.numbers()
        for colour, key, split in self.splits():
            lines.append(f"  TRY(ncclCommSplit(comm, {colour},")
            lines.append(f"                    {key}, &{split}, NULL));")
        if self.symmetric and self.workspace:
            size, memory = size_text(self.workspace), self.member("workspace")
            lines.append(f"  TRY({name}_alloc({HANDLE}, &{memory}, {size}));")
        if self.levels:
            lines += [
                f"  for (cudaStream_t &one : {self.member('streams')})",
                "    TRY_CUDA(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));",
                f"  for (cudaEvent_t &one : {self.member('events')})",
                "    TRY_CUDA(cudaEventCreateWithFlags(&one, cudaEventDisableTiming));",
            ]
        return [
            *lines,
            "  return ncclSuccess;",
            "}",
            "",
            f"{LINKAGE}ncclResult_t {name}_create(ncclComm_t comm, {self.kind} **made)",
            "{",
            f"  {self.kind} *{HANDLE} = ({self.kind} *)calloc(1, sizeof({self.kind}));",
            f"  ncclResult_t err = {HANDLE} ? {fill}({HANDLE}, comm) : ncclSystemError;",
            f"  if (err != ncclSuccess && {HANDLE}) {name}_destroy({HANDLE});",
            f"  *made = err == ncclSuccess ? {HANDLE} : NULL;",
            "  return err;",
            "}",
            "",
        ]

    def _alloc_text(self) -> list[str]:
        listed = ", ".join(self.used())
        lines = [
            "/* Device memory that is registered with every communicator of the mesh. All ranks "
            "get and",
            " * free such memory in the same order, of the same size. */",
        ]
        for verb, parameter, argument in [("alloc", ", size_t bytes", ", bytes"), ("free", "", "")]:
            name = f"{self.symbol}_{verb}"
            lines += [
                f"{LINKAGE}ncclResult_t {name}({self.kind} *{HANDLE}, {self._memory()} "
                f"*memory{parameter})",
                "{",
                f"  const ncclComm_t comms[] = {{{listed}}};",
                f"  return symmetric_{verb}(memory{argument}, comms);",
                "}",
                "",
            ]
        return lines

    def _destroy_text(self) -> list[str]:
        name, split = self.symbol, self._split()
        lines = [
            f"{LINKAGE}ncclResult_t {name}_destroy({self.kind} *{HANDLE})",
            "{",
            "  ncclResult_t err = ncclSuccess;",
            *["  ncclResult_t one;"] * bool(split or self.symmetric),
            f"  if (!{HANDLE}) return err;",
        ]
        if self.symmetric:
            memory = self.member("workspace")
            lines.append(f"  if ((one = {name}_free({HANDLE}, &{memory}))) err = one;")
        lines += [
            f"  if ({comm} && (one = ncclCommDestroy({comm})) != ncclSuccess) err = one;"
            for comm in split
        ]
        if self.levels:
            failed = "!= cudaSuccess) err = ncclUnhandledCudaError;"
            lines += [
                f"  for (cudaEvent_t event : {self.member('events')})",
                f"    if (event && cudaEventDestroy(event) {failed}",
                f"  for (cudaStream_t one_of : {self.member('streams')})",
                f"    if (one_of && cudaStreamDestroy(one_of) {failed}",
            ]
        return [*lines, f"  free({HANDLE});", "  return err;", "}", ""]

    def _synchronize_text(self) -> list[str]:
        """Return the function that waits for a stream, and ends when a communicator fails."""
        name = self.symbol
        abort = [f"        ncclCommAbort({comm});" for comm in self._split()]
        abort += [f"        {comm} = NULL;" for comm in self._split()]
        return [
            "/* Waits for the stream. Where a communicator fails, aborts those of the mesh. */",
            f"{LINKAGE}ncclResult_t {name}_synchronize({self.kind} *{HANDLE}, cudaStream_t stream)",
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
