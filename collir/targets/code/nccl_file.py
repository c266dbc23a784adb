"""A file of C++17 for NCCL and CUDA: one function per ``func`` on device buffers and a stream."""

from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.collectives import nccl
from collir.cost.collectives.table import COSTS, NcclKind
from collir.cost.programs.collectives import runs_grouped
from collir.dialects.local import mesh_at
from collir.dialects.local_types import BufferType, buffer_of
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.layout import DType, Mesh
from collir.layout.types import MAX_BYTES
from collir.localize.localize import programs_of_ranks
from collir.localize.writer import GroupRules
from collir.targets.code.c_file import (
    DECLARATIONS,
    PLAIN,
    SIZED,
    Interface,
    called_first,
    called_in,
    check_names,
    for_code,
    header_text,
    introduce,
    runtime,
)
from collir.targets.code.c_mesh import by_mesh
from collir.targets.code.c_signature import signatures
from collir.targets.code.c_text import Comment
from collir.targets.code.nccl_mesh import FUNCTIONS, SYMMETRIC_FUNCTIONS, NcclMesh
from collir.targets.code.nccl_method import NcclMethod
from collir.targets.code.nccl_text import CPP, CudaText

_WIDTH = 100


def _broken(line: str) -> list[str]:
    """Return a line of code in lines of at most ``_WIDTH`` letters where that is possible.

    The line is broken after commas, and continued as deep as its brackets are open.
    """
    if len(line) <= _WIDTH or isinstance(line, Comment) or ", " not in line[:_WIDTH]:
        return [line]
    cut = line.rindex(", ", 0, _WIDTH) + 1
    opened: list[int] = []
    for place, letter in enumerate(line[:cut]):
        if letter in "({":
            opened.append(place + 1)
        elif letter in ")}" and opened:
            opened.pop()
    if not opened:
        return [line]
    return [line[:cut], *_broken(" " * opened[-1] + line[cut + 1 :])]


_HEADER = """/* Written by collir {version}: C++17, CUDA and NCCL {least} or newer. {compiler}
 *
 * All ranks of a communicator, which stays the caller's, get a handle by MESH_create, call
 * functions with it and with buffers on their device, which must not overlap, and give it back by
 * MESH_destroy. Functions put work on the stream and do not wait for it; MESH_synchronize does, and
 * ends when a communicator fails. A handle has communicators, and streams if functions use any, so
 * it is for one thread at a time; a process may have several, of one rank or more. All functions
 * return ncclSuccess or an error of NCCL, which is ncclUnhandledCudaError for those of CUDA. Where
 * a rank holds nothing of a value, its buffer is not touched and may be NULL.
{symmetric}{interface}
 */"""

_SYMMETRIC = """ *
 * The temporaries are symmetric memory that MESH_create registers: the functions of a handle have
 * to be called on one stream, or so that they do not overlap. Buffers from MESH_alloc are
 * registered too.
"""

_WITH_KERNELS = "It has kernels: compile it with nvcc."

_IS_HEADER = "It is a header."

_WITHOUT_KERNELS = "It has no kernels: any C++\n * compiler will do."


class NcclFile:
    """A file of C++ for NCCL, with the functions of a module.

    Attributes:
        meshes: the names of each mesh that functions are on, by the name of the mesh.
    """

    def __init__(
        self,
        module: ModuleOp,
        static: Iterable[FuncOp] = (),
        symmetric: bool = False,
        sized: bool = False,
        interface: Interface = PLAIN,
    ):
        """Lower the functions of a module.

        Args:
            static: the functions that are for this file only.
            symmetric: whether temporaries are symmetric memory.
            sized: whether functions take their size parameters, or a width, and choose by them.
            interface: what other files see.

        Raises:
            DiagnosticError: names that C++ cannot have, operations that are not collectives.
        """
        ready, hidden, wide = for_code(module, static, "NCCL", sized, CPP, tasks=not sized)
        own, self.sized, self.symmetric = signatures(ready, hidden, wide, sized), sized, symmetric
        meshes = {mesh.name: mesh for mesh in map(mesh_of, functions_of(ready))}
        check_names(
            ready, list(meshes), interface, CPP, FUNCTIONS + SYMMETRIC_FUNCTIONS * symmetric
        )
        functions = programs_of_ranks(ready, _RULES)
        self.meshes = {
            name: NcclMesh(
                mesh, by_mesh(functions, name), symmetric=symmetric, prefix=interface.prefix
            )
            for name, mesh in meshes.items()
        }
        tasks = called_in(functions)
        self.cuda = CudaText()
        self.texts: list[NcclMethod] = []
        for function in functions:
            mesh = self.meshes[mesh_at(function).name]
            name = function.sym_name.data
            self.texts.append(NcclMethod(function, mesh, own[name], name in tasks, self.cuda))
        introduce(self.texts)

    def _interface(self) -> list[str]:
        """Return the declarations of the functions of the meshes."""
        return [line for mesh in self.meshes.values() for line in mesh.interface()]

    def header(self) -> str:
        """Return the header of the file, for C and C++."""
        about = _about(DECLARATIONS, _IS_HEADER, self.symmetric, self.sized)
        names_in_c = [_IN_C.get(name, name) for name in self._includes(())]
        declared = [(x.comment(), [x.declaration()]) for x in self.texts if not x.signature.static]
        return header_text(about, names_in_c, self._interface(), declared)

    def text(self, includes: Iterable[str] = ()) -> str:
        """Return the file."""
        if self.symmetric:
            _check_workspaces(self.texts)
            self.cuda.needs.add("symmetric")
        interface = self._interface()
        interface += [f"{x.declaration()};" for x in self.texts if not x.signature.static]
        bodies = [line for text in self.texts for line in text.text()]
        compiler = _WITH_KERNELS if self.cuda.kernels else _WITHOUT_KERNELS
        listed = "\n".join(f" *   {line}" for line in interface)
        about = _about(listed, compiler, self.symmetric, self.sized)
        code = [line for mesh in self.meshes.values() for line in mesh.text(self._events(mesh))]
        code += [f"{text.head()};" for text in called_first(self.texts)]
        included = self._includes(["cstdlib", *includes])
        return _file_text(about, included, self.cuda, [*code, *bodies])

    def _events(self, mesh: NcclMesh) -> int:
        """Return the number of events that functions on a mesh need."""
        return max(text.last_event for text in self.texts if text.names is mesh)

    def _includes(self, more: Iterable[str]) -> Sequence[str]:
        """Return the headers that functions and sections of the runtime need."""
        needs = self.cuda.needs
        types = {
            buffer_of(value).dtype
            for text in self.texts
            for op in (text.function, *text.function.walk())
            for value in (*op.results, *(x for r in op.regions for b in r.blocks for x in b.args))
            if isinstance(value.type, BufferType)
        }
        headers = {"cstddef", "cstdint", "cuda_runtime.h", "nccl.h", *more}
        if "compute_for" in needs:
            headers |= {"chrono", "thread"}
        if needs & {"copy_rows", "zero_rows"}:
            headers.add("climits")
        if DType.F16 in types:
            headers.add("cuda_fp16.h")
        if DType.BF16 in types:
            headers.add("cuda_bf16.h")
        return sorted(headers)


def _is_padded(op: DistOp, mesh: Mesh) -> bool:
    """Return whether a collective on blocks that differ in size takes padded ones, and is no group
    of calls: by what is faster."""
    entry = COSTS[op.mnemonic].nccl
    is_either = isinstance(entry, NcclKind) and bool(entry.grouped)
    return is_either and not runs_grouped(op, mesh)


_ITS_NAMES = {nccl.RING: "Ring", nccl.TREE: "Tree"}
"""NCCL's names of its algorithms."""

_OWN = {
    (kind, name): f"NCCL has an algorithm {its} of its own, which NCCL_ALGO={its} asks for"
    for kind, entry in COSTS.items()
    if isinstance(entry.nccl, NcclKind)
    for name, its in _ITS_NAMES.items()
    if name == nccl.RING or entry.nccl.tree
}
"""The algorithms that are NCCL's own, and how it is told so."""

_RULES = GroupRules(padded=_is_padded, algorithms=_OWN)
"""The rules of NCCL: ranks in any order, blocks of one size, or several calls."""

_IN_C = {"cstddef": "stddef.h", "cstdint": "stdint.h"}
"""The names in C of headers of C++."""


def _file_text(about: str, includes: Iterable[str], cuda: CudaText, code: Iterable[str]) -> str:
    """Return a file that defines functions, with the runtime and the kernels that they need."""
    lines = [
        about,
        *(f"#include <{name}>" for name in includes),
        "",
        "\n\n".join(runtime("nccl_runtime.cu", cuda.needs)),
        "",
        *(line for kernel in cuda.kernels.values() for line in kernel),
        *(short for line in code for short in _broken(line)),
    ]
    return "\n".join(lines)


def _about(interface: str, compiler: str, symmetric: bool, sized: bool) -> str:
    """Return the comment at the top of a file."""
    return _HEADER.format(
        version=collir.__version__,
        least="2.28" if symmetric else "2.18",
        compiler=compiler,
        symmetric=(_SYMMETRIC if symmetric else "") + (SIZED if sized else ""),
        interface=interface,
    )


def _check_workspaces(texts: Sequence[NcclMethod]) -> None:
    """Check that the temporaries of each mesh have an address space.

    Raises:
        DiagnosticError: a mesh needs too many bytes.
    """
    for text in texts:
        if text.arena > MAX_BYTES:
            raise DiagnosticError.at(
                text.function,
                f"the temporaries of @{text.function.sym_name.data} take more than 2^63 - 1 bytes "
                "of symmetric memory: without symmetric=true each call has its own",
            )
