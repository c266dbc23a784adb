"""The parser of ``.coll``: text to trees, and diagnostics for syntax errors."""

import gc
import re
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from collir.ir.diagnostics import MAX_ERRORS, Diagnostic, Position
from collir.ir.extensions import load_operations
from collir.layout.steps import ArgumentKind
from collir.syntax.grammar_tables import Parser, parser_of
from collir.syntax.operations import keywords
from collir.syntax.trees import SyntaxTree

_DECLARATION = re.compile(
    r"^(?:machine|mesh|algorithm|record|func|local)[ \t]+@?(\w+)", re.MULTILINE
)


_OWN_TERMINALS = (ArgumentKind.AXES, ArgumentKind.PLACE, ArgumentKind.FLAG)
"""The kinds of arguments whose keywords have a terminal of their own."""


def clauses() -> dict[str, list[str]]:
    """Return the keywords of clauses by terminal; terminals differ in the argument behind.

    Those of the operations of packages are among them.
    """
    load_operations()
    places = keywords(ArgumentKind.PLACE)
    others = (kind for kind in ArgumentKind if kind not in _OWN_TERMINALS)
    return {
        "AXES_KEYWORD": keywords(ArgumentKind.AXES),
        "PLACE_KEYWORD": places,
        "KEYWORD": [word for word in keywords(*others) if word not in places],
        "FLAG": keywords(ArgumentKind.FLAG),
    }


@cache
def parser() -> Parser:
    path = Path(__file__).with_name("grammar.lark")
    grammar = path.read_text(encoding="utf-8")
    for terminal, words in clauses().items():
        listed = "|".join(words)
        # A quoted keyword is never read as a name, so that the error can have a hint.
        pattern = f'"{listed}"' if terminal == "AXES_KEYWORD" else f"/({listed})\\b/"
        grammar += f"\n{terminal}: {pattern}"
    return parser_of(grammar, path)


@contextmanager
def no_gc() -> Generator[None]:
    """Disable garbage collection, which doubles the time of a parse and finds nothing to free."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_TERMINALS = {
    "NAME": "a name",
    "AXIS": "an axis",
    "SYMBOL": "a name with @",
    "VALUE": "a value with %",
    "FIELD": "the name of a field",
    "_FOLD": "`fold`",
    "NUMBER": "a number",
    "UNIT": "a unit",
    "STRING": 'a file name in ""',
    "_AT": "`at(`",
    "WITHIN": "`at(`",
    "ANY": "`any`",
    "AUTO": "`auto`",
    "_EVERY": "`...`",
    "RETURN": "`return`",
    "YIELD": "`yield`",
    "CALL": "`call`, `gradient`",
    "REPEAT": "`repeat`",
    "REVERSE": "`reverse`",
    "RECOMPUTE": "`recompute`",
    "_TASK": "`task`",
    "_SCHEDULE": "`schedule`",
    "FUSED": "`fused`",
    "_WRT": "`wrt`",
    "MEMORY": "`memory`",
    "REDUCTION": "`reduction`",
    "EFFICIENCY": "`efficiency`",
    "ELEMENTS": "`elements`",
    "STREAMS": "`streams`",
    "DEVICES": "`devices`",
    "ROLE": "a role",
    "$END": "the end of the file",
}


def _expected(terminals: set[str]) -> str:
    def shown(name: str) -> str:
        if name in _TERMINALS:
            return _TERMINALS[name]
        if name in clauses():
            words = clauses()[name]
            quoted = ", ".join(f"`{word}`" for word in words)
            return f"a clause ({', '.join(words)})" if name == "KEYWORD" else quoted
        pattern = parser().get_terminal(name).pattern.value
        return f"`{pattern}`"

    if {"PLUS", "MINUS"} <= terminals:  # every size may go on as a formula
        terminals = terminals - {"PLUS", "MINUS", "STAR", "SLASH"} or terminals
    elif {"NUMBER", "MINUS"} <= terminals:  # and every size may be one
        terminals = terminals - {"MINUS", "LPAR"}
    words = {"CALL", "REPEAT"} if "NAME" in terminals else set[str]()
    words |= {"_EVERY", "ANY"} if len(terminals) > 1 else set()  # few functions are generic
    if "VALUE" in terminals:  # few operations have a text before their operands
        words.add("STRING")
        if "COLON" not in terminals:  # few have no operands
            words.add("KEYWORD")
    words |= {"_FOLD"} if len(terminals) > 1 else set()  # few statements fold a record
    if {"LSQB", "SYMBOL"} <= terminals:  # few types are records
        words |= {"SYMBOL", "LBRACE"}
    if len(terminals) > 1:  # few values have a role
        words.add("ROLE")
        words |= {"COLON"} if "EQUAL" in terminals else set()
        words |= {"LOCAL", "ALGORITHM"}  # few of these are written by hand
    names = sorted({shown(name) for name in terminals - words})
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


_HINTS = {
    ("VALUE", "NAME"): "operands come after the operation: `%y = all_reduce %x over data`",
    ("VALUE", "RBRACE"): "nothing may follow `return`",
    ("RBRACE", "YIELD"): "the body of a repeat ends with `yield %y`",
    ("RETURN", "YIELD"): "the body of a repeat ends with `yield %y`",
    ("YIELD", "RETURN"): "`yield` ends the body of a repeat; a function ends with `return`",
    ("RBRACE", "RETURN"): "a function ends with `return %y`, or `return` if it has no results",
    ("LBRACE", "ON"): "a function says which mesh it is on: `-> f32[8] on @m {`",
    ("RPAR", "LSQB"): "a type has its shape behind it: `f32[8, 4]`, or `f32[]`",
    ("COMMA", "LSQB"): "a type has its shape behind it: `f32[8, 4]`, or `f32[]`",
    ("SYMBOL", "RSQB"): "a buffer is the block of a rank, which has no axes: `f32[4, 8]`",
    ("START", "COPY"): "a start has a name, for its wait: `%t = start ...`",
    ("COMPUTE", "VIEW"): "what is written stands behind: `compute relu %x -> %y`",
    ("COLON", "EQUAL"): "values have a %: `%x: f32[8]`; parameters have a default: `batch = 8`",
    ("RPAR", "EQUAL"): "a parameter has a value: `batch = 8`",
    ("AXIS", "ROLE"): "a value may have a role: parameter, gradient, state or activation",
    ("AXES_KEYWORD", "VALUE"): "operands come before the clauses: `%y = all_reduce %x over data`",
}
"""Hints by (terminal found, terminal that was possible)."""


def _syntax_error(error: UnexpectedInput, file: str) -> Diagnostic:
    assert isinstance(error, UnexpectedToken | UnexpectedCharacters)
    untyped: Any = error  # lark annotates none of these attributes
    allowed: set[str] = untyped.interactive_parser.accepts()
    if isinstance(error, UnexpectedCharacters):
        position = Position(file, error.line, error.column)
        char: str = untyped.char
        name = char if char.isprintable() else f"U+{ord(char):04X}"
        return Diagnostic(f"`{name}` is not possible here: expected {_expected(allowed)}", position)
    token: Token = untyped.token
    position = Position(file, token.line or 1, token.column or 1)
    if token.type == "$END":
        return Diagnostic(f"the text ends here, but {_expected(allowed)} is missing", position)
    name = str(token) if len(token) <= 40 else f"{token[:40]}..."
    message = f"`{name}` is not possible here: expected {_expected(allowed)}"
    hint = next((_HINTS[token.type, a] for a in sorted(allowed) if (token.type, a) in _HINTS), "")
    return Diagnostic(message + (f" ({hint})" if hint else ""), position)


def parse(text: str, file: str) -> tuple[SyntaxTree, list[Diagnostic], set[str]]:
    """Parse a text, declaration by declaration if it has syntax errors.

    Returns: the tree of the declarations without syntax errors, the errors (at most one per
        declaration), and the names of the declarations with errors.
    """
    with no_gc():
        try:
            return parser().parse(text), [], set()
        except UnexpectedInput as error:
            first = error
        errors: list[Diagnostic] = []
        failed: set[str] = set()
        children: list[SyntaxTree] = []
        starts = [
            (0, ""),
            *((m.start(), m[1]) for m in _DECLARATION.finditer(text)),
            (len(text), ""),
        ]
        line = 1
        for (start, name), (end, _) in pairwise(starts):
            declaration = parser().parse_interactive(text[start:end])
            state = declaration.lexer_thread.state
            assert state is not None
            state.line_ctr.line = line
            line += text.count("\n", start, end)
            try:
                if len(errors) < MAX_ERRORS:
                    children += declaration.resume_parse().children
                    continue
            except UnexpectedInput as error:
                errors.append(_syntax_error(error, file))
            failed.add(name)
    return SyntaxTree("start", children), errors or [_syntax_error(first, file)], failed
