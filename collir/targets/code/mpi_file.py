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
from collir.localize.in_place import in_place
from collir.localize.localize import programs_of_ranks
from collir.localize.writer import ANY_GROUPS
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
    host_runtime,
    introduce,
)
from collir.targets.code.c_kernels import FileKernels
from collir.targets.code.c_mesh import by_mesh
from collir.targets.code.c_models import BODIES
from collir.targets.code.c_products import BLAS, CBLAS, product_text
from collir.targets.code.c_signature import signatures
from collir.targets.code.mpi_mesh import MpiMesh, operator_text
from collir.targets.code.mpi_method import ARGUMENTS, MpiMethod
from collir.targets.code.mpi_parts import MpiPartsMethod, members_for_parts
from collir.targets.code.names import raise_all, refused_model

_HEADER = """/* Written by collir {version}: C99 and MPI 3.0.
 *
 * All ranks of a communicator get a handle by MESH_create, call functions with it and with their
 * own buffers, which must not overlap, and give it back by MESH_destroy. A handle has communicators
 * and the memory of temporaries, so it is for one call at a time; there may be several handles. All
 * functions return MPI_SUCCESS or an MPI error code, of which MPI_Error_string has the text. Where
 * a rank holds nothing of a value, its buffer is not touched and may be NULL. MESH_create_f is for
 * Fortran.
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
        interface: Interface = PLAIN,
    ):
        """Lower the functions of a module.

        Args:
            static: the functions that are for this file only.
            sized: whether functions take their size parameters, or a width, and choose by them.
            named: the functions to print of a module with operations of models; by default all
                functions that no other function calls.
            interface: what other files see.

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
        check_names(ready, initialised, interface, models=True)
        functions = programs_of_ranks(ready, ANY_GROUPS)
        self.meshes = {
            name: MpiMesh(
                mesh,
                by_mesh(functions, name),
                has_handle=name in initialised,
                prefix=interface.prefix,
            )
            for name, mesh in meshes.items()
        }
        self.needed = [self.meshes[name] for name in initialised]
        tasks = called_in(functions)
        self.kernels = FileKernels(BODIES)
        self.texts: list[MpiMethod] = []
        for function in functions:
            name, names = function.sym_name.data, self.meshes[mesh_at(function).name]
            in_parts = interface.parts and not own[name].static and name not in tasks
            method = MpiPartsMethod if in_parts else MpiMethod
            self.texts.append(method(function, names, own[name], name in tasks, self.kernels))
        if interface.in_place:
            self._share()
        introduce(self.texts)

    def _share(self) -> None:
        """Say which results may lie in arguments: in a function, and in all that take its place."""
        able = [name for name, row in ARGUMENTS.items() if row.in_place]
        pairs = {text.function.sym_name.data: in_place(text.function, able) for text in self.texts}
        for text in self.texts:
            function, own = text.function, pairs[text.function.sym_name.data]
            others = [pairs[choice.name] for choice in text.signature.choices]
            text.shared = {
                function.outputs[number]: function.inputs[index]
                for number, index in own.items()
                if all(other.get(number) == index for other in others)
            }

    def _interface(self) -> list[str]:
        """Return the declarations of the functions of the meshes."""
        return [line for names in self.needed for line in names.interface()]

    def header(self) -> str:
        """Return the header of the file, for C and C++."""
        about = _about(DECLARATIONS, self.sized)
        declared = [
            (x.comment(), [x.declaration(), *x.declarations_of_parts()])
            for x in self.texts
            if not x.signature.static
        ]
        return header_text(about, _HEADER_INCLUDES, self._interface(), declared)

    def _mesh_text(self, names: MpiMesh) -> list[str]:
        """Return the struct of a mesh and its functions, behind the text of all others."""
        has_memory = any("reserve" in x.needs for x in self.texts if x.names is names)
        return names.text(has_memory, members_for_parts(self.texts, names))

    def text(self, includes: Iterable[str] = _INCLUDES, sections: Iterable[str] = ()) -> str:
        """Return the file.

        Args:
            sections: the sections of the runtime to print in any case.
        """
        interface = self._interface()
        interface += [
            f"int  {line.removeprefix('int ')};"
            for x in self.texts
            if not x.signature.static
            for line in (x.declaration(), *x.declarations_of_parts())
        ]
        bodies = [line for text in self.texts for line in text.text()]
        needs = {*sections, *self.kernels.needs, *(x for text in self.texts for x in text.needs)}
        if self.kernels.texts:
            includes = sorted({*includes, "math.h"})
        return "\n".join(
            [
                _about("\n".join(f" *   {line}" for line in interface), self.sized),
                *_runtime_text(needs, self.needed, includes),
                *(line for names in self.needed for line in self._mesh_text(names)),
                *_products_text(self.kernels.products),
                *self.kernels.texts,
                *(f"{text.head()};\n" for text in called_first(self.texts)),
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


def _runtime_text(needs: set[str], meshes: Sequence[MpiMesh], includes: Iterable[str]) -> list[str]:
    """Return the includes, the sections of the runtime, and the reductions that MPI lacks."""
    made = {"wrong_size"} if meshes else set[str]()
    made |= {"check_hosts"} if any(names.has_hosts() for names in meshes) else set[str]()
    waiting = ["sched.h"] if "compute_for" in needs else []
    lines = [
        *(f"#include <{name}>" for name in [*includes, *waiting]),
        "",
        *host_runtime(needs | made),
    ]
    for operator in dict.fromkeys(operator for names in meshes for operator in names.operators):
        lines += operator_text(operator)
    return lines
