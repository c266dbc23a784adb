"""Loops of StableHLO as scans of JAX: the number of iterations, and the slices read and written."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collir.importing.models.graph import ModelGraph, ModelInput, ModelNode, Ref, Shaped, live
from collir.importing.models.rows.table import JAX
from collir.importing.stablehlo.evaluated import evaluated

MOST_TIMES = 10**9


@dataclass(frozen=True)
class Scan:
    """A loop as a scan.

    Attributes:
        body: the body, from constants, carries, and slices to carries and stacked values.
        takes: for each operand, the number of a carry of the loop, or the name of a value outside.
        consts, carries: how many of these are constants, and carries.
        types: those of the results of the body.
        places: for each result, the number of the carry of the loop that it is behind it.
        counter, last: the carry that counts, and what it is in the end.
    """

    body: ModelGraph
    times: int
    takes: tuple[int | str, ...]
    consts: int
    carries: int
    reverse: bool
    types: tuple[Shaped, ...]
    places: tuple[int, ...]
    counter: int | None
    last: int


def counted(
    condition: ModelGraph, body: ModelGraph, starts: Sequence[Any], shapes: Mapping[str, Shaped]
) -> Scan | None:
    """Return a loop as a scan; None if it is not known how often it runs.

    Args:
        starts: what the carries begin with: numbers where they are known.
        shapes: the types of all values.
    """
    counter, limit = _bound(condition)
    if counter is None or limit is None or not isinstance(starts[counter], int):
        return None
    first, step = starts[counter], _step(body, counter)
    if step is None:
        return None
    times = max(0, math.ceil((limit - first) / step))
    if not 0 < times < MOST_TIMES:
        return None
    return _Finder(body, counter, first, step, times, shapes).scan()


def _nodes(graph: ModelGraph) -> dict[str, ModelNode]:
    return {x.name: x for x in graph.nodes if isinstance(x, ModelNode)}


def _used(graph: ModelGraph) -> set[str]:
    """Return the names of the values that are read in a graph, and of its results."""
    read = {name for x in graph.nodes if isinstance(x, ModelNode) for name in x.operands()}
    return read | set(graph.outputs)


def _constant(x: Any, made: Mapping[str, ModelNode]) -> int | None:
    """Return a number that is known."""
    if isinstance(x, Ref):
        own = made.get(x.name)
        if own is None or own.op != "collir.constant" or own.args[0].size != 1:
            return None
        x = own.args[0].item()
    return x if isinstance(x, int) else None


def _bound(condition: ModelGraph) -> tuple[int | None, int | None]:
    """Return the carry that a condition compares, and its upper limit."""
    made = _nodes(condition)
    own = made.get(condition.outputs[0])
    if own is None or own.op not in (f"{JAX}lt", f"{JAX}gt", f"{JAX}le", f"{JAX}ne"):
        return None, None
    left, right = own.args if own.op != f"{JAX}gt" else own.args[::-1]
    numbers = {x.name: n for n, x in enumerate(condition.inputs)}
    limit = _constant(right, made)
    counter = numbers.get(left.name) if isinstance(left, Ref) else None
    if limit is None:
        return None, None
    return counter, limit + (own.op == f"{JAX}le")


def _step(body: ModelGraph, counter: int) -> int | None:
    """Return what a counter grows by in each iteration."""
    made = _nodes(body)
    own = made.get(body.outputs[counter])
    if own is None or own.op != f"{JAX}add":
        return None
    name = body.inputs[counter].name
    others = [x for x in own.args if not (isinstance(x, Ref) and x.name == name)]
    step = _constant(others[0], made) if len(others) == 1 else None
    return step if step is not None and step > 0 else None


class _Finder:
    def __init__(
        self, body: ModelGraph, counter: int, first: int, step: int, times: int,
        shapes: Mapping[str, Shaped],
    ):  # fmt: skip
        self.graph, self.counter, self.times, self.shapes = body, counter, times, shapes
        self.first, self.step = first, step
        self.made = _nodes(body)
        self.names = [x.name for x in body.inputs]
        self.users: dict[str, list[ModelNode]] = {}
        for node in self.made.values():
            for name in node.operands():
                self.users.setdefault(name, []).append(node)

    def at(self, x: Any, iteration: int) -> int | None:
        """Return a number in an iteration; None if it is not known."""
        known: dict[str, Any] = {
            self.names[self.counter]: np.asarray(self.first + iteration * self.step)
        }
        return self._number(x, known)

    def _number(self, x: Any, known: dict[str, Any]) -> int | None:
        if not isinstance(x, Ref):
            return int(x)
        stack = [x.name]
        while stack:
            name = stack[-1]
            own = self.made.get(name)
            if name in known:
                stack.pop()
                continue
            if own is None:
                return None
            if own.op == "collir.constant":
                known[name] = own.args[0]
                continue
            missing = [n for n in own.operands() if n not in known]
            if missing:
                stack += missing
                continue
            given = [known[y.name] if isinstance(y, Ref) else np.asarray(y) for y in own.args]
            if own.result.shape and math.prod(own.result.shape) != 1:
                return None
            dtype = np.dtype(bool if own.result.dtype == "bool" else np.int64)
            try:
                number = evaluated(
                    own.op.removeprefix(JAX), given, own.kwargs, own.result.shape, dtype
                )
            except (TypeError, ValueError, IndexError, KeyError):
                number = None
            if number is None:
                return None
            known[name] = number
        return int(known[x.name].reshape(-1)[0])

    def order(
        self, node: ModelNode, starts: Sequence[Any], part: tuple[int, ...], whole: Any
    ) -> str:
        """Return whether a slice begins at the number of the iteration, or at that from the end."""
        if whole is None or whole.shape[:1] != (self.times,) or part != (1, *whole.shape[1:]):
            return ""
        samples = sorted({0, min(1, self.times - 1), self.times - 1})
        rows: list[int | None] = []
        for iteration in samples:
            own, *others = (self.at(x, iteration) for x in starts)
            if any(n != 0 for n in others):
                return ""
            rows.append(own)
        if rows == samples:
            return "forward"
        return "reverse" if rows == [self.times - 1 - n for n in samples] else ""

    def scan(self) -> Scan:
        names, outputs = self.names, self.graph.outputs
        same = {n for n, name in enumerate(names) if outputs[n] == name}
        reads: dict[str, list[ModelNode]] = {}
        orders: dict[str, set[str]] = {}
        for node in self.made.values():
            if node.op == f"{JAX}dynamic_slice" and isinstance(node.args[0], Ref):
                source = node.args[0].name
                is_kept = source not in self.made and (
                    source not in names or names.index(source) in same
                )
                how = self.order(node, node.args[1:], node.result.shape, self.shapes.get(source))
                if is_kept and how:
                    reads.setdefault(source, []).append(node)
                    orders.setdefault(source, set()).add(how)
        writes: dict[int, ModelNode] = {}
        for n, name in enumerate(names):
            own = self.made.get(outputs[n])
            if own is None or own.op != f"{JAX}dynamic_update_slice" or own.args[0] != Ref(name):
                continue
            update = own.args[1]
            part = self.shapes[update.name].shape if isinstance(update, Ref) else ()
            how = self.order(own, own.args[2:], part, self.shapes.get(name))
            alone = len(self.users.get(name, [])) == 1 and own.name not in self.users
            if how and alone and outputs.count(own.name) == 1:
                writes[n] = own
                orders.setdefault(name, set()).add(how)
        known = {how for own in orders.values() for how in own}
        if len(known) > 1:  # a scan has one direction
            reads, writes = {}, {}
        return self._made(same, reads, writes, known == {"reverse"} and bool(reads or writes))

    def _made(
        self, same: set[int], reads: Mapping[str, list[ModelNode]], writes: Mapping[int, ModelNode],
        reverse: bool,
    ) -> Scan:  # fmt: skip
        names, outputs = self.names, self.graph.outputs
        slices: list[ModelInput] = []
        nodes: list[ModelNode] = []
        sources: list[str] = []
        replaced: dict[str, ModelNode] = {}
        for source, own in reads.items():
            whole = self.shapes[source]
            part = ModelInput(f"{source}_slice", Shaped(whole.shape[1:], whole.dtype), "slice")
            slices.append(part)
            sources.append(source)
            for node in own:
                replaced[node.name] = replace(
                    node, op=f"{JAX}reshape", args=(Ref(part.name),), kwargs={}
                )
        written: dict[int, str] = {}
        ends = {node.name for node in writes.values()}
        for node in self.made.values():
            if node.name not in ends:
                nodes.append(replaced.get(node.name, node))
        for n, node in writes.items():
            type = self.shapes[names[n]]
            made = ModelNode(f"{node.name}_part", f"{JAX}reshape", (node.args[1],), {},
                        (Shaped(type.shape[1:], type.dtype),), node.path, node.line)  # fmt: skip
            nodes.append(made)
            written[n] = made.name
        carried = [n for n in range(len(names)) if n not in same and n not in writes]
        results = [*(outputs[n] for n in carried if n != self.counter), *written.values()]
        inner = ModelGraph([], [*nodes], results)
        alive = live(inner)
        used = _used(alive)
        is_counted = names[self.counter] in used
        if is_counted:
            results = [*(outputs[n] for n in carried), *written.values()]
            alive = live(ModelGraph([], [*nodes], results))
            used = _used(alive)
        carried = [n for n in carried if is_counted or n != self.counter]
        defined = {x.name for x in alive.nodes if isinstance(x, ModelNode)} | {
            x.name for x in slices
        }
        own = set(names)
        consts: list[int | str] = [n for n in sorted(same) if names[n] in used]
        consts += [name for name in sorted(used) if name not in defined and name not in own]
        inputs = [
            *(self.graph.inputs[n] if isinstance(n, int) else ModelInput(n, self.shapes[n], "const")
              for n in consts),
            *(self.graph.inputs[n] for n in carried),
            *slices,
        ]  # fmt: skip
        types = [self.graph.inputs[n].value for n in carried]
        types += [
            Shaped(self.shapes[names[n]].shape[1:], self.shapes[names[n]].dtype) for n in written
        ]
        whole = [names.index(s) if s in own else s for s in sources]
        return Scan(
            replace(alive, inputs=inputs), self.times, (*consts, *carried, *whole), len(consts),
            len(carried), reverse, tuple(types), (*carried, *written),
            None if is_counted else self.counter, self.first + self.times * self.step,
        )  # fmt: skip
