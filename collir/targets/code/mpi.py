"""The target ``mpi``: C for MPI 3.0 and C99, with or without a main."""

import re
from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.targets.code.c_file import Interface
from collir.targets.code.mpi_file import MpiFile
from collir.targets.code.mpi_fortran import fortran_module
from collir.targets.code.mpi_main import emit_with_main


@dataclass(frozen=True)
class MpiTarget(Target):
    """C for MPI 3.0 and C99: one function per `func`, communicators made once.

    `MESH_create` makes a handle from a communicator, and every function takes it first: it has the
    communicators, the requests and the memory for temporaries. `MESH_create` warns if the ranks of
    a node of the machine do not run on one host.

    The communicator of an ordered list of sub-axes is an `MPI_Comm_split` of the mesh, with its
    ranks in the order of the list. Where a value is held at one coordinate, only that one takes
    part.

    The code is that of the local level (`-t local`), operation by operation: blocks are packed by
    copies, and a collective is a function of the file, which starts it if it is given a request. A
    `repeat` is a loop. Temporaries are one piece of memory, which the handle keeps. With
    `sized=true` functions are for values of any size.

    On axes with weights, sizes differ by rank (`by_...`), and collectives are MPI's for different
    counts (`MPI_Allgatherv`, ...); `sized=true` has none.

    An operation of a model is a function of loops over the blocks of a rank, printed once for all
    steps of equal shapes. Numbers of 16 bits are added in float. Calls and gradients are steps of
    the function. `sized=true` has no operations of models.

    Each task of a pipeline is a function, which the ranks of its place call for every microbatch in
    the order of the schedule; sends run beside tasks.

    Products of two matrices are a function that works on blocks. With `-DCOLLIR_CBLAS`, those of
    f32 and f64 call `cblas_sgemm` and `cblas_dgemm` of `<cblas.h>`: link with a BLAS, as by
    `-lopenblas`. Programs with functions like `exp` need `-lm`.
    """

    name = "mpi"

    main: bool = False
    """Print a program with a main that runs each function, checks it and times it."""
    sized: bool = False
    """Print functions that work for values of any size: they take their size parameters or a width,
    and call the functions for larger values (`for`), if any."""
    header: bool = False
    """Print the header of the file instead: declarations for C and C++ programs to include."""
    fortran: str = ""
    """Print a Fortran module of this name instead, with the interfaces of the functions."""
    prefix: str = ""
    """The beginning of all names that other files see, so that several emitted files can be
    linked."""
    parts: bool = False
    """Print `NAME_start` and `NAME_wait` too: the first runs a function up to its first wait, the
    second from there on."""
    inplace: bool = False
    """Let results lie in the memory of arguments, where the comment of a function says so."""

    def __post_init__(self) -> None:
        Interface(self.prefix, self.parts, self.inplace)
        if self.main and (self.prefix or self.parts):
            raise ValueError("a program with a main has no interface: leave out prefix and parts")
        if self.main and self.sized:
            raise ValueError("main runs functions on values as large as their types: not sized")
        if self.fortran and (self.main or self.header):
            raise ValueError("a Fortran module is a file of its own: leave out main and header")
        if self.fortran and not re.fullmatch(r"[A-Za-z]\w{0,62}", self.fortran, re.ASCII):
            raise ValueError(
                "a name in Fortran is a letter and at most 62 letters, digits and _ behind it"
            )
        if self.main and self.header:
            raise ValueError("a program with a main has no header: leave out main")

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        if self.main:
            output.write(emit_with_main(module))
            return
        file = MpiFile(
            module, sized=self.sized, interface=Interface(self.prefix, self.parts, self.inplace)
        )
        if self.fortran:
            output.write(fortran_module(file, self.fortran))
        else:
            output.write(file.header() if self.header else file.text())
