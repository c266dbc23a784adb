"""Tests of the tables of the grammar that are kept beside the compiled modules."""

import sys
from pathlib import Path

import pytest
from lark import Lark
from lark.exceptions import UnexpectedInput

from collir.syntax.grammar_tables import parser_of

GRAMMAR = """
start: WORD ("," WORD)* [";"]
WORD: /[a-z]+/
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    return tmp_path / "words.lark"


def kept(path: Path) -> list[Path]:
    return [file for file in (path.parent / "__pycache__").rglob("*") if file.is_file()]


def never(*_: object, **__: object) -> Lark:
    raise AssertionError("the tables are made again")


def test_tables_are_made_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = parser_of(GRAMMAR, path)
    assert len(kept(path)) == 1
    monkeypatch.setattr(Lark, "__init__", never)
    read = parser_of(GRAMMAR, path)
    for text in ("a,b", "word;"):
        assert read.parse(text) == made.parse(text)
    for parser in (made, read):
        with pytest.raises(UnexpectedInput) as caught:
            parser.parse("a,,")
        assert caught.value.interactive_parser.accepts() == {"WORD"}


def test_another_grammar_has_tables_of_its_own(path: Path) -> None:
    parser_of(GRAMMAR, path)
    other = GRAMMAR.replace("a-z", "0-9")
    for _ in range(2):
        assert parser_of(other, path).parse("1,2").children == ["1", "2"]
    assert parser_of(GRAMMAR, path).parse("a,b").children == ["a", "b"]


@pytest.mark.parametrize("length", [0, 10, 40, 1000])
def test_a_file_that_is_not_whole_is_made_again(
    path: Path, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser_of(GRAMMAR, path)
    [file] = kept(path)
    file.write_bytes(file.read_bytes()[:length])
    assert parser_of(GRAMMAR, path).parse("a,b").children == ["a", "b"]
    monkeypatch.setattr(Lark, "__init__", never)
    assert parser_of(GRAMMAR, path).parse("a,b").children == ["a", "b"]


def test_without_compiled_modules_nothing_is_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert parser_of(GRAMMAR, path).parse("a,b").children == ["a", "b"]
    assert not kept(path)


def test_a_folder_that_cannot_be_written_is_no_error(path: Path) -> None:
    (path.parent / "__pycache__").write_text("a file")
    assert parser_of(GRAMMAR, path).parse("a,b").children == ["a", "b"]
