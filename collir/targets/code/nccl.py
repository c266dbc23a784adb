"""The target ``nccl``: C++17 for NCCL and CUDA, with or without a main."""

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.targets.code.c_file import Interface
from collir.targets.code.nccl_file import NcclFile
from collir.targets.code.nccl_main import emit_with_main


@dataclass(frozen=True)
class NcclTarget(Target):
    """C++17 for NCCL and CUDA: one function per `func` on device buffers and a stream.

    The communicator of an ordered list of sub-axes is an `ncclCommSplit` of the mesh, with its
    ranks in the order of the list. Where a value is held at one coordinate, only that one takes
    part.

    The code is that of the local level (`-t local`), operation by operation: blocks are packed by
    copies, a `repeat` is a loop, and temporaries are one piece of memory in the order of the
    stream. An `async` collective runs on the stream of the outermost level that it crosses; streams
    wait for each other by events. With `sized=true` functions are for values of any size. Steps
    that compute elements, and copies of single elements, are kernels, which need nvcc.

    Each task of a pipeline is a function, which the ranks of its place call for every microbatch in
    the order of the schedule; a rank receives while it computes.

    On axes with weights, an all_gather or reduce_scatter pads its blocks to the largest, or is a
    group of broadcasts or reductions, one for each block, whichever is faster by the model of NCCL
    (and a group on a mesh without levels). Other collectives are sends and receives of each block.
    """

    name = "nccl"

    main: bool = False
    """Print a program with a main that runs each function, checks it and times it."""
    processes: bool = True
    """Run the ranks of the main as processes of MPI; if false, as threads of one process."""
    symmetric: bool = False
    """Put temporaries into symmetric memory, registered with NCCL."""
    sized: bool = False
    """Print functions that work for values of any size: they take their size parameters or a width,
    and call the functions for larger values (`for`), if any."""
    header: bool = False
    """Print the header of the file instead: declarations for programs to include."""
    prefix: str = ""
    """The beginning of all names that other files see, so that several emitted files can be
    linked."""

    def __post_init__(self) -> None:
        Interface(self.prefix)
        if self.main and self.prefix:
            raise ValueError("a program with a main has no interface: leave out prefix")
        if self.header and (self.main or self.symmetric):
            raise ValueError("programs with a main or symmetric memory have no header")
        if self.main and self.sized:
            raise ValueError("main runs functions on values as large as their types: not sized")
        if self.symmetric and self.sized:
            raise ValueError("symmetric memory is as large as the types say: not sized")

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        if self.main:
            output.write(emit_with_main(module, self.processes, self.symmetric))
        else:
            file = NcclFile(module, (), self.symmetric, self.sized, Interface(self.prefix))
            output.write(file.header() if self.header else file.text())
