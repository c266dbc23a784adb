"""Tests of parallelism matrices (P², MLSys 2022) against their definition, and of misfits."""

import math
from itertools import islice, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collir.layout.fitting import first_misfit, nearest_sizes
from collir.synthesis.placement.matrices import Matrix, MatrixError, count, matrices

SMALL = st.lists(st.integers(1, 6), min_size=1, max_size=3)


def by_definition(hierarchy: list[int], axes: list[int]) -> set[Matrix]:
    """Return every matrix of divisors whose rows and columns have the right products."""

    def rows(size: int) -> list[tuple[int, ...]]:
        divisors = [[d for d in range(1, h + 1) if h % d == 0] for h in hierarchy]
        return [row for row in product(*divisors) if math.prod(row) == size]

    return {
        matrix
        for matrix in product(*map(rows, axes))
        if [math.prod(column) for column in zip(*matrix, strict=True)] == hierarchy
    }


def test_the_example_of_the_paper() -> None:
    assert list(matrices([1, 2, 2, 4], [4, 4])) == [
        ((1, 2, 2, 1), (1, 1, 1, 4)),
        ((1, 2, 1, 2), (1, 1, 2, 2)),
        ((1, 1, 2, 2), (1, 2, 1, 2)),
        ((1, 1, 1, 4), (1, 2, 2, 1)),
    ]
    assert count([1, 2, 2, 4], [4, 4]) == 4


@given(SMALL, st.data())
def test_all_matrices_are_found_once_and_counted(hierarchy: list[int], data: st.DataObject) -> None:
    left = math.prod(hierarchy)
    axes: list[int] = []
    for _ in range(data.draw(st.integers(0, 2))):
        axes.append(data.draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0])))
        left //= axes[-1]
    axes.append(left)
    listed = list(matrices(hierarchy, axes))
    assert len(set(listed)) == len(listed) == count(hierarchy, axes)
    assert set(listed) == by_definition(hierarchy, axes)
    assert listed == sorted(listed, reverse=True)
    assert first_misfit(math.prod(hierarchy), axes) is None


@given(SMALL, SMALL)
def test_axes_fit_exactly_if_there_is_a_matrix(hierarchy: list[int], axes: list[int]) -> None:
    devices = math.prod(hierarchy)
    fits = math.prod(axes) == devices
    assert fits == bool(by_definition(hierarchy, axes)) == (count(hierarchy, axes) > 0)
    if fits:
        return
    assert math.prod(axes) < devices or first_misfit(devices, axes) is not None
    with pytest.raises(MatrixError, match="multiply to"):
        matrices(hierarchy, axes)
    for sizes in nearest_sizes(devices, axes):
        assert len(sizes) == len(axes)
        assert count(hierarchy, sizes) > 0


@given(st.integers(1, 64), st.lists(st.integers(1, 12), min_size=1, max_size=3))
def test_nearest_sizes_are_nearest(devices: int, axes: list[int]) -> None:
    def distance(sizes: tuple[int, ...]) -> tuple[float, int]:
        pairs = list(zip(sizes, axes, strict=True))
        ratios = sum(abs(math.log(size / axis)) for size, axis in pairs)
        return round(ratios, 6), sum(size != axis for size, axis in pairs)

    divisors = [d for d in range(1, devices + 1) if devices % d == 0]
    fitting = [c for c in product(divisors, repeat=len(axes)) if math.prod(c) == devices]
    expected = sorted(map(distance, fitting))[:3]
    assert [distance(sizes) for sizes in nearest_sizes(devices, axes)] == expected


def test_the_first_of_very_many_come_at_once() -> None:
    hierarchy, axes = [2] * 31, [2] * 31
    first = list(islice(matrices(hierarchy, axes), 3))
    assert len(set(first)) == 3
    assert count(hierarchy, axes) == math.factorial(31)
    assert count([8] * 10, [8] * 10) > 10**17


@pytest.mark.parametrize(("hierarchy", "axes"), [([], []), ([1], []), ([], [1]), ([7], [7])])
def test_trivial_matrices(hierarchy: list[int], axes: list[int]) -> None:
    assert len(list(matrices(hierarchy, axes))) == count(hierarchy, axes) == 1


@pytest.mark.parametrize(("hierarchy", "axes"), [([0], [1]), ([2], [-2])])
def test_sizes_below_one_are_refused(hierarchy: list[int], axes: list[int]) -> None:
    with pytest.raises(MatrixError, match="at least 1"):
        matrices(hierarchy, axes)
    with pytest.raises(MatrixError, match="at least 1"):
        count(hierarchy, axes)


def test_the_axis_that_does_not_fit_is_known() -> None:
    assert first_misfit(32, [5, 7]) == 0
    assert first_misfit(16, [8, 4]) == 1
    assert first_misfit(1, [1, 2]) == 1
    assert first_misfit(2147483647, [2**89 - 1, 3]) == 0
    assert first_misfit(8, [2, 4]) is None
