"""Functions of the elements of values."""

import math
from collections.abc import Callable

from collir.importing.models.graph import ModelNode
from collir.importing.models.jax_rows.table import jax_row
from collir.importing.models.lines import Lines, LineValue
from collir.importing.models.rows.table import (
    JAX,
    ROWS,
    NotHere,
    Number,
    Row,
    dtype_of,
    shape_of,
    value_of,
)

Operand = LineValue | Number

_OF_TORCH = {
    "neg": "neg", "exp": "exp", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt", "tanh": "tanh",
    "logistic": "sigmoid", "sin": "sin", "cos": "cos", "silu": "silu", "relu": "relu",
    "erf": "erf", "erfc": "erfc", "abs": "abs", "log1p": "log1p", "expm1": "expm1",
    "exp2": "exp2", "tan": "tan", "floor": "floor", "ceil": "ceil", "sign": "sign",
    "square": "square", "sinh": "sinh", "cosh": "cosh", "not": "bitwise_not",
}  # fmt: skip
"""Operations of JAX that are those of torch, and their names there."""


def as_torch(name: str) -> Row:
    """Return the row of an operation of torch, for a node of JAX."""

    def made(e: Lines, node: ModelNode, *args: object) -> object:
        of_torch = ModelNode(node.name, name, args, {}, node.results, node.path, node.line)
        return ROWS[name](e, of_torch, *args)

    return made  # pyright: ignore[reportReturnType]


def _whole_number(row: Row) -> Row:
    """Return a row whose operand, if it is a number, becomes a value."""

    def made(e: Lines, node: ModelNode, x: Operand, **_: object) -> object:
        return row(e, node, value_of(e, x, dtype_of(node)))

    return made  # pyright: ignore[reportReturnType]


for _name, _torch in _OF_TORCH.items():
    jax_row(_name)(_whole_number(as_torch(_torch)))


def _two(op: str, *names: str) -> None:
    @jax_row(*names)
    def made(e: Lines, node: ModelNode, x: Operand, y: Operand, **_: object) -> LineValue:
        dtype = dtype_of(node)
        if dtype == "bool":
            return truth(e, op, value_of(e, x, "bool"), value_of(e, y, "bool"))
        if op == "mul" and not (isinstance(x, LineValue) and isinstance(y, LineValue)):
            whole, number = (x, y) if isinstance(x, LineValue) else (y, x)
            if isinstance(whole, LineValue) and not isinstance(number, LineValue):
                return e.scale(e.cast(whole, dtype), number)
        if op == "div" and dtype[0] not in "fb":
            return _integer(e, node, _quotient(e, node, x, y)[0])
        return e.map(f"{op} {{}}", value_of(e, x, dtype), value_of(e, y, dtype))


def truth(e: Lines, op: str, x: LineValue, y: LineValue) -> LineValue:
    """Return whether both are true (``mul``), or one of them (``add``)."""
    if op in ("mul", "minimum", "and"):
        return e.map("where {}", x, y, e.number(0, "bool"))
    if op not in ("add", "maximum", "or"):
        raise NotHere("of truth values")
    return e.map("where {}", x, e.number(1, "bool"), y)


_two("add", "add", "add_any")
_two("sub", "sub")
_two("mul", "mul")
_two("div", "div")
_two("maximum", "max")
_two("minimum", "min")


def _truths(op: str) -> None:
    @jax_row(op)
    def made(e: Lines, node: ModelNode, x: Operand, y: Operand) -> LineValue:
        if dtype_of(node) != "bool":
            raise NotHere("of bits")
        return truth(e, op, value_of(e, x, "bool"), value_of(e, y, "bool"))


_truths("and")
_truths("or")


@jax_row("xor")
def _xor(e: Lines, node: ModelNode, x: Operand, y: Operand) -> LineValue:
    if dtype_of(node) != "bool":
        raise NotHere("of bits")
    left, right = (e.cast(value_of(e, v, "bool"), "i32") for v in (x, y))
    return e.map("not_equal {}", left, right, dtype="bool")


def _compare(op: str, name: str) -> None:
    @jax_row(name)
    def made(e: Lines, node: ModelNode, x: Operand, y: Operand) -> LineValue:
        dtype = next((v.dtype for v in (x, y) if isinstance(v, LineValue)), "f32")
        wide = "i32" if dtype == "bool" else dtype
        given = (e.cast(value_of(e, v, dtype), wide) for v in (x, y))
        return e.map(f"{op} {{}}", *given, dtype="bool")


for _op, _short in (
    ("greater", "gt"), ("greater_equal", "ge"), ("less", "lt"), ("less_equal", "le"),
    ("equal", "eq"), ("not_equal", "ne"),
):  # fmt: skip
    _compare(_op, _short)


def _quotient(
    e: Lines, node: ModelNode, x: Operand, y: Operand
) -> tuple[LineValue, LineValue, LineValue]:
    """Return a quotient without its fraction, and its operands; integers are divided in f64, which
    represents all 32-bit ones."""
    dtype = dtype_of(node)
    wide = dtype if dtype[0] in "fb" else "f64"
    left, right = (e.cast(value_of(e, v, dtype), wide) for v in (x, y))
    return _OWN["trunc"](e, node, e.map("div {}", left, right)), left, right


def _integer(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    return e.cast(x, dtype_of(node))


@jax_row("rem")
def _rem(e: Lines, node: ModelNode, x: Operand, y: Operand) -> LineValue:
    whole, left, right = _quotient(e, node, x, y)
    return _integer(e, node, e.map("sub {}", left, e.map("mul {}", whole, right)))


@jax_row("round")
def _round(e: Lines, node: ModelNode, x: LineValue, rounding_method: object = 1) -> LineValue:
    if "AWAY" in str(rounding_method):
        raise NotHere("away from zero")
    return _OWN["round"](e, node, x)


@jax_row("integer_pow", "pow")
def _power(
    e: Lines, node: ModelNode, x: Operand, power: Operand = 1, y: int | None = None
) -> LineValue:
    exponent = power if y is None else y
    if isinstance(exponent, LineValue):
        base = value_of(e, x, dtype_of(node))
        logs = e.map("mul {}", e.cast(exponent, base.dtype), e.map("log {}", base))
        return e.map("exp {}", logs)
    if not isinstance(x, LineValue):
        raise NotHere("of a number")
    return _OWN["pow.Tensor_Scalar"](e, node, x, exponent)


@jax_row("is_finite")
def _is_finite(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    size = e.map("maximum {}", x, e.map("neg {}", x))
    return e.map("less {}", size, e.number(math.inf, x.dtype), dtype="bool")


@jax_row("clamp")
def _clamp(e: Lines, node: ModelNode, low: Operand, x: Operand, high: Operand) -> LineValue:
    low, x, high = (value_of(e, v, dtype_of(node)) for v in (low, x, high))
    return e.map("minimum {}", e.map("maximum {}", x, low), high)


@jax_row("select_n")
def _select(e: Lines, node: ModelNode, which: Operand, *cases: Operand) -> LineValue:
    dtype, shape = dtype_of(node), shape_of(node)
    made = value_of(e, cases[0], dtype)
    if isinstance(which, LineValue) and which.dtype != "bool":
        for number, case in enumerate(cases[1:], 1):
            reached = e.map("greater_equal {}", which, e.number(number, which.dtype), dtype="bool")
            made = e.map("where {}", reached, value_of(e, case, dtype), made)
        return e.expand(made, shape)
    if len(cases) == 1:
        return made
    chosen = value_of(e, which, "bool")
    return e.expand(e.map("where {}", chosen, value_of(e, cases[1], dtype), made), shape)


@jax_row("convert_element_type")
def _convert(e: Lines, node: ModelNode, x: Operand, **_: object) -> LineValue:
    dtype = dtype_of(node)
    if isinstance(x, LineValue) and dtype == "bool" and x.dtype != "bool":
        return e.map("not_equal {}", x, e.number(0, x.dtype), dtype="bool")
    if isinstance(x, LineValue) and x.is_float and dtype[0] in "iu":
        x = _OWN["trunc"](e, node, x)
    return e.cast(x, dtype) if isinstance(x, LineValue) else value_of(e, x, dtype)


@jax_row("stop_gradient")
def _stop(e: Lines, node: ModelNode, x: Operand, **_: object) -> LineValue:
    x = value_of(e, x, dtype_of(node))
    return e.map("stop_gradient {}", x) if x.is_float else x


@jax_row("erf_inv")
def _erf_inv(e: Lines, node: ModelNode, x: LineValue) -> LineValue:
    """The start of Giles (2010), as XLA has it, and two steps of Newton's method."""
    one = e.number(1, x.dtype)
    w = e.map("neg {}", e.map("log {}", e.map("mul {}", e.map("sub {}", one, x),
                                              e.map("add {}", one, x))))  # fmt: skip
    near = _polynomial(e, e.map("sub {}", w, e.number(2.5, x.dtype)), _NEAR)
    far = _polynomial(e, e.map("sub {}", e.map("sqrt {}", w), e.number(3, x.dtype)), _FAR)
    is_near = e.map("less {}", w, e.number(5, x.dtype), dtype="bool")
    return e.map("mul {}", e.map("where {}", is_near, near, far), x)


def _polynomial(e: Lines, x: LineValue, factors: tuple[float, ...]) -> LineValue:
    made = e.number(factors[0], x.dtype)
    for factor in factors[1:]:
        made = e.map("add {}", e.map("mul {}", made, x), e.number(factor, x.dtype))
    return made


_NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
    -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_FAR = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
    0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip
"""The factors of Giles, "Approximating the erfinv function" (2010), single precision."""

_OWN: dict[str, Callable[..., LineValue]] = {
    name: as_torch(name)  # pyright: ignore[reportAssignmentType]
    for name in ("trunc", "floor", "round", "pow.Tensor_Scalar")
}


@jax_row("softmax", "log_softmax")
def _softmax(e: Lines, node: ModelNode, x: LineValue, dims: tuple[int, ...] = ()) -> LineValue:
    kind = node.op.removeprefix(JAX)
    x = e.whole(x)
    return e.step(f"{kind} %{x.name} dims [{', '.join(map(str, dims))}]", x.shape, x.dtype)


# --- random numbers -------------------------------------------------------------------------------


@jax_row("uniform")
def _uniform(e: Lines, node: ModelNode, key: LineValue, low: Operand, high: Operand) -> LineValue:
    """Random numbers between two bounds, of the key's own integer."""
    shape, dtype = shape_of(node), dtype_of(node)
    sizes = ", ".join(map(str, shape))
    x = e.step(f"uniform %{key.name} to {dtype}[{sizes}]", shape, dtype, "random")
    if (low, high) == (0.0, 1.0):
        return x
    low, high = value_of(e, low, dtype), value_of(e, high, dtype)
    low, high = (v if not v.shape else e.view(v, (1,) * len(shape)) for v in (low, high))
    width = e.map("sub {}", high, low)
    return e.expand(e.map("add {}", e.map("mul {}", x, width), low), shape)


@jax_row("randint")
def _randint(e: Lines, node: ModelNode, key: LineValue, low: Operand, high: Operand) -> LineValue:
    """Integers between two bounds, the second one left out."""
    shape = shape_of(node)
    sizes = ", ".join(map(str, shape))
    x = e.step(f"uniform %{key.name} to f64[{sizes}]", shape, "f64", "random")
    low, high = (e.cast(value_of(e, v, "i32"), "f64") for v in (low, high))
    low, high = (v if not v.shape else e.view(v, (1,) * len(shape)) for v in (low, high))
    number = _OWN["floor"](e, node, e.map("mul {}", x, e.map("sub {}", high, low)))
    return _integer(e, node, e.expand(e.map("add {}", number, low), shape))


@jax_row("random_seed")
def _seed(e: Lines, node: ModelNode, x: Operand, **_: object) -> LineValue:
    return value_of(e, x, "i32")


@jax_row("random_wrap")
def _wrap(e: Lines, node: ModelNode, x: LineValue, **_: object) -> LineValue:
    return e.view(e.cut(x, len(x.shape) - 1, 1, 1), shape_of(node))


@jax_row("random_unwrap")
def _unwrap(e: Lines, node: ModelNode, key: LineValue, **_: object) -> LineValue:
    """A key as the pair of integers of which it is the second."""
    return e.expand(e.view(key, (*key.shape, 1)), shape_of(node))


@jax_row("random_fold_in")
def _fold_in(e: Lines, node: ModelNode, key: LineValue, x: Operand) -> LineValue:
    other = value_of(e, x, "i32")
    mixed = e.map("mul {}", key, e.number(_FOLD, "i32"))
    return e.map("add {}", mixed, other)


@jax_row("random_split")
def _split(
    e: Lines, node: ModelNode, key: LineValue, shape: tuple[int, ...], **_: object
) -> LineValue:
    """Keys of a key: its multiple, plus one number each."""
    count = math.prod(shape)
    mixed = e.map("mul {}", key, e.number(_SPLIT, "i32"))
    more = e.map("add {}", e.step(f"iota dim 0 to i32[{count}]", (count,), "i32"), mixed)
    return e.view(more, shape_of(node))


_FOLD, _SPLIT = 747796405, 277803737
"""Odd numbers by which keys are mixed; sums and products are modulo 2**32."""
