"""Specifications of passes and targets, ``name{option=value}``, checked beyond xDSL's parser."""

import difflib
import re
from collections.abc import Iterable
from typing import TypeVar, get_type_hints

from xdsl.utils.arg_spec import (
    ArgSpec,
    ArgSpecConvertible,
    PipelineLexer,
    SpecTokenKind,
    _convert_arg_to_type,  # pyright: ignore[reportPrivateUsage]
)
from xdsl.utils.exceptions import ArgSpecParseError

from collir.passes.pipelines import PIPELINES
from collir.passes.table import PASSES
from collir.targets.table import TARGETS
from collir.tools.shell import UsageError

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


def _nearest(name: str, ours: Iterable[str], all_names: Iterable[str]) -> str:
    for names in (ours, all_names):
        if close := difflib.get_close_matches(name, list(names), n=1):
            return f"did you mean {close[0]}?"
    return "collopt --help lists them"


_TYPES = {
    "bool": "true or false",
    "int": "an integer",
    "str": "a word, or text in double quotes",
    "float | int": "a number",
    "int | str": "an integer, or a word",
    "tuple[int, ...]": "integers, as in 2,2",
    "tuple[str, ...]": "words, as in a,b",
    "tuple[int, ...] | tuple[str, ...]": "integers, as in 2,2, or a word",
}
"""The types of options, in words."""


def usage_error(error: BaseException, passes: Iterable[str] = ()) -> UsageError:
    """Return xDSL's error on a specification of passes or of a target, in words for users."""
    text = getattr(error, "msg", None) or str(error).strip().splitlines()[-1].strip()
    if match := re.match(r"Unrecognized passes: \['(.*)'\]", text):
        unknown = match[1].split("', '")[0]
        text = f"there is no pass '{unknown}'; {_nearest(unknown, (*PASSES, *PIPELINES), passes)}"
    elif match := re.match(r"Provided arguments \[(.*)\] not found in expected \S+ \[(.*)\]", text):
        option, known = (part.replace('"', "") for part in match.groups())
        text = f"there is no option {option}; " + (f"there is {known}" if known else "it has none")
    elif match := re.match(r"Incompatible types: given \((.*?),?\), expected (.*) for (.*)", text):
        types = re.sub("<class '(.*?)'>", r"\1", match[2])
        text = f"the option {match[3]} takes {_TYPES.get(types, types)}, not {match[1]}"
    return UsageError(text)


def unknown_target(name: str, targets: Iterable[str]) -> str:
    """Return the message for a target that does not exist."""
    return f"there is no target '{name}'; {_nearest(name, TARGETS, targets)}"
