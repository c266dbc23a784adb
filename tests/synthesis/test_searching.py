"""Tests of searches that are cut off: their remarks, and their effect on other searches."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.harness.seeds import some

import collir
from collir.cost.model import CostModel
from collir.ir.diagnostics import Diagnostic
from collir.ir.remarks import listening
from collir.search import Problem
from collir.synthesis import searching
from collir.synthesis.placement.problem import PartialMatrix, PlacementProblem
from collir.synthesis.programs.decomposing import decompose_by_search
from collir.synthesis.programs.search_options import SearchOptions
from collir.synthesis.searching import INTERRUPTED, TIME, best_of, session
from collir.tools.collopt import main

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """Handle interrupts as in a terminal; workers of pytest-xdist ignore them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Numbers(Problem[int]):
    """An endless chain of numbers, each better than its parent.

    Attributes:
        inner: node at which another search runs inside this one.
        interrupted_at: node at which the user interrupts.
    """

    sense = "min"

    def __init__(self, inner: int | None = None, interrupted_at: int | None = None):
        self.inner, self.interrupted_at = inner, interrupted_at

    def root(self) -> int:
        return 0

    def children(self, node: int) -> Iterator[int]:
        yield node + 1

    def objective(self, node: int) -> float:
        if node == self.interrupted_at:
            signal.raise_signal(signal.SIGINT)
        if node == self.inner:
            assert best_of(Numbers(interrupted_at=9), 1).statistics.reason == INTERRUPTED
        return -node


def test_an_interrupt_ends_the_searches_around_and_behind_too() -> None:
    with session():
        outcome = best_of(Numbers(inner=5), 1)
        assert outcome.statistics.reason == INTERRUPTED
        assert outcome.best is not None
        later = best_of(Numbers(), 1)
        assert later.statistics.reason == INTERRUPTED
        assert later.best is not None
    assert best_of(Numbers(), 1, 0.01).statistics.reason == TIME


def remarks_of(module: str, options: SearchOptions) -> list[str]:
    """Return the remarks of a search for the programs of a module."""
    remarks: list[Diagnostic] = []
    with listening(remarks.append):
        decompose_by_search(collir.parse(module), options)
    return [f"{remark.position}: {remark.message}" for remark in remarks]


def test_a_limit_that_cuts_a_search_off_is_told() -> None:
    module = (EXAMPLES / "sync_gradients.coll").read_text(encoding="utf-8")
    model = CostModel("alpha-beta")
    assert remarks_of(module, SearchOptions(model)) == []
    [remark] = remarks_of(module, SearchOptions(model, seconds=0.0))
    assert re.match(
        r"<string>:\d+:\d+: the search for programs of this all_reduce was cut off by the limit of "
        r"0 s: .*; another run may find another",
        remark,
    )
    [remark] = remarks_of(module, SearchOptions(model, seconds=0.0, chunks=64))
    assert "cut off" in remark


@pytest.mark.turns
def test_an_interrupt_gives_the_best_placement_so_far(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    objective, seen = PlacementProblem.objective, list[PartialMatrix]()

    def interrupting(self: PlacementProblem, node: PartialMatrix) -> float | None:
        seen.append(node)
        if len(seen) == 2:
            signal.raise_signal(signal.SIGINT)
        return objective(self, node)

    monkeypatch.setattr(PlacementProblem, "objective", interrupting)
    monkeypatch.setattr(searching, "_GRACE", 0.0)
    text = (EXAMPLES / "placement.coll").read_text()
    text = text.replace("node[4]", "node[64]").replace("gpu[8]", "gpu[512]")
    file = tmp_path / "large.coll"
    file.write_text(text.replace("data = 8, model = 4", "data = 64, model = 64, other = 8"))
    assert main([str(file), "-t", "placements-json{model=alpha-beta}"]) == 0
    output = capsys.readouterr()
    [first, *_] = json.loads(output.out)
    assert (first["proven"], first["ended"]) == (False, INTERRUPTED)
    assert first["looked_at"] < first["count"]
    assert 0 <= first["gap"] < 1
    assert "remark: the search for placements of mesh @m was interrupted" in output.err


def test_what_is_told_together_is_told_once() -> None:
    module = collir.parse(EXAMPLES / "sync_gradients.coll")
    remarks: list[Diagnostic] = []
    op = next(iter(module.ops))
    with listening(remarks.append), searching.grouped_remarks(op, "buckets"):
        searching.remark_cut_off(op, "a program", TIME, 5.0)
        searching.record_cut_off(TIME, 5.0)
    [remark] = remarks
    assert remark.message.startswith("2 searches for buckets were cut off by the limit of 5 s")


@pytest.mark.turns
@pytest.mark.parametrize("text", some(["placement.coll", "redistribute.coll", "pipelined.coll"], 1))
def test_more_workers_find_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that workers change no result; processes are started at once, not after some time."""
    monkeypatch.setattr("collir.search.running.run.PAYS", 0.0)
    printed = [
        collir.emit(
            collir.run_passes(
                collir.parse(EXAMPLES / text),
                f"place{{model=alpha-beta workers={workers}}},"
                f"decompose{{model=alpha-beta chunks=4 workers={workers}}}",
            )
        )
        for workers in (1, 2)
    ]
    assert printed[0] == printed[1]
