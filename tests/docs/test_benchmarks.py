"""Tests of the programs that the benchmarks run on."""

import runpy
import sys
from pathlib import Path

import pytest

from collir.dialects import coll
from collir.dialects.coll import OPERATIONS
from collir.dialects.operation import DistOp
from collir.ir.functions import functions_of
from collir.ir.verification import verify
from collir.syntax.reader import read
from collir.tools.api import run_passes

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
GENERATE = runpy.run_path(str(BENCHMARKS / "generate.py"))
PASS_SPEED = runpy.run_path(str(BENCHMARKS / "pass_speed.py"))
LAYERS = runpy.run_path(str(BENCHMARKS / "layers.py"))
SIMULATE = runpy.run_path(str(BENCHMARKS / "simulate.py"))


def test_the_large_program_has_the_size_it_claims() -> None:
    text = GENERATE["training"](20)
    verify(read(text))
    assert 1900 <= text.count("\n") <= 2200


@pytest.mark.parametrize("sizes", [(2, 2, 2), (32, 64, 64)])
def test_every_operation_is_verified(sizes: tuple[int, int, int]) -> None:
    module = read(GENERATE["every_rule"](*sizes))
    verify(module)
    operations = {type(op) for op in module.walk()}
    assert operations >= {*coll.COLLECTIVES, *coll.LOCAL}


@pytest.mark.parametrize("program", ["LAYERS", "STAGES"])
def test_layers_are_as_many_when_they_are_unrolled(program: str) -> None:
    text = LAYERS["HEAD"] + LAYERS[program].replace("COUNT", "96")
    verify(read(text))
    few = LAYERS["HEAD"] + LAYERS[program].replace("COUNT", "3")
    assert len(list(run_passes(read(few), "unroll").walk())) > 3 * 4


@pytest.mark.parametrize("distinct", [False, True])
def test_a_training_step_is_a_program_that_overlaps(distinct: bool) -> None:
    module = read(SIMULATE["training_step"](3, 4, 8, distinct))
    verify(module)
    simulation = SIMULATE["simulated"](module)
    assert len([step for step in simulation.steps if step.sent]) == 6 * 3
    assert any(len(piece.running) > 1 for piece in simulation.intervals)


@pytest.mark.turns
def test_passes_are_measured_on_a_program_that_they_change() -> None:
    rows = PASS_SPEED["rows"]((20, 40))
    assert [row[0] for row in rows[1:]] == list(PASS_SPEED["PASSES"])
    module = read(PASS_SPEED["program"](40))
    verify(module)
    run_passes(module, "bucket{rule=earliest},overlap")
    assert any(isinstance(op, OPERATIONS["concat"]) for op in module.walk())
    assert any("async" in op.properties for op in module.walk() if isinstance(op, DistOp))


def test_every_mutant_has_its_place_and_its_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that what is changed stands once in its file, and that the tests named are there."""
    root = BENCHMARKS.parent
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS / "mutants"), *sys.path])
    mutants = runpy.run_path(str(BENCHMARKS / "mutants" / "run.py"))["EVERY"]
    names = [mutant.name for mutant in mutants]
    assert len(set(names)) == len(names)
    for mutant in mutants:
        text = (root / mutant.file).read_text(encoding="utf-8")
        assert text.count(mutant.before) == 1, mutant.name
        assert all((root / test.partition("::")[0]).exists() for test in mutant.tests), mutant.name


@pytest.mark.parametrize("ranks", [2, 8])
def test_functions_that_are_compared_with_those_by_hand_are_programs(ranks: int) -> None:
    emitted = runpy.run_path(str(BENCHMARKS / "emitted" / "run.py"))
    module = read(emitted["PROGRAM"].format(**emitted["sizes"](ranks)))
    verify(module)
    assert len(functions_of(module)) == emitted["CASES"]
