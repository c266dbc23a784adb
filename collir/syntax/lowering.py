"""The common base of all lowerings of trees: errors of a file, and numbers."""

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from errno import EINVAL
from itertools import islice
from pathlib import Path

from lark import Token

from collir.ir.diagnostics import MAX_ERRORS, Diagnostic, DiagnosticError, Position, note
from collir.ir.fields import Fields, groups
from collir.ir.roles import Role
from collir.syntax.encoding import decode
from collir.syntax.trees import SyntaxNode, SyntaxTree
from collir.syntax.units import Quantity

_MAX_DIGITS = 19


def bare(token: Token) -> str:
    """Return the name of a symbol or a value, without its @ or %."""
    return token[1:]


def with_role(tree: SyntaxTree) -> tuple[SyntaxTree, Role | None]:
    """Return a type, and the role that is written with it."""
    if tree.data != "with_role":
        return tree, None
    inner, word = tree.children
    return inner, Role(str(word))


def target_of(node: SyntaxNode) -> tuple[Token, Role | None]:
    """Return the value that a statement defines, with its written role."""
    if isinstance(node, Token):
        return node, None
    token, word = node.children
    return token, Role(str(word))


WrittenResult = tuple[Token | None, SyntaxTree, Role | None]
"""A result in a signature: its name, if one is written, its type and its role."""


def results_of(function: SyntaxTree) -> list[WrittenResult]:
    """Return the results in the signature of a function."""
    results: list[WrittenResult] = []
    name: Token | None = None
    for part in (part for tree in function.parts("results") for part in tree.children):
        if isinstance(part, Token):
            name = part
        elif part is not None:
            results.append((name, *with_role(part)))
            name = None
    return results


def name_of(token: Token | None) -> str | None:
    """Return the name of a value; None for one with a number."""
    return None if token is None or token[1].isdigit() else bare(token)


FIELD = "FIELD"
"""The type of a token with the name of a value that is a field, because a record is written."""


def groups_of(names: Sequence[Token]) -> tuple[Fields | None, ...]:
    """Return the fields of each record among arguments or results, and None for a single value."""
    return groups([bare(x) for x in names], {bare(x) for x in names if x.type == FIELD})


def result_groups(
    written: Sequence[Token | None], function: SyntaxTree
) -> tuple[Fields | None, ...]:
    """Return the fields of each record among results, as far as the signature and the return of a
    function say them, and None for a single value."""
    _, values = function.children[-1].children
    tokens = values.children if values and len(values.children) == len(written) else written
    number = Token("VALUE", "%0")
    return groups_of([x or y or number for x, y in zip(written, tokens, strict=True)])


class Lowering:
    """The base class of lowerings: collects the errors of a file, and reads numbers."""

    def __init__(self, file: str, errors: list[Diagnostic]):
        self.file = file
        self.errors: list[Diagnostic] = errors

    def position(self, token: Token) -> Position:
        return Position(self.file, token.line or 1, token.column or 1)

    def error(self, token: Token, message: str, *notes: Diagnostic) -> None:
        self.errors.append(Diagnostic(message, self.position(token), notes))

    def path_of(self, token: Token) -> Path:
        """Return the path of another file, which a token names relative to this file."""
        return Path(os.path.normpath(Path(self.file).parent / token[1:-1]))

    def text_of(self, path: Path, token: Token) -> str | None:
        """Return the text of another file, which a token names, or None after an error.

        A program may come from anywhere, and errors quote the text: only programs are read.
        """
        if path.suffix != ".coll":
            self.error(token, f"{token} is no .coll file, and only these are read")
            return None
        try:
            if path.is_char_device() or path.is_fifo():  # which may have no end
                raise OSError(EINVAL, "it is not a file")
            return decode(path.read_bytes(), str(path))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            self.error(token, f"cannot read {token}: {(reason or str(error)).lower()}")
        except DiagnosticError as error:
            here = note("the file is needed here", self.position(token))
            self.errors += [replace(e, notes=(*e.notes, here)) for e in error.diagnostics]
        return None

    def suggest(self, name: str, known: Iterable[str], sigil: str = "") -> str:
        """Return a question for the nearest of the first thousand known names, or an empty text.

        Errors beyond those that are shown get none, because comparing names takes long.
        """
        if len(self.errors) >= MAX_ERRORS or len(name) > 100:
            return ""
        close = difflib.get_close_matches(name, list(islice(known, 1000)), n=1)
        return f"; did you mean {sigil}{close[0]}?" if close else ""

    def integer(self, token: Token) -> int | None:
        """Return an integer of at most 19 digits, or None after an error."""
        if not token.lstrip("-").isdigit():
            self.error(token, f"`{token}` is not an integer")
        elif len(token.lstrip("-")) > _MAX_DIGITS:
            self.error(token, "the number is too large: sizes have at most 19 digits")
        else:
            return int(token)
        return None

    def parameters(self, tree: SyntaxTree | None) -> dict[str, tuple[int, Token]]:
        """Return the values of parameters by name, each with the token of its name."""
        values: dict[str, tuple[int, Token]] = {}
        for parameter in tree.children if tree else ():
            name, number = parameter.children
            value = self.integer(number)
            if str(name) in values:
                self.error(name, f"parameter '{name}' is given twice")
            elif value is not None:
                values[str(name)] = (value, name)
        return values

    def number(self, token: Token) -> float | None:
        """Return a finite number, which is 0 only if written so, or None after an error."""
        value = float(token)
        if value in (float("inf"), float("-inf")):
            self.error(token, "the number is too large for a double")
        elif value == 0 and re.split("[eE]", token)[0].strip("-0."):
            self.error(token, "the number is too small for a double")
        elif token.lstrip("-").isdecimal() and value != int(token):
            self.error(token, f"a double does not hold this integer; the nearest is {int(value)}")
        else:
            return value
        return None

    def quantity(self, tree: SyntaxTree, kind: Quantity, subject: str) -> float | None:
        """Return a positive quantity in SI (a time may be 0), or None after an error."""
        number, unit = tree.children
        if unit not in kind.units:
            known = self.suggest(unit, list(kind.units))
            self.error(unit, f"`{unit}` is not a unit here: write {kind.example}{known}")
            return None
        value = self.number(number)
        if value is None:
            return None
        if value:  # a zero may have an exponent that Decimal does not take
            value = kind.parse(number, unit)
        digits = re.split("[eE]", number)[0]
        if value == float("inf"):
            self.error(number, "the number is too large for a double")
        elif value == 0 and digits.strip("-0."):
            self.error(number, "the number is too small for a double")
        elif kind is Quantity.TIME and value < 0:
            self.error(number, f"{subject} must not be negative, not {number} {unit}")
        elif kind is not Quantity.TIME and value <= 0:
            self.error(number, f"{subject} must be positive, not {number} {unit}")
        else:
            return value
        return None
