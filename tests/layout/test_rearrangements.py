"""The index structures of steps that move elements, against the elements that numpy moves."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from collir.layout import Dim, DistType, DType
from collir.layout.coll import ALL_GATHER, CONCAT, MERGE, PAD, RESHAPE, SHIFT, SPLIT, TRANSPOSE
from collir.layout.formulas import Formula
from collir.layout.sizes import sized
from collir.layout.steps import Argument, StepKind
from collir.layout.structure import Structure

Array = npt.NDArray[np.int64]

SIZES = st.sampled_from([1, 2, 3, 4, 6])
SHAPES = st.lists(SIZES, min_size=1, max_size=4)
ADDED = -1
"""The elements that a pad adds."""


def structure(kind: StepKind, shapes: Sequence[Sequence[int]], **arguments: Argument) -> Structure:
    operands = [DistType(DType.F32, tuple(map(Dim, shape))) for shape in shapes]
    made = kind.indices(operands, arguments)
    assert made is not None
    return made


def array(shape: Sequence[int], start: int = 0) -> Array:
    return np.arange(start, start + math.prod(shape)).reshape(shape)


def check(
    made: Structure, operands: Sequence[Array], result: Array, dim: int | None = None
) -> None:
    """Check that a dimension of the operands and one of the result have an index that may be
    sharded if, and only if, equal blocks of the one have the elements of blocks of the other.

    Args:
        dim: the dimension of the result that is made of another one, which is needed whole.
    """
    assert dim is None or made.result[dim] in made.blocked
    assert [*map(len, made.operands), len(made.result)] == [x.ndim for x in (*operands, result)]
    for source in range(operands[0].ndim):
        for target in range(result.ndim):
            counts = [
                count
                for count in range(2, result.shape[target] + 1)
                if all(x.shape[dim] % count == 0 for x, dim in
                       [*((x, source) for x in operands), (result, target)])
            ]  # fmt: skip
            alike = [are_alike(operands, source, result, target, count) for count in counts]
            indices = {over[source] for over in made.operands} | {made.result[target]}
            shared = len(indices) == 1 and made.blocked.isdisjoint(indices)
            assert alike == [shared] * len(counts) or (dim == target and not shared)


def are_alike(
    operands: Sequence[Array], source: int, result: Array, target: int, count: int
) -> bool:
    blocks = zip(*(np.split(x, count, source) for x in operands), strict=True)
    return all(
        {*part.flat} - {ADDED} <= {n for x in block for n in x.flat}
        for block, part in zip(blocks, np.split(result, count, target), strict=True)
    )


@given(SHAPES, st.data())
def test_transposes(shape: list[int], data: st.DataObject) -> None:
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    x = array(shape)
    check(structure(TRANSPOSE, [shape], order=order), [x], x.transpose(order))


@given(SHAPES, st.data())
@settings(max_examples=30)
def test_reshapes(shape: list[int], data: st.DataObject) -> None:
    new, left = list[int](), math.prod(shape)
    while left > 1:
        new.append(data.draw(st.sampled_from([n for n in range(1, left + 1) if left % n == 0])))
        left //= new[-1]
    x = array(shape)
    check(structure(RESHAPE, [shape], shape=tuple(new)), [x], x.reshape(new))


@given(SHAPES, SIZES, SIZES, st.data())
def test_splits_and_merges(shape: list[int], outer: int, inner: int, data: st.DataObject) -> None:
    dim = data.draw(st.integers(0, len(shape) - 1))
    front, behind = shape[:dim], shape[dim + 1 :]
    x = array([*front, outer * inner, *behind])
    y = x.reshape(*front, outer, inner, *behind)
    check(structure(SPLIT, [x.shape], dim=dim, sizes=(outer, inner)), [x], y)
    check(structure(MERGE, [y.shape], dim=dim), [y], x)


@given(SHAPES, st.integers(-2, 2), st.integers(-2, 2), st.data())
def test_pads(shape: list[int], low: int, high: int, data: st.DataObject) -> None:
    dim = data.draw(st.integers(0, len(shape) - 1))
    shape[dim] = 8
    x = array(shape)
    made = structure(PAD, [shape], dim=dim, low=low, high=high, value=0.0)
    kept = x.take(range(max(0, -low), 8 - max(0, -high)), dim)
    amounts = [(max(0, low), max(0, high)) if d == dim else (0, 0) for d in range(x.ndim)]
    y = np.pad(kept, amounts, constant_values=ADDED)
    if low or high:
        check(made, [x], y, dim)
    assert made.sizes[made.result[dim]] == y.shape[dim]


@given(SHAPES, st.lists(st.sampled_from([2, 4]), min_size=2, max_size=3), st.data())
def test_concats(shape: list[int], sizes: list[int], data: st.DataObject) -> None:
    dim = data.draw(st.integers(0, len(shape) - 1))
    shapes = [[*shape[:dim], size, *shape[dim + 1 :]] for size in sizes]
    parts = [array(own, 1000 * number) for number, own in enumerate(shapes)]
    check(structure(CONCAT, shapes, dim=dim), parts, np.concatenate(parts, dim), dim)


def test_sizes_are_equal_if_their_formulas_are() -> None:
    """Two sizes that are equal by chance are of dimensions whose elements are regrouped."""
    rows, columns = (sized(4, Formula.parameter(name)) for name in ("rows", "columns"))
    assert not structure(RESHAPE, [[rows, columns]], shape=(rows, 2, 2)).regrouped >= {"0"}
    assert structure(RESHAPE, [[rows, columns]], shape=(columns, rows)).regrouped == {"0", "1"}


def test_steps_that_change_the_layout_alone_leave_elements_where_they_are() -> None:
    made = structure(ALL_GATHER, [[4, 8]], axes=("a",), dim=0)
    assert made.operands == (made.result,) and not made.blocked
    x = DistType(DType.F32, (Dim(4),))
    assert SHIFT.indices([x], {"axes": ("a",), "distance": 1}) is None
