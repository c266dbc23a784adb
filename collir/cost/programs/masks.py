"""The part of the work of a kernel that is left by masks of positions.

Attention that is causal, or sees a window of positions, masks its scores by the difference of two
positions. Kernels compute tiles of scores and skip tiles that are masked as a whole (Dao 2023,
FlashAttention-2, section 3.1). Here the kernels that a program names do so too. The module finds
where the result of each step is very low (as a mask makes it before a softmax), where it is 0, and
where it is needed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction
from itertools import product
from typing import NamedTuple

from xdsl.ir import SSAValue

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import Mesh
from collir.layout.sizes import OpenSize, same_size, without_formula

TILE = 128
"""The positions along a side of a tile of scores: FlashAttention-2 and -3 take 64 to 192."""

_LOW = -1e4
"""The number from which on a score is low: e^x is 0 in all types of 32 bits and less."""


@dataclass(frozen=True)
class Band:
    """The elements of a value at which the difference of two positions is within limits.

    Attributes:
        dims: the two dimensions, counted from the last one, which is -1.
        low, high: the least and the largest difference: the second position less the first.
    """

    dims: tuple[int, int]
    low: float = -math.inf
    high: float = math.inf

    def within(self, other: "Band") -> "Band":
        """Return the elements that are in both bands; this band, if their dimensions differ."""
        if other.dims != self.dims:
            return self
        return Band(self.dims, max(self.low, other.low), min(self.high, other.high))

    def around(self, other: "Band") -> "Band | None":
        """Return the elements in a band or between the two; None if their dimensions differ."""
        if other.dims != self.dims:
            return None
        return Band(self.dims, min(self.low, other.low), max(self.high, other.high))


class Masked(NamedTuple):
    """The elements that a step computes: a band of the operand with a number, or of the result."""

    number: int
    band: Band


RESULT = -1
"""The number of the result, in the place of that of an operand."""


class Outside(Enum):
    """Kinds of values outside of a band: very low, zero, or of no use."""

    LOW = auto()
    ZERO = auto()
    UNUSED = auto()


Known = dict[SSAValue, tuple[Outside, Band]]

# ---------------------------------------------------------------------------------------------
# Positions
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Positions:
    """A sum of positions, each times a factor, plus a number; the last dimension is -1."""

    factors: Mapping[int, float]
    number: float = 0.0

    def plus(self, other: "_Positions", sign: float) -> "_Positions":
        factors = dict(self.factors)
        for dim, factor in other.factors.items():
            factors[dim] = factors.get(dim, 0.0) + sign * factor
        return _Positions(factors, self.number + sign * other.number)


def _positions(value: SSAValue) -> _Positions | None:
    """Return a value as a sum of positions; None if it is no such sum."""
    op = value.owner
    if not isinstance(op, DistOp):
        return None
    rank = len(dist_type(value).dims)
    match op.mnemonic:
        case "iota":
            return _Positions({op.integer("dim") - rank: 1.0})
        case "constant":
            return _Positions({}, op.number("value"))
        case "cast" | "broadcast_to":
            return _positions(op.input)
        case "add" | "sub":
            x, y = map(_positions, op.operands)
            return x.plus(y, 1.0 if op.mnemonic == "add" else -1.0) if x and y else None
        case "reshape":
            return _reshaped(op)
        case _:
            return None


def _reshaped(op: DistOp) -> _Positions | None:
    """Return positions with other dimensions of size 1."""
    x, structure = _positions(op.input), op.indices
    if x is None or structure is None:
        return None
    [own], made = structure.operands, structure.result
    if any(own[dim] in structure.regrouped for dim in x.factors):
        return None
    kept = {own[dim]: factor for dim, factor in x.factors.items()}
    factors = {n - len(made): kept[index] for n, index in enumerate(made) if index in kept}
    return _Positions(factors, x.number)


def _band(condition: SSAValue) -> Band | None:
    """Return the elements at which a comparison of positions holds; None for other comparisons."""
    op = condition.owner
    if not isinstance(op, DistOp) or op.mnemonic not in _COMPARISONS:
        return None
    x, y = map(_positions, op.operands)
    if x is None or y is None:
        return None
    sign, strict = _COMPARISONS[op.mnemonic]
    least = x.plus(y, -1.0) if sign > 0 else y.plus(x, -1.0)  # it is at least 0, or 1
    factors = {dim: factor for dim, factor in sorted(least.factors.items()) if factor}
    if len(factors) != 2 or sorted(factors.values()) != [-1.0, 1.0]:
        return None
    first, second = factors
    bound = strict - least.number
    if factors[second] > 0:
        return Band((first, second), low=bound)
    return Band((first, second), high=-bound)


_COMPARISONS = {
    "greater_equal": (1, 0),
    "greater": (1, 1),
    "less_equal": (-1, 0),
    "less": (-1, 1),
}
"""The sign of the first operand less the second, 1 or -1, and the least size of that."""

# ---------------------------------------------------------------------------------------------
# What is known of values
# ---------------------------------------------------------------------------------------------


def known_in(kernel: Sequence[DistOp]) -> Known:
    """Return the known values outside of bands, of the steps of a kernel."""
    known: Known = {}
    for op in kernel:
        if (outside_and_band := _forward(op, known)) is not None:
            known[op.result] = outside_and_band
    inside = set(kernel)
    for op in reversed(kernel if known else ()):
        if (needed := _needed(op, known, inside)) is not None:
            kind, band = known.get(op.result, (Outside.UNUSED, needed))
            known[op.result] = kind, band.within(needed)
    return known


def masked_in(kernel: Sequence[DistOp]) -> dict[DistOp, Masked]:
    """Return the steps of a kernel that compute only a part of a value, with this part."""
    known = known_in(kernel)
    steps: dict[DistOp, Masked] = {}
    for op in kernel:
        if op.result in known:
            steps[op] = Masked(RESULT, known[op.result][1])
            continue
        for number, value in enumerate(op.operands):
            if value in known and known[value][0] is Outside.ZERO:
                steps[op] = Masked(number, known[value][1])
    return steps


def _forward(op: DistOp, known: Known) -> tuple[Outside, Band] | None:
    """Return what is known of the result of a step from its operands."""
    of = [known.get(value) for value in op.operands]
    first = of[0] if of else None
    low = first if first and first[0] is Outside.LOW else None
    zeros = [x for x in of if x and x[0] is Outside.ZERO]
    match op.mnemonic:
        case "where":
            return _chosen(op, of[1])
        case "cast" | "stop_gradient":
            return first
        case "scale":
            return first if zeros or op.number("factor") > 0 else None
        case "neg" | "mul":
            return zeros[0] if zeros else None
        case "div":
            return zeros[0] if zeros and zeros[0] is first else None
        case "add" | "sub":
            if len(zeros) == 2:
                band = zeros[0][1].around(zeros[1][1])
                return (Outside.ZERO, band) if band else None
            return low
        case "exp":
            return (Outside.ZERO, low[1]) if low else None
        case "softmax":
            rank = len(dist_type(op.input).dims)
            along = [dim - rank for dim in op.sizes("dims")]
            return (Outside.ZERO, low[1]) if low and set(along) & {*low[1].dims} else None
        case _:
            return None


def _chosen(op: DistOp, of_x: tuple[Outside, Band] | None) -> tuple[Outside, Band] | None:
    """Return what is known of a choice between a value and a number."""
    condition, _, mask = op.operands
    if (number := _number(mask)) is None or _LOW < number < 0 or number > 0:
        return None
    kind = Outside.LOW if number else Outside.ZERO
    before = of_x[1] if of_x and of_x[0] is kind else None
    if (band := _band(condition)) is None:
        return (kind, before) if before else None
    return kind, band.within(before) if before else band


def _number(value: SSAValue) -> float | None:
    positions = _positions(value)
    return None if positions is None or any(positions.factors.values()) else positions.number


def _needed(op: DistOp, known: Known, kernel: set[DistOp]) -> Band | None:
    """Return the elements of a result that steps of its kernel need; None: perhaps all."""
    band: Band | None = None
    for use in op.result.uses:
        user = use.operation
        if not isinstance(user, DistOp) or user not in kernel:
            return None
        needed = _needed_by(user, use.index, known)
        band = needed if band is None or needed is None else band.around(needed)
        if band is None:
            return None
    if band is None:
        return None
    [like] = [v for v, (_, b) in known.items() if b.dims == band.dims][:1]
    shapes = dist_type(like).shape, dist_type(op.result).shape
    if len(shapes[1]) < max(-dim for dim in band.dims):
        return None
    return band if all(shapes[0][d] == shapes[1][d] for d in band.dims) else None


def _needed_by(user: DistOp, number: int, known: Known) -> Band | None:
    """Return the elements of an operand that a step needs."""
    own = known.get(user.result)
    match user.mnemonic:
        case "where":
            return own[1] if own and number == 1 else None
        case "mul" | "div":
            factor = known.get(user.operands[1 - number])
            if factor and factor[0] is Outside.ZERO and (user.mnemonic == "mul" or number == 1):
                return factor[1]
            return own[1] if own and own[0] is Outside.UNUSED else None
        case "add" | "sub" | "cast" | "scale" | "neg" | "stop_gradient" | "exp":
            return own[1] if own else None
        case _:
            return None


# ---------------------------------------------------------------------------------------------
# The part of the work
# ---------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """A part of the tiles of a block, as a quotient; of open sizes, its terms have formulas."""

    numerator: int
    denominator: int

    @property
    def share(self) -> float:
        """The part at the defaults of open sizes."""
        return int(self.numerator) / int(self.denominator)


ALL = Seen(1, 1)


def part_of(op: DistOp, mask: Masked | None, mesh: Mesh) -> Seen:
    """Return the part of the tiles of a block that have elements to compute, on the device with
    most of them."""
    if mask is None:
        return ALL
    x, band = dist_type((*op.operands, op.result)[mask.number]), mask.band
    over = [x.dims[dim] for dim in band.dims]
    sizes = [without_formula(size) for size in x.local_shape(mesh)]
    first, second = (sizes[dim] for dim in band.dims)
    counts = (without_formula(mesh.group_size(dim.axes)) for dim in over)
    starts = [*product(*(range(int(count)) for count in counts))]

    def most(rows: int, columns: int) -> Fraction:
        return max(
            _tiles(
                rows, columns, band.low + i * rows - j * columns, band.high + i * rows - j * columns
            )
            for i, j in starts
        )

    side = int(first)
    share = most(side, int(second))
    if isinstance(first, OpenSize) and same_size(first, second) and side % TILE == 0:
        return _of_square(first, lambda tiles: most(tiles * TILE, tiles * TILE))
    return Seen(share.numerator, share.denominator)


def _of_square(side: OpenSize, share: Callable[[int], Fraction]) -> Seen:
    """Return the part of the tiles of a square whose side is open. The number of such tiles is a
    polynomial of degree two in the tiles of a side; the shares of three sizes from the default on
    determine it."""
    first = int(side) // TILE
    tiles = [first, first + 1, first + 2]
    counts = [share(n) * n * n for n in tiles]
    second = (counts[2] - 2 * counts[1] + counts[0]) / 2
    linear = counts[1] - counts[0] - second * (2 * first + 1)
    constant = counts[0] - second * first**2 - linear * first
    scale = math.lcm(*(x.denominator for x in (second, linear, constant)))
    a, b, c = (int(x * scale) for x in (second, linear * TILE, constant * TILE**2))
    numerator = a * side * side + b * side + c
    return Seen(numerator, scale * side * side)


def _tiles(rows: int, columns: int, low: float, high: float) -> Fraction:
    """Return the part of a matrix's tiles with an element whose column less row is within
    limits."""
    if low > high:
        return Fraction(0)
    beyond = rows + columns
    least, most = max(int(max(low, -beyond)), -beyond), int(min(high, beyond))
    across, tiles = math.ceil(columns / TILE), 0
    for begin in range(0, rows, TILE):
        end = min(begin + TILE, rows)
        left, right = max(0, begin + least), min(columns, end + most)
        if left < right:
            tiles += math.ceil(right / TILE) - left // TILE
    return Fraction(tiles, math.ceil(rows / TILE) * across)
