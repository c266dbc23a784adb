"""A file of C++17 for NCCL and CUDA: one function per ``func`` on device buffers and a stream."""

from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.alternatives import alternatives
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of, refuse_nested
from collir.layout import DType
from collir.layout.types import MAX_BYTES
from collir.targets.code.c_file import (
    DECLARATIONS,
    SIZED,
    called_by_others,
    check_names,
    for_code,
    header_text,
    runtime,
)
from collir.targets.code.c_text import Comment
from collir.targets.code.nccl_function import NcclFunction
from collir.targets.code.nccl_mesh import (
    FUNCTIONS,
    SYMMETRIC_FUNCTIONS,
    Workspace,
    mesh_names,
    mesh_text,
)
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
 * Every rank calls MESH_init with a communicator of all ranks of the mesh, which stays the
 * caller's, then the functions with buffers on its device, which must not overlap, and in the end
 * MESH_finalize. Functions put work on the stream and do not wait for it; MESH_synchronize does,
 * and ends when a communicator fails. All return ncclSuccess or an error of NCCL, which is
 * ncclUnhandledCudaError for those of CUDA. A rank is a thread: a process may have several. Where
 * a rank holds nothing of a value, its buffer is not touched and may be NULL.
{symmetric}{interface}
 */"""

_SYMMETRIC = """ *
 * The temporaries are symmetric memory that MESH_init registers: the functions of a mesh have to be
 * called on one stream, or so that they do not overlap. Buffers from MESH_alloc are registered too.
"""

_WITH_KERNELS = "It has kernels: compile it with nvcc."

_IS_HEADER = "It is a header."

_WITHOUT_KERNELS = "It has no kernels: any C++\n * compiler will do."


def emit_cpp(
    module: ModuleOp,
    static: Iterable[FuncOp] = (),
    includes: Iterable[str] = (),
    symmetric: bool = False,
    sized: bool = False,
    header: bool = False,
) -> str:
    """Return the C++ of all functions of a module.

    Args:
        static: the functions that are for this file only.
        symmetric: whether temporaries are symmetric memory.
        sized: whether functions take their size parameters, or a width, and choose by them.
        header: whether to print declarations instead.

    Raises:
        DiagnosticError: names that C++ cannot have, operations that are not collectives.
    """
    module, hidden, wide = for_code(
        module, static, "NCCL", sized, CPP, tasks=not (sized or symmetric)
    )
    functions = functions_of(module)
    if symmetric:
        refuse_nested(functions, "has no form in NCCL with symmetric memory")
    cuda = CudaText()
    choices = alternatives(module) if sized else {}
    names = mesh_names(functions)
    meshes = {
        name: mesh_text(name, members, functions, Workspace() if symmetric else None)
        for name, members in names.items()
    }
    check_names(module, list(meshes), CPP, FUNCTIONS + SYMMETRIC_FUNCTIONS * symmetric)
    texts = [
        NcclFunction(
            function,
            names[mesh_of(function).name],
            cuda,
            meshes[mesh_of(function).name].workspace,
            meshes[mesh_of(function).name].levels,
            static=function in hidden,
            sized=sized,
            wide=function in wide,
            instead=choices.get(function.sym_name.data, []),
        )
        for function in functions
    ]
    interface = [line for mesh in meshes.values() for line in mesh.interface()]
    if header:
        about = _about(DECLARATIONS, _IS_HEADER, symmetric, sized)
        names_in_c = [_IN_C.get(name, name) for name in _includes(set(), texts, ())]
        declared = [(text.comment(), text.declaration()) for text in texts if not text.static]
        return header_text(about, names_in_c, interface, declared)
    cuda.needs |= {"symmetric"} if symmetric else set[str]()
    interface += [f"{text.declaration()};" for text in texts if not text.static]
    bodies = [line for text in texts for line in text.text()]
    _check_workspaces(texts)
    compiler = _WITH_KERNELS if cuda.kernels else _WITHOUT_KERNELS
    about = _about("\n".join(f" *   {line}" for line in interface), compiler, symmetric, sized)
    included = _includes(cuda.needs, texts, includes)
    code = [line for mesh in meshes.values() for line in mesh.text()]
    code += [f"{text.signature()};" for text in called_by_others(texts)]
    return _file_text(about, included, cuda, [*code, *bodies])


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


def _check_workspaces(texts: Sequence[NcclFunction]) -> None:
    """Check that the temporaries of each mesh have an address space.

    Raises:
        DiagnosticError: a mesh needs too many bytes.
    """
    for text in texts:
        if text.workspace is not None and text.workspace.bytes > MAX_BYTES:
            raise DiagnosticError.at(
                text.function,
                f"the temporaries of @{text.function.sym_name.data} take more than 2^63 - 1 bytes "
                "of symmetric memory: without symmetric=true each is freed after its last use",
            )


_IN_C = {"cstddef": "stddef.h", "cstdint": "stdint.h"}
"""The names in C of headers of C++."""


def _includes(needs: set[str], texts: Sequence[NcclFunction], more: Iterable[str]) -> Sequence[str]:
    """Return the headers that functions and sections of the runtime need."""
    types = {dist_type(value).dtype for text in texts for value in text.plan.owner}
    headers = {"cstddef", "cstdint", "cuda_runtime.h", "nccl.h", *more}
    if "compute_for" in needs:
        headers |= {"chrono", "thread"}
    if needs & {"copy_rows", "swap_blocks"} or any(name.endswith("_blocks") for name in needs):
        headers.add("climits")
    if DType.F16 in types:
        headers.add("cuda_fp16.h")
    if DType.BF16 in types:
        headers.add("cuda_bf16.h")
    return sorted(headers)
