"""Runs of operations that do the same several times, as loops.

A framework whose graphs name no modules writes the layers of a model one behind the other: the
same operations with other weights. A run of them is a part of the graph in which operations with
the same arguments come again after a period; where the first layer begins is not known then, and
the cut that fewest values cross is taken.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from collir.importing.models.graph import ModelGraph, ModelNode, Ref, RepeatedNodes, mapped
from collir.importing.models.layers import Rolling, with_loop
from collir.importing.models.program import common

_LEAST = 4
"""The fewest operations of a layer."""


def repeated(graph: ModelGraph) -> ModelGraph:
    """Return the graph with loops over operations that come several times."""
    nodes = [node for node in graph.nodes if isinstance(node, ModelNode)]
    done = 0
    while (run := _longest(_numbered(nodes[done:]))) is not None:
        start, period, times = run
        made = _loop(graph, nodes, done + start, period, times)
        if made is None:
            break
        loop, iterations = made
        graph = with_loop(graph, iterations, loop)
        done = nodes.index(iterations[-1][-1]) + 1
    return graph


def _numbered(nodes: Sequence[ModelNode]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a number for each operation, equal for operations that differ only in their values."""
    known: dict[tuple[str, str, str, str], int] = {}

    def marked(x: object) -> object:
        return "value" if isinstance(x, Ref) else _form(x) if isinstance(x, ModelGraph) else x

    keys = [
        (n.op, repr(mapped(n.args, marked)), repr(mapped(dict(n.kwargs), marked)), repr(n.results))
        for n in nodes
    ]
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)


def _form(graph: ModelGraph) -> str:
    """Return what a graph does, without the names of its values."""
    names: dict[str, int] = {}

    def number(name: str) -> int:
        return names.setdefault(name, len(names))

    def marked(x: object) -> object:
        return (
            number(x.name) if isinstance(x, Ref) else _form(x) if isinstance(x, ModelGraph) else x
        )

    inputs = [(number(x.name), x.value) for x in graph.inputs]
    nodes = [
        (number(n.name), n.op, mapped(n.args, marked), mapped(dict(n.kwargs), marked), n.results)
        for n in graph.nodes
        if isinstance(n, ModelNode)
    ]
    return repr((inputs, nodes, [number(x) for x in graph.outputs]))


def _longest(marks: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[int, int, int] | None:
    """Return the run that covers most operations: where it begins, its period, and its length."""
    best: tuple[int, int, int] | None = None
    covered = 0
    for period in range(_LEAST, len(marks) // 2 + 1):
        same = np.concatenate([[0], marks[period:] == marks[:-period], [0]]).astype(np.int8)
        edges = np.flatnonzero(np.diff(same))
        for first, last in zip(edges[::2], edges[1::2], strict=True):
            length = int(last - first) + period
            times = length // period
            if times > 1 and times * period > covered:
                best, covered = (int(first), period, length), times * period
    return best


def _loop(
    graph: ModelGraph, nodes: Sequence[ModelNode], start: int, period: int, length: int
) -> tuple[RepeatedNodes, list[list[ModelNode]]] | None:
    """Return a loop over a run, and its iterations; None if values cross it in another way.

    Cuts that fewer values cross are tried first, and among equal ones the earliest.
    """
    times, spare = divmod(length, period)
    cuts = range(start, start + (spare if times > 1 else 0) + 1)
    if times > 2:
        cuts = range(start, start + period)
    ordered = sorted(cuts, key=lambda at: (_crossing(nodes, at, period), at))
    for at in ordered[:_TRIES]:
        count = (start + length - at) // period
        iterations = [list(nodes[at + k * period : at + (k + 1) * period]) for k in range(count)]
        if count < 2:
            continue
        loop = Rolling(graph, iterations, "layers.0").loop()
        if loop is not None:
            weights = [x.inputs[0].of.split(".")[:-1] for x in loop.stacks.values()]
            path = ".".join(common(weights)) if weights else ""
            return replace(loop, path=path or loop.path), iterations
    return None


_TRIES = 16
"""The cuts that are tried."""


def _crossing(nodes: Sequence[ModelNode], at: int, period: int) -> int:
    """Return the number of values of one iteration that later ones read, if it begins here."""
    own = {node.name for node in nodes[at : at + period]}
    later = {x for node in nodes[at + period :] for x in node.operands()}
    return len(own & later)
