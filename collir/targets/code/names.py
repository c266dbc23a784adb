"""Names in emitted code: distinct names for variables, and errors for impossible names."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import MeshOp
from collir.dialects.operation import DistOp, is_of_model
from collir.ir.diagnostics import DiagnosticError


@dataclass(frozen=True)
class Definition:
    """The definition that a mesh or a function becomes in emitted code.

    Attributes:
        problem: the reason why the language cannot have the name, if there is one.
        kind: the kind of definition among which names are distinct, or None for no such kind.
    """

    name: str
    problem: str | None
    kind: str | None


def distinct(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return names with a number behind each that is taken, by ``taken`` or an earlier name."""
    used = set(taken)
    chosen: list[str] = []
    for name in names:
        candidate, suffix = name, 1
        while candidate in used:
            suffix += 1
            candidate = f"{name}_{suffix}"
        used.add(candidate)
        chosen.append(candidate)
    return chosen


def check_definitions(
    module: ModuleOp,
    language: str,
    of_mesh: Callable[[str], Sequence[Definition]],
    of_function: Callable[[str], Sequence[Definition]],
    models: bool = False,
) -> None:
    """Check that a language can have the definitions of the meshes and functions of a module.

    Args:
        models: whether operations of models are printed.

    Raises:
        DiagnosticError: all the names that the language cannot have.
    """
    errors: list[DiagnosticError] = []
    for op in () if models else module.walk():
        if isinstance(op, DistOp) and is_of_model(op):
            advice = "-t mpi and -t mpi4py do, collrun runs it, and -t simulate costs it"
            errors.append(refused_model(op, f"which this target does not print yet: {advice}"))
    taken: dict[str, str] = {}
    for op in module.ops:
        if isinstance(op, MeshOp):
            owner, definitions = f"mesh @{op.sym_name.data}", of_mesh(op.sym_name.data)
        elif isinstance(op, FuncOp):
            owner, definitions = f"function @{op.sym_name.data}", of_function(op.sym_name.data)
        else:
            continue
        problems: dict[str, None] = {}
        for definition in definitions:
            problem = definition.problem
            if definition.kind and definition.name in taken:
                first = taken[definition.name]
                problem = f"{first} makes a {definition.kind} {definition.name} too"
            if definition.kind:
                taken[definition.name] = owner
            if problem:
                problems[problem] = None
        errors += [
            DiagnosticError.at(op, f"{owner} cannot be {language}: {problem}; rename it")
            for problem in problems
        ]
    raise_all(errors)


def refused_model(op: DistOp, problem: str) -> DiagnosticError:
    """Return the error that an operation of a model is not printed."""
    what = "is an operation of a model" if op.kind.structure else "repeats an operand here"
    return DiagnosticError.at(op, f"{op.mnemonic} {what}, {problem}")


def raise_all(errors: Sequence[DiagnosticError]) -> None:
    """Raise several errors as one, if there are any."""
    if errors:
        raise DiagnosticError([d for error in errors for d in error.diagnostics])
