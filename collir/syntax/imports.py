"""Functions with the text of another function, of this file or another: ``func @f = @g on @m``.

Only the texts of the other function and of its callees are taken. They are lowered on the mesh that
the import names, so the machines and meshes of the other file do not matter, and are not read.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

from lark import Token

from collir.ir.diagnostics import Diagnostic, Position, Sources, note
from collir.layout.sizes import default_error
from collir.syntax.lowering import Lowering, bare
from collir.syntax.parsing import parse
from collir.syntax.records import RecordLowering
from collir.syntax.trees import SyntaxTree

LONGEST = 64
"""The most functions that a function is taken over."""

IMPORT = "taken"
"""The grammar's rule of a function that is taken from another."""

LIBRARY = Path(__file__).parent / "library"
"""The folder of the functions that ship with collir."""

_FUNCTION = re.compile(r"^func @(\w+)", re.MULTILINE)

Declarations = dict[str, list[SyntaxTree]]
"""The functions of a file by name, as trees; several of one name are an error where it is used."""


def declared_functions(trees: list[SyntaxTree]) -> Declarations:
    """Return the functions among the declarations of a file, by name."""
    functions: Declarations = {}
    for tree in trees:
        if tree.data in ("func", IMPORT):
            functions.setdefault(bare(tree.children[0]), []).append(tree)
    return functions


@cache
def shipped_functions() -> Mapping[str, str]:
    """Return the functions that ship with collir, each with its file."""
    return {
        name: str(path)
        for path in sorted(LIBRARY.glob("*.coll"))
        for name in _FUNCTION.findall(path.read_text(encoding="utf-8"))
    }


_Given = tuple[int, Position]
"""The value of a parameter, and where it is given."""


def parameter_names(function: SyntaxTree) -> list[str]:
    """Return the names of the parameters of a function."""
    trees = function.parts("parameters")
    return [str(parameter.children[0]) for tree in trees for parameter in tree.children]


def _unknown(given: Iterable[str], function: SyntaxTree) -> list[str]:
    """Return the names that are no parameters of a function."""
    known = parameter_names(function)
    return [name for name in given if name not in known]


@dataclass(frozen=True)
class Template:
    """The function that an import or a call leads to.

    Attributes:
        file: the file with the text of the function.
        tree: the function.
        notes: a note for each import and call on the way, the innermost first.
        sizes: the values of its parameters that the imports give.
    """

    file: str
    tree: SyntaxTree
    notes: tuple[Diagnostic, ...]
    sizes: Mapping[str, int]


@dataclass
class FunctionImports:
    """The functions that a file takes from itself and from others.

    Attributes:
        sources: the texts of all files; newly read files are added.
        errors: the errors of the file that takes the functions.
        failed: the names of declarations of the file that have errors, which say why.
        files: the functions of the files that were read; None after errors.
        records: the records of these files.
        circles: the positions of imports that lead to themselves, one for each circle.
    """

    sources: Sources
    errors: list[Diagnostic]
    failed: set[str]
    files: dict[str, Declarations | None]
    records: dict[str, RecordLowering] = field(default_factory=dict)
    circles: set[Position | None] = field(default_factory=set)

    def template(
        self,
        tree: SyntaxTree,
        file: str,
        notes: tuple[Diagnostic, ...] = (),
        outer: Mapping[str, _Given] = MappingProxyType({}),
    ) -> Template | None:
        """Return the function that an import of a file leads to, or None after errors.

        Args:
            notes: a note for each import on the way to this one, the innermost first.
            outer: the values of parameters that the imports on the way give.
        """
        _, symbol, parameters, _, path_token = tree.children
        here = Lowering(file, [])
        way = (note(f"{symbol} is taken here", here.position(symbol)), *notes)
        if any(step.position == way[0].position for step in notes):
            self._report_circle(here, symbol, notes)
            return None
        if len(notes) == LONGEST:
            message = f"{symbol} is taken over more than {LONGEST} functions: take the first"
            self.errors.append(Diagnostic(message, way[0].position))
            return None
        source = self._source(here, tree)
        functions = source and self._functions(here, source, path_token or symbol)
        if source is None or not isinstance(functions, dict):
            return self._failed(here, notes)
        declarations = functions.get(bare(symbol), [])
        if len(declarations) != 1:
            self._not_one(here, symbol, path_token, functions, source)
            return self._failed(here, notes)
        (function,) = declarations
        given = self._given(here, parameters) | dict(outer)
        if here.errors:
            return self._failed(here, notes)
        if function.data == IMPORT:
            return self.template(function, source, way, given)
        if not self._for_itself(here, symbol, function):
            return self._failed(here, notes)
        for name in _unknown(given, function):
            known = ", ".join(parameter_names(function))
            has = f"its parameters are {known}" if known else "it has none"
            message = f"function {symbol} has no parameter '{name}': {has}"
            self.errors.append(Diagnostic(message, given[name][1], way[1:]))
            return None
        values = {name: value for name, (value, _) in given.items()}
        return Template(source, function, way, values)

    def callee(self, symbol: Token, file: str, notes: tuple[Diagnostic, ...]) -> Template | None:
        """Return the function that a call in a file leads to, or None after errors.

        Args:
            symbol: the name of one or more functions of the file, as it stands in the call.
            notes: a note for each import and call on the way to this one, the innermost first.
        """
        here = Lowering(file, [])
        functions = self.files[file] or {}
        way = (note(f"{symbol} is called here", here.position(symbol)), *notes)
        function, *others = functions[bare(symbol)]
        if others:
            self._not_one(here, symbol, symbol, functions, file)
        elif function.data == IMPORT:
            return self.template(function, file, way)
        elif self._for_itself(here, symbol, function):
            return Template(file, function, way, {})
        return self._failed(here, notes)

    def _for_itself(self, here: Lowering, symbol: Token, function: SyntaxTree) -> bool:
        """Return whether a function stands for itself; if not, report it."""
        if function.parts("instead"):
            here.error(
                symbol,
                f"{symbol} takes the place of another function for larger values: only a function "
                "that stands for itself can be taken",
            )
            return False
        return True

    def _given(self, here: Lowering, tree: SyntaxTree | None) -> dict[str, _Given]:
        """Return the values of parameters that an import gives, each with its position."""
        given: dict[str, _Given] = {}
        for name, (value, token) in here.parameters(tree).items():
            if problem := default_error(name, value):
                here.error(token, problem)
            given[name] = value, here.position(token)
        return given

    def _report_circle(self, here: Lowering, symbol: Token, notes: tuple[Diagnostic, ...]) -> None:
        """Report an import that leads to itself, once for all imports of the circle."""
        first = here.position(symbol)
        circle = notes[: [step.position for step in notes].index(first)]
        if not self.circles.intersection({first, *(step.position for step in circle)}):
            hint = ""
            if not circle:
                hint = ", and none of this name ships with collir"
                hint += here.suggest(bare(symbol), shipped_functions(), "@")
            here.error(symbol, f"{symbol} is taken from itself{hint}", *circle)
            self.errors += here.errors
        self.circles.add(first)

    def _failed(self, here: Lowering, notes: tuple[Diagnostic, ...]) -> None:
        """Report the errors at an import, with notes at the imports on the way to it."""
        self.errors += [replace(error, notes=(*error.notes, *notes)) for error in here.errors]

    def _path(self, here: Lowering, token: Token) -> str | None:
        path = str(here.path_of(token))
        if path == os.path.normpath(here.file):
            here.error(token, f"{token} is this file: leave out `from {token}`")
            return None
        return path

    def _source(self, here: Lowering, tree: SyntaxTree) -> str | None:
        """Return the file with the function that an import names, or None after an error.

        A function that ships with collir is meant if the file has no other of its name.
        """
        symbol, path = tree.children[1], tree.children[-1]
        if path is not None:
            return self._path(here, path)
        others = (self.files[here.file] or {}).get(bare(symbol), [])
        if any(other is not tree for other in others) or bare(symbol) in self.failed:
            return here.file
        return shipped_functions().get(bare(symbol), here.file)

    def _functions(self, here: Lowering, file: str, token: Token) -> Declarations | None:
        """Return the functions of a file, or None after errors, which are reported once."""
        if file not in self.files:
            self.files[file] = None
            text = here.text_of(Path(file), token)
            if text is None:
                return None
            self.sources.add(file, text)
            tree, errors, _ = parse(text, file)
            made = [] if errors else self.with_fields(file, tree.children, errors)
            needed = note("the file is needed here", here.position(token))
            here.errors += [replace(error, notes=(*error.notes, needed)) for error in errors]
            functions = [tree for tree in made if tree is not None]
            self.files[file] = None if errors else declared_functions(functions)
        return self.files[file]

    def with_fields(
        self, file: str, trees: Sequence[SyntaxTree], errors: list[Diagnostic]
    ) -> list[SyntaxTree | None]:
        """Return the declarations of a file, of functions with a value for each field of the
        records in their signatures, and None for one with errors there, which are added."""
        records = RecordLowering(file, errors, trees, lambda path: self._records(file, path))
        self.records[file] = records
        return [records.expanded(tree) if tree.data == "func" else tree for tree in trees]

    def _records(self, file: str, token: Token) -> RecordLowering | None:
        """Return the records of another file that a token names in a file; None after errors."""
        here = Lowering(file, [])
        path = self._path(here, token)
        if path is not None:
            self._functions(here, path, token)
        self.records[file].errors += here.errors
        return self.records.get(path or "")

    def _not_one(
        self,
        here: Lowering,
        symbol: Token,
        path: Token | None,
        functions: Declarations,
        source: str,
    ) -> None:
        """Report that a file has no function of a name, or several."""
        declarations = functions.get(bare(symbol), [])
        if path is None and (declarations or bare(symbol) in self.failed):
            return  # there is an error at the declaration
        if declarations:
            first, second, *_ = (Lowering(source, []).position(t.children[0]) for t in declarations)
            notes = note(f"{symbol} is first defined here", first), note("and here", second)
            here.error(symbol, f"{Path(source).name} defines {symbol} twice", *notes)
        elif path is None:
            hint = here.suggest(bare(symbol), [*functions, *shipped_functions()], "@")
            here.error(
                symbol,
                f"there is no function {symbol} in this file, nor one shipped with collir{hint}",
            )
        else:
            listed = ", ".join(f"@{name}" for name in functions)
            has = f"its functions are {listed}" if listed else "it has no functions"
            hint = here.suggest(bare(symbol), functions, "@")
            here.error(symbol, f"{Path(source).name} has no function {symbol}: {has}{hint}")
