"""Numbers of a rank: their values, bounds and texts, against plain arithmetic on all ranks."""

import random

from hypothesis import given
from support.programs.collectives import RANDOM, random_mesh

from collir.layout import Mesh
from collir.layout.cuts import places
from collir.layout.local import bounds, coordinate_index, number_at, rank_text, table
from collir.layout.mesh import index_over


def random_number(rng: random.Random, mesh: Mesh) -> tuple[int, dict[tuple[int, ...], int]]:
    """Return a number of a mesh, and its value by the coordinates of each rank."""
    axes = list(mesh.by_name)
    ranks = places(mesh, axes)
    number, values = rng.randint(-3, 3), dict[tuple[int, ...], int]()
    constant = number
    terms: list[tuple[int, list[list[int]]]] = []
    for _ in range(rng.randint(0, 3)):
        factor, product, parts = rng.choice([-2, -1, 1, 3]), 1, list[list[int]]()
        for _ in range(rng.randint(1, 2)):
            over = rng.sample(axes, rng.randint(0, len(axes)))
            if rng.random() < 0.5:
                product = product * coordinate_index(mesh, over)
                parts.append([index_over(mesh, over, at) for at in ranks])
            else:
                listed = [rng.randint(0, 4) for _ in range(mesh.group_size(over))]
                product = product * table(over, listed)
                parts.append([listed[index_over(mesh, over, at)] for at in ranks])
        number = number + factor * product
        terms.append((factor, parts))
    for place, at in enumerate(ranks):
        total = constant
        for factor, parts in terms:
            for part in parts:
                factor *= part[place]
            total += factor
        values[tuple(at.values())] = total
    return number, values


@given(rng=RANDOM)
def test_numbers_are_those_of_plain_arithmetic(rng: random.Random) -> None:
    mesh = random_mesh(rng, weights=0.3)
    number, values = random_number(rng, mesh)
    ranks = places(mesh, list(mesh.by_name))
    assert [number_at(number, mesh, at) for at in ranks] == list(values.values())


@given(rng=RANDOM)
def test_bounds_hold_on_all_ranks_at_a_place(rng: random.Random) -> None:
    mesh = random_mesh(rng)
    number, values = random_number(rng, mesh)
    axes = list(mesh.by_name)
    fixed = {x: rng.randrange(mesh.by_name[x].size) for x in axes if rng.random() < 0.3}
    held = [
        value
        for at, value in values.items()
        if all(at[axes.index(axis)] == where for axis, where in fixed.items())
    ]
    low, high = bounds(number, mesh, tuple(fixed.items()))
    assert low <= min(held) and max(held) <= high


@given(rng=RANDOM)
def test_bounds_of_a_table_and_of_a_coordinate_are_reached(rng: random.Random) -> None:
    mesh = random_mesh(rng)
    axes = list(mesh.by_name)
    over = rng.sample(axes, rng.randint(0, len(axes)))
    listed = [rng.randint(-4, 4) for _ in range(mesh.group_size(over))]
    number = 3 * table(over, listed) + 2
    assert bounds(number, mesh) == (3 * min(listed) + 2, 3 * max(listed) + 2)
    index = coordinate_index(mesh, over)
    assert bounds(index, mesh) == (0, mesh.group_size(over) - 1)


def test_a_number_is_written_with_its_largest_multiple_first() -> None:
    mesh = random_mesh(random.Random(1), devices=8)
    axis = next(iter(mesh.by_name))
    size = mesh.by_name[axis].size
    values = list(range(1, size + 1))
    number = 5 - coordinate_index(mesh, [axis]) + 8 * table([axis], values)
    listed = f"[{', '.join(map(str, values))}][{axis}]" if size > 1 else ""
    expected = f"8 * {listed} - {axis} + 5" if size > 1 else f"-{axis} + 13"
    assert rank_text(number) == expected
