"""Products of matrices in tiles, against processors that take one tile after the other."""

import heapq
import itertools
import math
import random
from textwrap import dedent

import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM

import collir
from collir.cost.programs.products import MatrixProducts, product_of, slowdown
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation
from collir.dialects.machine import MachineOp, mesh_of
from collir.dialects.operation import DistOp
from collir.machine import Efficiency


def seconds_of_tiles(
    product: MatrixProducts, on: Efficiency, sides: tuple[int, int], parts: int
) -> float:
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


@settings(max_examples=15, deadline=None)
@given(rng=RANDOM)
def test_the_fastest_cut_is_that_of_all(rng: random.Random) -> None:
    tile = rng.choice([(16, 16), (32, 16), (16, 64), (24, 24)])
    on = Efficiency(units=rng.randint(1, 9), tile=tile, depth=rng.choice((0, 3, 20)))
    product = MatrixProducts(*(rng.randint(1, most) for most in (3, 90, 90, 40)))
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
    product = MatrixProducts(1, 128 * 108, 128 * 100, 4096)
    assert slowdown(product, A100) == pytest.approx(1 + 64 / 4096)


def test_a_wave_more_takes_as_long_as_a_full_one() -> None:
    one, more = MatrixProducts(1, 128, 128 * 108, 8192), MatrixProducts(108 + 1, 128, 128, 8192)
    full, nearly = slowdown(one, A100), slowdown(more, A100)
    assert full == pytest.approx(1 + 64 / 8192)
    assert full < nearly < 2 * full


@pytest.mark.parametrize("kept", ["h", "bs", "sh", ""])
def test_a_sum_of_products_of_elements_takes_the_time_of_its_bytes(kept: str) -> None:
    """No index is in one operand only, so there are no rows and columns to use an element for."""
    sizes = {"b": 4, "s": 512, "h": 1024}
    shape = ", ".join(str(sizes[index]) for index in kept)
    arguments = "%x: f32[4, 512, 1024], %y: f32[4, 512, 1024]"
    dims = [n for n, index in enumerate("bsh") if index not in kept]
    module = collir.parse(f"""
machine @box {{
  device {{ compute f32 = 60 TFLOP/s; memory = 80 GB @ 3 TB/s;
            efficiency compute = 0.8; tile = 128 x 256; units = 132; depth = 64 }}
  level gpu[1] {{ port = 300 GB/s, latency = 3 us }}
}}
mesh @m on @box {{ data = gpu:1 }}
func @product({arguments}) -> f32[{shape}] on @m {{
  %r = einsum "b s h, b s h -> {" ".join(kept)}" %x, %y
  return %r
}}
func @parts({arguments}) -> f32[{shape}] on @m {{
  %p = mul %x, %y
  %r = sum %p dims {dims}
  return %r
}}
""")
    product, parts = simulate(module)
    moved = 4 * (2 * 4 * 512 * 1024 + math.prod(sizes[index] for index in kept))
    assert product.time == pytest.approx(parts.time) == pytest.approx(moved / 3e12)


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
    factor = slowdown(
        MatrixProducts(1, 1024, 256, 512), Efficiency(units=20, tile=(128, 128), depth=64)
    )
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
    assert simulation.steps[0].task.time == pytest.approx(1e9 / 10e12)


def test_a_faster_tile_is_used_if_a_program_changes_its_size() -> None:
    simulation = simulated("tile = 128 x 128; units = 20; depth = 64; launch = 1 us", PRODUCT)
    assert simulation.scaled(3).time < 3 * simulation.time  # launched once


BEST = [
    ("dgx_a100", 1024, 10240, 5120, 271.2),
    ("dgx_a100", 6912, 2048, 16384, 267.9),
    ("dgx_h100", 2048, 2048, 13312, 794.5),
    ("dgx_h100", 6144, 2816, 17920, 792.1),
]
"""The fastest bf16 products that searches found on GPUs, with their TFLOP/s (stas00/ml-engineering,
compute/accelerator)."""


@pytest.mark.parametrize(("machine", "rows", "columns", "length", "measured"), BEST)
def test_the_fastest_products_fill_the_waves_of_shipped_machines(
    machine: str, rows: int, columns: int, length: int, measured: float
) -> None:
    module = collir.parse(f"machine @m = @{machine}\nmesh @n on @m {{ a = node:2, b = gpu:8 }}\n")
    [device] = [op.value().device for op in module.ops if isinstance(op, MachineOp)]
    assert device
    lost = slowdown(MatrixProducts(1, rows, columns, length), device.efficiency)
    assert lost < 1.04
    reached = dict(device.compute)["bf16"] * device.efficiency.compute / lost
    assert reached == pytest.approx(measured * 1e12, rel=0.035)
    worse = slowdown(MatrixProducts(1, rows + 128, columns + 128, length), device.efficiency)
    assert worse > lost  # a tile more on both sides begins another wave


FILTER = (1, 3 * 8, 7, 4 * 16)
PRODUCTS = {
    'einsum "b s h, h f -> b s f" %x, %w': (1, 4 * 16, 24, 8),
    'einsum "b s h, b t h -> b s t" %x, %z': (4, 16, 5, 8),
    'einsum "b s h, b s f -> h f" %x, %y': (1, 8, 24, 4 * 16),
    'einsum "b s h, h -> b s" %x, %v': (1, 4 * 16, 1, 8),
    "conv %x, %c stride [1] padding [1]": (1, 4 * 16, 7, 3 * 8),
    "conv_transpose %n, %c stride [1] padding [1] to f32[8@data, 16, 8]": (1, 4 * 16, 8, 3 * 7),
    "conv_filter %x, %n padding [1] stride [1] to f32[3, 8, 7] partial(sum: data)": FILTER,
}
"""Products on a device, with the number, rows, columns and length of those of matrices."""


@pytest.mark.parametrize(("step", "expected"), PRODUCTS.items())
def test_products_are_those_of_matrices(step: str, expected: tuple[int, ...]) -> None:
    module = collir.parse(
        dedent(f"""\
        machine @box {{ level gpu[2] {{ port = 300 GB/s, latency = 3 us }} }}
        mesh @m on @box {{ data = gpu:2 }}
        func @f(%x: f32[8@data, 16, 8], %w: f32[8, 24], %z: f32[8@data, 5, 8],
            %y: f32[8@data, 16, 24], %v: f32[8], %c: f32[3, 8, 7], %n: f32[8@data, 16, 7]) on @m {{
          %r = {step}
          return
        }}""")
    )
    (op,) = (op for op in module.walk() if isinstance(op, DistOp))
    assert op.structure is not None
    product = product_of(op, op.structure, mesh_of(op))
    assert product is not None
    assert op.flops == 2 * product.count * product.rows * product.columns * product.length
    assert product == MatrixProducts(*expected)
