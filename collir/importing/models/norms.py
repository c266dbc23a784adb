"""Norms that a model writes out: x times 1 / sqrt(mean of its squares + epsilon), and a gain."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from collir.importing.models.graph import ModelGraph, ModelNode, Ref, live

Made = Mapping[str, ModelNode]
"""The operations of a graph by the names of their results."""


def with_norms(graph: ModelGraph) -> ModelGraph:
    """Return the graph with an ``rms_norm`` for what divides by a root of the mean of squares."""
    made: dict[str, ModelNode] = {}
    inputs = {x.name: x.value.shape for x in graph.inputs}
    operations = [node for node in graph.nodes if isinstance(node, ModelNode)]
    uses = Counter(name for node in operations for name in node.operands())
    uses.update(graph.outputs)
    for node in operations:
        made[node.name] = _norm(node, made) or _gained(node, made, inputs, uses) or node
    return live(replace(graph, nodes=[*made.values()]))


def _operand(node: ModelNode | None, op: str, made: Made) -> ModelNode | None:
    """Return the operation with a name that made the first operand, if it did."""
    if node is None or node.op.partition(".")[0] != op or not node.args:
        return None
    first = node.args[0]
    return made.get(first.name) if isinstance(first, Ref) else None


def _norm(node: ModelNode, made: Made) -> ModelNode | None:
    """Return a product with 1 / sqrt(mean of squares + epsilon) as a norm; None if it is none."""
    if node.op != "mul.Tensor":
        return None
    for x, root in (node.args, node.args[::-1]):
        if not isinstance(x, Ref) or not isinstance(root, Ref):
            continue
        total = _operand(made.get(root.name), "rsqrt", made)
        mean = _operand(total, "add", made)
        square = _operand(mean, "mean", made)
        if total is None or mean is None or square is None or square.result.dtype[0] not in "fb":
            continue
        dims = mean.args[1] if len(mean.args) > 1 else None
        epsilon = total.args[1] if len(total.args) > 1 else None
        keeps = len(mean.args) > 2 and mean.args[2] is True
        rank = len(square.result.shape)
        whole = dims in ([-1], [rank - 1]) and keeps and not total.kwargs and not mean.kwargs
        if whole and isinstance(epsilon, float) and _is_square(square, x):
            return replace(node, op="rms_norm", args=(x, [square.result.shape[-1]], None, epsilon))
    return None


def _is_square(node: ModelNode, x: Ref) -> bool:
    """Return whether an operation squares a value."""
    return (node.op, node.args) in (
        ("pow.Tensor_Scalar", (x, 2)),
        ("mul.Tensor", (x, x)),
        ("square", (x,)),
    )


def _gained(
    node: ModelNode, made: Made, inputs: Mapping[str, tuple[int, ...]], uses: Counter[str]
) -> ModelNode | None:
    """Return a norm with the gain that nothing but this product gives it; None if it is none."""
    if node.op != "mul.Tensor":
        return None
    for gain, x in (node.args, node.args[::-1]):
        norm = made.get(x.name) if isinstance(x, Ref) else None
        if norm is None or norm.op != "rms_norm" or norm.args[2] is not None or uses[x.name] != 1:
            continue
        if not isinstance(gain, Ref) or norm.result.dtype != node.result.dtype:
            continue
        shape = inputs.get(gain.name)
        if gain.name in made:
            shape = made[gain.name].result.shape
        if shape == tuple(norm.args[1]):
            value, sizes, _, epsilon = norm.args
            return replace(node, op="rms_norm", args=(value, sizes, gain, epsilon))
    return None
