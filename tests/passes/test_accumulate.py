"""``accumulate``: what it makes of reductions is proven, and as exact as sums in f32 are."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray
from support.programs.collectives import RANDOM, FunctionBuilder, integer, module_of, random_mesh
from support.semantics.checks import assembled_results, functions_of
from xdsl.dialects.builtin import ModuleOp, StringAttr

import collir
from collir.dialects.coll import OPERATIONS
from collir.dialects.tensor import AxesAttr
from collir.layout import Dim, DistType, DType, Reduction
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.validation.validate import Outcome, compare_modules


def random_reduction(rng: random.Random) -> ModuleOp:
    """Return a function that reduces a narrow value over some sub-axes, and casts the result."""
    mesh = random_mesh(rng, devices=rng.choice([2, 4, 8]))
    names = list(mesh.by_name)
    partial = rng.sample(names, rng.randint(1, len(names)))
    sizes = [mesh.devices * rng.choice([1, 2]) for _ in range(rng.randint(1, 2))]
    x = DistType(
        rng.choice([DType.BF16, DType.F16]),
        tuple(map(Dim, sizes)),
        partial=frozenset(partial),
        reduction=rng.choice([Reduction.SUM, Reduction.AVG]),
    )
    builder = FunctionBuilder(mesh, [x])
    cut = rng.randint(1, len(partial))
    first, rest = AxesAttr(tuple(partial[:cut])), AxesAttr(tuple(partial[cut:]))
    if rng.random() < 0.5:
        made = builder.try_op(OPERATIONS["all_reduce"], [builder.values[0]], {"axes": first})
    else:
        where = {"axes": first, "dim": integer(rng.randrange(len(sizes)))}
        made = builder.try_op(OPERATIONS["reduce_scatter"], [builder.values[0]], where)
    assert made is not None
    if rest.data:  # a part of the sub-axes may be reduced later
        made = builder.try_op(OPERATIONS["all_reduce"], [made], {"axes": rest})
    assert made is not None
    wide = builder.try_op(OPERATIONS["cast"], [made], {"dtype": StringAttr("f32")})
    assert wide is not None
    return module_of([mesh], [builder.function([made, wide])])


@settings(max_examples=15)
@given(RANDOM)
def test_sums_in_f32_are_proven_to_be_the_sums(rng: random.Random) -> None:
    before = random_reduction(rng)
    after = collir.run_passes(before.clone(), "accumulate")
    assert "terms" in str(after)
    [comparison] = compare_modules(before, after)
    assert (comparison.verdict.outcome, comparison.verdict.how) == (Outcome.SAME, "proof")


SUMS = """
machine @box {{ level gpu[{devices}] {{ port = 100 GB/s, latency = 3 us }} }}
mesh @m on @box {{ data = gpu:{devices} }}
func @sum(%g: bf16[1024] partial(sum: data)) -> (bf16[1024], f32[1024@data]) on @m {{
  %r = all_reduce %g over data
  %s = reduce_scatter %g over data dim 0
  %w = cast %s to f32
  return %r, %w
}}
"""


def errors(devices: int, passes: str) -> tuple[float, float]:
    """Return the mean error of both sums of normally distributed terms, relative to the sum of
    their magnitudes divided by the root of their number."""
    module = collir.run_passes(collir.parse(SUMS.format(devices=devices)), passes)
    [function] = functions_of(module)
    rng = np.random.default_rng(0)
    terms = [rng.normal(0, 1, 1024).astype(NUMPY[DType.BF16]) for _ in range(devices)]
    exact: NDArray[np.float64] = sum(term.astype(np.float64) for term in terms)  # pyright: ignore[reportAssignmentType]
    results = assembled_results(module, function, [list(terms)])
    narrow, wide = (np.abs(x.astype(np.float64) - exact).mean() for x in results)
    return float(narrow / devices**0.5), float(wide / devices**0.5)


@pytest.mark.parametrize("devices", [8, 64])
def test_a_sum_in_f32_is_rounded_once(devices: int) -> None:
    """Half of the last of 8 bits is 2^-9 of a number. Scattered, it is rounded to f32 alone."""
    rounded, scattered = errors(devices, "canonicalize")
    once, exact = errors(devices, "accumulate")
    assert once < 2**-9 and exact < devices * 2**-24
    assert rounded > 1.5 * once and scattered > 1000 * exact


MIXED = """
machine @box {
  level node[2] { port =  1 GB/s, latency = 5 us }
  level gpu[2]  { port = 100 GB/s, latency = 3 us }
}
mesh @m on @box { data = node:2, model = gpu:2 }
func @both(%g: bf16[64, 64] partial(sum: data), %a: bf16[64, 64] partial(sum: model),
           %n: bf16[3] partial(sum: data), %m: bf16[64] partial(max: data))
    -> (bf16[64, 64], bf16[64, 64], bf16[3], bf16[64]) on @m {
  %r = all_reduce %g over data
  %s = all_reduce %a over model
  %t = all_reduce %n over data
  %u = all_reduce %m over data
  return %r, %s, %t, %u
}
"""


def test_only_the_axes_that_are_named(caplog: pytest.LogCaptureFixture) -> None:
    module = collir.run_passes(collir.parse(MIXED), "accumulate{over=data}")
    text = collir.emit(module)
    assert text.count("terms") == text.count("terms %g over data") == 1
    assert "all_reduce %a over model" in text and "all_reduce %m over data" in text
    assert "this all_reduce over data: no dimension of it divides" in caplog.text
