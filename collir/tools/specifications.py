"""Specifications of passes and targets, ``name{option=value}``, checked beyond xDSL's parser."""

import re
from typing import TypeVar, get_type_hints

from xdsl.utils.arg_spec import (
    ArgSpec,
    ArgSpecConvertible,
    PipelineLexer,
    SpecTokenKind,
    _convert_arg_to_type,  # pyright: ignore[reportPrivateUsage]
)
from xdsl.utils.exceptions import ArgSpecParseError

_Made = TypeVar("_Made", bound=ArgSpecConvertible)


def check_text(text: str) -> None:
    """Check that no pass or target of a specification has an option twice, or a value unquoted.

    Raises:
        ValueError: an option is given twice, or its value needs quotes.
        ArgSpecParseError: the text has another character that begins no token.
    """
    lexer, seen = PipelineLexer(text), set[str]()
    before, end, in_value = SpecTokenKind.EOF, 0, False
    while True:
        try:
            token = lexer.lex()
        except ArgSpecParseError:
            if problem := _unquoted(text, end):
                raise ValueError(problem) from None
            raise
        if in_value and token.kind not in _BEHIND_VALUES and (problem := _unquoted(text, end)):
            raise ValueError(problem)
        in_value = before in (SpecTokenKind.EQUALS, SpecTokenKind.COMMA) and bool(seen)
        if token.kind is SpecTokenKind.EOF:
            return
        if token.kind is SpecTokenKind.L_BRACE:
            seen.clear()
        elif token.kind is SpecTokenKind.IDENT and before in (
            SpecTokenKind.L_BRACE,
            SpecTokenKind.SPACE,
        ):
            name = token.span.text.replace("-", "_")
            if name in seen:
                raise ValueError(f"option {name} is given twice")
            seen.add(name)
        before, end = token.kind, token.span.end


_BEHIND_VALUES = (
    SpecTokenKind.SPACE,
    SpecTokenKind.COMMA,
    SpecTokenKind.R_BRACE,
    SpecTokenKind.EOF,
)


def _unquoted(text: str, place: int) -> str:
    """Return a message on the option at a place, whose value ends too late or needs quotes."""
    for match in re.finditer(r"([\w-]+)=([^\s{}\"]+)", text):
        if match.start(2) <= place < match.end(2):
            if options := re.fullmatch(r"([^=]*),([\w-]+=.*)", match[2]):
                return f"a space divides options: {match[1]}={options[1]} {options[2]}"
            return f'the value of {match[1]} needs double quotes: {match[1]}="{match[2]}"'
    return ""


def configured(kind: type[_Made], spec: ArgSpec) -> _Made:
    """Return a pass or target with the options of a specification.

    Raises:
        ValueError: an option does not exist, or has another type; the message names the option.
    """
    types = get_type_hints(kind)
    for name, value in spec.normalize_parameter_names().parameters.items():
        if name in types:
            try:
                _convert_arg_to_type(value, types[name])
            except ValueError as error:
                raise ValueError(f"{error} for {name}") from None
    return kind.from_spec(spec)
