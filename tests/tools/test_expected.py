"""Tests that each annotation stands for one diagnostic, and each diagnostic has an annotation."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, note
from collir.tools.expected import check_expected

FILE = "in.coll"


def at(line: int, message: str = "m", severity: str = "error") -> Diagnostic:
    return Diagnostic(message, Position(FILE, line, 1), severity=severity)


def complaints(text: str, *diagnostics: Diagnostic, first_line: int = 1) -> list[str]:
    try:
        check_expected(text, FILE, first_line, diagnostics)
    except DiagnosticError as error:
        return [d.message for d in error.diagnostics]
    return []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("// expected-error {{m}}", 1),
        ("x // expected-error {{m}}", 1),
        ("// expected-error@+2 {{m}}", 3),
        ("\n\n// expected-error@-2 {{m}}", 1),
        ("// expected-error@below {{m}}\n// expected-note@above {{m}}\nx", 3),
        ("x\n// expected-note@below {{n}}\n// expected-error@above {{m}}", 1),
        ("// expected-error @below {{m}}\nx", 2),
    ],
)
def test_places(text: str, line: int) -> None:
    """Only a diagnostic on the annotated line is the expected one."""
    notes = text.count("expected-note")
    for candidate in range(1, 6):
        messages = complaints(text, at(candidate))
        assert len(messages) == notes + 2 * (candidate != line)


def test_a_diagnostic_without_a_place_is_unknown() -> None:
    text = "// expected-remark@unknown {{proof}}"
    assert not complaints(text, Diagnostic("no proof found", severity="remark"))
    assert complaints(text, Diagnostic("no proof found"))
    assert complaints("// expected-remark {{proof}}", Diagnostic("proof", severity="remark"))


def test_notes_are_diagnostics_of_their_own() -> None:
    error = Diagnostic("m", Position(FILE, 1, 1), (note("why", Position(FILE, 2, 1)),))
    assert complaints("// expected-error {{m}}", error) == ["unexpected note: why"]
    assert not complaints("// expected-error {{m}}\n// expected-note {{why}}", error)


def test_messages_are_parts_and_expressions_stand_in_braces() -> None:
    assert not complaints("// expected-error {{a.b}}", at(1, "xa.bx"))
    assert complaints("// expected-error {{a.b}}", at(1, "axb"))
    assert not complaints("// expected-error-re {{a. {{[0-9]+}} b}}", at(1, "a. 12 b"))
    assert complaints("// expected-error-re {{a. {{[0-9]+}} b}}", at(1, "ax 12 b"))


def test_a_part_of_a_file_counts_from_its_own_line() -> None:
    assert not complaints("\n// expected-error@+1 {{m}}\n", at(12), first_line=10)


_PLACED = st.tuples(st.integers(1, 4), st.sampled_from(["a", "ab", "c"]))


@given(st.lists(_PLACED, max_size=6), st.randoms())
def test_annotations_and_diagnostics_are_matched_one_to_one(
    expected: list[tuple[int, str]], random: Random
) -> None:
    """Leaving out an annotation or a diagnostic gives one complaint."""
    text = "\n" * 4 + "\n".join(
        f"// expected-error@{line - 5 - index} {{{{{message}}}}}"
        for index, (line, message) in enumerate(expected)
    )
    diagnostics = [at(line, message) for line, message in expected]
    random.shuffle(diagnostics)
    assert complaints(text, *diagnostics) == []
    if diagnostics:
        assert len(complaints(text, *diagnostics[1:])) == 1
        assert len(complaints(text, *diagnostics, diagnostics[0])) == 1
