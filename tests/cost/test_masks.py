"""Masks of positions in kernels: leaving out what they mask changes nothing, and costs less."""

import math
import random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM

import collir
from collir.cost.programs.kernels import kernels_of
from collir.cost.programs.local_steps import LocalStep
from collir.cost.programs.masks import TILE, Band, Masked, Outside, known_in, part_of
from collir.dialects.machine import mesh_of, module_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.semantics.reference.collectives import Buffers
from collir.semantics.reference.devices import slices_of
from collir.semantics.reference.executor import execute
from collir.semantics.reference.steps import Args
from collir.transforms.inlining import function_without_calls

MESH = """
machine @box {
  device { compute f32 = 10 TFLOP/s; memory = 40 GB @ 1 TB/s }
  level gpu[4] { port = 300 GB/s, latency = 3 us }
}
mesh @m on @box { a = gpu:2, b = gpu:2 }
"""


def random_attention(rng: random.Random) -> str:
    """Return a function of attention with masks by positions, and others."""
    queries = rng.randint(3, 6)
    keys = queries + rng.randint(0, 3)  # each query sees a key
    window = rng.randint(1, 4)
    shape = f"{queries}, {keys}"
    lines = ['%0 = einsum "h q d, h k d -> h q k" %q, %k', "%1 = scale %0 by 0.5"]
    lines += [f"%query = iota dim 0 to i32[{shape}]", f"%key = iota dim 1 to i32[{shape}]"]
    lines += [f"%size = constant value {window} to i32[]", "%low = constant value -1e30 to f32[]"]
    lines += ["%begin = sub %query, %size", "%end = add %query, %size"]
    masks = [
        "less_equal %key, %query",
        "greater_equal %query, %key",
        "greater %key, %begin",
        "less %key, %end",
        "less %begin, %key",
    ]
    last = "%1"
    for number, mask in enumerate(rng.sample(masks, rng.randint(1, 3))):
        lines += [f"%c{number} = {mask}", f"%m{number} = where %c{number}, {last}, %low"]
        last = f"%m{number}"
        if rng.random() < 0.3:
            lines.append(f"%b{number} = add {last}, %bias")
            last = f"%b{number}"
    if rng.random() < 0.5:
        lines.append(f"%p = softmax {last} dims [2]")
    else:
        lines += [f"%top0 = max {last} dims [2] keepdims", "%top = stop_gradient %top0"]
        lines += [f"%e0 = sub {last}, %top", "%e = exp %e0", "%sum = sum %e dims [2] keepdims"]
        lines.append("%p = div %e, %sum")
    lines.append('%y = einsum "h q k, h k d -> h q d" %p, %v')
    body = "\n  ".join(lines)
    kinds = f"%q: f32[2, {queries}, 3], %k: f32[2, {keys}, 3], %v: f32[2, {keys}, 3]"
    kinds += f", %bias: f32[{shape}]"
    return (
        f"{MESH}func @attention({kinds}) -> f32[2, {queries}, 3] on @m {{\n  {body}\n"
        "  return %y\n}\n"
        f"func @loss({kinds}) -> f32[] on @m {{\n"
        "  %y = call @attention(%q, %k, %v, %bias) fused\n  %z = tanh %y\n"
        "  %l = sum %z dims [0, 1, 2]\n  return %l\n}\n"
        f"func @step({kinds}) -> (f32[], f32[2, {queries}, 3], f32[2, {keys}, 3]) on @m {{\n"
        "  %l, %dq, %dk = gradient @loss(%q, %k, %v, %bias) wrt %q, %k\n"
        "  return %l, %dq, %dk\n}\n"
    )


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=40)
def test_what_is_left_out_changes_nothing(rng: random.Random) -> None:
    module = collir.run_passes(collir.parse(random_attention(rng)), "differentiate")
    function = function_without_calls(functions_of(module)[-1])
    module = module_of(function)
    kernels = kernels_of(function.body.block)
    found = [known_in(kernel) for kernel in kernels.parts.values()]
    known = {value: x for each in found for value, x in each.items()}
    products = [
        op
        for op in function.body.ops
        if isinstance(op, DistOp) and op.mnemonic == "einsum" and len(op.operands) == 2
    ]
    assert len(products) == 6  # two forward, scores again, and three of the gradient
    assert all(op in kernels.masked for op in products)
    numbers = np.random.default_rng(rng.randrange(2**32))
    shapes = [tuple(map(int, dist_type(arg).shape)) for arg in function.args]
    arrays = [numbers.normal(size=shape).astype(np.float32) for shape in shapes]

    def change(op: DistOp, args: Args, result: Buffers) -> Buffers:
        if op.result not in known:
            return result
        (kind, band), values = known[op.result], [np.asarray(x) for x in result]
        outside = ~inside_of(band, values[0].shape)
        if kind is Outside.UNUSED:
            noise = numbers.normal(size=values[0].shape).astype(np.float32)
            return [np.where(outside, noise, x) for x in values]
        limit = -1e4 if kind is Outside.LOW else 0
        return [np.where(outside, limit, x).astype(x.dtype) for x in values]

    arguments: list[Buffers] = [[x] * 4 for x in arrays]
    plain = execute(module, function, arguments)
    changed = execute(module, function, arguments, change)
    for x, y in zip(plain, changed, strict=True):
        assert np.allclose(np.asarray(x[0]), np.asarray(y[0]), rtol=1e-4, atol=1e-5)


def inside_of(band: Band, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Return where an array is within a band."""
    places = np.indices(shape, sparse=True)
    first, second = (places[dim] for dim in band.dims)
    difference = np.broadcast_to(second - first, shape)
    return (difference >= band.low) & (difference <= band.high)


@given(rng=RANDOM)
@settings(max_examples=40)
def test_tiles_are_those_with_an_element_of_the_band(rng: random.Random) -> None:
    rows, columns = rng.randint(1, 4) * 100, rng.randint(1, 4) * 100
    low = rng.choice([-math.inf, rng.randint(-300, 100)])
    high = rng.choice([math.inf, 0, rng.randint(-100, 300)])
    cut = rng.choice(["{}, {}", "{}@a, {}", "{}, {}@b", "{}@(b, a), {}", "{}@a, {}@b"])
    module = collir.parse(
        f"{MESH}func @f(%x: f32[3, {cut.format(rows, columns)}]) "
        f"-> f32[3, {cut.format(rows, columns)}] on @m {{\n  %y = exp %x\n  return %y\n}}\n"
    )
    [function] = functions_of(module)
    (op,) = (op for op in function.body.ops if isinstance(op, DistOp))
    mesh, x = mesh_of(function), dist_type(op.result)
    band = Band((-2, -1), low, high)
    inside = inside_of(band, (rows, columns))
    parts: list[float] = []
    for rank in range(mesh.devices):
        block = inside[slices_of(mesh, rank, x.dims[1:])]
        tiles = [
            block[i : i + TILE, j : j + TILE].any()
            for i in range(0, block.shape[0], TILE)
            for j in range(0, block.shape[1], TILE)
        ]
        parts.append(sum(tiles) / len(tiles))
    assert part_of(op, Masked(-1, band), mesh).share == max(parts)


ATTENTION = """
machine @box {
  device { compute f32 = 10 TFLOP/s; memory = 40 GB @ 100 TB/s }
  level gpu[2] { port = 300 GB/s, latency = 3 us }
}
mesh @m on @box { data = gpu:2 }
func @seen_scores = @seen_scores on any
func @grouped_attention = @grouped_attention on any
func @f(%q: f32[2@data, 8192, 2, 2, 64], %k: f32[2@data, 8192, 2, 64], %v: f32[2@data, 8192, 2, 64])
    -> f32[2@data, 8192, 2, 2, 64] on @m {
  %y = call @grouped_attention(seq = 8192, size = 64, window = WINDOW)(%q, %k, %v) fused
  return %y
}
"""


def test_a_window_of_half_of_the_positions_costs_less_than_half() -> None:
    works: list[float] = []
    for window in (8192, 4096, 128):
        simulation = collir.simulate(collir.parse(ATTENTION.replace("WINDOW", str(window))))[-1]
        [step] = simulation.steps
        assert isinstance(step.does, LocalStep)
        works.append(sum(count for _, count in step.does.work))
    products = 2 * 2 * 4 * 8192 * 8192 * 64
    # 64 rows of tiles: all up to the diagonal, 33 at most, or 2; and some maps.
    for work, tiles in zip(works, (64 * 65 // 2, 33 * 34 // 2 + 31 * 33, 2 * 64 - 1), strict=True):
        assert 1 <= work / (products * tiles / 64**2) < 1.15


def test_products_of_a_kernel_reach_a_part_of_the_rate_of_others() -> None:
    text = ATTENTION.replace("WINDOW", "8192")
    slow = text.replace("memory = 40 GB", "efficiency fused = 0.5; memory = 40 GB")
    (fast, _), (slower, step) = (_time(text), _time(slow))
    products = sum(count for _, count, _ in step.inner)
    assert 0.9 < products / sum(count for _, count in step.work) < 1
    assert abs((slower - fast) - products / 10e12) < 1e-9


def test_heads_that_fill_a_part_of_a_tile_take_longer() -> None:
    text = ATTENTION.replace("WINDOW", "8192")
    whole = text.replace("memory = 40 GB", "tile = 64 x 64; units = 7; depth = 9; memory = 40 GB")
    wide = text.replace("memory = 40 GB", "tile = 128 x 256; units = 7; memory = 40 GB")
    (alone, step), (filled, _), (slower, _) = map(_time, (text, whole, wide))
    assert filled == alone  # of heads of 64; units and depth are of products of their own
    [scores, mixed] = [count / 10e12 for _, count, _ in step.inner]
    assert scores == mixed
    # Tiles of 256 rows and 64 columns are half as large, and read 320 of 384 elements.
    assert slower - alone == pytest.approx(mixed * (2 * 320 / 384 - 1))


def _time(text: str) -> tuple[float, LocalStep]:
    simulation = collir.simulate(collir.parse(text))[-1]
    [step] = simulation.steps
    assert isinstance(step.does, LocalStep)
    return simulation.time, step.does
