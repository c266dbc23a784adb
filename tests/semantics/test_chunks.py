"""The typing rules against the chunk semantics of P².

From "everything partial", the chunk semantics must accept every well-typed sequence of the five
collectives of P², and end in the state that the type says. The tests walk over the distinct pairs
(type, chunk state), which covers all programs up to a length.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from support.programs.collectives import SIZES, mesh_of_sizes, ordered_lists
from support.semantics.chunks import ChunkError, ChunkState, goal, initial, step

from collir.layout import Axis, DistType, DType, Factor, LayoutError, Mesh, Reduction, rules
from collir.layout.cuts import cuts
from collir.machine import Level, Machine
from collir.semantics.reference.devices import coordinate, groups, index_in

OPS = ("all_reduce", "reduce_scatter", "all_gather", "reduce", "broadcast")
LENGTH = 4


def steps_on(mesh: Mesh) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield all pairs of a collective and an ordered list of sub-axes."""
    return product(OPS, ordered_lists(list(mesh.by_name)))


def typed(mesh: Mesh, x: DistType, op: str, axes: tuple[str, ...]) -> DistType | None:
    """Return the type after a step on the only dimension, or None if it is not well typed."""
    rule = getattr(rules, op)
    dims = (0,) if op in ("reduce_scatter", "all_gather") else ()
    try:
        return rule(mesh, x, axes, *dims)
    except LayoutError:
        return None


def accepted(mesh: Mesh, state: ChunkState, op: str, axes: tuple[str, ...]) -> bool:
    """Return whether the chunk semantics accepts a step."""
    try:
        chunked(mesh, state, op, axes)
    except ChunkError:
        return False
    return True


def chunked(mesh: Mesh, state: ChunkState, op: str, axes: tuple[str, ...]) -> ChunkState:
    """Return the state after a step by the chunk semantics, of all groups that hold data."""
    taking_part = [group for group in groups(mesh, axes) if state[group].any()]
    if not taking_part:
        raise ChunkError("all groups are empty")
    return step(state, op, taking_part)


def state_of(mesh: Mesh, x: DistType) -> ChunkState:
    """Return the chunk state of a type: the rows of every device, and the contributions in them."""
    k = mesh.devices
    state = np.zeros((k, k, k), dtype=np.bool_)
    rows = k // mesh.group_size(x.dims[0].axes)
    for rank in range(k):
        if any(coordinate(mesh, rank, axis) != at for axis, at in x.place):
            continue
        block = index_in(mesh, rank, x.dims[0].axes)
        summed = [
            source
            for source in range(k)
            if all(coordinate(mesh, rank, a) == coordinate(mesh, source, a) for a in x.partial)
        ]
        state[rank, block * rows : (block + 1) * rows, summed] = True
    return state


def everything_partial(mesh: Mesh) -> DistType:
    """Return the type at the start: one element per device, partial over all sub-axes."""
    return DistType.make(DType.F32, [mesh.devices], partial=mesh.by_name, reduction=Reduction.SUM)


def reachable(mesh: Mesh, length: int) -> Iterator[tuple[DistType, ChunkState]]:
    """Yield the pairs (type, chunk state) that typed programs shorter than ``length`` lead to."""
    start = everything_partial(mesh)
    seen = {start}
    frontier = [(start, initial(mesh.devices))]
    for _ in range(length):
        yield from frontier
        following: list[tuple[DistType, ChunkState]] = []
        for x, state in frontier:
            for op, axes in steps_on(mesh):
                y = typed(mesh, x, op, axes)
                if y is not None and y not in seen:
                    seen.add(y)
                    following.append((y, chunked(mesh, state, op, axes)))
        frontier = following


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_what_types_the_chunk_semantics_accepts_and_they_agree(sizes: tuple[int, ...]) -> None:
    mesh = mesh_of_sizes(sizes)
    steps = 0
    for x, state in reachable(mesh, LENGTH):
        assert np.array_equal(state, state_of(mesh, x))
        for op, axes in steps_on(mesh):
            y = typed(mesh, x, op, axes)
            if y is None:
                continue
            after = chunked(mesh, state, op, axes)
            assert np.array_equal(after, state_of(mesh, y)), f"{op} over {axes} from {x}"
            steps += 1
    assert steps > 0


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_replicated_is_the_goal(sizes: tuple[int, ...]) -> None:
    mesh = mesh_of_sizes(sizes)
    done = DistType.make(DType.F32, [mesh.devices])
    assert np.array_equal(state_of(mesh, done), goal(mesh.devices))


def kind_of_refusal(mesh: Mesh, x: DistType, op: str, axes: tuple[str, ...]) -> str:
    """Return the reason why the types refuse a step that the chunk semantics accepts."""
    sharding = x.dims[0].axes
    if op == "all_gather" and set(axes) == set(sharding[-len(axes) :]):
        return "gathered in another order: chunks have no place in memory, buffers do"
    if op == "all_gather" and set(axes) <= set(sharding):
        return "gathered from the middle: the result is chunks that are no block of the buffer"
    if op == "broadcast" and set(axes) & x.placed:
        return "broadcast to some who have it already: the smaller broadcast does the same"
    return "unknown"


EXPECTED = {
    "gathered in another order: chunks have no place in memory, buffers do",
    "gathered from the middle: the result is chunks that are no block of the buffer",
    "broadcast to some who have it already: the smaller broadcast does the same",
}


def test_what_only_the_chunk_semantics_accepts_is_of_known_kinds() -> None:
    kinds: Counter[str] = Counter()
    for sizes in SIZES:
        mesh = mesh_of_sizes(sizes)
        for x, state in reachable(mesh, LENGTH):
            for op, axes in steps_on(mesh):
                if typed(mesh, x, op, axes) is None and accepted(mesh, state, op, axes):
                    kinds[kind_of_refusal(mesh, x, op, axes)] += 1
    assert set(kinds) == EXPECTED, kinds


def test_a_needless_broadcast_can_be_replaced_by_one_that_types() -> None:
    mesh = mesh_of_sizes((2, 2))
    start = everything_partial(mesh)
    x = rules.reduce(mesh, rules.all_reduce(mesh, start, ("a.l0",)), ("b.l1",))
    state = state_of(mesh, x)
    wide = chunked(mesh, state, "broadcast", ("a.l0", "b.l1"))
    narrow = chunked(mesh, state, "broadcast", ("b.l1",))
    assert np.array_equal(wide, narrow)
    assert np.array_equal(narrow, state_of(mesh, rules.broadcast(mesh, x, ("b.l1",))))


# The chunk semantics alone: the examples of the paper (P², MLSys 2022).


def test_reduction_counts_no_contribution_twice() -> None:
    state = step(initial(2), "all_reduce", [[0, 1]])
    with pytest.raises(ChunkError, match="twice"):
        step(state, "all_reduce", [[0, 1]])


def test_reduce_scatter_then_all_gather_is_all_reduce() -> None:
    group = [[0, 1, 2, 3]]
    scattered = step(initial(4), "reduce_scatter", group)
    assert scattered.sum() == 4 * 4
    assert np.array_equal(step(scattered, "all_gather", group), goal(4))


def test_reduce_then_broadcast_is_all_reduce() -> None:
    reduced = step(initial(3), "reduce", [[0, 1, 2]])
    assert not reduced[1:].any()
    assert np.array_equal(step(reduced, "broadcast", [[0, 1, 2]]), goal(3))


@pytest.mark.parametrize(
    ("op", "message"),
    [("all_gather", "twice"), ("broadcast", "does not"), ("reduce_scatter", "divide")],
)
def test_preconditions(op: str, message: str) -> None:
    state = initial(3)
    with pytest.raises(ChunkError, match=message):
        step(state[:, :2] if op == "reduce_scatter" else state, op, [[0, 1, 2]])


# --- axes with weights --------------------------------------------------------------------------

WEIGHTS = [[3, 1], [3, 2, 1], [3, 3, 1, 1], [6, 2, 3, 1], [2, 1, 1, 1, 1, 2], [6, 2, 3, 1, 3, 1]]
"""Weights of an axis of two levels, the inner one of 2; some are products of weights of both."""


def weighted_mesh(weights: list[int]) -> Mesh:
    """Return a mesh of one axis with weights, on two levels where its size is even."""
    inner = 2 if len(weights) % 2 == 0 else 1
    sizes = (len(weights) // inner, inner)
    levels = tuple(Level(f"l{i}", n, 1e9, 1e-6) for i, n in enumerate(sizes))
    axis = Axis.placed("a", [Factor(f"l{i}", n) for i, n in enumerate(sizes)])
    return Mesh("m", Machine("c", levels), (axis.weighted(weights),))


def uneven_state(mesh: Mesh, x: DistType) -> ChunkState:
    """Return the chunk state of a type, with a chunk for each element of the dimension."""
    k = mesh.devices
    state = np.zeros((k, x.dims[0].size, k), dtype=np.bool_)
    for rank in range(k):
        if any(coordinate(mesh, rank, axis) != at for axis, at in x.place):
            continue
        summed = [
            source
            for source in range(k)
            if all(coordinate(mesh, rank, a) == coordinate(mesh, source, a) for a in x.partial)
        ]
        at = {axis: coordinate(mesh, rank, axis) for axis in mesh.by_name}
        begin, end = cuts(mesh, x.dims[0].size, x.dims[0].axes, at)
        state[rank, begin:end, summed] = True
    return state


def shares_of(
    mesh: Mesh, group: list[int], held: tuple[str, ...], axes: tuple[str, ...]
) -> list[int]:
    """Return the shares of the ranks of a group: sums of the weights that agree with them."""
    (axis,) = mesh.axes
    weights = axis.weights or [1] * axis.size
    names = [*held, *axes]
    return [
        sum(
            weight
            for other, weight in enumerate(weights)
            if all(coordinate(mesh, other, a) == coordinate(mesh, rank, a) for a in names)
        )
        for rank in group
    ]


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_chunks_agree_with_types_of_uneven_blocks(weights: list[int]) -> None:
    mesh = weighted_mesh(weights)
    size = sum(weights) * 2
    start = DistType.make(DType.F32, [size], partial=mesh.by_name, reduction=Reduction.SUM)
    seen, frontier, scattered = {start}, [(start, initial(mesh.devices, size))], 0
    while frontier:
        x, state = frontier.pop()
        assert np.array_equal(state, uneven_state(mesh, x))
        for op, axes in steps_on(mesh):
            y = typed(mesh, x, op, axes)
            if y is None:
                continue
            taking_part = [group for group in groups(mesh, axes) if state[group].any()]
            held = min((x.dims[0].axes, y.dims[0].axes), key=len)
            shares = [shares_of(mesh, group, held, axes) for group in taking_part]
            after = step(state, op, taking_part, shares)
            assert np.array_equal(after, uneven_state(mesh, y)), f"{op} over {axes} from {x}"
            scattered += op == "reduce_scatter"
            if y not in seen:
                seen.add(y)
                frontier.append((y, after))
    assert scattered
