"""The file of a Python target for ranks: what a module has to print, its header and its helpers."""

from collections.abc import Collection, Container, Mapping, Sequence
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.local import LocalFuncOp, StartOp
from collir.dialects.machine import mesh_of
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import dist_type
from collir.ir.functions import check_programs, functions_of
from collir.layout import Mesh
from collir.localize.localize import programs_of_ranks
from collir.localize.writer import GroupRules
from collir.targets.code.python_text import check_names
from collir.targets.code.rank_mesh import MeshText
from collir.targets.code.rank_method import RankMethod
from collir.transforms.for_code import models_for_code


class PrintedFunction(NamedTuple):
    """A function of a class.

    Attributes:
        described: the global types of its arguments and results.
        is_task: whether other methods call it.
    """

    function: LocalFuncOp
    described: Sequence[str]
    is_task: bool


def classes(
    module: ModuleOp, target: str, rules: GroupRules, named: Collection[str] | None = None
) -> list[tuple[MeshText, list[PrintedFunction]]]:
    """Return for every mesh that functions are on its names and the programs of a rank.

    Args:
        rules: what the library of collectives takes.
        named: the functions to print where there are operations of models; the default is those
            that no other calls, as the steps of the rest are in them.

    Raises:
        DiagnosticError: names that Python cannot have, operations that are not collectives.
    """
    ready, hidden = models_for_code(module, named)
    functions = functions_of(ready)
    check_programs(functions, f"has no form in {target}", nested=True)
    by_mesh: dict[str, list[str]] = {}
    meshes: dict[str, Mesh] = {}
    described: dict[str, list[str]] = {}
    for function in functions:
        mesh = mesh_of(function)
        meshes[mesh.name] = mesh
        by_mesh.setdefault(mesh.name, []).append(function.sym_name.data)
        described[function.sym_name.data] = _described(function, mesh)
    check_names(ready, by_mesh)
    tasks = {function.sym_name.data for function in hidden}
    lowered = {f.sym_name.data: f for f in programs_of_ranks(ready, rules)}
    texts: list[tuple[MeshText, list[PrintedFunction]]] = []
    for name, members in by_mesh.items():
        printed = [PrintedFunction(lowered[x], described[x], x in tasks) for x in members]
        texts.append((_mesh_text(meshes[name], [x.function for x in printed], rules), printed))
    return texts


def _described(function: FuncOp, mesh: Mesh) -> list[str]:
    """Return the types of the arguments and results of a function."""
    last = function.body.block.last_op
    assert last is not None
    return [dist_type(x).text(mesh) for x in (*function.args, *last.operands)]


def _mesh_text(mesh: Mesh, functions: Sequence[LocalFuncOp], rules: GroupRules) -> MeshText:
    starts = [op for f in functions for op in f.walk() if isinstance(op, StartOp)]
    # In groups whose ranks ascend, pairs of ranks need no group: they send to any rank.
    pairs = [rules.ascending and OPERATIONS[op.called].KIND.pairs for op in starts]
    groups = [op.axes.data for op, pair in zip(starts, pairs, strict=True) if not pair]
    sends = any(pairs) or any(not axes for axes in groups)
    return MeshText.of(mesh, functions, dict.fromkeys(filter(None, groups)), sends)


def header(target: str, use: str, shown: str, rest: str) -> list[str]:
    """Return the docstring of an emitted module; ``shown`` is an example of its use, if any."""
    parts = [f'"""Written by collir {collir.__version__}: {target}.', use, shown, rest]
    return ["\n\n".join(filter(None, parts)), '"""']


def helpers(needs: Container[str], methods: Mapping[str, str]) -> list[str]:
    """Return the methods of a class that others need, each behind an empty line."""
    used = [method.rstrip() for need, method in methods.items() if need in needs]
    return [line for method in used for line in ("", method)]


def example(constructor: str, texts: Sequence[RankMethod]) -> str:
    """Return an example program that calls the first function of a module."""
    lines = [f"    {constructor}"]
    if texts:
        first = texts[0]
        arguments = ", ".join(first.text_of[arg] for arg in first.function.inputs)
        results = ", ".join(first.text_of[value] for value in first.function.outputs)
        name = f"{first.mesh.name}.{first.function.sym_name.data}({arguments})"
        lines.append(f"    {results} = {name}" if results else f"    {name}")
    return "\n".join(lines)
