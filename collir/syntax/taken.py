"""Functions with the text of others: functions that a file takes, and their callees."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lark import Token
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from collir.dialects.nested import Signature
from collir.ir.diagnostics import Diagnostic
from collir.layout import LayoutError, Mesh
from collir.layout.algorithm_names import AlgorithmName
from collir.syntax.called import sizes_of_calls
from collir.syntax.functions import FunctionLowering
from collir.syntax.generic import (
    DEEPEST,
    MOST,
    GenericFunction,
    GenericInstance,
    OperandBinding,
    is_open,
)
from collir.syntax.imports import FunctionImports, Template
from collir.syntax.lowering import Lowering, bare
from collir.syntax.steps import Callee
from collir.syntax.trees import SyntaxTree, is_tree
from collir.syntax.types import TypeLowering


@dataclass(frozen=True)
class Taken:
    """A function taken from another file or function.

    Attributes:
        name: its name in the file that takes it.
        template: the other function.
        mesh: the mesh that it is on.
        number: the number of the declaration that takes it, or takes a caller of it.
    """

    name: str
    template: Template
    mesh: Mesh
    number: int


class TakenFunctions:
    """The lowering of functions with the text of others.

    Attributes:
        along: the functions that come along with taken ones, by the file and the name in the call,
            and the mesh; None for one with errors.
        waiting: the functions of these that are not lowered yet.
        behind: the functions that come along, by the number of the declaration that takes them.
        ways: a note at an import, for each file that functions are taken from.
        instances: the functions that generic ones are for the operands of calls.
        running: the texts of the generic functions that are lowered, each called by the one before.
        algorithms: the algorithms that the file declares.
        unused: the names of generic functions of the file that no instance has.
        numbers: for names, the last number that made a name of a function of them.
    """

    def __init__(
        self,
        file: str,
        imports: FunctionImports,
        signatures: Mapping[str, Callee],
        reserved: set[str],
    ):
        """Lower functions into a file.

        Args:
            signatures: the functions that the file declares, by name; None for one with errors.
            reserved: the names that functions that come along may not have.
        """
        self.file, self.imports = file, imports
        self.signatures, self.reserved = signatures, reserved
        self.algorithms: Mapping[str, AlgorithmName] = {}
        self.along: dict[tuple[str, str, str], Callee] = {}
        self.waiting: list[Taken] = []
        self.behind: dict[int, list[Operation]] = {}
        self.ways: dict[str, Diagnostic] = {}
        self.instances: dict[tuple[object, ...], GenericInstance] = {}
        self.running: list[SyntaxTree] = []
        self.unused: set[str] = set()
        self.numbers: dict[str, int] = {}

    def lower(self, taken: Taken) -> FuncOp | None:
        """Return a function with the text of another, or None after errors."""
        function, lowering = self.lowered(taken)
        for error in lowering.errors:
            notes = (*error.notes, *taken.template.notes)
            self.imports.errors.append(replace(error, notes=notes))
        return function

    def lowered(
        self, taken: Taken, bound: OperandBinding | None = None
    ) -> tuple[FuncOp | None, FunctionLowering]:
        """Return a function with the text of another, or None, and what has lowered it.

        Args:
            bound: what a generic function means for the operands of a call.
        """
        template = taken.template
        for way in template.notes[-1:]:
            self.ways.setdefault(template.file, way)
        lowering = FunctionLowering(
            template.file, [], taken.mesh, template.sizes, self.callees(taken), bound
        )
        if template.file == self.file:
            lowering.algorithms = self.algorithms
        return lowering.lower(template.tree, taken.name), lowering

    def generic(self, name: str, template: Template, mesh: Mesh | None, number: int) -> Callee:
        """Return a generic function that the file declares."""
        self.unused.add(name)
        return GenericFunction(name, template, mesh, number, self.instance)

    def instance(
        self, generic: GenericFunction, mesh: Mesh, bound: OperandBinding
    ) -> GenericInstance:
        """Return the function that a generic one is for the operands of a call.

        Raises:
            LayoutError: it calls itself, or there are too many.
        """
        key = (generic, *bound.key(mesh))
        tree = generic.template.tree
        if any(tree is text for text in self.running):
            raise LayoutError(f"@{generic.name} calls itself; use a repeat")
        if key in self.instances:
            return self.instances[key]
        if len(self.running) >= DEEPEST or len(self.instances) >= MOST:
            deep = f"calls of generic functions are more than {DEEPEST} deep"
            many = f"generic functions are called with more than {MOST} lists of types"
            raise LayoutError(deep if len(self.running) >= DEEPEST else many)
        name = generic.name
        if name in self.unused:
            self.unused.remove(name)
        else:
            name = self.free_name(name)
        self.instances[key] = GenericInstance(name, generic.number)  # in the order of the calls
        values = {parameter: int(size) for parameter, size in bound.sizes.items()}
        template = replace(generic.template, sizes=values)
        self.running.append(tree)
        function, lowering = self.lowered(Taken(name, template, mesh, generic.number), bound)
        self.running.pop()
        if function is not None:
            self.locate(function, template)
        error = lowering.errors[0] if lowering.errors else None
        made = GenericInstance(name, generic.number, function, error, lowering.results)
        self.instances[key] = made
        return made

    def callees(self, caller: Taken) -> dict[str, Callee]:
        """Return the callees of a taken function, by their names in its file.

        They bear the names that they get in this file; None stands for a callee with errors.
        """
        file = caller.template.file
        callees: dict[str, Callee] = dict.fromkeys(self.imports.files[file] or ())
        for symbol in called_symbols(caller.template.tree):
            name = bare(symbol)
            if name not in callees:
                continue  # reported where the call is lowered
            own = self.signatures.get(name) if file == self.file else None
            if own is not None and _is_on(own, caller.mesh):
                callees[name] = own
                continue
            key = (file, name, caller.mesh.name)
            if key not in self.along:
                self.along[key] = self.coming_along(symbol, caller)
            callees[name] = self.along[key]
        return callees

    def coming_along(self, symbol: Token, caller: Taken) -> Callee:
        """Return a function that a taken one calls; it is lowered later."""
        template = self.imports.callee(symbol, caller.template.file, caller.template.notes)
        if template is None or self.has_failed(template):
            return None
        if is_open(template.tree):
            name = bare(symbol)
            return GenericFunction(name, template, caller.mesh, caller.number, self.instance)
        template = self.at_calls(template, bare(symbol), caller)
        name = self.free_name(bare(symbol))
        self.waiting.append(Taken(name, template, caller.mesh, caller.number))
        return signature_of(template, caller.mesh, name)

    def at_calls(self, template: Template, name: str, caller: Taken) -> Template:
        """Return a function that comes along, with the sizes of its calls as defaults."""
        functions = self.imports.files[caller.template.file] or {}
        own = caller.template
        sizes = sizes_of_calls(name, template.tree, functions, own.tree, caller.mesh, own.sizes)
        return replace(template, sizes={**template.sizes, **sizes})

    def free_name(self, own: str) -> str:
        """Return the name of a function that the file does not declare, and take it.

        It is its own, or its own with a number if the file has that name.
        """
        name, number = own, self.numbers.get(own, 1)
        while name in self.reserved:
            number += 1
            name = f"{own}_{number}"
        self.numbers[own] = number
        self.reserved.add(name)
        return name

    def lower_waiting(self) -> None:
        """Lower the functions that come along with taken ones, and their callees.

        Instances of generic functions stand behind their declarations as well.
        """
        for taken in self.waiting:  # grows meanwhile
            function = self.lower(taken)
            if function is not None:
                self.locate(function, taken.template)
                self.behind.setdefault(taken.number, []).append(function)
        for instance in self.instances.values():
            if instance.function is not None:
                self.behind.setdefault(instance.number, []).append(instance.function)

    @staticmethod
    def locate(function: FuncOp, template: Template) -> None:
        """Give a function the position of its text."""
        position = Lowering(template.file, []).position(template.tree.children[0])
        function.location = position.location()

    def has_failed(self, template: Template) -> bool:
        """Return whether a function of the file has errors, which say why it cannot be taken."""
        return template.file == self.file and bare(template.tree.children[0]) in self.imports.failed


def _is_on(function: Callee, mesh: Mesh) -> bool:
    """Return whether a function of the file may be called on a mesh."""
    if isinstance(function, GenericFunction):
        return function.mesh is None or function.mesh.name == mesh.name
    return function is not None and function.mesh == mesh.name


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
            if is_tree(child, "call"):
                symbol = child.token("SYMBOL")
                assert symbol is not None
                symbols.setdefault(str(symbol), symbol)
            elif is_tree(child, "repeat"):
                trees.append(child)
    return list(symbols.values())
