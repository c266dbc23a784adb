# pyright: basic
"""Functions with the text of others: those that a file takes, and those that these call."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lark import Token, Tree
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from collir.dialects.nested import Signature
from collir.ir.diagnostics import Diagnostic
from collir.layout import Mesh
from collir.syntax.called import sizes_of_calls
from collir.syntax.functions import FunctionLowering
from collir.syntax.imports import FunctionImports, Template
from collir.syntax.lowering import Lowering, bare
from collir.syntax.parsing import SyntaxTree
from collir.syntax.types import TypeLowering


@dataclass(frozen=True)
class Taken:
    """A function that is taken from another.

    Attributes:
        name: its name in the file that takes it.
        template: the other function.
        mesh: the mesh that it is on.
        number: the number of the declaration that takes it, or that takes a function that calls it.
    """

    name: str
    template: Template
    mesh: Mesh
    number: int


class TakenFunctions:
    """The lowering of functions with the text of others.

    Attributes:
        along: the functions that come along with those that are taken, by the file of the call,
            the name in the call, and the mesh; None for one with errors.
        waiting: those of them that are not lowered yet.
        behind: the functions that come along, by the number of the declaration that takes them.
        ways: a note at an import, for each file that functions are taken from.
    """

    def __init__(
        self,
        file: str,
        imports: FunctionImports,
        signatures: Mapping[str, Signature | None],
        reserved: set[str],
    ):
        """Lower functions into a file.

        Args:
            signatures: the functions that the file declares, by name; None for one with errors.
            reserved: the names that functions that come along may not have.
        """
        self.file, self.imports = file, imports
        self.signatures, self.reserved = signatures, reserved
        self.along: dict[tuple[str, str, str], Signature | None] = {}
        self.waiting: list[Taken] = []
        self.behind: dict[int, list[Operation]] = {}
        self.ways: dict[str, Diagnostic] = {}

    def lower(self, taken: Taken) -> FuncOp | None:
        """Return a function with the text of another, or None after errors."""
        template = taken.template
        self.ways.setdefault(template.file, template.notes[-1])
        signatures = self.callees(taken)
        lowering = FunctionLowering(template.file, [], taken.mesh, template.sizes, signatures)
        function = lowering.lower(template.tree, taken.name)
        for error in lowering.errors:
            self.imports.errors.append(replace(error, notes=(*error.notes, *template.notes)))
        return function

    def callees(self, caller: Taken) -> dict[str, Signature | None]:
        """Return the functions that one that is taken calls, by their names in its file.

        They have the names that they get in this file; None for one with errors.
        """
        file = caller.template.file
        callees: dict[str, Signature | None] = dict.fromkeys(self.imports.files[file] or ())
        for symbol in called_symbols(caller.template.tree):
            name = bare(symbol)
            if name not in callees:
                continue  # reported where the call is lowered
            own = self.signatures.get(name) if file == self.file else None
            if own is not None and own.mesh == caller.mesh.name:
                callees[name] = own
                continue
            key = (file, name, caller.mesh.name)
            if key not in self.along:
                self.along[key] = self.coming_along(symbol, caller)
            callees[name] = self.along[key]
        return callees

    def coming_along(self, symbol: Token, caller: Taken) -> Signature | None:
        """Return a function that is called by one that is taken; it is lowered later.

        Its name is its own, or its own with a number if the file has that name.
        """
        template = self.imports.callee(symbol, caller.template.file, caller.template.notes)
        if template is None or self.has_failed(template):
            return None
        template = self.at_calls(template, bare(symbol), caller)
        name, number = bare(symbol), 1
        while name in self.reserved:
            number += 1
            name = f"{bare(symbol)}_{number}"
        self.reserved.add(name)
        self.waiting.append(Taken(name, template, caller.mesh, caller.number))
        return signature_of(template, caller.mesh, name)

    def at_calls(self, template: Template, name: str, caller: Taken) -> Template:
        """Return a function that comes along with the sizes that it is called at for defaults."""
        functions = self.imports.files[caller.template.file] or {}
        own = caller.template
        sizes = sizes_of_calls(name, template.tree, functions, own.tree, caller.mesh, own.sizes)
        return replace(template, sizes={**template.sizes, **sizes})

    def lower_waiting(self) -> None:
        """Lower the functions that come along with those that are taken, and those they call."""
        for taken in self.waiting:  # grows meanwhile
            function = self.lower(taken)
            if function is not None:
                symbol = taken.template.tree.children[0]
                position = Lowering(taken.template.file, []).position(symbol)
                function.location = position.location()
                self.behind.setdefault(taken.number, []).append(function)

    def has_failed(self, template: Template) -> bool:
        """Return whether a function of the file has errors, which say why it cannot be taken."""
        return template.file == self.file and bare(template.tree.children[0]) in self.imports.failed


def signature_of(template: Template, mesh: Mesh, name: str) -> Signature | None:
    """Return the types of a function under a name, or None after errors.

    The errors are reported where the function is lowered.
    """
    return TypeLowering(template.file, [], mesh, template.sizes).signature(template.tree, name)


def called_symbols(tree: SyntaxTree) -> list[Token]:
    """Return the names of the functions that a function calls, each once."""
    symbols: dict[str, Token] = {}
    trees = [tree]
    while trees:
        for child in trees.pop().children:
            if isinstance(child, Tree) and child.data == "call":
                symbol: Any = next(t for t in child.children if is_symbol(t))
                symbols.setdefault(str(symbol), symbol)
            elif isinstance(child, Tree) and child.data == "repeat":
                trees.append(child)
    return list(symbols.values())


def is_symbol(tree: SyntaxTree) -> bool:
    """Return whether a tree is the name of a function, a mesh or a machine."""
    return isinstance(tree, Token) and tree.type == "SYMBOL"
