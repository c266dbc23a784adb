"""Softmaxes that a framework writes as their steps, as one operation."""

from dataclasses import replace

from collir.importing.models.graph import ModelGraph, ModelNode, Ref, RepeatedNodes, live
from collir.importing.models.rows.table import JAX

_SILENT = {f"{JAX}{name}" for name in ("broadcast_in_dim", "stop_gradient", "reshape", "squeeze")}


def with_softmaxes(graph: ModelGraph) -> ModelGraph:
    """Return the graph with ``softmax`` and ``log_softmax`` in the place of their steps, in the
    bodies of loops too."""
    finder = _Finder([node for node in graph.nodes if isinstance(node, ModelNode)])
    nodes: list[ModelNode | RepeatedNodes] = []
    for node in graph.nodes:
        assert isinstance(node, ModelNode)
        if isinstance(body := node.kwargs.get("body"), ModelGraph):
            node = replace(node, kwargs={**node.kwargs, "body": with_softmaxes(body)})
        nodes.append(finder.softmax(node))
    return live(replace(graph, nodes=nodes), inputs=graph.inputs)


class _Finder:
    def __init__(self, nodes: list[ModelNode]):
        self._made = {node.name: node for node in nodes}

    def _is(self, x: object, op: str) -> ModelNode | None:
        node = self._made.get(x.name) if isinstance(x, Ref) else None
        return node if node is not None and node.op == JAX + op else None

    def _behind(self, x: object) -> object:
        """Return what silent operations begin with."""
        while isinstance(x, Ref) and x.name in self._made and self._made[x.name].op in _SILENT:
            x = self._made[x.name].args[0]
        return x

    def _less_most(self, x: object) -> tuple[object, tuple[int, ...]] | None:
        """Return the value that a difference is of, less its largest elements, and their
        dimensions."""
        less = self._is(x, "sub")
        if less is None:
            return None
        whole, most = less.args[0], self._behind(less.args[1])
        bounded = self._is(most, "max")
        if bounded is not None:
            values = [v for v in bounded.args if isinstance(v, Ref)]
            numbers = [v for v in bounded.args if not isinstance(v, Ref)]
            if len(values) != 1 or numbers != [float("-inf")]:
                return None
            most = self._behind(values[0])
        largest = self._is(most, "reduce_max")
        if largest is None or largest.args[0] != whole:
            return None
        return whole, tuple(int(d) for d in largest.kwargs["axes"])

    def softmax(self, node: ModelNode) -> ModelNode:
        """Return a softmax in the place of its last step, or the step as it is."""
        if node.op == f"{JAX}div":
            top, total = node.args[0], self._is(self._behind(node.args[1]), "reduce_sum")
            power = self._is(top, "exp")
            if power is None or total is None or total.args[0] != top:
                return node
            return self._as(node, "softmax", power.args[0], total)
        if node.op == f"{JAX}sub":
            logs = self._is(self._behind(node.args[1]), "log")
            total = self._is(self._behind(logs.args[0]), "reduce_sum") if logs else None
            power = self._is(total.args[0], "exp") if total else None
            if total is None or power is None or power.args[0] != node.args[0]:
                return node
            return self._as(node, "log_softmax", node.args[0], total)
        return node

    def _as(self, node: ModelNode, op: str, shifted: object, total: ModelNode) -> ModelNode:
        found = self._less_most(shifted)
        if found is None or tuple(int(d) for d in total.kwargs["axes"]) != found[1]:
            return node
        whole, dims = found
        return replace(node, op=JAX + op, args=(whole,), kwargs={"dims": dims})
