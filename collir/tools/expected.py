"""Comparison of the diagnostics of an input with those its comments expect, as in ``mlir-opt``.

// expected-error@+1 {{there is no operation 'all_sum'}}
  %r = all_sum %g over data

An annotation names a severity (error, note, remark or warning), a line, and a part of the message.
``@+N`` and ``@-N`` count from its own line; ``@below`` and ``@above`` are the nearest lines that
hold no annotation; ``@unknown`` is for a diagnostic without a place in the input. In the message of
``expected-error-re``, regular expressions stand between ``{{`` and ``}}``.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position

_ANNOTATION = re.compile(
    r"expected-(?P<severity>error|note|remark|warning)(?P<regex>-re)? *"
    r"(@(?P<place>[+-][0-9]+|above|below|unknown))? *\{\{(?P<message>.*)\}\}\s*$"
)
_START = re.compile(r"//.*?(expected-(?:error|note|remark|warning))")


@dataclass(frozen=True)
class Expectation:
    """An expected diagnostic; ``line`` is 0 if it has no place in the input."""

    severity: str
    line: int
    message: str
    pattern: re.Pattern[str]
    annotation: Position

    def accepts(self, diagnostic: Diagnostic) -> bool:
        """Return whether a diagnostic is the expected one."""
        place = diagnostic.position
        line = place.line if place and place.file == self.annotation.file else 0
        return (diagnostic.severity, line) == (self.severity, self.line) and self.pattern.search(
            diagnostic.message
        ) is not None


def check_expected(
    text: str, file: str, first_line: int, diagnostics: Iterable[Diagnostic]
) -> None:
    """Check that exactly the expected diagnostics were produced, one for each annotation.

    Args:
        text: the input, or a part of it.
        first_line: the line of the file that the text begins on.
        diagnostics: the diagnostics of the input; notes count as diagnostics of their own.

    Raises:
        DiagnosticError: a diagnostic was not expected, or an expected diagnostic is missing.
    """
    missing = _expectations(text, file, first_line)
    errors: list[Diagnostic] = []
    for diagnostic in chain.from_iterable((x, *x.notes) for x in diagnostics):
        matches = [expectation for expectation in missing if expectation.accepts(diagnostic)]
        if matches:
            missing.remove(max(matches, key=lambda expectation: len(expectation.message)))
        else:
            message = f"unexpected {diagnostic.severity}: {diagnostic.message}"
            errors.append(Diagnostic(message, diagnostic.position))
    for expectation in missing:
        message = f'expected {expectation.severity} "{expectation.message}" was not produced'
        errors.append(Diagnostic(message, expectation.annotation))
    if errors:
        raise DiagnosticError(errors)


def _expectations(text: str, file: str, first_line: int) -> list[Expectation]:
    """Return the expectations of the annotations of a text, in order.

    Raises:
        DiagnosticError: an annotation is not well formed.
    """
    lines = text.split("\n")
    starts = [_START.search(line) for line in lines]
    plain = [index for index, start in enumerate(starts) if start is None]
    expectations: list[Expectation] = []
    for index, start in enumerate(starts):
        if start is None:
            continue
        at = Position(file, first_line + index, start.start(1) + 1)
        match = _ANNOTATION.match(lines[index], start.start(1))
        if match is None:
            usage = "this annotation is not complete: write `expected-error@+1 {{message}}`"
            raise DiagnosticError(Diagnostic(usage, at))
        line = _line(match["place"] or "+0", index, plain)
        expectations.append(
            Expectation(
                match["severity"],
                0 if line is None else first_line + line,
                match["message"],
                _pattern(match["message"], bool(match["regex"]), at),
                at,
            )
        )
    return expectations


def _line(place: str, index: int, plain: Sequence[int]) -> int | None:
    """Return the index of the line that the annotation on line ``index`` refers to."""
    match place:
        case "unknown":
            return None
        case "above":
            return max((line for line in plain if line < index), default=index)
        case "below":
            return min((line for line in plain if line > index), default=index)
        case _:
            return index + int(place)


def _pattern(message: str, regex: bool, at: Position) -> re.Pattern[str]:
    """Return the pattern of the message of a diagnostic."""
    # The text outside of {{ }} stands for itself.
    parts = re.split(r"\{\{(.*?)\}\}", message) if regex else [message]
    try:
        return re.compile(
            "".join(f"(?:{part})" if n % 2 else re.escape(part) for n, part in enumerate(parts))
        )
    except re.error as error:
        message = f"this is no regular expression: {error.msg}"
        raise DiagnosticError(Diagnostic(message, at)) from None
