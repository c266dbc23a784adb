"""Products of matrices in tiles, against processors that take one tile after the other."""

import heapq
import itertools
import math
import random
from textwrap import dedent

import pytest
from hypothesis import given, settings
from programs import RANDOM

import collir
from collir.cost.programs.products import Product, slowdown
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation
from collir.machine import Efficiency


def seconds_of_tiles(product: Product, on: Efficiency, sides: tuple[int, int], parts: int) -> float:
    """Return the seconds of a cut, on processors that do a step of the sum of a full tile in 1 s.

    Such a step takes as long as it takes to read its operands.
    """
    assert on.tile is not None
    operations = 1 / math.prod(on.tile)
    reading = 1 / sum(on.tile)
    free = [0.0] * on.units
    for _ in range(product.count):
        for _ in itertools.product(
            range(0, product.rows, sides[0]), range(0, product.columns, sides[1]), range(parts)
        ):
            steps = math.ceil(product.length / parts) + on.depth
            step = max(sides[0] * sides[1] * operations, (sides[0] + sides[1]) * reading)
            heapq.heapreplace(free, free[0] + steps * step)
    return max(free)


def halves(side: int) -> list[int]:
    """Return a side of a tile and its halves, until one is odd or below 9."""
    return [side] if side % 2 or side <= 8 else [side, *halves(side // 2)]


@settings(max_examples=25, deadline=None)
@given(rng=RANDOM)
def test_the_fastest_cut_is_that_of_all(rng: random.Random) -> None:
    tile = rng.choice([(16, 16), (32, 16), (16, 64), (24, 24)])
    on = Efficiency(units=rng.randint(1, 9), tile=tile, depth=rng.choice((0, 3, 20)))
    product = Product(*(rng.randint(1, most) for most in (3, 90, 90, 40)))
    sides = [
        (high, wide)
        for rows, columns in {tile, tile[::-1]}
        for high in halves(rows)
        for wide in halves(columns)
    ]
    parts = [2**k for k in range(7) if 2**k <= product.length]
    best = min(seconds_of_tiles(product, on, cut, n) for cut in sides for n in parts)
    points = product.count * product.rows * product.columns * product.length
    ideal = points / math.prod(tile) / on.units
    assert slowdown(product, on) == pytest.approx(best / ideal)
    assert slowdown(product, on) >= 1 - 1e-12


A100 = Efficiency(units=108, tile=(128, 128), depth=64)


def test_large_products_lose_only_the_depth() -> None:
    product = Product(1, 128 * 108, 128 * 100, 4096)
    assert slowdown(product, A100) == pytest.approx(1 + 64 / 4096)


def test_a_wave_more_takes_as_long_as_a_full_one() -> None:
    one, more = Product(1, 128, 128 * 108, 8192), Product(108 + 1, 128, 128, 8192)
    full, nearly = slowdown(one, A100), slowdown(more, A100)
    assert full == pytest.approx(1 + 64 / 8192)
    assert full < nearly < 2 * full


def simulated(clauses: str, steps: str) -> Simulation:
    text = f"""\
        machine @box {{
          device {{ compute f32 = 10 TFLOP/s, f16 = 40 TFLOP/s; memory = 1 TB @ 1 TB/s; {clauses} }}
          level gpu[2] {{ port = 300 GB/s, latency = 3 us }}
        }}
        mesh @m on @box {{ data = gpu:2 }}
        func @f(%x: f32[2048@data, 512], %w: f32[512, 256]) -> f32[2048@data, 256] on @m {{
          {steps}
          return %y
        }}"""
    [simulation] = simulate(collir.parse(dedent(text)))
    return simulation


PRODUCT = '%y = einsum "b h, h f -> b f" %x, %w'


def test_the_time_of_a_product_is_that_of_its_tiles() -> None:
    """A device has 1024 rows, so 8 x 2 tiles, or 32 halves of them, on 20 processors."""
    ideal = 2 * 1024 * 256 * 512 / 10e12
    assert simulated("", PRODUCT).time == pytest.approx(ideal)
    tiled = simulated("efficiency compute = 0.5; tile = 128 x 128; units = 20; depth = 64", PRODUCT)
    factor = slowdown(Product(1, 1024, 256, 512), Efficiency(units=20, tile=(128, 128), depth=64))
    assert factor > 1.1
    assert tiled.time == pytest.approx(2 * ideal * factor)
    assert tiled.bound == pytest.approx(tiled.time)


def test_launches_and_the_bandwidth_that_is_sustained() -> None:
    steps = '%s = softmax %x dims [1]\n%y = einsum "b h, h f -> b f" %s, %w'
    moved = 2 * 4 * 1024 * 512
    ideal = 2 * 1024 * 256 * 512 / 10e12
    times = [
        step.task.time for step in simulated("efficiency memory = 0.8; launch = 4 us", steps).steps
    ]
    assert times == pytest.approx([4e-6 + moved / 0.8e12, 4e-6 + ideal])


def test_a_compute_is_no_kernel() -> None:
    steps = f"%c = compute %x flops 1e9\n{PRODUCT.replace('%x', '%c')}"
    simulation = simulated("launch = 4 us; efficiency compute = 0.5", steps)
    assert simulation.steps[0].task.time == pytest.approx(1e9 / 5e12)


def test_a_faster_tile_is_used_if_a_program_changes_its_size() -> None:
    simulation = simulated("tile = 128 x 128; units = 20; depth = 64; launch = 1 us", PRODUCT)
    assert simulation.scaled(3).time < 3 * simulation.time  # launched once
