"""Runs in float64 with other roundings, which show how far rounding alone moves a result.

Every result that float64 rounds is moved at random by some 500 times the spacing of its numbers, as
in stochastic arithmetic (Vignes, "Discrete stochastic arithmetic", 2004). Where two such runs give
the same, so does every order of computing. A comparison or a cast to an integer jumps where its
operand is at an edge: of two runs one goes to each side of it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects.func import FuncOp

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DType, Reduction
from collir.semantics.reference.collectives import Array, Buffers
from collir.semantics.reference.steps import Args, Effect, meaning_of

NOISE = 2.0**-44
"""The relative size of a rounding: about 500 times the half spacing of float64's numbers."""

NEAR = 2.0**-34
"""The relative distance from an edge within which a rounded number may lie on either side."""

FACTORS = 2.0**-21
"""The relative difference up to which factors count as equal: 0.3333333 counts as a third."""

_SUMS = frozenset([
    "einsum", "sum", "mean", "cumsum", "linear_scan", "take_transpose", "take_along_dim_transpose",
    "grouped_matmul", "grouped_matmul_transpose",
    "conv", "conv_transpose", "conv_filter", "avg_pool", "avg_pool_transpose", "max_pool_transpose",
])  # fmt: skip
"""Operations whose rounding is relative to the sum of the sizes of their terms."""

_ROUNDED = frozenset(["add", "sub", "mul", "div", "scale"])
"""Elementwise operations that float64 rounds only if their result needs more digits."""

_MOVES = frozenset([
    "assemble", "broadcast_to", "concat", "constant", "iota", "one_hot", "pad", "take", "uniform",
    "take_along_dim", "argmax", "max", "max_pool", "maximum", "min", "minimum", "relu",
    "neg", "stop_gradient", "top_k", "top_k_indices", "where",
])  # fmt: skip
"""Operations of values that choose, move or name numbers, and round none."""

_COMPARISONS = frozenset(["greater", "greater_equal", "less", "less_equal", "equal", "not_equal"])

_OF_WHOLES = frozenset(["log_softmax", "layer_norm", "rms_norm", "cross_entropy"])
"""Operations whose rounding is relative to the largest element, as they subtract large numbers."""


@dataclass(frozen=True)
class Rounding:
    """A change of the results of steps by other roundings, the same on all copies of a value.

    Attributes:
        direction: 1 or -1; the side of an edge that numbers near it are on, and whether loose
            factors are larger or smaller.
        seed: the number that the roundings depend on.
        loose: the factors that are known up to ``FACTORS`` only.
    """

    direction: int
    seed: int
    loose: frozenset[float] = frozenset()

    def __call__(self, op: DistOp, args: Args, result: Buffers) -> Buffers:
        """Return the result of a step with other roundings."""
        name = op.mnemonic
        if name in _COMPARISONS:
            return self._on_ranks(self._compared, args, result)
        if name == "cast":
            return self._on_ranks(lambda xs, y: self._cast(op, xs, y), args, result)
        if name in ("scale", "constant") and _factor(op) in self.loose:
            moved = 1 + self.direction * FACTORS * float(_share(np.float64(_factor(op)), self.seed))
            result = self._on_ranks(lambda _, y: y * moved if _is_wide(y) else y, args, result)
        if name in _SUMS:
            kept = args[1:] if name == "max_pool_transpose" else ()  # it chooses what is added
            terms = meaning_of(name).run(
                op, (*map(_absolute, args[: len(args) - len(kept)]), *kept)
            )
            return self._on_ranks(self._sum, (*args, terms), result)
        if name in _ROUNDED:
            return self._on_ranks(self._arithmetic, args, result)
        if op.operands and _reduces(op):
            return self._on_ranks(lambda _, y: self._arithmetic([], y), args, result)
        if name in _MOVES or meaning_of(name).effect is not Effect.VALUES:
            return result
        size = _largest if name in _OF_WHOLES else np.abs
        return self._on_ranks(lambda _, y: self._moved(y, size(y)), args, result)

    @staticmethod
    def _on_ranks(
        change: Callable[[Sequence[Array], Array], Array], args: Args, result: Buffers
    ) -> Buffers:
        """Return the result changed on each device that holds it, by the operands there."""
        return [
            y if y is None else change([arg[rank] for arg in args], y)
            for rank, y in enumerate(result)
        ]

    def _moved(self, y: Array, size: Array) -> Array:
        """Return numbers moved by roundings relative to some sizes."""
        if not _is_wide(y):
            return y
        size = np.where(np.isfinite(size), size, 0.0)
        return y + NOISE * size * _signed_share(y, self.seed)

    def _sum(self, xs: Sequence[Array], y: Array) -> Array:
        """Return sums moved, unless no number has more digits than fit into float32.

        Args:
            xs: the operands, and the sums of the sizes of the terms.
        """
        *operands, size = xs
        return y if all(_is_short(x).all() for x in (*operands, y)) else self._moved(y, size)

    def _arithmetic(self, xs: Sequence[Array], y: Array) -> Array:
        """Return results moved where they or their operands have more digits than float32 holds."""
        short = _is_short(y)
        for x in xs:
            short = short & _is_short(x) if x.shape in (y.shape, ()) else short & _is_short(x).all()
        return self._moved(y, np.where(short, 0.0, np.abs(y)))

    def _compared(self, xs: Sequence[Array], y: Array) -> Array:
        a, b = xs
        if not _is_wide(a):
            return y
        near = (a != b) & (np.abs(a - b) <= NEAR * (np.abs(a) + np.abs(b)))
        return np.where(near & ~(_is_short(a) & _is_short(b)), self.direction > 0, y)

    def _cast(self, op: DistOp, xs: Sequence[Array], y: Array) -> Array:
        (x,) = xs
        if not _is_wide(x) or y.dtype.kind != "i":
            return y
        moved = x * (1 + self.direction * NEAR * ~_is_short(x))
        limit = 2.0 ** (8 * DType(op.word("dtype")).bytes - 1)
        outside = ~((moved >= -limit) & (moved < limit))  # any integer
        return np.where(outside, (self.direction > 0) * 1, moved).astype(y.dtype)


def factors_of(function: FuncOp) -> frozenset[float]:
    """Return the factors and constants of a function, loops included, that may be rounded: those of
    more digits than a user would write exactly."""
    factors = {
        _factor(op)
        for op in function.walk()
        if isinstance(op, DistOp) and op.mnemonic in ("scale", "constant")
    }
    finite = filter(math.isfinite, factors)
    return frozenset(f for f in finite if not (math.frexp(f)[0] * 2**16).is_integer())


def _factor(op: DistOp) -> float:
    return float(op.number("factor" if op.mnemonic == "scale" else "value"))


def _reduces(op: DistOp) -> bool:
    """Return whether a step adds up, multiplies or averages the parts of a value."""
    x, y = dist_type(op.operands[0]), dist_type(op.result)
    rounds = x.reduction in (Reduction.AVG, Reduction.PROD, Reduction.SUM)
    return rounds and y.partial < x.partial


def _largest(y: Array) -> Array:
    return np.max(np.abs(y), initial=0.0)


def _absolute(xs: Buffers) -> Buffers:
    return [x if x is None or not _is_wide(x) else np.abs(x) for x in xs]


def _is_wide(x: Array) -> bool:
    return x.dtype == np.float64


def _is_short(x: Array) -> Any:
    """Return which numbers float32 holds exactly: float64 has not rounded them."""
    return x == x.astype(np.float32) if _is_wide(x) else np.ones(x.shape, bool)


def _share(x: Any, seed: int) -> Any:
    """Return numbers from 1/2 to 1, by the bits of numbers."""
    return 0.5 + (_mixed(x, seed) >> np.uint64(12)).astype(np.float64) * 2.0**-53


def _signed_share(x: Array, seed: int) -> Array:
    """Return numbers from 1/2 to 1 of either sign, by the bits of numbers."""
    signs = 1.0 - 2.0 * (_mixed(x, seed) & np.uint64(1)).astype(np.float64)
    return signs * _share(x, seed)


def _mixed(x: Any, seed: int) -> Any:
    """Return 64 bits of which each depends on all bits of a number."""
    bits = np.ascontiguousarray(x, np.float64).reshape(np.shape(x)).view(np.uint64)
    bits = (bits ^ np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return bits ^ (bits >> np.uint64(32))
