"""Operations of models as steps with the same result, which also work on sharded dimensions.

An expansion takes the step with its operands, and returns its result. Sums and extremes over a
sharded dimension are reduced where they are used, so every device computes its own block of the
rest. Short floating-point types are computed in f32 in between, as the operations themselves are.
"""

import math
from collections.abc import Callable, Sequence

from collir.layout.dtypes import DType
from collir.layout.gradients import Forward, Term
from collir.layout.types import DistType

Expansion = Callable[[Forward], Term]
"""A function from a step with its operands to its result."""


def _wide(f: Forward, operand: int = 0) -> Term:
    """Return an operand in a type in which sums are computed."""
    x = f.x[operand]
    return x.step("cast", dtype=str(DType.F32)) if f.types[0].dtype.is_short else x


def _narrow(f: Forward, x: Term) -> Term:
    """Return a result in the type of the first operand."""
    return x.step("cast", dtype=str(f.types[0].dtype)) if f.types[0].dtype.is_short else x


def _over(f: Forward, operation: str, x: Term) -> Term:
    """Return a reduction over the dimensions of a step, which stay with size 1."""
    return x.step(operation, dims=f.arguments["dims"], keepdims=True).whole()


# ---------------------------------------------------------------------------------------------
# Exponentials
# ---------------------------------------------------------------------------------------------


def softmax(f: Forward) -> Term:
    """Return e^(x - max) divided by its sum."""
    x = _wide(f)
    e = (x - _over(f, "max", x)).step("exp")
    return _narrow(f, e / _over(f, "sum", e))


def log_softmax(f: Forward) -> Term:
    """Return x - max, less the logarithm of the sum of its exponentials."""
    x = _wide(f)
    shifted = x - _over(f, "max", x)
    return _narrow(f, shifted - _over(f, "sum", shifted.step("exp")).step("log"))


def cross_entropy(f: Forward) -> Term:
    """Return the logarithm of the sum of e^(x - max), less the x - max of the label; 0 where there
    is no label."""
    logits = f.types[0]
    dim: int = f.arguments["dim"]
    last = len(logits.dims) - 1
    x = _wide(f)
    shifted = x - x.step("max", dims=(dim,), keepdims=True).whole()
    total = shifted.step("exp").step("sum", dims=(dim,)).whole()
    dims = (*logits.dims[:dim], *logits.dims[dim + 1 :], logits.dims[dim])
    dtype = DType.F32 if f.types[0].dtype.is_short else logits.dtype
    label = f.x[1].step("one_hot", to=DistType(dtype, dims, place=logits.place))
    if dim != last:
        label = label.step("transpose", order=(*range(dim), last, *range(dim, last)))
    known = label.step("sum", dims=(dim,)).whole()
    chosen = (label * shifted).step("sum", dims=(dim,)).whole()
    return _narrow(f, total.step("log") * known - chosen)


# ---------------------------------------------------------------------------------------------
# Averages
# ---------------------------------------------------------------------------------------------


def mean(f: Forward) -> Term:
    """Return the sum divided by its number of terms, also of blocks of several sizes."""
    total = _wide(f).step("sum", **f.arguments).whole()
    dims: Sequence[int] = f.arguments["dims"]
    count = math.prod(f.types[0].shape[dim] for dim in dims)
    return _narrow(f, total / total.full(count))


# ---------------------------------------------------------------------------------------------
# Normalisations
# ---------------------------------------------------------------------------------------------


def layer_norm(f: Forward) -> Term:
    """Return (x - mean) / sqrt(variance + eps), times the gain, plus the bias."""
    x = _wide(f)
    normalised = _over_root(f, x - _over(f, "mean", x))
    return _narrow(f, normalised * _aligned(f, 1) + _aligned(f, 2))


def rms_norm(f: Forward) -> Term:
    """Return x / sqrt(mean of squares + eps), times the gain."""
    return _narrow(f, _over_root(f, _wide(f)) * _aligned(f, 1))


def _over_root(f: Forward, x: Term) -> Term:
    """Return a value divided by the root of the mean of its squares and eps."""
    squares = _over(f, "mean", x * x)
    return x * (squares + squares.full(f.arguments["eps"])).step("rsqrt")


def _aligned(f: Forward, operand: int) -> Term:
    """Return a gain or a bias over the dimensions of the first operand, of size 1 where it has
    none."""
    x = _wide(f, operand)
    dims: Sequence[int] = f.arguments["dims"]
    order = tuple(sorted(range(len(dims)), key=dims.__getitem__))
    moved = x if order == tuple(range(len(dims))) else x.step("transpose", order=order)
    shape = tuple(n if d in dims else 1 for d, n in enumerate(f.types[0].shape))
    return moved if len(shape) == len(dims) else moved.step("reshape", shape=shape)


# ---------------------------------------------------------------------------------------------
# Maps
# ---------------------------------------------------------------------------------------------


def silu(f: Forward) -> Term:
    """Return x times its sigmoid."""
    x = _wide(f)
    return _narrow(f, x * x.step("sigmoid"))


def gelu(f: Forward) -> Term:
    """Return x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2."""
    x = _wide(f)
    inner = x + (x * x * x).step("scale", factor=0.044715)
    t = inner.step("scale", factor=math.sqrt(2 / math.pi)).step("tanh")
    return _narrow(f, (x * (t + t.full(1))).step("scale", factor=0.5))
