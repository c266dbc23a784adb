"""Layouts by the amounts of data alone: folds in any order, and plans beside those that D-Rec is
said to make, and beside those of an exact search by the same amounts."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise, permutations

import pytest
from auto import random_auto
from checks import functions_of
from hypothesis import event, given, settings
from model_pages import page
from programs import RANDOM
from seeds import fresh
from single_device import single_device
from xdsl.dialects.func import FuncOp

import collir
from collir.layout.cuts import undefined_cut, units
from collir.synthesis.propagation.graph import Graph, Relation
from collir.synthesis.propagation.propagate import lay_out
from collir.synthesis.sharding.problem import Sharding
from collir.synthesis.sharding.solver import least_sum
from collir.synthesis.sharding.symbolic import halving as rounds_of
from collir.synthesis.sharding.symbolic.amounts import AMOUNTS, D_REC, UNKNOWN
from collir.synthesis.sharding.symbolic.exact import sent_bytes, values_of
from collir.synthesis.sharding.symbolic.halving import Halving, Level, States, Votes
from collir.synthesis.sharding.symbolic.parts import Dimension, Parts
from collir.synthesis.sharding.symbolic.steps import Step, Table

MODELS = ("mlp", "switch", "vit", "bert")
QUICK = ("mlp", "switch")
BOTH = (AMOUNTS, D_REC)

CUBE = """
machine @box { level gpu[8] { port = 8 GB/s, latency = 3 us } }
mesh @m on @box { x = gpu:2, y = gpu:2, z = gpu:2 }
"""


def _graph(text: str) -> Graph:
    """Return the graph of a function on eight devices, in three axes."""
    (function,) = functions_of(collir.parse(CUBE + text))
    return Graph.build(function)


def _random(rng: random.Random) -> tuple[FuncOp, Graph]:
    """Return a random function without weights of axes, and its graph."""
    module = None
    while module is None:
        module = random_auto(rng, weights=0.0)
    (function,) = functions_of(module)
    return function, Graph.build(function)


@cache
def _model(name: str) -> tuple[FuncOp, Graph]:
    """Return the training step of an example, of a single device, and its graph."""
    module, made = single_device(page(name)), list[tuple[FuncOp, Graph]]()
    lay_out(module, lambda f, closed: made.append((f, Graph.build(f, closed))), callees=False)
    (step,) = made
    return step


def _some(quick: Sequence[str]) -> list[object]:
    return [pytest.param(x, marks=[] if x in quick else [pytest.mark.slow]) for x in MODELS]


# --- D-Rec ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "cuts"),
    [
        ((256, 512, 512), "iij"),
        ((256, 25088, 4096), "kkk"),
        ((256, 4096, 4096), "jkj"),
        ((256, 9216, 4096), "kkj"),
        ((32768, 768, 3072), "iii"),
        ((16384, 12288, 49152), "iji"),
    ],
)
def test_a_product_is_cut_as_d_rec_does(sizes: tuple[int, int, int], cuts: str) -> None:
    i, k, j = sizes
    graph = _graph(f"""
func @f(%a: f32[{i}, {k}], %b: f32[{k}, {j}]) -> f32[{i}, {j}] on @m auto {{
  %0 = einsum "i k, k j -> i j" %a, %b
  return %0
}}""")
    plan = Halving(graph, D_REC)
    plan.run()
    assert _cuts(plan, graph.relations[0]) == cuts


def _cuts(plan: Halving, step: Relation) -> str:
    """Return the index that each level divides, the first at first: that of the inner axis."""
    of = {axis: index for index, axes in plan.axes(step).items() for axis in axes}
    return "".join(of[axis] for axis in reversed(plan.graph.mesh.by_name))


def test_a_network_is_cut_as_d_rec_does() -> None:
    """The first product of the MLP of the published check has the strategy ((4, 2), (1, 2)), that
    is I, K, I."""
    graph = _graph("""
func @f(%a: f32[256, 784], %u: f32[784, 512], %v: f32[512, 512], %w: f32[512, 1])
    -> f32[256, 1] on @m auto {
  %0 = einsum "i k, k j -> i j" %a, %u
  %1 = relu %0
  %2 = einsum "i k, k j -> i j" %1, %v
  %3 = relu %2
  %4 = einsum "i k, k j -> i j" %3, %w
  return %4
}""")
    plan = Halving(graph, D_REC)
    first = plan.steps[0]
    table = Table(first, ["i", "j", "k"], 2, D_REC)
    amounts = table.total((UNKNOWN,) * len(first.parts), lies_whole=True)
    element = 4 * 2 * 2 * 4  # amounts are bytes times f * f, in quarters
    assert [amount / element for amount in amounts] == [50_176, 100_352, 65_536]
    plan.run()
    assert _cuts(plan, first.relation) == "iki"
    blocks = {index: 2 ** len(axes) for index, axes in first.axes.items()}
    assert [[blocks.get(i, 1) for i in over] for over in ("ik", "jk")] == [[4, 2], [1, 2]]


# --- folds ----------------------------------------------------------------------------------------


def _check_order(rng: random.Random, graph: Graph) -> None:
    """Check that a plan does not depend on the order of the steps."""
    relations = rng.sample(graph.relations, len(graph.relations))
    for accounting in BOTH:
        plan = Halving(graph, accounting)
        other = Halving(replace(graph, relations=relations), accounting)
        plan.run()
        other.run()
        assert [plan.layout(x) for x in graph.tensors] == [other.layout(x) for x in graph.tensors]
        assert [plan.axes(x) for x in relations] == [other.axes(x) for x in relations]


@given(rng=RANDOM)
@settings(max_examples=40)
def test_no_order_of_steps_changes_a_plan(rng: random.Random) -> None:
    _check_order(rng, _random(rng)[1])


@pytest.mark.parametrize("name", _some(QUICK))
def test_no_order_of_steps_changes_the_plan_of_an_example(name: str) -> None:
    _check_order(fresh("order", name), _model(name)[1])


def test_no_order_of_steps_decides_between_equal_dimensions() -> None:
    graph = _graph("""
func @f(%a: f32[64, 64]) -> (f32[64, 64], f32[64, 64]) on @m auto {
  %0 = exp %a
  %1 = transpose %0 order [1, 0]
  %2 = relu %1
  %3 = exp %0
  return %2, %3
}""")
    for accounting in BOTH:
        plans: set[str] = set()
        for relations in permutations(graph.relations):
            plan = Halving(replace(graph, relations=[*relations]), accounting)
            plan.run()
            plans.add(str([plan.layout(x) for x in graph.tensors]))
        assert len(plans) == 1


def _pieces(rng: random.Random, count: int) -> list[list[int]]:
    """Return numbers in a few pieces, some of them empty, each in any order."""
    pieces: list[list[int]] = [[] for _ in range(rng.randint(1, 4))]
    for number in rng.sample(range(count), count):
        rng.choice(pieces).append(number)
    return pieces


def _joined(relations: Sequence[Relation], by_index: bool) -> Parts:
    """Return the parts of some steps."""
    parts = Parts()
    for relation in relations:
        (parts.add_indices if by_index else parts.add)(relation)
    return parts


def _merged(pieces: Sequence[Parts]) -> Parts:
    merged = Parts()
    for piece in pieces:
        merged.merge(piece)
    return merged


@given(rng=RANDOM)
@settings(max_examples=40)
def test_parts_of_pieces_make_those_of_the_whole(rng: random.Random) -> None:
    _, graph = _random(rng)
    relations = graph.relations
    items = [Dimension(x.number, d) for x in graph.tensors for d in range(-1, len(x.shape))]
    for by_index in (False, True):
        whole = [_joined(relations, by_index).first(x) for x in items]
        numbers = _pieces(rng, len(relations))
        pieces = [_joined([relations[n] for n in own], by_index) for own in numbers]
        first, *rest = pieces
        nested = [first, _merged(rest)]  # merges are associative too
        for order in (pieces, pieces[::-1], nested, [*pieces, *pieces]):
            merged = _merged(order)
            assert [merged.first(x) for x in items] == whole


@given(rng=RANDOM)
@settings(max_examples=30)
def test_votes_of_pieces_make_those_of_the_whole(rng: random.Random) -> None:
    graph = _random(rng)[1]
    plan = Halving(graph, rng.choice(BOTH))
    for level, starts in _levels(plan):
        steps = plan.steps
        for states in ({}, *starts):
            whole = level.votes(steps, states)
            pieces = [[steps[n] for n in own] for own in _pieces(rng, len(steps))]
            apart = [Level(plan, level.name, level.factor).votes(piece, states) for piece in pieces]
            for order in (apart, apart[::-1]):
                merged = Votes()
                for votes in order:
                    merged.merge(votes)
                assert merged == whole
            if states:
                moves = level.moves(whole, states)
                largest = [level.largest(piece, moves) for piece in pieces]
                assert level.largest(steps, moves) == set[int].intersection(*largest)


def _levels(plan: Halving) -> Iterator[tuple[Level, list[States]]]:
    """Yield the levels of a plan while it is made, with the states that rounds start from."""
    kept: list[tuple[Level, list[States]]] = []
    with pytest.MonkeyPatch.context() as patch:
        improved = Level.improved

        def keep(self: Level, steps: Sequence[Step], states: States) -> tuple[int, States]:
            if not kept or kept[-1][0] is not self:
                kept.append((self, []))
            kept[-1][1].append(states)
            return improved(self, steps, states)

        patch.setattr(Level, "improved", keep)
        plan.run()
    yield from kept[-1:]  # steps are divided by now as the last level found them, or more


# --- plans ----------------------------------------------------------------------------------------


def _check_rounds(graph: Graph) -> None:
    """Check that each round saves what it is said to, so more rounds never send more."""
    improved = Level.improved

    def check(self: Level, steps: Sequence[Step], states: States) -> tuple[int, States]:
        found: list[tuple[int, States]] = []
        with pytest.MonkeyPatch.context() as inner:
            for rounds in range(5):
                inner.setattr(rounds_of, "_ROUNDS", rounds)
                found.append(improved(self, steps, states))
        found.append(improved(self, steps, states))
        sums = [sent for sent, _ in found]
        assert sums == sorted(sums, reverse=True)
        for (before, now), (after, _) in pairwise(found[:-1]):
            moves = self.moves(self.votes(steps, now), now)
            saved = sum(moves[part][0] for part in self.largest(steps, moves))
            assert before - after == saved or self.halving.free
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Level, "improved", check)
        for accounting in BOTH:
            Halving(graph, accounting).run()


@given(rng=RANDOM)
@settings(max_examples=30)
def test_more_rounds_never_send_more(rng: random.Random) -> None:
    _check_rounds(_random(rng)[1])


@pytest.mark.parametrize("name", _some(["mlp"]))
def test_more_rounds_never_send_more_in_an_example(name: str) -> None:
    _check_rounds(_model(name)[1])


def _checked(function: FuncOp, graph: Graph) -> tuple[float, float]:
    """Return the bytes that a plan sends, and the least by an exact search, after a check that the
    layouts of the plan are listed there, and that all sizes divide by its blocks."""
    plan = Halving(graph)
    plan.run()
    sharding = sent_bytes(function, graph)
    for tensor in graph.tensors:
        if tensor in sharding.variable_of:
            listed = sharding.layouts[sharding.variable_of[tensor]]
            assert plan.layout(tensor) in listed
    for relation in graph.relations:
        axes = {index: own for index, own in plan.axes(relation).items() if own}
        used = [axis for own in axes.values() for axis in own]
        assert len(used) == len(set(used))
        assert not relation.blocked & axes.keys()
        for own in axes.values():
            assert own == tuple(graph.mesh.ordered(frozenset(own)))
            assert undefined_cut(graph.mesh, own) is None
        for tensor, over in zip(relation.members, relation.indices, strict=True):
            for index, size in zip(over, tensor.shape, strict=True):
                assert size % units(graph.mesh, axes.get(index, ())) == 0
        if relation.op is not None:
            assert _is_way(sharding, relation, axes)
    found = least_sum(sharding.sum, 20.0)
    assert not found.ended
    return sharding.sum.value(values_of(sharding, graph, plan)), found.sum


def _is_way(sharding: Sharding, relation: Relation, axes: dict[str, tuple[str, ...]]) -> bool:
    """Return whether a step may be divided so."""
    listed = sharding.ways[sharding.variable_of[relation]]
    return any({i: own for i, own in way.axes.items() if own} == axes for way in listed)


@given(rng=RANDOM)
@settings(max_examples=25)
def test_no_plan_sends_less_than_the_exact_one(rng: random.Random) -> None:
    sent, least = _checked(*_random(rng))
    assert sent >= least * (1 - 1e-9)
    event("no more than the exact one" if sent <= least * (1 + 1e-9) else "more")


@pytest.mark.parametrize("name", _some([*QUICK, "vit"]))
def test_examples_send_little_more_than_the_least(name: str) -> None:
    sent, least = _checked(*_model(name))
    assert 1 - 1e-9 <= sent / least <= 1.2


def test_outer_axes_know_the_blocks_of_written_types() -> None:
    """Blocks inside of those that a type gives would have to be sent, and other dimensions not."""
    text = """
func @f(%a: f32[8@z, 8, 8]) -> f32[8, 8, 8] on @m auto {
  %0 = relu %a
  return %0
}"""
    (function,) = functions_of(collir.parse(CUBE + text))
    assert _checked(function, Graph.build(function)) == (0.0, 0.0)


@pytest.mark.slow
def test_most_random_plans_send_the_least() -> None:
    """Check the bound. Of 1,500 random functions 86 % send the least, 90 % at most 1.2 times as
    much, 99 % at most 4 times, and all together 1.33 times."""
    rng = fresh("gaps")
    pairs = [_checked(*_random(rng)) for _ in range(200)]
    assert all(sent >= least * (1 - 1e-9) for sent, least in pairs)
    assert sum(sent <= least * (1 + 1e-9) for sent, least in pairs) >= 140
