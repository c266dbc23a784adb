"""The file of a Python target for ranks: what a module has to print, its header and its helpers."""

from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

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

_M = TypeVar("_M", bound=RankMethod)


class PrintedClass(NamedTuple, Generic[_M]):
    """The class of a mesh.

    Attributes:
        functions: the programs of a rank.
        methods: the lines of each.
    """

    names: MeshText
    functions: Sequence[_M]
    methods: Sequence[list[str]]

    @property
    def needs(self) -> set[str]:
        """The helpers and modules that the methods use."""
        return {need for function in self.functions for need in function.needs}


def classes(
    module: ModuleOp,
    method: type[_M],
    target: str,
    rules: GroupRules,
    named: Collection[str] | None = None,
) -> list[PrintedClass[_M]]:
    """Return the class of every mesh that functions are on.

    Args:
        method: the method of a function.
        rules: what the library of collectives takes.
        named: the functions to print where there are operations of models; the default is those
            that no other calls, as the steps of the rest are in them.

    Raises:
        DiagnosticError: names that Python cannot have, operations that are not collectives.
    """
    ready, hidden = models_for_code(module, named)
    functions = functions_of(ready)
    check_programs(functions, f"has no form in {target}", nested=True)
    by_mesh: dict[str, list[FuncOp]] = {}
    for function in functions:
        by_mesh.setdefault(mesh_of(function).name, []).append(function)
    check_names(ready, by_mesh)
    tasks = {function.sym_name.data for function in hidden}
    lowered = {f.sym_name.data: f for f in programs_of_ranks(ready, rules)}
    printed: list[PrintedClass[_M]] = []
    for members in by_mesh.values():
        programs = [lowered[x.sym_name.data] for x in members]
        names = _mesh_text(mesh_of(members[0]), programs, rules)
        texts = [method(x, names, x.sym_name.data in tasks) for x in programs]
        pairs = zip(texts, members, strict=True)
        lines = [text.text(_described(x, names.mesh)) for text, x in pairs]
        printed.append(PrintedClass(names, texts, lines))
    return printed


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


def example(printed: Sequence[PrintedClass[Any]], arguments: str) -> str:
    """Return an example program that makes the first class and calls its first function, if any.

    Args:
        arguments: those of the constructor.
    """
    if not printed:
        return ""
    names, [first, *_], _ = printed[0]
    mesh = names.mesh.name
    given = ", ".join(first.text_of[arg] for arg in first.function.inputs)
    results = ", ".join(first.text_of[value] for value in first.function.outputs)
    call = f"{mesh}.{first.function.sym_name.data}({given})"
    lines = [
        f"{mesh} = {names.class_name}({arguments})",
        f"{results} = {call}" if results else call,
    ]
    return "\n".join(f"    {line}" for line in lines)
