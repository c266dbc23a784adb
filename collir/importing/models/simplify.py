"""Masks that only order positions, and repeated heads, as properties of attention."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from collir.importing.models.constants import CONSTANT, form_of
from collir.importing.models.graph import ModelGraph, ModelNode, Ref, RepeatedNodes, live

_JOINS = ("cat", "concat", "concatenate")
_ATTENTION = "scaled_dot_product_attention"
_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def simplified(graph: ModelGraph) -> ModelGraph:
    """Return the graph with two facts stated in each attention: the positions that it sees, and the
    heads that share keys and values."""
    made = {node.name: node for node in graph.nodes if isinstance(node, ModelNode)}
    shapes = {x.name: x.value.shape for x in graph.inputs}
    shapes |= {name: node.results[0].shape for name, node in made.items() if node.results[0]}
    nodes: list[ModelNode | RepeatedNodes] = []

    @cache  # layers have the same mask, as large as the square of a sequence
    def order(mask: str) -> tuple[int, int] | None:
        return _order(made.get(mask))

    for node in graph.nodes:
        assert isinstance(node, ModelNode)
        node = _without_nothing(node, shapes) if node.op in _JOINS else node
        nodes.append(_attention(node, made, order) if node.op == _ATTENTION else node)
    return live(ModelGraph(graph.inputs, nodes, graph.outputs, graph.constants))


def _without_nothing(node: ModelNode, shapes: Mapping[str, tuple[int, ...]]) -> ModelNode:
    """Return a join without values that have no elements."""
    parts, *rest = node.args
    kept = [x for x in parts if math.prod(shapes.get(x.name, (1,)))]
    return replace(node, args=(kept, *rest)) if kept else node


def _attention(
    node: ModelNode, made: Mapping[str, ModelNode], order: Callable[[str], tuple[int, int] | None]
) -> ModelNode:
    arguments = dict(zip(_NAMES, node.args, strict=False)) | dict(node.kwargs)
    mask = arguments.get("attn_mask")
    if isinstance(mask, Ref) and (seen := order(mask.name)) is not None:
        low, high = seen
        result = made[mask.name].result
        rows, columns = result.shape[-2:]
        if high == 0 and rows == columns:
            arguments |= {"attn_mask": None, "is_causal": True}
            arguments |= {"window": 1 - low} if low > -rows else {}
        elif high >= columns - 1 and low <= 1 - rows:
            arguments["attn_mask"] = None
    key, value = arguments["key"], arguments["value"]
    shared = [_unrepeated(x, made) for x in (key, value)]
    if not arguments.get("enable_gqa") and all(shared):
        arguments |= {"key": shared[0], "value": shared[1], "enable_gqa": True}
    return replace(node, args=(), kwargs=arguments)


def _order(node: ModelNode | None) -> tuple[int, int] | None:
    """Return the least and the largest distance of a key ahead of its query that a mask allows."""
    if node is None or node.op != CONSTANT:
        return None
    form = form_of(node.args[0])
    result = node.results[0]
    if form is None or result is None:
        return None
    shape, kind, numbers = form
    is_bool = result.dtype == "bool"
    if kind == "number" and numbers[0] == (1 if is_bool else 0):
        return -result.shape[-2], result.shape[-1]
    if kind != "band" or shape[-2:] != result.shape[-2:]:
        return None
    low, high, inside, outside = numbers
    if (is_bool and inside) or (not is_bool and inside == 0 and outside < -1e4):
        return int(low), int(high)
    return None


def _unrepeated(x: object, made: Mapping[str, ModelNode]) -> Ref | None:
    """Return the keys or values whose heads are each repeated some times, in place."""
    if not isinstance(x, Ref) or x.name not in made:
        return None
    node = made[x.name]
    if node.op not in ("view", "reshape", "_unsafe_view") or not isinstance(node.args[0], Ref):
        return None
    wide = made.get(node.args[0].name)
    if wide is None or wide.op != "expand" or not isinstance(wide.args[0], Ref):
        return None
    apart = made.get(wide.args[0].name)
    if apart is None or apart.op != "unsqueeze" or apart.args[1] != 2:
        return None
    full, result = wide.results[0], node.results[0]
    if full is None or result is None or len(full.shape) != 5:
        return None
    batch, kv, times, *rest = full.shape
    inner = apart.args[0]
    return inner if result.shape == (batch, kv * times, *rest) and isinstance(inner, Ref) else None
