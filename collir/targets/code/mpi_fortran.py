"""A module of Fortran 2008 for the functions of a file of C for MPI."""

import re
from collections.abc import Iterable, Sequence

import collir
from collir.dialects.local_types import buffer_of
from collir.ir.diagnostics import DiagnosticError
from collir.layout import DType
from collir.targets.code.c_mesh import HANDLE
from collir.targets.code.mpi_file import MpiFile
from collir.targets.code.mpi_mesh import MpiMesh
from collir.targets.code.mpi_method import MpiMethod
from collir.targets.code.names import raise_all

FORTRAN_TYPES = {
    DType.F16: "integer(c_int16_t)",
    DType.BF16: "integer(c_int16_t)",
    DType.F32: "real(c_float)",
    DType.F64: "real(c_double)",
    DType.I8: "integer(c_int8_t)",
    DType.I32: "integer(c_int32_t)",
    DType.I64: "integer(c_int64_t)",
    DType.BOOL: "logical(c_bool)",
}
"""The type of each element in Fortran; f16 and bf16 are their bits."""

_HEADER = """! Written by collir {version}: what its C for MPI defines, for Fortran 2008.
!
! All ranks of a communicator get a handle by MESH_create, call functions with it and with their own
! buffers, which must not overlap, and give it back by MESH_destroy. A communicator of mpi_f08 is
! given as its MPI_VAL. Functions return an error code of MPI. Buffers are in the order of C: the
! last dimension of a type is the first one of an array in Fortran.
module {name}
  use, intrinsic :: iso_c_binding
  implicit none

  interface"""

_LONGEST, _WIDTH = 63, 132
"""The letters of a name, and those of a line, that Fortran allows."""


def fortran_module(file: MpiFile, name: str) -> str:
    """Return the module of a name with the functions of a file.

    Raises:
        DiagnosticError: functions whose names Fortran cannot tell apart, or that are too long.
    """
    methods = [text for text in file.texts if not text.signature.static]
    _check_names(methods, file.needed)
    lines = [_HEADER.format(version=collir.__version__, name=name)]
    for names in file.needed:
        create, destroy = f"{names.symbol}_create", f"{names.symbol}_destroy"
        given = ["integer(c_int), value :: comm", f"type(c_ptr), intent(out) :: {HANDLE}"]
        lines += _function(create, ["comm", HANDLE], given, f"{create}_f")
        lines += [
            "",
            f'    subroutine {destroy}({HANDLE}) bind(C, name="{destroy}")',
            "      import",
            f"      type(c_ptr), value :: {HANDLE}",
            "    end subroutine",
        ]
    for method in methods:
        lines += _functions(method)
    return "\n".join([*lines, "  end interface", f"end module {name}", ""])


def _functions(method: MpiMethod) -> list[str]:
    """Return the declarations of a function, and of the functions that run a part of it."""
    buffers = [*method.function.inputs, *method.function.outputs]
    words = _arguments([*map(method.name_of, buffers), *method.signature.sizes])
    handle = [f"type(c_ptr), value :: {HANDLE}"]
    is_kept = ", asynchronous" if method.declarations_of_parts() else ""
    given: list[str] = []
    for word, value in zip(words, buffers, strict=False):
        intent = "in" if value in method.function.inputs else "inout"
        kind = FORTRAN_TYPES[buffer_of(value).dtype]
        given.append(f"{kind}, intent({intent}){is_kept} :: {word}(*)")
    given += [f"integer(c_size_t), value :: {word}" for word in words[len(buffers) :]]
    about = re.sub(r"^(/| )\* ?", "    ! ", method.comment().removesuffix(" */"), flags=re.M)
    lines = [*_function(method.symbol, [HANDLE, *words], [*handle, *given])]
    lines[1:1] = about.split("\n")
    if is_kept:
        lines += _function(f"{method.symbol}_start", [HANDLE, *words], [*handle, *given])
        lines += _function(f"{method.symbol}_wait", [HANDLE], handle)
    return lines


def _function(name: str, words: Sequence[str], given: Iterable[str], symbol: str = "") -> list[str]:
    """Return the declaration of a function.

    Args:
        words: its arguments.
        given: their declarations.
        symbol: its name in C, if it is another one.
    """
    head = f"    integer(c_int) function {name}({', '.join(words)})"
    return [
        "",
        *_broken(f'{head} bind(C, name="{symbol or name}")'),
        "      import",
        *(f"      {line}" for line in given),
        "    end function",
    ]


def _broken(line: str) -> list[str]:
    """Return a statement in lines that are short enough."""
    if len(line) <= _WIDTH:
        return [line]
    cut = line.rindex(", ", 0, _WIDTH - 2) + 1
    return [f"{line[:cut]} &", *_broken(f"        {line[cut + 1 :]}")]


def _arguments(names: Sequence[str]) -> list[str]:
    """Return names of arguments that Fortran tells apart."""
    known = {HANDLE}
    chosen: list[str] = []
    for number, name in enumerate(names):
        is_clear = name.lower() not in known and len(name) <= _LONGEST
        chosen.append(name if is_clear else f"argument_{number}")
        known.add(chosen[-1].lower())
    return chosen


def _check_names(methods: Sequence[MpiMethod], meshes: Sequence[MpiMesh]) -> None:
    """Check that functions can have the same names in Fortran.

    Raises:
        DiagnosticError: all functions that cannot.
    """
    errors: list[DiagnosticError] = []
    known = {f"{names.symbol}_{end}".lower() for names in meshes for end in ("create", "destroy")}
    most = _LONGEST - len("_start")
    for method in methods:
        plain, problem = method.symbol.lower(), ""
        if len(plain) > most:
            problem = f"its name has more than {most} letters"
        elif plain in known:
            problem = "Fortran does not tell it from another one, as letters have no case there"
        if problem:
            cannot = f"function @{method.function.sym_name.data} cannot be a Fortran function"
            errors.append(DiagnosticError.at(method.function, f"{cannot}: {problem}; rename it"))
        known.add(plain)
    raise_all(errors)
