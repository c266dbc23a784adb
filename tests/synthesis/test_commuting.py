"""The steps that may change places, and the cheapest order of a row of steps."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from support.harness.seeds import fresh_numbers, some
from support.programs.collectives import (
    RANDOM,
    FunctionBuilder,
    axis_moves,
    integer,
    local_moves,
    mesh_of_sizes,
    module_of,
    random_layout,
    random_mesh,
)
from support.semantics.checks import functions_of
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

import collir
from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import NumberAttr
from collir.dialects.operation import DistOp
from collir.dialects.tensor import AxesAttr, SizesAttr, dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.layout import Dim, DistType, DType, LayoutError, Mesh, Reduction, check_type
from collir.machine import Device
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.executor import execute
from collir.synthesis.programs.search_options import SearchOptions
from collir.synthesis.reorder.interleave import Grid
from collir.synthesis.reorder.prices import NOTHING, Form, Price, StepPrices
from collir.synthesis.reorder.swap import exact

MESH = mesh_of_sizes([2])
AXES = AxesAttr(("a.l0",))
SIZE = 16


def prices_on(mesh: Mesh) -> StepPrices:
    return StepPrices(mesh, SearchOptions(CostModel("alpha-beta", order="written")))


PRICES = prices_on(MESH)
REDUCERS = [
    PRICES.form(OPERATIONS["all_reduce"], {"axes": AXES}),
    PRICES.form(OPERATIONS["reduce_scatter"], {"axes": AXES, "dim": integer(1)}),
]


def scale(factor: float) -> Form:
    return PRICES.form(OPERATIONS["scale"], {"factor": NumberAttr(factor)})


def cast(dtype: DType) -> Form:
    return PRICES.form(OPERATIONS["cast"], {"dtype": StringAttr(dtype)})


def pad(low: int, high: int, value: float) -> Form:
    numbers = {"low": integer(low), "high": integer(high), "value": NumberAttr(value)}
    return PRICES.form(OPERATIONS["pad"], {"dim": integer(0), **numbers})


LOCALS = [
    *map(scale, (2.0, -1.0, 0.5, 3.0, 0.125)),
    *map(cast, DType),
    *(pad(*numbers) for numbers in ((0, 2, 0.0), (1, 0, 1.0), (-1, 0, 0.0), (0, 2, 7.0))),
    PRICES.form(OPERATIONS["transpose"], {"order": SizesAttr((1, 0))}),
    PRICES.form(OPERATIONS["merge"], {"dim": integer(0)}),
    PRICES.form(OPERATIONS["split"], {"dim": integer(1), "sizes": SizesAttr((4, SIZE // 4))}),
]


@dataclass(frozen=True)
class Pair:
    """A reduction and a local step that both orders are typed of; ``moved`` is the reduction behind
    the local step."""

    x: DistType
    step: Form
    local: Form
    moved: Form

    def exact(self, ahead: bool) -> bool:
        return exact(self.step, self.local, self.x, ahead)

    def differs(self, ahead: bool, seed: int = 0) -> bool:
        """Return whether the result changes if the local step moves to or from the front."""
        rng = fresh_numbers(seed)
        reduced_first, local_first = [self.step, self.local], [self.local, self.moved]
        new, old = (local_first, reduced_first) if ahead else (reduced_first, local_first)
        rounds = self.x.dtype.is_float and self.x.reduction not in (Reduction.MAX, Reduction.MIN)
        for most in (1.0, 20000.0):
            parts = [values(self.x.dtype, rng, most) for _ in range(MESH.devices)]
            if not same(run(new, self.x, parts), run(old, self.x, parts), rounds):
                return True
        return False


def pairs(x: DistType) -> Iterator[Pair]:
    for step, local in product(REDUCERS, LOCALS):
        between, first = PRICES.type(step, x), PRICES.type(local, x)
        end = None if between is None else PRICES.type(local, between)
        if end is None or first is None:
            continue
        for dim in range(len(first.dims)) if "dim" in step.properties else [None]:
            properties: dict[str, Attribute] = {} if dim is None else {"dim": integer(dim)}
            moved = PRICES.form(step.op, {**step.properties, **properties})
            if PRICES.type(moved, first) == end:
                yield Pair(x, step, local, moved)
                break


def partial(dtype: DType, reduction: Reduction) -> DistType:
    return DistType(dtype, (Dim(3), Dim(SIZE)), frozenset(AXES.data), reduction)


def values(dtype: DType, rng: np.random.Generator, most: float) -> Array:
    """Return random values of a dtype: any integers, or floats of about a size."""
    to = NUMPY[dtype]
    if dtype is DType.BOOL:
        return rng.integers(0, 2, size=(3, SIZE)).astype(to)
    if not dtype.is_float:
        info = np.iinfo(to)
        return rng.integers(info.min, info.max, size=(3, SIZE), dtype=to, endpoint=True)
    return (rng.standard_normal((3, SIZE)) * most).clip(-60000, 60000).astype(to)


def run(forms: Sequence[Form], x: DistType, parts: Sequence[Array]) -> list[Array | None]:
    """Run steps in a row on the values of the devices; return the results."""
    builder = FunctionBuilder(MESH, [x])
    for form in forms:
        assert builder.try_op(form.op, [builder.values[-1]], dict(form.properties)) is not None
    function = builder.function(builder.values[-1:])
    with np.errstate(all="ignore"):
        [results] = execute(
            module_of([MESH], [function]), function, [[part.copy() for part in parts]]
        )
    return results


def same(results: Sequence[Array | None], expected: Sequence[Array | None], rounds: bool) -> bool:
    """Return whether values are equal.

    Where steps round, values are compared within a tolerance, wherever a finite one is expected.
    """
    for result, right in zip(results, expected, strict=True):
        assert result is not None and right is not None
        if not rounds:
            if not np.array_equal(result, right):
                return False
            continue
        exact_values = right.astype(np.float64)
        finite = np.isfinite(exact_values)
        most = max(1.0, float(np.abs(exact_values[finite]).max(initial=0.0)))
        eps = {2: 2.0**-5, 4: 2.0**-18, 8: 2.0**-45}[right.dtype.itemsize]
        near = np.isclose(result.astype(np.float64), exact_values, rtol=0, atol=eps * most)
        if not np.all(near | ~finite):
            return False
    return True


@pytest.mark.turns
@pytest.mark.parametrize("dtype", some(list(DType), 3))
def test_what_may_change_places_computes_the_same(dtype: DType) -> None:
    tried = 0
    for reduction in Reduction:
        x = partial(dtype, reduction)
        try:
            check_type(MESH, x)
        except LayoutError:
            continue
        for pair in pairs(x):
            for ahead in (False, True):
                if pair.exact(ahead):
                    tried += 1
                    assert not pair.differs(ahead), f"{pair}, {ahead}"
    assert tried > 40


REFUSED = {
    "an i8 sum is wrapped before it is widened": (DType.I8, Reduction.SUM, cast(DType.I32), True),
    "or is not": (DType.I8, Reduction.SUM, cast(DType.I32), False),
    "a sum of bf16 rounds before it is widened": (DType.BF16, Reduction.SUM, cast(DType.F32), True),
    "or not": (DType.BF16, Reduction.SUM, cast(DType.F32), False),
    "products wrap around too": (DType.I32, Reduction.PROD, cast(DType.I64), True),
    "the largest i8 is not so when scaled": (DType.I8, Reduction.MAX, scale(2.0), True),
    "nor the smallest, negated": (DType.I8, Reduction.MIN, scale(-1.0), False),
    "what fits no integer is any": (DType.F32, Reduction.MAX, cast(DType.I8), True),
    "f16 overflows where it is not made small": (DType.F16, Reduction.SUM, scale(0.125), False),
    "f16 overflows where it is made large": (DType.F16, Reduction.SUM, scale(3.0), True),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_may_not_would_compute_something_else(
    case: tuple[DType, Reduction, Form, bool],
) -> None:
    dtype, reduction, local, ahead = case
    refused = [pair for pair in pairs(partial(dtype, reduction)) if pair.local is local]
    assert refused
    for pair in refused:
        assert not pair.exact(ahead)
        assert any(pair.differs(ahead, seed) for seed in range(20))


PADDED = """\
machine @c {{ level l0[5] {{ port = 1 GB/s, latency = 1 us }} }}
mesh @m on @c {{ a = l0:5 }}
func @ahead(%x: bf16[3, 16] partial(avg: a)) -> bf16[5, 16] on @m {{
  %0 = pad %x dim 0 high 2 value {value}
  %1 = all_reduce %0 over a
  return %1
}}
func @behind(%x: bf16[3, 16] partial(avg: a)) -> bf16[5, 16] on @m {{
  %0 = all_reduce %x over a
  %1 = pad %0 dim 0 high 2 value {value}
  return %1
}}
"""


def test_an_average_of_equal_values_may_round() -> None:
    """A pad with 0 may change places with an average; a pad with other values may not."""
    mesh = mesh_of_sizes([5])
    prices = prices_on(mesh)
    reduction = prices.form(OPERATIONS["all_reduce"], {"axes": AXES})
    x = partial(DType.BF16, Reduction.AVG)
    changed: list[float] = []
    for value in (0.0, 1.0, 7.0, 1.6171875, 1.71875):
        module = collir.parse(PADDED.format(value=value))
        zeros: list[Array | None] = [np.zeros((3, SIZE), NUMPY[DType.BF16])] * 5
        ahead, behind = (execute(module, f, [zeros])[0] for f in functions_of(module))
        changed += [] if same(ahead, behind, rounds=False) else [value]
        for is_ahead in (False, True):
            assert exact(reduction, pad(0, 2, value), x, is_ahead) == (value == 0)
    assert changed == [1.6171875, 1.71875]


# --- the cheapest order ---------------------------------------------------------------------------


def random_placed(rng: random.Random) -> Mesh:
    """Return a mesh on levels, of devices whose memory may have a speed."""
    while not (mesh := random_mesh(rng)).placed:
        pass
    speed = rng.choice([None, 1e9, 1e11])
    device = Device((("f32", 1e12),), memory=None, memory_bandwidth=speed)
    return replace(mesh, machine=replace(mesh.machine, device=device))


def random_row(rng: random.Random, mesh: Mesh, prices: StepPrices) -> tuple[DistType, list[Form]]:
    """Return a layout, and steps in a row on it."""
    builder = FunctionBuilder(mesh, [random_layout(rng, mesh, rng.choice([DType.F32, DType.BF16]))])
    for _ in range(rng.randint(2, 6)):
        x = dist_type(builder.values[-1])
        moves = list(axis_moves(mesh, len(x.dims)))
        if rng.random() < 0.5:
            moves = [move for move in local_moves(x, rng) if x.elements <= 4096]
        rng.shuffle(moves)
        any(builder.try_move(builder.values[-1], move) is not None for move in moves)
    ops = [op for op in builder.block.ops if isinstance(op, DistOp)]
    return dist_type(builder.values[0]), [prices.of(op) for op in ops]


@given(rng=RANDOM)
@settings(max_examples=18)
def test_steps_cost_what_they_do_in_a_simulation(rng: random.Random) -> None:
    mesh = random_placed(rng)
    prices = prices_on(mesh)
    source, forms = random_row(rng, mesh, prices)
    grid = Grid(prices, source, forms)
    builder = FunctionBuilder(mesh, [source])
    for form in forms:
        assert builder.try_op(form.op, [builder.values[-1]], dict(form.properties)) is not None
    module = module_of([mesh], [builder.function(builder.values[-1:])])
    try:
        [simulated] = simulate(module, CostModel("alpha-beta", order="written"))
    except DiagnosticError:
        assert grid.price is None
        return
    assert grid.price is not None
    assert grid.price.time == pytest.approx(simulated.time_before_copies, rel=1e-6)


def swaps(
    prices: StepPrices, source: DistType, forms: tuple[Form, ...]
) -> Iterator[tuple[Form, ...]]:
    """Yield the rows in which two neighbours have changed places.

    The neighbours are a step that changes the layout, over any dimensions, and a local step; the
    pair leads to the same type.
    """
    x = source
    for n, (left, right) in enumerate(pairwise(forms)):
        between = prices.type(left, x)
        assert between is not None
        end = prices.type(right, between)
        if left.kind.maps != right.kind.maps:
            mover, local = (right, left) if left.kind.maps else (left, right)
            for form in on_any_dims(prices, mover, max(len(x.dims), len(between.dims)) + 1):
                pair = (form, local) if mover is right else (local, form)
                start = prices.type(pair[0], x)
                if start is None or prices.type(pair[1], start) != end:
                    continue
                if exact(form, local, x, ahead=mover is left):
                    yield (*forms[:n], *pair, *forms[n + 2 :])
                    break
        x = between


def on_any_dims(prices: StepPrices, form: Form, rank: int) -> Iterator[Form]:
    names = [name for name in ("dim", "source", "target") if name in form.properties]
    for dims in product(range(rank), repeat=len(names)):
        changed = {name: integer(dim) for name, dim in zip(names, dims, strict=True)}
        yield prices.form(form.op, {**form.properties, **changed})


def cheapest(prices: StepPrices, source: DistType, forms: Sequence[Form]) -> Price | None:
    """Return the least price of a row.

    Steps that change the layout and meet stay as they are, or become programs that are searched, in
    any combination.
    """
    types = [source]
    for form in forms:
        result = prices.type(form, types[-1])
        assert result is not None
        types.append(result)
    best: list[Price | None] = [NOTHING, *[None] * len(forms)]
    for end in range(1, len(forms) + 1):
        for start in range(end):
            part, price_before = forms[start:end], best[start]
            if len(part) == 1:
                price = prices.price(part[0], types[start])
            else:
                if any(form.kind.maps for form in part):
                    continue
                if not any(form.kind.sends for form in part):
                    continue
                run = prices.run(types[start], types[end])
                price = None if run is None else run.price
            if price is not None and price_before is not None:
                sum_, least = price_before.plus(price), best[end]
                if least is None or sum_.before(least, sending_first=False):
                    best[end] = sum_
    return best[-1]


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=14)
def test_no_order_that_neighbours_lead_to_is_cheaper(rng: random.Random) -> None:
    """The grid is compared with all rows that exchanges of neighbours lead to."""
    mesh = random_placed(rng)
    prices = prices_on(mesh)
    source, forms = random_row(rng, mesh, prices)
    grid = Grid(prices, source, forms)
    if grid.price is None or any(form.op is OPERATIONS["permute"] for form in forms):
        return
    known = {tuple(forms)}
    left = [tuple(forms)]
    while left:
        for row in swaps(prices, source, left.pop()):
            if row not in known:
                known.add(row)
                left.append(row)
    prices_of_rows = [price for row in known if (price := cheapest(prices, source, row))]
    least = min(price.time for price in prices_of_rows)
    assert grid.cheapest.time == pytest.approx(least, rel=1e-6)


@given(rng=RANDOM)
@settings(max_examples=14)
def test_what_is_found_leads_to_the_same_type(rng: random.Random) -> None:
    mesh = random_placed(rng)
    prices = prices_on(mesh)
    source, forms = random_row(rng, mesh, prices)
    best = Grid(prices, source, forms).best()
    if best is None:
        return
    x = end = source
    for form in forms:
        result = prices.type(form, end)
        assert result is not None
        end = result
    for step in best:
        if isinstance(step.does, Form):
            assert prices.type(step.does, x) == step.result
        x = step.result
    assert x == end
