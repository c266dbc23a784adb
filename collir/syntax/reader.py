"""The reader of ``.coll``: text to a tree, and the tree to machines, meshes and typed functions.

Result types are inferred by the typing rules; types that are written are checked. All errors of a
text are collected. Each is at the token it is about, with a note at the place of its cause. Syntax
errors are reported once per declaration.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from lark import Token
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp

from collir.dialects.algorithms import AlgorithmAttr, AlgorithmOp
from collir.dialects.local import LocalFuncOp
from collir.dialects.machine import MachineOp, MeshOp
from collir.ir.alternatives import alternative_errors
from collir.ir.builders import mesh_op
from collir.ir.calls import call_errors, recursion_errors
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, Sources, note
from collir.ir.verification import errors_in
from collir.layout import Axis, Factor, Mesh, MeshError
from collir.layout.algorithm_names import AlgorithmName
from collir.syntax.algorithms import AlgorithmLowering, unproven
from collir.syntax.functions import FunctionLowering
from collir.syntax.generic import is_on_any, is_open
from collir.syntax.imports import (
    IMPORT,
    Declarations,
    FunctionImports,
    Template,
    declared_functions,
)
from collir.syntax.local_reader import LocalLowering
from collir.syntax.lowering import bare
from collir.syntax.machines import MachineLowering, shipped
from collir.syntax.parsing import no_gc
from collir.syntax.records import TAKEN
from collir.syntax.steps import Callee
from collir.syntax.taken import Taken, TakenFunctions, called_symbols, signature_of
from collir.syntax.trees import SyntaxTree, first_token


def read(
    text: str,
    file: str = "<string>",
    sources: Sources | None = None,
    functions: Collection[str] = (),
) -> ModuleOp:
    """Return the module of a ``.coll`` text.

    Args:
        file: the name used in positions; machines and functions ``from`` other files are searched
            beside it.
        functions: the names of the functions to read, with those that they name. If a name has no
            function, or none is given, all are read.

    Raises:
        DiagnosticError: all errors of the text.
    """
    sources = Sources() if sources is None else sources
    sources.add(file, text)
    try:
        return _ModuleLowering(file, sources).lower(text, functions)
    except DiagnosticError as error:
        if not is_mlir(text):
            raise
        first, *others = error.diagnostics
        hint = note("this looks like MLIR: name the file .mlir, or give collopt `-f mlir`", None)
        raise DiagnosticError([replace(first, notes=(*first.notes, hint)), *others]) from None


def is_mlir(text: str) -> bool:
    """Return whether a text begins like a module in MLIR's syntax, unlike any ``.coll`` text."""
    return re.match(r"(?:\s|//[^\n]*(?:\n|$))*+(?:[!#%\"]|module\b|\w+\.)", text) is not None


class _ModuleLowering(MachineLowering):
    """The lowering of a file: first its machines, then its meshes, then its functions.

    Attributes:
        meshes: the meshes by name.
        signatures: the functions that the file declares, by name; None for one with errors.
        numbers: the numbers of the declarations, by the identity of their trees.
        function_templates: the functions that imports lead to, by the number of the declaration.
    """

    def __init__(self, file: str, sources: Sources):
        super().__init__(file, sources)
        self.meshes: dict[str, Mesh] = {}
        self.algorithms: dict[str, AlgorithmName] = {}
        self.signatures: dict[str, Callee] = {}
        self.numbers: dict[int, int] = {}
        self.function_templates: dict[int, Template | None] = {}

    def lower(self, text: str, functions: Collection[str]) -> ModuleOp:
        items = self.declare_machines(text)
        self.declare("mesh", items, self.mesh)
        self.text = text
        self.declare("algorithm", items, self.algorithm)
        self.imports = FunctionImports(self.sources, self.errors, self.failed, {})
        items = self.with_fields(items)
        trees = declared_functions([tree for _, tree in items])
        self.imports.files[self.file] = trees
        with no_gc():
            self.signatures = dict.fromkeys(self.failed)
            self.numbers = {id(tree): index for index, tree in items}
            names = {*self.failed, *(bare(tree.children[0]) for _, tree in items)}
            self.taken = TakenFunctions(self.file, self.imports, self.signatures, names)
            self.taken.algorithms = self.algorithms
            left_out = trees.keys() - _needed(trees, functions)
            items = [(n, x) for n, x in items if bare(x.children[0]) not in left_out]
            items = [(index, tree) for index, tree in items if not self.is_generic(tree)]
            if any(tree.data == "func" and called_symbols(tree) for _, tree in items):
                self.declare_signatures([t for _, t in items if t.data in ("func", IMPORT)])
            self.declare("func", items, self.function)
            self.declare("local", items, self.local_function)
            self.declare(IMPORT, items, self.imported)
            self.taken.lower_waiting()
        module = ModuleOp(
            op
            for index in sorted({*self.ops, *self.taken.behind})
            for op in (*filter(None, [self.ops.get(index)]), *self.taken.behind.get(index, ()))
        )
        if self.algorithms and not self.errors:
            self.errors += unproven(module)
        if errors := self.errors or alternative_errors(module) or self.errors_of_calls(module):
            raise DiagnosticError(errors)
        assert not self.failed, f"left out without an error: {', '.join(self.failed)}"
        return module

    def with_fields(self, items: list[tuple[int, SyntaxTree]]) -> list[tuple[int, SyntaxTree]]:
        """Declare the records, and return the declarations, with a value for each field in
        signatures.

        Functions with errors in their signatures are left out.
        """
        made = self.imports.with_fields(self.file, [tree for _, tree in items], self.errors)
        records = self.imports.records[self.file]
        self.declare("record", items, records.record)
        self.declare(TAKEN, items, records.taken)
        kept: list[tuple[int, SyntaxTree]] = []
        for (index, tree), function in zip(items, made, strict=True):
            if function is not None:
                kept.append((index, function))
            elif self.is_new(tree.children[0]):
                self.failed.add(bare(tree.children[0]))
        return kept

    def errors_of_calls(self, module: ModuleOp) -> list[Diagnostic]:
        """Return the errors of calls, with a note at an import if they are in another file."""
        errors: list[Diagnostic] = []
        for error in recursion_errors(module) or call_errors(module, errors_in):
            way = self.taken.ways.get(error.position.file) if error.position else None
            errors.append(replace(error, notes=(*error.notes, way)) if way else error)
        return errors

    def algorithm(self, tree: SyntaxTree) -> AlgorithmOp | None:
        symbol, end = tree.children[0], tree.children[-1]
        declared = AlgorithmLowering(self.file, self.errors).declared(tree)
        if declared is None:
            return None
        head = re.search(r"algorithm(?:\s|//[^\n]*\n)*\Z", self.text[: symbol.start_pos])
        begin = head.start() if head else symbol.start_pos
        name = AlgorithmName(str(symbol), declared.collective, self.text[begin : end.end_pos])
        self.algorithms[bare(symbol)] = name
        properties = {"sym_name": StringAttr(bare(symbol)), "declared": AlgorithmAttr(name)}
        return AlgorithmOp.create(properties=properties)

    def mesh(self, tree: SyntaxTree) -> MeshOp | None:
        symbol, machine_symbol, *axis_trees = tree.children
        machine = self.machine_named(machine_symbol)
        axes: list[Axis] = []
        tokens: dict[tuple[str, str], Token] = {}
        before = len(self.errors)
        for axis_tree in axis_trees:
            tokens |= self.axis_tokens(axis_tree)
            if (axis := self.axis(axis_tree)) is not None:
                axes.append(axis)
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

    def axis_tokens(self, tree: SyntaxTree) -> dict[tuple[str, str], Token]:
        """Return the tokens of an axis, and of its levels, by their names."""
        name = tree.children[0]
        levels = [factor.children[0] for factor in tree.parts("factor")]
        return {(str(name), ""): name} | {(str(name), str(level)): level for level in levels}

    def axis(self, tree: SyntaxTree) -> Axis | None:
        """Return an axis, or None after an error."""
        name, first, *_ = tree.children
        before = len(self.errors)
        if isinstance(first, Token):
            axis = Axis(str(name), self.integer(first) or 0)
        else:
            factors = [self.factor(part) for part in tree.parts("factor")]
            axis = Axis.placed(str(name), (factor for factor in factors if factor))
        if len(self.errors) > before:
            return None
        weights = next(iter(tree.parts("weights")), None)
        return axis if weights is None else self.weighted(axis, name, weights)

    def weighted(self, axis: Axis, name: Token, tree: SyntaxTree) -> Axis | None:
        """Return an axis with weights, or None after an error."""
        (sizes,) = tree.children
        tokens = [token for token in sizes.children if token is not None]
        if formula := next((x for x in tokens if not isinstance(x, Token)), None):
            self.error(first_token(formula), "a weight is an integer: formulas are of functions")
            return None
        weights = [self.integer(token) for token in tokens]
        if any(weight is None for weight in weights):
            return None
        try:
            return axis.weighted(weight or 0 for weight in weights)
        except MeshError as error:
            low = [token for token in tokens if token.startswith("-") or not token.strip("0")]
            alike = len(weights) == axis.size and low
            place = low[0] if alike else tokens[0] if tokens else name
            self.error(place, str(error))
        return None

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
            name, mesh = bare(tree.children[0]), self.meshes.get(bare(_mesh_symbol(tree)))
            signature = None
            if tree.data == IMPORT:
                template = self.function_template(tree)
                signature = mesh and template and signature_of(template, mesh, name)
            elif mesh is not None:
                signature = signature_of(Template(self.file, tree, (), {}), mesh, name)
            self.signatures.setdefault(name, signature)

    def is_generic(self, tree: SyntaxTree) -> bool:
        """Return whether a declaration is a generic function, and note it for calls if it is."""
        if tree.data not in ("func", IMPORT):
            return False
        template: Template | None = Template(self.file, tree, (), {})
        if tree.data == IMPORT:
            template = self.function_template(tree)
        if not is_on_any(tree) and not (template and is_open(template.tree)):
            return False
        symbol: Token = tree.children[0]
        if not self.is_new(symbol):
            return True
        instead = next(iter(tree.parts("instead")), None)
        if instead is not None:
            self.error(
                instead.children[0],
                f"{symbol} is generic, so it does not take the place of another function",
            )
        auto = tree.token("AUTO")
        if auto is not None:
            self.error(
                auto,
                f"{symbol} is generic, and its layouts are those of its operands: leave out `auto`",
            )
        mesh = None if is_on_any(tree) else self.mesh_named(_mesh_symbol(tree))
        usable = template and instead is None and auto is None and (mesh or is_on_any(tree))
        number, callee = self.numbers[id(tree)], None
        if template and usable and not self.taken.has_failed(template):
            callee = self.taken.generic(bare(symbol), template, mesh, number)
        self.signatures[bare(symbol)] = callee
        if callee is None:
            self.failed.add(bare(symbol))
        return True

    def function_template(self, tree: SyntaxTree) -> Template | None:
        """Return the function that an import leads to, or None after errors, reported once."""
        number = self.numbers[id(tree)]
        if number not in self.function_templates:
            self.function_templates[number] = self.imports.template(tree, self.file)
        return self.function_templates[number]

    def function(self, tree: SyntaxTree) -> FuncOp | None:
        mesh_symbol = _mesh_symbol(tree)
        mesh = self.mesh_named(mesh_symbol)
        if mesh is None:
            return None
        lowering = FunctionLowering(self.file, self.errors, mesh, signatures=self.signatures)
        lowering.algorithms, lowering.failed = self.algorithms, self.failed
        return lowering.lower(tree, bare(tree.children[0]))

    def local_function(self, tree: SyntaxTree) -> LocalFuncOp | None:
        mesh = self.mesh_named(_mesh_symbol(tree))
        if mesh is None:
            return None
        lowering = LocalLowering(self.file, self.errors, mesh)
        lowering.algorithms, lowering.failed = self.algorithms, self.failed
        return lowering.lower(tree, bare(tree.children[0]))

    def imported(self, tree: SyntaxTree) -> FuncOp | None:
        """Return a function with the text of another, typed on the mesh that the import names."""
        symbol, _, _, mesh_symbol, _ = tree.children
        mesh = self.mesh_named(mesh_symbol)
        template = self.function_template(tree)
        if mesh is None or template is None or self.taken.has_failed(template):
            return None
        return self.taken.lower(Taken(bare(symbol), template, mesh, self.numbers[id(tree)]))

    def mesh_named(self, symbol: Token) -> Mesh | None:
        name = bare(symbol)
        if name not in self.meshes and name not in self.failed:
            hint = self.suggest(name, self.meshes, "@")
            if name in self.machines:
                hint = f"; {symbol} is a machine"
            self.error(symbol, f"there is no mesh {symbol}{hint}")
        return self.meshes.get(name)


def _needed(trees: Declarations, names: Collection[str]) -> set[str]:
    """Return the functions of a file that the named ones need."""
    if not names or not trees.keys() >= set(names):
        return {*trees}
    needed: set[str] = set()
    pending = [*names, *(x for x, (tree, *_) in trees.items() if _place_of(tree) in names)]
    while pending:
        needed.add(name := pending.pop())
        tokens = (t for tree in trees[name] for t in tree.find_token("SYMBOL"))
        pending += {bare(token) for token in tokens} & trees.keys() - needed
    return needed


def _place_of(tree: SyntaxTree) -> str | None:
    """Return the name of the function whose place a function takes for larger values."""
    return next((bare(x.children[0]) for x in tree.parts("instead")), None)


def _mesh_symbol(tree: SyntaxTree) -> Token:
    """Return the name of the mesh that a function is on."""
    symbols = [x for x in tree.children if getattr(x, "type", "") == "SYMBOL"]
    return symbols[2 if tree.data == IMPORT else 1]  # behind the functions
