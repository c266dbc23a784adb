"""A file of C for MPI 3.0 and C99: one function per ``func``, communicators made once."""

from collections.abc import Collection, Iterable, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.local import mesh_at
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp, is_of_model
from collir.ir.functions import functions_of
from collir.layout import DType
from collir.localize.localize import programs_of_ranks
from collir.localize.writer import ANY_GROUPS
from collir.targets.code.c_file import (
    DECLARATIONS,
    SIZED,
    called_first,
    called_in,
    check_names,
    for_code,
    header_text,
    host_runtime,
    introduce,
)
from collir.targets.code.c_kernels import Kernels
from collir.targets.code.c_mesh import by_mesh
from collir.targets.code.c_models import BODIES
from collir.targets.code.c_products import BLAS, CBLAS, product_text
from collir.targets.code.c_signature import signatures
from collir.targets.code.mpi_mesh import MpiMesh, operator_text
from collir.targets.code.mpi_method import MpiMethod
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


class MpiFile:
    """A file of C for MPI, with the functions of a module.

    Attributes:
        meshes: the names of each mesh that functions are on, by the name of the mesh.
    """

    def __init__(
        self,
        module: ModuleOp,
        static: Iterable[FuncOp] = (),
        sized: bool = False,
        named: Collection[str] | None = None,
    ):
        """Lower the functions of a module.

        Args:
            static: the functions that are for this file only.
            sized: whether functions take their size parameters, or a width, and choose by them.
            named: the functions to print of a module with operations of models; by default those
                that no other calls.

        Raises:
            DiagnosticError: names that C cannot have, operations that are not collectives.
        """
        if sized:
            _refuse_models(module)
        ready, hidden, wide = for_code(module, static, "MPI", sized, named=named, tasks=not sized)
        own, self.sized = signatures(ready, hidden, wide, sized), sized
        meshes = {mesh.name: mesh for mesh in map(mesh_of, functions_of(ready))}
        # A mesh that is only for this file, of one device, needs no communicators.
        open_on = {mesh_of(f).name for f in functions_of(ready) if f not in hidden}
        initialised = [n for n, mesh in meshes.items() if mesh.sub_axes or n in open_on]
        check_names(ready, initialised, models=True)
        functions = programs_of_ranks(ready, ANY_GROUPS)
        self.meshes = {
            name: MpiMesh(mesh, by_mesh(functions, name)) for name, mesh in meshes.items()
        }
        self.needed = [self.meshes[name] for name in initialised]
        tasks = called_in(functions)
        self.kernels = Kernels(BODIES)
        self.texts = [
            MpiMethod(
                function,
                self.meshes[mesh_at(function).name],
                own[function.sym_name.data],
                function.sym_name.data in tasks,
                self.kernels,
            )
            for function in functions
        ]
        introduce(self.texts)

    def _interface(self) -> list[str]:
        """Return the declarations of the functions of the meshes."""
        lines = [f"int  {names.mesh.name}_init(MPI_Comm comm);" for names in self.needed]
        return [*lines, *(f"void {names.mesh.name}_finalize(void);" for names in self.needed)]

    def header(self) -> str:
        """Return the header of the file, for C and C++."""
        about = _about(DECLARATIONS, self.sized)
        declared = [(x.comment(), x.declaration()) for x in self.texts if not x.signature.static]
        return header_text(about, _HEADER_INCLUDES, self._interface(), declared)

    def text(self, includes: Iterable[str] = _INCLUDES, sections: Iterable[str] = ()) -> str:
        """Return the file.

        Args:
            sections: the sections of the runtime to print in any case.
        """
        interface = self._interface()
        interface += [f"int  {x.prototype()};" for x in self.texts if not x.signature.static]
        bodies = [line for text in self.texts for line in text.text()]
        needs = {*sections, *self.kernels.needs, *(x for text in self.texts for x in text.needs)}
        if self.kernels.texts:
            includes = sorted({*includes, "math.h"})
        return "\n".join(
            [
                _about("\n".join(f" *   {line}" for line in interface), self.sized),
                *_runtime_text(needs, self.needed, includes),
                *(line for names in self.needed for line in names.text("reserve" in needs)),
                *_products_text(self.kernels.products),
                *self.kernels.texts,
                *(f"{text.head()};\n" for text in called_first(self.texts)),
                *bodies,
            ]
        )


def emit_c(
    module: ModuleOp,
    includes: Iterable[str] = _INCLUDES,
    sized: bool = False,
    header: bool = False,
) -> str:
    """Return the C of all functions of a module, or the header for them.

    Raises:
        DiagnosticError: names that C cannot have, operations that are not collectives.
    """
    file = MpiFile(module, sized=sized)
    return file.header() if header else file.text(includes)


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


def _runtime_text(needs: set[str], meshes: Sequence[MpiMesh], includes: Iterable[str]) -> list[str]:
    """Return the includes, the sections of the runtime, and the reductions that MPI lacks."""
    waiting = ["sched.h"] if "compute_for" in needs else []
    lines = [
        *(f"#include <{name}>" for name in [*includes, *waiting]),
        "",
        *host_runtime(needs | ({"wrong_size"} if meshes else set[str]())),
    ]
    for operator in dict.fromkeys(operator for names in meshes for operator in names.operators):
        lines += operator_text(operator)
    return lines
