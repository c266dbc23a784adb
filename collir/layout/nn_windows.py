"""The rows of the nn dialect that look through windows.

Windows are over all dimensions between the first, the batch, and the last, the channels.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial

from collir.layout import nn_gradients as gradients
from collir.layout.dtypes import Reduction
from collir.layout.errors import LayoutError
from collir.layout.gradients import Gradient
from collir.layout.nn_rows import (
    PADDING,
    STRIDE,
    WINDOW,
    check_numbers,
    model_row,
    named_type,
    own_indices,
)
from collir.layout.sizes import OpenSize, ShardedSize, same_size
from collir.layout.steps import TO, Arguments, Parameter, StepKind
from collir.layout.structure import Linear, Structure, sizes_of
from collir.layout.types import DistType


def _listed(name: str, arguments: Arguments, parameter: Parameter, least: int) -> list[int]:
    """Return an argument that has an integer for each windowed dimension.

    Raises:
        LayoutError: one is too small.
    """
    values = arguments[parameter.name]
    assert isinstance(values, tuple)
    numbers = [value for value in values if isinstance(value, int)]
    if any(number < least for number in numbers):
        raise LayoutError(
            f"{name} needs numbers from {least} in {parameter.keyword}", parameter=parameter.name
        )
    return numbers


def _windows(
    name: str, x: DistType, window: Sequence[int], arguments: Arguments, fault: str
) -> list[int]:
    """Return the number of windows in each windowed dimension of the first operand, or of the type
    of the result.

    Args:
        fault: the parameter that gives the window or the type, if an argument does.

    Raises:
        LayoutError: the windows do not fit.
    """
    of = "the type" if fault == TO.name else "{0}"
    if len(x.dims) != len(window) + 2:
        raise LayoutError(
            f"{name} with a window of {list(map(int, window))} needs {of} with {len(window) + 2} "
            f"dimensions: the batch, the windowed ones, and the channels; it has {len(x.dims)}",
            operand=0,
            parameter=fault,
        )
    stride, padding = _listed(name, arguments, STRIDE, 1), _listed(name, arguments, PADDING, 0)
    for parameter, numbers in ((STRIDE, stride), (PADDING, padding)):
        if len(numbers) != len(window):
            raise LayoutError(
                f"{name} needs {len(window)} numbers in {parameter.keyword}, one for each windowed "
                f"dimension, not {len(numbers)}",
                parameter=parameter.name,
            )
    counts: list[int] = []
    for d, (width, step, more) in enumerate(zip(window, stride, padding, strict=True), 1):
        room = x.dims[d].size + 2 * more - width
        if more >= width or room < 0:
            problem = "is all padding somewhere" if more >= width else "does not fit"
            raise LayoutError(
                f"{name} has a window of {width} over dimension {d} of {of}, of size "
                f"{x.dims[d].size} and a padding of {more} at both ends: it {problem}",
                operand=0,
                parameter=fault or PADDING.name,
            )
        counts.append(_count(room, step))
    return counts


def _count(room: int, step: int) -> int:
    """Return the number of windows, with a formula if the size has one.

    Args:
        room: the distance between the first window and the last place for another one.

    Where the last windows leave a rest, the formula is that of sizes with this rest: 112 of 224
    pixels, in windows of 7 with a padding of 3 at both ends, are half of the size.
    """
    is_open = isinstance(room, OpenSize) and not isinstance(room, ShardedSize)
    rest = 0 if is_open else room % step
    return (room - rest) // step + 1


def _products(
    indices: Sequence[tuple[str, ...]],
    result: tuple[str, ...],
    sizes: Mapping[str, int],
    blocked: tuple[str, ...],
    whole: Sequence[str],
) -> Structure:
    """Return the structure of sums of products of windows over dimensions that are whole."""
    return Structure(
        tuple(indices),
        result,
        sizes,
        linear=Linear.EACH,
        blocked=frozenset(blocked),
        flops=2,
        selected=frozenset(whole),
    )


def _conv(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    x, w = xs
    spatial = len(w.dims) - 2
    check_numbers("conv", x)
    if spatial < 1:
        raise LayoutError(
            "conv needs {1} with a window, the channels of {0} and those of the result: at least "
            f"3 dimensions, not {len(w.dims)}",
            operand=1,
        )
    counts = _windows("conv", x, w.shape[:spatial], arguments, "")
    whole, window = own_indices(x, 0)[1:-1], own_indices(w, 1)[:spatial]
    indices = [("0", *whole, "channels"), (*window, "channels", "features")]
    sizes: dict[str, int] = sizes_of("conv", xs, indices)
    made = [f"{d}" for d in range(1, spatial + 1)]
    sizes |= dict(zip(made, counts, strict=True))
    return _products(indices, ("0", *made, "features"), sizes, (*whole, *window), whole)


model_row(
    "conv",
    "Multiply windows of dimensions with a filter and sum over them and the channels.",
    _conv,
    2,
    (STRIDE, PADDING),
    aliases=("conv2d", "convolution"),
    gradient=gradients.conv,
)


def _check_windows(name: str, x: DistType, number: int, shape: Sequence[int]) -> None:
    """Check that an operand has the windows of a larger one.

    Raises:
        LayoutError: it has not.
    """
    if not same_size(x.shape[1:-1], shape):
        raise LayoutError(
            f"{name} needs {{{number}}} with {list(map(int, shape))} windows, and it is "
            f"{list(map(int, x.shape))}",
            operand=number,
        )


def _conv_transpose(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    (g, w), to, name = xs, named_type(arguments), "conv_transpose"
    spatial = len(w.dims) - 2
    check_numbers(name, g)
    if spatial < 1 or len(to.dims) != len(w.dims):
        raise LayoutError(
            f"{name} needs {{1}} and the type with one number of dimensions, at least 3: they have "
            f"{len(w.dims)} and {len(to.dims)}",
            operand=1,
        )
    counts = _windows(name, to, w.shape[:spatial], arguments, TO.name)
    _check_windows(name, g, 0, counts)
    made = tuple(f"{d}" for d in range(1, spatial + 1))
    window, whole = own_indices(w, 1)[:spatial], own_indices(to, 2)[1:-1]
    indices = [("0", *made, "features"), (*window, "channels", "features")]
    sizes: dict[str, int] = sizes_of(name, xs, indices)
    sizes |= dict(zip(whole, to.shape[1:-1], strict=True))
    return _products(indices, ("0", *whole, "channels"), sizes, (*made, *window, *whole), whole)


model_row(
    "conv_transpose",
    "Add products with a filter to the windows of zeros: the transpose of a conv in its input.",
    _conv_transpose,
    2,
    (STRIDE, PADDING, TO),
    aliases=("conv2d_transpose", "deconv"),
    gradient=gradients.conv_transpose,
)


def _conv_filter(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    (x, g), to, name = xs, named_type(arguments), "conv_filter"
    spatial = len(to.dims) - 2
    check_numbers(name, x)
    if spatial < 1 or not len(x.dims) == len(g.dims) == len(to.dims):
        raise LayoutError(
            f"{name} needs {{0}}, {{1}} and the type with one number of dimensions, at least 3: "
            f"they have {len(x.dims)}, {len(g.dims)} and {len(to.dims)}",
            operand=1,
        )
    counts = _windows(name, x, to.shape[:spatial], arguments, "")
    _check_windows(name, g, 1, counts)
    made = tuple(f"{d}" for d in range(1, spatial + 1))
    whole, window = own_indices(x, 0)[1:-1], own_indices(to, 2)[:spatial]
    indices = [("0", *whole, "channels"), ("0", *made, "features")]
    sizes: dict[str, int] = sizes_of(name, xs, indices)
    sizes |= dict(zip(window, to.shape[:spatial], strict=True))
    return _products(
        indices, (*window, "channels", "features"), sizes, (*made, *whole, *window), whole
    )


model_row(
    "conv_filter",
    "Sum products of windows with another operand: the transpose of a conv in its filter.",
    _conv_filter,
    2,
    (STRIDE, PADDING, TO),
    gradient=gradients.conv_filter,
)


def _pool(
    name: str,
    doc: str,
    reduction: Reduction,
    linear: Linear,
    gradient: Gradient,
    floats: bool = False,
) -> StepKind:
    """Add the row of a reduction over windows."""

    def structure(xs: Sequence[DistType], arguments: Arguments) -> Structure:
        (x,) = xs
        check_numbers(name, x, floats)
        window = _listed(name, arguments, WINDOW, 1)
        counts = _windows(name, x, window, arguments, WINDOW.name)
        whole = own_indices(x, 0)[1:-1]
        made = [f"{d}" for d in range(1, len(window) + 1)]
        indices = ("0", *whole, "channels")
        sizes: dict[str, int] = sizes_of(name, xs, [indices])
        sizes |= dict(zip(made, counts, strict=True))
        return Structure(
            (indices,),
            ("0", *made, "channels"),
            sizes,
            reduction,
            linear,
            frozenset(whole),
            math.prod(window),
            frozenset(whole),
        )

    return model_row(name, doc, structure, 1, (WINDOW, STRIDE, PADDING), gradient=gradient)


_pool(
    "max_pool",
    "Return the largest element of every window.",
    Reduction.MAX,
    Linear.NOT,
    gradients.max_pool,
)
_pool(
    "avg_pool",
    "Return the average of every window, in which the padding counts as zeros.",
    Reduction.SUM,
    Linear.ALL,
    gradients.avg_pool,
    floats=True,
)


def _pool_transpose(name: str, xs: Sequence[DistType], arguments: Arguments) -> Structure:
    """Return the structure of what adds to the windows of a second operand, or of a type."""
    g, to = xs[0], xs[1] if len(xs) > 1 else named_type(arguments)
    check_numbers(name, g, floats=len(xs) == 1)
    window = _listed(name, arguments, WINDOW, 1)
    counts = _windows(name, to, window, arguments, TO.name)
    _check_windows(name, g, 0, counts)
    made = tuple(f"{d}" for d in range(1, len(window) + 1))
    whole = own_indices(to, 1)[1:-1]
    indices = [("0", *made, "channels"), ("0", *whole, "channels")]
    sizes: dict[str, int] = sizes_of(name, [g, to], indices)
    return Structure(
        tuple(indices[: len(xs)]),
        indices[1],
        sizes,
        linear=Linear.FIRST if len(xs) > 1 else Linear.ALL,
        blocked=frozenset([*made, *whole]),
        flops=math.prod(window),
        selected=frozenset(whole),
    )


model_row(
    "max_pool_transpose",
    "Add to zeros at the first largest element of every window: the gradient of max_pool.",
    partial(_pool_transpose, "max_pool_transpose"),
    2,
    (WINDOW, STRIDE, PADDING),
)
model_row(
    "avg_pool_transpose",
    "Add to the windows of zeros, divided by their size: the transpose of avg_pool.",
    partial(_pool_transpose, "avg_pool_transpose"),
    1,
    (WINDOW, STRIDE, PADDING, TO),
    gradient=gradients.avg_pool_transpose,
)
