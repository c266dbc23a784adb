"""collir and the independent implementation agree: on single steps, programs and mistakes."""

import random
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.harness.seeds import current

from . import text
from .campaign import PASSES, Log, mistakes, programs, steps
from .indices import RULES
from .mesh import Mesh, Type
from .programs import Run
from .random_programs import random_program
from .rules import Case

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Let values overflow: programs where they do are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def agreed(log: Log) -> None:
    problems = [kind for kind in log.counts if "disagree" in kind or "WRONG" in kind]
    assert not problems, dict(log.counts)


@pytest.mark.turns
def test_steps() -> None:
    log = Log()
    steps(log, 200, current(), sorted(RULES))
    agreed(log)
    assert log.counts["accepted"] > 30 and log.counts["refused"] > 30


@pytest.mark.turns
def test_programs_before_and_after_passes() -> None:
    log = Log()
    programs(log, 10, current(), "sslcgga", PASSES, 2)
    agreed(log)
    assert log.counts["pairs"] > 10


@pytest.mark.turns
def test_mistakes() -> None:
    log = Log()
    mistakes(log, 10, current(), "sslc")
    agreed(log)


def test_examples_are_well_typed() -> None:
    read = 0
    for path in sorted((ROOT / "examples").glob("*.coll")):
        source = path.read_text(encoding="utf-8")
        if re.search(r"func @\w+ = |\[\.\.\.\]|on any", source):
            continue  # functions that are taken from others, and generic ones
        program = text.program(source)
        run = Run(program, Typing)
        for name, function in program.functions.items():
            if not function.auto:
                run.function(name, [None] * len(function.arguments))
                read += 1
    assert read > 10


class Typing:
    """Values of nothing: only types are computed."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh

    def step(self, c: Case, y: Type, values: list[None]) -> None:
        return None

    def row(self, value: None, i: int) -> None:
        return None

    def stack(self, rows: list[None]) -> None:
        return None


@pytest.mark.slow
def test_many_steps() -> None:
    log = Log()
    steps(log, 5000, current(), sorted(RULES))
    agreed(log)


@pytest.mark.slow
def test_many_programs() -> None:
    log = Log()
    programs(log, 150, current(), "sslcgga", PASSES, 4)
    agreed(log)


@pytest.mark.slow
def test_many_mistakes() -> None:
    log = Log()
    mistakes(log, 150, current(), "sslc")
    agreed(log)


def test_a_program_is_read_as_it_is_written() -> None:
    for number in range(20):
        source = random_program(random.Random(number))
        assert "@f" in text.program(source).functions
