"""Constants of a model: computed while it is imported, and written by their rules.

Masks and positions reach the graph as arithmetic on numbers from 0 on. The results are compared
with the forms of constants in programs: one number, numbers in steps, a mask of neighbours. Other
constants are arguments of the function, with their elements beside it.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from collir.importing.models.graph import (
    ModelGraph,
    ModelInput,
    ModelNode,
    Ref,
    RepeatedNodes,
    Shaped,
)
from collir.importing.models.lines import Lines, LineValue
from collir.importing.models.rows.table import row

CONSTANT = "collir.constant"
"""The operation of a node that is a constant, whose only argument is its array."""


def named_constants(graph: ModelGraph) -> ModelGraph:
    """Return the graph with inputs for the constants that fit no form. Equal ones are one input,
    without dimensions that only repeat."""
    inputs, constants = list(graph.inputs), dict(graph.constants)
    nodes: list[ModelNode | RepeatedNodes] = []
    known: dict[tuple[object, ...], ModelInput] = {}
    for node in graph.nodes:
        assert isinstance(node, ModelNode)
        if node.op != CONSTANT or form_of(node.args[0]) is not None:
            nodes.append(node)
            continue
        least = np.ascontiguousarray(unrepeated(node.args[0]))
        key = (least.shape, least.dtype.str, node.result.dtype, least.tobytes())
        if (own := known.get(key)) is None:
            name = f"constant_{len(constants) + 1}"
            constants[name] = least
            own = ModelInput(
                f"{node.name}_", Shaped(least.shape, node.result.dtype), name, "constant"
            )
            known[key] = own
            inputs.append(own)
        nodes.append(replace(node, op="expand", args=(Ref(own.name),)))
    return ModelGraph(inputs, nodes, graph.outputs, constants)


@row(CONSTANT)
def write_constant(e: Lines, node: ModelNode, x: "np.ndarray[Any, Any]") -> LineValue:
    """Write a constant by its rule."""
    result = node.result
    form = form_of(x)
    assert form is not None
    small, kind, numbers = form
    return e.expand(_written(e, small, kind, numbers, result.dtype), result.shape)


def _written(
    e: Lines, shape: tuple[int, ...], kind: str, numbers: list[float], dtype: str
) -> LineValue:
    if kind == "number":
        return e.number(numbers[0], dtype, shape)
    if kind == "steps":
        start, step = numbers
        x = e.iota(max(shape))
        x = e.cast(e.scale(x, step) if float(step).is_integer() else x, dtype)
        if not float(step).is_integer():
            x = e.scale(x, step)
        x = e.map("add {}", x, e.number(start, dtype)) if start else x
        return e.view(x, shape)
    if kind == "front":
        count, inside, outside = numbers
        there = e.map("less {}", e.iota(max(shape)), e.number(count, "i64"), dtype="bool")
        if dtype != "bool" or not inside:
            there = e.map("where {}", there, e.number(inside, dtype), e.number(outside, dtype))
        return e.view(there, shape)
    rows, columns = (d for d, n in enumerate(shape) if n > 1)
    query = e.view(
        e.iota(shape[rows]), [shape[rows] if d == rows else 1 for d in range(len(shape))]
    )
    key = e.view(
        e.iota(shape[columns]), [shape[columns] if d == columns else 1 for d in range(len(shape))]
    )
    ahead = e.map("sub {}", key, query)
    low, high, inside, outside = numbers
    seen = e.map("less_equal {}", ahead, e.number(high, "i64"), dtype="bool")
    if low > -shape[rows]:
        near = e.map("greater_equal {}", ahead, e.number(low, "i64"), dtype="bool")
        seen = e.map("where {}", seen, near, e.number(0, "bool"))
    if dtype == "bool" and inside:
        return seen
    return e.map("where {}", seen, e.number(inside, dtype), e.number(outside, dtype))


def form_of(x: "np.ndarray[Any, Any]") -> tuple[tuple[int, ...], str, list[float]] | None:
    """Return the shape that is repeated, the name of the form, and its numbers.

    A front is given by the number of its elements, by these, and by those behind. A band is given
    by the least and the largest distance of a column ahead of its row, and by its elements inside
    and outside.
    """
    if x.size == 0:
        return None
    x = unrepeated(x)
    if x.size == 1:
        return x.shape, "number", [x.item()]
    long: list[int] = [n for n in x.shape if n > 1]
    if len(long) == 1:
        flat = x.reshape(-1)
        step = 0.0 if x.dtype == np.bool_ else (flat[1] - flat[0]).item()
        whole = step and (x.dtype.kind != "f" or float(step).is_integer())
        if whole and np.array_equal(flat, flat[0] + step * np.arange(flat.size)):
            return x.shape, "steps", [flat[0].item(), step]
        [*changes] = np.flatnonzero(flat[1:] != flat[:-1])
        if len(changes) == 1:
            return x.shape, "front", [int(changes[0]) + 1, flat[0].item(), flat[-1].item()]
    if len(long) != 2:
        return None
    table = x.reshape(long)
    values = np.unique(table)
    if len(values) != 2:
        return None
    ahead: np.ndarray[Any, Any] = np.subtract.outer(np.arange(long[1]), np.arange(long[0])).T
    for inside, outside in (values[::-1], values):  # of truth values, the true ones first
        is_inside = table == inside
        low, high = (int(edge(ahead, where=is_inside, initial=start)) for edge, start in
                     ((np.min, long[1]), (np.max, -long[0])))  # fmt: skip
        if np.array_equal(is_inside, (ahead >= low) & (ahead <= high)):
            low = -long[0] if low == 1 - long[0] else low
            return x.shape, "band", [low, high, inside.item(), outside.item()]
    return None


def unrepeated(x: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Return an array with one element along the dimensions that repeat it."""
    for dim in sorted(range(x.ndim), key=lambda d: x.strides[d] != 0):
        first = x[(slice(None),) * dim + (slice(0, 1),)]
        if x.shape[dim] > 1 and (
            x.strides[dim] == 0
            or np.array_equal(x, np.broadcast_to(first, x.shape), equal_nan=x.dtype.kind == "f")
        ):
            x = first
    return x


def constant_node(
    name: str, x: "np.ndarray[Any, Any]", dtype: str, path: str, line: str
) -> ModelNode:
    """Return the node of a constant."""
    return ModelNode(name, CONSTANT, (x,), {}, (Shaped(tuple(x.shape), dtype),), path, line)
