"""Alike layers, as one loop over their stacked weights.

Layers are the numbered modules of one list, such as ``model.layers.0``. Two layers are alike if
their operations are the same one by one: on their own values, on weights of the same types, on
values of the layer before, and on values that all share. Alternating layers form one iteration.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from collir.importing.models.graph import (
    ModelGraph,
    ModelInput,
    ModelNode,
    Ref,
    RepeatedNodes,
    Stack,
    mapped,
)
from collir.importing.models.lines import FLOATS

_PERIOD = 8
"""The most layers that are one iteration together."""


def rolled(graph: ModelGraph) -> ModelGraph:
    """Return the graph with loops over layers that are alike."""
    for container in _containers(graph.nodes):
        graph = _rolled_in(graph, container)
    return graph


def _containers(nodes: Sequence[ModelNode | RepeatedNodes]) -> list[str]:
    """Return the lists of modules, outermost first."""
    found: dict[str, set[int]] = {}
    for node in nodes:
        for match in re.finditer(r"(?:^|\.)(\d+)(?=\.|$)", node.path):
            found.setdefault(node.path[: match.start()], set()).add(int(match[1]))
    return [path for path, numbers in found.items() if len(numbers) > 1]


def _rolled_in(graph: ModelGraph, container: str) -> ModelGraph:
    """Return the graph with loops over the layers of one list of modules."""
    layers = _layers(graph, container)
    numbers = sorted(layers)
    loops = [node for node in graph.nodes if isinstance(node, RepeatedNodes)]
    if len(numbers) < 2 or any(_layer(loop, container) is not None for loop in loops):
        return graph
    moving = _moving(graph, {node.name for layer in layers.values() for node in layer})
    shared = _shared([layers[n] for n in numbers], moving)
    groups = [[node for node in layers[n] if node.name not in shared] for n in numbers]
    inside = {node.name for group in groups for node in group}
    fixed = {n.name for n in graph.nodes if isinstance(n, ModelNode)} - inside - moving
    for start, period, times in _runs([_signature(group, fixed) for group in groups]):
        iterations = [
            [node for group in groups[at : at + period] for node in group]
            for at in range(start, start + period * times, period)
        ]
        path = f"{container}.{numbers[start]}".strip(".") if period == 1 else container
        made = Rolling(graph, iterations, path).loop()
        if made is not None:
            graph = with_loop(graph, iterations, made)
    return graph


def _layers(graph: ModelGraph, container: str) -> dict[int, list[ModelNode]]:
    """Return the operations of each layer of a list, in order.

    What is computed between layers, and goes into later ones, belongs to the layer in front of it:
    ``x = x + layer(x)``. Behind the last layer, as many operations do as behind the one before.
    """
    first: dict[str, int] = {}  # the first layer that reads a value
    for node in reversed(graph.nodes):
        own = _layer(node, container)
        reader = first.get(node.name) if own is None and isinstance(node, ModelNode) else own
        if reader is not None:
            for operand in _read(node):
                first[operand] = min(reader, first.get(operand, reader))
    layers: dict[int, list[ModelNode]] = {}
    behind: list[ModelNode] = []
    current: int | None = None
    for node in graph.nodes:
        if not isinstance(node, ModelNode):
            continue
        own = _layer(node, container)
        if own is not None:
            current = own
        elif current is None or not container.startswith(node.path):
            continue
        elif node.name in first:
            own = current
        else:
            behind.append(node)
        if own is not None:
            layers.setdefault(own, []).append(node)
    *others, end = sorted(layers) or [0]
    missing = len(layers[others[-1]]) - len(layers[end]) if others else 0
    layers[end] = layers.get(end, []) + behind[: max(0, missing)]
    return layers


def _layer(node: ModelNode | RepeatedNodes, container: str) -> int | None:
    """Return the number of the layer of a list that an operation is in."""
    prefix = f"{container}." if container else ""
    if not node.path.startswith(prefix):
        return None
    number = node.path[len(prefix) :].partition(".")[0]
    return int(number) if number.isdigit() else None


def _moving(graph: ModelGraph, in_layers: Collection[str]) -> set[str]:
    """Return the values that go from layer to layer, and their dependents."""
    moving = {x.name for x in graph.inputs if x.kind == "argument" and x.value.dtype in FLOATS}
    weights = {x.name for x in graph.inputs if x.kind == "weight"}
    for node in graph.nodes:  # what an input reaches by way of no weight, and the layers do not
        if isinstance(node, RepeatedNodes):
            moving.update(after for *_, after in node.carries)
            continue
        outside = node.name not in in_layers
        for operand in node.operands():
            if operand in moving or (outside and operand in weights and _is_activation(node)):
                moving.add(node.name)
    return moving


def _shared(layers: Sequence[Sequence[ModelNode]], moving: Collection[str]) -> set[str]:
    """Return the operations in a layer that later layers read, and that do not depend on values
    between layers: tables of positions, a bias that the first layer makes."""
    of_layer = {node.name: number for number, layer in enumerate(layers) for node in layer}
    later = {
        operand
        for number, layer in enumerate(layers)
        for node in layer
        for operand in node.operands()
        if of_layer.get(operand, number) < number and operand not in moving
    }
    made = {node.name: node for layer in layers for node in layer}
    shared: set[str] = set()
    stack = list(later)
    while stack:
        name = stack.pop()
        if name in made and name not in shared:
            shared.add(name)
            stack += made[name].operands()
    return shared


def _is_activation(node: ModelNode) -> bool:
    """Return whether a node with a weight makes values that go through the layers."""
    return any(
        result is not None and result.dtype not in ("bool", "i64") for result in node.results
    )


def _signature(nodes: Sequence[ModelNode], fixed: Collection[str]) -> tuple[Any, ...]:
    """Return the operations of a layer, without its weights and without values that other layers
    also have.

    Args:
        fixed: the operations outside of all layers that do not depend on values in them, such as
            masks.
    """
    own = {node.name: number for number, node in enumerate(nodes)}

    def marked(x: Any) -> Any:
        if isinstance(x, Ref):
            place = x.name if x.name in fixed else "outside"
            return ("own", own[x.name]) if x.name in own else place
        return _hashable(x)

    return tuple(
        (
            node.op,
            repr(mapped(node.args, marked)),
            repr(mapped(dict(node.kwargs), marked)),
            node.results,
        )
        for node in nodes
    )


def _hashable(x: Any) -> Any:
    return (x.shape, x.tobytes()) if isinstance(x, np.ndarray) else x  # pyright: ignore


def _runs(signatures: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, int, int]]:
    """Yield runs of layers that repeat: the first layer, the period, and the number of times.

    The run with the most layers comes first, then those in front of it and behind it.
    """
    best = (0, 0, 0, 0)
    n = len(signatures)
    for period in range(1, min(_PERIOD, n // 2) + 1):
        start = 0
        while start + 2 * period <= n:
            end = start + period
            while end < n and signatures[end] == signatures[end - period]:
                end += 1
            times = (end - start) // period
            if times > 1:
                best = max(best, (times * period, -period, -start, times))
            start = max(start + 1, end - period + 1) if times > 1 else start + 1
    covered, period, start, times = best[0], -best[1], -best[2], best[3]
    if not covered or not all(signatures[start : start + period]):
        return
    yield start, period, times
    yield from _runs(signatures[:start])
    for inner, own, count in _runs(signatures[start + covered :]):
        yield start + covered + inner, own, count


@dataclass
class Rolling:
    """The iterations of a loop, compared one by one.

    Attributes:
        iterations: the operations of each, in the same order.
    """

    graph: ModelGraph
    iterations: Sequence[Sequence[ModelNode]]
    path: str
    carries: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    stacks: dict[tuple[str, ...], Stack] = field(default_factory=dict[tuple[str, ...], Stack])
    shared: dict[str, None] = field(default_factory=dict[str, None])

    def loop(self) -> RepeatedNodes | None:
        """Return the loop; None if they differ, or others read what no carry is."""
        first = self.iterations[0]
        place = [{node.name: n for n, node in enumerate(nodes)} for nodes in self.iterations]
        inputs = {x.name: x for x in self.graph.inputs}
        names: dict[tuple[str, ...], str] = {}
        for nodes in zip(*self.iterations, strict=True):
            listed = [list(node.operands()) for node in nodes]
            for operands in zip(*listed, strict=True):
                if operands not in names:
                    name = self._inside(operands, place, inputs)
                    if name is None:
                        return None
                    names[operands] = name
        if any(self._reads_stack(node) for node in self.graph.nodes if self._is_outside(node)):
            return None
        body = [self._renamed(nodes, names) for nodes in zip(*self.iterations, strict=True)]
        last = self.iterations[-1]
        carries = [
            (name, start, first[number].name, last[number].name)
            for (start, number), name in self.carries.items()
        ]
        after = {carry[3] for carry in carries}
        read = {x for node in self.graph.nodes if self._is_outside(node) for x in _read(node)}
        read |= set(self.graph.outputs)
        own = {node.name for nodes in self.iterations for node in nodes}
        if (read & own) - after or not carries:
            return None
        # A value that is carried from different starts has several names behind the loop.
        if len(after) < len(carries):
            return None
        stacks = {stack.name: stack for stack in self.stacks.values()}
        return RepeatedNodes(
            len(self.iterations), tuple(body), tuple(carries), stacks, tuple(self.shared), self.path
        )

    def _inside(
        self,
        operands: tuple[str, ...],
        place: Sequence[Mapping[str, int]],
        inputs: Mapping[str, ModelInput],
    ) -> str | None:
        """Return the name in the body of an operand, given as each iteration has it."""
        numbers = [own.get(x) for own, x in zip(place, operands, strict=True)]
        if numbers[0] is not None:
            return operands[0] if len(set(numbers)) == 1 else None
        before = [own.get(x) for own, x in zip(place, operands[1:], strict=False)]
        if before[0] is not None and len(set(before)) == 1:
            key = operands[0], before[0]
            return self.carries.setdefault(key, f"{operands[0]}_carried_{before[0]}")
        if len(set(operands)) == 1:
            self.shared[operands[0]] = None
            return operands[0]
        if all(x in inputs for x in operands) and len(set(operands)) == len(operands):
            values = tuple(inputs[x] for x in operands)
            if len({(x.value, x.kind, x.axes) for x in values}) == 1:
                name = f"stack_{operands[0]}"
                return self.stacks.setdefault(operands, Stack(name, values)).name
        return None

    def _renamed(
        self, nodes: Sequence[ModelNode], names: Mapping[tuple[str, ...], str]
    ) -> ModelNode:
        listed = zip(*(node.operands() for node in nodes), strict=True)
        renaming = {operands[0]: names[operands] for operands in listed}
        return nodes[0].replaced(renaming)

    def _is_outside(self, node: ModelNode | RepeatedNodes) -> bool:
        return not any(node is own for nodes in self.iterations for own in nodes)

    def _reads_stack(self, node: ModelNode | RepeatedNodes) -> bool:
        stacked = {x.name for stack in self.stacks.values() for x in stack.inputs}
        return not stacked.isdisjoint(_read(node))


def _read(node: ModelNode | RepeatedNodes) -> set[str]:
    if isinstance(node, ModelNode):
        return set(node.operands())
    starts = {start for _, start, _, _ in node.carries} | set(node.shared)
    return starts | {x.name for stack in node.stacks.values() for x in stack.inputs}


def with_loop(
    graph: ModelGraph, iterations: Sequence[Sequence[ModelNode]], loop: RepeatedNodes
) -> ModelGraph:
    """Return the graph with a loop in the place of its iterations, in an order that may run."""
    gone = {id(node) for nodes in iterations for node in nodes}
    items: list[ModelNode | RepeatedNodes] = []
    for node in graph.nodes:
        if id(node) not in gone:
            items.append(node)
        elif not any(item is loop for item in items):
            items.append(loop)
    known = {x.name for x in graph.inputs}
    ordered: list[ModelNode | RepeatedNodes] = []
    waiting = items
    while waiting:  # few operations stand in front of what they read
        left: list[ModelNode | RepeatedNodes] = []
        for item in waiting:
            if _read(item) <= known:
                ordered.append(item)
                known |= _made(item)
            else:
                left.append(item)
        if len(left) == len(waiting):
            return graph
        waiting = left
    return replace(graph, nodes=ordered)


def _made(item: ModelNode | RepeatedNodes) -> set[str]:
    return {item.name} if isinstance(item, ModelNode) else {after for *_, after in item.carries}
