"""Schedules: what is wrong with one is said by name, and a deadlock with its cycle."""

import random
import re
from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collir.layout.pipelines.rules import RULES
from collir.layout.pipelines.schedule import Schedule, problems, program_order
from collir.layout.pipelines.tasks import Task, TaskGraph, chain_graph, parse_task

GRAPH = RULES["1f1b"].graph(2)


def schedule(*orders: str, microbatches: int = 2) -> Schedule:
    return Schedule(
        tuple(tuple(map(parse_task, order.split())) for order in orders), microbatches, False
    )


def test_tasks_are_printed_and_parsed() -> None:
    assert str(Task("F", 0, 3)) == "F0.3"
    assert parse_task("W12.0") == Task("W", 12, 0)
    for text in ("F0", "G0.1", "F01.2", "F0.-1", "F0.1 ", "F².1"):
        with pytest.raises(ValueError, match="is not a task"):
            parse_task(text)


def test_parts_that_are_needed_have_places() -> None:
    with pytest.raises(ValueError, match="F1 has no place"):
        TaskGraph({("F", 0): 0}, {("F", 0): (("F", 1),)})


def test_a_right_schedule_has_no_problems() -> None:
    written = schedule("F0.0 F0.1 B0.0 B0.1", "F1.0 B1.0 F1.1 B1.1")
    assert written == RULES["1f1b"].schedule(2, 2)
    assert not problems(written, GRAPH)


@pytest.mark.parametrize(
    ("orders", "said"),
    [
        (("F0.0 F0.1 B0.0 B0.1",), ["the schedule has 1 place, but the program has 2"]),
        (("F0.0 F0.1 B0.0", "F1.0 B1.0 F1.1 B1.1"), ["B0.1 is missing at place 0"]),
        (
            ("F0.0 F0.1", "F1.0 B1.0 F1.1 B1.1 W1.0 W1.1"),
            [
                "W1.0 at place 1 is no task of the program, whose tasks are B0, F0, B1, F1 (and 1 "
                "more of W1)",
                "B0.0 to B0.1 are missing at place 0",
            ],
        ),
        (("F0.0 F0.1 B0.0 B0.1 F0.1", "F1.0 B1.0 F1.1 B1.1"), ["F0.1 is there 2 times"]),
        (
            ("F0.0 F0.1 B0.0 B0.1", "F1.0 W1.0 B1.0 F1.1 B1.1"),
            ["W1.0 at place 1 is no task of the program, whose tasks are B0, F0, B1, F1"],
        ),
        (
            ("F0.0 F0.1 B0.0 B0.1 F0.2", "F1.0 B1.0 F1.1 B1.1"),
            ["F0.2 at place 0 is of a microbatch that is not there: there are 2 microbatches"],
        ),
        (
            ("F0.0 F0.1 B0.0", "F1.0 B1.0 F1.1 B1.1 B0.1"),
            ["B0.1 is at place 1, but B0 is at place 0"],
        ),
        (
            ("F0.1 F0.0 B0.0 B0.1", "F1.0 B1.0 F1.1 B1.1"),
            ["F0.0 is behind F0.1: F0 takes microbatches in order"],
        ),
        (
            ("F0.0 B0.0 F0.1 B0.1", "F1.0 F1.1 B1.0 B1.1"),
            [
                "the schedule deadlocks: B0.0 (place 0) waits for B1.0 (place 1), which is behind "
                "F1.1 (place 1), which waits for F0.1 (place 0), which is behind B0.0 (place 0)"
            ],
        ),
        (
            ("B0.0 F0.0 F0.1 B0.1", "F1.0 B1.0 F1.1 B1.1"),
            [
                "the schedule deadlocks: B0.0 (place 0) waits for F0.0 (place 0), which is behind "
                "B0.0 (place 0)"
            ],
        ),
    ],
)
def test_problems_are_named(orders: tuple[str, ...], said: list[str]) -> None:
    assert problems(schedule(*orders), GRAPH) == said


def test_parts_may_be_left_out() -> None:
    """The first chunk needs no gradient of its inputs; the second has no weights."""
    whole = RULES["zb-h1"].schedule(2, 3)
    graph = RULES["zb-h1"].graph(2)
    parts = graph.places.keys() - {("B", 0), ("W", 1)}
    places = {part: graph.places[part] for part in parts}
    needs = {part: tuple(n for n in graph.needs[part] if n in parts) for part in parts} | {
        ("W", 0): (("F", 0), ("B", 1))
    }
    assert not problems(whole.only(parts), TaskGraph(places, needs))


def order_graph(orders: Schedule, graph: TaskGraph) -> "nx.DiGraph[Task]":
    """Return the union of the orders of all places and the dependencies of all microbatches."""
    union: nx.DiGraph[Task] = nx.DiGraph()
    for order in orders.orders:
        union.add_edges_from(pairwise(order))
    for source, part in graph.edges:
        for microbatch in range(orders.microbatches):
            union.add_edge(Task(*source, microbatch), Task(*part, microbatch))
    return union


@given(st.sampled_from(sorted(RULES)), st.integers(0, 2**32))
def test_deadlocks_are_found_exactly(name: str, seed: int) -> None:
    """Tasks that change places deadlock if networkx finds a cycle, and the cycle told is one."""
    rng = random.Random(seed)
    rule, places = RULES[name], rng.choice([2, 4])
    orders = rule.schedule(places, 2 * places)
    graph = rule.graph(places)
    swapped = [list(order) for order in orders.orders]
    for _ in range(rng.randint(1, 4)):
        order = rng.choice(swapped)
        moved = order.pop(rng.randrange(len(order)))
        order.insert(rng.randrange(len(order) + 1), moved)
    for order in swapped:  # microbatches of each part stay in order
        sequence = {part: iter(range(orders.microbatches)) for part in graph.places}
        order[:] = [Task(*task.part, next(sequence[task.part])) for task in order]
    changed = Schedule(tuple(map(tuple, swapped)), orders.microbatches, orders.splits_backward)
    union = order_graph(changed, graph)
    found = problems(changed, graph)
    if nx.is_directed_acyclic_graph(union):
        assert not found
        rank = {task: n for n, task in enumerate(program_order(changed, graph))}
        assert len(rank) == len(union)
        assert all(rank[a] < rank[b] for a, b in union.edges)
        return
    assert len(found) == 1
    tasks, verbs = told_cycle(found[0])
    assert len(set(tasks)) == len(tasks)
    for index, verb in enumerate(verbs):
        waiting, waited = tasks[index], tasks[(index + 1) % len(tasks)]
        if verb == "waits for":
            assert waited.part in graph.needs[waiting.part]
            assert waited.microbatch == waiting.microbatch
        else:
            order = changed.orders[graph.places[waiting.part]]
            assert order.index(waited) < order.index(waiting)


def told_cycle(text: str) -> tuple[list[Task], list[str]]:
    """Return the tasks of the cycle in a sentence, and how each waits for the next."""
    named = re.findall(r"([FBW]\S+) \(place \d+\)", text)
    assert named[0] == named[-1]
    verbs = re.findall("waits for|is behind", text)
    assert len(verbs) == len(named) - 1
    return [parse_task(name) for name in named[:-1]], verbs


def test_tasks_are_printed_as_they_run() -> None:
    order = program_order(RULES["1f1b"].schedule(2, 2), GRAPH)
    assert " ".join(map(str, order)) == "F0.0 F0.1 F1.0 B1.0 B0.0 F1.1 B1.1 B0.1"


def test_a_chain_may_end_where_it_began() -> None:
    graph = chain_graph((0, 1, 0), splits_backward=False)
    assert graph.needs["B", 1] == (("F", 1), ("B", 2))
    assert graph.places["B", 2] == 0
