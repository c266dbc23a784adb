"""A file of C or C++: what a module has to print, the runtime in sections, and the header."""

import re
from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.local import LocalCallOp, LocalFuncOp
from collir.ir.functions import check_programs, functions_of
from collir.layout.operation_table import OperationTable
from collir.targets.code.c_copies import TRANSPOSES
from collir.targets.code.c_method import CMethod
from collir.targets.code.c_text import C, Comment, Words, name_problem, variables
from collir.targets.code.names import Definition, check_definitions
from collir.transforms.any_size import open_sizes
from collir.transforms.for_code import models_for_code

SIZED = """ *
 * The functions are for values of any size. Behind the buffers they take size parameters; sizes in
 * the types below are formulas of these. `width` is the size of a dimension behind those of the
 * program. Where a formula is no whole number, or too large, the function returns an error before
 * it does anything. A function that has others for larger values calls the right one.
"""
"""The part of the header of code for values of any size."""

DECLARATIONS = (
    " *\n * This file declares the functions; the same without `header=true` defines them."
)
"""The end of the comment at the top of a header file."""


@cache
def sections(file: str) -> OperationTable[tuple[tuple[str, ...], str]]:
    """Return the sections of a runtime by name, in the order of the file: the names of the sections
    that each needs, and its text."""
    texts = OperationTable[tuple[tuple[str, ...], str]](
        f'sections("{file}")',
        __name__,
        row="the names of the sections that its function needs, and the function's text",
    )
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    for part in text.split("\n//: ")[1:]:
        head, _, body = part.partition("\n")
        name, _, needs = head.partition(" needs ")
        texts[name] = (tuple(n.strip() for n in needs.split(",") if n), body.strip())
    return texts


def runtime(file: str, needs: Iterable[str]) -> list[str]:
    """Return the texts of the sections of a file that a program needs, and of their own needs."""
    known = sections(file)
    needed: set[str] = set()
    stack = list(needs)
    while stack:
        if (name := stack.pop()) not in needed:
            needed.add(name)
            stack += known[name][0]
    return [body for name, (_, body) in known.items() if name in needed]


@dataclass(frozen=True)
class Interface:
    """The names that other files see.

    Attributes:
        prefix: their beginning.
        parts: whether functions have others that start them and wait for them.
        in_place: whether results may lie in the memory of arguments, where functions allow it.
    """

    prefix: str = ""
    parts: bool = False
    in_place: bool = False

    def __post_init__(self) -> None:
        if self.prefix and not re.fullmatch(r"[A-Za-z]\w*", self.prefix, re.ASCII):
            raise ValueError("prefix is a letter and letters, digits and _ behind it")


PLAIN = Interface()


def check_names(
    module: ModuleOp,
    initialised: Container[str],
    interface: Interface = PLAIN,
    words: Words = C,
    mesh_functions: Sequence[str] = ("create", "create_f", "destroy"),
    models: bool = False,
) -> None:
    """Check that functions, and meshes to be initialised, can have their names in C.

    Args:
        models: whether operations of models are printed.

    Raises:
        DiagnosticError: all the names that C cannot have.
    """
    kind = f"{words.language} function"

    def definition(name: str) -> Definition:
        whole = f"{interface.prefix}{name}"
        return Definition(whole, name_problem(whole, words), kind)

    ends = ("", "_start", "_wait") if interface.parts else ("",)

    check_definitions(
        module,
        words.language,
        lambda mesh: [
            definition(f"{mesh}_{name}") for name in mesh_functions if mesh in initialised
        ],
        lambda function: [definition(f"{function}{end}") for end in ends],
        models,
    )


def for_code(
    module: ModuleOp,
    static: Iterable[FuncOp],
    library: str,
    sized: bool,
    words: Words = C,
    named: Collection[str] | None = None,
    *,
    tasks: bool,
) -> tuple[ModuleOp, set[FuncOp], set[FuncOp]]:
    """Return a module as code has it, and two sets of its functions.

    The first set has the functions for the file only, the second the functions whose size parameter
    is a width. The second is empty if not ``sized``.

    Args:
        static: the functions of the module that are for the file only.
        sized: whether size parameters are arguments of functions.
        named: the functions to print of a module with operations of models; by default all
            functions that no other function calls.
        tasks: whether tasks of pipelines are functions; else they are steps.

    Raises:
        DiagnosticError: operations that are not collectives, or have no form for any size.
    """
    ready, added = models_for_code(module, named, tasks)
    cannot = f"has no form in {library}"
    check_programs(functions_of(ready), cannot, nested=True)
    hidden = {function.sym_name.data for function in (*static, *added)}
    if not sized:
        return ready, {f for f in functions_of(ready) if f.sym_name.data in hidden}, set()
    check_programs(functions_of(ready), f"{cannot} for values of any size", even=True, nested=True)
    if ready is module:
        ready = module.clone()
    wide = open_sizes(ready, module, lambda names: variables(names, words))
    functions = functions_of(ready)
    return ready, {f for f in functions if f.sym_name.data in hidden}, wide


Text = TypeVar("Text", bound=CMethod)


def called_in(functions: Iterable[LocalFuncOp]) -> set[str]:
    """Return the names of the functions that local functions call."""
    calls = (op for f in functions for op in f.walk() if isinstance(op, LocalCallOp))
    return {call.callee.string_value() for call in calls}


def introduce(texts: Sequence[CMethod]) -> None:
    """Let the functions of a file know each other by their names."""
    known = {text.function.sym_name.data: text for text in texts}
    for text in texts:
        text.others = known


def host_runtime(needs: set[str]) -> list[str]:
    """Return the lines of the runtime on a host that a program needs, transposes among them."""
    text = "\n\n".join(runtime("mpi_runtime.c", needs.difference(TRANSPOSES)))
    return [text, "", *(text for name, text in TRANSPOSES.items() if name in needs)]


def called_first(texts: Sequence[Text]) -> list[Text]:
    """Return the functions that are declared first, as others call them: tasks, and those for
    larger values."""
    called = {other.name for text in texts for other in text.signature.choices}
    return [x for x in texts if x.is_task or x.function.sym_name.data in called]


Declared = tuple[Comment, Sequence[str]]
"""A function for a header: the comment above it, and its declarations."""


def header_text(
    about: str, includes: Iterable[str], meshes: Iterable[str], functions: Iterable[Declared]
) -> str:
    """Return a header for C and C++ with the definitions of an emitted file.

    Args:
        about: the comment at the top.
        meshes: the declarations of the functions of the meshes.
        functions: the functions to declare, each with the comment that is above it.
    """
    lines = [about, "#pragma once", "", *(f"#include <{name}>" for name in includes), ""]
    lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif", "", *meshes]
    for above, declarations in functions:
        lines += ["", above, *(f"{declaration};" for declaration in declarations)]
    lines += ["", "#ifdef __cplusplus", "}", "#endif"]
    return "\n".join(lines) + "\n"
