"""DistIR's operations: their shapes, their seconds and the bytes of their values.

A shape is a tuple of extents: ``rows`` (of a microbatch), ``width`` (of the model) or ``part``
(width / tensor). Extents have values as arrays, an element for each configuration.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Extent = Literal["rows", "width", "part"]
Shape = tuple[Extent, ...]
Integers = NDArray[np.int64]
Seconds = NDArray[np.float64]
Extents = Mapping[Extent, Integers]

ELEMENT_BYTES = 2
LABEL_BYTES = 4
"""Bytes of the number of rows, an integer that the loss divides by."""

COMPUTE = 1.4e13
"""Operations of floating point in a second."""
MEMORY = 9e11
"""Bytes read from memory in a second."""
LAUNCH = 1e-5
"""Seconds before an operation begins."""
NETWORK = 25 * 1.25e8
"""Bytes sent in a second between every two devices: 25 Gbit/s."""


@dataclass(frozen=True)
class Operation:
    """An operation of a task.

    Attributes:
        kind: DistIR's name.
        shape: the extents that its cost depends on.
        adds: the shapes of the results that take memory.
        frees: the shapes of the operands that are used for the last time.
        grows: whether the result is all pieces so far: as many as microbatches began.
    """

    kind: str
    shape: Shape
    adds: tuple[Shape, ...] = ()
    frees: tuple[Shape, ...] = ()
    grows: bool = False


def elements(shape: Shape, extents: Extents) -> Integers:
    """Return the number of elements of a shape."""
    product = extents[shape[0]]
    for extent in shape[1:]:
        product = product * extents[extent]
    return product


def size(shape: Shape, extents: Extents) -> Integers:
    """Return the bytes of a value of a shape."""
    return ELEMENT_BYTES * elements(shape, extents)


def _product(r: Integers, s: Integers, t: Integers) -> Seconds:
    """Return the seconds of a product of r x s and s x t."""
    read = ELEMENT_BYTES * (r * s + s * t)
    return LAUNCH + read / MEMORY + 2.0 * r * s * t / COMPUTE


def _elementwise(operands: int) -> Callable[[Shape, Extents], Seconds]:
    """Return the cost of an elementwise operation of a number of operands."""

    def seconds(shape: Shape, extents: Extents) -> Seconds:
        count = elements(shape, extents)
        return LAUNCH + operands * ELEMENT_BYTES * count / MEMORY + count / COMPUTE

    return seconds


def _matmul(shape: Shape, extents: Extents) -> Seconds:
    b, i, o = (extents[extent] for extent in shape)
    return _product(b, i, o)


def _matmul_gradient(shape: Shape, extents: Extents) -> Seconds:
    """Return the cost of the gradients of both operands of a product, two launches."""
    b, i, o = (extents[extent] for extent in shape)
    return _product(b, o, i) + _product(i, b, o)


def _constant(seconds: float) -> Callable[[Shape, Extents], Seconds]:
    return lambda shape, extents: np.full(extents["rows"].shape, seconds)


def send_seconds(sent: Integers) -> Seconds:
    """Return the seconds of a Send of some bytes, on both of its ends."""
    return sent / NETWORK


def allreduce_seconds(reduced: Integers, devices: Integers) -> Seconds:
    """Return the seconds of an MPIAllreduce of some bytes on each of the devices."""
    return 2 * reduced * (devices - 1) / devices / NETWORK


COSTS: dict[str, Callable[[Shape, Extents], Seconds]] = {
    "MatMul": _matmul,
    "MatMulGrad": _matmul_gradient,
    "Relu": _elementwise(1),
    "ReluGrad": _elementwise(2),
    "Loss": _elementwise(1),
    "LossGrad": _elementwise(1),
    "Add": _elementwise(2),
    "Identity": _constant(0.0),
    "Concat": _constant(LAUNCH),
    "SGDOptimizer": _elementwise(2),
}
"""Kind of an operation on one device -> its seconds for a shape.

The shape is (rows, inputs, outputs) of a product, that of an operand of any other operation; of
SGDOptimizer that of one weight, whatever the number of weights.
"""
