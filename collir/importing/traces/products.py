"""Products of matrices by the names and shapes of torch's operations."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from collir.importing.traces.loose import finite, integers, listed
from collir.importing.traces.trace import TracedProduct


def product_of(name: str, arguments: Mapping[str, Any]) -> TracedProduct | None:
    """Return the product that an operation is, if it is one and its shapes are recorded."""
    if not name.startswith("aten::"):
        return None
    shapes = [x for x in map(integers, listed(arguments.get("Input Dims"))) if x and min(x) >= 0]
    operation = name.removeprefix("aten::")
    match operation:
        case "mm" | "addmm" | "_scaled_mm":
            first = 1 if operation == "addmm" else 0
            pair = shapes[first : first + 2]
            return _matrices(pair, 2)
        case "bmm" | "baddbmm":
            first = 1 if operation == "baddbmm" else 0
            return _matrices(shapes[first : first + 2], 3)
        case "convolution" | "cudnn_convolution" | "mkldnn_convolution" | "_slow_conv2d_forward":
            return None  # its result has no shape here
        case _ if operation.startswith("_scaled_dot_product") or "flash_attention" in operation:
            return _attention(operation, shapes)
        case _:
            return None


def _matrices(pair: Sequence[Sequence[int]], rank: int) -> TracedProduct | None:
    if len(pair) != 2 or any(len(shape) != rank for shape in pair):
        return None
    (*batch, rows, inner), (*_, columns) = pair
    count = math.prod(batch)
    times = f"{count} of " if batch and count > 1 else ""
    return TracedProduct(
        finite(2 * count * rows * inner * columns), f"{times}{rows} x {inner} x {columns}"
    )


def _attention(operation: str, shapes: Sequence[Sequence[int]]) -> TracedProduct | None:
    """Return the two products of attention, or the five of its gradient."""
    shapes = [x for x in shapes if len(x) == 4]
    backward = "backward" in operation
    if len(shapes) < 3 + backward:
        return None
    query, key = shapes[backward], shapes[backward + 1]
    batch, heads, rows, width = query
    columns = key[2]
    work = finite(2 * batch * heads * rows * columns * width * (5 if backward else 2))
    text = f"attention of {batch} x {heads} x {rows} x {columns} x {width}"
    return TracedProduct(work, f"gradient of {text}" if backward else text)
