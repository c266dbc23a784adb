"""Profiles add up for tasks at any depth; recommendations; the progress line."""

import io
import json

import pytest

from collir.problems.clique import MaxClique
from collir.problems.graphs import random
from collir.problems.queens import Queens
from collir.problems.semigroups import NumericalSemigroups
from collir.search import (
    Budget,
    Coordination,
    DepthBounded,
    Local,
    NodesByDepth,
    Ordered,
    Problem,
    SearchError,
    StackStealing,
    enumerate,
    optimise,
)
from collir.search.running.plots import svg
from collir.search.running.profiling import recommend, to_json
from collir.search.running.progress import Progress
from collir.search.running.results import SearchOutcome

WAYS: list[Coordination] = [DepthBounded(3), StackStealing(), Budget(2), Ordered(2)]


def adds_up(outcome: SearchOutcome) -> None:
    """The sums over depths and over tasks are the totals."""
    profile, statistics = outcome.profile, outcome.statistics
    assert profile is not None
    assert sum(profile.nodes) == statistics.nodes
    assert sum(profile.pruned) == statistics.pruned
    assert sum(profile.dominated) == statistics.dominated
    assert sum(profile.backtracks) == statistics.backtracks
    assert sum(nodes for _, _, nodes in profile.tasks) == statistics.nodes
    assert len(profile.nodes) == statistics.deepest + 1


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_sums_over_depths_are_the_totals(way: Coordination) -> None:
    engine = Local(3, seed=1)
    adds_up(optimise(MaxClique(random(30, 0.6, 2)), profile=True, engine=engine, coordination=way))
    tree = NumericalSemigroups(9)
    outcome = enumerate(tree, NodesByDepth(), profile=True, engine=engine, coordination=way)
    adds_up(outcome)
    assert outcome.profile is not None and outcome.profile.nodes == outcome.total


class Uneven(Problem[int]):
    """A wide tree with one subtree that has nearly all nodes."""

    def root(self) -> int:
        return 0

    def children(self, node: int) -> list[int]:
        if node == 0:
            return list(range(1, 101))
        return [node + 100] if node % 100 == 1 and node < 100_000 else []


def test_no_profile_no_recommendation() -> None:
    with pytest.raises(SearchError, match="profile=True"):
        recommend(enumerate(Queens(4)), 2)


def test_short_subtrees_are_no_tasks() -> None:
    advice = recommend(enumerate(Queens(7), profile=True), 2)
    assert isinstance(advice.coordination, Budget)
    assert "too little for a task" in advice.reason


def test_an_uneven_tree_is_divided_by_budget() -> None:
    outcome = enumerate(Uneven(), profile=True, coordination=DepthBounded(1))
    profile = outcome.profile
    assert profile is not None
    profile.tasks = [(depth, 10 * nodes * 0.01, nodes) for depth, _, nodes in profile.tasks]
    advice = recommend(outcome, 2)
    assert isinstance(advice.coordination, Budget) and "uneven" in advice.reason


def test_an_even_tree_is_divided_at_a_depth() -> None:
    outcome = enumerate(NumericalSemigroups(12), profile=True)
    assert outcome.profile is not None
    outcome.profile.tasks = [(0, 60.0, outcome.statistics.nodes)]
    advice = recommend(outcome, 2)
    assert isinstance(advice.coordination, DepthBounded)
    assert outcome.profile.nodes[advice.coordination.depth] >= 40


def test_a_profile_as_json_and_as_a_picture() -> None:
    outcome = optimise(MaxClique(random(20, 0.5, 1)), profile=True)
    text = json.loads(json.dumps(to_json(outcome, 4)))
    assert sum(text["nodes"]) == outcome.statistics.nodes
    assert text["recommendation"]["workers"] == 4
    pytest.importorskip("matplotlib")
    assert outcome.profile is not None
    assert svg(outcome.profile).startswith("<?xml")


def test_progress_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collir.search.running.progress.EVERY", 0.0)
    stream = io.StringIO()
    progress = Progress(stream)
    monkeypatch.setattr("collir.search.running.run.Progress", lambda: progress)
    engine = Local(2, seed=1)
    optimise(MaxClique(random(40, 0.7, 1)), engine=engine, coordination=Budget(50), progress=True)
    lines = stream.getvalue().split("\r")
    assert any("nodes" in line and "best" in line and "bound" in line for line in lines)
    assert "tasks by depth" in stream.getvalue()
    assert stream.getvalue().endswith("\r")
