"""Unbalanced trees: the published sizes, and small trees by a direct count."""

import hashlib
import math
import struct
from collections.abc import Callable

import numpy as np
import pytest
from support.search.plain_search import plain_enumerate

from collir.problems.uts import SAMPLES, UTS
from collir.search.core.goals import Collect, Nodes, NodesByDepth
from collir.search.core.problem import SearchError

Mean = Callable[[int], float]


def measure(problem: UTS) -> tuple[int, int, int]:
    """Return the number of nodes and leaves and the height of a tree, without recursion."""
    nodes = leaves = height = 0
    stack = [problem.root()]
    while stack:
        node = stack.pop()
        below = len(stack)
        stack.extend(problem.children(node))
        nodes += 1
        leaves += len(stack) == below
        height = max(height, node.depth)
    return nodes, leaves, height


def size(digest: bytes, depth: int, mean: Mean) -> int:
    """Return the number of nodes of a geometric tree, by the text of the benchmark."""
    (random,) = struct.unpack(">I", digest[16:20])
    uniform = (random % 2**31) / 2**31
    expected = mean(depth)
    children = 0
    if expected > 0:
        probability = 1 / (1 + expected)
        children = min(100, math.floor(math.log(1 - uniform) / math.log(1 - probability)))
    return 1 + sum(
        size(hashlib.sha1(digest + struct.pack(">I", i)).digest(), depth + 1, mean)
        for i in range(children)
    )


def first(seed: int) -> bytes:
    return hashlib.sha1(struct.pack(">QQI", 0, 0, seed)).digest()


@pytest.mark.parametrize(("depth", "nodes"), {3: 254, 5: 3987, 7: 63914}.items())
def test_the_first_levels_of_a_tree_of_fixed_shape(depth: int, nodes: int) -> None:
    assert measure(UTS(depth=depth, b0=4, seed=19))[0] == nodes
    assert size(first(19), 0, lambda level: 4 * (level < depth)) == nodes


@pytest.mark.parametrize("seed", [0, 34, 2**31, 2**32 - 1])
def test_the_other_shapes(seed: int) -> None:
    linear = UTS(depth=9, b0=3, seed=seed, shape="linear")
    assert measure(linear)[0] == size(first(seed), 0, lambda level: 3 * (1 - level / 9))
    power = -math.log(3) / math.log(4)
    falling = UTS(depth=4, b0=3, seed=seed, shape="exponential")
    assert measure(falling)[0] == size(
        first(seed), 0, lambda level: 3 * level**power if level else 3
    )
    swinging = UTS(depth=3, b0=2, seed=seed, shape="cyclic")
    assert measure(swinging)[0] == size(
        first(seed),
        0,
        lambda level: 2 ** math.sin(2 * math.pi * level / 3) * (level <= 15) if level else 2,
    )


def test_a_binomial_tree() -> None:
    def below(digest: bytes) -> int:
        chance = (struct.unpack(">I", digest[16:20])[0] & 0x7FFFFFFF) / 2**31
        count = 5 if chance < 0.15 else 0
        return 1 + sum(below(child(digest, i)) for i in range(count))

    def child(digest: bytes, index: int) -> bytes:
        return hashlib.sha1(digest + struct.pack(">I", index)).digest()

    problem = UTS(tree="binomial", b0=300, q=0.15, m=5, seed=7)
    expected = 1 + sum(below(child(first(7), i)) for i in range(300))
    assert measure(problem)[0] == expected == plain_enumerate(problem).nodes


def by_kernel(problem: UTS, limit: int) -> tuple[int, list[int]]:
    """Count nodes by the one-loop kernel in many dives; return the totals and those by depth."""
    count = problem.kernel("enumerate", Nodes())
    by_depth = problem.kernel("enumerate", NodesByDepth())
    assert count is not None
    assert by_depth is not None
    total, levels = 0, list[int]()
    stack = [problem.root()]
    while stack:
        node = stack.pop()
        dive, other = (kernel(node, np.array([np.inf]), limit) for kernel in (count, by_depth))
        assert dive.total == dive.nodes == sum(other.total)
        assert dive.nodes <= max(limit, 1)
        assert dive.rest == other.rest
        total += dive.total
        levels = NodesByDepth().merge(levels, other.total)
        stack.extend(twig for level in dive.rest for twig in level)
    return total, levels


@pytest.mark.parametrize("limit", [1, 2, 7, 1000, 10**9])
def test_counting_in_one_loop(limit: int) -> None:
    binomial = UTS(tree="binomial", b0=300, q=0.15, m=5, seed=7, kernel=True)
    for problem in (UTS(depth=5, kernel=True), binomial):
        outcome = plain_enumerate(problem)
        total, levels = by_kernel(problem, limit)
        assert total == outcome.nodes
        assert dict(enumerate(levels)) == outcome.by_depth


def test_there_is_no_kernel_but_for_counting() -> None:
    assert UTS().kernel("enumerate", Nodes()) is None
    assert UTS(kernel=True).kernel("enumerate", Collect()) is None
    assert UTS(kernel=True).kernel("optimise", None) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_the_trees_that_the_benchmark_publishes(name: str) -> None:
    sample = SAMPLES[name]
    assert measure(sample.problem()) == (sample.nodes, sample.leaves, sample.height)


def test_no_node_has_more_than_a_hundred_children_but_the_root_of_a_binomial_tree() -> None:
    wide = UTS(depth=2, b0=10**6, seed=1)
    assert len(list(wide.children(wide.root()))) == 100
    binomial = UTS(tree="binomial", b0=2000.9, q=0.1, m=5)
    assert len(list(binomial.children(binomial.root()))) == 2000


def test_a_root_alone() -> None:
    assert measure(UTS(b0=0)) == (1, 1, 0)
    assert measure(UTS(b0=1e-300)) == (1, 1, 0)


def test_what_is_shown() -> None:
    problem = UTS()
    assert problem.show(problem.root()) == {"state": first(19).hex(), "depth": 0}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tree": "oak"}, "there is no tree 'oak'; there is geometric, binomial, hybrid"),
        ({"shape": "round"}, "there is no shape 'round'; there is fixed, linear"),
        ({"depth": 0}, "the depth must be from 1"),
        ({"b0": -1}, "b0 must be from 0"),
        ({"b0": math.nan}, "b0 must be from 0"),
        ({"b0": math.inf}, "b0 must be from 0"),
        ({"seed": -1}, "the seed must be from 0"),
        ({"seed": 2**32}, "the seed must be from 0"),
        ({"q": 1.5}, "q is a probability"),
        ({"m": 101}, "m must be from 0 to 100"),
        ({"shift": 2}, "shift is a fraction"),
        ({"tree": "binomial", "q": 0.5, "m": 2}, "may have no end; q \\* m must be less than 1"),
        ({"shape": "exponential", "depth": 1}, "needs b0 and depth greater than 1"),
        ({"shape": "cyclic", "b0": 0}, "needs b0 and depth greater than 1"),
    ],
)
def test_a_tree_that_there_is_not(settings: dict[str, int | float | str], message: str) -> None:
    with pytest.raises(SearchError, match=message):
        UTS(**settings)  # pyright: ignore[reportArgumentType]
