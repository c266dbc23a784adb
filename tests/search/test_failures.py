"""An exception of the problem loses neither the best solution so far nor the checkpoint."""

import pickle
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.harness.hanging import within
from support.search.plain_search import plain_enumerate
from support.search.problems import Heap, Tree, trees

from collir.problems.clique import MaxClique
from collir.search import (
    Budget,
    Coordination,
    DepthBounded,
    Local,
    Nodes,
    NodesByDepth,
    Optimum,
    Options,
    Ordered,
    Problem,
    Processes,
    SearchEngine,
    SearchError,
    Sequential,
    StackStealing,
    Threads,
    enumerate,
    k_best,
    optimise,
    so_far,
)
from collir.search.core.plan import ORDERS
from collir.search.core.problem import Number
from collir.search.running.checkpoint import MAGIC
from collir.tools import collir

COORDINATIONS: list[Coordination] = [
    Sequential(),
    *(DepthBounded(depth) for depth in (0, 1, 3)),
    StackStealing(),
    StackStealing(chunked=False),
    *(Budget(backtracks) for backtracks in (1, 3, None)),
    *(Ordered(depth) for depth in (0, 2)),
]
PLACES = ("children", "second child", "objective", "bound")
HERE = settings(
    max_examples=54,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


class Failing(Problem[int]):
    """A tree of which one node raises an exception.

    Args:
        tree: what it is without.
        node: which node.
        where: what raises.
    """

    def __init__(self, tree: Tree, node: int, where: str):
        self.tree, self.node, self.where = tree, node, where
        self.sense, self.sorted_by_bound = tree.sense, tree.sorted_by_bound
        self.values: list[Number] = []
        """The objectives that were computed."""

    def __repr__(self) -> str:
        return f"Failing({self.tree}, {self.node}, {self.where!r})"

    def identity(self) -> str:
        return repr(self.tree)

    def _fail(self, node: int, where: str) -> None:
        if (node, where) == (self.node, self.where):
            raise ValueError("failed")

    def root(self) -> int:
        return 0

    def children(self, node: int) -> Iterator[int]:
        self._fail(node, "children")
        for number, child in zip(range(99), self.tree.below[node], strict=False):
            if number == 1:
                self._fail(node, "second child")
            yield child

    def objective(self, node: int) -> Number | None:
        self._fail(node, "objective")
        value = self.tree.values[node]
        if value is not None:
            self.values.append(value)
        return value

    def bound(self, node: int) -> Number:
        self._fail(node, "bound")
        return self.tree.bound(node)


@st.composite
def failing(draw: st.DrawFn) -> Failing:
    tree = draw(trees(most=14))
    return Failing(tree, draw(st.integers(0, len(tree.values) - 1)), draw(st.sampled_from(PLACES)))


@st.composite
def ways(draw: st.DrawFn) -> Options:
    return Options(
        coordination=draw(st.sampled_from(COORDINATIONS)), slice=draw(st.sampled_from([1, 7, None]))
    )


@st.composite
def crews(draw: st.DrawFn) -> SearchEngine:
    return Local(draw(st.sampled_from([1, 2, 5])), draw(st.integers(0, 99)))


def best_of(problem: Failing, k: int) -> list[Number]:
    """Return the best of the computed values."""
    return sorted(problem.values, reverse=problem.sense == "max")[:k]


def gone_on_with(problem: Failing, path: Path, options: Options) -> Options:
    """Return options to resume with a problem that no longer raises."""
    problem.where = "nowhere"
    order = options.get("order", "depth-first")
    return Options(resume=path, order=order, coordination=options.get("coordination"))


@HERE
@given(failing(), crews(), ways(), st.sampled_from(ORDERS), st.sampled_from([1, 1, 3]))
def test_the_best_so_far_and_the_checkpoint_are_kept(
    tmp_path: Path, problem: Failing, engine: SearchEngine, options: Options, order: Any, k: int
) -> None:
    path = tmp_path / "search"
    path.unlink(missing_ok=True)
    options["engine"], options["checkpoint"], options["order"] = engine, path, order
    try:
        with within():
            k_best(problem, k, **options)
        return  # the failing node was not reached
    except ValueError as error:
        known = cast(Optimum[int], so_far(error))
    assert [solution.value for solution in known.solutions] == best_of(problem, k)
    assert (known.status, known.statistics.reason) == (
        "feasible" if known.solutions else "interrupted",
        "error",
    )
    again = k_best(problem, k, **gone_on_with(problem, path, options))
    expected = plain_enumerate(problem.tree).values.elements()
    ranked = sorted(expected, reverse=problem.sense == "max")
    assert [solution.value for solution in again.solutions] == ranked[:k]
    if known.solutions and known.bound is not None:
        better = max if problem.sense == "max" else min
        assert better(known.bound, ranked[0]) == known.bound


@HERE
@given(failing(), crews(), ways())
def test_no_node_is_counted_twice_after_an_exception(
    tmp_path: Path, problem: Failing, engine: SearchEngine, options: Options
) -> None:
    path = tmp_path / "search"
    path.unlink(missing_ok=True)
    options["engine"], options["checkpoint"] = engine, path
    try:
        with within():
            enumerate(problem, NodesByDepth(), **options)
            return
    except ValueError as error:
        assert so_far(error) is not None
    again = enumerate(problem, NodesByDepth(), **gone_on_with(problem, path, options))
    by_depth = plain_enumerate(problem.tree).by_depth
    assert again.total == [by_depth[depth] for depth in range(len(by_depth))]
    assert again.statistics.nodes == by_depth.total()


class Broken(Heap):
    """A tree whose node 300 raises an exception unless ``mended`` exists."""

    mended: Path

    def children(self, node: int) -> Any:
        if node == 300 and not self.mended.exists():
            raise ValueError("no children of 300")
        return super().children(node)

    def identity(self) -> int:
        return self.size


@pytest.fixture(scope="module")
def processes() -> Generator[Processes]:
    with Processes(2) as engine:
        yield engine


@pytest.mark.parametrize("place", ["processes", "threads", "local"])
@pytest.mark.parametrize(
    "coordination", [DepthBounded(9), Budget(1), StackStealing(), Ordered(3), Sequential()], ids=str
)
def test_workers_elsewhere_tell_what_they_found_before_the_exception(
    processes: Processes, tmp_path: Path, place: str, coordination: Coordination
) -> None:
    """The error is named, a checkpoint is written, and the engine stays usable."""
    engine: SearchEngine = {"processes": processes, "threads": Threads(2), "local": Local(2)}[place]
    problem, path = Broken(600), tmp_path / "search"
    problem.mended = tmp_path / "mended"
    options = Options(engine=engine, coordination=coordination, checkpoint=path)
    with within(), pytest.raises((ValueError, SearchError), match="no children of 300") as error:
        optimise(problem, **options)
    known = cast(Optimum[int], so_far(error.value))
    assert known.best is not None
    assert known.best.value == problem.objective(known.best.node) >= problem.objective(0)
    assert f"{path} holds what was known" in error.value.__notes__
    with pytest.raises((ValueError, SearchError), match="no children of 300"):
        optimise(problem, engine=engine, coordination=coordination, resume=path)
    with within(), pytest.raises((ValueError, SearchError), match="no children of 300"):
        enumerate(problem, Nodes(), **options)
    problem.mended.touch()
    options = Options(engine=engine, coordination=coordination, resume=path)
    assert enumerate(problem, Nodes(), **options).total == 600


def test_an_exception_before_the_search_has_no_outcome(tmp_path: Path) -> None:
    with pytest.raises(SearchError, match="cannot read") as error:
        optimise(Heap(9), resume=tmp_path / "none")
    assert so_far(error.value) is None


@pytest.mark.turns
def test_checkpoints_are_written_as_often_as_asked(tmp_path: Path) -> None:
    """The checkpoint is current, even in this process with long pauses between reports."""
    path = tmp_path / "search"
    written: list[int] = []

    class Watching(Heap):
        def objective(self, node: int) -> int:
            if path.exists() and not written:
                identity, state = pickle.loads(path.read_bytes()[len(MAGIC) :])
                assert identity and state.open
                written.append(node)
            return super().objective(node)

        def identity(self) -> int:
            return self.size

    optimise(Watching(3000, seconds=1e-4), checkpoint=path, slice=10)
    assert not written
    optimise(Watching(3000, seconds=1e-4), checkpoint=path, checkpoint_every=0.0, slice=10)
    assert written


def test_the_command_prints_the_best_so_far(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = MaxClique.children

    def children(self: MaxClique, node: Any) -> Iterator[Any]:
        if node.size == 4:
            raise SearchError("no children of cliques of 4")
        return before(self, node)

    monkeypatch.setattr(MaxClique, "children", children)
    graph = Path(__file__).parents[2] / "examples" / "search" / "johnson8-4-4.clq"
    path = tmp_path / "search"
    arguments = ["search", "clique", str(graph), "--checkpoint", str(path)]
    assert collir.main([*arguments, "--checkpoint-every", "1 min"]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("feasible (error): 4\n")
    assert "error: no children of cliques of 4; " in said.err
    assert f"{path} holds what was known" in said.err


def test_a_star_import_leaves_the_builtin_enumerate_alone() -> None:
    names: dict[str, Any] = {}
    exec("from collir.search import *", names)
    assert "optimise" in names and "enumerate" not in names
