"""Operations of models: what is well typed computes on all devices what it does on one.

The types are random: a sub-axis shards an index, makes an operand partial, places all operands, or
is left out, and some operands disagree. What rules accept is run.
"""

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from support.harness.seeds import fresh
from support.programs.arguments import INTEGERS
from support.programs.collectives import RANDOM, FunctionBuilder, module_of, random_mesh
from support.programs.model_operations import random_step, random_types, with_type
from support.semantics.checks import (
    agree,
    functions_of,
    results_on_all_devices,
    results_on_one_device,
)
from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute

import collir
from collir.dialects.machine import NumberAttr
from collir.dialects.operation import DistOp
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, SizesAttr, dist_type
from collir.ir.verification import verify
from collir.layout import DistType, DType, LayoutError, check_type
from collir.layout.nn_rows import NN
from collir.semantics.reference.nn import FUNCTIONS
from collir.semantics.validation.proof import proven
from collir.semantics.validation.verdict import Outcome
from collir.syntax.reader import read
from collir.syntax.writer import write


def check(rng: random.Random, counts: Counter[str]) -> None:
    """Run a random operation that is well typed, and compare."""
    mesh = random_mesh(rng, devices=rng.choice([1, 2, 4, 6, 8]), weights=0.2)
    name, operands, properties = random_step(rng)
    dtype = rng.choice([DType.F32, DType.F64, DType.I32])
    types = random_types(rng, mesh, operands, dtype)
    if name == "where" and rng.random() < 0.9:
        no = frozenset[str]()
        types[0] = replace(types[0], dtype=DType.BOOL, partial=no, reduction=None)
    if name in INTEGERS and rng.random() < 0.95:
        number, no = INTEGERS[name], frozenset[str]()
        types[number] = replace(types[number], dtype=DType.I32, partial=no, reduction=None)
    if max((x.elements for x in types), default=0) > 4000:
        return
    try:
        properties |= with_type(rng, mesh, name, types, dtype, properties)
    except LayoutError:
        counts["refused"] += 1
        return
    named = [value.data for value in properties.values() if isinstance(value, DistTensorType)]
    if max((x.elements for x in (*types, *named)), default=0) > 4000:
        return
    try:
        for x in (*types, *named):
            check_type(mesh, x)
    except LayoutError:  # weights that do not say how to cut a dimension
        return
    builder = FunctionBuilder(mesh, types)
    result = builder.try_op(OPERATIONS[name], list(builder.values), properties)
    counts["refused" if result is None else "typed"] += 1
    if result is None:
        return
    function = builder.function([result])
    module = module_of([mesh], [function])
    verify(module)
    text = write(module)
    assert write(read(text)) == text
    with np.errstate(all="ignore"):
        results = results_on_all_devices(module, function, 3)
        expected = results_on_one_device(function, 3)
    for actual, right in zip(results, expected, strict=True):
        # What is infinite on one device may be the sum of infinities of both signs on others.
        finite = np.isfinite(np.asarray(right, dtype=float))
        assert np.array_equal(np.isfinite(np.asarray(actual, dtype=float)), finite), text
        assert agree([np.where(finite, actual, 0)], [np.where(finite, right, 0)], 64), text
    counts[name] += 1
    if rng.random() < 0.2:
        [again] = functions_of(read(text))
        assert proven(function, again).outcome is Outcome.SAME, text
    (op,) = [op for op in function.body.ops if isinstance(op, DistOp)]
    if not mesh.uneven and op.structure is not None:
        indices = [*op.structure.operands, op.structure.result]
        known = zip(indices, [*types, dist_type(result)], strict=True)
        dims = (pair for own, x in known for pair in zip(own, x.dims, strict=True))
        alone = op.structure.selected - op.structure.grouped
        worked = {i: dim.axes for i, dim in dims if i not in alone}
        cut = {axis for axes in worked.values() for axis in axes}
        sizes = op.structure.sizes
        points = math.prod(n for i, n in sizes.items() if i not in op.structure.selected)
        assert op.flops * mesh.group_size(cut) == op.structure.flops * points


@given(rng=RANDOM)
@settings(max_examples=60)
def test_all_devices_compute_what_one_does(rng: random.Random) -> None:
    check(rng, Counter())


@pytest.mark.slow
def test_ten_thousand_operations() -> None:
    rng, counts = fresh(53), Counter[str]()
    for _ in range(10_000):
        check(rng, counts)
    assert counts["typed"] > 3000 and min(counts[name] for name in [*NN, "add"]) > 20


MLP = """
machine @box { level gpu[8] { port = 300 GB/s, latency = 3 us } }
mesh @m on @box { data = gpu:2, model = gpu:4 }
func @mlp(%x: f32[8@data, 16], %v: f32[16, 32@model], %w: f32[32@model, 16])
    -> f32[8@data, 16] on @m {
  BODY
  return %z
}
"""
SHARDED = """
  %h = einsum "b h, h f -> b f" %x, %v
  %a = tanh %h
  %y = einsum "b f, f h -> b h" %a, %w
  %z = all_reduce %y over model
"""
WHOLE = """
  %xs = all_gather %x over data dim 0
  %vs = all_gather %v over model dim 1
  %ws = all_gather %w over model dim 0
  %h = einsum "b h, h f -> b f" %xs, %vs
  %a = tanh %h
  %y = einsum "b f, f h -> b h" %a, %ws
  %z = slice %y over data dim 0
"""


@pytest.mark.parametrize(
    ("other", "outcome"),
    [
        (WHOLE, Outcome.SAME),
        (WHOLE.replace("tanh", "sigmoid"), Outcome.UNKNOWN),
        (WHOLE.replace("%a, %ws", "%h, %ws"), Outcome.UNKNOWN),
        (
            WHOLE.replace("%xs, %vs", "%vs, %xs").replace("b h, h f ->", "h f, b h ->"),
            Outcome.SAME,
        ),
    ],
    ids=["same", "another map", "no map", "factors in another order"],
)
def test_a_sharded_program_is_proven_and_never_falsely(other: str, outcome: Outcome) -> None:
    modules = [collir.parse(MLP.replace("BODY", body)) for body in (SHARDED, other)]
    [one], [two] = map(functions_of, modules)
    assert proven(one, two).outcome is outcome


def test_einsum_is_the_sum_of_products() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.integers(-9, 9, (3, 4, 5)), rng.integers(-9, 9, (5, 4, 2))
    op = OPERATIONS["einsum"].create(properties={"equation": StringAttr("a b c, c b d -> d a")})
    expected = [
        [sum(x[a, b, c] * w[c, b, d] for b in range(4) for c in range(5)) for a in range(3)]
        for d in range(2)
    ]
    assert isinstance(op, DistOp)
    assert FUNCTIONS["einsum"](op, [x, w]).tolist() == expected


ONE: dict[str, Callable[[float], float]] = {
    "neg": lambda x: -x,
    "stop_gradient": lambda x: x,
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: x**-0.5,
    "tanh": math.tanh,
    "erf": math.erf,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "sin": math.sin,
    "cos": math.cos,
    "relu": lambda x: max(x, 0.0),
    "silu": lambda x: x / (1 + math.exp(-x)),
    # What the tanh approximates within 5e-4: x times the normal distribution function.
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
}
"""The definitions of functions of one number."""

TWO: dict[str, Callable[[float, float], float]] = {
    "mul": lambda x, y: x * y,
    "sub": lambda x, y: x - y,
    "div": lambda x, y: x / y,
    "maximum": max,
    "minimum": min,
    "greater": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "equal": lambda x, y: x == y,
    "not_equal": lambda x, y: x != y,
}
"""The definitions of functions of two numbers."""


@pytest.mark.parametrize("name", [*ONE, *TWO])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, ml_dtypes.bfloat16])
def test_maps_are_those_of_plain_numbers(name: str, dtype: type) -> None:
    rng = np.random.default_rng(1)
    count = NN[name].operands or 0
    arrays: list[Any] = [rng.uniform(0.1, 4, 50).astype(dtype) for _ in range(count)]
    arrays[0][:25] = arrays[-1][:25]
    op = OPERATIONS[name].create()
    got = np.asarray(FUNCTIONS[name](op, arrays), dtype=np.float64)
    x, y = (array.astype(np.float64).tolist() for array in (arrays[0], arrays[-1]))
    if name in ONE:
        expected = [ONE[name](a) for a in x]
    else:
        expected = [float(TWO[name](a, b)) for a, b in zip(x, y, strict=True)]
    rough = {2: 1e-2, 4: 1e-6, 8: 1e-14}[np.dtype(dtype).itemsize]
    assert got == pytest.approx(expected, rel=rough, abs=1e-3 if name == "gelu" else rough)


def test_a_softmax_adds_up_to_one_and_stays_finite() -> None:
    x = np.array([[1000.0, 1000.0, -1000.0], [0.0, math.log(2), math.log(5)]])
    op = OPERATIONS["softmax"].create(properties={"dims": SizesAttr((1,))})
    got = FUNCTIONS["softmax"](op, [x])
    assert got == pytest.approx(np.array([[0.5, 0.5, 0], [0.125, 0.25, 0.625]]))
    logarithm = FUNCTIONS["log_softmax"](op, [x])
    assert np.exp(logarithm) == pytest.approx(got)


def made(name: str, arrays: list[Any], **properties: Attribute) -> Any:
    """Return the result of an operation of the reference on whole arrays."""
    op = OPERATIONS[name].create(properties=properties)
    assert isinstance(op, DistOp)
    return FUNCTIONS[name](op, arrays)


def to(dtype: DType, *shape: int) -> DistTensorType:
    return DistTensorType(DistType.make(dtype, shape))


def test_tensors_of_a_given_type() -> None:
    got = made("constant", [], value=NumberAttr(-0.1), to=to(DType.BF16, 2, 3))
    assert got.dtype == ml_dtypes.bfloat16
    assert (got == np.full((2, 3), -0.1, ml_dtypes.bfloat16)).all()
    for dim, row in enumerate([np.arange(2)[:, None], np.arange(3)]):
        got = made("iota", [], dim=IntegerAttr(dim, i64), to=to(DType.I32, 2, 3))
        assert got.dtype == np.int32 and (got == np.broadcast_to(row, (2, 3))).all()
    x = np.arange(6.0).reshape(2, 1, 3)
    got = made("broadcast_to", [x], to=to(DType.F64, 4, 2, 5, 3))
    assert (got == np.broadcast_to(x, (4, 2, 5, 3))).all()


MADE = """
machine @box {{ level gpu[8] {{ port = 300 GB/s, latency = 3 us }} }}
mesh @m on @box {{ data = gpu:2{weights}, model = gpu:4 }}
func @f(%x: f32[12@model]) -> f32[8@data, 12@model] on @m {{
  {body}
  return %z
}}
"""
CUT = """
  %c = constant value 0.1 to f32[8@data, 12@model]
  %i = iota dim 0 to f32[8@data, 12@model]
  %b = broadcast_to %x to f32[8@data, 12@model]
  %y = add %c, %i
  %z = add %y, %b
"""
WHOLE_FIRST = """
  %c = constant value 0.1 to f32[1]
  %i = iota dim 0 to f32[8, 12]
  %r = slice %i over data dim 0
  %s = slice %r over model dim 1
  %v = broadcast_to %x to f32[2, 4, 12@model]
  %w = merge %v dim 0
  %b = slice %w over data dim 0
  %y = add %b, %s
  %z = add %c, %y
"""


@pytest.mark.parametrize("weights", ["", " weights [1, 3]"])
@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        ("", "", Outcome.SAME),
        ("0.1", "0.2", Outcome.UNKNOWN),
        ("iota dim 0", "iota dim 1", Outcome.UNKNOWN),
        ("to f32[1]", "to f32[12@model]", Outcome.SAME),
    ],
)
def test_blocks_of_what_devices_make_are_proven(
    old: str, new: str, outcome: Outcome, weights: str
) -> None:
    bodies = (CUT, WHOLE_FIRST.replace(old, new) if old else WHOLE_FIRST)
    modules = [collir.parse(MADE.format(weights=weights, body=body)) for body in bodies]
    [one], [two] = map(functions_of, modules)
    assert proven(one, two).outcome is outcome


def test_constants_alone_are_proven_to_differ() -> None:
    bodies = (f"%c = constant value {n} to f32[12@model]\n %y = add %x, %c" for n in (1, 2))
    more = "\n %z = broadcast_to %y to f32[8@data, 12@model]"
    modules = [collir.parse(MADE.format(weights="", body=body + more)) for body in bodies]
    [one], [two] = map(functions_of, modules)
    assert proven(one, two).outcome is Outcome.DIFFERENT


@pytest.mark.parametrize(("value", "outcome"), [(6, Outcome.SAME), (2, Outcome.DIFFERENT)])
def test_products_of_constants_are_summed(value: int, outcome: Outcome) -> None:
    """Check 2 * 1 summed over 3 positions: as often as the index that the result lacks has them."""
    text = (
        "machine @k { level a[1] { port = 1 GB/s, latency = 1 us } }\nmesh @m on @k { x = a:1 }\n"
    )
    product = """
      %x = constant value 2 to f32[2, 3]
      %w = constant value 1 to f32[3, 4]
      %y = einsum "a b, b c -> a c" %x, %w"""
    bodies = (product, f"%y = constant value {value} to f32[2, 4]")
    modules = [
        collir.parse(f"{text}func @f() -> f32[2, 4] on @m {{ {body}\n return %y }}")
        for body in bodies
    ]
    [one], [two] = map(functions_of, modules)
    assert (proven(one, two).outcome is Outcome.SAME) == (value == 6)


@pytest.mark.parametrize(("dtype", "most"), [("f16", 2049), ("bf16", 257), ("i8", 128)])
def test_positions_are_counted_as_far_as_a_type_holds_all_numbers(dtype: str, most: int) -> None:
    text = "machine @k { level a[1] { port = 1 GB/s, latency = 1 us } } mesh @m on @k { x = a:1 } "
    for size in (most, most + 1):
        x = f"{dtype}[{size}]"
        function = f"{text}func @f() -> {x} on @m {{ %y = iota dim 0 to {x}\n return %y }}"
        if size == most:
            collir.parse(function)
        else:
            with pytest.raises(collir.DiagnosticError, match="does not hold all numbers"):
                collir.parse(function)


@pytest.mark.parametrize(
    ("step", "result"),
    [
        ("top_k %x k 4 dim 1", "f32[3, 4]"),
        ("top_k %x k 5 dim 1", "takes 1 to 4 elements"),
        ("take %x, %i dim 1", "f32[3, 2]"),
        ("max_pool %p window [2] stride [1] padding [1]", "f32[1, 5, 2]"),
        ("max_pool %p window [2] stride [1] padding [2]", "is all padding somewhere"),
    ],
)
def test_types_of_selections_and_their_limits(step: str, result: str) -> None:
    text = "machine @k { level a[1] { port = 1 GB/s, latency = 1 us } } mesh @m on @k { x = a:1 } "
    kind = result if result.startswith("f32") else "f32[]"
    text += f"func @f(%x: f32[3, 4], %i: i32[2], %p: f32[1, 4, 2]) -> {kind} on @m "
    text += f"{{ %y = {step}\n return %y }}"
    if kind == result:
        collir.parse(text)
    else:
        with pytest.raises(collir.DiagnosticError, match=result):
            collir.parse(text)
