"""The loop nest of every operation of models in C, on the block of a rank.

Numbers of 16 bits are computed in float, and rounded where they are written.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from collir.layout import DType
from collir.layout.operation_table import OperationTable
from collir.targets.code.c_folds import extreme, larger, total
from collir.targets.code.c_kernels import BlockComputation, Body
from collir.targets.code.c_nest import Array, CLoop, block, merged, nested, number_type, value_type
from collir.targets.code.c_products import matrix_product
from collir.targets.code.c_selections import SELECTIONS
from collir.targets.code.c_text import AS_BITS, C_TYPES, number_text, size_text
from collir.targets.code.c_windows import WINDOWS

# ---------------------------------------------------------------------------------------------
# Maps
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Map:
    """An elementwise operation.

    Attributes:
        form: the result as an expression of ``a``, ``b`` and ``c``, with ``{f}`` at the end of the
            names of functions for floating-point numbers.
        of_integers: the expression for integers, if that is another one.
        compares: whether it needs the sign of integers, and no numbers that wrap.
        moves: whether it moves elements as they are.
    """

    form: str
    of_integers: str = ""
    compares: bool = False
    moves: bool = False


MAPS = {
    "add": Map("a + b"),
    "neg": Map("-a"),
    "mul": Map("a * b"),
    "sub": Map("a - b"),
    "div": Map("a / b"),
    "stop_gradient": Map("a", moves=True),
    "broadcast_to": Map("a", moves=True),
    "where": Map("a ? b : c", moves=True),
    "maximum": Map("a > b || a != a ? a : b", "a > b ? a : b", compares=True),
    "minimum": Map("a < b || a != a ? a : b", "a < b ? a : b", compares=True),
    "greater": Map("a > b", compares=True),
    "greater_equal": Map("a >= b", compares=True),
    "less": Map("a < b", compares=True),
    "less_equal": Map("a <= b", compares=True),
    "equal": Map("a == b", compares=True),
    "not_equal": Map("a != b", compares=True),
    "relu": Map("a > 0 || a != a ? a : 0", "a > 0 ? a : 0", compares=True),
    "exp": Map("exp{f}(a)"),
    "log": Map("log{f}(a)"),
    "sqrt": Map("sqrt{f}(a)"),
    "rsqrt": Map("1 / sqrt{f}(a)"),
    "tanh": Map("tanh{f}(a)"),
    "erf": Map("erf{f}(a)"),
    "sin": Map("sin{f}(a)"),
    "cos": Map("cos{f}(a)"),
    "sigmoid": Map("1 / (1 + exp{f}(-a))"),
    "silu": Map("a / (1 + exp{f}(-a))"),
    "gelu": Map("{half} * a * (1 + tanh{f}({scale} * (a + {cubes} * a * a * a)))"),
}
"""The elementwise operations, by their names."""

_CONSTANTS = {"half": 0.5, "scale": math.sqrt(2 / math.pi), "cubes": 0.044715}
"""The numbers in expressions."""


def elementwise(row: Map) -> Body:
    """Return the loops over all elements of the result of an elementwise operation."""

    def body(c: BlockComputation) -> list[str]:
        out, arrays = c.out(), c.inputs()
        loops, (out, *arrays) = merged(c.loops(c.structure.result), [out, *arrays], only="i")
        dtype = c.operands[-1].dtype
        form = row.form if dtype.is_float or not row.of_integers else row.of_integers
        wide = DType.F64 if dtype is DType.F64 else DType.F32
        numbers = {name: number_text(value, wide) for name, value in _CONSTANTS.items()}
        text = form.format(f="" if dtype is DType.F64 else "f", **numbers)
        lines: list[str] = []
        for name, array in zip("abc", arrays, strict=False):
            if row.moves:
                lines.append(f"{C_TYPES[array.dtype]} {name} = {array.element()};")
            elif row.compares:
                lines.append(f"{value_type(array.dtype)} {name} = {array.value()};")
            else:
                lines.append(f"{number_type(array.dtype)} {name} = {array.number()};")
        written = f"{out.element()} = {text};" if row.moves else out.store(text)
        return nested(loops, [*lines, written])

    return body


# ---------------------------------------------------------------------------------------------
# Products and reductions
# ---------------------------------------------------------------------------------------------


def _reduced(c: BlockComputation) -> tuple[list[CLoop], list[CLoop]]:
    """Return the loops over the indices of the result, and over the indices that it lacks."""
    return c.loops(c.structure.result), c.loops(
        index for index in c.sizes if index not in c.structure.result
    )


def _einsum(c: BlockComputation) -> list[str]:
    outer, inner = _reduced(c)
    return matrix_product(c) or total(c.out(), outer, inner, c.inputs()).lines()


def _joined(
    outer: Sequence[CLoop], inner: Sequence[CLoop], arrays: Sequence[Array]
) -> tuple[list[CLoop], list[CLoop], list[Array]]:
    """Return loops over the result and over the rest, each group merged by itself."""
    joined_outer, joined = merged(outer, arrays)
    joined_inner, joined = merged(inner, joined)
    return joined_outer, joined_inner, joined


def _sum(c: BlockComputation) -> list[str]:
    outer, inner, (out, x) = _joined(*_reduced(c), [c.out(), *c.inputs()])
    return total(out, outer, inner, [x]).lines()


def _mean(c: BlockComputation) -> list[str]:
    outer, inner = _reduced(c)
    count = math.prod(loop.size for loop in inner)
    outer, inner, (out, x) = _joined(outer, inner, [c.out(), *c.inputs()])
    return total(
        out, outer, inner, [x], f"{{0}} / ({number_type(x.dtype)})({size_text(count)})"
    ).lines()


def _extreme(operator: str) -> Body:
    """Return the statements of a reduction to the largest (``>``) or smallest (``<``) element."""

    def body(c: BlockComputation) -> list[str]:
        outer, inner, (out, x) = _joined(*_reduced(c), [c.out(), *c.inputs()])
        return extreme(operator, out, outer, inner, x).lines()

    return body


# ---------------------------------------------------------------------------------------------
# Operations along whole dimensions
# ---------------------------------------------------------------------------------------------


def _along(c: BlockComputation) -> tuple[list[CLoop], list[CLoop], list[Array]]:
    """Return the loops over the other dimensions, the loops over the dimensions of the operation,
    and the result and the operands."""
    along = {str(dim) for dim in c.op.sizes("dims")}
    outer = c.loops(index for index in c.structure.result if index not in along)
    inner = c.loops(index for index in c.structure.result if index in along)
    return _joined(outer, inner, [c.out(), *c.inputs()])


def largest(x: Array, inner: Sequence[CLoop]) -> list[str]:
    """Return the statements that set ``most`` to the largest element of some loops."""
    kind = value_type(x.dtype)
    taken = larger(">", x.dtype, "a", "most")
    return [
        f"{kind} most = -INFINITY, sum = 0;",
        *block(inner, [f"{kind} a = {x.value()};", f"if ({taken}) most = a;"]),
    ]


def _softmax(c: BlockComputation) -> list[str]:
    outer, inner, (out, x) = _along(c)
    exponential = f"exp{c.function}({x.value()} - most)"
    if x.dtype in AS_BITS:  # rounded once
        summed = nested(inner, [f"sum += {exponential};"])
        divided = nested(inner, [out.store(f"{exponential} / sum")])
    else:
        summed = nested(inner, [f"sum += {out.element()} = {exponential};"])
        divided = nested(inner, [f"{out.element()} /= sum;"])
    return nested(outer, [*largest(x, inner), *summed, *divided])


def _log_softmax(c: BlockComputation) -> list[str]:
    outer, inner, (out, x) = _along(c)
    return nested(
        outer,
        [
            *largest(x, inner),
            *nested(inner, [f"sum += exp{c.function}({x.value()} - most);"]),
            f"sum = log{c.function}(sum);",
            *nested(inner, [out.store(f"{x.value()} - most - sum")]),
        ],
    )


def _normalised(c: BlockComputation, mean: bool) -> list[str]:
    """Return the statements that divide by the root of the mean square."""
    outer, inner = (
        c.loops(i for i in c.structure.result if (int(i) in c.op.sizes("dims")) is of)
        for of in (False, True)
    )
    count = size_text(math.prod(loop.size for loop in inner))
    outer, inner, (out, x, *gains) = _joined(outer, inner, [c.out(), *c.inputs()])
    kind, wide = number_type(x.dtype), DType.F64 if x.dtype is DType.F64 else DType.F32
    before: list[str] = []
    value = x.value()
    if mean:
        before = [f"{kind} mean = 0;", *nested(inner, [f"mean += {value};"])]
        before.append(f"mean /= ({kind})({count});")
        value = f"{value} - mean"
    eps = number_text(c.op.number("eps"), wide)
    scaled = f"a * scale * {gains[0].value()}"
    bias = "".join(f" + {gain.value()}" for gain in gains[1:])
    return nested(
        outer,
        [
            f"{kind} squares = 0, scale;",
            *before,
            *block(inner, [f"{kind} a = {value};", "squares += a * a;"]),
            f"scale = 1 / sqrt{c.function}(squares / ({kind})({count}) + {eps});",
            *block(inner, [f"{kind} a = {value};", out.store(f"{scaled}{bias}")]),
        ],
    )


def _layer_norm(c: BlockComputation) -> list[str]:
    return _normalised(c, mean=True)


def _rms_norm(c: BlockComputation) -> list[str]:
    return _normalised(c, mean=False)


def _cumsum(c: BlockComputation) -> list[str]:
    """Return the sums along a dimension, each times a factor if there is a second operand."""
    along = str(c.op.integer("dim"))
    outer = c.loops(index for index in c.structure.result if index != along)
    loops = c.loops([along])
    outer, (out, x, *factors) = merged(outer, [c.out(), *c.inputs()])
    if loops and "reverse" in c.op.properties:
        variable, size = loops[0].variable, loops[0].size
        position = f"size_t {variable} = {size_text(size)} - 1 - n;"
        loops = [CLoop("n", size, (position,))]
    total = [f"sum = {x.number()} + {factor.number()} * sum;" for factor in factors]
    added = nested(loops, [*(total or [f"sum += {x.number()};"]), out.store("sum")])
    return nested(outer, [f"{number_type(x.dtype)} sum = 0;", *added])


# ---------------------------------------------------------------------------------------------
# Tensors of a given type
# ---------------------------------------------------------------------------------------------


def _constant(c: BlockComputation) -> list[str]:
    out = c.out()
    loops, (out,) = merged(c.loops(c.structure.result), [out], only="i")
    dtype = out.dtype
    wide = DType.F32 if dtype in AS_BITS else dtype
    return nested(loops, [out.store(_number(c.op.number("value"), dtype, wide))])


def _number(value: float, dtype: DType, wide: DType) -> str:
    return f"{int(bool(value))}" if dtype is DType.BOOL else number_text(value, wide)


def _iota(c: BlockComputation) -> list[str]:
    dim = c.op.integer("dim")
    start = c.starts[dim]
    known = [loop.variable for loop in c.loops([str(dim)])]
    position = " + ".join([*([] if start == "0" else [start]), *known]) or "0"
    text = f"({position})" if " " in position else position
    text = f"({number_type(c.result.dtype)}){text}"
    return nested(c.loops(c.structure.result), [c.out().store(text)])


_RANDOM_BITS = 32
"""The bits of which a random number takes the upper ones, as many as are exact in its type."""


def _uniform(c: BlockComputation) -> list[str]:
    c.needs.add("mixed_bits")
    bits = min(_RANDOM_BITS, c.result.dtype.mantissa)
    loops: list[CLoop] = []
    before = "seed"
    for dim, index in enumerate(c.structure.result):
        variable = next((loop.variable for loop in c.loops([index])), "")
        start = c.starts[dim]
        position = " + ".join(filter(None, ["" if start == "0" else start, variable])) or "0"
        mixed = f"mixed_bits(({before} ^ (uint32_t)({position})) * 0x9E3779B1u + {dim}u)"
        before = f"bits{dim}"
        line = f"uint32_t {before} = {mixed};"
        loops.append(CLoop(variable, c.sizes[index], (line,)))
    kind = number_type(c.result.dtype)
    drawn = f"{before} >> {_RANDOM_BITS - bits}" if bits < _RANDOM_BITS else before
    written = c.out().store(f"({kind})({drawn}) * 0x1p-{bits}{c.function}")
    return ["uint32_t seed = mixed_bits((uint32_t)x[0]);", *nested(loops, [written])]


BODIES: OperationTable[Body] = OperationTable(
    "BODIES",
    __name__,
    {
        **{name: elementwise(row) for name, row in MAPS.items()},
        "einsum": _einsum,
        "sum": _sum,
        "mean": _mean,
        "max": _extreme(">"),
        "min": _extreme("<"),
        "softmax": _softmax,
        "log_softmax": _log_softmax,
        "layer_norm": _layer_norm,
        "rms_norm": _rms_norm,
        "cumsum": _cumsum,
        "linear_scan": _cumsum,
        "constant": _constant,
        "iota": _iota,
        "uniform": _uniform,
        **SELECTIONS,
        **WINDOWS,
    },
    row="its loops in C on the block of a rank",
)
"""The statements of the kernel of each operation, by its name."""
