# pyright: basic
"""The reader of ``.coll``: text to a tree, and the tree to machines, meshes and typed functions.

Result types are inferred by the typing rules; types that are written are checked. All errors of a
text are collected. Each is at the token it is about, with a note at the place of its cause. Syntax
errors are reported once per declaration.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from lark import Token, Tree
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import MachineOp, MeshOp
from collir.dialects.nested import Signature
from collir.ir.alternatives import alternative_errors
from collir.ir.builders import mesh_op
from collir.ir.calls import recursion_errors
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, Sources, note
from collir.layout import Axis, Factor, Mesh, MeshError
from collir.syntax.functions import FunctionLowering
from collir.syntax.lowering import bare
from collir.syntax.machines import MachineLowering, shipped
from collir.syntax.parsing import SyntaxTree, no_gc


def read(text: str, file: str = "<string>", sources: Sources | None = None) -> ModuleOp:
    """Return the module of a ``.coll`` text.

    Args:
        file: the name used in positions; machines ``from`` other files are searched beside it.

    Raises:
        DiagnosticError: all errors of the text.
    """
    sources = Sources() if sources is None else sources
    sources.add(file, text)
    try:
        return _ModuleLowering(file, sources).lower(text)
    except DiagnosticError as error:
        if not is_mlir(text):
            raise
        first, *others = error.diagnostics
        hint = note("this looks like MLIR: name the file .mlir, or give collopt `-f mlir`", None)
        raise DiagnosticError([replace(first, notes=(*first.notes, hint)), *others]) from None


def is_mlir(text: str) -> bool:
    """Return whether a text begins like a module in MLIR's syntax, as no ``.coll`` text does."""
    return re.match(r"(?:\s|//[^\n]*(?:\n|$))*+(?:[!#%\"]|module\b|\w+\.)", text) is not None


class _ModuleLowering(MachineLowering):
    """The lowering of a file: first its machines, then its meshes, then its functions."""

    def __init__(self, file: str, sources: Sources):
        super().__init__(file, sources)
        self.meshes: dict[str, Mesh] = {}
        self.signatures: dict[str, Signature | None] = {}

    def lower(self, text: str) -> ModuleOp:
        items = self.declare_machines(text)
        self.declare("mesh", items, self.mesh)
        with no_gc():
            self.signatures = dict.fromkeys(self.failed)
            if any(tree.data == "func" and _calls(tree) for _, tree in items):
                self.declare_signatures([tree for _, tree in items if tree.data == "func"])
            self.declare("func", items, self.function)
        module = ModuleOp([self.ops[index] for index in sorted(self.ops)])
        if errors := self.errors or alternative_errors(module) or recursion_errors(module):
            raise DiagnosticError(errors)
        return module

    def mesh(self, tree: SyntaxTree) -> MeshOp | None:
        symbol, machine_symbol, *axis_trees = tree.children
        machine = self.machine_named(machine_symbol)
        axes: list[Axis] = []
        tokens: dict[tuple[str, str], Token] = {}
        before = len(self.errors)
        for axis in axis_trees:
            name, *parts = axis.children
            tokens[str(name), ""] = name
            if isinstance(parts[0], Token):
                size = self.integer(parts[0])
                if size is not None:
                    axes.append(Axis(str(name), size))
            else:
                factors = [self.factor(part) for part in parts]
                tokens |= {(str(name), str(part.children[0])): part.children[0] for part in parts}
                axes.append(Axis.placed(str(name), (f for f in factors if f)))
        if machine is None or len(self.errors) > before:
            return None
        try:
            mesh = Mesh(bare(symbol), machine.value(), tuple(axes))
        except MeshError as error:
            here = note(f"machine {machine_symbol} is defined here", Position.of(machine))
            place: Token = tokens.get((error.axis, error.level)) or symbol
            self.error(place, str(error), here)
            return None
        self.meshes[bare(symbol)] = mesh
        return mesh_op(mesh)

    def factor(self, tree: SyntaxTree) -> Factor | None:
        level, number = tree.children
        size = self.integer(number)
        return None if size is None else Factor(str(level), size)

    def machine_named(self, symbol: Token) -> MachineOp | None:
        name = bare(symbol)
        if name in self.machines:
            return self.machines[name][0]
        if name not in self.failed:
            hint = self.suggest(name, self.machines, "@")
            if name in shipped():
                hint = f"; to use the one shipped with collir, write `machine @mine = {symbol}`"
            self.error(symbol, f"there is no machine {symbol}{hint}")
        return None

    def declare_signatures(self, trees: Sequence[SyntaxTree]) -> None:
        """Note the types of all functions, which calls need before the functions are lowered."""
        for tree in trees:
            mesh_symbol = _mesh_symbol(tree)
            mesh = self.meshes.get(bare(mesh_symbol))
            unseen: list[Diagnostic] = []  # they are reported where the function is lowered
            lowering = mesh and FunctionLowering(self.file, unseen, mesh)
            signature = lowering and lowering.signature(tree, mesh_symbol)
            self.signatures.setdefault(bare(tree.children[0]), signature)

    def function(self, tree: SyntaxTree) -> FuncOp | None:
        mesh_symbol = _mesh_symbol(tree)
        name = bare(mesh_symbol)
        if name not in self.meshes:
            if name not in self.failed:
                hint = self.suggest(name, self.meshes, "@")
                if name in self.machines:
                    hint = f"; {mesh_symbol} is a machine"
                self.error(mesh_symbol, f"there is no mesh {mesh_symbol}{hint}")
            return None
        lowering = FunctionLowering(self.file, self.errors, self.meshes[name], self.signatures)
        return lowering.lower(tree, mesh_symbol)


def _mesh_symbol(tree: SyntaxTree) -> Token:
    """Return the name of the mesh that a function is on."""
    return next(
        child for child in tree.children[1:] if isinstance(child, Token) and child.type == "SYMBOL"
    )


def _calls(tree: SyntaxTree) -> bool:
    """Return whether a function calls another."""
    return any(
        isinstance(child, Tree) and (child.data == "call" or _calls(child))
        for child in tree.children
        if isinstance(child, Tree) and child.data in ("call", "repeat")
    )
