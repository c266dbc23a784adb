"""Numbers in the emitted C: rounding to f16 and bf16, and integers that wrap around."""

from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from support.harness.hanging import HANG
from support.harness.seeds import fresh_numbers
from support.semantics.checks import functions_of
from support.targets.on_ranks import FLAGS
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.layout import DType
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.collectives import Array, Buffers
from collir.tools.mpi_run import run

HALVES = [DType.F16, DType.BF16]

PROGRAM = """
machine @one {{ level l[1] {{ port = 1 GB/s, latency = 1 us }} }}
mesh @m on @one {{ x = 1 }}
{functions}
"""


def patterns(dtype: DType) -> Array:
    """Return every value of a type of 16 bits."""
    return np.arange(2**16, dtype=np.uint16).view(NUMPY[dtype])


def around(dtype: DType, wide: DType) -> Array:
    """Return numbers of a wider type at, between, and close to the numbers of a type of 16 bits."""
    with np.errstate(all="ignore"):
        exact = np.unique(patterns(dtype).astype(np.float64))
        exact = exact[np.isfinite(exact)]
        beyond = np.array([65519.999, 65520, 65535, 65536, 3.39e38, 3.4e38, 1e300, 1e-30, 1e-310])
        points = np.concatenate([exact, (exact[1:] + exact[:-1]) / 2, beyond, -beyond])
        points = points.astype(NUMPY[wide])
        infinite = NUMPY[wide].type(np.inf)
        near = [points, np.nextafter(points, infinite), np.nextafter(points, -infinite)]
    return np.concatenate([*near, np.array([np.nan, np.inf, -np.inf], NUMPY[wide])])


def integers(dtype: DType) -> Array:
    """Return integers of both signs and all magnitudes, with ones and zeros below the top bits."""
    if dtype is DType.BOOL:
        return np.array([False, True])
    bits = NUMPY[dtype].itemsize * 8 - 1
    low = np.arange(-70000, 70000) if bits > 8 else np.arange(-128, 128)
    high = [s * (2**p + d) for p in range(bits) for d in (-1, 0, 1, 2**p // 2 + 1) for s in (1, -1)]
    kept = [n for n in high if -(2**bits) <= n < 2**bits]
    return np.concatenate([low, np.array(kept, np.int64)]).astype(NUMPY[dtype])


def test_casts_round_as_numpy_does(tmp_path: Path) -> None:
    cases: list[tuple[Array, DType, DType]] = []
    for half in HALVES:
        cases += [(patterns(half), half, target) for target in DType if target.is_float]
        cases += [(around(half, wide), wide, half) for wide in (DType.F32, DType.F64)]
        cases += [(integers(d), d, half) for d in DType if not d.is_float]
    functions = [
        f"func @cast_{i}(%x: {source}[{operand.size}]) -> {target}[{operand.size}] on @m {{\n"
        f"  %r = cast %x to {target}\n  return %r\n}}"
        for i, (operand, source, target) in enumerate(cases)
    ]
    results = on_one_rank(functions, [[operand] for operand, _, _ in cases], tmp_path)
    for (operand, source, target), result in zip(cases, results, strict=True):
        with np.errstate(all="ignore"):
            expected = operand.astype(NUMPY[target])
        assert_same(result, expected, operand, f"{source} to {target}")


@pytest.mark.parametrize("half", HALVES)
def test_sums_and_multiples_round_once(half: DType, tmp_path: Path) -> None:
    rng = fresh_numbers(0)
    x, y = patterns(half), rng.permutation(patterns(half))
    factors = [0.1, -3.0, 1e-5, 1000.0]
    n = x.size
    functions = [
        f"func @sum(%x: {half}[{n}], %y: {half}[{n}]) -> {half}[{n}] on @m {{\n"
        "  %r = add %x, %y\n  return %r\n}"
    ]
    functions += [
        f"func @multiple_{i}(%x: {half}[{n}]) -> {half}[{n}] on @m {{\n"
        f"  %r = scale %x by {factor:f}\n  return %r\n}}"
        for i, factor in enumerate(factors)
    ]
    results = on_one_rank(functions, [[x, y], *([x] for _ in factors)], tmp_path)
    with np.errstate(all="ignore"):
        expected = [x + y, *(x * x.dtype.type(factor) for factor in factors)]
    for result, right in zip(results, expected, strict=True):
        assert_same(result, right, x, str(half))


@pytest.mark.parametrize("dtype", [DType.I8, DType.I32, DType.I64])
def test_integers_wrap_around_and_never_overflow(dtype: DType, tmp_path: Path) -> None:
    x = integers(dtype)
    y = x[::-1].copy()
    least = -(2 ** min(dtype.bits - 1, 53))  # of constants, which are exact as a double
    factors = [least, least // 2, 3, -1]
    of = f"{dtype}[{x.size}]"
    functions = [
        f"func @sum(%x: {of}, %y: {of}) -> {of} on @m {{\n  %r = add %x, %y\n  return %r\n}}"
    ]
    functions += [
        f"func @multiple_{i}(%x: {of}) -> {of} on @m {{\n  %r = scale %x by {n}\n  return %r\n}}"
        for i, n in enumerate(factors)
    ]
    flags = (*FLAGS, "-fsanitize=signed-integer-overflow", "-fsanitize-undefined-trap-on-error")
    operands = [[x, y], *([x] for _ in factors)]
    results = on_one_rank(functions, operands, tmp_path, flags)
    for result, right in zip(
        results, [x + y, *(x * x.dtype.type(n) for n in factors)], strict=True
    ):
        assert_same(result, right, x, dtype)


def test_a_factor_of_minus_zero_keeps_its_sign(tmp_path: Path) -> None:
    function = "func @f(%x: f32[2]) -> f32[2] on @m {\n  %r = scale %x by -0\n  return %r\n}"
    x = np.array([1, -1], np.float32)
    (result,) = on_one_rank([function], [[x]], tmp_path)
    assert np.signbit(result).tolist() == [True, False]


def on_one_rank(
    functions: list[str],
    operands: list[list[Array]],
    folder: Path,
    flags: Sequence[str] = FLAGS,
) -> list[Array]:
    """Return the result of each function, which has one result."""
    module: ModuleOp = collir.parse(PROGRAM.format(functions="\n".join(functions)))
    arguments: list[list[Buffers]] = [[[x] for x in arrays] for arrays in operands]
    calls = list(zip(functions_of(module), arguments, strict=True))
    done = run(module, calls, folder, flags, HANG)
    return [result[0][0] for result, _ in done if result[0][0] is not None]


def assert_same(result: Array, expected: Array, operand: Array, what: str) -> None:
    """Check that bits are equal, but for NaN, which has many forms."""
    width = np.dtype(f"u{result.dtype.itemsize}")
    same = result.view(width) == expected.view(width)
    if result.dtype.kind == "f" or result.dtype == ml_dtypes.bfloat16:
        with np.errstate(invalid="ignore"):
            same |= np.isnan(result) & np.isnan(expected)
    wrong = np.flatnonzero(~same)
    shown = [(operand[i], result[i], expected[i]) for i in wrong[:5]]
    assert not wrong.size, f"{what}: {wrong.size} wrong, such as {shown}"
