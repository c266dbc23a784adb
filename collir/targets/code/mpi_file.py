"""A file of C for MPI 3.0 and C99: one function per ``func``, communicators made once."""

from collections.abc import Collection, Iterable, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp, is_of_model
from collir.ir.alternatives import alternatives
from collir.ir.functions import functions_of
from collir.layout import DType
from collir.targets.code.c_file import (
    DECLARATIONS,
    SIZED,
    called_by_others,
    check_names,
    for_code,
    header_text,
    runtime,
)
from collir.targets.code.c_kernels import Kernels
from collir.targets.code.c_models import BODIES
from collir.targets.code.c_products import BLAS, CBLAS, product_text
from collir.targets.code.c_text import MeshNames
from collir.targets.code.mpi_function import MpiFunction
from collir.targets.code.mpi_mesh import mesh_names, mesh_text, operator_text
from collir.targets.code.names import raise_all, refused_model

_HEADER = """/* Written by collir {version}: C99 and MPI 3.0.
 *
 * Every rank calls MESH_init(comm) once, then the functions with its own buffers, which must not
 * overlap, then MESH_finalize(). All return MPI_SUCCESS or an MPI error code, of which
 * MPI_Error_string has the text. Where a rank holds nothing of a value, its buffer is not touched
 * and may be NULL.
{sized}{interface}
 */"""

_INCLUDES = ("limits.h", "mpi.h", "stdint.h", "stdio.h", "stdlib.h", "string.h")

_HEADER_INCLUDES = ("mpi.h", "stddef.h", "stdint.h")


def emit_c(
    module: ModuleOp,
    static: Iterable[FuncOp] = (),
    includes: Iterable[str] = _INCLUDES,
    sections: Iterable[str] = (),
    sized: bool = False,
    header: bool = False,
    named: Collection[str] | None = None,
) -> str:
    """Return the C of all functions of a module.

    Args:
        static: the functions that are for this file only.
        sections: the sections of the runtime to print in any case.
        sized: whether functions take their size parameters, or a width, and choose by them.
        header: whether to print declarations instead, for C and C++.
        named: the functions to print of a module with operations of models; by default those that
            no other calls.

    Raises:
        DiagnosticError: names that C cannot have, operations that are not collectives.
    """
    if sized:
        _refuse_models(module)
    module, hidden, wide = for_code(module, static, "MPI", sized, named=named, tasks=not sized)
    functions = functions_of(module)
    # A mesh that is only for this file, of one device, needs no communicators.
    open_on = {mesh_of(function).name for function in functions if function not in hidden}
    meshes = mesh_names(functions)
    needed = [names for name, names in meshes.items() if names.mesh.sub_axes or name in open_on]
    check_names(module, [names.mesh.name for names in needed], models=True)
    choices = alternatives(module) if sized else {}
    kernels = Kernels(BODIES)
    texts = [
        MpiFunction(
            function,
            meshes[mesh_of(function).name],
            static=function in hidden,
            sized=sized,
            wide=function in wide,
            instead=choices.get(function.sym_name.data, []),
            kernels=kernels,
        )
        for function in functions
    ]
    interface = [f"int  {names.mesh.name}_init(MPI_Comm comm);" for names in needed]
    interface += [f"void {names.mesh.name}_finalize(void);" for names in needed]
    if header:
        return header_text(_about(DECLARATIONS, sized), _HEADER_INCLUDES, interface, texts)
    interface += [f"int  {text.prototype()};" for text in texts if not text.static]
    bodies = [line for text in texts for line in text.text()]
    needs = {*sections, *kernels.needs, *(name for text in texts for name in text.needs)}
    if kernels.texts:
        includes = sorted({*includes, "math.h"})
    return "\n".join(
        [
            _about("\n".join(f" *   {line}" for line in interface), sized),
            *_runtime_text(needs, needed, includes),
            *(line for names in needed for line in mesh_text(names)),
            *_products_text(kernels.products),
            *kernels.texts,
            *(f"{text.signature()};\n" for text in called_by_others(texts)),
            *bodies,
        ]
    )


def _refuse_models(module: ModuleOp) -> None:
    """Check that a module has no operations of models, which have no form for any size.

    Raises:
        DiagnosticError: one diagnostic for each operation of a model.
    """
    problem = "which has no form for values of any size: leave out sized=true"
    raise_all(
        [
            refused_model(op, problem)
            for op in module.walk()
            if isinstance(op, DistOp) and is_of_model(op)
        ]
    )


def _about(interface: str, sized: bool) -> str:
    """Return the comment at the top of a file."""
    return _HEADER.format(
        version=collir.__version__, sized=SIZED if sized else "", interface=interface
    )


def _products_text(dtypes: set[DType]) -> list[str]:
    """Return the functions that multiply matrices."""
    blas = [CBLAS] if not dtypes.isdisjoint(BLAS) else []
    return [*blas, *(product_text(dtype) for dtype in DType if dtype in dtypes)]


def _runtime_text(
    needs: set[str], meshes: Sequence[MeshNames], includes: Iterable[str]
) -> list[str]:
    """Return the includes, the sections of the runtime, and the reductions that MPI lacks."""
    waiting = ["sched.h"] if "compute_for" in needs else []
    lines = [
        *(f"#include <{name}>" for name in [*includes, *waiting]),
        "",
        "\n\n".join(runtime("mpi_runtime.c", needs | ({"wrong_size"} if meshes else set[str]()))),
        "",
    ]
    for operator in dict.fromkeys(operator for names in meshes for operator in names.operators):
        lines += operator_text(operator)
    return lines
