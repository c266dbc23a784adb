"""What the functions of every C-like target share: names, ranks, and the runtime in sections."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from collir.dialects.machine import MeshOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.buffers import BufferPlan, plan_buffers
from collir.ir.diagnostics import DiagnosticError
from collir.layout import DistType
from collir.syntax.writer import step_text
from collir.targets.code.c_text import (
    AS_TYPED,
    C,
    MeshNames,
    Sizes,
    Words,
    comment,
    element_count,
    name_problem,
    size_text,
    variables,
)
from collir.targets.code.ranks import axes_text

SIZED = """ *
 * The functions are for values of any size: where the types below have one element, `width` of
 * them lie one behind the other, so that the last dimension is `width` times as large. A function
 * that has others for larger values calls the right one.
"""
"""What the header of code for values of any size says of it."""

LINKAGE = 'extern "C" '
"""What C++ has before functions that C may call."""

DECLARATIONS = (
    " *\n * This file declares the functions; the same without `header=true` defines them."
)
"""What the comment of a header says of it."""


@cache
def sections(file: str) -> dict[str, tuple[tuple[str, ...], str]]:
    """The sections of a runtime: name -> (what it needs, text), in the order of the file."""
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    for part in text.split("\n//: ")[1:]:
        head, _, body = part.partition("\n")
        name, _, needs = head.partition(" needs ")
        found[name] = (tuple(n.strip() for n in needs.split(",") if n), body.strip())
    return found


def runtime(file: str, needs: Iterable[str]) -> list[str]:
    """The text of the sections of a file that are needed, and of those they need."""
    known = sections(file)
    wanted: set[str] = set()
    stack = list(needs)
    while stack:
        if (name := stack.pop()) not in wanted:
            wanted.add(name)
            stack += known[name][0]
    return [body for name, (_, body) in known.items() if name in wanted]


def struct_text(names: MeshNames, storage: str, kind: str, note: str = "") -> list[str]:
    """The struct of a mesh, but for its end; ``kind`` is the C type of a communicator."""
    mesh = names.mesh
    lines = [
        f"/* mesh @{mesh.name} on @{comment(mesh.machine.name)}: {mesh.devices} ranks, "
        f"{comment(axes_text(mesh))}. */",
        f"{storage} struct {{",
        f"  {kind} comm;{note}",
        "  int rank;",
    ]
    if mesh.sub_axes:
        coordinates = ", ".join(names.members[sub.name] for sub in mesh.sub_axes)
        lines.append(f"  int {coordinates}; /* this rank's coordinates */")
    return lines + [
        f"  {kind} {name}; /* ranks that differ in {comment(', '.join(over))} only */"
        for over, name in names.communicators.items()
    ]


def coordinates_text(names: MeshNames) -> list[str]:
    """The statements that find this rank's coordinates."""
    found = names.definitions(f"{names.variable}.rank")
    return [f"  {coordinate} = {value};" for coordinate, value in found]


@dataclass
class FunctionBase:
    """The names of one function, and the ranks that its operations are about."""

    words: ClassVar[Words] = C
    after_width: ClassVar[Sequence[str]] = ()
    success: ClassVar[str]

    function: FuncOp
    names: MeshNames
    size: Sizes = field(default=AS_TYPED, kw_only=True)
    instead: Sequence[tuple[int, FuncOp]] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        self.mesh = self.names.mesh
        self.plan: BufferPlan = plan_buffers(self.function)
        results = self._result_names()
        given = {*self.plan.result_of, *self.plan.part_of}
        owners = [
            value
            for value, owner in self.plan.owner.items()
            if owner is value and value not in given
        ]
        wanted = [*results, *(self.plan.names[value] for value in owners)]
        # The first name is taken: a variable must not hide the function itself.
        chosen = variables([self.function.sym_name.data, *wanted], self.words)[1:]
        self.results = chosen[: len(results)]
        memory = dict(zip(owners, chosen[len(results) :], strict=True))
        memory |= {owner: self.results[index] for owner, index in self.plan.result_of.items()}
        self.variable = {value: self._place(memory, value) for value in self.plan.owner}

    def _place(self, memory: Mapping[SSAValue, str], value: SSAValue) -> str:
        """Where a value starts."""
        owner, offset = self.plan.owner[value], self.plan.offset[value]
        if owner in self.plan.part_of:
            owner, start = self.plan.part_of[owner]
            offset += start
        return f"({memory[owner]} + {self.size(offset)})" if offset else memory[owner]

    def _result_names(self) -> list[str]:
        """A result is called as the value that is written there, or ``out`` where copied."""
        owners = {index: owner for owner, index in self.plan.result_of.items()}
        returned = self.plan.returned
        return [
            self.plan.names[value] if i in owners else f"out{i if len(returned) > 1 else ''}"
            for i, value in enumerate(returned)
        ]

    def unused(self) -> list[str]:
        """The arguments that no statement names."""
        named = {
            self.plan.owner[operand]
            for op in self.function.body.ops
            if not isinstance(op, DistOp) or not self.plan.is_view(op)
            for operand in op.operands
        }
        return [self.variable[arg] for arg in self.function.args if arg not in named]

    def choice(self) -> list[str]:
        """The calls of the functions that take this one's place, those for the largest first."""
        if not self.size.by_width:
            return []
        given = [*(self.variable[arg] for arg in self.function.args), *self.results]
        listed = ", ".join([*given, "width", *self.after_width])
        return [
            f"  if (width == 0) return {self.success};",
            *(
                f"  if (width >= {size_text(least)}) return {function.sym_name.data}({listed});"
                for least, function in self.instead
            ),
        ]

    def holds(self, x: DistType) -> str:
        """The condition under which this rank holds a value of a type; empty if all do."""
        return self.names.at_zero(x.root)

    def comment(self) -> str:
        """What the buffers are, in ``.coll``."""

        def shown(value: SSAValue, name: str) -> str:
            x = dist_type(value)
            where = f", at {self.holds(x)}" if x.root else ""
            count = element_count(x, self.mesh)
            size = self.size(count) if self.size.by_width else count
            return f"{name}[{size}] is {comment(x.text(self.mesh))}{where}"

        parts = [shown(arg, self.variable[arg]) for arg in self.function.args]
        parts += [shown(v, n) for v, n in zip(self.plan.returned, self.results, strict=True)]
        return "/* " + ";\n * ".join(parts) + ". */"

    def shown(self, op: DistOp) -> str:
        """A comment that says what an operation is in ``.coll``."""
        operands = ", ".join(f"%{self.plan.names[operand]}" for operand in op.operands)
        step = step_text(op, self.mesh).replace(op.mnemonic, f"{op.mnemonic} {operands}", 1)
        return f"  // %{self.plan.names[op.result]} = {comment(step)}"

    def communicator(self, op: DistOp) -> str:
        """The communicator of the sub-axes that an operation is over."""
        return f"{self.names.variable}.{self.names.communicators[op.over]}"

    def partner(self, name: str, x: DistType, y: DistType) -> list[str]:
        """A variable for the rank whose place in layout ``y`` is this rank's in layout ``x``."""
        terms = (f"  + {term}" for term in self.names.to_partner(x, y))
        lines = [f"int {name} = {self.names.variable}.rank", *terms]
        return [*lines[:-1], f"{lines[-1]};"]


def check_names(
    module: ModuleOp,
    initialised: Container[str],
    words: Words = C,
    made_for_mesh: Sequence[str] = ("init", "finalize"),
) -> None:
    """Whether functions, and the meshes that are initialised, can have the same names in C.

    Raises:
        DiagnosticError: all those that cannot.
    """
    errors: list[DiagnosticError] = []
    taken: dict[str, str] = {}
    for op in module.ops:
        if isinstance(op, MeshOp) and op.sym_name.data in initialised:
            made = [f"{op.sym_name.data}_{name}" for name in made_for_mesh]
            what = f"mesh @{op.sym_name.data}"
        elif isinstance(op, FuncOp):
            made, what = [op.sym_name.data], f"function @{op.sym_name.data}"
        else:
            continue
        problems = set[str]()
        for name in made:
            problem = name_problem(name, words)
            if name in taken:
                problem = f"{taken[name]} makes a {words.language} function {name} too"
            if problem and problem not in problems:
                problems.add(problem)
                errors.append(
                    DiagnosticError.at(
                        op, f"{what} cannot be {words.language}: {problem}; rename it"
                    )
                )
            taken[name] = what
    if errors:
        raise DiagnosticError([d for error in errors for d in error.diagnostics])


def header_text(
    about: str, includes: Iterable[str], meshes: Iterable[str], functions: Iterable[tuple[str, str]]
) -> str:
    """Return a header that C and C++ include, with what an emitted file defines.

    Args:
        about: the comment it begins with.
        meshes: the declarations of the functions of the meshes.
        functions: of each function a comment about its buffers, and its declaration.
    """
    lines = [about, "#pragma once", "", *(f"#include <{name}>" for name in includes), ""]
    lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif", "", *meshes]
    for said, declaration in functions:
        lines += ["", said, f"{declaration.removeprefix(LINKAGE)};"]
    lines += ["", "#ifdef __cplusplus", "}", "#endif"]
    return "\n".join(lines) + "\n"
