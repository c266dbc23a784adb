"""Inputs of runs at which operations respond: nothing saturates, and every constant matters.

A weight is divided by the root of the number of its products that are added up, so values stay near
1 through many layers, and a softmax or a tanh answers to all of them. Integers that select are
existing positions. All numbers have few digits, so that sums and products of inputs are exact.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, SSAValue

from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.roles import Role, argument_roles
from collir.layout import DistType, DType, Reduction
from collir.semantics.reference.buffers import random_tensor
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.steps import Effect, meaning_of


class InputDraw(Enum):
    """A way to draw the inputs of a run."""

    UNIT = auto()
    """Fractions of either sign, at which values stay near 1."""
    INTEGERS = auto()
    """Small integers, many of them equal; positions that select are out of range at times."""
    POSITIVE = auto()
    """Positive fractions, for roots and logarithms."""
    SHALLOW = auto()
    """As UNIT, and weights of layers are divided by the root of their number too."""
    MAGNITUDES = auto()
    """Numbers near the constants of the functions, 0, and the ends of integer types."""


MODERATE = (InputDraw.UNIT, InputDraw.INTEGERS, InputDraw.POSITIVE, InputDraw.SHALLOW)
"""The kinds of inputs at which right programs agree on which numbers are finite."""

KINDS = (*MODERATE, *[InputDraw.MAGNITUDES] * 4)
"""The kinds of the runs, in order."""

_MOST_MAGNITUDES = 64
"""The most magnitudes of the inputs of an argument."""

_CONTRACTIONS = ("einsum", "conv")

_SELECTIONS = {"take": (1, 0), "take_transpose": (1, None), "cross_entropy": (1, 0)}
"""The operand that selects, and the one that it selects from; None: the result."""


@dataclass
class ArgumentUse:
    """The use of an argument in a function.

    Attributes:
        x: its type.
        fan: the number of products in an element of the first contraction with it as a weight; 1 if
            there is none.
        depth: the number of layers whose weights it stacks.
        positions: the number of positions that it selects from, or None.
        magnitudes: sizes at which some step sees a number near a constant, or near 1.
    """

    x: DistType
    role: Role | None
    fan: int = 1
    depth: int = 1
    positions: int | None = None
    magnitudes: Sequence[float] = (1.0,)


def arguments_of(functions: Sequence[FuncOp]) -> list[ArgumentUse]:
    """Return how functions of one signature, on one device and without calls, use arguments."""
    first = functions[0]
    roles = argument_roles(first)
    arguments = [ArgumentUse(dist_type(x), role) for x, role in zip(first.args, roles, strict=True)]
    for function in functions:
        own = dict[SSAValue, int](zip(function.args, range(len(arguments)), strict=True))
        _follow(function.body.block, own, arguments, 1)
    for argument, magnitudes in zip(arguments, _magnitudes(functions), strict=True):
        argument.magnitudes = magnitudes
    return arguments


def _follow(
    block: Block, sources: dict[SSAValue, int], arguments: Sequence[ArgumentUse], depth: int
) -> None:
    """Find the uses of arguments in the steps of a block.

    Args:
        sources: for values that are an argument in another form, its number.
        depth: the iterations of the loops around the block.
    """
    for op in block.ops:
        if isinstance(op, RepeatOp):
            for operand, inner in zip(op.operands, op.body.block.args, strict=True):
                if operand in sources:
                    sources[inner] = sources[operand]
            _follow(op.body.block, sources, arguments, depth * op.times)
        elif isinstance(op, DistOp):
            _note(op, sources, arguments, depth)


def _note(
    op: DistOp, sources: dict[SSAValue, int], arguments: Sequence[ArgumentUse], depth: int
) -> None:
    """Note the uses that a step makes of arguments."""
    name, known = op.mnemonic, [x for x in op.operands if x in sources]
    if not known:
        return
    if name in _CONTRACTIONS:
        weight = arguments[sources[known[-1]]]
        if weight.fan == 1 and op.structure is not None:
            sizes = op.structure.sizes
            weight.fan = math.prod(sizes[index] for index in op.structure.reduced)
            weight.depth = depth
    elif name == "one_hot" or name in _SELECTIONS:
        chosen, table = _SELECTIONS.get(name, (0, None))
        dim = -1 if name == "one_hot" else op.integer("dim")
        shape = dist_type(op.result if table is None else op.operands[table]).shape
        if op.operands[chosen] in sources:
            argument = arguments[sources[op.operands[chosen]]]
            argument.positions = min(int(shape[dim]), argument.positions or int(shape[dim]))
    elif meaning_of(name).effect is Effect.ORDER or name in ("cast", "pad", "neg", "stop_gradient"):
        sources[op.result] = sources[op.operands[0]]


# --- tensors ------------------------------------------------------------------------------------


def tensors(
    kind: InputDraw, arguments: Iterable[ArgumentUse], rng: np.random.Generator
) -> list[Array]:
    """Return a random tensor for each argument, in float64, int64 or bool."""
    return [_wide(_tensor(kind, argument, rng)) for argument in arguments]


def _wide(x: Array) -> Array:
    return x if x.dtype.kind == "b" else x.astype(np.int64 if x.dtype.kind == "i" else np.float64)


def _tensor(kind: InputDraw, argument: ArgumentUse, rng: np.random.Generator) -> Array:
    x = argument.x
    if x.dtype is DType.BOOL:
        return random_tensor(x, rng)
    if argument.positions is not None:
        beyond = 1 if kind in (InputDraw.INTEGERS, InputDraw.MAGNITUDES) else 0
        return rng.integers(-beyond, argument.positions + beyond, x.shape)
    if kind is InputDraw.INTEGERS or x.reduction is Reduction.PROD:
        return random_tensor(x, rng, argument.role)
    if kind is InputDraw.MAGNITUDES:
        return _near_constants(argument, rng)
    if not x.dtype.is_float:
        return random_tensor(x, rng)
    positive = kind is InputDraw.POSITIVE or argument.role is Role.STATE or not x.shape
    numbers = rng.integers(16, 65, x.shape)
    if not positive:
        numbers = numbers * rng.choice([-1, 1], x.shape)
    layers = argument.depth if kind is InputDraw.SHALLOW else 1
    return numbers * 2.0 ** (-5 - round(math.log2(argument.fan * layers) / 2))


def _near_constants(argument: ArgumentUse, rng: np.random.Generator) -> Array:
    """Return numbers of the magnitudes of an argument, and the ends of a type of integers."""
    x = argument.x
    scale = rng.choice(np.asarray(argument.magnitudes), x.shape) * 2.0 ** rng.integers(
        -6, 3, x.shape
    )
    scale = scale * rng.choice([1.0, 1 - 2.0**-7, 1 + 2.0**-7], x.shape)
    numbers = rng.integers(-50, 51, x.shape) * scale
    if argument.role is Role.STATE:
        numbers = np.abs(numbers)
    if x.dtype.is_float:
        return numbers.astype(np.float32).astype(np.float64)
    end = 2.0 ** min(x.dtype.bits - 1, 40)
    numbers = np.clip(np.rint(numbers), -end, end - 1)
    edges = rng.choice([0, -1, 1], x.shape, p=[0.8, 0.1, 0.1])
    return np.where(edges < 0, -end, np.where(edges > 0, end - 1, numbers)).astype(np.int64)


# --- magnitudes ---------------------------------------------------------------------------------


def _magnitudes(functions: Sequence[FuncOp]) -> list[list[float]]:
    """Return magnitudes of each argument at which some step sees a value near a constant or 1."""
    magnitudes: list[set[float]] = [{1.0} for _ in functions[0].args]
    for function in functions:
        # The factors that an argument was scaled by on the way to a value: (argument, factor).
        factors: dict[SSAValue, frozenset[tuple[int, float]]] = {
            arg: frozenset([(number, 1.0)]) for number, arg in enumerate(function.args)
        }
        constants = {1.0}
        for op in function.body.ops:
            of_operands = frozenset[tuple[int, float]]().union(*(factors[x] for x in op.operands))
            if isinstance(op, DistOp):
                times = abs(op.number("factor")) if op.mnemonic == "scale" else 1.0
                constants |= {abs(x) for x in _constants(op) if x and math.isfinite(x)}
                of_operands = frozenset(
                    sorted((number, float(f"{f * times:.3g}")) for number, f in of_operands)[
                        :_MOST_MAGNITUDES
                    ]
                )
            factors |= dict.fromkeys(op.results, of_operands)  # a loop: as if it did not scale
        for number, factor in frozenset[tuple[int, float]]().union(*factors.values()):
            magnitudes[number] |= {value / factor for value in constants if factor}
    return [
        sorted(v for v in values if math.isfinite(v))[:_MOST_MAGNITUDES] for values in magnitudes
    ]


def _constants(op: DistOp) -> Iterator[float]:
    """Yield the constants that a step puts beside elements."""
    if op.mnemonic in ("pad", "constant"):
        yield op.number("value")
