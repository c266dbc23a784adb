"""The file of a Python target for ranks: what a module has to print, its header and its helpers."""

from collections.abc import Collection, Container, Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.operation import is_collective
from collir.ir.functions import check_programs, functions_of
from collir.ir.models import models_for_code
from collir.targets.code.python_function import PythonFunction
from collir.targets.code.python_text import check_names
from collir.targets.code.rank_mesh import MeshText
from collir.targets.code.ranks import by_rank


def classes(
    module: ModuleOp,
    target: str,
    ordered: bool,
    named: Collection[str] | None = None,
) -> list[tuple[MeshText, list[FuncOp]]]:
    """Return for every mesh that functions are on its names and its functions.

    Args:
        ordered: whether every order of sub-axes has a group of its own.
        named: the functions to print where there are operations of models; the default is those
            that no other calls, as the steps of the rest are in them.

    Raises:
        DiagnosticError: names that Python cannot have, operations that are not collectives.
    """
    module, _ = models_for_code(module, named)
    functions = functions_of(module)
    check_programs(functions, f"has no form in {target}", nested=True)
    by_mesh: dict[str, list[FuncOp]] = {}
    for function in functions:
        by_mesh.setdefault(mesh_of(function).name, []).append(function)
    check_names(module, by_mesh)
    texts: list[tuple[MeshText, list[FuncOp]]] = []
    for members in by_mesh.values():
        mesh = mesh_of(members[0])
        steps = [op for f in members for op in f.body.ops if is_collective(op)]
        # In groups whose ranks ascend, pairs of ranks need no group: they send to any rank.
        lists = [op.over for op in steps if op.over and (ordered or not op.kind.pairs)]
        groups = dict.fromkeys(lists if ordered else (by_rank(mesh, axes) for axes in lists))
        sends = any(op.kind.pairs and not (ordered and op.over) for op in steps)
        texts.append((MeshText.of(mesh, members, groups, sends), members))
    return texts


def header(target: str, use: str, shown: str, rest: str) -> list[str]:
    """Return the docstring of an emitted module; ``shown`` is an example of its use, if any."""
    parts = [f'"""Written by collir {collir.__version__}: {target}.', use, shown, rest]
    return ["\n\n".join(filter(None, parts)), '"""']


def helpers(needs: Container[str], methods: Mapping[str, str]) -> list[str]:
    """Return the methods of a class that others need, each behind an empty line."""
    used = [method.rstrip() for need, method in methods.items() if need in needs]
    return [line for method in used for line in ("", method)]


def example(constructor: str, texts: Sequence[PythonFunction]) -> str:
    """Return an example program that calls the first function of a module."""
    lines = [f"    {constructor}"]
    if texts:
        first = texts[0]
        arguments = ", ".join(first.variable[arg] for arg in first.function.args)
        results = ", ".join(first.variable[value] for value in first.returned)
        name = f"{first.names.mesh.name}.{first.function.sym_name.data}({arguments})"
        lines.append(f"    {results} = {name}" if results else f"    {name}")
    return "\n".join(lines)
